// What is refused, and with which error number and completion status.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "check.h"
#include "fabric/wire.h"

using namespace testing;

namespace {

// A status that the library never gives, to see that it has written none.
constexpr ibv_wc_status kNoCompletion = IBV_WC_TM_RNDV_INCOMPLETE;

// A token's fields by position, to forge it.
std::string with(std::string token, size_t field, const std::string& text) {
    constexpr size_t kStarts[] = {0, 17, 26, 35, 40, 47, 49};
    return token.replace(kStarts[field], text.size(), text);
}

struct Fixture {
    explicit Fixture(const char* path, cuObjRDMATunable tunables = {}) {
        setenv("CUOBJ_SOFT_PATH", path, 1);
        server = new cuObjServer("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1, tunables);
        CHECK(server->isConnected());
        buffer = server->registerBuffer(local, sizeof local);
        channel = server->allocateChannelId();
    }
    ~Fixture() { delete server; }

    void expect(const std::string& token, uint64_t start, size_t size, int error, int status) {
        for (bool get : {false, true}) {
            ibv_wc_status got = kNoCompletion;
            ssize_t moved =
                get ? server->handleGetObject("k", buffer, start, size, token, channel, 0, &got)
                    : server->handlePutObject("k", buffer, start, size, token, channel, 0, &got);
            CHECK_EQ(moved, error);
            CHECK_EQ(got, status);
        }
    }

    cuObjServer* server;
    rdma_buffer* buffer;
    uint16_t channel;
    char local[8192];
};

void refusals(const char* path) {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> memory(8192);
    fill(memory.data(), memory.size(), 1);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
    std::string token = token_for(client, memory.data(), 4096);
    uint64_t start = address_of(memory.data());
    Fixture f(path);

    f.expect(token, start, 4096, 4096, IBV_WC_SUCCESS);
    fill(memory.data(), memory.size(), 1);

    // Refused before anything is sent.
    f.expect("", start, 16, -EIO, kNoCompletion);
    f.expect("zz", start, 16, -EIO, kNoCompletion);
    f.expect(token.substr(0, 80), start, 16, -EIO, kNoCompletion);
    f.expect(token + "0", start, 16, -EIO, kNoCompletion);
    f.expect(with(token, 1, "0000100g"), start, 16, -EIO, kNoCompletion);
    f.expect(with(token, 5, "0"), start, 16, -EAFNOSUPPORT, kNoCompletion);
    f.expect(token, start, 0, -EIO, kNoCompletion);
    f.expect(token, 0, 16, -EIO, kNoCompletion);
    f.expect(token, start - 1, 16, -EIO, kNoCompletion);
    f.expect(token, start + 4090, 16, -EIO, kNoCompletion);
    f.expect(token, start + 4096, 1, -EIO, kNoCompletion);
    f.expect(token, UINT64_MAX - 4, 16, -EIO, kNoCompletion);
    f.expect(with(token, 1, "ffffffff"), start, (size_t{1} << 30) + 1, -EIO, kNoCompletion);
    f.expect(with(token, 1, "ffffffff"), start, 8193, -EIO, kNoCompletion);  // the local buffer
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, start, 16, token, f.channel, 8177), -EIO);
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, start, 16, token, f.channel, UINT64_MAX), -EIO);
    CHECK_EQ(f.server->handlePutObject("k", nullptr, start, 16, token, f.channel), -EIO);
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, start, 16, token, uint16_t{77}), -EIO);

    // Refused by the owner of the memory. A forged window does not widen the registration.
    f.expect(with(token, 1, "00001001"), start, 4097, -EIO, IBV_WC_REM_ACCESS_ERR);
    f.expect(with(with(token, 0, "0000000000001000"), 1, "ffffffff"), 0x2000, 16, -EIO,
             IBV_WC_REM_ACCESS_ERR);
    f.expect(with(token, 2, "00005a5a"), start, 16, -EIO, IBV_WC_REM_ACCESS_ERR);
    CHECK(holds(memory.data(), memory.size(), 1));

    // Nobody there.
    f.expect(with(token, 3, "0000"), start, 16, -EIO, IBV_WC_RETRY_EXC_ERR);
    f.expect(with(token, 3, "0001"), start, 16, -EIO, IBV_WC_RETRY_EXC_ERR);
    f.expect(with(token, 4, "000000"), start, 16, -EIO, IBV_WC_RETRY_EXC_ERR);
    f.expect(with(token, 6, "00000000000000000000000000000000"), start, 16, -EIO,
             IBV_WC_RETRY_EXC_ERR);
    f.expect(with(token, 6, "00000000000000000000ffffe0000001"), start, 16, -EIO,
             IBV_WC_RETRY_EXC_ERR);

    // The channel works after each of them.
    f.expect(token, start, 4096, 4096, IBV_WC_SUCCESS);

    // Another DC key: a NIC would drop the packets.
    {
        cuObjRDMATunable tunables;
        tunables.setDcKey(0x12345678);
        Fixture other(path, tunables);
        other.expect(token, start, 16, -EIO, IBV_WC_RETRY_EXC_ERR);
    }

    // A freed registration; then the same memory under a new key.
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
    f.expect(token, start, 16, -EIO, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
    f.expect(token, start, 16, -EIO, IBV_WC_REM_ACCESS_ERR);
    f.expect(token_for(client, memory.data(), 16), start, 16, 16, IBV_WC_SUCCESS);
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);

    // Memory that has been unmapped while registered.
    void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(client.cuMemObjGetDescriptor(mapped, 8192), CU_OBJ_SUCCESS);
    token = token_for(client, mapped, 8192);
    munmap(mapped, 8192);
    if (std::strcmp(path, "vm") == 0) {
        f.expect(token, address_of(mapped), 8192, -EIO, IBV_WC_REM_ACCESS_ERR);
    } else {
        // The kernel refuses the agent's send or receive; the connection ends.
        f.expect(token, address_of(mapped), 8192, -EIO, IBV_WC_RETRY_EXC_ERR);
    }
    CHECK_EQ(client.cuMemObjPutDescriptor(mapped), CU_OBJ_SUCCESS);
}

// Without reset a failed channel stays failed.
void no_reset() {
    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> memory(4096);
    CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
    std::string token = token_for(client, memory.data(), 4096);
    uint64_t start = address_of(memory.data());
    cuObjRDMATunable tunables;
    tunables.setQPResetOnFailure(false);
    Fixture f("auto", tunables);
    ibv_wc_status status;
    CHECK_EQ(f.server->handlePutObject("k", f.buffer, start, 16, with(token, 2, "00005a5a"), f.channel,
                                       0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_REM_ACCESS_ERR);
    f.expect(token, start, 16, -EIO, IBV_WC_WR_FLUSH_ERR);
    // A newly allocated channel is a new queue pair.
    f.server->freeChannelId(f.channel);
    CHECK_EQ(f.server->allocateChannelId(), f.channel);
    f.expect(token, start, 16, 16, IBV_WC_SUCCESS);
    CHECK_EQ(client.cuMemObjPutDescriptor(memory.data()), CU_OBJ_SUCCESS);
}

// Something listens where the token points, but it is no agent.
class FakeAgent {
public:
    explicit FakeAgent(std::function<void(int)> serve) {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
        CHECK(::listen(fd_, 16) == 0);
        socklen_t size = sizeof where;
        getsockname(fd_, reinterpret_cast<sockaddr*>(&where), &size);
        port_ = ntohs(where.sin_port);
        thread_ = std::thread([this, serve] {
            while (true) {
                int connection = ::accept(fd_, nullptr, nullptr);
                if (connection < 0) return;
                serve(connection);
                ::close(connection);
            }
        });
    }
    ~FakeAgent() {
        ::shutdown(fd_, SHUT_RDWR);
        thread_.join();
        ::close(fd_);
    }
    std::string token() const {
        char text[100];
        std::snprintf(text, sizeof text,
                      "0000000000010000:00100000:12345678:%04x:00abcd:1:"
                      "00000000000000000000ffff7f000001", unsigned{port_});
        return text;
    }

private:
    int fd_;
    uint16_t port_;
    std::thread thread_;
};

void hostile_agents() {
    using softfabric::wire::Hello;
    using softfabric::wire::HelloReply;
    auto greet = [](int fd, uint32_t local_name) {
        Hello hello;
        CHECK(::recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello);
        CHECK_EQ(hello.endpoint, 0xabcd);
        HelloReply reply{};
        reply.magic = softfabric::wire::kMagic;
        reply.version = softfabric::wire::kVersion;
        reply.local_name = local_name;
        CHECK(::send(fd, &reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply);
    };
    auto wait_for_end = [](int fd) {
        char c[256];
        while (::recv(fd, c, sizeof c, 0) > 0) {
        }
    };
    cuObjRDMATunable impatient;
    impatient.setTimeout(1);
    impatient.setRetryCount(0);
    {
        FakeAgent silent(wait_for_end);
        Fixture f("auto", impatient);
        f.expect(silent.token(), 0x10000, 4096, -EIO, IBV_WC_RETRY_EXC_ERR);
    }
    {
        FakeAgent hangs_up([](int) {});
        Fixture f("auto", impatient);
        f.expect(hangs_up.token(), 0x10000, 4096, -EIO, IBV_WC_RETRY_EXC_ERR);
    }
    {
        FakeAgent babbles([&](int fd) {
            std::string noise(1000, 'x');
            CHECK(::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL) == 1000);
            wait_for_end(fd);
        });
        Fixture f("auto", impatient);
        f.expect(babbles.token(), 0x10000, 4096, -EIO, IBV_WC_RETRY_EXC_ERR);
    }
    {
        // Says hello, names a local socket that is not there, and then never answers a request.
        FakeAgent stalls([&](int fd) {
            greet(fd, 0x4242);
            wait_for_end(fd);
        });
        Fixture f("auto", impatient);
        f.expect(stalls.token(), 0x10000, 4096, -EIO, IBV_WC_RETRY_EXC_ERR);
    }
    {
        // Answers a read with more bytes than were asked for.
        FakeAgent overflows([&](int fd) {
            greet(fd, 0);
            softfabric::wire::Request request;
            if (::recv(fd, &request, sizeof request, MSG_WAITALL) != sizeof request) return;
            softfabric::wire::Reply reply{};
            reply.id = request.id;
            reply.length = request.length + 1;
            ::send(fd, &reply, sizeof reply, MSG_NOSIGNAL);
            std::string noise(request.length + 1, 'x');
            ::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
            wait_for_end(fd);
        });
        Fixture f("auto", impatient);
        std::memset(f.local, 0, sizeof f.local);
        ibv_wc_status status;
        CHECK_EQ(f.server->handlePutObject("k", f.buffer, 0x10000, 4096, overflows.token(), f.channel, 0,
                                           &status), -EIO);
        CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
        CHECK(all_equal(f.local, sizeof f.local, 0));
    }
}

// A token whose registration lives in another process: an agent that points at a third process's
// socket gets no further than that process's own checks.
void forwarding_agent() {
    ClientProcess victim([](ClientProcess::Say say, ClientProcess::Listen listen) {
        CUObjOps_t ops = no_callbacks();
        cuObjClient client(ops);
        std::vector<char> memory(4096);
        CHECK_EQ(client.cuMemObjGetDescriptor(memory.data(), 4096), CU_OBJ_SUCCESS);
        say(token_for(client, memory.data(), 4096));
        listen();
        return 0;
    });
    std::string token = victim.line();
    // Learn the victim's local name as its DC key's holder, then serve it from another port.
    uint32_t name = 0;
    {
        int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(static_cast<uint16_t>(std::stoul(token.substr(35, 4), nullptr, 16)));
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
        softfabric::wire::Hello hello{};
        hello.magic = softfabric::wire::kMagic;
        hello.version = softfabric::wire::kVersion;
        hello.endpoint = static_cast<uint32_t>(std::stoul(token.substr(40, 6), nullptr, 16));
        hello.dc_key = 0xffeeddcc;
        CHECK(::send(fd, &hello, sizeof hello, 0) == sizeof hello);
        softfabric::wire::HelloReply reply;
        CHECK(::recv(fd, &reply, sizeof reply, MSG_WAITALL) == sizeof reply);
        CHECK_EQ(reply.status, 0);
        CHECK_EQ(reply.nonce_address, 0);  // told over the local socket only
        name = reply.local_name;
        ::close(fd);
    }
    FakeAgent liar([&](int fd) {
        softfabric::wire::Hello hello;
        if (::recv(fd, &hello, sizeof hello, MSG_WAITALL) != sizeof hello) return;
        softfabric::wire::HelloReply reply{};
        reply.magic = softfabric::wire::kMagic;
        reply.version = softfabric::wire::kVersion;
        reply.local_name = name;
        ::send(fd, &reply, sizeof reply, MSG_NOSIGNAL);
    });
    // The victim does not know the liar's endpoint number, so the copy between processes is off,
    // and over its own connection the liar has hung up.
    Fixture f("auto");
    f.expect(liar.token(), 0x10000, 4096, -EIO, IBV_WC_RETRY_EXC_ERR);
    Fixture forced("vm");
    forced.expect(liar.token(), 0x10000, 4096, -EIO, IBV_WC_GENERAL_ERR);
    victim.command('q');
    CHECK_EQ(victim.finish(), 0);
}

void no_session() {
    for (const char* address : {"203.0.113.77", "localhost", "", "0.0.0.0", "224.0.0.1", "127.0.0.1:5"}) {
        cuObjServer server(address, 19100, CUOBJ_PROTO_RDMA_DC_V1);
        CHECK(!server.isConnected());
        char memory[16];
        CHECK(!server.registerBuffer(memory, sizeof memory));
        CHECK_EQ(server.allocateChannelId(), 0);
        void* host = server.allocHostBuffer(10);
        CHECK(host);
        std::free(host);
        CHECK_EQ(server.handleGetObject("k", nullptr, 1, 1, "", uint16_t{0}), -ENODEV);
        CHECK_EQ(server.handlePutObject("k", nullptr, 1, 1, "", uint16_t{0}), -ENODEV);
        cuObjAsyncEvent_t event;
        CHECK_EQ(server.poll(&event, 1, 0), -ENODEV);
    }
    cuObjServer null_address(nullptr, 19100, CUOBJ_PROTO_RDMA_DC_V1);
    CHECK(!null_address.isConnected());
    cuObjRDMATunable retries;
    retries.setRetryCount(8);
    CHECK(!cuObjServer("127.0.0.1", 1, 1001, retries).isConnected());
    cuObjRDMATunable channels;
    channels.setNumDcis(0);
    CHECK(!cuObjServer("127.0.0.1", 1, 1001, channels).isConnected());
    cuObjServer good("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    CHECK(good.isConnected());
    CHECK(!good.allocHostBuffer(0));
    CHECK(!good.allocHostBuffer(SIZE_MAX - 100));
}

}  // namespace

int main() {
    forwarding_agent();  // forks, so it comes before this process has threads
    refusals("vm");
    refusals("tcp");
    no_reset();
    no_session();
    hostile_agents();
    std::puts("errors: passed");
}
