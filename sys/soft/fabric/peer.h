// The active side of one connection to an agent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/address.h"
#include "fabric/socket.h"
#include "fabric/status.h"
#include "fabric/wire.h"

namespace softfabric {

// Names an endpoint, and opens it.
struct Remote {
    Address address;
    uint16_t port = 0;
    uint32_t endpoint = 0;
    uint64_t dc_key = 0;
    // The port may be another agent's at the same address: an agent of this host is first looked
    // for by its endpoint's number.
    bool port_is_a_guess = false;

    bool operator<(const Remote& other) const;
};

enum class Direction { kRead, kWrite };

// One one-sided operation. The local pieces together hold `length` bytes or more.
struct Work {
    Direction direction = Direction::kRead;
    Remote remote;
    uint32_t rkey = 0;
    uint64_t address = 0;
    uint64_t length = 0;
    std::vector<iovec> local;
    // Whatever must live as long as the operation may touch the local memory.
    std::shared_ptr<void> keep;
};

struct Outcome {
    Status status = Status::kSuccess;
    uint64_t bytes = 0;
};

// Which way the bytes may go.
enum class Path {
    kAuto,    // between processes of one host by process_vm_*, otherwise over the connection
    kVm,      // only the former, for tests
    kStream,  // only the latter
};

class Peer {
public:
    // Connects and presents the DC key. `patience` bounds the whole greeting, and later how long an
    // operation may make no progress. Null with a status when it cannot be had.
    static std::unique_ptr<Peer> connect(const Remote& remote, Path path,
                                         std::chrono::milliseconds patience, Status* status,
                                         std::string* why);

    // Carries out an operation. After kRetryExceeded the connection is of no more use.
    Outcome execute(const Work& work);

    bool usable() const { return usable_; }
    bool copies_between_processes() const { return pid_ > 0; }

private:
    Peer(Socket socket, pid_t pid, std::chrono::milliseconds patience);
    // By the agent's local socket, for copies between the processes. Null when it does not serve.
    static std::unique_ptr<Peer> connect_locally(const Remote& remote, uint32_t local_name,
                                                 std::chrono::milliseconds patience,
                                                 std::string* why);

    Outcome copy(const Work& work);
    Outcome stream(const Work& work);
    Outcome stream_read(const Work& work, wire::Request request);
    Outcome stream_write(const Work& work, wire::Request request);
    wire::Request request_for(const Work& work, wire::Opcode opcode);
    bool ask(const wire::Request& request, wire::Reply* reply);
    Deadline deadline_for(uint64_t length) const;
    Outcome broken(uint64_t bytes = 0);

    Socket socket_;
    pid_t pid_;  // 0: over the connection
    std::chrono::milliseconds patience_;
    uint32_t next_id_ = 1;
    bool usable_ = true;
};

}  // namespace softfabric
