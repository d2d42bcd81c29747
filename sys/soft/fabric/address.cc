#include "fabric/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "fabric/socket.h"

namespace softfabric {

namespace {
constexpr std::array<uint8_t, 12> kV4Mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
}

std::optional<Address> Address::parse(const std::string& literal) {
    Address address;
    in_addr v4;
    if (inet_pton(AF_INET, literal.c_str(), &v4) == 1) {
        std::copy(kV4Mapped.begin(), kV4Mapped.end(), address.bytes.begin());
        std::memcpy(&address.bytes[12], &v4, 4);
        return address;
    }
    if (inet_pton(AF_INET6, literal.c_str(), address.bytes.data()) == 1) return address;
    return std::nullopt;
}

Address Address::from_sockaddr(const sockaddr_storage& from) {
    Address address;
    if (from.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
        std::copy(kV4Mapped.begin(), kV4Mapped.end(), address.bytes.begin());
        std::memcpy(&address.bytes[12], &v4.sin_addr, 4);
    } else if (from.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        std::memcpy(address.bytes.data(), &v6.sin6_addr, 16);
    }
    return address;
}

bool Address::is_v4() const {
    return std::equal(kV4Mapped.begin(), kV4Mapped.end(), bytes.begin());
}

bool Address::is_unicast() const {
    if (is_v4()) return bytes[12] != 0 && bytes[12] < 224;
    bool unspecified = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
    return !unspecified && bytes[0] != 0xff;
}

bool Address::is_local() const {
    sockaddr_storage where;
    socklen_t size = to_sockaddr(0, &where);
    Socket socket(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return socket && ::bind(socket.fd(), reinterpret_cast<sockaddr*>(&where), size) == 0;
}

std::string Address::text() const {
    char out[INET6_ADDRSTRLEN] = "";
    if (is_v4()) {
        inet_ntop(AF_INET, &bytes[12], out, sizeof out);
    } else {
        inet_ntop(AF_INET6, bytes.data(), out, sizeof out);
    }
    return out;
}

socklen_t Address::to_sockaddr(uint16_t port, sockaddr_storage* out) const {
    std::memset(out, 0, sizeof *out);
    if (is_v4()) {
        auto* v4 = reinterpret_cast<sockaddr_in*>(out);
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        std::memcpy(&v4->sin_addr, &bytes[12], 4);
        return sizeof *v4;
    }
    auto* v6 = reinterpret_cast<sockaddr_in6*>(out);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    std::memcpy(&v6->sin6_addr, bytes.data(), 16);
    return sizeof *v6;
}

}  // namespace softfabric
