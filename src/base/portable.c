/* portable.c - see portable.h. The first half is Linux's, the second what any Unix with dladdr has:
 * macOS, the BSDs and Solaris do. "make test-portable" builds and tests the second half on Linux.
 */
#include "base/portable.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(KH_PORTABLE)
#include <malloc.h>
#include <pthread.h>
/* One thread at a time: where another allocator stands in for glibc's (a sanitizer's, one that is
 * preloaded), this is the first call that glibc's own sees, and two at once would both set it up.
 */
void kh_give_back(void) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    malloc_trim(0);
    pthread_mutex_unlock(&one);
}
#else
void kh_give_back(void) {}
#endif

#if defined(__linux__) && !defined(KH_PORTABLE)

#include <sched.h>
#include <sys/random.h>

bool kh_random_bytes(void *out, size_t n, bool wait) {
    return getrandom(out, n, wait ? 0 : GRND_NONBLOCK) == (ssize_t)n;
}

int kh_pipe(int fd[2]) { return pipe2(fd, O_CLOEXEC); }

int kh_cores_allowed(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    return known ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

size_t kh_own_program(char *path, size_t cap) {
    ssize_t n = readlink("/proc/self/exe", path, cap - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

#else

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The device waits where it must, whatever was asked for. */
bool kh_random_bytes(void *out, size_t n, bool wait) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out, n) : -1;
    (void)wait;
    if (fd >= 0)
        close(fd);
    return got == (ssize_t)n;
}

/* Between the two calls another thread may start a program that inherits the pipe. */
int kh_pipe(int fd[2]) {
    int rc = pipe(fd);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    return rc;
}

int kh_cores_allowed(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

/* The real path of folder/name, if that is a program and fits. */
static size_t real_program(const char *folder, size_t n, const char *name, char *path, size_t cap) {
    char joined[4096];
    int length = snprintf(joined, sizeof joined, "%.*s%s%s", (int)n, folder, n ? "/" : "", name);
    char *real = length > 0 && (size_t)length < sizeof joined && access(joined, X_OK) == 0
        ? realpath(joined, NULL)
        : NULL;
    size_t found = real && strlen(real) < cap ? strlen(real) : 0;
    if (found)
        memcpy(path, real, found + 1);
    free(real);
    return found;
}

/* The dynamic linker knows what the program was called as: a path, or a word that the shell found
 * in PATH. Code that is part of a shared library has no such way to the program that loaded it; its
 * files are looked for beside the library (place.c). */
size_t kh_own_program(char *path, size_t cap) {
    static const char HERE;
    Dl_info in;
    path[0] = '\0';
    if (dladdr(&HERE, &in) == 0 || !in.dli_fname || strstr(in.dli_fname, ".so"))
        return 0;
    if (strchr(in.dli_fname, '/'))
        return real_program("", 0, in.dli_fname, path, cap);
    size_t found = 0;
    for (const char *at = getenv("PATH"); at && !found;) {
        size_t n = strcspn(at, ":");
        found = n > 0 ? real_program(at, n, in.dli_fname, path, cap) : 0;
        at = at[n] ? at + n + 1 : NULL;
    }
    return found;
}

#endif
