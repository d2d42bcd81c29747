// A stand-in for the CUDA driver, for tests on machines without one: the few functions that the
// software SDK asks of it, with the meaning that the CUDA driver API's documentation gives them.
//
// "Device" memory lies at addresses that the process cannot touch, as on a GPU without host access;
// its contents are kept elsewhere. A copy needs the context that the memory belongs to.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

struct Allocation {
    std::vector<char> contents;
    bool managed = false;
};

std::mutex mutex;
std::map<uint64_t, Allocation> allocations;
int context_object;
thread_local std::vector<void*> contexts;
size_t copies;
bool refuses;

Allocation* find(uint64_t address, uint64_t* offset) {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return nullptr;
    auto& entry = *--after;
    *offset = address - entry.first;
    return *offset < entry.second.contents.size() ? &entry.second : nullptr;
}

}  // namespace

extern "C" {

int cuPointerGetAttribute(void* out, int attribute, uint64_t pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    uint64_t offset;
    Allocation* found = find(pointer, &offset);
    if (!found) return 1;  // CUDA_ERROR_INVALID_VALUE
    switch (attribute) {
        case 1: *static_cast<void**>(out) = &context_object; return 0;
        case 2: *static_cast<unsigned*>(out) = 2; return 0;
        case 8: *static_cast<unsigned*>(out) = found->managed; return 0;
        default: return 1;
    }
}

int cuCtxPushCurrent_v2(void* context) {
    contexts.push_back(context);
    return 0;
}

int cuCtxPopCurrent_v2(void** context) {
    if (contexts.empty()) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    *context = contexts.back();
    contexts.pop_back();
    return 0;
}

static int copy(uint64_t device, void* host, size_t size, bool to_device) {
    std::lock_guard<std::mutex> lock(mutex);
    if (contexts.empty() || contexts.back() != &context_object) return 201;
    uint64_t offset;
    Allocation* found = find(device, &offset);
    if (refuses || !found || size > found->contents.size() - offset) return 1;
    copies++;
    char* at = found->contents.data() + offset;
    if (to_device) std::memcpy(at, host, size);
    else std::memcpy(host, at, size);
    return 0;
}

int cuMemcpyDtoH_v2(void* host, uint64_t device, size_t size) { return copy(device, host, size, false); }

int cuMemcpyHtoD_v2(uint64_t device, const void* host, size_t size) {
    return copy(device, const_cast<void*>(host), size, true);
}

// For the test itself.
void* fake_cuda_allocate(size_t size, int managed) {
    void* address = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    std::lock_guard<std::mutex> lock(mutex);
    Allocation& made = allocations[reinterpret_cast<uint64_t>(address)];
    made.contents.resize(size);
    made.managed = managed != 0;
    return address;
}

char* fake_cuda_contents(void* address) {
    std::lock_guard<std::mutex> lock(mutex);
    return allocations[reinterpret_cast<uint64_t>(address)].contents.data();
}

void fake_cuda_refuse(int on) { refuses = on != 0; }

size_t fake_cuda_copies() { return copies; }
}
