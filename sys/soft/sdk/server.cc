// cuObjServer on the fabric. No exception leaves these functions.
#include "cuobjserver.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "fabric/address.h"
#include "sdk/server_state.h"
#include "sdk/telemetry.h"

using cuobj_soft::server_telemetry;
using cuobj_soft::ServerState;
using softfabric::Direction;

#pragma GCC diagnostic push
// Only the offset is asked for, of a class without virtual functions or virtual bases.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
struct cuObjServerLayout {
    static_assert(offsetof(cuObjServer, state_) == 208, "private state follows the base class");
    static_assert(offsetof(cuObjServer, connected_) == 216, "where inline isConnected() reads");
#if CUOBJ_SOFT_GENERATION == 1
    static_assert(offsetof(cuObjServer, params) == 0, "tunables come first");
    static_assert(offsetof(RDMAConnection, device_) == 200, "the device ends the base class");
#endif
};
#pragma GCC diagnostic pop

namespace {

constexpr size_t kPage = 4096;

// Memory exhaustion inside the library becomes the function's ordinary failure.
template <typename Result, typename Body>
Result guarded(Result failure, Body body) {
    try {
        return body();
    } catch (const std::exception& error) {
        server_telemetry().error(error.what());
        return failure;
    }
}

ServerState* open_state(const cuObjRDMATunableParam& tunables) {
    return guarded<ServerState*>(nullptr, [&] { return new ServerState(tunables); });
}

void report_start(const char* ip, int error) {
    std::string where = ip ? ip : "(no address)";
    if (error == 0) server_telemetry().info("session on " + where);
    else server_telemetry().error("no session on " + where + ": " + std::strerror(-error));
}

// Tunables that a device would refuse leave the session closed, as there.
bool acceptable(const cuObjRDMATunableParam& tunables) {
    std::string wrong = ServerState::check(tunables);
    if (!wrong.empty()) server_telemetry().error("no session: " + wrong);
    return wrong.empty();
}

}  // namespace

cuObjServer::cuObjServer(const char* ip, unsigned short port, unsigned proto)
    : cuObjServer(ip, port, proto, cuObjRDMATunable()) {}

#if CUOBJ_SOFT_GENERATION == 1
#define CUOBJ_SOFT_OPEN (connected_ && device_)

cuObjServer::cuObjServer(const char* ip, unsigned short port, unsigned, cuObjRDMATunable tunables)
    : RDMAConnection(ip, port), state_(nullptr), connected_(false), reserved_{} {
    initRDMAConfigParams(tunables);
    int error = guarded(-ENOMEM, [&] { return startRDMASession(); });
    state_ = open_state(tunables.rdmaParam);
    connected_ = error == 0 && state_ && acceptable(tunables.rdmaParam);
    report_start(ip, error);
}
#else
#define CUOBJ_SOFT_OPEN (connected_)

cuObjServer::cuObjServer(const char* ip, unsigned short, unsigned, cuObjRDMATunable tunables)
    : base_{}, state_(nullptr), connected_(false), reserved_{} {
    std::memcpy(base_, &tunables.rdmaParam, sizeof tunables.rdmaParam);
    int error = guarded(-ENOMEM, [&] {
        auto address = softfabric::Address::parse(ip ? ip : "");
        if (!address) return -EINVAL;
        return address->is_unicast() && address->is_local() ? 0 : -EADDRNOTAVAIL;
    });
    state_ = open_state(tunables.rdmaParam);
    connected_ = error == 0 && state_ && acceptable(tunables.rdmaParam);
    report_start(ip, error);
}
#endif

cuObjServer::~cuObjServer() {
    connected_ = false;
    // A forked child has none of the threads that the destructor would wait for.
    if (state_ && !state_->is_forked()) delete state_;
}

void* cuObjServer::allocHostBuffer(size_t size) {
    void* memory = nullptr;
    if (size == 0 || posix_memalign(&memory, kPage, size) != 0) return nullptr;
    return memory;
}

rdma_buffer* cuObjServer::registerBuffer(void* ptr, size_t size) {
    return registerBuffer(std::vector<cuObjScatterGatherEntry_t>{{ptr, size}});
}

rdma_buffer* cuObjServer::registerBuffer(std::vector<cuObjScatterGatherEntry_t> sglist) {
    if (!CUOBJ_SOFT_OPEN) return nullptr;
    return guarded<rdma_buffer*>(nullptr, [&] {
        rdma_buffer* buffer = state_->buffers().add(sglist, state_->max_pieces());
        if (!buffer) server_telemetry().error("cannot register: an empty or overflowing range");
        return buffer;
    });
}

void cuObjServer::deRegisterBuffer(rdma_buffer* buffer) {
    if (!buffer || !state_ || state_->is_forked()) return;
    guarded(0, [&] { return state_->buffers().remove(buffer), 0; });
}

rdma_buffer* cuObjServer::getRDMABufferFromSgList(
    rdma_buffer* base, std::vector<cuObjScatterGatherEntryWithOffset_t> sglist) {
    if (!CUOBJ_SOFT_OPEN || !base) return nullptr;
    return guarded<rdma_buffer*>(nullptr, [&] {
        rdma_buffer* view = state_->buffers().add_view(base, sglist, state_->max_pieces());
        if (!view) server_telemetry().error("no view: a piece lies outside the registration");
        return view;
    });
}

void cuObjServer::putRDMABufferFromSgList(rdma_buffer* view) { deRegisterBuffer(view); }

ssize_t cuObjServer::handleGetObject(const std::string& key, rdma_buffer* local,
                                     uint64_t remote_buf_start, size_t size,
                                     const std::string& rdma_descr, uint32_t, uint16_t channel,
                                     uint64_t local_offset, ibv_wc_status* status,
                                     void* async_handle) {
    return handleGetObject(key, local, remote_buf_start, size, rdma_descr, channel, local_offset,
                           status, async_handle);
}

ssize_t cuObjServer::handleGetObject(const std::string&, rdma_buffer* local,
                                     uint64_t remote_buf_start, size_t size,
                                     const std::string& rdma_descr, uint16_t channel,
                                     uint64_t local_offset, ibv_wc_status* status,
                                     void* async_handle) {
    if (!CUOBJ_SOFT_OPEN || state_->is_forked()) return -ENODEV;
    return guarded<ssize_t>(-ENOMEM, [&] {
        return state_->transfer({Direction::kWrite, local, remote_buf_start, size, rdma_descr, channel,
                                 local_offset, status, async_handle});
    });
}

ssize_t cuObjServer::handlePutObject(const std::string& key, rdma_buffer* local,
                                     uint64_t remote_buf_start, size_t size,
                                     const std::string& rdma_descr, uint32_t, uint16_t channel,
                                     uint64_t local_offset, ibv_wc_status* status,
                                     void* async_handle) {
    return handlePutObject(key, local, remote_buf_start, size, rdma_descr, channel, local_offset,
                           status, async_handle);
}

ssize_t cuObjServer::handlePutObject(const std::string&, rdma_buffer* local,
                                     uint64_t remote_buf_start, size_t size,
                                     const std::string& rdma_descr, uint16_t channel,
                                     uint64_t local_offset, ibv_wc_status* status,
                                     void* async_handle) {
    if (!CUOBJ_SOFT_OPEN || state_->is_forked()) return -ENODEV;
    return guarded<ssize_t>(-ENOMEM, [&] {
        return state_->transfer({Direction::kRead, local, remote_buf_start, size, rdma_descr, channel,
                                 local_offset, status, async_handle});
    });
}

int cuObjServer::poll(cuObjAsyncEvent_s* events, int max_events, uint16_t channel) {
    if (!CUOBJ_SOFT_OPEN || state_->is_forked()) return -ENODEV;
    return guarded(-ENOMEM, [&] { return state_->poll(events, max_events, channel); });
}

uint16_t cuObjServer::allocateChannelId() {
    if (!state_ || state_->is_forked()) return INVALID_CHANNEL_ID;
    return guarded<uint16_t>(INVALID_CHANNEL_ID, [&] { return state_->allocate_channel(); });
}

void cuObjServer::freeChannelId(uint16_t channel) {
    if (!state_ || state_->is_forked()) return;
    guarded(0, [&] { return state_->free_channel(channel), 0; });
}

void cuObjServer::setupTelemetry(bool, std::ostream* stream) { server_telemetry().set_stream(stream); }

void cuObjServer::shutdownTelemetry() { server_telemetry().set_stream(nullptr); }

#if CUOBJ_SOFT_GENERATION == 1
void cuObjServer::setTelemFlags(unsigned flags) { server_telemetry().set_flags(flags); }
#endif

void cuObjServer::setTelemFlags(unsigned flags, unsigned) { server_telemetry().set_flags(flags); }

const char* cuObjServer::getVersion() { return CUOBJ_SOFT_GENERATION == 1 ? "1.2.0" : "2.0.0"; }
