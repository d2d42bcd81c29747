// dropin server: serves one buffer as other projects do, with tunables of their own, telemetry into a
// stream, asynchronous operations on two channels with a poll loop, and views made of pieces.
//
// For each line "OPERATION SIZE REMOTE_START TOKEN" on stdin it moves bytes and prints how many, or a
// negative error number: P and G (PUT, GET) in asynchronous chunks, p and g through a view of two pieces.
// Anything else ends it; then it prints how much telemetry there was. Runs with either server library.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "cuobjserver.h"

namespace {

constexpr size_t kBuffer = 16 << 20;
constexpr size_t kChunk = 256 << 10;
// The vendor's library loses completions of a failed channel beyond these.
constexpr int kInFlight = 16;

struct Request {
    char operation = 0;
    size_t size = 0;
    uint64_t remote = 0;
    std::string token;

    bool put() const { return operation == 'P' || operation == 'p'; }
};

class Store {
public:
    Store(cuObjServer& server) : server_(server) {
        memory_ = server.allocHostBuffer(kBuffer);
        buffer_ = server.registerBuffer(memory_, kBuffer);
        for (uint16_t& channel : channels_) channel = server.allocateChannelId();
    }
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    ~Store() {
        for (uint16_t channel : channels_) server_.freeChannelId(channel);
        server_.deRegisterBuffer(buffer_);
        std::free(memory_);
    }

    bool ready() const {
        return memory_ && buffer_ && channels_[0] != INVALID_CHANNEL_ID && channels_[1] != INVALID_CHANNEL_ID;
    }

    ssize_t in_chunks(const Request& request) {
        ssize_t moved = 0;
        size_t next = 0;
        int in_flight[2] = {0, 0};
        while (next < request.size || in_flight[0] + in_flight[1] > 0) {
            for (int i = 0; i < 2; i++) {
                while (next < request.size && in_flight[i] < kInFlight) {
                    size_t chunk = std::min(kChunk, request.size - next);
                    ssize_t submitted = move(request, next, chunk, channels_[i], reinterpret_cast<void*>(chunk));
                    if (submitted != 0) return submitted < 0 ? submitted : -EPROTO;
                    in_flight[i]++;
                    next += chunk;
                }
                cuObjAsyncEvent_t events[kInFlight];
                int seen = server_.poll(events, kInFlight, channels_[i]);
                if (seen < 0) return seen;
                for (int k = 0; k < seen; k++) {
                    if (events[k].status != IBV_WC_SUCCESS) return -EIO;
                    moved += static_cast<ssize_t>(reinterpret_cast<uintptr_t>(events[k].async_handle));
                }
                in_flight[i] -= seen;
            }
        }
        return moved;
    }

    // In the buffer the two halves of the object are the other way round.
    ssize_t through_view(const Request& request) {
        size_t half = request.size / 2;
        auto middle = static_cast<loff_t>(kBuffer / 2);
        rdma_buffer* view = server_.getRDMABufferFromSgList(buffer_, {{middle, half}, {0, request.size - half}});
        if (!view) return -ENOMEM;
        ibv_wc_status status = IBV_WC_GENERAL_ERR;
        ssize_t moved = request.put() ? server_.handlePutObject("key", view, request.remote, request.size,
                                                                request.token, channels_[0], 0, &status)
                                      : server_.handleGetObject("key", view, request.remote, request.size,
                                                                request.token, channels_[0], 0, &status);
        server_.putRDMABufferFromSgList(view);
        return moved > 0 && status != IBV_WC_SUCCESS ? -EPROTO : moved;
    }

private:
    ssize_t move(const Request& request, size_t offset, size_t size, uint16_t channel, void* handle) {
        return request.put() ? server_.handlePutObject("key", buffer_, request.remote + offset, size, request.token,
                                                       channel, offset, nullptr, handle)
                             : server_.handleGetObject("key", buffer_, request.remote + offset, size, request.token,
                                                       channel, offset, nullptr, handle);
    }

    cuObjServer& server_;
    void* memory_ = nullptr;
    rdma_buffer* buffer_ = nullptr;
    uint16_t channels_[2];
};

}  // namespace

int main() {
    std::ostringstream telemetry;
    cuObjServer::setupTelemetry(false, &telemetry);
#if CUOBJ_SOFT_GENERATION == 1
    cuObjServer::setTelemFlags(CUOBJ_LOG_PATH_INFO | CUOBJ_LOG_PATH_ERROR);
#else
    cuObjServer::setTelemFlags(CUOBJ_LOG_PATH_INFO | CUOBJ_LOG_PATH_ERROR, 0);
#endif
    {
        cuObjRDMATunable tunables;
        tunables.setNumDcis(4);
        tunables.setDcKey(0x1234567);
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, tunables);
        if (!server.isConnected()) {
            std::cerr << telemetry.str() << "no session\n";
            return 1;
        }
        Store store(server);
        if (!store.ready()) return 1;
        Request request;
        while (std::cin >> request.operation >> request.size >> request.remote >> request.token) {
            bool whole = request.operation == 'P' || request.operation == 'G';
            std::cout << (whole ? store.in_chunks(request) : store.through_view(request)) << std::endl;
        }
    }
    cuObjServer::shutdownTelemetry();
    std::cout << telemetry.str().size() << std::endl;
    return 0;
}
