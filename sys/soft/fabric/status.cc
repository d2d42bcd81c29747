#include "fabric/status.h"

namespace softfabric {

const char* describe(Status status) {
    switch (status) {
        case Status::kSuccess: return "success";
        case Status::kLocalLength: return "local length error";
        case Status::kLocalQueue: return "local queue pair error";
        case Status::kLocalProtection: return "local protection error";
        case Status::kFlushed: return "flushed";
        case Status::kRemoteInvalidRequest: return "remote invalid request";
        case Status::kRemoteAccess: return "remote access error";
        case Status::kRemoteOperation: return "remote operation error";
        case Status::kRetryExceeded: return "transport retries exceeded";
        case Status::kGeneral: return "general error";
    }
    return "other error";
}

}  // namespace softfabric
