// The passive side: listens for initiators, and serves them the process's registered memory.
//
// One agent serves any number of endpoints (the DC targets of a NIC). Each connection has a thread
// of its own, so that a slow peer holds up nobody else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fabric/address.h"
#include "fabric/memory.h"
#include "fabric/socket.h"
#include "fabric/wire.h"

namespace softfabric {

class Agent {
public:
    // Listens on the address; port 0 lets the kernel choose. Null when the address cannot be bound,
    // with the reason in `error`.
    static std::unique_ptr<Agent> start(const Address& address, uint16_t port, std::string* error);

    // Stops listening, cuts all connections and waits for their threads.
    ~Agent();
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;

    const Address& address() const { return address_; }
    uint16_t port() const { return port_; }
    MemoryTable& memory() { return memory_; }

    // A new endpoint, reached by whoever presents its DC key: a random number of 24 bits, not 0. The
    // first one's number also names the agent's local socket.
    uint32_t open_endpoint(uint64_t dc_key);
    // Cuts the endpoint's connections.
    void close_endpoint(uint32_t endpoint);

private:
    friend class Session;

    Agent(const Address& address, uint16_t port, Socket network, Socket local, uint32_t local_name);
    void accept_loop();
    void accept_one(const Socket& listener, bool is_local);
    bool admits(uint32_t endpoint, uint64_t dc_key) const;
    void session_ended(uint64_t id);

    Address address_;
    uint16_t port_;
    MemoryTable memory_;
    Socket network_;
    Socket local_;         // abstract socket for initiators on this host; may be empty
    uint32_t local_name_;  // an endpoint number
    Socket wake_read_, wake_write_;
    // Read by initiators through process_vm_readv(), to see that they may.
    std::unique_ptr<uint8_t[]> nonce_;

    mutable std::mutex mutex_;
    std::condition_variable ended_;
    std::map<uint32_t, uint64_t> endpoints_;  // number -> DC key
    struct Live {
        int fd;
        uint32_t endpoint;  // 0 until Hello has been accepted
    };
    std::map<uint64_t, Live> sessions_;
    uint64_t next_session_ = 1;
    bool stopping_ = false;
    bool accepting_ = false;
};

}  // namespace softfabric
