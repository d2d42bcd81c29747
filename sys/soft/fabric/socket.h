// Stream sockets: ownership, and whole transfers in and out of scattered memory.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace softfabric {

// Owns a socket. After fork() the child's copies are closed at once: a connection that stayed open
// in a child would hide the death of its owner from the peer.
class Socket {
public:
    Socket() = default;
    // Takes over a descriptor; a negative one makes an empty socket.
    explicit Socket(int fd);
    ~Socket() { close(); }
    Socket(Socket&& other) noexcept;
    Socket& operator=(Socket&& other) noexcept;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    explicit operator bool() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    void close();

private:
    int fd_ = -1;
    int slot_ = -1;
    unsigned epoch_ = 0;
};

// How often this process is a fork of the one that loaded the library. Threads and sockets made in
// another epoch do not exist in this process.
unsigned fork_epoch();

// A position in scattered memory.
class Cursor {
public:
    explicit Cursor(std::vector<iovec> pieces) : pieces_(std::move(pieces)) {}
    Cursor(void* start, size_t size) : pieces_{iovec{start, size}} {}

    // Fills at most `count` entries that together name at most `limit` bytes from here.
    size_t window(iovec* out, size_t count, size_t limit) const;
    void advance(size_t bytes);

private:
    std::vector<iovec> pieces_;
    size_t piece_ = 0;
    size_t offset_ = 0;
};

enum class Transfer {
    kDone,
    kIdle,    // the time limit passed before the first byte
    kFailed,  // closed, reset, or stalled for the time limit in the middle
};

// A limit on how long one call may make no progress; zero means none.
void set_progress_limit(int fd, std::chrono::milliseconds limit);

using Deadline = std::chrono::steady_clock::time_point;
constexpr Deadline kNoDeadline = Deadline::max();

// Move exactly `size` bytes. The deadline is for peers that send just enough to count as alive.
Transfer send_all(int fd, Cursor& from, size_t size, Deadline deadline = kNoDeadline);
Transfer receive_all(int fd, Cursor& into, size_t size, Deadline deadline = kNoDeadline);
Transfer send_all(int fd, const void* from, size_t size);
Transfer receive_all(int fd, void* into, size_t size);

}  // namespace softfabric
