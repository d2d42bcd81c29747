// cuObjClient on the fabric. No exception leaves these functions but a callback's own.
#include "cuobjclient.h"

#include <new>

#include "fabric/device.h"
#include "sdk/client_state.h"
#include "sdk/telemetry.h"

using cuobj_soft::CallHandle;
using cuobj_soft::client_telemetry;
using cuobj_soft::ClientState;
using cuobj_soft::Registry;

namespace {

// Memory exhaustion inside the library becomes the function's ordinary failure.
template <typename Result, typename Body>
Result guarded(Result failure, Body body) {
    try {
        return body();
    } catch (const std::exception& error) {
        client_telemetry().error(error.what());
        return failure;
    }
}

}  // namespace

cuObjClient::cuObjClient(CUObjOps_t& ops, cuObjProto_t proto)
    : state_(new (std::nothrow) ClientState(ops, proto)), reserved_{} {}

cuObjClient::~cuObjClient() { delete state_; }

cuObjErr_t cuObjClient::cuMemObjGetDescriptor(void* ptr, size_t size) {
    return guarded(CU_OBJ_FAIL, [&] {
        return Registry::instance().add(ptr, size) ? CU_OBJ_SUCCESS : CU_OBJ_FAIL;
    });
}

cuObjErr_t cuObjClient::cuMemObjPutDescriptor(void* ptr) {
    return guarded(CU_OBJ_FAIL, [&] {
        Registry::instance().remove(ptr);
        return CU_OBJ_SUCCESS;
    });
}

ssize_t cuObjClient::cuMemObjGetMaxRequestCallbackSize(void* ptr) {
    size_t size = Registry::instance().size_of(ptr);
    return size == 0 ? -1 : static_cast<ssize_t>(size);
}

cuObjErr_t cuObjClient::cuMemObjGetRDMAToken(void* ptr, size_t size, size_t buffer_offset,
                                             cuObjOpType_t operation, char** desc_str_out) {
    if (!desc_str_out || (operation != CUOBJ_GET && operation != CUOBJ_PUT)) return CU_OBJ_FAIL;
    return guarded(CU_OBJ_FAIL, [&] {
        char* token = Registry::instance().mint(ptr, size, buffer_offset);
        if (!token) {
            client_telemetry().error("no token: not the start of a registration, or outside of it");
            return CU_OBJ_FAIL;
        }
        *desc_str_out = token;
        return CU_OBJ_SUCCESS;
    });
}

cuObjErr_t cuObjClient::cuMemObjPutRDMAToken(char* desc_str) {
    return guarded(CU_OBJ_FAIL, [&] {
        return Registry::instance().discard(desc_str) ? CU_OBJ_SUCCESS : CU_OBJ_FAIL;
    });
}

cuObjErr_t cuObjClient::cuMemObjPutRDMAToken(char* desc_str, int err_code) {
    // The vendor's library resets its endpoint after a failure; connections here reset themselves.
    if (err_code != 0) client_telemetry().debug("a transfer ended in error " + std::to_string(err_code));
    return cuMemObjPutRDMAToken(desc_str);
}

void* cuObjClient::getCtx(const void* handle) {
    return handle ? static_cast<const CallHandle*>(handle)->context : nullptr;
}

ssize_t cuObjClient::cuObjGet(void* ctx, void* ptr, size_t size, loff_t offset, loff_t) {
    return state_ ? state_->transfer(CUOBJ_GET, ctx, ptr, size, offset) : -1;
}

ssize_t cuObjClient::cuObjPut(void* ctx, void* ptr, size_t size, loff_t offset, loff_t) {
    return state_ ? state_->transfer(CUOBJ_PUT, ctx, ptr, size, offset) : -1;
}

bool cuObjClient::isConnected() { return state_ != nullptr; }

cuObjMemoryType_t cuObjClient::getMemoryType(const void* ptr) {
    switch (softfabric::classify_pointer(ptr)) {
        case softfabric::PointerKind::kHost: return CUOBJ_MEMORY_SYSTEM;
        case softfabric::PointerKind::kManaged: return CUOBJ_MEMORY_CUDA_MANAGED;
        case softfabric::PointerKind::kDevice: return CUOBJ_MEMORY_CUDA_DEVICE;
        case softfabric::PointerKind::kInvalid: return CUOBJ_MEMORY_INVALID;
    }
    return CUOBJ_MEMORY_UNKNOWN;
}

void cuObjClient::setupTelemetry(bool, std::ostream* stream) { client_telemetry().set_stream(stream); }

void cuObjClient::shutdownTelemetry() { client_telemetry().set_stream(nullptr); }

void cuObjClient::setTelemFlags(unsigned flags) { client_telemetry().set_flags(flags); }

void cuObjClient::setTelemFlags(unsigned flags, unsigned) { client_telemetry().set_flags(flags); }

const char* cuObjClient::getVersion() { return CUOBJ_SOFT_GENERATION == 1 ? "1.2.0" : "1.4.0"; }
