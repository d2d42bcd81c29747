// Registrations of several pieces, and views.
#include <cerrno>
#include <cstring>

#include "check.h"

using namespace testing;

int main() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    constexpr size_t kSize = 1 << 16;
    std::vector<char> remote(kSize), local(kSize);
    fill(remote.data(), kSize, 1);
    CHECK_EQ(client.cuMemObjGetDescriptor(remote.data(), kSize), CU_OBJ_SUCCESS);
    std::string token = token_for(client, remote.data(), kSize);
    uint64_t start = address_of(remote.data());

    for (const char* path : {"vm", "tcp"}) {
        setenv("CUOBJ_SOFT_PATH", path, 1);
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        uint16_t channel = server.allocateChannelId();
        auto put = [&](rdma_buffer* buffer, size_t size, uint64_t offset = 0) {
            return server.handlePutObject("k", buffer, start, size, token, channel, offset);
        };
        auto get = [&](rdma_buffer* buffer, size_t size, uint64_t offset = 0) {
            return server.handleGetObject("k", buffer, start, size, token, channel, offset);
        };
        char* at = local.data();
        std::memset(at, 0, kSize);

        using Pieces = std::vector<cuObjScatterGatherEntry_t>;
        rdma_buffer* many = server.registerBuffer(Pieces{{at + 10, 100}, {at + 1000, 1}, {at + 500, 300}});
        CHECK(many);
        CHECK_EQ(put(many, 401), 401);
        CHECK(holds(at + 10, 100, 1) && holds(at + 1000, 1, 1, 100) && holds(at + 500, 300, 1, 101));
        CHECK(all_equal(at, 10, 0) && all_equal(at + 110, 390, 0) && all_equal(at + 800, 200, 0));
        CHECK_EQ(put(many, 402), -EIO);
        CHECK_EQ(put(many, 401, 1), -EIO);
        // The offset of such a buffer is checked, and then ignored.
        std::memset(at, 0, kSize);
        CHECK_EQ(put(many, 50, 100), 50);
        CHECK(holds(at + 10, 50, 1) && all_equal(at + 60, kSize - 60, 0));

        Pieces ten, eleven;
        for (size_t i = 0; i < 11; i++) {
            if (i < 10) ten.push_back({at + i * 5000, 4096});
            eleven.push_back({at + i * 5000, 4096});
        }
        rdma_buffer* full = server.registerBuffer(ten);
        CHECK(full);
        CHECK_EQ(put(full, 40960), 40960);
        for (size_t i = 0; i < 10; i++) CHECK(holds(at + i * 5000, 4096, 1, i * 4096));
        CHECK(!server.registerBuffer(eleven));
        CHECK(!server.registerBuffer(Pieces{}));
        CHECK(!server.registerBuffer(Pieces{{at, 0}}));
        CHECK(!server.registerBuffer(nullptr, 10));
        CHECK(!server.registerBuffer(at, SIZE_MAX));
        CHECK(!server.registerBuffer(Pieces{{at, SIZE_MAX / 2}, {at, SIZE_MAX / 2 + 2}}));

        // Gathered writes: the pieces end up one after the other in the client's memory.
        fill(at, kSize, 2);
        CHECK_EQ(get(many, 401), 401);
        CHECK(holds(remote.data(), 100, 2, 10) && holds(remote.data() + 100, 1, 2, 1000) &&
              holds(remote.data() + 101, 300, 2, 500) && holds(remote.data() + 401, kSize - 401, 1, 401));
        fill(remote.data(), kSize, 1);

        using View = std::vector<cuObjScatterGatherEntryWithOffset_t>;
        rdma_buffer* base = server.registerBuffer(at, kSize);
        rdma_buffer* view = server.getRDMABufferFromSgList(base, View{{5000, 60}, {100, 50}});
        CHECK(view);
        std::memset(at, 0, kSize);
        CHECK_EQ(put(view, 110), 110);
        CHECK(holds(at + 5000, 60, 1) && holds(at + 100, 50, 1, 60) && all_equal(at, 100, 0));
        CHECK_EQ(put(view, 111), -EIO);
        rdma_buffer* single = server.getRDMABufferFromSgList(base, View{{64, 64}});
        std::memset(at, 0, kSize);
        CHECK_EQ(put(single, 20, 44), 20);
        CHECK(holds(at + 108, 20, 1) && all_equal(at, 108, 0) && all_equal(at + 128, 100, 0));
        CHECK_EQ(put(single, 20, 45), -EIO);
        CHECK(!server.getRDMABufferFromSgList(nullptr, View{{0, 10}}));
        CHECK(!server.getRDMABufferFromSgList(base, View{}));
        CHECK(!server.getRDMABufferFromSgList(base, View{{kSize - 10, 11}}));
        CHECK(!server.getRDMABufferFromSgList(base, View{{-1, 10}}));
        CHECK(!server.getRDMABufferFromSgList(base, View{{0, SIZE_MAX}}));
        CHECK(!server.getRDMABufferFromSgList(base, View{{1, 0}}));
        CHECK(!server.getRDMABufferFromSgList(many, View{{0, 10}}));
        CHECK(!server.getRDMABufferFromSgList(view, View{{0, 10}}));

        server.putRDMABufferFromSgList(single);
        CHECK_EQ(put(single, 1), -EIO);
        CHECK_EQ(put(base, 1), 1);
        server.putRDMABufferFromSgList(nullptr);
        // A registration takes its views along.
        server.deRegisterBuffer(base);
        CHECK_EQ(put(view, 1), -EIO);
        CHECK_EQ(put(base, 1), -EIO);
        server.deRegisterBuffer(nullptr);
        server.deRegisterBuffer(base);
        server.deRegisterBuffer(many);
        server.deRegisterBuffer(full);
    }
    CHECK_EQ(client.cuMemObjPutDescriptor(remote.data()), CU_OBJ_SUCCESS);
    std::puts("buffers: passed");
}
