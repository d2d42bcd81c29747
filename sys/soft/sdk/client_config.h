// Where a client's agent listens, and which DC key it asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/address.h"

namespace cuobj_soft {

struct ClientConfig {
    softfabric::Address address;
    uint16_t port = 0;  // 0: any
    uint64_t dc_key = 0xffeeddcc;
    std::vector<std::string> notes;  // what was odd, for the log

    // From the environment and the configuration file. False, with a reason, when CUOBJ_SOFT_ADDR
    // names no address of this host.
    //
    // Address: CUOBJ_SOFT_ADDR ("192.0.2.1", "[2001:db8::1]", either with ":port"); else the first
    // entry of the file's properties.rdma_dev_addr_list that this host has; else 127.0.0.1.
    // DC key: CUOBJ_RDMA_DC_KEY; else the file's properties.rdma_dc_key; else the vendor's default.
    // File: CUOBJ_ENV_PATH_JSON, else CUFILE_ENV_PATH_JSON, else /etc/cuobj.json, else
    // /etc/cufile.json.
    bool load(std::string* error);
};

}  // namespace cuobj_soft
