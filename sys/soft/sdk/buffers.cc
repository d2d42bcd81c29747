#include "sdk/buffers.h"

#include <algorithm>

namespace cuobj_soft {

rdma_buffer* BufferTable::add(const std::vector<cuObjScatterGatherEntry_t>& pieces,
                              size_t max_pieces) {
    if (pieces.empty() || pieces.size() > max_pieces) return nullptr;
    auto buffer = std::make_unique<rdma_buffer>();
    for (const cuObjScatterGatherEntry_t& piece : pieces) {
        auto start = reinterpret_cast<uint64_t>(piece.addr);
        if (start == 0 || piece.size == 0 || start + piece.size < start) return nullptr;
        if (buffer->size + piece.size < buffer->size) return nullptr;
        buffer->pieces.push_back({piece.addr, piece.size});
        buffer->size += piece.size;
    }
    rdma_buffer* handle = buffer.get();
    std::lock_guard<std::mutex> lock(mutex_);
    entries_[handle].buffer = std::move(buffer);
    return handle;
}

rdma_buffer* BufferTable::add_view(rdma_buffer* base,
                                   const std::vector<cuObjScatterGatherEntryWithOffset_t>& pieces,
                                   size_t max_pieces) {
    if (pieces.empty() || pieces.size() > max_pieces) return nullptr;
    auto view = std::make_unique<rdma_buffer>();
    view->base = base;
    rdma_buffer* handle = view.get();
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = entries_.find(base);
    if (found == entries_.end() || base->base || base->pieces.size() != 1) return nullptr;
    auto* start = static_cast<char*>(base->pieces[0].iov_base);
    for (const cuObjScatterGatherEntryWithOffset_t& piece : pieces) {
        auto offset = static_cast<uint64_t>(piece.offset);
        if (piece.offset < 0 || piece.size == 0 || offset > base->size ||
            piece.size > base->size - offset) {
            return nullptr;
        }
        view->pieces.push_back({start + offset, piece.size});
        view->size += piece.size;
    }
    entries_[handle].buffer = std::move(view);
    return handle;
}

void BufferTable::remove(rdma_buffer* buffer) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (entries_.count(buffer) == 0) return;
    std::vector<rdma_buffer*> views;
    for (auto& entry : entries_) {
        if (entry.second.buffer && entry.second.buffer->base == buffer) {
            views.push_back(entry.second.buffer.get());
        }
    }
    for (rdma_buffer* view : views) remove_locked(lock, view);
    remove_locked(lock, buffer);
}

void BufferTable::remove_locked(std::unique_lock<std::mutex>& lock, rdma_buffer* buffer) {
    auto found = entries_.find(buffer);
    if (found == entries_.end() || !found->second.buffer) return;
    // Without its buffer the entry takes no new users, and the address stays taken until they end.
    std::unique_ptr<rdma_buffer> dying = std::move(found->second.buffer);
    unused_.wait(lock, [&] { return entries_.find(buffer)->second.users == 0; });
    entries_.erase(buffer);
}

bool BufferTable::use(rdma_buffer* buffer, uint64_t offset, uint64_t size,
                      std::vector<iovec>* pieces, std::shared_ptr<void>* keep) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = entries_.find(buffer);
    if (found == entries_.end() || !found->second.buffer) return false;
    if (offset > buffer->size || size > buffer->size - offset) return false;
    if (buffer->pieces.size() > 1) offset = 0;
    pieces->clear();
    for (const iovec& piece : buffer->pieces) {
        if (size == 0) break;
        size_t taken = std::min<uint64_t>(piece.iov_len - offset, size);
        pieces->push_back({static_cast<char*>(piece.iov_base) + offset, taken});
        size -= taken;
        offset = 0;  // nonzero only with a single piece
    }
    found->second.users++;
    *keep = std::shared_ptr<void>(buffer, [this](void* used) {
        {
            std::lock_guard<std::mutex> relock(mutex_);
            entries_.find(static_cast<rdma_buffer*>(used))->second.users--;
        }
        unused_.notify_all();
    });
    return true;
}

}  // namespace cuobj_soft
