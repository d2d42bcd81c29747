#include "verbs/log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace softverbs {

namespace {

void print(const char* prefix, const char* format, va_list arguments) {
    char text[512];
    std::vsnprintf(text, sizeof text, format, arguments);
    std::fprintf(stderr, "softverbs: %s%s\n", prefix, text);
}

}  // namespace

bool tracing() {
    static const bool on = [] {
        const char* value = std::getenv("SOFTVERBS_LOG");
        return value && *value && *value != '0';
    }();
    return on;
}

void trace(const char* format, ...) {
    if (!tracing()) return;
    va_list arguments;
    va_start(arguments, format);
    print("", format, arguments);
    va_end(arguments);
}

int complain(int error_number, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print("refused: ", format, arguments);
    va_end(arguments);
    return error_number;
}

}  // namespace softverbs
