#include "fabric/device.h"

#include <dlfcn.h>

namespace softfabric {

namespace {

using Result = int;
using Context = void*;

constexpr int kAttributeContext = 1;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr unsigned kMemoryTypeDevice = 2;

struct Driver {
    Result (*pointer_attribute)(void* out, int attribute, uint64_t pointer) = nullptr;
    Result (*push_context)(Context) = nullptr;
    Result (*pop_context)(Context*) = nullptr;
    Result (*device_to_host)(void*, uint64_t, size_t) = nullptr;
    Result (*host_to_device)(uint64_t, const void*, size_t) = nullptr;

    bool usable() const {
        return pointer_attribute && push_context && pop_context && device_to_host && host_to_device;
    }
};

template <typename Function>
void resolve(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(dlsym(library, name));
}

// Looked up anew on each call, since the program may load the driver at any time; RTLD_NOLOAD makes
// that a search in the list of loaded objects.
Driver driver() {
    Driver driver;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return driver;
    resolve(library, "cuPointerGetAttribute", driver.pointer_attribute);
    resolve(library, "cuCtxPushCurrent_v2", driver.push_context);
    resolve(library, "cuCtxPopCurrent_v2", driver.pop_context);
    resolve(library, "cuMemcpyDtoH_v2", driver.device_to_host);
    resolve(library, "cuMemcpyHtoD_v2", driver.host_to_device);
    dlclose(library);  // only drops the reference taken here
    return driver;
}

// Makes the pointer's context current on this thread for one copy.
template <typename Copy>
bool in_context(uint64_t device, Copy copy) {
    Driver cuda = driver();
    if (!cuda.usable()) return false;
    Context context = nullptr;
    if (cuda.pointer_attribute(&context, kAttributeContext, device) != 0) return false;
    // Memory from the stream-ordered allocator belongs to no context; the caller's current one serves.
    if (context && cuda.push_context(context) != 0) return false;
    bool done = copy(cuda) == 0;
    if (context) cuda.pop_context(&context);
    return done;
}

}  // namespace

PointerKind classify_pointer(const void* pointer) {
    if (!pointer) return PointerKind::kInvalid;
    Driver cuda = driver();
    if (!cuda.pointer_attribute) return PointerKind::kHost;
    auto address = reinterpret_cast<uint64_t>(pointer);
    unsigned managed = 0;
    if (cuda.pointer_attribute(&managed, kAttributeIsManaged, address) == 0 && managed) {
        return PointerKind::kManaged;
    }
    unsigned type = 0;
    if (cuda.pointer_attribute(&type, kAttributeMemoryType, address) == 0 &&
        type == kMemoryTypeDevice) {
        return PointerKind::kDevice;
    }
    return PointerKind::kHost;
}

bool copy_from_device(void* host, uint64_t device, size_t size) {
    return in_context(device,
                      [&](const Driver& cuda) { return cuda.device_to_host(host, device, size); });
}

bool copy_to_device(uint64_t device, const void* host, size_t size) {
    return in_context(device,
                      [&](const Driver& cuda) { return cuda.host_to_device(device, host, size); });
}

}  // namespace softfabric
