// The C ABI over cuObjClient.
#include "internal.h"

#include <cerrno>
#include <cstring>

#include "cuobjclient.h"

using vgw_cuobj::fail;
using vgw_cuobj::guarded;
using vgw_cuobj::null_argument;
using vgw_cuobj::refused;

namespace {

// What a callback needs to know; lives on the stack of the call that caused it.
struct Call {
    vgw_cuobj_request_fn carry;
    void *context;
};

// Called by the library: exceptions of its getCtx end here, too.
template <class Pointer>
ssize_t carry(int32_t op, const void *handle, Pointer start, size_t size, loff_t offset,
              const cufileRDMAInfo_t *info) noexcept {
    try {
        const auto *call = static_cast<const Call *>(cuObjClient::getCtx(handle));
        if (call == nullptr || info == nullptr || info->desc_str == nullptr || info->desc_len < 0) {
            return -EINVAL;
        }
        vgw_cuobj_request request = {};
        request.start = const_cast<char *>(static_cast<const char *>(start));
        request.size_bytes = size;
        request.offset_bytes = offset;
        request.descriptor = info->desc_str;
        // desc_len counts the NUL in some versions and not in others.
        request.descriptor_length = strnlen(info->desc_str, static_cast<size_t>(info->desc_len));
        request.op = op;
        return call->carry(call->context, &request);
    } catch (...) {
        return -EFAULT;
    }
}

ssize_t carry_get(const void *handle, char *start, size_t size, loff_t offset, const cufileRDMAInfo_t *info) {
    return carry(VGW_CUOBJ_OP_GET, handle, start, size, offset, info);
}

ssize_t carry_put(const void *handle, const char *start, size_t size, loff_t offset,
                  const cufileRDMAInfo_t *info) {
    return carry(VGW_CUOBJ_OP_PUT, handle, start, size, offset, info);
}

CUObjOps_t library_callbacks() {
    CUObjOps_t ops = {};
    ops.get = carry_get;
    ops.put = carry_put;
    return ops;
}

template <class Client, class = void>
struct HasTokenReset : std::false_type {};
template <class Client>
struct HasTokenReset<Client, std::void_t<decltype(std::declval<Client &>().cuMemObjPutRDMAToken(
                                 static_cast<char *>(nullptr), 0))>> : std::true_type {};

template <class Client>
auto put_token(Client &client, char *token, int32_t reason) {
    if constexpr (HasTokenReset<Client>::value) {
        if (reason != 0) {
            return client.cuMemObjPutRDMAToken(token, reason);
        }
    }
    (void)reason;
    return client.cuMemObjPutRDMAToken(token);
}

}  // namespace

struct vgw_cuobj_client {
    vgw_cuobj_client(vgw_cuobj_request_fn get, vgw_cuobj_request_fn put)
        : carry_get(get), carry_put(put), callbacks(library_callbacks()), object(callbacks) {}

    cuObjClient &get() { return object.get(); }

    const vgw_cuobj_request_fn carry_get;
    const vgw_cuobj_request_fn carry_put;
    // The class takes them by reference; it may keep it.
    CUObjOps_t callbacks;
    vgw_cuobj::Roomy<cuObjClient> object;
};

namespace vgw_cuobj {

uint32_t client_abilities() {
    uint32_t abilities = 0;
    if (HasTelemetryMask<cuObjClient>::value) {
        abilities |= VGW_CUOBJ_HAS_CLIENT_TELEMETRY_MASK;
    }
    if (HasTokenReset<cuObjClient>::value) {
        abilities |= VGW_CUOBJ_HAS_TOKEN_RESET;
    }
    return abilities;
}

const char *client_version() {
    return version_of<cuObjClient>();
}

}  // namespace vgw_cuobj

extern "C" {

vgw_cuobj_status vgw_cuobj_client_telemetry(vgw_cuobj_line_fn sink, void *context, uint32_t flags,
                                            vgw_cuobj_text error) {
    return guarded(error, [&] {
        return vgw_cuobj::start_telemetry<cuObjClient>(vgw_cuobj::client_telemetry(), sink, context, flags,
                                                       error);
    });
}

vgw_cuobj_status vgw_cuobj_client_telemetry_flags(uint32_t flags, uint32_t second_mask, vgw_cuobj_text error) {
    return guarded(error, [&] { return vgw_cuobj::set_flags<cuObjClient>(flags, second_mask, error); });
}

vgw_cuobj_status vgw_cuobj_client_telemetry_stop(vgw_cuobj_text error) {
    return guarded(error,
                   [&] { return vgw_cuobj::stop_telemetry<cuObjClient>(vgw_cuobj::client_telemetry()); });
}

vgw_cuobj_status vgw_cuobj_client_create(vgw_cuobj_request_fn get, vgw_cuobj_request_fn put,
                                         vgw_cuobj_client **out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (get == nullptr) {
            return null_argument(error, "get");
        }
        if (put == nullptr) {
            return null_argument(error, "put");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        *out = new vgw_cuobj_client(get, put);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_destroy(vgw_cuobj_client *client, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        delete client;
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_connected(vgw_cuobj_client *client, bool *out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        *out = client->get().isConnected();
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_get_descriptor(vgw_cuobj_client *client, void *start, size_t size_bytes,
                                                 vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        const auto answer = client->get().cuMemObjGetDescriptor(start, size_bytes);
        if (answer != 0) {
            return refused(error, "cuMemObjGetDescriptor answered", static_cast<int64_t>(answer));
        }
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_put_descriptor(vgw_cuobj_client *client, void *start,
                                                 vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        const auto answer = client->get().cuMemObjPutDescriptor(start);
        if (answer != 0) {
            return refused(error, "cuMemObjPutDescriptor answered", static_cast<int64_t>(answer));
        }
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_max_callback_bytes(vgw_cuobj_client *client, void *start, int64_t *result,
                                                     vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        if (result == nullptr) {
            return null_argument(error, "result");
        }
        *result = client->get().cuMemObjGetMaxRequestCallbackSize(start);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_get_token(vgw_cuobj_client *client, void *start, size_t size_bytes,
                                            size_t buffer_offset_bytes, int32_t op, char **token,
                                            vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        if (token == nullptr) {
            return null_argument(error, "token");
        }
        if (op != VGW_CUOBJ_OP_GET && op != VGW_CUOBJ_OP_PUT) {
            return fail(error, VGW_CUOBJ_BAD_ARGUMENT, "op is neither get nor put");
        }
        char *minted = nullptr;
        const auto answer = client->get().cuMemObjGetRDMAToken(start, size_bytes, buffer_offset_bytes,
                                                               static_cast<cuObjOpType_t>(op), &minted);
        if (answer != 0 || minted == nullptr) {
            return refused(error, "cuMemObjGetRDMAToken answered", static_cast<int64_t>(answer));
        }
        *token = minted;
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_put_token(vgw_cuobj_client *client, char *token, int32_t reason,
                                            vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (token == nullptr) {
            return null_argument(error, "token");
        }
        const auto answer = put_token(client->get(), token, reason);
        if (answer != 0) {
            return refused(error, "cuMemObjPutRDMAToken answered", static_cast<int64_t>(answer));
        }
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_get(vgw_cuobj_client *client, void *context, void *start,
                                      size_t size_bytes, int64_t offset_bytes, int64_t buffer_offset_bytes,
                                      int64_t *result, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        if (result == nullptr) {
            return null_argument(error, "result");
        }
        Call call{client->carry_get, context};
        *result = client->get().cuObjGet(&call, start, size_bytes, offset_bytes, buffer_offset_bytes);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_put(vgw_cuobj_client *client, void *context, void *start,
                                      size_t size_bytes, int64_t offset_bytes, int64_t buffer_offset_bytes,
                                      int64_t *result, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (client == nullptr) {
            return null_argument(error, "client");
        }
        if (start == nullptr) {
            return null_argument(error, "start");
        }
        if (result == nullptr) {
            return null_argument(error, "result");
        }
        Call call{client->carry_put, context};
        *result = client->get().cuObjPut(&call, start, size_bytes, offset_bytes, buffer_offset_bytes);
        return VGW_CUOBJ_OK;
    });
}

vgw_cuobj_status vgw_cuobj_client_memory_type(const void *start, int32_t *out, vgw_cuobj_text error) {
    return guarded(error, [&]() -> vgw_cuobj_status {
        if (out == nullptr) {
            return null_argument(error, "out");
        }
        *out = static_cast<int32_t>(cuObjClient::getMemoryType(start));
        return VGW_CUOBJ_OK;
    });
}

}  // extern "C"
