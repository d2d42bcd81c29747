// Prints the bandwidth of both data paths beside that of memcpy. Not a test.
//   speed [MiB per operation] [operations]
#include <chrono>
#include <cstring>

#include "check.h"

using namespace testing;

namespace {

double seconds_of(const std::function<void()>& work) {
    auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void* pages(size_t size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    madvise(memory, size, MADV_HUGEPAGE);
    std::memset(memory, 1, size);
    return memory;
}

}  // namespace

int main(int argc, char** argv) {
    double mib = argc > 1 ? std::atof(argv[1]) : 4;
    int operations = argc > 2 ? std::atoi(argv[2]) : 200;
    auto size = static_cast<size_t>(mib * (1 << 20));
    // Cycling through more memory than the caches hold, as a gateway's pool does.
    size_t slots = std::max<size_t>(1, (size_t{256} << 20) / size);
    size_t window = size * slots;

    ClientProcess remote([&](ClientProcess::Say say, ClientProcess::Listen listen) {
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        void* memory = pages(window);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory, window), CU_OBJ_SUCCESS);
        say(token_for(client, memory, window));
        listen();
        return 0;
    });
    std::string token = remote.line();
    uint64_t start = std::strtoull(token.c_str(), nullptr, 16);
    auto* local = static_cast<char*>(pages(window));
    auto* other = static_cast<char*>(pages(window));

    auto rate = [&](double seconds) {
        return static_cast<double>(size) * operations / seconds / 1e9;
    };
    double copy = rate(seconds_of([&] {
        for (int i = 0; i < operations; i++) {
            size_t at = static_cast<size_t>(i) % slots * size;
            std::memcpy(other + at, local + at, size);
        }
    }));
    std::printf("memcpy           %7.2f GB/s\n", copy);

    for (const char* path : {"vm", "tcp"}) {
        setenv("CUOBJ_SOFT_PATH", path, 1);
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        CHECK(server.isConnected());
        rdma_buffer* buffer = server.registerBuffer(local, window);
        uint16_t channel = server.allocateChannelId();
        for (bool get : {false, true}) {
            double got = rate(seconds_of([&] {
                for (int i = 0; i < operations; i++) {
                    size_t at = static_cast<size_t>(i) % slots * size;
                    ssize_t moved =
                        get ? server.handleGetObject("k", buffer, start + at, size, token, channel, at)
                            : server.handlePutObject("k", buffer, start + at, size, token, channel, at);
                    CHECK_EQ(moved, size);
                }
            }));
            std::printf("%-4s %-10s  %7.2f GB/s  %.2f x memcpy\n", path, get ? "GET write" : "PUT read",
                        got, got / copy);
        }
        server.deRegisterBuffer(buffer);
    }
    remote.command('q');
    return remote.finish();
}
