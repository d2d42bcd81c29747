// Completion status of a one-sided operation.
//
// The values are those of ibv_wc_status (libibverbs, ibv_poll_cq(3)), so that both facades over the
// fabric hand them on unchanged. Only the ones the fabric gives are named.
#pragma once

#include <cstdint>

namespace softfabric {

enum class Status : uint8_t {
    kSuccess = 0,
    kLocalLength = 1,
    kLocalQueue = 2,
    kLocalProtection = 4,
    kFlushed = 5,
    kRemoteInvalidRequest = 9,
    kRemoteAccess = 10,    // unknown key, outside the region, right not given
    kRemoteOperation = 11, // the region is good, but its owner could not carry out the operation
    kRetryExceeded = 12,   // nobody answers: no listener, wrong endpoint, wrong DC key, peer died
    kGeneral = 21,
};

// A few lower-case words for log lines.
const char* describe(Status status);

}  // namespace softfabric
