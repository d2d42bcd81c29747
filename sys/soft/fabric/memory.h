// Memory regions: what remote peers may reach, under which key, and who is using it just now.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "fabric/status.h"

namespace softfabric {

enum Access : unsigned {
    kRemoteRead = 1u,
    kRemoteWrite = 2u,
};

enum class MemoryKind {
    kHost,
    kDevice,  // CUDA device memory: reached through the driver only
};

struct Region {
    uint64_t start;
    uint64_t size;
    uint32_t rkey;
    unsigned access;
    MemoryKind kind;

    // Guarded by the table's mutex.
    unsigned pins = 0;
    std::vector<int> streams;  // sockets of pins that deregistration may cut
};

class MemoryTable;

// Keeps a region registered. Deregistration waits until the last one is gone.
class Pin {
public:
    Pin() = default;
    ~Pin() { release(); }
    Pin(Pin&& other) noexcept;
    Pin& operator=(Pin&& other) noexcept;
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

    explicit operator bool() const { return region_ != nullptr; }
    const Region& region() const { return *region_; }
    void release();

private:
    friend class MemoryTable;
    Pin(MemoryTable* table, std::shared_ptr<Region> region, int stream)
        : table_(table), region_(std::move(region)), stream_(stream) {}

    MemoryTable* table_ = nullptr;
    std::shared_ptr<Region> region_;
    int stream_ = -1;
};

class MemoryTable {
public:
    // Registers a range under a random key. The range must not wrap; the caller checks.
    uint32_t add(uint64_t start, uint64_t size, unsigned access, MemoryKind kind);

    // Ends a registration. No operation begins on it after the call has started, and none touches
    // the memory after it has returned. Operations over a stream are given a second to end by
    // themselves and are then cut off; a lease cannot be revoked, so its holder is waited for until
    // it gives the lease back or dies. False: no such key.
    bool remove(uint32_t rkey);

    // Pins [address, address + length) if it lies in the region of `rkey` and the region grants
    // `access`. `stream` is the socket to cut when the region has to go, or -1 for a lease.
    Pin pin(uint32_t rkey, uint64_t address, uint64_t length, unsigned access, int stream);

    size_t size() const;

private:
    friend class Pin;
    void unpin(Region& region, int stream);

    mutable std::mutex mutex_;
    std::condition_variable unpinned_;
    std::unordered_map<uint32_t, std::shared_ptr<Region>> regions_;
};

}  // namespace softfabric
