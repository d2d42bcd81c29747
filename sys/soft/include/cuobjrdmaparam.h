// Tunables of a server's RDMA session. Setters check nothing; the constructor of the server does.
#ifndef CUOBJ_SOFT_CUOBJRDMAPARAM_H
#define CUOBJ_SOFT_CUOBJRDMAPARAM_H

#include "cuobj_soft_types.h"

// How a synchronous call of the vendor's library sleeps between polls. The software SDK waits on a
// condition variable and only keeps the value.
typedef enum cuObjDelayMode {
    CUOBJ_DELAY_NONE = 0,
    CUOBJ_DELAY_BATCH = 1,
    CUOBJ_DELAY_ENTRY = 2,
    CUOBJ_DELAY_ADAPTIVE = 3,
    CUOBJ_DELAY_INVALID = 4,
} cuObjDelayMode_t;

// The values, with the vendor's defaults and offsets.
struct cuObjRDMATunableParam {
    int num_dcis = 128;                        // channels
    unsigned cq_depth = 640;                   // operations outstanding on a channel
    unsigned long dc_key = 0xffeeddcc;         // must equal the client's
    int ibv_poll_max_comp_event = 0;           // unused
    int service_level = 0;                     // kept, without effect here
    uint8_t timeout = 16;                      // local ACK timeout: 4.096 us * 2^timeout
    unsigned hop_limit = 4;                    // kept, without effect here
    int pkey_index = 0;                        // kept, without effect here
    int max_wr = 0;                            // unused
    int max_sge = 10;                          // entries of one registration
    uint32_t delay_interval = 5000;            // ns
    cuObjDelayMode_t delay_mode = CUOBJ_DELAY_BATCH;
    bool qp_reset_on_failure = true;           // whether a channel works again after a failure
    uint8_t retry_cnt = 7;                     // 0..7
    unsigned traffic_class = 96;               // kept, without effect here
    int max_rd_atomic = 0;                     // 0: the device's limit
};

class cuObjRDMATunable {
public:
    cuObjRDMATunable() = default;

    int getNumDcis() const { return rdmaParam.num_dcis; }
    void setNumDcis(int value) { rdmaParam.num_dcis = value; }
    unsigned getCqDepth() const { return rdmaParam.cq_depth; }
    void setCqDepth(unsigned value) { rdmaParam.cq_depth = value; }
    unsigned long getDcKey() const { return rdmaParam.dc_key; }
    void setDcKey(unsigned long value) { rdmaParam.dc_key = value; }
    int getIbvPollMaxCompEv() const { return rdmaParam.ibv_poll_max_comp_event; }
    void setIbvPollMaxCompEv(int value) { rdmaParam.ibv_poll_max_comp_event = value; }
    int getServiceLevel() const { return rdmaParam.service_level; }
    void setServiceLevel(int value) { rdmaParam.service_level = value; }
    uint8_t getTimeout() const { return rdmaParam.timeout; }
    void setTimeout(uint8_t value) { rdmaParam.timeout = value; }
    unsigned getHopLimit() const { return rdmaParam.hop_limit; }
    void setHopLimit(unsigned value) { rdmaParam.hop_limit = value; }
    int getPkeyIndex() const { return rdmaParam.pkey_index; }
    void setPkeyIndex(int value) { rdmaParam.pkey_index = value; }
    int getMaxWr() const { return rdmaParam.max_wr; }
    void setMaxWr(int value) { rdmaParam.max_wr = value; }
    int getMaxSge() const { return rdmaParam.max_sge; }
    void setMaxSge(int value) { rdmaParam.max_sge = value; }
    uint32_t getDelayInterval() const { return rdmaParam.delay_interval; }
    void setDelayInterval(uint32_t value) { rdmaParam.delay_interval = value; }
    cuObjDelayMode_t getDelayMode() const { return rdmaParam.delay_mode; }
    void setDelayMode(cuObjDelayMode_t value) { rdmaParam.delay_mode = value; }
    bool getQPResetOnFailure() { return rdmaParam.qp_reset_on_failure; }
    void setQPResetOnFailure(bool value) { rdmaParam.qp_reset_on_failure = value; }
    uint8_t getRetryCount() const { return rdmaParam.retry_cnt; }
    void setRetryCount(uint8_t value) { rdmaParam.retry_cnt = value; }
    unsigned getTrafficClass() const { return rdmaParam.traffic_class; }
    void setTrafficClass(unsigned value) { rdmaParam.traffic_class = value; }
    int getMaxRdAtomic() const { return rdmaParam.max_rd_atomic; }
    void setMaxRdAtomic(int value) { rdmaParam.max_rd_atomic = value; }

    cuObjRDMATunableParam rdmaParam;
};

static_assert(sizeof(cuObjRDMATunableParam) == 64, "layout of the vendor's cuObjRDMATunableParam");
static_assert(sizeof(cuObjRDMATunable) == 64, "layout of the vendor's cuObjRDMATunable");
static_assert(offsetof(cuObjRDMATunableParam, cq_depth) == 4, "cq_depth");
static_assert(offsetof(cuObjRDMATunableParam, dc_key) == 8, "dc_key");
static_assert(offsetof(cuObjRDMATunableParam, ibv_poll_max_comp_event) == 16, "ibv_poll_max_comp_event");
static_assert(offsetof(cuObjRDMATunableParam, service_level) == 20, "service_level");
static_assert(offsetof(cuObjRDMATunableParam, timeout) == 24, "timeout");
static_assert(offsetof(cuObjRDMATunableParam, hop_limit) == 28, "hop_limit");
static_assert(offsetof(cuObjRDMATunableParam, pkey_index) == 32, "pkey_index");
static_assert(offsetof(cuObjRDMATunableParam, max_wr) == 36, "max_wr");
static_assert(offsetof(cuObjRDMATunableParam, max_sge) == 40, "max_sge");
static_assert(offsetof(cuObjRDMATunableParam, delay_interval) == 44, "delay_interval");
static_assert(offsetof(cuObjRDMATunableParam, delay_mode) == 48, "delay_mode");
static_assert(offsetof(cuObjRDMATunableParam, qp_reset_on_failure) == 52, "qp_reset_on_failure");
static_assert(offsetof(cuObjRDMATunableParam, retry_cnt) == 53, "retry_cnt");
static_assert(offsetof(cuObjRDMATunableParam, traffic_class) == 56, "traffic_class");
static_assert(offsetof(cuObjRDMATunableParam, max_rd_atomic) == 60, "max_rd_atomic");

#endif
