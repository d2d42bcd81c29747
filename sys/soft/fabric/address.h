// Network addresses as a GID carries them: 16 raw bytes, an IPv4 address as ::ffff:a.b.c.d.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace softfabric {

struct Address {
    std::array<uint8_t, 16> bytes{};

    // Takes a literal, v4 or v6 without brackets or scope. Names are not resolved.
    static std::optional<Address> parse(const std::string& literal);
    static Address from_sockaddr(const sockaddr_storage& from);

    bool is_v4() const;
    // Whether one host can be reached at it: neither unspecified nor multicast nor broadcast.
    bool is_unicast() const;
    // Whether a socket of this host can be bound to it.
    bool is_local() const;
    std::string text() const;

    // Length of the filled socket address.
    socklen_t to_sockaddr(uint16_t port, sockaddr_storage* out) const;

    bool operator==(const Address& other) const { return bytes == other.bytes; }
    bool operator<(const Address& other) const { return bytes < other.bytes; }
};

}  // namespace softfabric
