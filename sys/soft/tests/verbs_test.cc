// The verbs facade by itself: a DC target and a DC initiator in one process, and what it refuses.
#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "check.h"
#include "fabric/fault.h"

using namespace testing;

namespace {

constexpr uint64_t kDcKey = 0x1234;
constexpr size_t kSize = 1 << 20;
constexpr unsigned kDepth = 64;

struct Bench {
    rdma_event_channel* channel;
    rdma_cm_id* id;
    ibv_context* context;
    ibv_pd* pd;
    ibv_cq* cq;
    ibv_srq* srq;

    Bench() {
        channel = rdma_create_event_channel();
        CHECK_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), 0);
        sockaddr_in where{};
        where.sin_family = AF_INET;
        CHECK(inet_pton(AF_INET, "203.0.113.77", &where.sin_addr) == 1);
        CHECK_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&where)), -1);
        CHECK_EQ(errno, EADDRNOTAVAIL);
        CHECK(inet_pton(AF_INET, "127.0.0.1", &where.sin_addr) == 1);
        CHECK_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&where)), 0);
        context = id->verbs;
        pd = ibv_alloc_pd(context);
        ibv_cq_init_attr_ex cq_init{};
        cq_init.cqe = 128;
        cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &cq_init));
        CHECK(cq);
        ibv_srq_init_attr srq_init{};
        srq = ibv_create_srq(pd, &srq_init);
    }
    ~Bench() {
        CHECK_EQ(ibv_destroy_srq(srq), 0);
        CHECK_EQ(ibv_destroy_cq(cq), 0);
        CHECK_EQ(ibv_dealloc_pd(pd), 0);
        CHECK_EQ(rdma_destroy_id(id), 0);
        rdma_destroy_event_channel(channel);
    }

    ibv_qp* create(bool target) {
        ibv_qp_init_attr_ex init{};
        init.qp_type = IBV_QPT_DRIVER;
        init.send_cq = init.recv_cq = cq;
        init.pd = pd;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        mlx5dv_qp_init_attr dv{};
        dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        if (target) {
            init.srq = srq;
            dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
            dv.dc_init_attr.dct_access_key = kDcKey;
        } else {
            init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            init.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
            init.cap.max_send_wr = kDepth;
            init.cap.max_send_sge = 4;
            dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        }
        return mlx5dv_create_qp(context, &init, &dv);
    }
};

ibv_qp_attr attributes(ibv_qp_state to) {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_4096;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 3;
    attr.ah_attr.grh.hop_limit = 4;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    attr.timeout = 10;
    attr.retry_cnt = 1;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 16;
    return attr;
}

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU;
constexpr int kRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                     IBV_QP_MAX_QP_RD_ATOMIC;

int move(ibv_qp* qp, ibv_qp_state to, int mask) {
    ibv_qp_attr attr = attributes(to);
    return ibv_modify_qp(qp, &attr, mask);
}

void ready(ibv_qp* qp) {
    CHECK_EQ(move(qp, IBV_QPS_INIT, kInit), 0);
    CHECK_EQ(move(qp, IBV_QPS_RTR, kRtr), 0);
    CHECK_EQ(move(qp, IBV_QPS_RTS, kRts), 0);
}

void transitions(Bench& bench) {
    ibv_qp* qp = bench.create(false);
    CHECK(qp);
    // Out of turn, or with the wrong attributes.
    CHECK_EQ(move(qp, IBV_QPS_RTR, kRtr), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_RTS, kRts), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_ERR, IBV_QP_STATE), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_INIT, IBV_QP_PORT), EOPNOTSUPP);
    ibv_qp_attr attr = attributes(IBV_QPS_INIT);
    attr.port_num = 2;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kInit), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_INIT, kInit), 0);
    CHECK_EQ(move(qp, IBV_QPS_INIT, kInit), EINVAL);
    attr = attributes(IBV_QPS_RTR);
    attr.ah_attr.is_global = 0;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRtr), EINVAL);
    attr = attributes(IBV_QPS_RTR);
    attr.ah_attr.grh.sgid_index = 0;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRtr), EINVAL);
    attr = attributes(IBV_QPS_RTR);
    attr.ah_attr.grh.hop_limit = 0;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRtr), EINVAL);
    attr = attributes(IBV_QPS_RTR);
    attr.path_mtu = static_cast<ibv_mtu>(0);
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRtr), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_RTR, kRtr | IBV_QP_MIN_RNR_TIMER), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_RTR, kRtr), 0);
    attr = attributes(IBV_QPS_RTS);
    attr.retry_cnt = 8;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRts), EINVAL);
    attr = attributes(IBV_QPS_RTS);
    attr.max_rd_atomic = 17;
    CHECK_EQ(ibv_modify_qp(qp, &attr, kRts), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_RTS, kRts), 0);
    ibv_qp_init_attr init;
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
    CHECK_EQ(attr.cap.max_send_wr, kDepth);
    CHECK_EQ(move(qp, IBV_QPS_ERR, IBV_QP_STATE), 0);
    CHECK_EQ(move(qp, IBV_QPS_RTS, kRts), EINVAL);
    CHECK_EQ(move(qp, IBV_QPS_RESET, IBV_QP_STATE), 0);
    ready(qp);
    CHECK_EQ(ibv_destroy_cq(bench.cq), EBUSY);
    CHECK_EQ(ibv_destroy_qp(qp), 0);

    ibv_qp* target = bench.create(true);
    CHECK(target);
    CHECK(!ibv_qp_to_qp_ex(target));
    CHECK_EQ(move(target, IBV_QPS_INIT, kInit), EINVAL);
    CHECK_EQ(move(target, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS), 0);
    CHECK_EQ(target->qp_num, 0);
    CHECK_EQ(move(target, IBV_QPS_RTR, kRtr), EINVAL);
    CHECK_EQ(move(target, IBV_QPS_RTR, kRtr | IBV_QP_MIN_RNR_TIMER), 0);
    CHECK(target->qp_num != 0);
    CHECK_EQ(move(target, IBV_QPS_RTS, kRts), EINVAL);
    CHECK_EQ(ibv_destroy_qp(target), 0);
}

struct Sender {
    ibv_qp* qp;
    ibv_qp_ex* ex;
    mlx5dv_qp_ex* dc;
    ibv_ah* ah;

    // Posts one operation; what the call returned.
    int post(bool read, uint64_t wr_id, uint32_t dct, uint32_t rkey, void* remote, const ibv_mr* mr, void* local,
             uint32_t size, unsigned flags = IBV_SEND_SIGNALED, uint64_t key = kDcKey) {
        ibv_wr_start(ex);
        ex->wr_id = wr_id;
        ex->wr_flags = flags;
        if (read) ibv_wr_rdma_read(ex, rkey, address_of(remote));
        else ibv_wr_rdma_write(ex, rkey, address_of(remote));
        if (ah) mlx5dv_wr_set_dc_addr(dc, ah, dct, key);
        ibv_wr_set_sge(ex, mr->lkey, address_of(local), size);
        return ibv_wr_complete(ex);
    }
};

ibv_wc next(ibv_cq* cq) {
    ibv_wc wc{};
    int got;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) usleep(200);
    CHECK_EQ(got, 1);
    return wc;
}

void operations(Bench& bench) {
    std::vector<char> remote(kSize), local(kSize);
    fill(remote.data(), kSize, 1);
    constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    ibv_mr* target_mr = ibv_reg_mr(bench.pd, remote.data(), kSize, kAll);
    ibv_mr* read_only = ibv_reg_mr(bench.pd, remote.data(), kSize, IBV_ACCESS_REMOTE_READ);
    ibv_mr* mr = ibv_reg_mr(bench.pd, local.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
    ibv_mr* source = ibv_reg_mr(bench.pd, local.data(), kSize, 0);
    CHECK(target_mr && read_only && mr && source);
    CHECK(target_mr->rkey != 0 && mr->rkey == 0);
    CHECK(!ibv_reg_mr(bench.pd, local.data(), 0, kAll));
    CHECK(!ibv_reg_mr(bench.pd, local.data(), kSize, IBV_ACCESS_REMOTE_WRITE));

    ibv_qp* target = bench.create(true);
    CHECK_EQ(move(target, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS), 0);
    CHECK_EQ(move(target, IBV_QPS_RTR, kRtr | IBV_QP_MIN_RNR_TIMER), 0);
    uint32_t dct = target->qp_num;

    ibv_port_attr port{};
    CHECK_EQ(ibv_query_port(bench.context, 1, &port), 0);
    CHECK_EQ(ibv_query_port(bench.context, 2, &port), EINVAL);
    CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    ibv_gid gid;
    CHECK_EQ(ibv_query_gid(bench.context, 1, 3, &gid), 0);
    CHECK_EQ(ibv_query_gid(bench.context, 1, 4, &gid), -1);
    ibv_gid_entry entry{};
    CHECK_EQ(ibv_query_gid_ex(bench.context, 1, 3, &entry, 0), 0);
    CHECK(std::memcmp(&entry.gid, &gid, sizeof gid) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    CHECK_EQ(ibv_query_gid_ex(bench.context, 1, 2, &entry, 0), 0);
    CHECK_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V1);
    CHECK_EQ(ibv_query_gid_ex(bench.context, 1, 4, &entry, 0), EINVAL);
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.sgid_index = 3;
    path.grh.hop_limit = 4;
    path.grh.dgid = gid;
    // An address handle of another target at the same address: the number counts, not the LID.
    path.dlid = 1;
    Sender sender{bench.create(false), nullptr, nullptr, nullptr};
    sender.ex = ibv_qp_to_qp_ex(sender.qp);
    sender.dc = mlx5dv_qp_ex_from_ibv_qp_ex(sender.ex);
    char *r = remote.data(), *l = local.data();
    CHECK_EQ(sender.post(true, 1, dct, target_mr->rkey, r, mr, l, 64), EINVAL);  // in RESET
    ready(sender.qp);
    CHECK_EQ(sender.post(true, 1, dct, target_mr->rkey, r, mr, l, 64), EINVAL);  // without a DC address
    sender.ah = ibv_create_ah(bench.pd, &path);
    CHECK(sender.ah);

    CHECK_EQ(sender.post(true, 7, dct, target_mr->rkey, r, mr, l, kSize), 0);
    ibv_wc wc = next(bench.cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, 7);
    CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
    CHECK_EQ(wc.byte_len, kSize);
    CHECK_EQ(wc.qp_num, sender.qp->qp_num);
    CHECK(holds(l, kSize, 1));
    fill(l, kSize, 2);
    CHECK_EQ(sender.post(false, 8, dct, target_mr->rkey, r + 5, source, l + 5, 1000), 0);
    CHECK_EQ(next(bench.cq).status, IBV_WC_SUCCESS);
    CHECK(holds(r, 5, 1) && holds(r + 5, 1000, 2, 5) && holds(r + 1005, 100, 1, 1005));

    // Success without SIGNALED leaves no completion; the one behind it does.
    CHECK_EQ(sender.post(true, 9, dct, target_mr->rkey, r, mr, l, 16, 0), 0);
    CHECK_EQ(sender.post(true, 10, dct, target_mr->rkey, r, mr, l, 16), 0);
    CHECK_EQ(next(bench.cq).wr_id, 10);

    // Each kind of failure, and the flush and reset after it.
    struct Case {
        bool read;
        uint32_t dct, rkey;
        char* remote;
        const ibv_mr* mr;
        uint64_t key;
        int status;
    };
    ibv_mr gone = *mr;
    gone.lkey ^= 0x5a5a;
    const Case cases[] = {
        {true, dct, target_mr->rkey ^ 1, r, mr, kDcKey, IBV_WC_REM_ACCESS_ERR},
        {true, dct, target_mr->rkey, r + kSize - 15, mr, kDcKey, IBV_WC_REM_ACCESS_ERR},
        {false, dct, read_only->rkey, r, mr, kDcKey, IBV_WC_REM_ACCESS_ERR},
        {true, dct ^ 1, target_mr->rkey, r, mr, kDcKey, IBV_WC_RETRY_EXC_ERR},
        {true, dct, target_mr->rkey, r, mr, kDcKey + 1, IBV_WC_RETRY_EXC_ERR},
        {true, dct, target_mr->rkey, r, &gone, kDcKey, IBV_WC_LOC_PROT_ERR},
        {true, dct, target_mr->rkey, r, source, kDcKey, IBV_WC_LOC_PROT_ERR},
    };
    for (const Case& one : cases) {
        CHECK_EQ(sender.post(one.read, 20, one.dct, one.rkey, one.remote, one.mr, l, 16, 0, one.key), 0);
        CHECK_EQ(sender.post(true, 21, dct, target_mr->rkey, r, mr, l, 16), 0);
        wc = next(bench.cq);
        CHECK_EQ(wc.wr_id, 20);
        CHECK_EQ(wc.status, one.status);
        wc = next(bench.cq);
        CHECK_EQ(wc.wr_id, 21);
        CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        ibv_qp_attr attr;
        ibv_qp_init_attr init;
        CHECK_EQ(ibv_query_qp(sender.qp, &attr, IBV_QP_STATE, &init), 0);
        CHECK_EQ(attr.qp_state, IBV_QPS_ERR);
        CHECK_EQ(move(sender.qp, IBV_QPS_ERR, IBV_QP_STATE), 0);
        CHECK_EQ(sender.post(true, 22, 0, 0, nullptr, mr, l, 0), 0);
        CHECK_EQ(next(bench.cq).status, IBV_WC_WR_FLUSH_ERR);
        CHECK_EQ(move(sender.qp, IBV_QPS_RESET, IBV_QP_STATE), 0);
        ready(sender.qp);
        CHECK_EQ(sender.post(true, 23, dct, target_mr->rkey, r, mr, l, 16), 0);
        CHECK_EQ(next(bench.cq).status, IBV_WC_SUCCESS);
    }
    CHECK(holds(r, 5, 1));
    CHECK_EQ(sender.post(true, 24, 0, 0, nullptr, mr, l, 0), 0);  // nothing to move
    CHECK_EQ(next(bench.cq).status, IBV_WC_SUCCESS);

    // The send queue holds what it was made for.
    std::string error;
    CHECK(softfabric::set_fault_rules("delay:ms=50,n=1;status:n=3,code=21", &error));
    for (unsigned i = 0; i < kDepth; i++) CHECK_EQ(sender.post(true, i, dct, target_mr->rkey, r, mr, l, 16), 0);
    CHECK_EQ(sender.post(true, 99, dct, target_mr->rkey, r, mr, l, 16), ENOMEM);
    for (unsigned i = 0; i < kDepth; i++) {
        wc = next(bench.cq);
        CHECK_EQ(wc.wr_id, i);
        CHECK_EQ(wc.status, i < 2 ? IBV_WC_SUCCESS : i == 2 ? IBV_WC_GENERAL_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    CHECK(softfabric::set_fault_rules("", &error));
    CHECK_EQ(move(sender.qp, IBV_QPS_RESET, IBV_QP_STATE), 0);
    ready(sender.qp);

    // Deregistered memory, and a target that has gone.
    uint32_t rkey = target_mr->rkey;
    CHECK_EQ(ibv_dereg_mr(target_mr), 0);
    CHECK_EQ(sender.post(true, 30, dct, rkey, r, mr, l, 16), 0);
    CHECK_EQ(next(bench.cq).status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_destroy_qp(target), 0);
    CHECK_EQ(move(sender.qp, IBV_QPS_RESET, IBV_QP_STATE), 0);
    ready(sender.qp);
    CHECK_EQ(sender.post(true, 31, dct, read_only->rkey, r, mr, l, 16), 0);
    CHECK_EQ(next(bench.cq).status, IBV_WC_RETRY_EXC_ERR);

    CHECK_EQ(ibv_destroy_qp(sender.qp), 0);
    CHECK_EQ(ibv_destroy_ah(sender.ah), 0);
    for (ibv_mr* one : {read_only, mr, source}) CHECK_EQ(ibv_dereg_mr(one), 0);
}

void device() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    CHECK_EQ(count, 1);
    CHECK(list[1] == nullptr);
    CHECK(std::string(ibv_get_device_name(list[0])) == "mlx5_0");
    std::ifstream type(std::string(list[0]->ibdev_path) + "/ports/1/gid_attrs/types/3");
    std::string text;
    CHECK(std::getline(type, text) && text == "RoCE v2");
    ibv_context* context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_device_attr attr;
    CHECK_EQ(ibv_query_device(context, &attr), 0);
    CHECK_EQ(attr.phys_port_cnt, 1);
    CHECK_EQ(ibv_close_device(context), 0);
    ibv_free_device_list(list);
}

}  // namespace

int main() {
    device();
    Bench bench;
    transitions(bench);
    operations(bench);
    std::puts("verbs: passed");
}
