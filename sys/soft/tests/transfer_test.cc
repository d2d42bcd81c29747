// Sizes, offsets and both directions, over both data paths, against a client in another process.
#include <cerrno>
#include <cctype>
#include <cstring>

#include "check.h"

using namespace testing;

namespace {

constexpr size_t kWindow = 64u << 20;
constexpr size_t kSizes[] = {1, 2, 3, 63, 4095, 4096, 4097, 65537, (1u << 20) + 13, kWindow};

void run(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    ClientProcess remote([](ClientProcess::Say say, ClientProcess::Listen listen) {
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        std::vector<char> memory(kWindow);
        fill(memory.data(), kWindow, 1);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), kWindow), CU_OBJ_SUCCESS);
        say(token_for(client, memory.data(), kWindow));
        // After each GET the server tells that it has written the first `size` bytes.
        for (size_t size : kSizes) {
            if (listen() != 'g') return 2;
            say(holds(memory.data(), size, 2) ? "good" : "bad");
            if (size < kWindow) say(memory[size] == static_cast<char>(pattern(size, 1)) ? "good" : "bad");
            fill(memory.data(), size, 1);
            say("again");
        }
        listen();
        return 0;
    });
    std::string token = remote.line();
    uint64_t start = std::strtoull(token.c_str(), nullptr, 16);

    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    CHECK(server.isConnected());
    auto* local = static_cast<char*>(server.allocHostBuffer(kWindow));
    CHECK(local && address_of(local) % 4096 == 0);
    rdma_buffer* buffer = server.registerBuffer(local, kWindow);
    CHECK(buffer);
    uint16_t channel = server.allocateChannelId();
    CHECK_EQ(channel, 0);

    for (size_t size : kSizes) {
        ibv_wc_status status = IBV_WC_GENERAL_ERR;
        std::memset(local, 0, kWindow);
        CHECK_EQ(server.handlePutObject("k", buffer, start, size, token, channel, 0, &status), size);
        CHECK_EQ(status, IBV_WC_SUCCESS);
        CHECK(holds(local, size, 1));
        CHECK(size == kWindow || local[size] == 0);

        // The end of the window, into the end of the buffer.
        std::memset(local, 0, kWindow);
        CHECK_EQ(server.handlePutObject("k", buffer, start + kWindow - size, size, token, 1000u, channel,
                                        kWindow - size), size);
        CHECK(holds(local + kWindow - size, size, 1, kWindow - size));
        CHECK(size == kWindow || local[kWindow - size - 1] == 0);

        fill(local, size, 2);
        CHECK_EQ(server.handleGetObject("k", buffer, start, size, token, channel, 0, &status), size);
        CHECK_EQ(status, IBV_WC_SUCCESS);
        remote.command('g');
        CHECK(remote.line() == "good");
        if (size < kWindow) CHECK(remote.line() == "good");
        CHECK(remote.line() == "again");
    }
    // Upper-case digits, and what older clients append, are accepted.
    std::string upper = token;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    CHECK_EQ(server.handlePutObject("k", buffer, start, 10, upper, channel), 10);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 10, token + ":0:0", channel), 10);
    remote.command('q');
    CHECK_EQ(remote.finish(), 0);
    server.deRegisterBuffer(buffer);
    std::free(local);
}

// Client and server in one process, which is also what a test of a whole gateway does.
void run_in_one_process(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    constexpr size_t kSize = 100001;
    std::vector<char> memory(kSize);
    fill(memory.data(), kSize, 3);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), kSize), CU_OBJ_SUCCESS);
    std::string token = token_for(client, memory.data(), 1000, 77);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    std::vector<char> local(kSize);
    rdma_buffer* buffer = server.registerBuffer(local.data(), kSize);
    uint16_t channel = server.allocateChannelId();
    uint64_t start = address_of(memory.data());
    CHECK_EQ(server.handlePutObject("k", buffer, start + 77, 1000, token, channel), 1000);
    CHECK(holds(local.data(), 1000, 3, 77));
    // The window begins at 77 and ends at 1077, whatever the registration.
    CHECK_EQ(server.handlePutObject("k", buffer, start + 76, 1000, token, channel), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start + 78, 1000, token, channel), -EIO);
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
}

}  // namespace

int main() {
    // The parts that fork come before this process has threads.
    for (const char* path : {"vm", "tcp", "auto"}) run(path);
    // IPv6, where the machine has it.
    if (cuObjServer("::1", 19100, CUOBJ_PROTO_RDMA_DC_V1).isConnected()) {
        setenv("CUOBJ_SOFT_ADDR", "::1", 1);
        run("auto");
        run("tcp");
        unsetenv("CUOBJ_SOFT_ADDR");
    } else {
        std::puts("transfer: IPv6 not run, the machine has none");
    }
    for (const char* path : {"vm", "tcp"}) run_in_one_process(path);
    std::puts("transfer: passed");
}
