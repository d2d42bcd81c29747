// interop client BYTES: registers patterned memory, prints a PUT and a GET token, and for each line on
// stdin checks what a GET has written and restores the pattern. Runs with either client library.
#include <cstring>
#include <new>

#include "check.h"

using namespace testing;

int main(int, char** argv) {
    size_t size = std::strtoull(argv[1], nullptr, 0);
    CUObjOps_t ops = no_callbacks();
    // The vendor's object is larger than the header says.
    alignas(16) static char room[256];
    auto* client = new (room) cuObjClient(ops);
    auto* memory = static_cast<char*>(std::aligned_alloc(4096, size));
    fill(memory, size, 1);
    CHECK_EQ(client->cuMemObjGetDescriptor(memory, size), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjGetDescriptor(memory, size), CU_OBJ_FAIL);
    CHECK_EQ(client->cuMemObjGetMaxRequestCallbackSize(memory), size);
    CHECK_EQ(client->cuMemObjGetMaxRequestCallbackSize(memory + 1), -1);
    char* none = nullptr;
    CHECK_EQ(client->cuMemObjGetRDMAToken(memory + 1, 10, 0, CUOBJ_PUT, &none), CU_OBJ_FAIL);
    CHECK_EQ(client->cuMemObjGetRDMAToken(memory, 0, 0, CUOBJ_PUT, &none), CU_OBJ_FAIL);
    CHECK_EQ(client->cuMemObjGetRDMAToken(memory, size, 1, CUOBJ_PUT, &none), CU_OBJ_FAIL);
    CHECK_EQ(cuObjClient::getMemoryType(memory), CUOBJ_MEMORY_SYSTEM);
    char *put = nullptr, *get = nullptr;
    CHECK_EQ(client->cuMemObjGetRDMAToken(memory, size, 0, CUOBJ_PUT, &put), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjGetRDMAToken(memory, size - 8, 8, CUOBJ_GET, &get), CU_OBJ_SUCCESS);
    CHECK_EQ(std::strlen(put), 81);
    CHECK_EQ(std::strtoull(get, nullptr, 16), address_of(memory) + 8);
    std::printf("%s\n%s\n", put, get);
    std::fflush(stdout);
    char line[16];
    while (std::fgets(line, sizeof line, stdin) && line[0] == 'g') {
        bool good = holds(memory, 8, 1) && holds(memory + 8, size - 8, 2);
        fill(memory, size, 1);
        std::printf("%s\n", good ? "good" : "bad");
        std::fflush(stdout);
    }
    CHECK_EQ(client->cuMemObjPutRDMAToken(put), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjPutRDMAToken(get), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjPutDescriptor(memory), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjPutDescriptor(memory), CU_OBJ_SUCCESS);
    CHECK_EQ(client->cuMemObjGetMaxRequestCallbackSize(memory), -1);
    std::puts("client done");
    std::fflush(stdout);
    _exit(0);
}
