/* file.c - see file.h. Reads and writes are repeated after EINTR and short counts. */
#include "base/file.h"

#include "base/alloc.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 65536 };

static int read_all(
    int fd, const char *path, size_t expected, size_t max, kh_buf *out, kh_err *err) {
    if (!kh_buf_reserve(out, expected + STEP))
        return kh_fail_memory(err);
    for (;;) {
        if (out->len > max) /* a file that grows while it is read, or did not tell its size */
            return kh_fail(err, KH_ELIMIT,
                "%s: larger than %zu bytes, the limit for this kind of file", path, max);
        if (!kh_buf_reserve(out, STEP))
            return kh_fail_memory(err);
        ssize_t n = read(fd, out->data + out->len, STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kh_fail_errno(err, path, "cannot read");
        if (n == 0)
            break;
        out->len += (size_t)n;
    }
    out->data[out->len] = '\0';
    return 0;
}

int kh_file_read(const char *path, size_t max, kh_buf *out, kh_err *err) {
    if (max > KH_BUF_MAX)
        max = KH_BUF_MAX;
    *out = kh_buf_init(max + STEP);
    int fd = open(
        path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not hang us */
    if (fd < 0)
        return kh_fail_errno(err, path, "cannot open");
    struct stat st;
    int rc;
    if (fstat(fd, &st) != 0)
        rc = kh_fail_errno(err, path, "cannot stat");
    else if (S_ISDIR(st.st_mode))
        rc = kh_fail(err, KH_EARG, "%s: is a directory, expected a file", path);
    else if (!S_ISREG(st.st_mode))
        rc = kh_fail(err, KH_EARG, "%s: is not a regular file", path);
    else if ((size_t)st.st_size > max)
        rc = kh_fail(err, KH_ELIMIT, "%s: %lld bytes, the limit for this kind of file is %zu", path,
            (long long)st.st_size, max);
    else
        rc = read_all(fd, path, (size_t)st.st_size, max, out, err);
    close(fd);
    return rc;
}

int kh_file_writer_open(kh_file_writer *w, const char *path, kh_err *err) {
    *w = (kh_file_writer){ .fd = -1 };
    kh_buf temp = kh_buf_init(1 << 16);
    kh_buf_printf(&temp, "%s.tmp-%ld", path, (long)getpid());
    w->temp = kh_buf_take(&temp, NULL);
    w->path = kh_strdup(path);
    if (!w->temp || !w->path)
        return kh_fail_memory(err);
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->fd >= 0 ? 0 : kh_fail_errno(err, path, "cannot create");
}

int kh_file_writer_put(kh_file_writer *w, const void *bytes, size_t n, kh_err *err) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t done = write(w->fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return kh_fail_errno(err, w->path, "cannot write");
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

int kh_file_writer_close(kh_file_writer *w, bool keep, kh_err *err) {
    int rc = 0;
    if (w->fd >= 0) {
        if (keep && fsync(w->fd) != 0)
            rc = kh_fail_errno(err, w->path, "cannot flush to disk");
        if (close(w->fd) != 0 && keep && rc == 0)
            rc = kh_fail_errno(err, w->path, "cannot write");
        if (keep && rc == 0 && rename(w->temp, w->path) != 0)
            rc = kh_fail_errno(err, w->path, "cannot rename into place");
        if (!keep || rc != 0)
            unlink(w->temp);
    }
    kh_free(w->temp);
    kh_free(w->path);
    *w = (kh_file_writer){ .fd = -1 };
    return rc;
}

int kh_file_write(const char *path, const void *bytes, size_t n, kh_err *err) {
    kh_file_writer w;
    int rc = kh_file_writer_open(&w, path, err);
    if (rc == 0)
        rc = kh_file_writer_put(&w, bytes, n, err);
    int closed = kh_file_writer_close(&w, rc == 0, rc == 0 ? err : NULL);
    return rc ? rc : closed;
}

bool kh_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool kh_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int kh_dir_make(const char *path, kh_err *err) {
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && kh_dir_exists(path)))
        return 0;
    return kh_fail_errno(err, path, "cannot make the folder");
}

char *kh_path_join(const char *dir, const char *name) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    size_t n = strlen(dir);
    kh_buf_printf(&b, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name);
    return kh_buf_take(&b, NULL);
}

const char *kh_path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
