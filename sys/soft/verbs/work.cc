// Posting work requests: the functions behind ibv_wr_*() and mlx5dv_wr_*().
#include <cerrno>
#include <new>

#include "fabric/fault.h"
#include "verbs/device.h"
#include "verbs/log.h"
#include "verbs/queue.h"

namespace softverbs {

using softfabric::Direction;
using softfabric::Fault;
using softfabric::Status;

void Qp::start() {
    building_mutex_.lock();
    requests_.clear();
}

void Qp::begin(ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_address) {
    Building request;
    request.wr_id = ex.wr_id;
    request.flags = ex.wr_flags;
    request.opcode = opcode;
    request.rkey = rkey;
    request.remote_address = remote_address;
    requests_.push_back(std::move(request));
}

Building* Qp::building() { return requests_.empty() ? nullptr : &requests_.back(); }

void Qp::abort() {
    requests_.clear();
    building_mutex_.unlock();
}

int Qp::complete() {
    int error = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!queue_) {
            error = complain(EINVAL, "wr_complete: the queue pair is not ready to send");
        } else if (queue_->outstanding() + requests_.size() > capabilities_.max_send_wr) {
            error = complain(ENOMEM, "wr_complete: the send queue holds %u requests",
                             capabilities_.max_send_wr);
        }
        for (const Building& request : requests_) {
            if (error == 0) error = check(request);
        }
        for (const Building& request : requests_) {
            if (error == 0) error = post(request);
        }
    }
    abort();
    return error;
}

int Qp::check(const Building& request) {
    if (!request.ah) return complain(EINVAL, "work request without a DC address");
    if (!request.has_sge) return complain(EINVAL, "work request without local memory");
    if (request.sges.size() > capabilities_.max_send_sge) {
        return complain(EINVAL, "work request with %zu pieces, the queue pair takes %u",
                        request.sges.size(), capabilities_.max_send_sge);
    }
    uint64_t bytes = 0;
    for (const ibv_sge& sge : request.sges) bytes += sge.length;
    if (bytes > kMaxMessage) return complain(EINVAL, "work request of more than 1 GiB");
    return 0;
}

int Qp::post(const Building& request) {
    bool reads = request.opcode == IBV_WR_RDMA_READ;
    softfabric::Work work;
    work.direction = reads ? Direction::kRead : Direction::kWrite;
    const ibv_ah_attr& path = request.ah->attributes;
    std::copy_n(path.grh.dgid.raw, work.remote.address.bytes.size(), work.remote.address.bytes.begin());
    work.remote.port = path.dlid;
    work.remote.endpoint = request.dct;
    work.remote.dc_key = request.dc_key;
    // Programs keep one address handle for all targets behind a GID.
    work.remote.port_is_a_guess = true;
    work.rkey = request.rkey;
    work.address = request.remote_address;

    // Local keys are checked when the device carries the request out, so a wrong one is a completion.
    Fault fault;
    auto pins = std::make_shared<std::vector<softfabric::Pin>>();
    for (const ibv_sge& sge : request.sges) {
        if (sge.length == 0) continue;
        auto pin = Device::instance().local_memory().pin(
            sge.lkey, sge.addr, sge.length, reads ? softfabric::kRemoteWrite : softfabric::kRemoteRead, -1);
        if (!pin) {
            fault.kind = Fault::Kind::kStatus;
            fault.status = Status::kLocalProtection;
        }
        pins->push_back(std::move(pin));
        work.local.push_back({reinterpret_cast<void*>(sge.addr), sge.length});
        work.length += sge.length;
    }
    work.keep = pins;
    if (fault.kind == Fault::Kind::kNone && work.length == 0) {
        // Nothing to move, and a NIC checks no key then. It still waits its turn, or is flushed.
        fault.kind = Fault::Kind::kStatus;
    } else if (fault.kind == Fault::Kind::kNone) {
        fault = softfabric::next_fault(work.direction);
        if (fault.kind == Fault::Kind::kSubmit) return fault.error_number;
    }
    trace("post %s of %llu bytes on qp %u", reads ? "READ" : "WRITE",
          static_cast<unsigned long long>(work.length), ex.qp_base.qp_num);
    Posted posted{request.wr_id, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE,
                  static_cast<uint32_t>(work.length), signal_all_ || (request.flags & IBV_SEND_SIGNALED)};
    posted_.push_back(posted);
    if (queue_->post(std::move(work), 0, fault)) return 0;
    posted_.pop_back();
    return ENOMEM;
}

namespace {

void wr_start(ibv_qp_ex* qp) { Qp::of(qp)->start(); }

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    Qp::of(qp)->begin(IBV_WR_RDMA_READ, rkey, address);
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    Qp::of(qp)->begin(IBV_WR_RDMA_WRITE, rkey, address);
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* sges) {
    Building* request = Qp::of(qp)->building();
    if (!request) return;
    request->sges.assign(sges, sges + count);
    request->has_sge = true;
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
    ibv_sge sge{address, length, lkey};
    wr_set_sge_list(qp, 1, &sge);
}

void wr_set_dc_addr(mlx5dv_qp_ex* qp, ibv_ah* ah, uint32_t dct, uint64_t dc_key) {
    Building* request = Qp::of(qp)->building();
    if (!request) return;
    request->ah = reinterpret_cast<Ah*>(ah);
    request->dct = dct;
    request->dc_key = dc_key;
}

int wr_complete(ibv_qp_ex* qp) { return Qp::of(qp)->complete(); }

void wr_abort(ibv_qp_ex* qp) { Qp::of(qp)->abort(); }

}  // namespace

void set_work_functions(Qp* qp) {
    qp->ex.wr_start = wr_start;
    qp->ex.wr_rdma_read = wr_rdma_read;
    qp->ex.wr_rdma_write = wr_rdma_write;
    qp->ex.wr_set_sge = wr_set_sge;
    qp->ex.wr_set_sge_list = wr_set_sge_list;
    qp->ex.wr_complete = wr_complete;
    qp->ex.wr_abort = wr_abort;
    qp->dc.wr_set_dc_addr = wr_set_dc_addr;
}

}  // namespace softverbs
