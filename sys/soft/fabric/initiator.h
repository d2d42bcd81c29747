// Carries out one-sided operations over a pool of connections.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/fault.h"
#include "fabric/peer.h"

namespace softfabric {

class Initiator {
public:
    // Gets one line per connection made or refused; never a key or an address of memory.
    using Log = std::function<void(const std::string& line)>;

    Initiator(Path path, std::chrono::milliseconds patience, Log log);

    // Blocks until the operation is over; afterwards nothing touches the local memory on its behalf.
    // Any number of threads may call.
    Outcome execute(const Work& work, const Fault& fault);

private:
    struct Idle {
        std::unique_ptr<Peer> peer;
        std::chrono::steady_clock::time_point since;
    };

    Outcome execute_plainly(const Work& work);
    Outcome execute_partly(const Work& work, uint64_t length);
    void corrupt(const Work& work, uint64_t at);
    std::unique_ptr<Peer> take(const Remote& remote);
    void give_back(const Remote& remote, std::unique_ptr<Peer> peer);
    void forget(const Remote& remote);
    std::unique_ptr<Peer> connect(const Remote& remote, Status* status);

    Path path_;
    std::chrono::milliseconds patience_;
    Log log_;
    std::mutex mutex_;
    std::map<Remote, std::vector<Idle>> idle_;
    std::chrono::steady_clock::time_point swept_{};
};

// CUOBJ_SOFT_PATH: "vm", "tcp", or "auto", which is also what an unset or unknown value means.
Path path_from_environment();

}  // namespace softfabric
