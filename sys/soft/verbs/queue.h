// Queue pairs: DC initiators, which post work requests, and DC targets, which serve them.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/initiator.h"
#include "fabric/queue_pair.h"
#include "verbs/completion.h"

namespace softverbs {

// An address handle.
struct Ah {
    ibv_ah ah{};
    ibv_ah_attr attributes{};
};

// A work request that is being put together, between wr_start() and wr_complete().
struct Building {
    uint64_t wr_id = 0;
    unsigned flags = 0;
    ibv_wr_opcode opcode = IBV_WR_RDMA_READ;
    uint32_t rkey = 0;
    uint64_t remote_address = 0;
    Ah* ah = nullptr;
    uint32_t dct = 0;
    uint64_t dc_key = 0;
    bool has_sge = false;
    std::vector<ibv_sge> sges;
};

// The first members are what the program holds pointers to.
class Qp {
public:
    ibv_qp_ex ex{};
    mlx5dv_qp_ex dc{};

    static Qp* of(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
    static Qp* of(ibv_qp_ex* qp) { return reinterpret_cast<Qp*>(qp); }
    static Qp* of(mlx5dv_qp_ex* qp);

    Qp(ibv_context* context, const ibv_qp_init_attr_ex& init, const mlx5dv_qp_init_attr& dv);
    ~Qp();

    bool is_target() const { return is_target_; }

    int modify(const ibv_qp_attr& attributes, int mask);
    ibv_qp_state state();
    ibv_qp_cap capabilities() const { return capabilities_; }

    // The work request API: requests collect between start() and complete(), which returns 0 or an
    // error number and then has posted none of them.
    void start();
    void begin(ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_address);
    Building* building();
    int complete();
    void abort();

    bool take_completion(WorkDone* out);

private:
    struct Posted {
        uint64_t wr_id;
        ibv_wc_opcode opcode;
        uint32_t bytes;
        bool signaled;
    };

    int move_initiator(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
    int move_target(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
    int check(const Building& request);
    int post(const Building& request);

    const bool is_target_;
    const ibv_qp_cap capabilities_;
    const bool signal_all_;
    const uint64_t dct_key_;

    std::mutex building_mutex_;  // from start() to complete(), as in libibverbs' providers
    std::vector<Building> requests_;

    std::mutex mutex_;
    ibv_qp_state state_ = IBV_QPS_RESET;
    uint32_t endpoint_ = 0;  // of a target that is ready to receive
    std::unique_ptr<softfabric::Initiator> initiator_;
    std::unique_ptr<softfabric::QueuePair> queue_;  // uses initiator_
    std::deque<Posted> posted_;
};

// Fills in the functions that start, build and complete work requests.
void set_work_functions(Qp* qp);

}  // namespace softverbs
