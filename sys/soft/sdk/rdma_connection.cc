// The base class of a 1.x server: its address and tunables.
#include "cuobjrdma.h"

#if CUOBJ_SOFT_GENERATION == 1

#include <cerrno>
#include <cstring>
#include <new>

#include "fabric/address.h"

// Stands for the vendor's device: that a session is open.
struct rdma_device {
    softfabric::Address address;
};

RDMAConnection::RDMAConnection(const char* ip, unsigned short port)
    : address_{}, port_(port), reserved_{}, device_(nullptr) {
    if (ip && std::strlen(ip) < sizeof address_) std::strcpy(address_, ip);
}

RDMAConnection::~RDMAConnection() { closeRDMASession(); }

int RDMAConnection::startRDMASession() {
    if (device_) return 0;
    auto address = softfabric::Address::parse(address_);
    if (!address) return -EINVAL;
    if (!address->is_unicast() || !address->is_local()) return -EADDRNOTAVAIL;
    device_ = new (std::nothrow) rdma_device{*address};
    return device_ ? 0 : -ENOMEM;
}

void RDMAConnection::closeRDMASession() {
    delete device_;
    device_ = nullptr;
}

void RDMAConnection::initRDMAConfigParams(cuObjRDMATunable config) { params = config; }

void RDMAConnection::getConfigTunableParam(cuObjRDMATunableParam* out) {
    if (out) *out = params.rdmaParam;
}

#endif
