// interop server BYTES COMMAND...: starts an interop client, and checks transfers, refusals and failures
// with it. Runs with either server library; what is checked here holds for both.
#include <cerrno>
#include <cstring>

#include "check.h"

using namespace testing;

namespace {

void* handle(uintptr_t number) { return reinterpret_cast<void*>(number); }

struct Reader {
    FILE* file;
    std::string line() {
        char text[256] = "";
        if (!std::fgets(text, sizeof text, file)) return "";
        text[std::strcspn(text, "\n")] = '\0';
        return text;
    }
};

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc > 2);
    size_t size = std::strtoull(argv[1], nullptr, 0);
    int up[2], down[2];
    CHECK(::pipe(up) == 0 && ::pipe(down) == 0);
    pid_t child = ::fork();
    if (child == 0) {
        ::dup2(down[0], 0);
        ::dup2(up[1], 1);
        for (int fd : {up[0], up[1], down[0], down[1]}) ::close(fd);
        ::execvp(argv[2], argv + 2);
        _exit(127);
    }
    ::close(up[1]);
    ::close(down[0]);
    Reader client{::fdopen(up[0], "r")};
    std::string put = client.line(), get = client.line();
    CHECK_EQ(put.size(), 81);
    CHECK_EQ(get.size(), 81);
    uint64_t start = std::strtoull(put.c_str(), nullptr, 16);
    uint64_t get_start = std::strtoull(get.c_str(), nullptr, 16);
    std::string bad_key = put, no_endpoint = put;
    bad_key.replace(26, 8, put.substr(26, 8) == "12345678" ? "12345679" : "12345678");
    no_endpoint.replace(40, 6, put.substr(40, 6) == "123456" ? "123457" : "123456");

    cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
    CHECK(server.isConnected());
    uint16_t channel = server.allocateChannelId();
    CHECK_EQ(channel, 0);
    auto* local = static_cast<char*>(server.allocHostBuffer(size));
    rdma_buffer* buffer = server.registerBuffer(local, size);
    CHECK(buffer);
    ibv_wc_status status;

    for (size_t part : {size, size_t{1}, size_t{4097}}) {
        std::memset(local, 0, size);
        CHECK_EQ(server.handlePutObject("k", buffer, start, part, put, channel, 0, &status), part);
        CHECK_EQ(status, IBV_WC_SUCCESS);
        CHECK(holds(local, part, 1));
    }
    fill(local, size, 2);
    CHECK_EQ(server.handleGetObject("k", buffer, get_start, size - 8, get, channel, 0, &status), size - 8);
    CHECK(::write(down[1], "g\n", 2) == 2);
    CHECK(client.line() == "good");

    // Refused without a completion.
    status = IBV_WC_TM_RNDV_INCOMPLETE;
    CHECK_EQ(server.handlePutObject("k", buffer, start, size + 1, put, channel, 0, &status), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start - 1, 16, put, channel, 0, &status), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 0, put, channel, 0, &status), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, "zz", channel, 0, &status), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, put, uint16_t{77}, 0, &status), -EIO);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, put, channel, size - 15, &status), -EIO);
    CHECK_EQ(status, IBV_WC_TM_RNDV_INCOMPLETE);

    // Failed at the other end; the channel works again each time.
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, bad_key, channel, 0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(server.handleGetObject("k", buffer, start, 16, bad_key, channel, 0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, no_endpoint, channel, 0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, put, channel, 0, &status), 16);
    {
        cuObjRDMATunable tunables;
        tunables.setDcKey(0x1234);
        cuObjServer other("127.0.0.1", 19101, CUOBJ_PROTO_RDMA_DC_V1, tunables);
        CHECK(other.isConnected());
        uint16_t own = other.allocateChannelId();
        rdma_buffer* mine = other.registerBuffer(local, size);
        CHECK_EQ(other.handlePutObject("k", mine, start, 16, put, own, 0, &status), -EIO);
        CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
        other.deRegisterBuffer(mine);
        other.freeChannelId(own);
    }

    // Asynchronous: in order, at most sixteen a call.
    for (uintptr_t i = 0; i < 20; i++) {
        CHECK_EQ(server.handlePutObject("k", buffer, start + i * 64, 64, put, channel, i * 64, nullptr,
                                        handle(i + 1)), 0);
    }
    cuObjAsyncEvent_t events[32];
    uintptr_t seen = 0;
    while (seen < 20) {
        int got = server.poll(events, 32, channel);
        CHECK(got >= 0 && got <= 16);
        for (int i = 0; i < got; i++) {
            CHECK(events[i].async_handle == handle(++seen));
            CHECK_EQ(events[i].status, IBV_WC_SUCCESS);
        }
        if (got == 0) usleep(500);
    }
    // The sixth of forty fails: sixteen events in all, and the rest is lost.
    for (uintptr_t i = 1; i <= 40; i++) {
        CHECK_EQ(server.handlePutObject("k", buffer, start, 64, i == 6 ? bad_key : put, channel, 0, nullptr,
                                        handle(i)), 0);
    }
    usleep(300000);
    std::memset(events, 0, sizeof events);
    CHECK_EQ(server.poll(events, 32, channel), -EIO);
    for (uintptr_t i = 0; i < 16; i++) {
        CHECK(events[i].async_handle == handle(i + 1));
        CHECK_EQ(events[i].status, i < 5 ? IBV_WC_SUCCESS
                                 : i == 5 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    CHECK(events[16].async_handle == nullptr);
    CHECK_EQ(server.poll(events, 32, channel), 0);
    CHECK_EQ(server.handlePutObject("k", buffer, start, size, put, channel, 0, &status), size);
    CHECK(holds(local, size, 1));
    CHECK_EQ(server.poll(nullptr, 1, channel), -EINVAL);

    CHECK(::write(down[1], "q\n", 2) == 2);
    CHECK(client.line() == "client done");
    // The registration has gone, and the process with it.
    int code = 0;
    CHECK(::waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 0);
    CHECK_EQ(server.handlePutObject("k", buffer, start, 16, put, channel, 0, &status), -EIO);
    CHECK_EQ(status, IBV_WC_RETRY_EXC_ERR);
    server.deRegisterBuffer(buffer);
    server.freeChannelId(channel);
    CHECK_EQ(server.poll(events, 1, channel), -EINVAL);
    std::free(local);
    return 0;
}
