// The one RDMA device that this library shows: "mlx5_0", one port, RoCE, at the address that the
// program binds to. Its LID is the port of the process's agent, so that descriptors made of LID, GID
// and DC target number are those of the software SDK.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "fabric/address.h"
#include "fabric/agent.h"
#include "fabric/memory.h"

namespace softverbs {

constexpr uint8_t kPort = 1;
constexpr int kGids = 4;          // link-local and the address, each for RoCE v1 and v2
constexpr int kAddressGid = 3;    // the address for RoCE v2
constexpr uint32_t kMaxMessage = 1u << 30;
constexpr ibv_mtu kMtu = IBV_MTU_4096;
constexpr int kMaxReads = 16;     // outstanding reads and atomics
constexpr int kMaxSge = 30;
constexpr unsigned kMaxWorkRequests = 8192;

class Device {
public:
    // Never destroyed: threads of the agent and of the program may outlive main().
    static Device& instance();

    ibv_device* device() { return &device_; }
    ibv_context* context() { return &verbs_.context; }

    // Takes the address and starts the agent. 0, or an error number.
    int bind(const softfabric::Address& address);

    // Null until bound.
    softfabric::Agent* agent();
    // What work requests may touch on this side, by local key.
    softfabric::MemoryTable& local_memory() { return local_memory_; }

    int query_port(uint8_t port, ibv_port_attr* out);
    int query_gid(uint8_t port, int index, ibv_gid* out);
    void query_device(ibv_device_attr* out);

    // Blocks until the device is closed.
    void wait_until_closed();
    void opened();
    void closed();

private:
    Device();
    void make_sysfs();

    ibv_device device_{};
    verbs_context verbs_{};
    softfabric::MemoryTable local_memory_;
    std::mutex mutex_;
    std::condition_variable closed_;
    int opens_ = 0;
    softfabric::Address address_;
    std::unique_ptr<softfabric::Agent> agent_;
};

}  // namespace softverbs
