// Either side killed in the middle of transfers leaves the other one sane.
#include <csignal>
#include <cstring>
#include <thread>

#include "check.h"

using namespace testing;

namespace {

constexpr size_t kWindow = 32u << 20;

// A client that registers, tells its token and waits.
int idle_client(ClientProcess::Say say, ClientProcess::Listen listen) {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> memory(kWindow);
    fill(memory.data(), 4096, 1);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), kWindow), CU_OBJ_SUCCESS);
    say(token_for(client, memory.data(), kWindow));
    listen();
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
    return 0;
}

void client_killed(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    std::vector<char> local(kWindow);
    rdma_buffer* buffer = server.registerBuffer(local.data(), kWindow);
    uint16_t channel = server.allocateChannelId();
    for (bool get : {false, true}) {
        ClientProcess client(idle_client);
        std::string token = client.line();
        uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
        std::thread killer([&] {
            usleep(60000);
            ::kill(client.pid(), SIGKILL);
        });
        // Transfers go on until one of them meets the client's death.
        ibv_wc_status status = IBV_WC_SUCCESS;
        ssize_t moved = 0;
        do {
            moved = get ? server.handleGetObject("k", buffer, start, kWindow, token, channel, 0, &status)
                        : server.handlePutObject("k", buffer, start, kWindow, token, channel, 0, &status);
            CHECK(moved == static_cast<ssize_t>(kWindow) || moved == -EIO);
        } while (moved > 0);
        killer.join();
        CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
        CHECK_EQ(client.finish(), -SIGKILL);
        CHECK_EQ(server.handlePutObject("k", buffer, start, 16, token, channel, 0, &status), -EIO);
        CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    }
    // The same channel serves the next client.
    ClientProcess client(idle_client);
    std::string token = client.line();
    uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
    CHECK(holds(local.data(), 4096, 1));
    client.command('q');
    CHECK_EQ(client.finish(), 0);
}

// A stopped client is silent: the operation ends as retries exceeded, and works again when the
// client does.
void client_stopped(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    cuObjRDMATunable impatient;
    impatient.setTimeout(10);
    impatient.setRetryCount(1);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, impatient);
    std::vector<char> local(4096);
    rdma_buffer* buffer = server.registerBuffer(local.data(), 4096);
    uint16_t channel = server.allocateChannelId();
    ClientProcess client(idle_client);
    std::string token = client.line();
    uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
    ::kill(client.pid(), SIGSTOP);
    int state = 0;
    CHECK(::waitpid(client.pid(), &state, WUNTRACED) == client.pid() && WIFSTOPPED(state));
    ibv_wc_status status = IBV_WC_SUCCESS;
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel, 0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    ::kill(client.pid(), SIGCONT);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
    client.command('q');
    CHECK_EQ(client.finish(), 0);
}

// The server dies while it holds leases or streams: the client's deregistration returns.
void server_killed(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    CUObjOps_t ops = no_callbacks();
    for (int round = 0; round < 3; round++) {
        // The child learns the token by a pipe of its own, since the parent is the client here.
        int pipe_fds[2];
        CHECK(::pipe(pipe_fds) == 0);
        ClientProcess server_process([&](ClientProcess::Say say, ClientProcess::Listen) {
            char text[82] = "";
            CHECK(::read(pipe_fds[0], text, 81) == 81);
            std::string token = text;
            uint64_t start = std::strtoull(text, nullptr, 16);
            cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
            std::vector<char> local(kWindow);
            rdma_buffer* buffer = server.registerBuffer(local.data(), kWindow);
            uint16_t channel = server.allocateChannelId();
            CHECK_EQ(server.handlePutObject("k", buffer, start, kWindow, token, channel), kWindow);
            say("started");
            while (true) {
                if (server.handleGetObject("k", buffer, start, kWindow, token, channel) < 0) return 3;
            }
        });
        std::vector<char> memory(kWindow);
        cuObjClient client(ops);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), kWindow), CU_OBJ_SUCCESS);
        std::string token = token_for(client, memory.data(), kWindow);
        CHECK(::write(pipe_fds[1], token.data(), 81) == 81);
        CHECK(server_process.line() == "started");
        usleep(30000);
        ::kill(server_process.pid(), SIGKILL);
        CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
        CHECK_EQ(server_process.finish(), -SIGKILL);
        ::close(pipe_fds[0]);
        ::close(pipe_fds[1]);
    }
}

// A process that ends by return from main, or by exit() on another thread, with its agent busy.
void exits(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    std::vector<char> local(kWindow);
    rdma_buffer* buffer = server.registerBuffer(local.data(), kWindow);
    uint16_t channel = server.allocateChannelId();
    ClientProcess client([](ClientProcess::Say say, ClientProcess::Listen) {
        CUObjOps_t ops = no_callbacks();
        static cuObjClient client(ops);
        static auto& memory = *new std::vector<char>(kWindow);  // registered to the end
        CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), kWindow), CU_OBJ_SUCCESS);
        say(token_for(client, memory.data(), kWindow));
        usleep(50000);
        std::exit(7);  // runs static destructors while the server reads
        return 0;
    });
    std::string token = client.line();
    uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
    ssize_t moved;
    do {
        moved = server.handlePutObject("k", buffer, start, kWindow, token, channel);
    } while (moved > 0);
    CHECK_EQ(client.finish(), 7);
}

}  // namespace

int main() {
    // The forking parts first, while this process has no threads of its own.
    for (const char* path : {"vm", "tcp"}) {
        client_killed(path);
        client_stopped(path);
        exits(path);
    }
    for (const char* path : {"vm", "tcp"}) server_killed(path);
    std::puts("death: passed");
}
