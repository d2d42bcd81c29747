#include "verbs/queue.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#include "verbs/device.h"
#include "verbs/log.h"

namespace softverbs {

namespace {

std::atomic<uint32_t> next_qp_num{0x100};

// What each transition needs, from ibv_modify_qp(3) for the reliable transports and mlx5dv's DC
// notes: exactly these attributes have to be given.
constexpr int kInitiatorToInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kInitiatorToRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU;
constexpr int kInitiatorToRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kTargetToInit = kInitiatorToInit | IBV_QP_ACCESS_FLAGS;
constexpr int kTargetToRtr = kInitiatorToRtr | IBV_QP_MIN_RNR_TIMER;

int check_mask(const char* transition, int mask, int needed) {
    if (mask == needed) return 0;
    return complain(EINVAL, "modify_qp: %s needs the attributes %x, got %x", transition, unsigned(needed),
                    unsigned(mask));
}

int check_init(const ibv_qp_attr& attributes) {
    if (attributes.port_num != kPort) return complain(EINVAL, "modify_qp: there is only port 1");
    if (attributes.pkey_index != 0) return complain(EINVAL, "modify_qp: there is only P_Key index 0");
    return 0;
}

int check_path(const ibv_qp_attr& attributes) {
    if (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > kMtu) {
        return complain(EINVAL, "modify_qp: path MTU %d", int(attributes.path_mtu));
    }
    const ibv_ah_attr& path = attributes.ah_attr;
    if (!path.is_global) return complain(EINVAL, "modify_qp: RoCE needs a global route");
    if (path.port_num != kPort) return complain(EINVAL, "modify_qp: the path's port");
    if (path.grh.sgid_index != kAddressGid) {
        return complain(EINVAL, "modify_qp: source GID %d is not the address as RoCE v2",
                        int(path.grh.sgid_index));
    }
    if (path.grh.hop_limit == 0) return complain(EINVAL, "modify_qp: hop limit 0");
    return 0;
}

int check_send(const ibv_qp_attr& attributes) {
    if (attributes.timeout > 31) return complain(EINVAL, "modify_qp: timeout %u", unsigned{attributes.timeout});
    if (attributes.retry_cnt > 7 || attributes.rnr_retry > 7) {
        return complain(EINVAL, "modify_qp: retry counts have three bits");
    }
    if (attributes.max_rd_atomic > kMaxReads) {
        return complain(EINVAL, "modify_qp: %u reads are more than the device's %d",
                        unsigned{attributes.max_rd_atomic}, kMaxReads);
    }
    return 0;
}

// Local ACK timeout, 4.096 us * 2^timeout, for each try; bounded as in the software SDK.
std::chrono::milliseconds patience(const ibv_qp_attr& attributes) {
    constexpr std::chrono::milliseconds kLeast(1000), kMost(60000);
    if (attributes.timeout == 0) return kMost;
    uint64_t microseconds = 4096 * (uint64_t{1} << attributes.timeout) / 1000 *
                            (uint64_t{attributes.retry_cnt} + 1);
    return std::clamp(std::chrono::milliseconds(microseconds / 1000), kLeast, kMost);
}

}  // namespace

static_assert(offsetof(Qp, ex) == 0, "programs hold pointers to the first member");

Qp* Qp::of(mlx5dv_qp_ex* qp) {
    return reinterpret_cast<Qp*>(reinterpret_cast<char*>(qp) - offsetof(Qp, dc));
}

Qp::Qp(ibv_context* context, const ibv_qp_init_attr_ex& init, const mlx5dv_qp_init_attr& dv)
    : is_target_(dv.dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT),
      capabilities_(init.cap),
      signal_all_(init.sq_sig_all != 0),
      dct_key_(is_target_ ? dv.dc_init_attr.dct_access_key : 0) {
    ibv_qp& base = ex.qp_base;
    base.context = context;
    base.qp_context = init.qp_context;
    base.pd = init.pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.qp_type = init.qp_type;
    base.state = IBV_QPS_RESET;
    // A target gets its number when it is ready to receive, as from mlx5.
    base.qp_num = is_target_ ? 0 : next_qp_num++;
    if (!is_target_) {
        set_work_functions(this);
        Cq::of(init.send_cq)->attach(this);
    }
}

Qp::~Qp() {
    if (!is_target_) Cq::of(ex.qp_base.send_cq)->detach(this);
    if (endpoint_ != 0) Device::instance().agent()->close_endpoint(endpoint_);
}

ibv_qp_state Qp::state() {
    std::lock_guard<std::mutex> lock(mutex_);
    return state_ == IBV_QPS_RTS && queue_->in_error() ? IBV_QPS_ERR : state_;
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
    if (!(mask & IBV_QP_STATE)) return complain(EOPNOTSUPP, "modify_qp: only transitions are served");
    ibv_qp_state from = state();
    ibv_qp_state to = attributes.qp_state;
    trace("modify_qp %u from %d to %d mask %x", ex.qp_base.qp_num, int(from), int(to), unsigned(mask));
    std::lock_guard<std::mutex> lock(mutex_);
    int error = 0;
    if (to == IBV_QPS_RESET) {
        error = check_mask("any state to RESET", mask, IBV_QP_STATE);
        if (error == 0) {
            queue_.reset();  // waits for a running operation; what is queued is forgotten
            initiator_.reset();
            posted_.clear();
            if (endpoint_ != 0) Device::instance().agent()->close_endpoint(endpoint_);
            endpoint_ = 0;
        }
    } else if (to == IBV_QPS_ERR) {
        error = check_mask("any state to ERR", mask, IBV_QP_STATE);
        if (error == 0 && from == IBV_QPS_RESET) error = complain(EINVAL, "modify_qp: RESET to ERR");
        if (error == 0 && queue_) queue_->fail();
    } else {
        error = is_target_ ? move_target(from, attributes, mask) : move_initiator(from, attributes, mask);
    }
    if (error == 0) state_ = ex.qp_base.state = to;
    return error;
}

int Qp::move_initiator(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
    ibv_qp_state to = attributes.qp_state;
    int error = 0;
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
        error = check_mask("RESET to INIT", mask, kInitiatorToInit);
        return error ? error : check_init(attributes);
    }
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
        error = check_mask("INIT to RTR", mask, kInitiatorToRtr);
        return error ? error : check_path(attributes);
    }
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
        error = check_mask("RTR to RTS", mask, kInitiatorToRts);
        if (error == 0) error = check_send(attributes);
        if (error != 0) return error;
        initiator_ = std::make_unique<softfabric::Initiator>(
            softfabric::path_from_environment(), patience(attributes),
            [](const std::string& line) { trace("%s", line.c_str()); });
        queue_ = std::make_unique<softfabric::QueuePair>(*initiator_, capabilities_.max_send_wr);
        return 0;
    }
    return complain(EINVAL, "modify_qp: no transition from %d to %d", int(from), int(to));
}

int Qp::move_target(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
    ibv_qp_state to = attributes.qp_state;
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
        int error = check_mask("RESET to INIT of a target", mask, kTargetToInit);
        return error ? error : check_init(attributes);
    }
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
        int error = check_mask("INIT to RTR of a target", mask, kTargetToRtr);
        if (error == 0) error = check_path(attributes);
        if (error != 0) return error;
        softfabric::Agent* agent = Device::instance().agent();
        if (!agent) return complain(ENODEV, "modify_qp: the device has no address yet");
        endpoint_ = agent->open_endpoint(dct_key_);
        ex.qp_base.qp_num = endpoint_;
        return 0;
    }
    return complain(EINVAL, "modify_qp: a target goes no way from %d to %d", int(from), int(to));
}

bool Qp::take_completion(WorkDone* out) {
    std::lock_guard<std::mutex> lock(mutex_);
    softfabric::Completion completion;
    while (queue_ && queue_->poll(&completion)) {
        Posted posted = posted_.front();
        posted_.pop_front();
        // A request that asked for no completion gets one only if it failed.
        if (completion.status == softfabric::Status::kSuccess && !posted.signaled) continue;
        out->wr_id = posted.wr_id;
        out->status = completion.status;
        out->opcode = posted.opcode;
        out->bytes = completion.status == softfabric::Status::kSuccess ? posted.bytes : 0;
        out->qp_num = ex.qp_base.qp_num;
        return true;
    }
    return false;
}

}  // namespace softverbs

using softverbs::complain;
using softverbs::Qp;
using softverbs::trace;

extern "C" {

ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* init, mlx5dv_qp_init_attr* dv) {
    auto refuse = [](int error_number) -> ibv_qp* {
        errno = error_number;
        return nullptr;
    };
    if (!dv || !(dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) || init->qp_type != IBV_QPT_DRIVER) {
        return refuse(complain(EOPNOTSUPP, "create_qp: only DC queue pairs are served"));
    }
    bool target = dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
    if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || !init->pd || !init->send_cq || !init->recv_cq) {
        return refuse(complain(EINVAL, "create_qp: it needs a protection domain and completion queues"));
    }
    if (target && (!init->srq || init->cap.max_send_wr != 0)) {
        return refuse(complain(EINVAL, "create_qp: a target has a shared receive queue and no send queue"));
    }
    if (!target) {
        constexpr uint64_t kServed = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
        if (!(init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) || (init->send_ops_flags & ~kServed)) {
            return refuse(complain(EOPNOTSUPP, "create_qp: only RDMA READ and WRITE are served"));
        }
        if (init->cap.max_send_wr == 0 || init->cap.max_send_wr > softverbs::kMaxWorkRequests ||
            init->cap.max_send_sge > static_cast<unsigned>(softverbs::kMaxSge)) {
            return refuse(complain(EINVAL, "create_qp: capacities"));
        }
    }
    trace("create_qp %s", target ? "DC target" : "DC initiator");
    auto* qp = new (std::nothrow) Qp(context, *init, *dv);
    return qp ? &qp->ex.qp_base : refuse(ENOMEM);
}

int ibv_destroy_qp(ibv_qp* qp) {
    trace("destroy_qp %u", qp->qp_num);
    delete Qp::of(qp);
    return 0;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    try {
        return Qp::of(qp)->modify(*attributes, mask);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
    *attributes = {};
    attributes->qp_state = attributes->cur_qp_state = Qp::of(qp)->state();
    attributes->port_num = softverbs::kPort;
    attributes->cap = Qp::of(qp)->capabilities();
    if (init) {
        *init = {};
        init->cap = attributes->cap;
        init->qp_type = qp->qp_type;
        init->send_cq = qp->send_cq;
        init->recv_cq = qp->recv_cq;
        init->srq = qp->srq;
    }
    return 0;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) { return Qp::of(qp)->is_target() ? nullptr : &Qp::of(qp)->ex; }

mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) { return &Qp::of(qp)->dc; }

}  // extern "C"
