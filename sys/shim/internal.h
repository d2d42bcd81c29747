// What the files of the shim share: the guard around every function, and the detection of members.
//
// No vendor header is included here: the server's and the client's declare some types twice, so
// each of them is seen by its own translation unit only.
#ifndef VGW_CUOBJ_SHIM_INTERNAL_H
#define VGW_CUOBJ_SHIM_INTERNAL_H

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iosfwd>
#include <new>
#include <type_traits>
#include <utility>

// The shim is compiled with -fvisibility=hidden; the ABI is what is seen.
#pragma GCC visibility push(default)
#include "wrapper.h"
#pragma GCC visibility pop

namespace vgw_cuobj {

// Writes `text`, cut to fit, into the caller's buffer.
void set_text(vgw_cuobj_text error, const char *text) noexcept;

// Writes the text and gives the status back, so that a refusal is one expression.
vgw_cuobj_status fail(vgw_cuobj_text error, vgw_cuobj_status status, const char *text) noexcept;

// Text with one number in it, for codes of the library.
vgw_cuobj_status refused(vgw_cuobj_text error, const char *what, int64_t code) noexcept;

vgw_cuobj_status null_argument(vgw_cuobj_text error, const char *name) noexcept;

// Throws what vgw_cuobj_test_throw asked for on this thread, once.
void throw_if_armed();

// Runs a function's body so that nothing it throws leaves the shim.
template <class Body>
vgw_cuobj_status guarded(vgw_cuobj_text error, Body &&body) noexcept {
    set_text(error, "");
    try {
        throw_if_armed();
        return body();
    } catch (const std::exception &exception) {
        return fail(error, VGW_CUOBJ_EXCEPTION, exception.what());
    } catch (...) {
        return fail(error, VGW_CUOBJ_EXCEPTION, "exception of unknown type");
    }
}

// An object of a vendor's class with room behind it. Public headers of cuObjClient declare 64 bytes
// where the constructor of 1.2.0 writes 72; memory after the object costs nothing and keeps such a
// difference between header and library from corrupting the heap.
template <class Object>
class Roomy {
public:
    template <class... Args>
    explicit Roomy(Args &&...args) {
        new (storage_) Object(std::forward<Args>(args)...);
    }
    Roomy(const Roomy &) = delete;
    Roomy &operator=(const Roomy &) = delete;
    ~Roomy() { get().~Object(); }

    Object &get() { return *std::launder(reinterpret_cast<Object *>(storage_)); }

private:
    static constexpr size_t kRoom = 256;
    alignas(alignof(std::max_align_t)) unsigned char storage_[sizeof(Object) + kRoom] = {};
};

// ---- Members that not every version of the libraries has ---------------------------------------

template <class T, class = void>
struct HasTelemetryMask : std::false_type {};
template <class T>
struct HasTelemetryMask<T, std::void_t<decltype(T::setTelemFlags(0u, 0u))>> : std::true_type {};

template <class T, class = void>
struct HasVersion : std::false_type {};
template <class T>
struct HasVersion<T, std::enable_if_t<std::is_convertible_v<decltype(T::getVersion()), const char *>>>
    : std::true_type {};

template <class T>
const char *version_of() {
    if constexpr (HasVersion<T>::value) {
        const char *text = T::getVersion();
        return text != nullptr ? text : "";
    } else {
        return "";
    }
}

// ---- Telemetry -----------------------------------------------------------------------------------

// The stream of one library and where its lines go. Lives to the end of the process.
class Telemetry {
public:
    explicit Telemetry(size_t slot);
    Telemetry(const Telemetry &) = delete;
    Telemetry &operator=(const Telemetry &) = delete;

    void set_sink(vgw_cuobj_line_fn sink, void *context);
    std::ostream &stream() { return *stream_; }

    // True for the first caller since the last stop: the library counts its set-ups.
    bool begin();
    // True when there is something to stop.
    bool end();

private:
    class Lines;
    Lines *lines_;
    std::ostream *stream_;
};

// One for each library; never destroyed, because the library may write during exit.
Telemetry &server_telemetry();
Telemetry &client_telemetry();

template <class Class>
vgw_cuobj_status set_flags(uint32_t flags, uint32_t second_mask, vgw_cuobj_text error) {
    if constexpr (HasTelemetryMask<Class>::value) {
        Class::setTelemFlags(flags, second_mask);
    } else {
        if (second_mask != 0) {
            return fail(error, VGW_CUOBJ_UNSUPPORTED, "this library takes one mask of telemetry flags");
        }
        Class::setTelemFlags(flags);
    }
    return VGW_CUOBJ_OK;
}

template <class Class>
vgw_cuobj_status start_telemetry(Telemetry &telemetry, vgw_cuobj_line_fn sink, void *context,
                                 uint32_t flags, vgw_cuobj_text error) {
    if (sink == nullptr) {
        return null_argument(error, "sink");
    }
    telemetry.set_sink(sink, context);
    if (telemetry.begin()) {
        Class::setupTelemetry(false, &telemetry.stream());
    }
    return set_flags<Class>(flags, 0, error);
}

template <class Class>
vgw_cuobj_status stop_telemetry(Telemetry &telemetry) {
    if (telemetry.end()) {
        Class::shutdownTelemetry();
    }
    return VGW_CUOBJ_OK;
}

// ---- What provider.cc asks of the other files -----------------------------------------------------

uint32_t server_abilities();
const char *server_version();
uint32_t client_abilities();
const char *client_version();

}  // namespace vgw_cuobj

#endif
