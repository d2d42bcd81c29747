// Deregistration races operations: none touches the memory once it has returned.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "check.h"

using namespace testing;

namespace {

constexpr size_t kWindow = 1 << 20;
constexpr size_t kHalf = kWindow / 2;

// The client's memory is mapped, registered, deregistered, filled with a mark, and unmapped, over and
// over, while the server reads and writes by tokens that grow stale.
void race(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    ClientProcess remote([](ClientProcess::Say say, ClientProcess::Listen listen) {
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        while (true) {
            void* memory = mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(memory != MAP_FAILED);
            std::memset(memory, 0x22, kWindow);
            CHECK_EQ(client.cuMemObjGetDescriptor(memory, kWindow), CU_OBJ_SUCCESS);
            say(token_for(client, memory, kWindow));
            if (listen() == 'q') return 0;
            usleep(static_cast<useconds_t>(random() % 1500));
            CHECK_EQ(client.cuMemObjPutDescriptor(memory), CU_OBJ_SUCCESS);
            std::memset(memory, 0x33, kWindow);
            usleep(300);
            CHECK(all_equal(memory, kWindow, 0x33));
            munmap(memory, kWindow);
        }
    });

    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    std::vector<char> source(kWindow, 0x44), sink(kWindow);
    rdma_buffer* from = server.registerBuffer(source.data(), kWindow);
    rdma_buffer* into = server.registerBuffer(sink.data(), kWindow);
    uint16_t channels[2] = {server.allocateChannelId(), server.allocateChannelId()};
    size_t moved = 0, refused = 0;
    std::string token = remote.line();
    for (int round = 0; round < 150; round++) {
        uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
        remote.command('g');
        // Each thread goes on until the registration has gone: one writes the first half of the
        // window, the other reads the second.
        auto hammer = [&](bool get) {
            size_t good = 0;
            while (true) {
                ibv_wc_status status = IBV_WC_SUCCESS;
                ssize_t got = get ? server.handleGetObject("k", from, start, kHalf, token, channels[0], 0,
                                                           &status)
                                  : server.handlePutObject("k", into, start + kHalf, kHalf, token,
                                                           channels[1], 0, &status);
                if (got < 0) {
                    CHECK_EQ(got, -EIO);
                    // A stream in the way of a deregistration may be cut.
                    CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR);
                    return good;
                }
                CHECK_EQ(got, kHalf);
                good++;
            }
        };
        size_t written = 0;
        std::thread writer([&] { written = hammer(true); });
        size_t read = hammer(false);
        writer.join();
        moved += written + read;
        refused += 2;
        token = remote.line();
        CHECK_EQ(token.size(), 81);
    }
    // The race was one: operations went through before each end.
    CHECK(moved > 0 && refused == 300);
    remote.command('q');
    CHECK_EQ(remote.finish(), 0);
}

// The server's own side: a buffer can be freed once its deregistration has returned.
void local_side() {
    setenv("CUOBJ_SOFT_PATH", "auto", 1);
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> remote(kWindow, 0x55);
    CHECK_EQ(client.cuMemObjGetDescriptor(remote.data(), kWindow), CU_OBJ_SUCCESS);
    std::string token = token_for(client, remote.data(), kWindow);
    uint64_t start = address_of(remote.data());
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    for (int round = 0; round < 50; round++) {
        uint16_t channel = server.allocateChannelId();
        void* local = mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        rdma_buffer* buffer = server.registerBuffer(local, kWindow);
        for (uintptr_t i = 1; i <= 4; i++) {
            CHECK_EQ(server.handlePutObject("k", buffer, start, kWindow, token, channel, 0, nullptr,
                                            reinterpret_cast<void*>(i)), 0);
        }
        if (round % 2) server.freeChannelId(channel);
        server.deRegisterBuffer(buffer);
        std::memset(local, 0x66, kWindow);
        CHECK(all_equal(local, kWindow, 0x66));
        munmap(local, kWindow);
        if (round % 2 == 0) server.freeChannelId(channel);
    }
    CHECK_EQ(client.cuMemObjPutDescriptor(remote.data()), CU_OBJ_SUCCESS);
}

// Registrations and tokens come and go on many threads.
void registrations_in_parallel() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&client] {
            std::vector<char> memory(4096);
            for (int i = 0; i < 300; i++) {
                CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
                CHECK_EQ(token_for(client, memory.data(), 100).size(), 81);
                CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
    race("vm");
    race("tcp");
    local_side();
    registrations_in_parallel();
    std::puts("race: passed");
}
