/* portable.c - see portable.h. */
#include "base/portable.h"

#include <fcntl.h>
#include <unistd.h>

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

/* What looks for the program's files goes by the library's path, or by KEYHOLE_MODELS. */
size_t kh_own_program(char *path, size_t cap) {
    (void)cap;
    path[0] = '\0';
    return 0;
}

#endif
