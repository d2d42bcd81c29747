#include "fabric/memory.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "fabric/random.h"

namespace softfabric {

namespace {
constexpr auto kStreamGrace = std::chrono::seconds(1);
}

Pin::Pin(Pin&& other) noexcept
    : table_(other.table_), region_(std::move(other.region_)), stream_(other.stream_) {
    other.region_.reset();
}

Pin& Pin::operator=(Pin&& other) noexcept {
    if (this != &other) {
        release();
        table_ = other.table_;
        region_ = std::move(other.region_);
        stream_ = other.stream_;
        other.region_.reset();
    }
    return *this;
}

void Pin::release() {
    if (!region_) return;
    table_->unpin(*region_, stream_);
    region_.reset();
}

uint32_t MemoryTable::add(uint64_t start, uint64_t size, unsigned access, MemoryKind kind) {
    auto region = std::make_shared<Region>();
    region->start = start;
    region->size = size;
    region->access = access;
    region->kind = kind;
    std::lock_guard<std::mutex> lock(mutex_);
    do {
        region->rkey = random_integer<uint32_t>();
    } while (region->rkey == 0 || regions_.count(region->rkey) != 0);
    uint32_t rkey = region->rkey;
    regions_.emplace(rkey, std::move(region));
    return rkey;
}

bool MemoryTable::remove(uint32_t rkey) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto found = regions_.find(rkey);
    if (found == regions_.end()) return false;
    std::shared_ptr<Region> region = std::move(found->second);
    regions_.erase(found);
    auto idle = [&] { return region->pins == 0; };
    if (unpinned_.wait_for(lock, kStreamGrace, idle)) return true;
    // A pin removes its socket from the list before the socket can be closed, and both happen under
    // the mutex held here, so these descriptors are still the connections' own.
    for (int stream : region->streams) ::shutdown(stream, SHUT_RDWR);
    unpinned_.wait(lock, idle);
    return true;
}

Pin MemoryTable::pin(uint32_t rkey, uint64_t address, uint64_t length, unsigned access, int stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = regions_.find(rkey);
    if (found == regions_.end()) return {};
    Region& region = *found->second;
    if ((region.access & access) != access) return {};
    if (address < region.start || length > region.size ||
        address - region.start > region.size - length) {
        return {};
    }
    region.pins++;
    if (stream >= 0) region.streams.push_back(stream);
    return Pin(this, found->second, stream);
}

void MemoryTable::unpin(Region& region, int stream) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        region.pins--;
        if (stream >= 0) {
            auto at = std::find(region.streams.begin(), region.streams.end(), stream);
            if (at != region.streams.end()) region.streams.erase(at);
        }
    }
    unpinned_.notify_all();
}

size_t MemoryTable::size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return regions_.size();
}

}  // namespace softfabric
