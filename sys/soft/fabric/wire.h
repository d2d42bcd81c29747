// Frames between an initiator and an agent. All integers are little-endian.
//
// A connection opens with Hello and HelloReply and is then bound to one endpoint. Each request is
// answered in order:
//   Lease    Reply; the initiator then copies by process_vm_* and sends Release, unanswered.
//            Reply with kStreamOnly: the memory cannot be reached that way, use Read or Write.
//   Read     Replies with a chunk's length, each followed by that many bytes, until the request's
//            length is complete or a Reply carries a failure.
//   Write    Reply (go on, or a failure); then the bytes; then a final Reply.
// A closed connection gives back its leases.
#pragma once

#include <cstdint>

namespace softfabric::wire {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are sent as they lie in memory");

constexpr uint32_t kMagic = 0x66577356;  // "VsWf"
constexpr uint16_t kVersion = 1;

struct Hello {
    uint32_t magic;
    uint16_t version;
    uint16_t reserved;
    uint32_t endpoint;
    uint32_t reserved2;
    uint64_t dc_key;
};
static_assert(sizeof(Hello) == 24);

// The last three fields serve the copy between processes of one host. local_name identifies the
// agent's abstract socket (0: it has none). Over that socket the agent also names 16 bytes of its
// memory, which the initiator reads to see whether the kernel lets it.
struct HelloReply {
    uint32_t magic;
    uint16_t version;
    uint8_t status;
    uint8_t reserved;
    uint32_t local_name;
    uint32_t reserved2;
    uint64_t nonce_address;
    uint8_t nonce[16];
};
static_assert(sizeof(HelloReply) == 40);

enum class Opcode : uint8_t {
    kLeaseForRead = 1,   // the initiator will read the agent's memory
    kLeaseForWrite = 2,  // the initiator will write it
    kRelease = 3,        // id names the lease
    kRead = 4,
    kWrite = 5,
};

struct Request {
    uint8_t opcode;
    uint8_t reserved[3];
    uint32_t id;
    uint32_t rkey;
    uint32_t reserved2;
    uint64_t address;
    uint64_t length;
};
static_assert(sizeof(Request) == 32);

constexpr uint8_t kStreamOnly = 1;

struct Reply {
    uint32_t id;
    uint8_t status;
    uint8_t flags;
    uint16_t reserved;
    uint64_t length;
};
static_assert(sizeof(Reply) == 16);

// Leases that one connection may hold at a time.
constexpr unsigned kMaxLeases = 32;

}  // namespace softfabric::wire
