// How initiators on the agent's host find it.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace softfabric {

// The abstract socket that belongs to HelloReply's local_name. Length of the filled address.
socklen_t local_socket_address(uint64_t name, sockaddr_storage* out);

}  // namespace softfabric
