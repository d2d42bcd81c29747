// What stands behind cuObjClient: the process's registrations and its agent.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "cuobjclient.h"
#include "fabric/agent.h"

namespace cuobj_soft {

// Registrations of the process, shared by all its clients. The agent starts with the first one.
class Registry {
public:
    // Never destroyed: the agent's threads use it until the process has ended. A forked child gets
    // a new, empty one, since neither threads nor registrations are inherited.
    static Registry& instance();

    bool add(void* start, size_t size);
    // False: not registered. Waits for running operations.
    bool remove(void* start);
    // Size of the registration that begins at `start`, or 0.
    size_t size_of(const void* start) const;
    // A new token for [start + offset, start + offset + size), or null.
    char* mint(void* start, size_t size, size_t offset);
    // Frees a token of mint(). False: it is none.
    bool discard(char* token);

private:
    struct Registration {
        size_t size;
        uint32_t rkey;
    };

    bool start_agent();

    mutable std::mutex mutex_;
    std::unique_ptr<softfabric::Agent> agent_;
    uint32_t endpoint_ = 0;
    std::map<uint64_t, Registration> registrations_;
    std::set<char*> tokens_;
};

// One client object: its callbacks.
class ClientState {
public:
    ClientState(const CUObjOps_t& ops, cuObjProto_t proto) : ops_(ops), proto_(proto) {}

    ssize_t transfer(cuObjOpType_t operation, void* context, void* start, size_t size, loff_t offset);

private:
    ssize_t call(cuObjOpType_t operation, void* context, void* start, size_t size, loff_t offset,
                 void* registered);
    ssize_t through_host_memory(cuObjOpType_t operation, void* context, void* start, size_t size,
                                loff_t offset);

    CUObjOps_t ops_;
    cuObjProto_t proto_;
};

// What a callback's handle points to.
struct CallHandle {
    void* context;
};

}  // namespace cuobj_soft
