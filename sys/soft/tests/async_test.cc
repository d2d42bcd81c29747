// Asynchronous operations: order, bounds, failures in the middle, reset, many channels at a time.
#include <cerrno>
#include <cstring>
#include <thread>

#include "check.h"
#include "fabric/fault.h"

using namespace testing;

namespace {

constexpr size_t kPiece = 4096;
constexpr size_t kPieces = 64;
constexpr size_t kWindow = kPiece * kPieces;

void* handle(uintptr_t number) { return reinterpret_cast<void*>(number); }

// Polls until `count` events have come or the channel fails; sleeps in between, as a program would.
int collect(cuObjServer& server, uint16_t channel, std::vector<cuObjAsyncEvent_t>* out, size_t count) {
    while (out->size() < count) {
        cuObjAsyncEvent_t events[32];
        std::memset(events, 0, sizeof events);
        int got = server.poll(events, 32, channel);
        if (got < 0) {
            for (const auto& event : events) {
                if (event.async_handle) out->push_back(event);
            }
            return got;
        }
        CHECK(got <= 16);
        out->insert(out->end(), events, events + got);
        if (got == 0) usleep(200);
    }
    return 0;
}

struct Fixture {
    explicit Fixture(const char* path, cuObjRDMATunable tunables = {}) {
        setenv("CUOBJ_SOFT_PATH", path, 1);
        CUObjOps_t ops = no_callbacks();
        client = new cuObjClient(ops);
        remote.resize(kWindow);
        local.resize(kWindow);
        fill(remote.data(), kWindow, 1);
        CHECK_EQ(client->cuMemObjGetDescriptor(remote.data(), kWindow), CU_OBJ_SUCCESS);
        token = token_for(*client, remote.data(), kWindow);
        bad_key = token;
        bad_key.replace(26, 8, "00005a5a");
        start = address_of(remote.data());
        server = new cuObjServer("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, tunables);
        CHECK(server->isConnected());
        buffer = server->registerBuffer(local.data(), kWindow);
    }
    ~Fixture() {
        delete server;
        CHECK_EQ(client->cuMemObjPutDescriptor(remote.data()), CU_OBJ_SUCCESS);
        delete client;
    }

    ssize_t put(uint16_t channel, size_t piece, uintptr_t number, const std::string& with) {
        return server->handlePutObject("k", buffer, start + piece % kPieces * kPiece, kPiece, with,
                                       channel, piece % kPieces * kPiece, nullptr, handle(number));
    }

    cuObjClient* client;
    cuObjServer* server;
    rdma_buffer* buffer;
    std::vector<char> remote, local;
    std::string token, bad_key;
    uint64_t start;
};

void in_order(const char* path) {
    Fixture f(path);
    uint16_t channel = f.server->allocateChannelId();
    for (size_t i = 0; i < 40; i++) CHECK_EQ(f.put(channel, i, i + 1, f.token), 0);
    std::vector<cuObjAsyncEvent_t> events;
    CHECK_EQ(collect(*f.server, channel, &events, 40), 0);
    for (size_t i = 0; i < 40; i++) {
        CHECK(events[i].async_handle == handle(i + 1));
        CHECK_EQ(events[i].status, IBV_WC_SUCCESS);
    }
    CHECK(holds(f.local.data(), 40 * kPiece, 1));
    cuObjAsyncEvent_t event;
    CHECK_EQ(f.server->poll(&event, 1, channel), 0);

    // The bound of the call is kept, and what is left comes with the next.
    for (size_t i = 0; i < 6; i++) CHECK_EQ(f.put(channel, i, i + 1, f.token), 0);
    size_t got = 0;
    while (got < 6) {
        cuObjAsyncEvent_t some[4];
        int count = f.server->poll(some, 4, channel);
        CHECK(count >= 0 && count <= 4);
        for (int i = 0; i < count; i++) CHECK(some[i].async_handle == handle(++got));
        if (count == 0) usleep(200);
    }
}

void arguments() {
    Fixture f("auto");
    uint16_t channel = f.server->allocateChannelId();
    cuObjAsyncEvent_t event;
    CHECK_EQ(f.server->poll(nullptr, 1, channel), -EINVAL);
    CHECK_EQ(f.server->poll(&event, -1, channel), -EINVAL);
    CHECK_EQ(f.server->poll(&event, 0, channel), 0);
    CHECK_EQ(f.server->poll(&event, 1, 99), -EINVAL);
    CHECK_EQ(f.server->poll(&event, 1, 60000), -EINVAL);
    f.server->freeChannelId(channel);
    CHECK_EQ(f.server->poll(&event, 1, channel), -EINVAL);
    CHECK_EQ(f.put(channel, 0, 1, f.token), -EIO);
    f.server->freeChannelId(channel);
    f.server->freeChannelId(60000);
    // All numbers, each once; then none; a freed one comes again.
    for (int i = 0; i < 128; i++) CHECK_EQ(f.server->allocateChannelId(), i);
    CHECK_EQ(f.server->allocateChannelId(), INVALID_CHANNEL_ID);
    f.server->freeChannelId(77);
    CHECK_EQ(f.server->allocateChannelId(), 77);
}

// The sixth of forty fails: sixteen events, the others are lost, and the channel works again.
void failure_in_the_middle(const char* path) {
    Fixture f(path);
    uint16_t channel = f.server->allocateChannelId();
    // Held up, so that all forty are queued before the first has ended.
    std::string error;
    CHECK(softfabric::set_fault_rules("delay:ms=30,n=1", &error));
    for (size_t i = 0; i < 40; i++) CHECK_EQ(f.put(channel, i, i + 1, i == 5 ? f.bad_key : f.token), 0);
    std::vector<cuObjAsyncEvent_t> events;
    // Let the failure happen first, so that one poll reports it all.
    usleep(200000);
    CHECK_EQ(collect(*f.server, channel, &events, 40), -EIO);
    CHECK_EQ(events.size(), 16);
    for (size_t i = 0; i < 16; i++) {
        CHECK(events[i].async_handle == handle(i + 1));
        CHECK_EQ(events[i].status, i < 5 ? IBV_WC_SUCCESS
                                 : i == 5 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    cuObjAsyncEvent_t event;
    CHECK_EQ(f.server->poll(&event, 1, channel), 0);
    CHECK(holds(f.local.data(), 5 * kPiece, 1));
    CHECK(all_equal(f.local.data() + 5 * kPiece, kWindow - 5 * kPiece, 0));
    CHECK_EQ(f.put(channel, 7, 70, f.token), 0);
    events.clear();
    CHECK_EQ(collect(*f.server, channel, &events, 1), 0);
    CHECK(events[0].async_handle == handle(70));
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, f.start, kPiece, f.token, channel), kPiece);

    // A failure with fewer than sixteen behind it reports each of them.
    for (size_t i = 0; i < 8; i++) CHECK_EQ(f.put(channel, i, i + 1, i == 2 ? f.bad_key : f.token), 0);
    usleep(100000);
    events.clear();
    CHECK_EQ(collect(*f.server, channel, &events, 8), -EIO);
    CHECK_EQ(events.size(), 8);
    CHECK_EQ(events[2].status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(events[7].status, IBV_WC_WR_FLUSH_ERR);
    CHECK(softfabric::set_fault_rules("", &error));
}

void bounded_depth() {
    cuObjRDMATunable tunables;
    tunables.setCqDepth(256);
    Fixture f("auto", tunables);
    uint16_t channel = f.server->allocateChannelId();
    for (size_t i = 0; i < 256; i++) CHECK_EQ(f.put(channel, i, i + 1, f.token), 0);
    CHECK_EQ(f.put(channel, 0, 257, f.token), -EIO);
    // A synchronous call would have to jump the queue; here it is refused.
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, f.start, 16, f.token, channel), -EBUSY);
    std::vector<cuObjAsyncEvent_t> events;
    CHECK_EQ(collect(*f.server, channel, &events, 256), 0);
    CHECK_EQ(events.size(), 256);
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, f.start, 16, f.token, channel), 16);
    // Freed with operations in flight: the running one ends, the others are dropped.
    for (size_t i = 0; i < 100; i++) CHECK_EQ(f.put(channel, i, i + 1, f.token), 0);
    f.server->freeChannelId(channel);
    f.server->deRegisterBuffer(f.buffer);
    std::memset(f.local.data(), 0x11, kWindow);
    usleep(20000);
    CHECK(all_equal(f.local.data(), kWindow, 0x11));
}

// 64 in flight on each of four channels, each channel with a thread of its own.
void many_channels(const char* path) {
    Fixture f(path);
    fill(f.local.data(), kWindow, 5);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&f, t] {
            std::vector<char> own(kWindow);
            rdma_buffer* buffer = f.server->registerBuffer(own.data(), kWindow);
            uint16_t channel = f.server->allocateChannelId();
            for (int round = 0; round < 5; round++) {
                std::memset(own.data(), 0, kWindow);
                for (size_t i = 0; i < kPieces; i++) {
                    CHECK_EQ(f.server->handlePutObject("k", buffer, f.start + i * kPiece, kPiece, f.token,
                                                       channel, i * kPiece, nullptr, handle(i + 1)), 0);
                }
                std::vector<cuObjAsyncEvent_t> events;
                CHECK_EQ(collect(*f.server, channel, &events, kPieces), 0);
                for (size_t i = 0; i < kPieces; i++) CHECK(events[i].async_handle == handle(i + 1));
                CHECK(holds(own.data(), kWindow, 1));
                // Another thread's failures are no concern of this channel.
                if (t == 0) {
                    CHECK_EQ(f.server->handlePutObject("k", buffer, f.start, 16, f.bad_key, channel),
                             -EIO);
                }
            }
            f.server->freeChannelId(channel);
            f.server->deRegisterBuffer(buffer);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
    for (const char* path : {"vm", "tcp"}) {
        in_order(path);
        failure_in_the_middle(path);
        many_channels(path);
    }
    arguments();
    bounded_depth();
    std::puts("async: passed");
}
