#include "verbs/device.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "verbs/completion.h"
#include "verbs/log.h"

namespace softverbs {

namespace {

std::string sysfs_folder;  // set once, before threads

void remove_sysfs() {
    std::string types = sysfs_folder + "/ports/1/gid_attrs/types";
    for (int i = 0; i < kGids; i++) ::unlink((types + "/" + std::to_string(i)).c_str());
    for (const char* part : {"/ports/1/gid_attrs/types", "/ports/1/gid_attrs", "/ports/1", "/ports", ""}) {
        ::rmdir((sysfs_folder + part).c_str());
    }
}

int query_port_op(ibv_context*, uint8_t port, ibv_port_attr* out, size_t size) {
    ibv_port_attr attributes{};
    int error = Device::instance().query_port(port, &attributes);
    if (error == 0) std::memcpy(out, &attributes, std::min(size, sizeof attributes));
    return error;
}

int query_device_ex_op(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* out,
                       size_t size) {
    std::memset(out, 0, size);
    Device::instance().query_device(&out->orig_attr);
    return 0;
}

}  // namespace

Device& Device::instance() {
    static auto* device = new Device;
    return *device;
}

Device::Device() {
    device_.node_type = IBV_NODE_CA;
    device_.transport_type = IBV_TRANSPORT_IB;
    std::strcpy(device_.name, "mlx5_0");
    std::strcpy(device_.dev_name, "uverbs0");
    make_sysfs();

    verbs_.sz = sizeof verbs_;
    verbs_.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs_.context.device = &device_;
    verbs_.context.cmd_fd = -1;
    verbs_.context.async_fd = -1;
    verbs_.context.num_comp_vectors = 1;
    verbs_.context.ops.poll_cq = poll_cq;
    verbs_.query_port = query_port_op;
    verbs_.query_device_ex = query_device_ex_op;
    verbs_.create_cq_ex = create_cq_ex;
}

// Programs read a GID's type from the device's folder in sysfs.
void Device::make_sysfs() {
    const char* base = std::getenv("TMPDIR");
    std::string folder = std::string(base && *base ? base : "/tmp") + "/softverbs-XXXXXX";
    if (!::mkdtemp(folder.data())) {
        complain(errno, "cannot make a folder under %s: %s", base ? base : "/tmp", std::strerror(errno));
        return;
    }
    sysfs_folder = folder;
    std::string path = folder;
    for (const char* part : {"/ports", "/1", "/gid_attrs", "/types"}) {
        path += part;
        ::mkdir(path.c_str(), 0755);
    }
    for (int i = 0; i < kGids; i++) {
        if (FILE* file = std::fopen((path + "/" + std::to_string(i)).c_str(), "w")) {
            std::fputs(i % 2 ? "RoCE v2\n" : "IB/RoCE v1\n", file);
            std::fclose(file);
        }
    }
    std::snprintf(device_.ibdev_path, sizeof device_.ibdev_path, "%s", folder.c_str());
    std::atexit(remove_sysfs);
}

int Device::bind(const softfabric::Address& address) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (agent_) return address == address_ ? 0 : complain(ENODEV, "there is one device, and it has another address");
    if (!address.is_unicast() || !address.is_local()) return EADDRNOTAVAIL;
    std::string error;
    agent_ = softfabric::Agent::start(address, 0, &error);
    if (!agent_) return complain(EADDRNOTAVAIL, "%s", error.c_str());
    address_ = address;
    trace("device is at %s, agent at port %u", address.text().c_str(), unsigned{agent_->port()});
    return 0;
}

softfabric::Agent* Device::agent() {
    std::lock_guard<std::mutex> lock(mutex_);
    return agent_.get();
}

int Device::query_port(uint8_t port, ibv_port_attr* out) {
    if (port != kPort) return complain(EINVAL, "query_port: there is only port 1");
    softfabric::Agent* agent = this->agent();
    *out = {};
    out->state = IBV_PORT_ACTIVE;
    out->max_mtu = out->active_mtu = kMtu;
    out->gid_tbl_len = kGids;
    out->max_msg_sz = kMaxMessage;
    out->pkey_tbl_len = 1;
    out->lid = agent ? agent->port() : 0;
    out->link_layer = IBV_LINK_LAYER_ETHERNET;
    out->phys_state = 5;     // link up
    out->active_width = 2;   // 4 lanes
    out->active_speed = 64;  // HDR
    return 0;
}

int Device::query_gid(uint8_t port, int index, ibv_gid* out) {
    if (port != kPort || index < 0 || index >= kGids) {
        errno = EINVAL;
        return -1;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    std::memset(out, 0, sizeof *out);
    if (index >= kGids / 2) {
        std::memcpy(out->raw, address_.bytes.data(), sizeof out->raw);
    } else {
        out->raw[0] = 0xfe;
        out->raw[1] = 0x80;
        out->raw[15] = 1;
    }
    return 0;
}

void Device::query_device(ibv_device_attr* out) {
    *out = {};
    std::strcpy(out->fw_ver, "0.0.0");
    out->vendor_id = 0x02c9;  // Mellanox, as programs check for mlx5
    out->max_mr_size = UINT64_MAX;
    out->page_size_cap = 4096;
    out->max_qp = 1 << 16;
    out->max_qp_wr = static_cast<int>(kMaxWorkRequests);
    out->max_sge = kMaxSge;
    out->max_cq = 1 << 16;
    out->max_cqe = 1 << 20;
    out->max_mr = 1 << 20;
    out->max_pd = 1 << 16;
    out->max_qp_rd_atom = kMaxReads;
    out->max_qp_init_rd_atom = kMaxReads;
    out->max_srq = 1 << 16;
    out->max_srq_wr = static_cast<int>(kMaxWorkRequests);
    out->max_srq_sge = kMaxSge;
    out->max_ah = 1 << 16;
    out->max_pkeys = 1;
    out->phys_port_cnt = 1;
}

void Device::opened() {
    std::lock_guard<std::mutex> lock(mutex_);
    opens_++;
}

void Device::closed() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (opens_ > 0) opens_--;
    }
    closed_.notify_all();
}

void Device::wait_until_closed() {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_.wait(lock, [this] { return opens_ == 0; });
}

}  // namespace softverbs

using softverbs::Device;
using softverbs::trace;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
    // A list of one, ended by null; the caller gives it back.
    auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
    if (!list) return nullptr;
    list[0] = Device::instance().device();
    if (count) *count = 1;
    return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
    trace("open_device");
    if (device != Device::instance().device()) {
        errno = ENODEV;
        return nullptr;
    }
    // A program that never binds to an address, because it works without rdma_cm, still needs one.
    if (const char* literal = std::getenv("SOFTVERBS_ADDR"); literal && *literal) {
        std::optional<softfabric::Address> address = softfabric::Address::parse(literal);
        int error = address ? Device::instance().bind(*address) : EINVAL;
        if (error != 0) {
            errno = softverbs::complain(error, "open_device: SOFTVERBS_ADDR=%s: %s", literal, std::strerror(error));
            return nullptr;
        }
    }
    Device::instance().opened();
    return Device::instance().context();
}

int ibv_close_device(ibv_context*) {
    trace("close_device");
    Device::instance().closed();
    return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* out) {
    trace("query_device");
    Device::instance().query_device(out);
    return 0;
}

int ibv_query_gid(ibv_context*, uint8_t port, int index, ibv_gid* out) {
    return Device::instance().query_gid(port, index, out);
}

int _ibv_query_gid_ex(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry* out, uint32_t flags,
                      size_t size) {
    ibv_gid_entry entry{};
    if (flags != 0 || size > sizeof entry || port > UINT8_MAX || index > INT32_MAX) return EINVAL;
    if (Device::instance().query_gid(static_cast<uint8_t>(port), static_cast<int>(index), &entry.gid) != 0) {
        return errno;
    }
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = index % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    std::memcpy(out, &entry, size);
    return 0;
}

// The exported symbol is that of old binaries, whose structure ends before port_cap_flags2. The
// header's macro of the same name serves new ones, through verbs_context.
#undef ibv_query_port
int ibv_query_port(ibv_context*, uint8_t port, _compat_ibv_port_attr* out) {
    return softverbs::query_port_op(nullptr, port, reinterpret_cast<ibv_port_attr*>(out),
                                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_get_async_event(ibv_context*, ibv_async_event*) {
    // Nothing ever happens to this device; the wait ends with it.
    Device::instance().wait_until_closed();
    errno = EBADF;
    return -1;
}

void ibv_ack_async_event(ibv_async_event*) {}

}  // extern "C"
