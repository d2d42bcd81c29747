#include "fabric/initiator.h"

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace softfabric {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kIdleLimit = std::chrono::seconds(60);
constexpr auto kSweepInterval = std::chrono::seconds(10);

// The first `length` bytes of scattered memory.
std::vector<iovec> head(const std::vector<iovec>& pieces, uint64_t length) {
    std::vector<iovec> out;
    for (const iovec& piece : pieces) {
        if (length == 0) break;
        size_t size = piece.iov_len < length ? piece.iov_len : static_cast<size_t>(length);
        out.push_back({piece.iov_base, size});
        length -= size;
    }
    return out;
}

char* byte_at(const std::vector<iovec>& pieces, uint64_t offset) {
    for (const iovec& piece : pieces) {
        if (offset < piece.iov_len) return static_cast<char*>(piece.iov_base) + offset;
        offset -= piece.iov_len;
    }
    return nullptr;
}

}  // namespace

Path path_from_environment() {
    const char* text = std::getenv("CUOBJ_SOFT_PATH");
    if (text && std::strcmp(text, "vm") == 0) return Path::kVm;
    if (text && std::strcmp(text, "tcp") == 0) return Path::kStream;
    return Path::kAuto;
}

Initiator::Initiator(Path path, std::chrono::milliseconds patience, Log log)
    : path_(path), patience_(patience), log_(std::move(log)) {}

Outcome Initiator::execute(const Work& work, const Fault& fault) {
    if (fault.delay_ms > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(fault.delay_ms));
    }
    switch (fault.kind) {
        case Fault::Kind::kNone:
        case Fault::Kind::kSubmit:
            return execute_plainly(work);
        case Fault::Kind::kStatus:
            return {fault.status, 0};
        case Fault::Kind::kDrop:
            std::this_thread::sleep_for(patience_);
            return {Status::kRetryExceeded, 0};
        case Fault::Kind::kShort:
            return execute_partly(work, work.length / 2);
        case Fault::Kind::kDisconnect: {
            Outcome outcome = execute_partly(work, work.length / 2);
            forget(work.remote);
            return {Status::kRetryExceeded, outcome.bytes};
        }
        case Fault::Kind::kCorrupt: {
            Outcome outcome = execute_plainly(work);
            if (outcome.status == Status::kSuccess) corrupt(work, fault.at % work.length);
            return outcome;
        }
    }
    return {Status::kGeneral, 0};
}

Outcome Initiator::execute_plainly(const Work& work) {
    // A connection from the pool may have died since its last use; a one-sided operation can be
    // repeated, so that is found out by trying.
    if (std::unique_ptr<Peer> peer = take(work.remote)) {
        Outcome outcome = peer->execute(work);
        if (peer->usable()) {
            give_back(work.remote, std::move(peer));
            return outcome;
        }
        if (outcome.bytes > 0) return outcome;
        forget(work.remote);
    }
    Status status;
    std::unique_ptr<Peer> peer = connect(work.remote, &status);
    if (!peer) return {status, 0};
    Outcome outcome = peer->execute(work);
    if (peer->usable()) give_back(work.remote, std::move(peer));
    return outcome;
}

Outcome Initiator::execute_partly(const Work& work, uint64_t length) {
    if (length == 0) return {Status::kSuccess, 0};
    Work part = work;
    part.length = length;
    part.local = head(work.local, length);
    return execute_plainly(part);
}

void Initiator::corrupt(const Work& work, uint64_t at) {
    char* byte = byte_at(work.local, at);
    if (!byte) return;
    if (work.direction == Direction::kRead) {
        *byte = static_cast<char>(~*byte);
        return;
    }
    char flipped = static_cast<char>(~*byte);
    Work one = work;
    one.address += at;
    one.length = 1;
    one.local = {iovec{&flipped, 1}};
    execute_plainly(one);
}

std::unique_ptr<Peer> Initiator::connect(const Remote& remote, Status* status) {
    std::string why;
    std::unique_ptr<Peer> peer = Peer::connect(remote, path_, patience_, status, &why);
    std::string line = peer ? "connected to " : "cannot reach ";
    line += remote.address.text();
    if (peer) line += peer->copies_between_processes() ? ", copying between processes" : ", over TCP";
    if (!why.empty()) line += ": " + why;
    log_(line);
    return peer;
}

std::unique_ptr<Peer> Initiator::take(const Remote& remote) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = idle_.find(remote);
    if (found == idle_.end() || found->second.empty()) return nullptr;
    std::unique_ptr<Peer> peer = std::move(found->second.back().peer);
    found->second.pop_back();
    return peer;
}

void Initiator::give_back(const Remote& remote, std::unique_ptr<Peer> peer) {
    std::vector<Idle> old;  // closed outside the lock
    auto now = Clock::now();
    std::lock_guard<std::mutex> lock(mutex_);
    idle_[remote].push_back({std::move(peer), now});
    if (now - swept_ < kSweepInterval) return;
    swept_ = now;
    for (auto entry = idle_.begin(); entry != idle_.end();) {
        auto& list = entry->second;
        // The list is a stack: what has been idle longest lies in front.
        size_t stale = 0;
        while (stale < list.size() && now - list[stale].since > kIdleLimit) stale++;
        for (size_t i = 0; i < stale; i++) old.push_back(std::move(list[i]));
        list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(stale));
        entry = list.empty() ? idle_.erase(entry) : std::next(entry);
    }
}

void Initiator::forget(const Remote& remote) {
    std::vector<Idle> old;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = idle_.find(remote);
    if (found == idle_.end()) return;
    old = std::move(found->second);
    idle_.erase(found);
}

}  // namespace softfabric
