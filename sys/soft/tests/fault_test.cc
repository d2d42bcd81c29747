// Failures on purpose do what they say, each to the operation it names.
#include <cerrno>
#include <cstring>

#include "check.h"
#include "fabric/fault.h"

using namespace testing;

namespace {

void rules(const std::string& text) {
    std::string error;
    CHECK(softfabric::set_fault_rules(text, &error));
}

void effects(const char* path) {
    setenv("CUOBJ_SOFT_PATH", path, 1);
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    constexpr size_t kSize = 10000;
    std::vector<char> remote(kSize), local(kSize);
    fill(remote.data(), kSize, 1);
    CHECK_EQ(client.cuMemObjGetDescriptor(remote.data(), kSize), CU_OBJ_SUCCESS);
    std::string token = token_for(client, remote.data(), kSize);
    uint64_t start = address_of(remote.data());
    cuObjRDMATunable impatient;
    impatient.setTimeout(1);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, impatient);
    rdma_buffer* buffer = server.registerBuffer(local.data(), kSize);
    uint16_t channel = server.allocateChannelId();
    ibv_wc_status status = IBV_WC_SUCCESS;
    auto put = [&] {
        std::memset(local.data(), 0, kSize);
        return server.handlePutObject("k", buffer, start, kSize, token, channel, 0, &status);
    };
    auto get = [&] { return server.handleGetObject("k", buffer, start, kSize, token, channel, 0, &status); };

    rules("status:n=2,code=10");
    CHECK_EQ(put(), kSize);
    CHECK_EQ(put(), -EIO);
    CHECK_EQ(status, IBV_WC_REM_ACCESS_ERR);
    CHECK(all_equal(local.data(), kSize, 0));
    CHECK_EQ(put(), kSize);

    rules("status:every=2,op=write");
    CHECK_EQ(put(), kSize);
    CHECK_EQ(put(), kSize);
    fill(local.data(), kSize, 1);
    CHECK_EQ(get(), kSize);
    CHECK_EQ(get(), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(get(), kSize);
    CHECK_EQ(get(), -EIO);

    rules("submit:n=1,errno=71");
    status = IBV_WC_SUCCESS;
    CHECK_EQ(put(), -71);
    CHECK_EQ(status, IBV_WC_SUCCESS);
    CHECK_EQ(put(), kSize);

    rules("drop:n=1");
    CHECK_EQ(put(), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    CHECK(all_equal(local.data(), kSize, 0));

    rules("short:n=1");
    CHECK_EQ(put(), kSize / 2);
    CHECK(holds(local.data(), kSize / 2, 1) && all_equal(local.data() + kSize / 2, kSize / 2, 0));
    // An asynchronous one has no length to report, so its status says it.
    rules("short:n=1");
    CHECK_EQ(server.handlePutObject("k", buffer, start, kSize, token, channel, 0, nullptr, &local), 0);
    cuObjAsyncEvent_t event{};
    int got;
    while ((got = server.poll(&event, 1, channel)) == 0) usleep(200);
    CHECK_EQ(got, -EIO);
    CHECK(event.async_handle == &local);
    CHECK_EQ(event.status, IBV_WC_LOC_LEN_ERR);

    rules("disconnect:n=1");
    CHECK_EQ(put(), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    CHECK(holds(local.data(), kSize / 2, 1));
    CHECK_EQ(put(), kSize);

    rules("corrupt:n=1,at=77");
    CHECK_EQ(put(), kSize);
    CHECK_EQ(status, IBV_WC_SUCCESS);
    CHECK(holds(local.data(), 77, 1) && holds(local.data() + 78, kSize - 78, 1, 78));
    CHECK_EQ(static_cast<uint8_t>(local[77]), static_cast<uint8_t>(~pattern(77, 1)));
    rules("corrupt:op=write,at=10078");
    fill(local.data(), kSize, 1);
    CHECK_EQ(get(), kSize);
    CHECK(holds(remote.data(), 78, 1) && holds(remote.data() + 79, kSize - 79, 1, 79));
    CHECK(!holds(remote.data() + 78, 1, 1, 78));
    CHECK(holds(local.data(), kSize, 1));

    rules("delay:ms=5;status:n=1,code=21");
    CHECK_EQ(put(), -EIO);
    CHECK_EQ(status, IBV_WC_GENERAL_ERR);
    CHECK_EQ(put(), kSize);
    rules("");
    fill(remote.data(), kSize, 1);
    CHECK_EQ(put(), kSize);
    CHECK_EQ(client.cuMemObjPutDescriptor(remote.data()), CU_OBJ_SUCCESS);
}

void unreadable_rules() {
    std::string error;
    for (const char* bad : {"explode", "status:n", "status:n=x", "status:x=1", "delay:ms=-1", "status:op=both"}) {
        error.clear();
        CHECK(!softfabric::set_fault_rules(bad, &error));
        CHECK(!error.empty());
    }
}

// From the environment, as a program that is not a test gets them.
void environment() {
    ClientProcess child([](ClientProcess::Say, ClientProcess::Listen) {
        setenv("CUOBJ_SOFT_FAULT", "status:n=1,code=9", 1);
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        char remote[16], local[16];
        CHECK_EQ(client.cuMemObjGetDescriptor(remote, 16), CU_OBJ_SUCCESS);
        std::string token = token_for(client, remote, 16);
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        rdma_buffer* buffer = server.registerBuffer(local, 16);
        uint16_t channel = server.allocateChannelId();
        ibv_wc_status status;
        CHECK_EQ(server.handlePutObject("k", buffer, address_of(remote), 16, token, channel, 0, &status), -EIO);
        CHECK_EQ(status, IBV_WC_REM_INV_REQ_ERR);
        CHECK_EQ(server.handlePutObject("k", buffer, address_of(remote), 16, token, channel, 0, &status), 16);
        CHECK_EQ(client.cuMemObjPutDescriptor(remote), CU_OBJ_SUCCESS);
        return 0;
    });
    CHECK_EQ(child.finish(), 0);
}

}  // namespace

int main() {
    environment();
    unreadable_rules();
    effects("vm");
    effects("tcp");
    std::puts("fault: passed");
}
