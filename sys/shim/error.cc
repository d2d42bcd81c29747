// Error text, and the exceptions that tests ask for.
#include "internal.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace vgw_cuobj {

namespace {
thread_local int32_t armed_throw = 0;
}

void set_text(vgw_cuobj_text error, const char *text) noexcept {
    if (error.data == nullptr || error.capacity_bytes == 0) {
        return;
    }
    size_t length = std::strlen(text);
    if (length >= error.capacity_bytes) {
        length = error.capacity_bytes - 1;
    }
    std::memcpy(error.data, text, length);
    error.data[length] = '\0';
}

vgw_cuobj_status fail(vgw_cuobj_text error, vgw_cuobj_status status, const char *text) noexcept {
    set_text(error, text);
    return status;
}

vgw_cuobj_status refused(vgw_cuobj_text error, const char *what, int64_t code) noexcept {
    char text[160];
    std::snprintf(text, sizeof text, "%s: %lld", what, static_cast<long long>(code));
    return fail(error, VGW_CUOBJ_REFUSED, text);
}

vgw_cuobj_status null_argument(vgw_cuobj_text error, const char *name) noexcept {
    char text[96];
    std::snprintf(text, sizeof text, "argument %s is null", name);
    return fail(error, VGW_CUOBJ_NULL_ARGUMENT, text);
}

void throw_if_armed() {
    const int32_t kind = armed_throw;
    if (kind == 0) {
        return;
    }
    armed_throw = 0;
    switch (kind) {
    case 1:
        throw std::runtime_error("thrown for a test");
    case 3:
        throw std::bad_alloc();
    default:
        throw kind;
    }
}

}  // namespace vgw_cuobj

extern "C" void vgw_cuobj_test_throw(int32_t kind) {
    vgw_cuobj::armed_throw = kind;
}
