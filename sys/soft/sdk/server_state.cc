#include "sdk/server_state.h"

#include <algorithm>
#include <cerrno>

#include "fabric/fault.h"
#include "fabric/socket.h"
#include "sdk/telemetry.h"
#include "sdk/token.h"

namespace cuobj_soft {

namespace {

using softfabric::Completion;
using softfabric::Direction;
using softfabric::Status;

constexpr uint64_t kMaxTransfer = 1ull << 30;
// Events that one poll gives, as in the vendor's library.
constexpr int kMaxEvents = 16;
// Send queues of a ConnectX NIC end about here.
constexpr unsigned kMaxDepth = 8192;

ssize_t refuse(int error_number, const std::string& why) {
    server_telemetry().error(why);
    return -error_number;
}

// How long a peer may be silent: the local ACK timeout of 4.096 us * 2^timeout, for each try
// (InfiniBand Architecture, Local ACK Timeout). Kept within bounds in which a process on a busy
// machine still counts as alive, and in which a call ends at all (a timeout of 0 means never).
std::chrono::milliseconds patience(const cuObjRDMATunableParam& tunables) {
    constexpr std::chrono::milliseconds kLeast(1000), kMost(60000);
    if (tunables.timeout == 0) return kMost;
    uint64_t tries = static_cast<uint64_t>(tunables.retry_cnt) + 1;
    uint64_t microseconds = 4096 * (uint64_t{1} << (tunables.timeout & 31)) / 1000 * tries;
    return std::clamp(std::chrono::milliseconds(microseconds / 1000), kLeast, kMost);
}

}  // namespace

ServerState::Channel::Channel(softfabric::Initiator& initiator, size_t depth)
    : queue_pair(initiator, depth) {}

ServerState::ServerState(const cuObjRDMATunableParam& tunables)
    : tunables_(tunables),
      epoch_(softfabric::fork_epoch()),
      initiator_(softfabric::path_from_environment(), patience(tunables),
                 [](const std::string& line) { server_telemetry().info(line); }),
      channels_(static_cast<size_t>(std::clamp(tunables.num_dcis, 0, int{UINT16_MAX}))) {}

std::string ServerState::check(const cuObjRDMATunableParam& tunables) {
    if (tunables.num_dcis < 1 || tunables.num_dcis >= UINT16_MAX) return "num_dcis must be 1 to 65534";
    if (tunables.cq_depth == 0) return "cq_depth must not be 0";
    if (tunables.timeout > 31) return "timeout must be 0 to 31";
    if (tunables.retry_cnt > 7) return "retry_cnt must be 0 to 7";
    if (tunables.traffic_class > 255) return "traffic_class must be below 256";
    if (tunables.hop_limit > 255) return "hop_limit must be below 256";
    return {};
}

bool ServerState::is_forked() const { return epoch_ != softfabric::fork_epoch(); }

size_t ServerState::max_pieces() const {
    return static_cast<size_t>(std::max(tunables_.max_sge, 1));
}

std::shared_ptr<ServerState::Channel> ServerState::channel(uint16_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    return number < channels_.size() ? channels_[number] : nullptr;
}

uint16_t ServerState::allocate_channel() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t number = 0; number < channels_.size(); number++) {
        if (channels_[number]) continue;
        // The vendor's library makes its send queues as deep as its completion queues.
        channels_[number] = std::make_shared<Channel>(initiator_, std::min(tunables_.cq_depth, kMaxDepth));
        return static_cast<uint16_t>(number);
    }
    return INVALID_CHANNEL_ID;
}

void ServerState::free_channel(uint16_t number) {
    std::shared_ptr<Channel> freed;  // ends outside the lock: it may wait for a running operation
    std::lock_guard<std::mutex> lock(mutex_);
    if (number < channels_.size()) freed = std::move(channels_[number]);
}

ssize_t ServerState::transfer(const Transfer& transfer) {
    std::shared_ptr<Channel> used = channel(transfer.channel);
    if (!used) return refuse(EIO, "the channel is not allocated");
    std::optional<Token> token = Token::parse(transfer.descriptor);
    if (!token) return refuse(EIO, "the descriptor cannot be parsed");
    if (!token->has_gid) return refuse(EAFNOSUPPORT, "the descriptor has no GID");
    if (transfer.size == 0 || transfer.size > kMaxTransfer || transfer.remote_start == 0) {
        return refuse(EIO, "a transfer needs a start and 1 byte to 1 GiB");
    }
    if (transfer.remote_start < token->address ||
        transfer.remote_start - token->address > token->size ||
        transfer.size > token->size - (transfer.remote_start - token->address)) {
        return refuse(EIO, "the range is outside the descriptor's window");
    }

    softfabric::Work work;
    work.direction = transfer.direction;
    work.remote.address.bytes = token->gid;
    work.remote.port = token->lid;
    work.remote.endpoint = token->dct;
    work.remote.dc_key = tunables_.dc_key;
    work.rkey = token->rkey;
    work.address = transfer.remote_start;
    work.length = transfer.size;
    if (!buffers_.use(transfer.local, transfer.local_offset, transfer.size, &work.local,
                      &work.keep)) {
        return refuse(EIO, "the buffer is not registered, or too small for the range");
    }
    softfabric::Fault fault = softfabric::next_fault(transfer.direction);
    if (fault.kind == softfabric::Fault::Kind::kSubmit) {
        return refuse(fault.error_number, "the submission fails on purpose");
    }

    std::lock_guard<std::mutex> one(used->one_at_a_time);
    if (transfer.async_handle) {
        auto id = reinterpret_cast<uint64_t>(transfer.async_handle);
        if (used->queue_pair.post(std::move(work), id, fault)) return 0;
        return refuse(EIO, "the channel's queue is full");
    }
    // The vendor's library would lose the completions of those operations; a program that mixes the
    // two on one channel should learn it at once.
    if (used->queue_pair.outstanding() > 0) {
        return refuse(EBUSY, "a synchronous call on a channel with asynchronous operations");
    }
    return finish(*used, transfer, used->queue_pair.run(work, fault));
}

ssize_t ServerState::finish(Channel& channel, const Transfer& transfer,
                            const softfabric::Outcome& outcome) {
    if (transfer.status) *transfer.status = static_cast<ibv_wc_status>(outcome.status);
    if (outcome.status == Status::kSuccess) return static_cast<ssize_t>(outcome.bytes);
    if (tunables_.qp_reset_on_failure) channel.queue_pair.reset();
    return refuse(EIO, std::string(transfer.direction == Direction::kRead ? "RDMA READ: "
                                                                          : "RDMA WRITE: ") +
                           softfabric::describe(outcome.status));
}

int ServerState::poll(cuObjAsyncEvent_t* events, int max_events, uint16_t number) {
    std::shared_ptr<Channel> used = channel(number);
    // The vendor's library aborts the process for a negative bound.
    if (!events || max_events < 0 || !used) return -EINVAL;
    int limit = std::min(max_events, kMaxEvents);
    std::lock_guard<std::mutex> one(used->one_at_a_time);
    softfabric::QueuePair& queue_pair = used->queue_pair;
    int count = 0;
    Status failure = Status::kSuccess;
    Completion completion;
    auto report = [&] {
        events[count].async_handle = reinterpret_cast<void*>(completion.id);
        events[count].status = static_cast<ssize_t>(completion.status);
        count++;
        if (failure == Status::kSuccess) failure = completion.status;
    };
    while (count < limit && queue_pair.poll(&completion)) report();
    if (failure == Status::kSuccess) return count;
    server_telemetry().error(std::string("asynchronous operation: ") +
                             softfabric::describe(failure));
    if (tunables_.qp_reset_on_failure) {
        // What was queued behind is flushed; what of it does not fit in the events is lost, as in
        // the vendor's library.
        while (count < limit && queue_pair.wait(&completion)) report();
        queue_pair.reset();
    }
    return -EIO;
}

}  // namespace cuobj_soft
