#include "fabric/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace softfabric {

void random_bytes(void* out, size_t size) {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0) {
            if (errno == EINTR) continue;
            std::perror("software fabric: getrandom");
            std::abort();
        }
        at += got;
        size -= static_cast<size_t>(got);
    }
}

}  // namespace softfabric
