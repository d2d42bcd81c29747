// Numbers that a peer must not guess: keys, endpoint numbers, nonces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softfabric {

// Fills the buffer from the kernel's generator; aborts the process if the kernel has none, because
// a guessable key would open the process's memory.
void random_bytes(void* out, size_t size);

template <typename Integer>
Integer random_integer() {
    Integer value;
    random_bytes(&value, sizeof value);
    return value;
}

}  // namespace softfabric
