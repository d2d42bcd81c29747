// Log lines: which are written, and what they never contain.
#include <cerrno>
#include <sstream>
#include <stdexcept>

#include "check.h"

using namespace testing;

int main() {
    std::ostringstream of_server, of_client;
    cuObjServer::setupTelemetry(false, &of_server);
    cuObjClient::setupTelemetry(true, &of_client);
#if CUOBJ_SOFT_GENERATION == 1
    cuObjServer::setTelemFlags(CUOBJ_LOG_PATH_INFO | CUOBJ_LOG_PATH_DEBUG | CUOBJ_LOG_PATH_ERROR);
#else
    cuObjServer::setTelemFlags(CUOBJ_LOG_PATH_INFO | CUOBJ_LOG_PATH_DEBUG | CUOBJ_LOG_PATH_ERROR, 0);
#endif
    cuObjClient::setTelemFlags(CUOBJ_LOG_PATH_INFO | CUOBJ_LOG_PATH_DEBUG | CUOBJ_LOG_PATH_ERROR);

    CUObjOps_t ops = no_callbacks();
    cuObjClient client(ops);
    std::vector<char> remote(4096), local(4096);
    CHECK_EQ(client.cuMemObjGetDescriptor(remote.data(), 4096), CU_OBJ_SUCCESS);
    CHECK_EQ(client.cuMemObjGetDescriptor(remote.data(), 4096), CU_OBJ_FAIL);
    std::string token = token_for(client, remote.data(), 4096);
    {
        cuObjServer server("127.0.0.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        rdma_buffer* buffer = server.registerBuffer(local.data(), 4096);
        uint16_t channel = server.allocateChannelId();
        uint64_t start = address_of(remote.data());
        CHECK_EQ(server.handlePutObject("k", buffer, start, 4096, token, channel), 4096);
        std::string forged = token;
        forged.replace(26, 8, "00005a5a");
        CHECK_EQ(server.handlePutObject("k", buffer, start, 16, forged, channel), -EIO);
        forged = token;
        forged.replace(40, 6, "000000");
        CHECK_EQ(server.handlePutObject("k", buffer, start, 16, forged, channel), -EIO);
        CHECK_EQ(server.handlePutObject("k", buffer, start, 16, "zz", channel), -EIO);
        CHECK_EQ(server.handlePutObject("k", buffer, start + 4090, 16, token, channel), -EIO);
        cuObjServer unusable("192.0.2.1", 19100, CUOBJ_PROTO_RDMA_DC_V1);
        CHECK(!unusable.isConnected());
    }
    std::string lines = of_server.str() + of_client.str();
    for (const char* expected : {"session on 127.0.0.1", "remote access error", "connected to 127.0.0.1",
                                 "no session on 192.0.2.1", "agent listens", "registered already",
                                 "cannot be parsed", "outside the descriptor's window"}) {
        if (lines.find(expected) == std::string::npos) std::fprintf(stderr, "%s\n", lines.c_str());
        CHECK(lines.find(expected) != std::string::npos);
    }
    // Neither the token nor any of its parts that open memory.
    for (const std::string& secret : {token, token.substr(0, 16), token.substr(26, 8), token.substr(40, 6)}) {
        CHECK(lines.find(secret) == std::string::npos);
        CHECK(lines.find(std::to_string(std::stoull(secret.substr(0, 16), nullptr, 16))) ==
              std::string::npos);
    }
    CHECK(lines.back() == '\n');

    // Errors only; then nothing at all.
    of_client.str("");
    cuObjClient::setTelemFlags(CUOBJ_LOG_PATH_ERROR);
    CHECK_EQ(client.cuMemObjPutDescriptor(remote.data()), CU_OBJ_SUCCESS);
    CHECK(of_client.str().empty());
    CHECK_EQ(client.cuMemObjGetDescriptor(nullptr, 1), CU_OBJ_FAIL);
    CHECK(of_client.str().find("error") != std::string::npos);
    of_client.str("");
    cuObjClient::shutdownTelemetry();
    cuObjServer::shutdownTelemetry();
    CHECK_EQ(client.cuMemObjGetDescriptor(nullptr, 1), CU_OBJ_FAIL);
    CHECK(of_client.str().empty());
    // A stream that throws does no harm.
    struct Throwing : std::streambuf {
        int overflow(int) override { throw 1; }
        std::streamsize xsputn(const char*, std::streamsize) override { throw std::runtime_error("full"); }
    } buffer;
    std::ostream throwing(&buffer);
    throwing.exceptions(std::ios::badbit);
    cuObjClient::setupTelemetry(false, &throwing);
    CHECK_EQ(client.cuMemObjGetDescriptor(nullptr, 1), CU_OBJ_FAIL);
    cuObjClient::shutdownTelemetry();
    std::puts("telemetry: passed");
}
