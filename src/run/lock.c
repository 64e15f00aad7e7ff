/* lock.c - see lock.h. flock, not fcntl: it belongs to the open file, so that closing another
 * descriptor of it loses nothing, and the kernel lets go of it however the process ends. */
#include "run/lock.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The holder removes the file when it lets go: what was locked may no longer be what the name
 * stands for. */
static bool is_current(const kh_lock *l) {
    struct stat mine, named;
    return fstat(l->fd, &mine) == 0 && lstat(l->path, &named) == 0 && mine.st_ino == named.st_ino &&
        mine.st_dev == named.st_dev;
}

static int refuse(const kh_lock *l, const char *dir, kh_err *err) {
    char pid[32] = { 0 };
    ssize_t n = pread(l->fd, pid, sizeof pid - 1, 0);
    return kh_fail(err, KH_EIO,
        "%s: another process%s%s is at work on this run; wait for it, or end it first", dir,
        n > 0 ? " " : "", n > 0 ? pid : "");
}

int kh_lock_take(kh_lock *l, const char *dir, kh_err *err) {
    *l = (kh_lock){ kh_path_join(dir, "run.lock"), -1 };
    if (!l->path)
        return kh_fail_memory(err);
    for (;;) {
        int opened = kh_file_open_own(l->path, O_RDWR | O_CREAT, &l->fd, err);
        if (opened != 0)
            return opened;
        int tries = 0; /* one who only looks (kh_lock_held) has it for a moment */
        while (flock(l->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && tries < 10 &&
            usleep(2000) == 0)
            tries++;
        if (tries == 10 || flock(l->fd, LOCK_EX | LOCK_NB) != 0) {
            int rc = errno == EWOULDBLOCK ? refuse(l, dir, err)
                                          : kh_fail_errno(err, l->path, "cannot lock");
            close(l->fd);
            l->fd = -1;
            return rc;
        }
        if (is_current(l))
            break;
        close(l->fd);
    }
    char pid[32];
    int n = snprintf(pid, sizeof pid, "%ld", (long)getpid());
    if (ftruncate(l->fd, 0) != 0 || pwrite(l->fd, pid, (size_t)n, 0) != n)
        errno = 0; /* the number is a courtesy: the lock holds without it */
    return 0;
}

void kh_lock_release(kh_lock *l) {
    if (l->path && l->fd >= 0) {
        unlink(l->path);
        close(l->fd);
    }
    kh_free(l->path);
    *l = (kh_lock){ NULL, -1 };
}

bool kh_lock_held(const char *dir) {
    char *path = kh_path_join(dir, "run.lock");
    int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    kh_free(path);
    return held;
}
