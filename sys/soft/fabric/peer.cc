#include "fabric/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "fabric/agent_name.h"

namespace softfabric {

namespace {

using std::chrono::milliseconds;

// A peer that moves less for the whole of an operation counts as dead.
constexpr uint64_t kSlowestBytesPerSecond = 1 << 20;

Socket open_connection(const sockaddr_storage& where, socklen_t size, milliseconds patience) {
    Socket socket(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return {};
    // On Linux the send timeout also bounds connect().
    set_progress_limit(socket.fd(), patience);
    if (where.ss_family != AF_UNIX) {
        int on = 1;
        setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&where), size) != 0) {
        int reason = errno;
        socket.close();
        errno = reason;
        return {};
    }
    return socket;
}

bool greet(const Socket& socket, const Remote& remote, wire::HelloReply* reply) {
    wire::Hello hello{};
    hello.magic = wire::kMagic;
    hello.version = wire::kVersion;
    hello.endpoint = remote.endpoint;
    hello.dc_key = remote.dc_key;
    return send_all(socket.fd(), &hello, sizeof hello) == Transfer::kDone &&
           receive_all(socket.fd(), reply, sizeof *reply) == Transfer::kDone &&
           reply->magic == wire::kMagic && reply->version == wire::kVersion;
}

// The process at the other end of a local connection, if this one may copy from its memory.
//
// The pid comes from the kernel (the process that called listen()), never from the peer: a hostile
// agent must not be able to point a privileged initiator at a third process. Reading the nonce then
// shows that the kernel allows the copy: it does not with ptrace restrictions, across user
// namespaces, or when the pid is not visible here.
pid_t prove_process(const Socket& socket, const wire::HelloReply& reply, std::string* why) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
        credentials.pid <= 0) {
        *why = "the peer's process is not visible from here";
        return 0;
    }
    uint8_t seen[sizeof reply.nonce];
    iovec local{seen, sizeof seen};
    iovec remote{reinterpret_cast<void*>(reply.nonce_address), sizeof seen};
    if (process_vm_readv(credentials.pid, &local, 1, &remote, 1, 0) !=
        static_cast<ssize_t>(sizeof seen)) {
        *why = std::string("process_vm_readv: ") + std::strerror(errno);
        return 0;
    }
    if (std::memcmp(seen, reply.nonce, sizeof seen) != 0) {
        *why = "the peer's process is not the one that listens";
        return 0;
    }
    return credentials.pid;
}

}  // namespace

bool Remote::operator<(const Remote& other) const {
    return std::tie(address, port, endpoint, dc_key, port_is_a_guess) <
           std::tie(other.address, other.port, other.endpoint, other.dc_key, other.port_is_a_guess);
}

Peer::Peer(Socket socket, pid_t pid, milliseconds patience)
    : socket_(std::move(socket)), pid_(pid), patience_(patience) {}

std::unique_ptr<Peer> Peer::connect_locally(const Remote& remote, uint32_t local_name,
                                            milliseconds patience, std::string* why) {
    sockaddr_storage where;
    socklen_t size = local_socket_address(local_name, &where);
    Socket local = open_connection(where, size, patience);
    wire::HelloReply reply;
    if (!local) {
        *why = "the agent is not on this host";
        return nullptr;
    }
    if (!greet(local, remote, &reply) || reply.status != 0) {
        *why = "the agent's local socket does not answer";
        return nullptr;
    }
    pid_t pid = prove_process(local, reply, why);
    if (pid == 0) return nullptr;
    return std::unique_ptr<Peer>(new Peer(std::move(local), pid, patience));
}

std::unique_ptr<Peer> Peer::connect(const Remote& remote, Path path, milliseconds patience,
                                    Status* status, std::string* why) {
    *status = Status::kSuccess;
    if (remote.port_is_a_guess && path != Path::kStream) {
        if (auto peer = connect_locally(remote, remote.endpoint, patience, why)) return peer;
        why->clear();
    }
    *status = Status::kRetryExceeded;
    if (remote.port == 0 || !remote.address.is_unicast()) {
        *why = "the descriptor names no reachable address";
        return nullptr;
    }
    sockaddr_storage where;
    socklen_t size = remote.address.to_sockaddr(remote.port, &where);
    Socket network = open_connection(where, size, patience);
    if (!network) {
        *why = std::string("no connection: ") + std::strerror(errno);
        return nullptr;
    }
    wire::HelloReply reply;
    if (!greet(network, remote, &reply)) {
        *why = "the peer does not answer as an agent does";
        return nullptr;
    }
    if (reply.status != 0) {
        *why = "no such endpoint, or another DC key";
        return nullptr;
    }
    *status = Status::kSuccess;
    if (path != Path::kStream && reply.local_name != 0) {
        if (auto peer = connect_locally(remote, reply.local_name, patience, why)) return peer;
    }
    if (path == Path::kVm) {
        *status = Status::kGeneral;
        if (why->empty()) *why = "the agent has no local socket";
        return nullptr;
    }
    return std::unique_ptr<Peer>(new Peer(std::move(network), 0, patience));
}

Outcome Peer::broken(uint64_t bytes) {
    usable_ = false;
    socket_.close();
    return {Status::kRetryExceeded, bytes};
}

wire::Request Peer::request_for(const Work& work, wire::Opcode opcode) {
    wire::Request request{};
    request.opcode = static_cast<uint8_t>(opcode);
    request.id = next_id_++;
    request.rkey = work.rkey;
    request.address = work.address;
    request.length = work.length;
    return request;
}

bool Peer::ask(const wire::Request& request, wire::Reply* reply) {
    return send_all(socket_.fd(), &request, sizeof request) == Transfer::kDone &&
           receive_all(socket_.fd(), reply, sizeof *reply) == Transfer::kDone &&
           reply->id == request.id;
}

Outcome Peer::execute(const Work& work) { return pid_ > 0 ? copy(work) : stream(work); }

Outcome Peer::copy(const Work& work) {
    bool reads = work.direction == Direction::kRead;
    wire::Request request =
        request_for(work, reads ? wire::Opcode::kLeaseForRead : wire::Opcode::kLeaseForWrite);
    wire::Reply reply;
    if (!ask(request, &reply)) return broken();
    if (reply.status != 0) return {static_cast<Status>(reply.status), 0};
    if (reply.flags & wire::kStreamOnly) return stream(work);

    // The agent keeps the registration alive until the release below; should this process die
    // first, the connection ends after the copy has.
    Cursor cursor(work.local);
    uint64_t done = 0;
    int error = 0;
    while (done < work.length && error == 0) {
        constexpr size_t kPieces = 16;
        iovec local[kPieces];
        size_t pieces = cursor.window(local, kPieces, static_cast<size_t>(work.length - done));
        iovec remote{reinterpret_cast<void*>(work.address + done), 0};
        for (size_t i = 0; i < pieces; i++) remote.iov_len += local[i].iov_len;
        ssize_t moved = pieces == 0 ? 0
                        : reads     ? process_vm_readv(pid_, local, pieces, &remote, 1, 0)
                                    : process_vm_writev(pid_, local, pieces, &remote, 1, 0);
        if (moved > 0) {
            done += static_cast<uint64_t>(moved);
            cursor.advance(static_cast<size_t>(moved));
        } else if (moved == 0 || errno != EINTR) {
            error = moved == 0 ? EFAULT : errno;
        }
    }
    wire::Request release{};
    release.opcode = static_cast<uint8_t>(wire::Opcode::kRelease);
    release.id = request.id;
    if (send_all(socket_.fd(), &release, sizeof release) != Transfer::kDone) return broken(done);
    if (error == 0) return {Status::kSuccess, done};
    if (error == ESRCH) return broken(done);
    // Permission can be lost while running (a setuid call of the peer): the stream still serves.
    if (error == EPERM && done == 0) {
        pid_ = 0;
        return stream(work);
    }
    // The registered range is not mapped, or not with the access that the operation needs.
    return {Status::kRemoteAccess, done};
}

Deadline Peer::deadline_for(uint64_t length) const {
    return std::chrono::steady_clock::now() + patience_ +
           std::chrono::seconds(length / kSlowestBytesPerSecond);
}

Outcome Peer::stream(const Work& work) {
    return work.direction == Direction::kRead
               ? stream_read(work, request_for(work, wire::Opcode::kRead))
               : stream_write(work, request_for(work, wire::Opcode::kWrite));
}

Outcome Peer::stream_read(const Work& work, wire::Request request) {
    if (send_all(socket_.fd(), &request, sizeof request) != Transfer::kDone) return broken();
    Cursor cursor(work.local);
    Deadline deadline = deadline_for(work.length);
    uint64_t done = 0;
    while (done < work.length) {
        wire::Reply reply;
        if (receive_all(socket_.fd(), &reply, sizeof reply) != Transfer::kDone ||
            reply.id != request.id) {
            return broken(done);
        }
        if (reply.status != 0) return {static_cast<Status>(reply.status), done};
        if (reply.length == 0 || reply.length > work.length - done) return broken(done);
        if (receive_all(socket_.fd(), cursor, static_cast<size_t>(reply.length), deadline) !=
            Transfer::kDone) {
            return broken(done);
        }
        done += reply.length;
    }
    return {Status::kSuccess, done};
}

Outcome Peer::stream_write(const Work& work, wire::Request request) {
    wire::Reply reply;
    if (!ask(request, &reply)) return broken();
    if (reply.status != 0) return {static_cast<Status>(reply.status), 0};
    Cursor cursor(work.local);
    if (send_all(socket_.fd(), cursor, static_cast<size_t>(work.length),
                 deadline_for(work.length)) != Transfer::kDone ||
        receive_all(socket_.fd(), &reply, sizeof reply) != Transfer::kDone ||
        reply.id != request.id) {
        return broken();
    }
    if (reply.status != 0) return {static_cast<Status>(reply.status), 0};
    return {Status::kSuccess, work.length};
}

}  // namespace softfabric
