// Completion queues.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "fabric/status.h"

namespace softverbs {

class Qp;

// A finished work request that the program gets to see.
struct WorkDone {
    uint64_t wr_id = 0;
    softfabric::Status status = softfabric::Status::kSuccess;
    ibv_wc_opcode opcode = IBV_WC_RDMA_READ;
    uint32_t bytes = 0;
    uint32_t qp_num = 0;
};

// The first member is what the program holds a pointer to.
class Cq {
public:
    ibv_cq_ex ex{};

    static Cq* of(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
    static Cq* of(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }

    void attach(Qp* qp);
    void detach(Qp* qp);
    bool in_use();

    // The next completion of any queue pair; they come in order within each.
    bool take(WorkDone* out);
    // The same into `current` and the fields of ibv_cq_ex. 0 or ENOENT.
    int take_current();

    WorkDone current;

private:
    std::mutex mutex_;
    std::vector<Qp*> qps_;
    size_t turn_ = 0;
};

// Operations of verbs_context.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
int poll_cq(ibv_cq* cq, int count, ibv_wc* out);

}  // namespace softverbs
