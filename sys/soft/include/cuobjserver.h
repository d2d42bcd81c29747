// cuObjServer: moves object bodies to and from the memory of cuObject clients by one-sided RDMA.
//
// A GET request is served by an RDMA WRITE into the client's memory, a PUT by an RDMA READ from it.
// The client's memory is named by the descriptor ("token") that came with its request.
#ifndef CUOBJ_SOFT_CUOBJSERVER_H
#define CUOBJ_SOFT_CUOBJSERVER_H

#include <iosfwd>
#include <string>
#include <vector>

#include "cuobj_soft_types.h"
#include "cuobjrdma.h"
#include "cuobjrdmaparam.h"
#include "cuobjtelem.h"

// States of a channel number. Programs use only INVALID_CHANNEL_ID, from allocateChannelId().
typedef enum cuObjChannelIdState_enum {
    CHANNEL_ID_FREE = 0,
    CHANNEL_ID_ALLOCATED = 1,
    CHANNEL_ID_IN_USE = 2,
    INVALID_CHANNEL_ID = UINT16_MAX,
} cuObjChannelIdState_t;

// One piece of a registration made of several.
typedef struct cuObjScatterGatherEntry {
    void* addr;
    size_t size;
} cuObjScatterGatherEntry_t;

// One piece of a view: an offset into the registration, and a size.
typedef struct cuObjScatterGatherEntryWithOffset {
    loff_t offset;
    size_t size;
} cuObjScatterGatherEntryWithOffset_t;

// A finished asynchronous operation; status holds an ibv_wc_status.
typedef struct cuObjAsyncEvent_s {
    void* async_handle;
    ssize_t status;
} cuObjAsyncEvent_t;
static_assert(sizeof(cuObjAsyncEvent_t) == 16, "layout of the vendor's cuObjAsyncEvent_t");

namespace cuobj_soft {
class ServerState;
}

#if CUOBJ_SOFT_GENERATION == 1
#define CUOBJ_SOFT_SERVER_BASE : public RDMAConnection
#else
#define CUOBJ_SOFT_SERVER_BASE
#endif

class cuObjServer CUOBJ_SOFT_SERVER_BASE {
public:
    // Opens a session on a literal address (v4, or v6 without brackets) of this host. A failed
    // start does not throw: isConnected() tells.
    CUOBJ_SOFT_API cuObjServer(const char* ip, unsigned short port, unsigned proto);
    CUOBJ_SOFT_API cuObjServer(const char* ip, unsigned short port, unsigned proto,
                               cuObjRDMATunable tunables);
    cuObjServer(const cuObjServer&) = delete;
    cuObjServer& operator=(const cuObjServer&) = delete;
    CUOBJ_SOFT_API ~cuObjServer();

    // Inline in the vendor's header too: programs read the flag at a fixed offset.
    bool isConnected() { return connected_; }

    // Page-aligned memory, released with free(); null for 0 bytes or when there is none.
    CUOBJ_SOFT_API void* allocHostBuffer(size_t size);

    // Registers host memory: one range, or 1 to 10 of them that count as one. Null on failure.
    CUOBJ_SOFT_API struct rdma_buffer* registerBuffer(void* ptr, size_t size);
    CUOBJ_SOFT_API struct rdma_buffer* registerBuffer(std::vector<cuObjScatterGatherEntry_t> sglist);
    // Waits for running operations on the buffer. Null is a no-op.
    CUOBJ_SOFT_API void deRegisterBuffer(struct rdma_buffer* buffer);

    // A buffer made of pieces of a registration that has one range.
    CUOBJ_SOFT_API struct rdma_buffer* getRDMABufferFromSgList(
        struct rdma_buffer* base, std::vector<cuObjScatterGatherEntryWithOffset_t> sglist);
    CUOBJ_SOFT_API void putRDMABufferFromSgList(struct rdma_buffer* view);

    // RDMA WRITE (GET) and RDMA READ (PUT) of size bytes between the buffer at local_offset and the
    // client's memory at remote_buf_start, which must lie in the descriptor's window.
    // With async_handle null the call waits and returns the bytes moved; otherwise it returns 0 and
    // poll() reports the handle. Negative error number on failure; *status is written only when
    // there was a completion. One thread at a time may use a channel.
    CUOBJ_SOFT_API ssize_t handleGetObject(const std::string& key, struct rdma_buffer* local,
                                           uint64_t remote_buf_start, size_t size,
                                           const std::string& rdma_descr, uint32_t poll_delay,
                                           uint16_t channel = 0, uint64_t local_offset = 0,
                                           ibv_wc_status* status = nullptr,
                                           void* async_handle = nullptr);
    CUOBJ_SOFT_API ssize_t handleGetObject(const std::string& key, struct rdma_buffer* local,
                                           uint64_t remote_buf_start, size_t size,
                                           const std::string& rdma_descr, uint16_t channel = 0,
                                           uint64_t local_offset = 0,
                                           ibv_wc_status* status = nullptr,
                                           void* async_handle = nullptr);
    CUOBJ_SOFT_API ssize_t handlePutObject(const std::string& key, struct rdma_buffer* local,
                                           uint64_t remote_buf_start, size_t size,
                                           const std::string& rdma_descr, uint32_t poll_delay,
                                           uint16_t channel = 0, uint64_t local_offset = 0,
                                           ibv_wc_status* status = nullptr,
                                           void* async_handle = nullptr);
    CUOBJ_SOFT_API ssize_t handlePutObject(const std::string& key, struct rdma_buffer* local,
                                           uint64_t remote_buf_start, size_t size,
                                           const std::string& rdma_descr, uint16_t channel = 0,
                                           uint64_t local_offset = 0,
                                           ibv_wc_status* status = nullptr,
                                           void* async_handle = nullptr);

    // Finished asynchronous operations of a channel, in order of submission, at most 16 a call.
    // The number of events, or a negative error number: -EIO when one of them failed, with the
    // events up to the sixteenth filled in and the rest of the channel's operations dropped.
    CUOBJ_SOFT_API int poll(struct cuObjAsyncEvent_s* events, int max_events, uint16_t channel = 0);

    // A free channel number from 0, or INVALID_CHANNEL_ID.
    CUOBJ_SOFT_API uint16_t allocateChannelId();
    CUOBJ_SOFT_API void freeChannelId(uint16_t channel);

    // Where log lines go, process-wide. The stream must outlive every server.
    CUOBJ_SOFT_API static void setupTelemetry(bool use_otel, std::ostream* stream);
    CUOBJ_SOFT_API static void shutdownTelemetry();
#if CUOBJ_SOFT_GENERATION == 1
    CUOBJ_SOFT_API static void setTelemFlags(unsigned flags);
#endif
#if CUOBJ_SOFT_NEWER_MEMBERS
    // The second mask chooses operations to trace; 0 keeps the behaviour of the first alone.
    CUOBJ_SOFT_API static void setTelemFlags(unsigned flags, unsigned operation_flags);
    // Version of the library, such as "2.0.0".
    CUOBJ_SOFT_API static const char* getVersion();
#endif

private:
#if CUOBJ_SOFT_GENERATION != 1
    char base_[208];
#endif
    cuobj_soft::ServerState* state_;
    bool connected_;
    char reserved_[71];

    friend struct cuObjServerLayout;
};
static_assert(sizeof(cuObjServer) == 288, "size of the vendor's cuObjServer");

#endif
