#include "sdk/token.h"

#include <cinttypes>
#include <cstdio>

namespace cuobj_soft {

namespace {

std::optional<uint64_t> hex(const std::string& text, size_t at, size_t width) {
    uint64_t value = 0;
    for (size_t i = at; i < at + width; i++) {
        char c = text[i];
        unsigned digit;
        if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0');
        else if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') digit = static_cast<unsigned>(c - 'A' + 10);
        else return std::nullopt;
        value = value << 4 | digit;
    }
    return value;
}

}  // namespace

std::optional<Token> Token::parse(const std::string& text) {
    if (text.size() < kTokenLength) return std::nullopt;
    if (text.size() > kTokenLength && text[kTokenLength] != ':') return std::nullopt;
    constexpr size_t kWidths[6] = {16, 8, 8, 4, 6, 1};
    uint64_t fields[6];
    size_t at = 0;
    for (size_t i = 0; i < 6; i++) {
        std::optional<uint64_t> value = hex(text, at, kWidths[i]);
        at += kWidths[i];
        if (!value || text[at++] != ':') return std::nullopt;
        fields[i] = *value;
    }
    Token token;
    token.address = fields[0];
    token.size = static_cast<uint32_t>(fields[1]);
    token.rkey = static_cast<uint32_t>(fields[2]);
    token.lid = static_cast<uint16_t>(fields[3]);
    token.dct = static_cast<uint32_t>(fields[4]);
    token.has_gid = fields[5] != 0;
    for (uint8_t& byte : token.gid) {
        std::optional<uint64_t> value = hex(text, at, 2);
        if (!value) return std::nullopt;
        byte = static_cast<uint8_t>(*value);
        at += 2;
    }
    return token;
}

std::string Token::text() const {
    char out[kTokenLength + 1];
    int length = std::snprintf(out, sizeof out, "%016" PRIx64 ":%08" PRIx32 ":%08" PRIx32
                               ":%04x:%06" PRIx32 ":%d:", address, size, rkey, unsigned{lid},
                               dct & 0xffffff, has_gid ? 1 : 0);
    for (size_t i = 0; i < gid.size(); i++) {
        std::snprintf(out + length + 2 * i, 3, "%02x", unsigned{gid[i]});
    }
    return out;
}

}  // namespace cuobj_soft
