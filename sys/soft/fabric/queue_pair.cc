#include "fabric/queue_pair.h"

#include <pthread.h>

#include <exception>
#include <system_error>
#include <utility>

namespace softfabric {

QueuePair::~QueuePair() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        queue_.clear();
    }
    posted_.notify_all();
    if (worker_.joinable()) worker_.join();
}

bool QueuePair::post(Work work, uint64_t id, const Fault& fault) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (queue_.size() + completions_.size() + (running_ ? 1 : 0) >= depth_) return false;
        if (!worker_.joinable()) {
            try {
                worker_ = std::thread(&QueuePair::work_loop, this);
            } catch (const std::system_error&) {
                return false;
            }
        }
        queue_.push_back({std::move(work), id, fault});
    }
    posted_.notify_one();
    return true;
}

// Memory exhaustion ends the operation, not the process.
Outcome QueuePair::execute(const Work& work, const Fault& fault) {
    try {
        return initiator_.execute(work, fault);
    } catch (const std::exception&) {
        return {Status::kGeneral, 0};
    }
}

void QueuePair::work_loop() {
    // What these threads do is a NIC's work; their name lets it be told apart from the program's.
    pthread_setname_np(pthread_self(), "soft-rdma");
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        posted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        Entry entry = std::move(queue_.front());
        queue_.pop_front();
        Outcome outcome{Status::kFlushed, 0};
        if (!error_) {
            running_ = true;
            lock.unlock();
            outcome = execute(entry.work, entry.fault);
            // A completion without all its bytes has no way to say so but by its status.
            if (outcome.status == Status::kSuccess && outcome.bytes < entry.work.length) {
                outcome.status = Status::kLocalLength;
            }
            entry.work.keep.reset();
            lock.lock();
            running_ = false;
        }
        if (outcome.status != Status::kSuccess) error_ = true;
        completions_.push_back({entry.id, outcome.status, outcome.bytes});
        completed_.notify_all();
    }
}

bool QueuePair::poll(Completion* out) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (completions_.empty()) return false;
    *out = completions_.front();
    completions_.pop_front();
    return true;
}

bool QueuePair::wait(Completion* out) {
    std::unique_lock<std::mutex> lock(mutex_);
    completed_.wait(lock, [this] {
        return !completions_.empty() || (queue_.empty() && !running_);
    });
    if (completions_.empty()) return false;
    *out = completions_.front();
    completions_.pop_front();
    return true;
}

size_t QueuePair::outstanding() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size() + completions_.size() + (running_ ? 1 : 0);
}

Outcome QueuePair::run(const Work& work, const Fault& fault) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (error_) return {Status::kFlushed, 0};
        running_ = true;
    }
    Outcome outcome = execute(work, fault);
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = false;
    if (outcome.status != Status::kSuccess) error_ = true;
    completed_.notify_all();
    return outcome;
}

bool QueuePair::in_error() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return error_;
}

void QueuePair::fail() {
    std::lock_guard<std::mutex> lock(mutex_);
    error_ = true;
}

void QueuePair::reset() {
    std::unique_lock<std::mutex> lock(mutex_);
    queue_.clear();
    completed_.wait(lock, [this] { return !running_; });
    queue_.clear();
    completions_.clear();
    error_ = false;
}

}  // namespace softfabric
