/* kill_shim.c - for tests/slow_kill_calls.sh: loaded in front of libc (LD_PRELOAD), it counts the
 * calls that change files and ends the process with SIGKILL just before the n-th. The end of the
 * machine is something else: there, what was written last may be lost; here, the kernel has it all.
 *
 *     KILL_AT=17 LD_PRELOAD=kill_shim.so keyhole tune ...       dies before call 17
 *     KILL_COUNT=file LD_PRELOAD=kill_shim.so keyhole tune ...  writes how many there were
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static void count(void) {
    const char *at = getenv("KILL_AT");
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (at && n == atol(at))
        kill(getpid(), SIGKILL);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("KILL_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", atomic_load(&calls));
        fclose(f);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *p, size_t n) {
    if (fd > 2)
        count();
    return NEXT(write)(fd, p, n);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    count();
    return NEXT(pwrite)(fd, p, n, at);
}
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) {
    count();
    return NEXT(pwrite64)(fd, p, n, at);
}
int fsync(int fd) {
    count();
    return NEXT(fsync)(fd);
}
int fdatasync(int fd) {
    count();
    return NEXT(fdatasync)(fd);
}
int ftruncate(int fd, off_t n) {
    count();
    return NEXT(ftruncate)(fd, n);
}
int ftruncate64(int fd, off64_t n) {
    count();
    return NEXT(ftruncate64)(fd, n);
}
int unlink(const char *path) {
    count();
    return NEXT(unlink)(path);
}
int unlinkat(int dir, const char *path, int flags) {
    count();
    return NEXT(unlinkat)(dir, path, flags);
}
int rename(const char *a, const char *b) {
    count();
    return NEXT(rename)(a, b);
}
int renameat(int d, const char *a, int e, const char *b) {
    count();
    return NEXT(renameat)(d, a, e, b);
}
int mkdir(const char *path, mode_t mode) {
    count();
    return NEXT(mkdir)(path, mode);
}
/* Of the ways to open a file only those that may make one count. */
#define OPEN(name, params, args) \
    int name params { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if (flags & (O_CREAT | O_TRUNC)) \
            count(); \
        return NEXT(name) args; \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
