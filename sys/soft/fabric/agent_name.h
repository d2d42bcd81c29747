// How initiators on the agent's host find it.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace softfabric {

// The abstract socket that belongs to an agent's first endpoint, which HelloReply's local_name tells.
// Length of the filled address.
socklen_t local_socket_address(uint32_t name, sockaddr_storage* out);

}  // namespace softfabric
