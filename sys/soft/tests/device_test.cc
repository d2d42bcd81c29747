// CUDA device memory, with a stand-in for the driver that is loaded at run time (fake_cuda.cc).
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "check.h"

using namespace testing;

namespace {

void* (*allocate)(size_t, int);
char* (*contents)(void*);
void (*refuse)(int);
size_t (*copies)();

struct Context {
    cuObjServer* server;
    rdma_buffer* buffer;
    uint16_t channel;
    bool get;
};

// The control path: what a gateway would do with the token.
ssize_t serve(const void* handle, size_t size, const cufileRDMAInfo_t* info) {
    auto* context = static_cast<Context*>(cuObjClient::getCtx(handle));
    uint64_t start = std::strtoull(info->desc_str, nullptr, 16);
    return context->get ? context->server->handleGetObject("k", context->buffer, start, size,
                                                           info->desc_str, context->channel)
                        : context->server->handlePutObject("k", context->buffer, start, size,
                                                           info->desc_str, context->channel);
}
ssize_t serve_get(const void* h, char*, size_t s, loff_t, const cufileRDMAInfo_t* i) { return serve(h, s, i); }
ssize_t serve_put(const void* h, const char*, size_t s, loff_t, const cufileRDMAInfo_t* i) {
    return serve(h, s, i);
}

}  // namespace

int main() {
    // Before the driver is loaded every pointer counts as host memory.
    char on_stack = 0;
    CHECK_EQ(cuObjClient::getMemoryType(&on_stack), CUOBJ_MEMORY_SYSTEM);
    void* driver = dlopen("./libcuda.so.1", RTLD_NOW);
    if (!driver) std::fprintf(stderr, "%s\n", dlerror());
    CHECK(driver);
    allocate = reinterpret_cast<void* (*)(size_t, int)>(dlsym(driver, "fake_cuda_allocate"));
    contents = reinterpret_cast<char* (*)(void*)>(dlsym(driver, "fake_cuda_contents"));
    refuse = reinterpret_cast<void (*)(int)>(dlsym(driver, "fake_cuda_refuse"));
    copies = reinterpret_cast<size_t (*)()>(dlsym(driver, "fake_cuda_copies"));
    CHECK(allocate && contents && refuse && copies);

    constexpr size_t kSize = (9u << 20) + 5;  // several staging chunks and a rest
    void* device = allocate(kSize, 0);
    void* managed = allocate(kSize, 1);
    CHECK(device && managed);
    CHECK_EQ(cuObjClient::getMemoryType(device), CUOBJ_MEMORY_CUDA_DEVICE);
    CHECK_EQ(cuObjClient::getMemoryType(managed), CUOBJ_MEMORY_CUDA_MANAGED);
    CHECK_EQ(cuObjClient::getMemoryType(&on_stack), CUOBJ_MEMORY_SYSTEM);

    CUObjOps_t ops{serve_get, serve_put};
    cuObjClient client(ops);
    CHECK_EQ(client.cuMemObjGetDescriptor(managed, kSize), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetDescriptor(device, kSize), CU_OBJ_SUCCESS);
    std::string token = token_for(client, device, kSize);
    uint64_t start = address_of(device);

    for (const char* path : {"auto", "vm", "tcp"}) {
        setenv("CUOBJ_SOFT_PATH", path, 1);
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        std::vector<char> local(kSize);
        Context context{&server, server.registerBuffer(local.data(), kSize), server.allocateChannelId(), false};

        fill(contents(device), kSize, 1);
        CHECK_EQ(server.handlePutObject("k", context.buffer, start, kSize, token, context.channel), kSize);
        CHECK(holds(local.data(), kSize, 1));
        fill(local.data(), kSize, 2);
        CHECK_EQ(server.handleGetObject("k", context.buffer, start + 3, kSize - 3, token, context.channel, 3),
                 kSize - 3);
        CHECK(holds(contents(device), 3, 1) && holds(contents(device) + 3, kSize - 3, 2, 3));

        // The driver fails in the middle: both sides stay in step.
        ibv_wc_status status = IBV_WC_SUCCESS;
        refuse(1);
        CHECK_EQ(server.handlePutObject("k", context.buffer, start, kSize, token, context.channel, 0, &status),
                 -EIO);
        CHECK_EQ(status, IBV_WC_REM_OP_ERR);
        CHECK_EQ(server.handleGetObject("k", context.buffer, start, kSize, token, context.channel, 0, &status),
                 -EIO);
        CHECK_EQ(status, IBV_WC_REM_OP_ERR);
        refuse(0);
        CHECK_EQ(server.handlePutObject("k", context.buffer, start, kSize, token, context.channel), kSize);
        CHECK(holds(local.data(), 3, 1) && holds(local.data() + 3, kSize - 3, 2, 3));

        // Through the callbacks, registered and not; unregistered memory goes through the host's.
        for (void* memory : {device, managed}) {
            fill(contents(memory), kSize, 3);
            context.get = false;
            CHECK_EQ(client.cuObjPut(&context, memory, kSize), kSize);
            CHECK(holds(local.data(), kSize, 3));
            fill(local.data(), kSize, 4);
            context.get = true;
            CHECK_EQ(client.cuObjGet(&context, memory, kSize), kSize);
            CHECK(holds(contents(memory), kSize, 4));
        }
    }
    CHECK(copies() > 0);
    CHECK_EQ(client.cuMemObjPutDescriptor(device), CU_OBJ_SUCCESS);
    std::puts("device: passed");
}
