#include "fabric/agent.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "fabric/agent_name.h"
#include "fabric/random.h"
#include "fabric/session.h"

namespace softfabric {

namespace {

constexpr int kBacklog = 256;
// Bounds the threads that peers can make this process start.
constexpr size_t kMaxSessions = 1024;
constexpr size_t kNonceSize = sizeof(wire::HelloReply::nonce);

// 24 bits, as a DC target's number has; 0 is none.
uint32_t random_endpoint() {
    uint32_t number;
    do {
        number = random_integer<uint32_t>() & 0xffffff;
    } while (number == 0);
    return number;
}

Socket listen_on(const sockaddr_storage& where, socklen_t size) {
    Socket socket(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return {};
    int on = 1;
    if (where.ss_family == AF_INET6) {
        setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    // A fixed port must be usable again at once after a restart.
    if (where.ss_family != AF_UNIX) {
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&where), size) != 0 ||
        ::listen(socket.fd(), kBacklog) != 0) {
        int reason = errno;
        socket.close();
        errno = reason;
        return {};
    }
    return socket;
}

// Finds out in minutes rather than hours that a peer's host has gone.
void keep_alive(int fd) {
    int on = 1, idle = 30, interval = 10, count = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

}  // namespace

std::unique_ptr<Agent> Agent::start(const Address& address, uint16_t port, std::string* error) {
    sockaddr_storage where;
    socklen_t size = address.to_sockaddr(port, &where);
    Socket network = listen_on(where, size);
    if (!network) {
        *error = "cannot listen on " + address.text() + ": " + std::strerror(errno);
        return nullptr;
    }
    socklen_t bound = sizeof where;
    getsockname(network.fd(), reinterpret_cast<sockaddr*>(&where), &bound);
    port = ntohs(where.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(where).sin_port
                                            : reinterpret_cast<sockaddr_in6&>(where).sin6_port);
    // Without the local socket (a sandbox may forbid it) everything goes over the network one.
    Socket local;
    uint32_t local_name;
    do {
        local_name = random_endpoint();
        size = local_socket_address(local_name, &where);
        local = listen_on(where, size);
    } while (!local && errno == EADDRINUSE);
    std::unique_ptr<Agent> agent(
        new Agent(address, port, std::move(network), std::move(local), local_name));
    if (!agent->wake_read_) {
        *error = std::string("cannot make a socket pair: ") + std::strerror(errno);
        return nullptr;
    }
    agent->accepting_ = true;
    std::thread(&Agent::accept_loop, agent.get()).detach();
    return agent;
}

Agent::Agent(const Address& address, uint16_t port, Socket network, Socket local, uint32_t local_name)
    : address_(address),
      port_(port),
      network_(std::move(network)),
      local_(std::move(local)),
      local_name_(local_name),
      nonce_(new uint8_t[kNonceSize]) {
    random_bytes(nonce_.get(), kNonceSize);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        wake_read_ = Socket(pair[0]);
        wake_write_ = Socket(pair[1]);
    }
}

Agent::~Agent() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    if (wake_write_) ::shutdown(wake_write_.fd(), SHUT_RDWR);
    for (auto& entry : sessions_) ::shutdown(entry.second.fd, SHUT_RDWR);
    ended_.wait(lock, [this] { return !accepting_ && sessions_.empty(); });
}

uint32_t Agent::open_endpoint(uint64_t dc_key) {
    std::lock_guard<std::mutex> lock(mutex_);
    uint32_t number = local_name_;
    while (endpoints_.count(number) != 0) number = random_endpoint();
    endpoints_.emplace(number, dc_key);
    return number;
}

void Agent::close_endpoint(uint32_t endpoint) {
    std::lock_guard<std::mutex> lock(mutex_);
    endpoints_.erase(endpoint);
    for (auto& entry : sessions_) {
        if (entry.second.endpoint == endpoint) ::shutdown(entry.second.fd, SHUT_RDWR);
    }
}

bool Agent::admits(uint32_t endpoint, uint64_t dc_key) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = endpoints_.find(endpoint);
    return found != endpoints_.end() && found->second == dc_key;
}

void Agent::accept_loop() {
    pollfd watched[3] = {{wake_read_.fd(), POLLIN, 0},
                         {network_.fd(), POLLIN, 0},
                         {local_ ? local_.fd() : -1, POLLIN, 0}};
    while (true) {
        if (::poll(watched, 3, -1) < 0 && errno != EINTR) break;
        if (watched[0].revents) break;
        if (watched[1].revents) accept_one(network_, false);
        if (watched[2].revents) accept_one(local_, true);
    }
    // The last touch of this object: notified under the mutex, so that the destructor cannot finish
    // before the notification has.
    std::lock_guard<std::mutex> lock(mutex_);
    accepting_ = false;
    ended_.notify_all();
}

void Agent::accept_one(const Socket& listener, bool is_local) {
    auto connection = std::make_shared<Socket>(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!*connection) {
        // Out of descriptors: the connection stays in the queue, so give others time to end.
        if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, 50);
        return;
    }
    if (!is_local) keep_alive(connection->fd());
    uint64_t id;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_ || sessions_.size() >= kMaxSessions) return;
        id = next_session_++;
        sessions_.emplace(id, Live{connection->fd(), 0});
    }
    // In both branches the socket closes after it has left the list of live ones, so that nobody
    // shuts down a descriptor that has meanwhile become another's.
    try {
        std::thread([this, id, is_local, connection] {
            {
                Session session(*this, id, connection->fd(), is_local);
                session.serve();
            }
            session_ended(id);
        }).detach();
    } catch (const std::system_error&) {
        session_ended(id);
    }
}

void Agent::session_ended(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    sessions_.erase(id);
    ended_.notify_all();
}

}  // namespace softfabric
