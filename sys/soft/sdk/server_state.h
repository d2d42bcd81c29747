// What stands behind cuObjServer: its buffers, its channels and the fabric under them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuobjserver.h"
#include "fabric/initiator.h"
#include "fabric/queue_pair.h"
#include "sdk/buffers.h"

namespace cuobj_soft {

// One transfer as a program asks for it.
struct Transfer {
    softfabric::Direction direction;
    rdma_buffer* local;
    uint64_t remote_start;
    uint64_t size;
    const std::string& descriptor;
    uint16_t channel;
    uint64_t local_offset;
    ibv_wc_status* status;
    void* async_handle;
};

class ServerState {
public:
    explicit ServerState(const cuObjRDMATunableParam& tunables);

    // What is wrong with tunables that a device would refuse; empty when nothing is.
    static std::string check(const cuObjRDMATunableParam& tunables);

    // Whether this process is a fork of the one that made the object: no thread of it runs here.
    bool is_forked() const;

    ssize_t transfer(const Transfer& transfer);
    int poll(cuObjAsyncEvent_t* events, int max_events, uint16_t channel);

    uint16_t allocate_channel();
    void free_channel(uint16_t channel);

    BufferTable& buffers() { return buffers_; }
    size_t max_pieces() const;

private:
    // A channel is a queue pair that exists while its number is allocated.
    struct Channel {
        Channel(softfabric::Initiator& initiator, size_t depth);
        std::mutex one_at_a_time;
        softfabric::QueuePair queue_pair;
    };

    std::shared_ptr<Channel> channel(uint16_t number);
    ssize_t finish(Channel& channel, const Transfer& transfer, const softfabric::Outcome& outcome);

    const cuObjRDMATunableParam tunables_;
    const unsigned epoch_;
    softfabric::Initiator initiator_;
    BufferTable buffers_;
    std::mutex mutex_;
    std::vector<std::shared_ptr<Channel>> channels_;  // after initiator_, which they use
};

}  // namespace cuobj_soft
