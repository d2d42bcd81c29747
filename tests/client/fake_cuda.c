// A stand-in for the CUDA driver library with one device, for tests on machines without a GPU.
//
// Device memory lies where the processor cannot touch it: each allocation is one file in memory,
// mapped without any rights at the "device address" and with rights elsewhere. So code that takes a
// device pointer for a host pointer faults, as it would on a real device. Prototypes and numbers are
// those of NVIDIA's "CUDA Driver API" manual.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

typedef struct {
    uint64_t device;
    unsigned char* host;
    size_t size;
} Allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation allocations[4096];
static __thread void* current;
static int context;

static int devices(void) {
    const char* text = getenv("FAKE_CUDA_DEVICES");
    return text ? atoi(text) : 1;
}

static unsigned char* host(uint64_t device, size_t size) {
    unsigned char* found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++) {
        Allocation a = allocations[i];
        if (a.host && device >= a.device && device + size <= a.device + a.size) found = a.host + (device - a.device);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int cuInit(unsigned flags) { (void)flags; return devices() > 0 ? SUCCESS : NO_DEVICE; }
int cuDeviceGetCount(int* count) { *count = devices(); return SUCCESS; }
int cuDeviceGet(int* device, int ordinal) {
    if (ordinal < 0 || ordinal >= devices()) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}
int cuDeviceGetName(char* name, int length, int device) {
    (void)device;
    snprintf(name, (size_t)length, "Made-up GPU");
    return SUCCESS;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    (void)attribute, (void)device;
    *value = 0;
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void** out, int device) { (void)device; *out = &context; return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
int cuCtxSetCurrent(void* to) { current = to; return SUCCESS; }
int cuCtxGetCurrent(void** out) { *out = current; return SUCCESS; }
int cuCtxPushCurrent_v2(void* to) { current = to; return SUCCESS; }
int cuCtxPopCurrent_v2(void** out) { *out = current; current = NULL; return SUCCESS; }
int cuCtxSynchronize(void) { return current ? SUCCESS : INVALID_CONTEXT; }
int cuGetErrorName(int error, const char** text) {
    *text = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                                   : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
int cuGetErrorString(int error, const char** text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : "invalid";
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t* out, size_t size) {
    if (!current) return INVALID_CONTEXT;
    const char* limit = getenv("FAKE_CUDA_MEMORY");
    if (size == 0) return INVALID_VALUE;
    if (limit && size > strtoull(limit, NULL, 0)) return OUT_OF_MEMORY;
    int file = memfd_create("fake_cuda", 0);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) return OUT_OF_MEMORY;
    void* device = mmap(NULL, size, PROT_NONE, MAP_SHARED, file, 0);
    void* shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (device == MAP_FAILED || shadow == MAP_FAILED) return OUT_OF_MEMORY;
    // What a fresh allocation holds is undefined; something conspicuous shows who relies on it.
    memset(shadow, 0xee, size);
    pthread_mutex_lock(&lock);
    int result = OUT_OF_MEMORY;
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations && result; i++) {
        if (allocations[i].host) continue;
        allocations[i] = (Allocation){(uint64_t)(uintptr_t)device, shadow, size};
        result = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    *out = (uint64_t)(uintptr_t)device;
    return result;
}
int cuMemFree_v2(uint64_t device) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof allocations / sizeof *allocations; i++) {
        if (!allocations[i].host || allocations[i].device != device) continue;
        munmap(allocations[i].host, allocations[i].size);
        munmap((void*)(uintptr_t)device, allocations[i].size);
        allocations[i].host = NULL;
        result = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
    unsigned char* shadow = host(to, size);
    if (!current) return INVALID_CONTEXT;
    if (!shadow) return INVALID_VALUE;
    memcpy(shadow, from, size);
    return SUCCESS;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
    unsigned char* shadow = host(from, size);
    if (!current) return INVALID_CONTEXT;
    if (!shadow) return INVALID_VALUE;
    memcpy(to, shadow, size);
    return SUCCESS;
}
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t size) {
    unsigned char* shadow = host(to, size);
    if (!current) return INVALID_CONTEXT;
    if (!shadow) return INVALID_VALUE;
    memset(shadow, value, size);
    return SUCCESS;
}
int cuPointerSetAttribute(const void* value, int attribute, uint64_t device) {
    (void)value, (void)attribute;
    return host(device, 1) ? SUCCESS : INVALID_VALUE;
}
int cuPointerGetAttribute(void* value, int attribute, uint64_t device) {
    enum { CONTEXT = 1, MEMORY_TYPE = 2, IS_MANAGED = 8 };
    enum { TYPE_DEVICE = 2 };
    if (!host(device, 1)) return INVALID_VALUE;
    switch (attribute) {
        case CONTEXT: *(void**)value = &context; return SUCCESS;
        case MEMORY_TYPE: *(unsigned*)value = TYPE_DEVICE; return SUCCESS;
        case IS_MANAGED: *(unsigned*)value = 0; return SUCCESS;
        default: return INVALID_VALUE;
    }
}
