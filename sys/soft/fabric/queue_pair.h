// A queue pair: operations are carried out in order, one after the other, by a thread of its own,
// and their completions are collected in the same order.
//
// A failed operation puts it into the error state, in which everything behind is flushed, until
// reset(). Many queue pairs of one initiator work at the same time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "fabric/initiator.h"

namespace softfabric {

struct Completion {
    uint64_t id = 0;
    Status status = Status::kSuccess;
    uint64_t bytes = 0;
};

class QueuePair {
public:
    // At most `depth` operations are posted and not yet polled.
    QueuePair(Initiator& initiator, size_t depth) : initiator_(initiator), depth_(depth) {}
    // Waits for a running operation; what is queued is dropped.
    ~QueuePair();
    QueuePair(const QueuePair&) = delete;
    QueuePair& operator=(const QueuePair&) = delete;

    // False: the queue is full, or no thread can be started.
    bool post(Work work, uint64_t id, const Fault& fault);

    // Takes the next completion, if there is one.
    bool poll(Completion* out);
    // The same, but waits; false when nothing is outstanding.
    bool wait(Completion* out);

    // Operations posted and not yet polled.
    size_t outstanding() const;

    // Carries out an operation on the calling thread. Nothing may be outstanding. In the error
    // state it is flushed, and a failure leads there, as for posted ones.
    Outcome run(const Work& work, const Fault& fault);

    bool in_error() const;
    // To the error state, as by a modify call: a running operation still ends by itself.
    void fail();
    // Waits for a running operation, forgets all others and their completions, and makes the queue
    // pair work again.
    void reset();

private:
    struct Entry {
        Work work;
        uint64_t id;
        Fault fault;
    };

    void work_loop();

    Initiator& initiator_;
    const size_t depth_;
    mutable std::mutex mutex_;
    std::condition_variable posted_, completed_;
    std::deque<Entry> queue_;
    std::deque<Completion> completions_;
    std::thread worker_;
    bool running_ = false;
    bool error_ = false;
    bool stopping_ = false;
};

}  // namespace softfabric
