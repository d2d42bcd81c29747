// The part of librdmacm that finds the device behind an address.
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>

#include "fabric/address.h"
#include "verbs/device.h"
#include "verbs/log.h"

namespace {

// rdma_cm's functions return -1 with errno set.
int result(int error_number) {
    if (error_number == 0) return 0;
    errno = error_number;
    return -1;
}

struct Channel {
    rdma_event_channel channel{};
    std::mutex mutex;
    std::deque<rdma_cm_event_type> pending;
};

Channel* of(rdma_event_channel* channel) { return reinterpret_cast<Channel*>(channel); }

int bind(rdma_cm_id* id, const sockaddr* address) {
    sockaddr_storage where{};
    if (address->sa_family == AF_INET) {
        std::memcpy(&where, address, sizeof(sockaddr_in));
    } else if (address->sa_family == AF_INET6) {
        std::memcpy(&where, address, sizeof(sockaddr_in6));
    } else {
        return EAFNOSUPPORT;
    }
    softverbs::Device& device = softverbs::Device::instance();
    if (int error = device.bind(softfabric::Address::from_sockaddr(where))) return error;
    std::memcpy(&id->route.addr.src_storage, &where, sizeof where);
    id->verbs = device.context();
    id->port_num = softverbs::kPort;
    return 0;
}

}  // namespace

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
    auto* channel = new (std::nothrow) Channel;
    if (!channel) {
        errno = ENOMEM;
        return nullptr;
    }
    channel->channel.fd = -1;
    return &channel->channel;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) { delete of(channel); }

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
    auto* made = new (std::nothrow) rdma_cm_id{};
    if (!made) return result(ENOMEM);
    made->channel = channel;
    made->context = context;
    made->ps = space;
    *id = made;
    return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
    delete id;
    return 0;
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) { return result(bind(id, address)); }

uint16_t rdma_get_src_port(rdma_cm_id* id) {
    const sockaddr_storage& where = id->route.addr.src_storage;
    return where.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(where).sin6_port
                                       : reinterpret_cast<const sockaddr_in&>(where).sin_port;
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int) {
    // The device is found by the address of this side; to reach itself, that is the other one's too.
    int error = bind(id, source ? source : destination);
    if (error == 0) {
        Channel* channel = of(id->channel);
        std::lock_guard<std::mutex> lock(channel->mutex);
        channel->pending.push_back(RDMA_CM_EVENT_ADDR_RESOLVED);
    }
    return result(error);
}

int rdma_resolve_route(rdma_cm_id* id, int) {
    Channel* channel = of(id->channel);
    std::lock_guard<std::mutex> lock(channel->mutex);
    channel->pending.push_back(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** out) {
    std::lock_guard<std::mutex> lock(of(channel)->mutex);
    if (of(channel)->pending.empty()) return result(EAGAIN);
    auto* event = new (std::nothrow) rdma_cm_event{};
    if (!event) return result(ENOMEM);
    event->event = of(channel)->pending.front();
    of(channel)->pending.pop_front();
    *out = event;
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
    delete event;
    return 0;
}

}  // extern "C"
