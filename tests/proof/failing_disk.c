/* Makes positioned reads and writes fail with EIO while the file that FAILING_DISK_WHILE names exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int broken(void)
{
    const char *path = getenv("FAILING_DISK_WHILE");
    return path && access(path, F_OK) == 0;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwrite64");
    if (broken()) {
        errno = EIO;
        return -1;
    }
    return next(fd, data, length, offset);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t offset)
{
    static ssize_t (*next)(int, void *, size_t, off64_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pread64");
    if (broken()) {
        errno = EIO;
        return -1;
    }
    return next(fd, data, length, offset);
}
