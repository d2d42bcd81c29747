// dropin client SERVER_COMMAND...: uses cuObjClient as other projects do, behind a C interface with a table
// of operations, with the class's callbacks as well as explicit tokens, and checks every byte against a
// dropin server that it starts. Runs with either client library.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "cuobjclient.h"

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

// What a program in another language binds to.
extern "C" {
struct object_store_ops {
    void* (*open)(FILE* to_server, FILE* from_server);
    int (*add_memory)(void* store, void* start, size_t size);
    int (*remove_memory)(void* store, void* start);
    long (*put)(void* store, void* start, size_t size);
    long (*get)(void* store, void* start, size_t size);
    long (*put_part)(void* store, void* start, size_t offset, size_t size);
    long (*get_part)(void* store, void* start, size_t offset, size_t size);
    void (*close)(void* store);
};
}

namespace {

struct Store {
    FILE* to_server;
    FILE* from_server;
    cuObjClient* client;
    // The vendor's object is larger than public headers say.
    alignas(16) unsigned char room[256];

    // The control path, where an S3 request would go out.
    long ask(char operation, size_t size, uint64_t start, const char* token) {
        std::fprintf(to_server, "%c %zu %llu %s\n", operation, size, static_cast<unsigned long long>(start), token);
        std::fflush(to_server);
        long moved = -EPIPE;
        return std::fscanf(from_server, "%ld", &moved) == 1 ? moved : -EPIPE;
    }

    long with_token(char letter, cuObjOpType_t operation, void* start, size_t offset, size_t size) {
        char* token = nullptr;
        if (client->cuMemObjGetRDMAToken(start, size, offset, operation, &token) != CU_OBJ_SUCCESS) return -EINVAL;
        long moved = ask(letter, size, reinterpret_cast<uint64_t>(start) + offset, token);
        EXPECT(client->cuMemObjPutRDMAToken(token) == CU_OBJ_SUCCESS);
        return moved;
    }
};

ssize_t on_get(const void* handle, char* start, size_t size, loff_t, const cufileRDMAInfo_t* info) {
    auto* store = static_cast<Store*>(cuObjClient::getCtx(handle));
    return store->ask('G', size, reinterpret_cast<uint64_t>(start), info->desc_str);
}

ssize_t on_put(const void* handle, const char* start, size_t size, loff_t, const cufileRDMAInfo_t* info) {
    auto* store = static_cast<Store*>(cuObjClient::getCtx(handle));
    return store->ask('P', size, reinterpret_cast<uint64_t>(start), info->desc_str);
}

CUObjOps_t callbacks = {on_get, on_put};

Store* of(void* store) { return static_cast<Store*>(store); }

const object_store_ops ops = {
    [](FILE* to_server, FILE* from_server) -> void* {
        auto* store = new Store{to_server, from_server, nullptr, {}};
        store->client = new (store->room) cuObjClient(callbacks, CUOBJ_PROTO_RDMA_DC_V1);
        return store;
    },
    [](void* store, void* start, size_t size) -> int { return of(store)->client->cuMemObjGetDescriptor(start, size); },
    [](void* store, void* start) -> int { return of(store)->client->cuMemObjPutDescriptor(start); },
    [](void* store, void* start, size_t size) -> long { return of(store)->client->cuObjPut(store, start, size); },
    [](void* store, void* start, size_t size) -> long { return of(store)->client->cuObjGet(store, start, size); },
    [](void* store, void* start, size_t offset, size_t size) -> long {
        return of(store)->with_token('p', CUOBJ_PUT, start, offset, size);
    },
    [](void* store, void* start, size_t offset, size_t size) -> long {
        return of(store)->with_token('g', CUOBJ_GET, start, offset, size);
    },
    [](void* store) {
        of(store)->client->~cuObjClient();
        delete of(store);
    },
};

unsigned char pattern(size_t i) { return static_cast<unsigned char>(i * 7 + i / 251); }

}  // namespace

int main(int argc, char** argv) {
    EXPECT(argc > 1);
    int up[2], down[2];
    EXPECT(::pipe(up) == 0 && ::pipe(down) == 0);
    pid_t server = ::fork();
    if (server == 0) {
        ::dup2(down[0], 0);
        ::dup2(up[1], 1);
        for (int fd : {up[0], up[1], down[0], down[1]}) ::close(fd);
        ::execvp(argv[1], argv + 1);
        ::_exit(127);
    }
    ::close(up[1]);
    ::close(down[0]);
    FILE* to_server = ::fdopen(down[1], "w");
    FILE* from_server = ::fdopen(up[0], "r");

    void* store = ops.open(to_server, from_server);
    constexpr size_t kSize = (7 << 20) + 3;
    auto* memory = static_cast<unsigned char*>(std::aligned_alloc(4096, 8 << 20));
    auto fill = [&] { for (size_t i = 0; i < kSize; i++) memory[i] = pattern(i); };
    auto differs_at = [&](size_t from, size_t to) {
        for (size_t i = from; i < to; i++) {
            if (memory[i] != pattern(i)) return i;
        }
        return kSize;
    };
    EXPECT(ops.add_memory(store, memory, kSize) == 0);

    // By callbacks, the whole object.
    fill();
    EXPECT(ops.put(store, memory, kSize) == static_cast<long>(kSize));
    std::memset(memory, 0xee, kSize);
    EXPECT(ops.get(store, memory, kSize) == static_cast<long>(kSize));
    EXPECT(differs_at(0, kSize) == kSize);

    // By tokens, a part of the memory and nothing beside it.
    EXPECT(ops.put_part(store, memory, 4096, 100001) == 100001);
    std::memset(memory, 0xee, kSize);
    EXPECT(ops.get_part(store, memory, 4096, 100001) == 100001);
    EXPECT(differs_at(4096, 4096 + 100001) == kSize);
    EXPECT(memory[4095] == 0xee && memory[4096 + 100001] == 0xee);

    EXPECT(ops.put_part(store, memory, kSize - 10, 11) == -EINVAL);
    EXPECT(ops.remove_memory(store, memory) == 0);
    EXPECT(ops.put_part(store, memory, 0, 10) == -EINVAL);

    std::fclose(to_server);
    long telemetry = 0;
    EXPECT(std::fscanf(from_server, "%ld", &telemetry) == 1 && telemetry > 0);
    int status = 0;
    EXPECT(::waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::fclose(from_server);
    ops.close(store);
    std::free(memory);
    std::puts("dropin: passed");
    return 0;
}
