#include "sdk/client_state.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "fabric/device.h"
#include "fabric/socket.h"
#include "sdk/client_config.h"
#include "sdk/telemetry.h"
#include "sdk/token.h"

namespace cuobj_soft {

namespace {

constexpr int kDescriptorVersion = 2;
constexpr size_t kPage = 4096;

struct FreeDeleter {
    void operator()(void* pointer) const { std::free(pointer); }
};

}  // namespace

Registry& Registry::instance() {
    static std::mutex mutex;
    static Registry* registry = nullptr;
    static unsigned epoch = 0;
    // A fork while another thread is in this function would leave the mutex locked in the child;
    // that is as long as it takes to read two words, and forking among threads is the program's risk.
    std::lock_guard<std::mutex> lock(mutex);
    if (!registry || epoch != softfabric::fork_epoch()) {
        epoch = softfabric::fork_epoch();
        registry = new Registry;
    }
    return *registry;
}

bool Registry::start_agent() {
    if (agent_) return true;
    ClientConfig config;
    std::string error;
    bool loaded = config.load(&error);
    for (const std::string& note : config.notes) client_telemetry().error(note);
    if (loaded) agent_ = softfabric::Agent::start(config.address, config.port, &error);
    if (!agent_) {
        client_telemetry().error(error);
        return false;
    }
    endpoint_ = agent_->open_endpoint(config.dc_key);
    client_telemetry().info("agent listens on " + config.address.text() + " port " +
                            std::to_string(agent_->port()));
    return true;
}

bool Registry::add(void* start, size_t size) {
    auto address = reinterpret_cast<uint64_t>(start);
    if (!start || size == 0 || size > CUOBJ_MAX_MEMORY_REG_SIZE || address + size < address) {
        client_telemetry().error("a registration needs a start and 1 byte to 4 GiB - 64 KiB");
        return false;
    }
    softfabric::PointerKind kind = softfabric::classify_pointer(start);
    if (kind == softfabric::PointerKind::kManaged) {
        client_telemetry().error("managed memory cannot be registered; use it unregistered");
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (registrations_.count(address) != 0) {
        client_telemetry().error("the memory is registered already");
        return false;
    }
    if (!start_agent()) return false;
    uint32_t rkey = agent_->memory().add(
        address, size, softfabric::kRemoteRead | softfabric::kRemoteWrite,
        kind == softfabric::PointerKind::kDevice ? softfabric::MemoryKind::kDevice
                                                 : softfabric::MemoryKind::kHost);
    registrations_.emplace(address, Registration{size, rkey});
    client_telemetry().debug("registered " + std::to_string(size) + " bytes");
    return true;
}

bool Registry::remove(void* start) {
    uint32_t rkey;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = registrations_.find(reinterpret_cast<uint64_t>(start));
        if (found == registrations_.end()) return false;
        rkey = found->second.rkey;
        registrations_.erase(found);
    }
    // Outside the lock: this may wait, and other registrations go on meanwhile.
    agent_->memory().remove(rkey);
    client_telemetry().debug("deregistered");
    return true;
}

size_t Registry::size_of(const void* start) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = registrations_.find(reinterpret_cast<uint64_t>(start));
    return found == registrations_.end() ? 0 : found->second.size;
}

char* Registry::mint(void* start, size_t size, size_t offset) {
    auto address = reinterpret_cast<uint64_t>(start);
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = registrations_.find(address);
    if (found == registrations_.end()) return nullptr;
    const Registration& registration = found->second;
    if (size == 0 || offset > registration.size || size > registration.size - offset) return nullptr;
    Token token;
    token.address = address + offset;
    token.size = static_cast<uint32_t>(size);
    token.rkey = registration.rkey;
    token.lid = agent_->port();
    token.dct = endpoint_;
    token.has_gid = true;
    token.gid = agent_->address().bytes;
    char* text = strdup(token.text().c_str());
    if (text) tokens_.insert(text);
    return text;
}

bool Registry::discard(char* token) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (tokens_.erase(token) == 0) return false;
    }
    std::free(token);
    return true;
}

ssize_t ClientState::call(cuObjOpType_t operation, void* context, void* start, size_t size,
                          loff_t offset, void* registered) {
    Registry& registry = Registry::instance();
    char* token = nullptr;
    try {
        token = registry.mint(registered, size, 0);
    } catch (const std::bad_alloc&) {
    }
    if (!token) return -1;
    CallHandle handle{context};
    cufileRDMAInfo_t info{};
    info.version = kDescriptorVersion;
    info.desc_len = static_cast<int>(kTokenLength + 1);
    info.desc_str = token;
    ssize_t moved = -1;
    // The callback is the program's; an exception of it passes on once the token is given back.
    try {
        if (operation == CUOBJ_GET) {
            if (ops_.get) moved = ops_.get(&handle, static_cast<char*>(start), size, offset, &info);
        } else {
            if (ops_.put) moved = ops_.put(&handle, static_cast<char*>(start), size, offset, &info);
        }
    } catch (...) {
        registry.discard(token);
        throw;
    }
    registry.discard(token);
    return moved;
}

ssize_t ClientState::transfer(cuObjOpType_t operation, void* context, void* start, size_t size,
                              loff_t offset) {
    if (!start || size == 0) return -1;
    size_t registered = Registry::instance().size_of(start);
    if (registered != 0) {
        if (size > registered) return -1;
        return call(operation, context, start, size, offset, start);
    }
    switch (softfabric::classify_pointer(start)) {
        case softfabric::PointerKind::kManaged:
        case softfabric::PointerKind::kDevice:
            return through_host_memory(operation, context, start, size, offset);
        default:
            client_telemetry().error("host memory must be registered before a transfer");
            return -1;
    }
}

ssize_t ClientState::through_host_memory(cuObjOpType_t operation, void* context, void* start,
                                         size_t size, loff_t offset) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kPage, size) != 0) return -1;
    std::unique_ptr<void, FreeDeleter> bounce(memory);
    auto device = reinterpret_cast<uint64_t>(start);
    if (operation == CUOBJ_PUT && !softfabric::copy_from_device(memory, device, size)) return -1;
    Registry& registry = Registry::instance();
    if (!registry.add(memory, size)) return -1;
    struct Deregister {
        Registry& registry;
        void* memory;
        ~Deregister() { registry.remove(memory); }
    } deregister{registry, memory};
    ssize_t moved = call(operation, context, start, size, offset, memory);
    if (operation == CUOBJ_GET && moved > 0) {
        size_t got = static_cast<size_t>(moved) < size ? static_cast<size_t>(moved) : size;
        if (!softfabric::copy_to_device(device, memory, got)) return -1;
    }
    return moved;
}

}  // namespace cuobj_soft
