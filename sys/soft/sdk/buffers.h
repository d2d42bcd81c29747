// A server's registered buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuobjserver.h"
#include "fabric/peer.h"

// The class interface names this type; programs only pass pointers to it around.
struct rdma_buffer {
    std::vector<iovec> pieces;
    uint64_t size = 0;
    const rdma_buffer* base = nullptr;  // of a view: the registration it is made of
};

namespace cuobj_soft {

class BufferTable {
public:
    // 1 to `max_pieces` pieces; null when one is empty or wraps.
    rdma_buffer* add(const std::vector<cuObjScatterGatherEntry_t>& pieces, size_t max_pieces);
    // Null unless `base` is a registration of one piece and all pieces lie in it.
    rdma_buffer* add_view(rdma_buffer* base,
                          const std::vector<cuObjScatterGatherEntryWithOffset_t>& pieces,
                          size_t max_pieces);
    // Waits until no operation uses the buffer; its views go with it. Pointers that are no buffers
    // are ignored.
    void remove(rdma_buffer* buffer);

    // The pieces of [offset, offset + size) and what keeps them registered; false: outside. With a
    // buffer of several pieces the offset counts for that check only, and the operation begins at
    // the buffer's start, as in the vendor's library.
    bool use(rdma_buffer* buffer, uint64_t offset, uint64_t size, std::vector<iovec>* pieces,
             std::shared_ptr<void>* keep);

private:
    struct Entry {
        std::unique_ptr<rdma_buffer> buffer;
        unsigned users = 0;  // running operations
    };

    void remove_locked(std::unique_lock<std::mutex>& lock, rdma_buffer* buffer);

    std::mutex mutex_;
    std::condition_variable unused_;
    std::unordered_map<const rdma_buffer*, Entry> entries_;
};

}  // namespace cuobj_soft
