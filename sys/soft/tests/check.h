// A check macro and a few helpers for test programs that are plain main() functions.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cuobjclient.h"
#include "cuobjserver.h"

// Ends the program on the first failure: what follows would only repeat it.
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);  \
            std::fflush(nullptr);                                                         \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)

#define CHECK_EQ(actual, expected)                                                        \
    do {                                                                                  \
        long long actual_ = static_cast<long long>(actual);                               \
        long long expected_ = static_cast<long long>(expected);                           \
        if (actual_ != expected_) {                                                       \
            std::fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, \
                         #actual, actual_, expected_, #expected);                         \
            std::fflush(nullptr);                                                         \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)

// Registered memory is touched by an agent's thread when a remote peer asks, as a NIC would. What
// orders that with the test's own accesses runs through another process, where the thread sanitizer
// cannot follow; so the test's own are not instrumented.
#define UNSANITIZED __attribute__((no_sanitize("thread")))

namespace testing {

UNSANITIZED inline uint8_t pattern(size_t index, unsigned seed) {
    return static_cast<uint8_t>(index * 7 + index / 251 + seed * 13);
}

UNSANITIZED inline void fill(void* memory, size_t size, unsigned seed) {
    auto* bytes = static_cast<uint8_t*>(memory);
    for (size_t i = 0; i < size; i++) bytes[i] = pattern(i, seed);
}

// Whether memory holds the pattern from position `from`.
UNSANITIZED inline bool holds(const void* memory, size_t size, unsigned seed, size_t from = 0) {
    auto* bytes = static_cast<const uint8_t*>(memory);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != pattern(from + i, seed)) return false;
    }
    return true;
}

UNSANITIZED inline bool all_equal(const void* memory, size_t size, uint8_t value) {
    auto* bytes = static_cast<const uint8_t*>(memory);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value) return false;
    }
    return true;
}

inline ssize_t no_get(const void*, char*, size_t, loff_t, const cufileRDMAInfo_t*) { return -1; }
inline ssize_t no_put(const void*, const char*, size_t, loff_t, const cufileRDMAInfo_t*) { return -1; }

inline CUObjOps_t no_callbacks() { return {no_get, no_put}; }

// A token as a string, released at once: the text stays valid as long as the registration.
inline std::string token_for(cuObjClient& client, void* start, size_t size, size_t offset = 0,
                             cuObjOpType_t operation = CUOBJ_PUT) {
    char* text = nullptr;
    CHECK_EQ(client.cuMemObjGetRDMAToken(start, size, offset, operation, &text), CU_OBJ_SUCCESS);
    std::string token = text;
    CHECK_EQ(client.cuMemObjPutRDMAToken(text), CU_OBJ_SUCCESS);
    return token;
}

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// A client in a process of its own, driven by one-letter commands over a pipe pair.
class ClientProcess {
public:
    // `body` runs in the child with a function that sends a line to the parent and one that waits
    // for the parent's next command. The child exits with what it returns.
    using Say = std::function<void(const std::string&)>;
    using Listen = std::function<char()>;

    explicit ClientProcess(const std::function<int(Say, Listen)>& body) {
        int up[2], down[2];
        CHECK(::pipe(up) == 0 && ::pipe(down) == 0);
        pid_ = ::fork();
        CHECK(pid_ >= 0);
        if (pid_ == 0) {
            ::close(up[0]);
            ::close(down[1]);
            int code = body(
                [fd = up[1]](const std::string& line) {
                    std::string text = line + "\n";
                    CHECK(::write(fd, text.data(), text.size()) ==
                          static_cast<ssize_t>(text.size()));
                },
                [fd = down[0]] {
                    char command = 0;
                    return ::read(fd, &command, 1) == 1 ? command : '\0';
                });
            std::fflush(nullptr);
            _exit(code);
        }
        ::close(up[1]);
        ::close(down[0]);
        from_ = up[0];
        to_ = down[1];
    }

    ~ClientProcess() {
        ::close(to_);
        ::close(from_);
        if (pid_ > 0) finish();
    }

    pid_t pid() const { return pid_; }

    std::string line() {
        std::string text;
        char c;
        while (::read(from_, &c, 1) == 1 && c != '\n') text += c;
        return text;
    }

    void command(char c) { CHECK(::write(to_, &c, 1) == 1); }

    // The child's exit status, or minus the signal that ended it.
    int finish() {
        int status = 0;
        CHECK(::waitpid(pid_, &status, 0) == pid_);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

private:
    pid_t pid_;
    int from_, to_;
};

}  // namespace testing
