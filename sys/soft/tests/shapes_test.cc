// The class interface in the generation that this is compiled for: what a program can detect, and
// the sizes that binaries rely on.
#include <type_traits>
#include <utility>

#include "check.h"

namespace {

template <typename Class, typename = void>
struct HasSession : std::false_type {};
template <typename Class>
struct HasSession<Class, std::void_t<decltype(&Class::startRDMASession)>> : std::true_type {};

template <typename Class, typename = void>
struct HasInit : std::false_type {};
template <typename Class>
struct HasInit<Class, std::void_t<decltype(std::declval<Class&>().initRDMAConfigParams(
                          std::declval<cuObjRDMATunable>()))>> : std::true_type {};

template <typename Class, typename = void>
struct HasOneMask : std::false_type {};
template <typename Class>
struct HasOneMask<Class, std::void_t<decltype(Class::setTelemFlags(1u))>> : std::true_type {};

template <typename Class, typename = void>
struct HasTwoMasks : std::false_type {};
template <typename Class>
struct HasTwoMasks<Class, std::void_t<decltype(Class::setTelemFlags(1u, 0u))>> : std::true_type {};

template <typename Class, typename = void>
struct HasTokenReset : std::false_type {};
template <typename Class>
struct HasTokenReset<Class, std::void_t<decltype(std::declval<Class&>().cuMemObjPutRDMAToken(
                                static_cast<char*>(nullptr), 0))>> : std::true_type {};

template <typename Class, typename = void>
struct HasVersion : std::false_type {};
template <typename Class>
struct HasVersion<Class, std::void_t<decltype(Class::getVersion())>> : std::true_type {};

constexpr bool kFirst = CUOBJ_SOFT_GENERATION == 1;
static_assert(HasSession<cuObjServer>::value == kFirst);
static_assert(HasInit<cuObjServer>::value == kFirst);
static_assert(HasOneMask<cuObjServer>::value == kFirst);
static_assert(HasTwoMasks<cuObjServer>::value == !kFirst);
static_assert(HasVersion<cuObjServer>::value == !kFirst);
static_assert(HasOneMask<cuObjClient>::value);
static_assert(HasTwoMasks<cuObjClient>::value == !kFirst);
static_assert(HasTokenReset<cuObjClient>::value == !kFirst);

static_assert(sizeof(cuObjServer) == 288 && alignof(cuObjServer) == 8);
static_assert(sizeof(cuObjClient) == 64 && alignof(cuObjClient) == 8);
static_assert(!std::is_polymorphic_v<cuObjServer> && !std::is_polymorphic_v<cuObjClient>);
static_assert(IBV_WC_RETRY_EXC_ERR == 12 && IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_WR_FLUSH_ERR == 5);

}  // namespace

int main() {
    // Defaults are the vendor's.
    cuObjRDMATunable tunables;
    CHECK_EQ(tunables.getNumDcis(), 128);
    CHECK_EQ(tunables.getCqDepth(), 640);
    CHECK_EQ(tunables.getDcKey(), 0xffeeddcc);
    CHECK_EQ(tunables.getTimeout(), 16);
    CHECK_EQ(tunables.getHopLimit(), 4);
    CHECK_EQ(tunables.getMaxSge(), 10);
    CHECK_EQ(tunables.getDelayInterval(), 5000);
    CHECK_EQ(tunables.getDelayMode(), CUOBJ_DELAY_BATCH);
    CHECK(tunables.getQPResetOnFailure());
    CHECK_EQ(tunables.getRetryCount(), 7);
    CHECK_EQ(tunables.getTrafficClass(), 96);
    CHECK_EQ(tunables.getMaxRdAtomic(), 0);
    tunables.setNumDcis(3);
    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, tunables);
    CHECK(server.isConnected());
    // Programs read the flag at this offset, inlined from the vendor's header.
    CHECK(*(reinterpret_cast<const bool*>(&server) + 216));
    for (int i = 0; i < 3; i++) CHECK_EQ(server.allocateChannelId(), i);
    CHECK_EQ(server.allocateChannelId(), INVALID_CHANNEL_ID);
#if CUOBJ_SOFT_GENERATION == 1
    cuObjRDMATunableParam seen;
    server.getConfigTunableParam(&seen);
    CHECK_EQ(seen.num_dcis, 3);
    cuObjServer closed("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    closed.closeRDMASession();
    char memory[8];
    CHECK(!closed.registerBuffer(memory, 8));
    CHECK_EQ(closed.startRDMASession(), 0);
    CHECK(closed.registerBuffer(memory, 8));
#else
    CHECK(cuObjServer::getVersion()[0] == '2');
    CHECK(cuObjClient::getVersion()[0] == '1');
#endif
    // A client writes no further than the smallest size in use.
    alignas(8) char room[72];
    for (char& c : room) c = 0x5a;
    CUObjOps_t ops = testing::no_callbacks();
    auto* client = new (room) cuObjClient(ops);
    client->~cuObjClient();
    CHECK(testing::all_equal(room + 64, 8, 0x5a));
    std::puts("shapes: passed");
}
