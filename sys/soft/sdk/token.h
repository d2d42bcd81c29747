// The RDMA descriptor ("token") of 81 characters: seven hexadecimal fields of fixed width with ':'
// between them.
//
//   address (16)  size (8)  rkey (8)  LID (4)  DCT number (6)  GID flag (1)  GID (32)
//
// The software SDK fills them so that an ordinary token carries all that a server needs: the GID is
// the agent's network address, the LID its TCP port, the DCT number its endpoint.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cuobj_soft {

constexpr size_t kTokenLength = 81;

struct Token {
    uint64_t address = 0;
    uint32_t size = 0;
    uint32_t rkey = 0;
    uint16_t lid = 0;
    uint32_t dct = 0;
    bool has_gid = false;
    std::array<uint8_t, 16> gid{};

    // Upper-case digits are taken, and anything that follows the seven fields after a ':'.
    static std::optional<Token> parse(const std::string& text);
    // Lower case, exactly 81 characters.
    std::string text() const;
};

}  // namespace cuobj_soft
