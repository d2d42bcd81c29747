// NVIDIA's client library 1.2.0 reads /proc/modules in a loop that never ends when the file cannot be
// opened, as on kernels without module support. Such an open is answered with an empty file; with
// PROC_MODULES=absent every open of it fails, so that programs' own deadlines can be tested anywhere.
#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" FILE* fopen64(const char* path, const char* mode) {
    using Open = FILE* (*)(const char*, const char*);
    static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "fopen64"));
    if (std::strcmp(path, "/proc/modules") != 0) return real(path, mode);
    const char* wish = std::getenv("PROC_MODULES");
    if (wish && std::strcmp(wish, "absent") == 0) {
        errno = ENOENT;
        return nullptr;
    }
    FILE* file = real(path, mode);
    return file ? file : real("/dev/null", mode);
}
