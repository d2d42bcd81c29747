// CUDA device memory, through whatever driver the process has loaded by itself.
//
// Nothing here needs CUDA to build, and nothing loads the driver: a process that has device
// pointers has the driver already. Function names and attribute numbers are those of the CUDA
// driver API's documentation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softfabric {

enum class PointerKind {
    kHost,
    kManaged,
    kDevice,
    kInvalid,  // null
};

PointerKind classify_pointer(const void* pointer);

// Copy between device memory and host memory in the device pointer's own context. False when the
// driver refuses.
bool copy_from_device(void* host, uint64_t device, size_t size);
bool copy_to_device(uint64_t device, const void* host, size_t size);

}  // namespace softfabric
