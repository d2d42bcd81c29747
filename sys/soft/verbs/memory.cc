// Protection domains, memory regions, address handles, shared receive queues.
#include <infiniband/verbs.h>

#include <cerrno>
#include <new>

#include "verbs/device.h"
#include "verbs/log.h"
#include "verbs/queue.h"

using softverbs::Ah;
using softverbs::complain;
using softverbs::Device;
using softverbs::trace;

namespace {

template <typename Object>
Object* made(Object* object) {
    if (!object) errno = ENOMEM;
    return object;
}

ibv_mr* register_memory(ibv_pd* pd, void* address, size_t size, unsigned access) {
    constexpr unsigned kServed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
    auto start = reinterpret_cast<uint64_t>(address);
    if (!pd || !address || size == 0 || start + size < start || (access & ~kServed)) {
        errno = complain(EINVAL, "reg_mr: an empty range, or access %x", access);
        return nullptr;
    }
    // ibv_reg_mr(3): remote write needs local write.
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
        errno = complain(EINVAL, "reg_mr: remote write without local write");
        return nullptr;
    }
    softfabric::Agent* agent = Device::instance().agent();
    auto* mr = made(new (std::nothrow) ibv_mr{});
    if (!mr) return nullptr;
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = size;
    unsigned local = softfabric::kRemoteRead | (access & IBV_ACCESS_LOCAL_WRITE ? softfabric::kRemoteWrite : 0u);
    mr->lkey = Device::instance().local_memory().add(start, size, local, softfabric::MemoryKind::kHost);
    unsigned remote = (access & IBV_ACCESS_REMOTE_READ ? softfabric::kRemoteRead : 0u) |
                      (access & IBV_ACCESS_REMOTE_WRITE ? softfabric::kRemoteWrite : 0u);
    // Without remote rights the key opens nothing.
    mr->rkey = agent && remote ? agent->memory().add(start, size, remote, softfabric::MemoryKind::kHost) : 0;
    trace("reg_mr %zu bytes access %x", size, access);
    return mr;
}

}  // namespace

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    auto* pd = made(new (std::nothrow) ibv_pd{});
    if (pd) pd->context = context;
    return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
    delete pd;
    return 0;
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t size, int access) {
    return register_memory(pd, address, size, static_cast<unsigned>(access));
}

#undef ibv_reg_mr_iova2
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t size, uint64_t iova, unsigned access) {
    if (iova != reinterpret_cast<uint64_t>(address)) {
        errno = complain(EOPNOTSUPP, "reg_mr_iova2: another address for the device is not served");
        return nullptr;
    }
    return register_memory(pd, address, size, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
    errno = EOPNOTSUPP;
    return nullptr;
}

int ibv_dereg_mr(ibv_mr* mr) {
    trace("dereg_mr");
    Device& device = Device::instance();
    device.local_memory().remove(mr->lkey);
    if (mr->rkey != 0) device.agent()->memory().remove(mr->rkey);
    delete mr;
    return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    if (!attributes->is_global || attributes->port_num != softverbs::kPort ||
        attributes->grh.sgid_index != softverbs::kAddressGid || attributes->grh.hop_limit == 0) {
        errno = complain(EINVAL, "create_ah: RoCE v2 needs a global route, the address's GID and a hop limit");
        return nullptr;
    }
    auto* ah = made(new (std::nothrow) Ah);
    if (!ah) return nullptr;
    ah->ah.context = pd->context;
    ah->ah.pd = pd;
    ah->attributes = *attributes;
    trace("create_ah");
    return &ah->ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
    delete reinterpret_cast<Ah*>(ah);
    return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
    auto* srq = made(new (std::nothrow) ibv_srq{});
    if (!srq) return nullptr;
    srq->context = pd->context;
    srq->pd = pd;
    return srq;
}

int ibv_query_srq(ibv_srq*, ibv_srq_attr* attributes) {
    *attributes = {};
    attributes->max_wr = 1;
    attributes->max_sge = 1;
    return 0;
}

int ibv_destroy_srq(ibv_srq* srq) {
    delete srq;
    return 0;
}

}  // extern "C"
