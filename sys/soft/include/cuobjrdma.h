// What lies under cuObjServer: completion status, buffer handle and, in generation 1, its base class.
#ifndef CUOBJ_SOFT_CUOBJRDMA_H
#define CUOBJ_SOFT_CUOBJRDMA_H

#include "cuobj_soft_types.h"
#include "cuobjrdmaparam.h"

// The status type belongs to rdma-core. Where its headers are installed they define it; otherwise
// the same names and values (libibverbs, ibv_poll_cq(3)) stand here.
#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && !defined(CUOBJ_SOFT_NO_VERBS)
#include <infiniband/verbs.h>
#define CUOBJ_SOFT_HAVE_VERBS 1
#endif
#endif
#ifndef CUOBJ_SOFT_HAVE_VERBS
enum ibv_wc_status {
    IBV_WC_SUCCESS,
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_QP_OP_ERR,
    IBV_WC_LOC_EEC_OP_ERR,
    IBV_WC_LOC_PROT_ERR,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WC_MW_BIND_ERR,
    IBV_WC_BAD_RESP_ERR,
    IBV_WC_LOC_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_OP_ERR,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_LOC_RDD_VIOL_ERR,
    IBV_WC_REM_INV_RD_REQ_ERR,
    IBV_WC_REM_ABORT_ERR,
    IBV_WC_INV_EECN_ERR,
    IBV_WC_INV_EEC_STATE_ERR,
    IBV_WC_FATAL_ERR,
    IBV_WC_RESP_TIMEOUT_ERR,
    IBV_WC_GENERAL_ERR,
    IBV_WC_TM_ERR,
    IBV_WC_TM_RNDV_INCOMPLETE,
};
#endif

// A registration, or a view into one. Opaque.
struct rdma_buffer;

#if CUOBJ_SOFT_GENERATION == 1
struct rdma_device;

// Address and tunables of a server. Programs use cuObjServer, which derives from it.
class RDMAConnection {
public:
    cuObjRDMATunable params;

    // Keeps the address; an unusable one makes startRDMASession() fail.
    CUOBJ_SOFT_API RDMAConnection(const char* ip, unsigned short port);
    RDMAConnection(const RDMAConnection&) = delete;
    RDMAConnection& operator=(const RDMAConnection&) = delete;
    RDMAConnection(RDMAConnection&&) = delete;
    RDMAConnection& operator=(RDMAConnection&&) = delete;
    CUOBJ_SOFT_API ~RDMAConnection();

    // 0, or a negative error number. Not exported by the shared library, as by the vendor's.
    int startRDMASession();
    void closeRDMASession();
    // Takes effect for a session started afterwards.
    CUOBJ_SOFT_API void initRDMAConfigParams(cuObjRDMATunable config);
    CUOBJ_SOFT_API void getConfigTunableParam(struct cuObjRDMATunableParam* out);

private:
    char address_[64];          // literal address as given, NUL-terminated; empty when unusable
    unsigned short port_;
    char reserved_[70];
    rdma_device* device_;       // the open session

    friend class cuObjServer;
    friend struct cuObjServerLayout;
};
static_assert(sizeof(RDMAConnection) == 208, "size of the vendor's RDMAConnection");
#endif

#endif
