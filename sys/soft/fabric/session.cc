#include "fabric/session.h"

#include <algorithm>
#include <chrono>

#include "fabric/agent.h"
#include "fabric/device.h"
#include "fabric/socket.h"

namespace softfabric {

namespace {

// How long a peer may stall in the middle of a frame before its connection is given up.
constexpr auto kStall = std::chrono::seconds(30);
constexpr auto kHelloLimit = std::chrono::seconds(5);
constexpr size_t kDeviceChunk = 4 << 20;

}  // namespace

void Session::serve() {
    if (!greet()) return;
    while (true) {
        wire::Request request;
        Transfer got = receive_all(fd_, &request, sizeof request);
        if (got == Transfer::kIdle) continue;
        if (got != Transfer::kDone || !serve_one(request)) return;
    }
}

bool Session::greet() {
    set_progress_limit(fd_, kHelloLimit);
    wire::Hello hello;
    if (receive_all(fd_, &hello, sizeof hello) != Transfer::kDone) return false;
    if (hello.magic != wire::kMagic || hello.version != wire::kVersion) return false;
    wire::HelloReply reply{};
    reply.magic = wire::kMagic;
    reply.version = wire::kVersion;
    // A NIC drops packets for an unknown target or with a wrong key, and the sender sees its
    // retries exceeded; the same status is given here, without the wait.
    bool admitted = agent_.admits(hello.endpoint, hello.dc_key);
    reply.status = static_cast<uint8_t>(admitted ? Status::kSuccess : Status::kRetryExceeded);
    if (admitted) {
        reply.local_name = agent_.local_ ? agent_.local_name_ : 0;
        if (is_local_) {
            reply.nonce_address = reinterpret_cast<uint64_t>(agent_.nonce_.get());
            std::copy_n(agent_.nonce_.get(), sizeof reply.nonce, reply.nonce);
        }
        std::lock_guard<std::mutex> lock(agent_.mutex_);
        auto live = agent_.sessions_.find(id_);
        // Closed since it was looked up: its connections have been cut already, this one was not yet
        // among them.
        if (agent_.stopping_ || agent_.endpoints_.count(hello.endpoint) == 0) return false;
        live->second.endpoint = hello.endpoint;
    }
    if (send_all(fd_, &reply, sizeof reply) != Transfer::kDone) return false;
    set_progress_limit(fd_, kStall);
    return admitted;
}

bool Session::serve_one(const wire::Request& request) {
    switch (static_cast<wire::Opcode>(request.opcode)) {
        case wire::Opcode::kLeaseForRead: return lease(request, kRemoteRead);
        case wire::Opcode::kLeaseForWrite: return lease(request, kRemoteWrite);
        case wire::Opcode::kRelease: return leases_.erase(request.id) == 1;
        case wire::Opcode::kRead: return stream_out(request);
        case wire::Opcode::kWrite: return stream_in(request);
    }
    return false;
}

bool Session::reply(const wire::Request& request, Status status, uint64_t length, uint8_t flags) {
    wire::Reply reply{};
    reply.id = request.id;
    reply.status = static_cast<uint8_t>(status);
    reply.flags = flags;
    reply.length = length;
    return send_all(fd_, &reply, sizeof reply) == Transfer::kDone;
}

bool Session::lease(const wire::Request& request, unsigned access) {
    // Only the end of a local connection tells that the other process no longer copies.
    if (!is_local_) return false;
    if (leases_.size() >= wire::kMaxLeases || leases_.count(request.id) != 0) return false;
    Pin pin = agent_.memory_.pin(request.rkey, request.address, request.length, access, -1);
    if (!pin) return reply(request, Status::kRemoteAccess, 0);
    if (pin.region().kind == MemoryKind::kDevice) {
        return reply(request, Status::kSuccess, request.length, wire::kStreamOnly);
    }
    leases_.emplace(request.id, std::move(pin));
    return reply(request, Status::kSuccess, request.length);
}

bool Session::stream_out(const wire::Request& request) {
    Pin pin = agent_.memory_.pin(request.rkey, request.address, request.length, kRemoteRead, fd_);
    if (!pin) return reply(request, Status::kRemoteAccess, 0);
    if (pin.region().kind == MemoryKind::kDevice) return stream_out_of_device(request);
    if (!reply(request, Status::kSuccess, request.length)) return false;
    return send_all(fd_, reinterpret_cast<void*>(request.address), request.length) ==
           Transfer::kDone;
}

bool Session::stream_in(const wire::Request& request) {
    Pin pin = agent_.memory_.pin(request.rkey, request.address, request.length, kRemoteWrite, fd_);
    if (!pin) return reply(request, Status::kRemoteAccess, 0);
    if (!reply(request, Status::kSuccess, request.length)) return false;
    if (pin.region().kind == MemoryKind::kDevice) return stream_into_device(request);
    if (receive_all(fd_, reinterpret_cast<void*>(request.address), request.length) !=
        Transfer::kDone) {
        return false;
    }
    pin.release();
    return reply(request, Status::kSuccess, request.length);
}

bool Session::stream_out_of_device(const wire::Request& request) {
    staging_.resize(kDeviceChunk);
    for (uint64_t done = 0; done < request.length;) {
        size_t size = static_cast<size_t>(std::min<uint64_t>(kDeviceChunk, request.length - done));
        if (!copy_from_device(staging_.data(), request.address + done, size)) {
            return reply(request, Status::kRemoteOperation, 0);
        }
        if (!reply(request, Status::kSuccess, size)) return false;
        if (send_all(fd_, staging_.data(), size) != Transfer::kDone) return false;
        done += size;
    }
    return true;
}

bool Session::stream_into_device(const wire::Request& request) {
    staging_.resize(kDeviceChunk);
    Status status = Status::kSuccess;
    for (uint64_t done = 0; done < request.length;) {
        size_t size = static_cast<size_t>(std::min<uint64_t>(kDeviceChunk, request.length - done));
        if (receive_all(fd_, staging_.data(), size) != Transfer::kDone) return false;
        // After a failure the rest is taken from the stream and dropped, to stay in step.
        if (status == Status::kSuccess &&
            !copy_to_device(request.address + done, staging_.data(), size)) {
            status = Status::kRemoteOperation;
        }
        done += size;
    }
    return reply(request, status, status == Status::kSuccess ? request.length : 0);
}

}  // namespace softfabric
