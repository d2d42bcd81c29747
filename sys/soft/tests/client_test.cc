// The client's own rules: registrations, tokens, callbacks, configuration, fork.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "check.h"
#include "fabric/address.h"
#include "sdk/client_config.h"
#include "sdk/json.h"
#include "sdk/token.h"

using namespace testing;

namespace {

struct Seen {
    int calls = 0;
    std::string token;
    size_t size = 0;
    loff_t offset = -1;
    const void* ptr = nullptr;
    int version = 0, desc_len = 0;
    ssize_t answer = 0;
    bool throws = false;
};

ssize_t note(const void* handle, const void* ptr, size_t size, loff_t offset,
             const cufileRDMAInfo_t* info) {
    auto* seen = static_cast<Seen*>(cuObjClient::getCtx(handle));
    seen->calls++;
    seen->token = info->desc_str;
    seen->version = info->version;
    seen->desc_len = info->desc_len;
    seen->ptr = ptr;
    seen->size = size;
    seen->offset = offset;
    if (seen->throws) throw std::runtime_error("the control path failed");
    return seen->answer;
}

ssize_t note_get(const void* h, char* p, size_t s, loff_t o, const cufileRDMAInfo_t* i) {
    return note(h, p, s, o, i);
}
ssize_t note_put(const void* h, const char* p, size_t s, loff_t o, const cufileRDMAInfo_t* i) {
    return note(h, p, s, o, i);
}

void registrations() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    CHECK(client.isConnected());
    std::vector<char> memory(10000);
    char* start = memory.data();
    CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(start), -1);
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 10000), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 10000), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 5), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(start), 10000);
    CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(start + 1), -1);
    CHECK_EQ(client.cuMemObjGetDescriptor(nullptr, 5), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetDescriptor(start + 1, 0), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetDescriptor(start + 1, CUOBJ_MAX_MEMORY_REG_SIZE + 1), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetDescriptor(reinterpret_cast<void*>(UINT64_MAX - 10), 100), CU_OBJ_FAIL);

    // The largest registration; its pages need not exist to be registered.
    void* huge = mmap(nullptr, CUOBJ_MAX_MEMORY_REG_SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (huge != MAP_FAILED) {
        CHECK_EQ(client.cuMemObjGetDescriptor(huge, CUOBJ_MAX_MEMORY_REG_SIZE), CU_OBJ_SUCCESS);
        std::string token = token_for(client, huge, CUOBJ_MAX_MEMORY_REG_SIZE);
        CHECK(token.substr(17, 8) == "ffff0000");
        CHECK_EQ(client.cuMemObjPutDescriptor(huge), CU_OBJ_SUCCESS);
        munmap(huge, CUOBJ_MAX_MEMORY_REG_SIZE);
    }

    // Shared by all clients of the process, whichever comes and goes.
    {
        cuObjClient second(ops);
        CHECK_EQ(second.cuMemObjGetMaxRequestCallbackSize(start), 10000);
        CHECK_EQ(second.cuMemObjGetDescriptor(start, 10000), CU_OBJ_FAIL);
    }
    CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(start), 10000);
    CHECK_EQ(client.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(start), -1);

    CHECK_EQ(cuObjClient::getMemoryType(start), CUOBJ_MEMORY_SYSTEM);
    CHECK_EQ(cuObjClient::getMemoryType(&client), CUOBJ_MEMORY_SYSTEM);
    CHECK_EQ(cuObjClient::getMemoryType(nullptr), CUOBJ_MEMORY_INVALID);
}

void tokens() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> memory(10000);
    char* start = memory.data();
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 10000), CU_OBJ_SUCCESS);
    char* first = nullptr;
    char* second = nullptr;
    CHECK_EQ(client.cuMemObjGetRDMAToken(start, 4096, 0, CUOBJ_PUT, &first), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjGetRDMAToken(start, 1000, 77, CUOBJ_GET, &second), CU_OBJ_SUCCESS);
    CHECK_EQ(std::strlen(first), 81);
    CHECK_EQ(std::strlen(second), 81);
    CHECK(std::string(first).find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos);
    auto a = cuobj_soft::Token::parse(first);
    auto b = cuobj_soft::Token::parse(second);
    CHECK(a && b);
    CHECK(a->text() == first && b->text() == second);
    CHECK_EQ(a->address, address_of(start));
    CHECK_EQ(a->size, 4096);
    CHECK_EQ(b->address, address_of(start) + 77);
    CHECK_EQ(b->size, 1000);
    CHECK(a->has_gid && a->lid != 0 && a->dct != 0 && a->rkey != 0);
    CHECK(a->rkey == b->rkey && a->dct == b->dct && a->lid == b->lid);
    CHECK(softfabric::Address{a->gid} == *softfabric::Address::parse("127.0.0.1"));

    char* none = nullptr;
    auto refused = [&](void* ptr, size_t size, size_t offset) {
        CHECK_EQ(client.cuMemObjGetRDMAToken(ptr, size, offset, CUOBJ_PUT, &none), CU_OBJ_FAIL);
        CHECK(none == nullptr);
    };
    refused(start + 1, 10, 0);
    refused(start, 0, 0);
    refused(start, 10001, 0);
    refused(start, 9000, 1001);
    refused(start, 1, 10000);
    refused(start, 1, SIZE_MAX);
    refused(nullptr, 1, 0);
    CHECK_EQ(client.cuMemObjGetRDMAToken(start, 1, 0, CUOBJ_INVALID, &none), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjGetRDMAToken(start, 1, 0, CUOBJ_PUT, nullptr), CU_OBJ_FAIL);

    CHECK_EQ(client.cuMemObjPutRDMAToken(first), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjPutRDMAToken(nullptr), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjPutRDMAToken(start), CU_OBJ_FAIL);
    CHECK_EQ(client.cuMemObjPutRDMAToken(second), CU_OBJ_SUCCESS);

    // A new registration of the same memory has another key.
    CHECK_EQ(client.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 10000), CU_OBJ_SUCCESS);
    CHECK(cuobj_soft::Token::parse(token_for(client, start, 1))->rkey != a->rkey);
    CHECK_EQ(client.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
}

void callbacks() {
    CUObjOps_t ops{note_get, note_put};
    cuObjClient client(ops);
    std::vector<char> memory(1 << 20);
    char* start = memory.data();
    Seen seen;
    CHECK_EQ(client.cuObjPut(&seen, start, 100), -1);
    CHECK_EQ(seen.calls, 0);
    CHECK_EQ(client.cuMemObjGetDescriptor(start, 1 << 20), CU_OBJ_SUCCESS);
    seen.answer = 1 << 20;
    CHECK_EQ(client.cuObjPut(&seen, start, 1 << 20, 5, 7), 1 << 20);
    CHECK_EQ(seen.calls, 1);
    CHECK_EQ(seen.size, 1 << 20);
    CHECK_EQ(seen.offset, 5);
    CHECK_EQ(seen.version, 2);
    CHECK_EQ(seen.desc_len, 82);
    CHECK_EQ(seen.token.size(), 81);
    CHECK(seen.ptr == start);
    // The offset into the buffer is ignored, as by the vendor's library.
    CHECK_EQ(cuobj_soft::Token::parse(seen.token)->address, address_of(start));
    CHECK_EQ(cuobj_soft::Token::parse(seen.token)->size, 1 << 20);
    seen.answer = -EPERM;
    CHECK_EQ(client.cuObjGet(&seen, start, 10), -EPERM);
    CHECK_EQ(seen.calls, 2);
    CHECK_EQ(client.cuObjGet(&seen, start, (1 << 20) + 1), -1);
    CHECK_EQ(client.cuObjGet(&seen, start, 0), -1);
    CHECK_EQ(client.cuObjGet(&seen, nullptr, 10), -1);
    CHECK_EQ(client.cuObjGet(&seen, start + 1, 10), -1);
    CHECK_EQ(seen.calls, 2);
    seen.throws = true;
    bool thrown = false;
    try {
        client.cuObjGet(&seen, start, 10);
    } catch (const std::runtime_error&) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK_EQ(client.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
    CHECK(cuObjClient::getCtx(nullptr) == nullptr);
    CUObjOps_t empty{nullptr, nullptr};
    cuObjClient without(empty);
    CHECK_EQ(without.cuMemObjGetDescriptor(start, 100), CU_OBJ_SUCCESS);
    CHECK_EQ(without.cuObjGet(nullptr, start, 10), -1);
    CHECK_EQ(without.cuObjPut(nullptr, start, 10), -1);
    CHECK_EQ(without.cuMemObjPutDescriptor(start), CU_OBJ_SUCCESS);
}

// A child of fork() has neither the parent's registrations nor its connections, and its own work.
[[maybe_unused]] void after_fork() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> memory(4096);
    fill(memory.data(), 4096, 1);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
    std::string token = token_for(client, memory.data(), 4096);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    std::vector<char> local(4096);
    rdma_buffer* buffer = server.registerBuffer(local.data(), 4096);
    uint16_t channel = server.allocateChannelId();
    uint64_t start = address_of(memory.data());
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);

    ClientProcess child([&](ClientProcess::Say say, ClientProcess::Listen listen) {
        CHECK_EQ(client.cuMemObjGetMaxRequestCallbackSize(memory.data()), -1);
        CHECK_EQ(server.handlePutObject("k", buffer, start, 16, token, channel), -ENODEV);
        cuObjAsyncEvent_t event;
        CHECK_EQ(server.poll(&event, 1, channel), -ENODEV);
        fill(memory.data(), 4096, 9);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
        say(token_for(client, memory.data(), 4096));
        listen();
        return 0;
    });
    std::string of_child = child.line();
    CHECK_EQ(of_child.size(), 81);
    CHECK(of_child.substr(26) != token.substr(26));
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, of_child, channel), 4096);
    CHECK(holds(local.data(), 4096, 9));
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
    CHECK(holds(local.data(), 4096, 1));
    child.command('q');
    CHECK_EQ(child.finish(), 0);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
}

void json() {
    std::string error;
    auto values = cuobj_soft::read_json(R"({
        // comment
        "logging": { /* another */ "level": "TRACE", },
        "properties": {
            "rdma_dev_addr_list": ["<client-nic-ip>", "127.0.0.1"],
            "rdma_dc_key": "0x11223344", "allow_compat_mode": true, "n": -1.5e3,
            "a\"b": [], "nested": {"deep": [1, 2]}
        }
    })", &error);
    CHECK(values);
    CHECK_EQ((*values)["properties.rdma_dev_addr_list"].size(), 2);
    CHECK((*values)["properties.rdma_dev_addr_list"][1] == "127.0.0.1");
    CHECK((*values)["properties.rdma_dc_key"][0] == "0x11223344");
    CHECK((*values)["properties.allow_compat_mode"][0] == "true");
    CHECK((*values)["properties.n"][0] == "-1.5e3");
    CHECK((*values)["properties.nested.deep"][1] == "2");
    CHECK((*values)["logging.level"][0] == "TRACE");
    for (const char* bad : {"", "{", "{\"a\":}", "{\"a\" 1}", "[1,2", "{\"a\":\"x", "{} x", "\"a\nb\""}) {
        CHECK(!cuobj_soft::read_json(bad, &error));
        CHECK(error.find("line") != std::string::npos);
    }
    CHECK(!cuobj_soft::read_json(std::string(1000, '['), &error));
}

void configuration() {
    char path[] = "/tmp/cuobj-soft-test-XXXXXX";
    CHECK(::mkstemp(path) >= 0);
    auto write = [&](const std::string& text) { std::ofstream(path) << text; };
    auto load = [](cuobj_soft::ClientConfig* config) {
        std::string error;
        *config = {};
        return config->load(&error);
    };
    cuobj_soft::ClientConfig config;
    unsetenv("CUOBJ_SOFT_ADDR");
    unsetenv("CUOBJ_RDMA_DC_KEY");
    unsetenv("CUOBJ_ENV_PATH_JSON");
    setenv("CUFILE_ENV_PATH_JSON", path, 1);
    // 203.0.113.0/24 is reserved for documentation, so no host has it.
    write(R"({"properties": {"rdma_dev_addr_list": ["203.0.113.77", "127.0.0.2", "127.0.0.1"],
              "rdma_dc_key": "0x1234"}})");
    CHECK(load(&config));
    CHECK(config.address.text() == "127.0.0.2");
    CHECK_EQ(config.dc_key, 0x1234);
    CHECK(config.notes.empty());
    setenv("CUOBJ_RDMA_DC_KEY", "99", 1);
    CHECK(load(&config) && config.dc_key == 99);
    unsetenv("CUOBJ_RDMA_DC_KEY");
    write(R"({"properties": {"rdma_dev_addr_list": ["203.0.113.77"], "rdma_dc_key": "none"}})");
    CHECK(load(&config));
    CHECK(config.address.text() == "127.0.0.1");
    CHECK_EQ(config.dc_key, 0xffeeddcc);
    CHECK_EQ(config.notes.size(), 2);
    write("not json");
    CHECK(load(&config));
    CHECK_EQ(config.notes.size(), 1);
    setenv("CUOBJ_ENV_PATH_JSON", "/nonexistent", 1);
    CHECK(load(&config));
    CHECK(config.notes.size() == 1 && config.notes[0].find("/nonexistent") != std::string::npos);
    unsetenv("CUOBJ_ENV_PATH_JSON");
    setenv("CUOBJ_SOFT_ADDR", "127.0.0.3:7171", 1);
    CHECK(load(&config) && config.address.text() == "127.0.0.3" && config.port == 7171);
    for (const char* bad : {"203.0.113.77", "host", "127.0.0.1:", "127.0.0.1:99999", "[::1", "[::1]x", "0.0.0.0"}) {
        setenv("CUOBJ_SOFT_ADDR", bad, 1);
        CHECK(!load(&config));
    }
    unsetenv("CUOBJ_SOFT_ADDR");
    unsetenv("CUFILE_ENV_PATH_JSON");
    unlink(path);
}

// An address that is not the host's makes registration fail, and only that.
void unusable_address() {
    ClientProcess child([](ClientProcess::Say, ClientProcess::Listen) {
        setenv("CUOBJ_SOFT_ADDR", "203.0.113.77", 1);
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        char memory[16];
        CHECK(client.isConnected());
        CHECK_EQ(client.cuMemObjGetDescriptor(memory, 16), CU_OBJ_FAIL);
        setenv("CUOBJ_SOFT_ADDR", "127.0.0.1", 1);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory, 16), CU_OBJ_SUCCESS);
        CHECK_EQ(client.cuMemObjPutDescriptor(memory), CU_OBJ_SUCCESS);
        return 0;
    });
    CHECK_EQ(child.finish(), 0);
}

}  // namespace

int main() {
    unusable_address();
    json();
    configuration();
    registrations();
    tokens();
    callbacks();
#ifdef __SANITIZE_THREAD__
    std::puts("client: fork not run, the thread sanitizer does not follow one among threads");
#else
    after_fork();
#endif
    std::puts("client: passed");
}
