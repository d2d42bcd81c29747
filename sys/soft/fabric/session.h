// One connection of an agent.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fabric/memory.h"
#include "fabric/wire.h"

namespace softfabric {

class Agent;

class Session {
public:
    Session(Agent& agent, uint64_t id, int fd, bool is_local)
        : agent_(agent), id_(id), fd_(fd), is_local_(is_local) {}

    // Serves requests until the connection ends. Leases end with the object.
    void serve();

private:
    bool greet();
    bool serve_one(const wire::Request& request);
    bool lease(const wire::Request& request, unsigned access);
    bool stream_out(const wire::Request& request);
    bool stream_in(const wire::Request& request);
    bool stream_out_of_device(const wire::Request& request);
    bool stream_into_device(const wire::Request& request);
    bool reply(const wire::Request& request, Status status, uint64_t length, uint8_t flags = 0);

    Agent& agent_;
    uint64_t id_;
    int fd_;
    bool is_local_;
    std::unordered_map<uint32_t, Pin> leases_;
    std::vector<char> staging_;  // for device memory only
};

}  // namespace softfabric
