#include "verbs/completion.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>

#include "verbs/log.h"
#include "verbs/queue.h"

namespace softverbs {

static_assert(offsetof(Cq, ex) == 0, "programs hold pointers to the first member");

void Cq::attach(Qp* qp) {
    std::lock_guard<std::mutex> lock(mutex_);
    qps_.push_back(qp);
}

void Cq::detach(Qp* qp) {
    std::lock_guard<std::mutex> lock(mutex_);
    qps_.erase(std::remove(qps_.begin(), qps_.end(), qp), qps_.end());
}

bool Cq::in_use() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !qps_.empty();
}

bool Cq::take(WorkDone* out) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < qps_.size(); i++) {
        Qp* qp = qps_[(turn_ + i) % qps_.size()];
        if (qp->take_completion(out)) {
            turn_ = (turn_ + i + 1) % qps_.size();
            return true;
        }
    }
    return false;
}

int Cq::take_current() {
    if (!take(&current)) return ENOENT;
    ex.wr_id = current.wr_id;
    ex.status = static_cast<ibv_wc_status>(current.status);
    return 0;
}

namespace {

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    if (attributes->comp_mask != 0) return complain(EINVAL, "start_poll: unknown comp_mask");
    return Cq::of(cq)->take_current();
}

int next_poll(ibv_cq_ex* cq) { return Cq::of(cq)->take_current(); }

void end_poll(ibv_cq_ex*) {}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return Cq::of(cq)->current.opcode; }
uint32_t read_vendor_err(ibv_cq_ex*) { return 0; }
uint32_t read_byte_len(ibv_cq_ex* cq) { return Cq::of(cq)->current.bytes; }
uint32_t read_qp_num(ibv_cq_ex* cq) { return Cq::of(cq)->current.qp_num; }
unsigned read_wc_flags(ibv_cq_ex*) { return 0; }

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    trace("create_cq cqe %u wc_flags %llx", attributes->cqe,
          static_cast<unsigned long long>(attributes->wc_flags));
    if (attributes->cqe == 0 || attributes->comp_vector != 0) {
        errno = complain(EINVAL, "create_cq: no entries, or a vector that is not there");
        return nullptr;
    }
    auto* cq = new (std::nothrow) Cq;
    if (!cq) {
        errno = ENOMEM;
        return nullptr;
    }
    cq->ex.context = context;
    cq->ex.cq_context = attributes->cq_context;
    cq->ex.cqe = static_cast<int>(attributes->cqe);
    cq->ex.start_poll = start_poll;
    cq->ex.next_poll = next_poll;
    cq->ex.end_poll = end_poll;
    cq->ex.read_opcode = read_opcode;
    cq->ex.read_vendor_err = read_vendor_err;
    cq->ex.read_byte_len = read_byte_len;
    cq->ex.read_qp_num = read_qp_num;
    cq->ex.read_wc_flags = read_wc_flags;
    return &cq->ex;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
    int taken = 0;
    WorkDone done;
    while (taken < count && Cq::of(cq)->take(&done)) {
        ibv_wc& wc = out[taken++];
        wc = {};
        wc.wr_id = done.wr_id;
        wc.status = static_cast<ibv_wc_status>(done.status);
        wc.opcode = done.opcode;
        wc.byte_len = done.bytes;
        wc.qp_num = done.qp_num;
    }
    return taken;
}

}  // namespace softverbs

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int comp_vector) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = cqe < 0 ? 0 : static_cast<uint32_t>(cqe);
    attributes.cq_context = cq_context;
    attributes.comp_vector = static_cast<uint32_t>(comp_vector);
    if (channel) {
        errno = softverbs::complain(EOPNOTSUPP, "create_cq: no completion channels here");
        return nullptr;
    }
    return ibv_cq_ex_to_cq(softverbs::create_cq_ex(context, &attributes));
}

int ibv_destroy_cq(ibv_cq* cq) {
    softverbs::trace("destroy_cq");
    if (softverbs::Cq::of(cq)->in_use()) {
        return softverbs::complain(EBUSY, "destroy_cq: a queue pair still uses it");
    }
    delete softverbs::Cq::of(cq);
    return 0;
}

}  // extern "C"
