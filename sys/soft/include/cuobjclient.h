// cuObjClient: registers memory, mints the descriptors that name it, and drives GET and PUT through
// the program's own control path (the callbacks), while the server reaches the memory by itself.
//
// Registrations belong to the process: every client object sees them.
#ifndef CUOBJ_SOFT_CUOBJCLIENT_H
#define CUOBJ_SOFT_CUOBJCLIENT_H

#include <iosfwd>

#include "cuobj_soft_types.h"
#include "cuobjtelem.h"
#include "cufile.h"

#define OBJ_RDMA_V1 "CUOBJ"

// Largest registration: 4 GiB less 64 KiB.
#define CUOBJ_MAX_MEMORY_REG_SIZE (4ULL * 1024 * 1024 * 1024 - 64ULL * 1024)

// The program's control path. Each returns the bytes moved, or a negative error number, and finds
// the context given to cuObjGet() or cuObjPut() with cuObjClient::getCtx(handle).
typedef struct CUObjIOOps {
    ssize_t (*get)(const void* handle, char* ptr, size_t size, loff_t offset,
                   const cufileRDMAInfo_t* info);
    ssize_t (*put)(const void* handle, const char* ptr, size_t size, loff_t offset,
                   const cufileRDMAInfo_t* info);
} CUObjOps_t;

// Where a pointer points.
typedef enum cuObjMemoryType_enum {
    CUOBJ_MEMORY_SYSTEM = 0,
    CUOBJ_MEMORY_CUDA_MANAGED = 1,
    CUOBJ_MEMORY_CUDA_DEVICE = 2,
    CUOBJ_MEMORY_UNKNOWN = 3,
    CUOBJ_MEMORY_INVALID = 4,
} cuObjMemoryType_t;

namespace cuobj_soft {
class ClientState;
}

class cuObjClient {
public:
    // Copies the callbacks. A process-wide agent starts with the first registration.
    CUOBJ_SOFT_API cuObjClient(CUObjOps_t& ops, cuObjProto_t proto = CUOBJ_PROTO_RDMA_DC_V1);
    cuObjClient(const cuObjClient&) = delete;
    cuObjClient& operator=(const cuObjClient&) = delete;
    CUOBJ_SOFT_API ~cuObjClient();

    // Registers host or CUDA device memory; a start that is registered already is refused.
    CUOBJ_SOFT_API cuObjErr_t cuMemObjGetDescriptor(void* ptr, size_t size);
    // Waits for running operations. A pointer that is not registered is no error.
    CUOBJ_SOFT_API cuObjErr_t cuMemObjPutDescriptor(void* ptr);
    // The registered size, or -1.
    CUOBJ_SOFT_API ssize_t cuMemObjGetMaxRequestCallbackSize(void* ptr);

    // A descriptor of size bytes from ptr + buffer_offset, ptr being the start of a registration.
    CUOBJ_SOFT_API cuObjErr_t cuMemObjGetRDMAToken(void* ptr, size_t size, size_t buffer_offset,
                                                   cuObjOpType_t operation, char** desc_str_out);
    CUOBJ_SOFT_API cuObjErr_t cuMemObjPutRDMAToken(char* desc_str);
#if CUOBJ_SOFT_NEWER_MEMBERS
    // Also tells how the transfer ended: 0, or a negative error number.
    CUOBJ_SOFT_API cuObjErr_t cuMemObjPutRDMAToken(char* desc_str, int err_code);
#endif

    // The context given to cuObjGet() or cuObjPut(), from a callback's handle.
    CUOBJ_SOFT_API static void* getCtx(const void* handle);

    // Run the callback once with the whole size; its result, or -1 when ptr is host memory that is
    // not registered. buf_offset is ignored, as by the vendor's library.
    CUOBJ_SOFT_API ssize_t cuObjGet(void* ctx, void* ptr, size_t size, loff_t offset = 0,
                                    loff_t buf_offset = 0);
    CUOBJ_SOFT_API ssize_t cuObjPut(void* ctx, void* ptr, size_t size, loff_t offset = 0,
                                    loff_t buf_offset = 0);

    CUOBJ_SOFT_API bool isConnected(void);

    CUOBJ_SOFT_API static cuObjMemoryType_t getMemoryType(const void* ptr);

    // Where log lines go, process-wide. The stream must outlive every client.
    CUOBJ_SOFT_API static void setupTelemetry(bool use_otel, std::ostream* stream);
    CUOBJ_SOFT_API static void shutdownTelemetry();
    CUOBJ_SOFT_API static void setTelemFlags(unsigned flags);
#if CUOBJ_SOFT_NEWER_MEMBERS
    CUOBJ_SOFT_API static void setTelemFlags(unsigned flags, unsigned operation_flags);
    // Version of the library, such as "1.4.0".
    CUOBJ_SOFT_API static const char* getVersion();
#endif

private:
    cuobj_soft::ClientState* state_;
    void* reserved_[7];
};
// Some public headers declare 64 bytes, so a library that writes more would run past the object.
static_assert(sizeof(cuObjClient) == 64, "a stand-in for the vendor's cuObjClient fits in 64 bytes");

#endif
