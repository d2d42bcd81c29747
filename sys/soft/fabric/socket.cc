#include "fabric/socket.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

namespace softfabric {

namespace {

// Open descriptors, where a fork handler can find them without taking a lock.
constexpr size_t kSlots = 8192;
std::atomic<int> open_fds[kSlots];
std::atomic<unsigned> epoch{0};

void close_all_in_child() {
    epoch.fetch_add(1);
    for (auto& slot : open_fds) {
        int stored = slot.exchange(0);
        if (stored != 0) ::close(stored - 1);
    }
}

void install_fork_handler() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, close_all_in_child); });
}

// Slots hold the descriptor plus one, so that zero-initialised memory means empty.
int remember(int fd) {
    install_fork_handler();
    for (size_t i = 0; i < kSlots; i++) {
        size_t slot = (static_cast<size_t>(fd) + i) % kSlots;
        int empty = 0;
        if (open_fds[slot].compare_exchange_strong(empty, fd + 1)) return static_cast<int>(slot);
    }
    return -1;
}

}  // namespace

unsigned fork_epoch() {
    install_fork_handler();
    return epoch.load();
}

Socket::Socket(int fd) : fd_(fd) {
    if (fd_ < 0) return;
    slot_ = remember(fd_);
    epoch_ = fork_epoch();
}

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), slot_(std::exchange(other.slot_, -1)), epoch_(other.epoch_) {}

Socket& Socket::operator=(Socket&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
        slot_ = std::exchange(other.slot_, -1);
        epoch_ = other.epoch_;
    }
    return *this;
}

void Socket::close() {
    int fd = std::exchange(fd_, -1);
    int slot = std::exchange(slot_, -1);
    if (fd < 0 || epoch_ != fork_epoch()) return;
    if (slot >= 0) open_fds[slot].store(0);
    ::close(fd);
}

size_t Cursor::window(iovec* out, size_t count, size_t limit) const {
    size_t filled = 0;
    size_t offset = offset_;
    for (size_t piece = piece_; piece < pieces_.size() && filled < count && limit > 0; piece++) {
        size_t size = std::min(pieces_[piece].iov_len - offset, limit);
        if (size > 0) {
            out[filled].iov_base = static_cast<char*>(pieces_[piece].iov_base) + offset;
            out[filled].iov_len = size;
            filled++;
            limit -= size;
        }
        offset = 0;
    }
    return filled;
}

void Cursor::advance(size_t bytes) {
    while (piece_ < pieces_.size()) {
        size_t left = pieces_[piece_].iov_len - offset_;
        if (bytes < left) {
            offset_ += bytes;
            return;
        }
        bytes -= left;
        piece_++;
        offset_ = 0;
    }
}

void set_progress_limit(int fd, std::chrono::milliseconds limit) {
    timeval value;
    value.tv_sec = static_cast<time_t>(limit.count() / 1000);
    value.tv_usec = static_cast<suseconds_t>(limit.count() % 1000 * 1000);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof value);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value);
}

namespace {

constexpr size_t kWindow = 16;

template <typename Call>
Transfer move_all(Cursor& cursor, size_t size, Deadline deadline, Call call) {
    bool moved = false;
    while (size > 0) {
        iovec window[kWindow];
        msghdr message{};
        message.msg_iov = window;
        message.msg_iovlen = cursor.window(window, kWindow, size);
        if (message.msg_iovlen == 0) return Transfer::kFailed;
        ssize_t done = call(&message);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && !moved) return Transfer::kIdle;
        if (done <= 0) return Transfer::kFailed;
        moved = true;
        cursor.advance(static_cast<size_t>(done));
        size -= static_cast<size_t>(done);
        if (size > 0 && deadline != kNoDeadline && std::chrono::steady_clock::now() > deadline) {
            return Transfer::kFailed;
        }
    }
    return Transfer::kDone;
}

}  // namespace

Transfer send_all(int fd, Cursor& from, size_t size, Deadline deadline) {
    return move_all(from, size, deadline, [fd](msghdr* m) { return ::sendmsg(fd, m, MSG_NOSIGNAL); });
}

Transfer receive_all(int fd, Cursor& into, size_t size, Deadline deadline) {
    return move_all(into, size, deadline, [fd](msghdr* m) { return ::recvmsg(fd, m, 0); });
}

Transfer send_all(int fd, const void* from, size_t size) {
    Cursor cursor(const_cast<void*>(from), size);
    return send_all(fd, cursor, size);
}

Transfer receive_all(int fd, void* into, size_t size) {
    Cursor cursor(into, size);
    return receive_all(fd, cursor, size);
}

}  // namespace softfabric
