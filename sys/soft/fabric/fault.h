// Failures on purpose, for tests, from the environment variable CUOBJ_SOFT_FAULT.
//
// The variable holds rules with ';' between them, each a kind, ':' and settings with ',' between:
//   delay:ms=20                 completes later
//   status:n=5,code=12          completes with that status, nothing is moved
//   submit:n=5,errno=71         the call itself fails with that error number
//   drop:n=5                    nobody answers: ends as retries exceeded, after the whole patience
//   short:n=5                   moves half of the bytes and says so
//   disconnect:n=5              moves half of the bytes, then the connection breaks
//   corrupt:n=5[,at=100]        moves everything, then flips the byte at that offset
// Which operations a rule hits, counted from 1 in this process: n=N the N-th only, every=N each
// N-th, neither all of them; op=read or op=write only those (and only those are counted for it).
#pragma once

#include <cstdint>
#include <string>

#include "fabric/peer.h"

namespace softfabric {

struct Fault {
    enum class Kind { kNone, kStatus, kSubmit, kDrop, kShort, kDisconnect, kCorrupt };
    Kind kind = Kind::kNone;
    unsigned delay_ms = 0;  // may come with any kind
    Status status = Status::kSuccess;
    int error_number = 0;
    uint64_t at = 0;
};

// What to do to the next operation; counts it. Without the variable this is one relaxed load.
Fault next_fault(Direction direction);

// Reads rules; announces them on stderr once. False, with what is wrong, for rules that cannot be
// read, which then do not apply. Called for the environment's by the first next_fault().
bool set_fault_rules(const std::string& rules, std::string* error);

}  // namespace softfabric
