/* A disk that fails, for tests: loaded before libc, it lets chosen calls of a process fail.
 *
 * SHIM_CALL   sync (fdatasync, fsync) or write (pwrite)
 * SHIM_PATH   only files whose path has this text
 * SHIM_AFTER  calls that succeed before
 * SHIM_COUNT  calls that fail then; 0 for all
 * SHIM_ERROR  number of the error
 * SHIM_TOLD   file that has a line for each failed call
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static int is_to_fail(const char *call, int file) {
    const char *chosen = getenv("SHIM_CALL"), *part = getenv("SHIM_PATH"), *told = getenv("SHIM_TOLD");
    char link[64], path[4096];
    if (!chosen || strcmp(chosen, call) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (part && !strstr(path, part))
        return 0;
    long at = atomic_fetch_add(&calls, 1), after = number("SHIM_AFTER"), count = number("SHIM_COUNT");
    if (at < after || (count && at >= after + count))
        return 0;
    int log = told ? open(told, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (log >= 0) {
        dprintf(log, "%s %s\n", call, path);
        close(log);
    }
    errno = (int)number("SHIM_ERROR");
    return 1;
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return is_to_fail("sync", file) ? -1 : real(file);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return is_to_fail("sync", file) ? -1 : real(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return is_to_fail("write", file) ? -1 : real(file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    return pwrite64(file, bytes, count, offset);
}
