#include "fabric/agent_name.h"

#include <sys/un.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

namespace softfabric {

socklen_t local_socket_address(uint32_t name, sockaddr_storage* out) {
    std::memset(out, 0, sizeof *out);
    auto* local = reinterpret_cast<sockaddr_un*>(out);
    local->sun_family = AF_UNIX;
    // An abstract name begins with a NUL. The fixed prefix keeps a hostile agent from pointing
    // initiators at other programs' sockets.
    int length = std::snprintf(local->sun_path + 1, sizeof local->sun_path - 1,
                               "soft-fabric-agent-%06x", name);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

}  // namespace softfabric
