// The C ABI over cuObjServer.
#include "internal.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "cuobjserver.h"

using vgw_cuobj::fail;
using vgw_cuobj::guarded;
using vgw_cuobj::null_argument;

// Handles: the server is ours, buffers are the library's own pointers under another name.
struct vgw_cuobj_server {
    vgw_cuobj::Roomy<cuObjServer> object;

    vgw_cuobj_server(const char *address, unsigned short port) : object(address, port, kProtocol) {}
    vgw_cuobj_server(const char *address, unsigned short port, cuObjRDMATunable tunables)
        : object(address, port, kProtocol, tunables) {}

    cuObjServer &get() { return object.get(); }

    // RDMA over DC transport, the only protocol there is ("cuObjServer API Specification").
    static constexpr unsigned kProtocol = 1001;
};

namespace {

rdma_buffer *library_buffer(vgw_cuobj_buffer *buffer) {
    return reinterpret_cast<rdma_buffer *>(buffer);
}

vgw_cuobj_buffer *handle_of(rdma_buffer *buffer) {
    return reinterpret_cast<vgw_cuobj_buffer *>(buffer);
}

// ---- Tunables --------------------------------------------------------------------------------------

template <class Tunable>
vgw_cuobj_tunables from_library(Tunable &from) {
    vgw_cuobj_tunables to = {};
    to.num_dcis = from.getNumDcis();
    to.cq_depth = from.getCqDepth();
    to.dc_key = from.getDcKey();
    to.service_level = from.getServiceLevel();
    to.pkey_index = from.getPkeyIndex();
    to.max_sge = from.getMaxSge();
    to.max_rd_atomic = from.getMaxRdAtomic();
    to.hop_limit = from.getHopLimit();
    to.traffic_class = from.getTrafficClass();
    to.delay_interval_ns = from.getDelayInterval();
    to.delay_mode = static_cast<int32_t>(from.getDelayMode());
    to.timeout = from.getTimeout();
    to.retry_count = from.getRetryCount();
    to.qp_reset_on_failure = from.getQPResetOnFailure();
    return to;
}

template <class Tunable>
void to_library(const vgw_cuobj_tunables &from, Tunable &to) {
    to.setNumDcis(from.num_dcis);
    to.setCqDepth(from.cq_depth);
    to.setDcKey(from.dc_key);
    to.setServiceLevel(from.service_level);
    to.setPkeyIndex(from.pkey_index);
    to.setMaxSge(from.max_sge);
    to.setMaxRdAtomic(from.max_rd_atomic);
    to.setHopLimit(from.hop_limit);
    to.setTrafficClass(from.traffic_class);
    to.setDelayInterval(from.delay_interval_ns);
    to.setDelayMode(static_cast<decltype(to.getDelayMode())>(from.delay_mode));
    to.setTimeout(from.timeout);
    to.setRetryCount(from.retry_count);
    to.setQPResetOnFailure(from.qp_reset_on_failure);
}

// The parameter of getConfigTunableParam, whatever the headers call it.
template <class Result, class Class, class Param>
Param effective_param(Result (Class::*)(Param *));

template <class Server, class = void>
struct HasEffectiveTunables : std::false_type {};
template <class Server>
struct HasEffectiveTunables<Server, std::void_t<decltype(&Server::getConfigTunableParam)>>
    : std::true_type {};

template <class Server>
vgw_cuobj_status effective_tunables(Server &server, vgw_cuobj_tunables *out, vgw_cuobj_text error) {
    if constexpr (HasEffectiveTunables<Server>::value) {
        decltype(effective_param(&Server::getConfigTunableParam)) from = {};
        server.getConfigTunableParam(&from);
        vgw_cuobj_tunables to = {};
        to.num_dcis = from.num_dcis;
        to.cq_depth = from.cq_depth;
        to.dc_key = from.dc_key;
        to.service_level = from.service_level;
        to.pkey_index = from.pkey_index;
        to.max_sge = from.max_sge;
        to.max_rd_atomic = from.max_rd_atomic;
        to.hop_limit = from.hop_limit;
        to.traffic_class = from.traffic_class;
        to.delay_interval_ns = from.delay_interval;
        to.delay_mode = static_cast<int32_t>(from.delay_mode);
        to.timeout = from.timeout;
        to.retry_count = from.retry_cnt;
        to.qp_reset_on_failure = from.qp_reset_on_failure;
        *out = to;
        return VGW_CUOBJ_OK;
    } else {
        (void)server;
        (void)out;
        return fail(error, VGW_CUOBJ_UNSUPPORTED, "this server library does not tell its effective tunables");
    }
}

template <class Server, class = void>
struct HasConnectionBase : std::false_type {};
template <class Server>
struct HasConnectionBase<Server, std::void_t<decltype(&Server::initRDMAConfigParams)>> : std::true_type {};

// ---- Operations ------------------------------------------------------------------------------------

// Named as the S3 request is: kGet writes into the client's memory, kPut reads from it.
enum class Direction { kGet, kPut };

vgw_cuobj_status transfer(Direction direction, vgw_cuobj_server *server,
                          const vgw_cuobj_operation *operation, int64_t *result, uint32_t *wc_status,
                          vgw_cuobj_text error) {
    if (server == nullptr) {
        return null_argument(error, "server");
    }
    if (operation == nullptr) {
        return null_argument(error, "operation");
    }
    if (result == nullptr) {
        return null_argument(error, "result");
    }
    if (operation->buffer == nullptr) {
        return null_argument(error, "operation.buffer");
    }
    if (operation->descriptor == nullptr) {
        return null_argument(error, "operation.descriptor");
    }
    if (operation->key == nullptr && operation->key_length != 0) {
        return null_argument(error, "operation.key");
    }
    if (operation->poll_delay_ns > static_cast<int64_t>(UINT32_MAX)) {
        return fail(error, VGW_CUOBJ_BAD_ARGUMENT, "operation.poll_delay_ns is above 4294967295");
    }
    // Kept for the next call of the thread, so that an operation allocates nothing.
    thread_local std::string key;
    thread_local std::string descriptor;
    key.assign(operation->key == nullptr ? "" : operation->key, operation->key_length);
    descriptor.assign(operation->descriptor, operation->descriptor_length);

    constexpr auto kUnset = static_cast<ibv_wc_status>(0x7fffffff);
    ibv_wc_status status = kUnset;
    // An asynchronous call must keep no pointer to this frame.
    ibv_wc_status *status_out = operation->async_handle == nullptr ? &status : nullptr;
    cuObjServer &library = server->get();
    rdma_buffer *buffer = library_buffer(operation->buffer);
    const uint64_t remote = operation->remote_start;
    const uint64_t local = operation->local_offset_bytes;
    const uint16_t channel = operation->channel;
    ssize_t moved;
    if (operation->poll_delay_ns >= 0) {
        const auto delay_ns = static_cast<uint32_t>(operation->poll_delay_ns);
        moved = direction == Direction::kGet
                    ? library.handleGetObject(key, buffer, remote, operation->size_bytes, descriptor, delay_ns,
                                              channel, local, status_out, operation->async_handle)
                    : library.handlePutObject(key, buffer, remote, operation->size_bytes, descriptor, delay_ns,
                                              channel, local, status_out, operation->async_handle);
    } else {
        moved = direction == Direction::kGet
                    ? library.handleGetObject(key, buffer, remote, operation->size_bytes, descriptor, channel,
                                              local, status_out, operation->async_handle)
                    : library.handlePutObject(key, buffer, remote, operation->size_bytes, descriptor, channel,
                                              local, status_out, operation->async_handle);
    }
    *result = moved;
    if (wc_status != nullptr) {
        *wc_status = status == kUnset ? VGW_CUOBJ_NO_COMPLETION : static_cast<uint32_t>(status);
    }
    return VGW_CUOBJ_OK;
}

}  // namespace

namespace vgw_cuobj {

uint32_t server_abilities() {
    uint32_t abilities = 0;
    if (HasEffectiveTunables<cuObjServer>::value) {
        abilities |= VGW_CUOBJ_HAS_EFFECTIVE_TUNABLES;
    }
    if (HasTelemetryMask<cuObjServer>::value) {
        abilities |= VGW_CUOBJ_HAS_SERVER_TELEMETRY_MASK;
    }
    if (HasConnectionBase<cuObjServer>::value) {
        abilities |= VGW_CUOBJ_HAS_CONNECTION_BASE;
    }
    return abilities;
}

const char *server_version() {
    return version_of<cuObjServer>();
}

}  // namespace vgw_cuobj

extern "C" {

vgw_cuobj_status vgw_cuobj_server_telemetry(vgw_cuobj_line_fn sink, void *context, uint32_t flags,
                                            vgw_cuobj_text error) {
    return guarded(error, [&] {
        return vgw_cuobj::start_telemetry<cuObjServer>(vgw_cuobj::server_telemetry(), sink, context, flags,
                                                       error);
    });
}

vgw_cuobj_status vgw_cuobj_server_telemetry_flags(uint32_t flags, uint32_t second_mask, vgw_cuobj_text error) {
    return guarded(error, [&] { return vgw_cuobj::set_flags<cuObjServer>(flags, second_mask, error); });
}

vgw_cuobj_status vgw_cuobj_server_telemetry_stop(vgw_cuobj_text error) {
    return guarded(error,
                   [&] { return vgw_cuobj::stop_telemetry<cuObjServer>(vgw_cuobj::server_telemetry()); });
}

vgw_cuobj_status vgw_cuobj_server_default_tunables(vgw_cuobj_tunables *out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        cuObjRDMATunable defaults;
        *out = from_library(defaults);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_create(const char *address, size_t address_length, uint16_t port,
                                         const vgw_cuobj_tunables *tunables, vgw_cuobj_server **out,
                                         vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (address == nullptr) {
            return null_argument(error, "address");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        const std::string literal(address, address_length);
        if (literal.empty() || literal.find('\0') != std::string::npos) {
            return fail(error, VGW_CUOBJ_BAD_ARGUMENT, "address is empty or holds a NUL");
        }
        if (tunables == nullptr) {
            *out = new vgw_cuobj_server(literal.c_str(), port);
        } else {
            cuObjRDMATunable library;
            to_library(*tunables, library);
            *out = new vgw_cuobj_server(literal.c_str(), port, library);
        }
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_destroy(vgw_cuobj_server *server, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        delete server;
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_connected(vgw_cuobj_server *server, bool *out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        *out = server->get().isConnected();
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_tunables(vgw_cuobj_server *server, vgw_cuobj_tunables *out,
                                           vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        return effective_tunables(server->get(), out, error);
    });
}

vgw_cuobj_status vgw_cuobj_server_alloc_host_buffer(vgw_cuobj_server *server, size_t size_bytes, void **out,
                                                    vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        void *start = server->get().allocHostBuffer(size_bytes);
        if (start == nullptr) {
            return fail(error, VGW_CUOBJ_REFUSED, "the library allocated no buffer");
        }
        *out = start;
        return VGW_CUOBJ_OK;
    });
}

void vgw_cuobj_server_free_host_buffer(void *start) {
    std::free(start);
}

vgw_cuobj_status vgw_cuobj_server_register(vgw_cuobj_server *server, void *start, size_t size_bytes,
                                           vgw_cuobj_buffer **out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        rdma_buffer *buffer = server->get().registerBuffer(start, size_bytes);
        if (buffer == nullptr) {
            return fail(error, VGW_CUOBJ_REFUSED, "the library registered no buffer");
        }
        *out = handle_of(buffer);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_register_list(vgw_cuobj_server *server, const vgw_cuobj_segment *segments,
                                                size_t segment_count, vgw_cuobj_buffer **out,
                                                vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (segments == nullptr) {
            return null_argument(error, "segments");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        std::vector<cuObjScatterGatherEntry_t> entries(segment_count);
        for (size_t i = 0; i < segment_count; ++i) {
            entries[i].addr = segments[i].start;
            entries[i].size = segments[i].size_bytes;
        }
        rdma_buffer *buffer = server->get().registerBuffer(std::move(entries));
        if (buffer == nullptr) {
            return fail(error, VGW_CUOBJ_REFUSED, "the library registered no buffer from the list");
        }
        *out = handle_of(buffer);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_deregister(vgw_cuobj_server *server, vgw_cuobj_buffer *buffer,
                                             vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        server->get().deRegisterBuffer(library_buffer(buffer));
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_get_view(vgw_cuobj_server *server, vgw_cuobj_buffer *base,
                                           const vgw_cuobj_range *ranges, size_t range_count,
                                           vgw_cuobj_buffer **out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (base == nullptr) {
            return null_argument(error, "base");
        }
        if (ranges == nullptr) {
            return null_argument(error, "ranges");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        std::vector<cuObjScatterGatherEntryWithOffset_t> entries(range_count);
        for (size_t i = 0; i < range_count; ++i) {
            if (ranges[i].offset_bytes > static_cast<uint64_t>(INT64_MAX)) {
                return fail(error, VGW_CUOBJ_BAD_ARGUMENT, "offset_bytes of a range is above the largest loff_t");
            }
            entries[i].offset = static_cast<loff_t>(ranges[i].offset_bytes);
            entries[i].size = ranges[i].size_bytes;
        }
        rdma_buffer *view = server->get().getRDMABufferFromSgList(library_buffer(base), std::move(entries));
        if (view == nullptr) {
            return fail(error, VGW_CUOBJ_REFUSED, "the library made no view");
        }
        *out = handle_of(view);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_put_view(vgw_cuobj_server *server, vgw_cuobj_buffer *view,
                                           vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (view == nullptr) {
            return null_argument(error, "view");
        }
        server->get().putRDMABufferFromSgList(library_buffer(view));
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_allocate_channel(vgw_cuobj_server *server, uint16_t *out,
                                                   vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        const uint16_t channel = server->get().allocateChannelId();
        if (channel == UINT16_MAX) {
            return fail(error, VGW_CUOBJ_REFUSED, "no channel is free");
        }
        *out = channel;
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_free_channel(vgw_cuobj_server *server, uint16_t channel,
                                               vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        server->get().freeChannelId(channel);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_server_get(vgw_cuobj_server *server, const vgw_cuobj_operation *operation,
                                      int64_t *result, uint32_t *wc_status, vgw_cuobj_text error) {
    return guarded(error,
                   [&] { return transfer(Direction::kGet, server, operation, result, wc_status, error); });
}

vgw_cuobj_status vgw_cuobj_server_put(vgw_cuobj_server *server, const vgw_cuobj_operation *operation,
                                      int64_t *result, uint32_t *wc_status, vgw_cuobj_text error) {
    return guarded(error,
                   [&] { return transfer(Direction::kPut, server, operation, result, wc_status, error); });
}

vgw_cuobj_status vgw_cuobj_server_poll(vgw_cuobj_server *server, uint16_t channel, vgw_cuobj_event *events,
                                       size_t capacity, size_t *count, int32_t *result,
                                       vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (server == nullptr) {
            return null_argument(error, "server");
        }
        if (events == nullptr) {
            return null_argument(error, "events");
        }
        if (count == nullptr) {
            return null_argument(error, "count");
        }
        if (result == nullptr) {
            return null_argument(error, "result");
        }
        if (capacity == 0) {
            return fail(error, VGW_CUOBJ_BAD_ARGUMENT, "capacity is 0");
        }
        if (capacity > VGW_CUOBJ_MAX_EVENTS) {
            capacity = VGW_CUOBJ_MAX_EVENTS;
        }
        cuObjAsyncEvent_t completed[VGW_CUOBJ_MAX_EVENTS] = {};
        const int answer = server->get().poll(completed, static_cast<int>(capacity), channel);
        // After a failure the answer is no count. Handles are never null, so the first null ends the
        // events that were filled.
        size_t filled = 0;
        const size_t limit = answer >= 0 && static_cast<size_t>(answer) < capacity
                                 ? static_cast<size_t>(answer)
                                 : capacity;
        while (filled < limit && completed[filled].async_handle != nullptr) {
            events[filled].async_handle = completed[filled].async_handle;
            events[filled].wc_status = completed[filled].status;
            ++filled;
        }
        *count = filled;
        *result = answer;
        return VGW_CUOBJ_OK;
    });
}

}  // extern "C"
