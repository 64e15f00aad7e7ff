/* file.c - see file.h. Reads and writes are repeated after EINTR and short counts. */
#include "base/file.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/portable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/* ------------------------------------------------------------------- what is written, and where
 *
 * Folders come from strangers, and may hold links, pipes and second names of files elsewhere under
 * the names that we write. So a file is written under a temporary name that nobody can know before
 * (16 random hexadecimal digits, made with O_EXCL), and renamed, which replaces a link and does not
 * follow it; both by names within the folder that was opened once. A process holds a lock on its
 * temporary file: one without is of a process that was killed, and is removed by the next that
 * writes the same file. */

enum { TEMP_DIGITS = 16 };
static const char TEMP_MARK[] = ".tmp-";

/* "NAME.tmp-0123456789abcdef": whether it is a temporary file of NAME. */
static bool is_temp(const char *entry, const char *name) {
    size_t n = strlen(name), mark = sizeof TEMP_MARK - 1;
    return strncmp(entry, name, n) == 0 && strncmp(entry + n, TEMP_MARK, mark) == 0 &&
        strspn(entry + n + mark, "0123456789abcdef") == TEMP_DIGITS &&
        entry[n + mark + TEMP_DIGITS] == '\0';
}

static bool same_file(int fd, int dir, const char *name) {
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

static void remove_stale(int dir, const char *name) {
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    if (!list) {
        if (again >= 0)
            close(again);
        return; /* what cannot be listed is not tidied */
    }
    for (struct dirent *e; (e = readdir(list)) != NULL;) {
        if (!is_temp(e->d_name, name))
            continue;
        int fd = openat(dir, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            flock(fd, LOCK_EX | LOCK_NB) == 0 && same_file(fd, dir, e->d_name))
            unlinkat(dir, e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    closedir(list);
}

static bool random_digits(char *out) {
    unsigned char bytes[TEMP_DIGITS / 2];
    if (!kh_random_bytes(bytes, sizeof bytes, true))
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* A new file of a new name, locked. Between its making and its lock another process may have taken
 * it for a stale one: then there is a next. */
static int make_temp(kh_file_writer *w, kh_err *err) {
    size_t at = strlen(w->temp) - TEMP_DIGITS;
    for (int tries = 0; tries < 100; tries++) {
        if (!random_digits(w->temp + at))
            return kh_fail_errno(err, w->path, "cannot draw a random name");
        w->fd = openat(w->dir, w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (w->fd < 0 && errno == EEXIST)
            continue;
        if (w->fd < 0)
            return kh_fail_errno(err, w->path, "cannot create");
        if (flock(w->fd, LOCK_EX | LOCK_NB) != 0 || same_file(w->fd, w->dir, w->temp))
            return 0; /* a file system without locks has no one who tidies, either */
        close(w->fd);
        w->fd = -1;
    }
    return kh_fail(err, KH_EIO, "%s: cannot create: no free temporary name", w->path);
}

/* The folder of a path, opened. */
static int open_folder(const char *path, kh_err *err) {
    const char *base = kh_path_base(path);
    char *folder = base == path ? kh_strdup(".") : kh_strndup(path, (size_t)(base - path));
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (!folder)
        kh_fail_memory(err);
    else if (fd < 0)
        kh_fail_errno(err, path, "cannot create");
    kh_free(folder);
    return fd;
}

int kh_file_writer_open(kh_file_writer *w, const char *path, kh_err *err) {
    *w = (kh_file_writer){ .fd = -1, .dir = -1 };
    kh_err why = { 0 };
    kh_buf temp = kh_buf_init(1 << 16);
    kh_buf_printf(&temp, "%s%s%0*d", kh_path_base(path), TEMP_MARK, (int)TEMP_DIGITS, 0);
    w->temp = kh_buf_take(&temp, NULL);
    w->path = kh_strdup(path);
    if (!w->temp || !w->path)
        return kh_fail_memory(err);
    w->dir = open_folder(path, &why);
    if (w->dir < 0)
        return kh_fail(err, why.code, "%s", why.msg);
    remove_stale(w->dir, kh_path_base(w->path));
    return make_temp(w, err);
}

int kh_file_open_own(const char *path, int flags, int *out, kh_err *err) {
    kh_err why = { 0 };
    struct stat st;
    int dir = open_folder(path, &why), fd = -1;
    *out = -1;
    if (dir < 0)
        return kh_fail(err, why.code, "%s", why.msg);
    /* O_TRUNC has to wait until it is known what would be cut. */
    fd = openat(dir, kh_path_base(path),
        (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0666);
    int rc = 0;
    if (fd < 0 && errno == ELOOP)
        rc = kh_fail(err, KH_EIO, "%s: is a link; it is not followed: remove it first", path);
    else if (fd < 0)
        rc = kh_fail_errno(err, path, "cannot write");
    else if (fstat(fd, &st) != 0)
        rc = kh_fail_errno(err, path, "cannot stat");
    else if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
        rc = kh_fail(err, KH_EIO, "%s: is %s; remove it first", path,
            S_ISREG(st.st_mode) ? "a second name of another file" : "not a regular file");
    else if ((flags & O_TRUNC) && ftruncate(fd, 0) != 0)
        rc = kh_fail_errno(err, path, "cannot write");
    close(dir);
    if (rc == 0)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return rc;
}

int kh_file_open_log(const char *path, FILE **out, kh_err *err) {
    int fd;
    *out = NULL;
    unlink(path);
    int rc = kh_file_open_own(path, O_WRONLY | O_CREAT | O_EXCL, &fd, err);
    if (rc != 0)
        return rc;
    if (!(*out = fdopen(fd, "w"))) {
        close(fd);
        return kh_fail_memory(err);
    }
    return 0;
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
        if (keep && rc == 0 && renameat(w->dir, w->temp, w->dir, kh_path_base(w->path)) != 0)
            rc = kh_fail_errno(err, w->path, "cannot rename into place");
        if (!keep || rc != 0)
            unlinkat(w->dir, w->temp, 0);
    }
    if (w->dir >= 0)
        close(w->dir);
    kh_free(w->temp);
    kh_free(w->path);
    *w = (kh_file_writer){ .fd = -1, .dir = -1 };
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

int kh_file_open_data(const char *path, int *fd, struct stat *then, kh_err *err) {
    *fd = open(
        path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not hang us */
    if (*fd < 0)
        return kh_fail_errno(err, path, "cannot open");
    if (fstat(*fd, then) != 0)
        return kh_fail_errno(err, path, "cannot stat");
    if (!S_ISREG(then->st_mode))
        return kh_fail(err, KH_EARG, "%s: is not a regular file", path);
    return 0;
}

int kh_file_unchanged(const char *path, int fd, const struct stat *then, kh_err *err) {
    struct stat now;
    if (fstat(fd, &now) != 0)
        return kh_fail_errno(err, path, "cannot stat");
    if (now.st_size != then->st_size || now.st_mtim.tv_sec != then->st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != then->st_mtim.tv_nsec)
        return kh_fail(err, KH_EIO,
            "%s: changed while it was read; load it again when nobody writes to it", path);
    return 0;
}

int kh_file_read_at(int fd, const char *path, size_t from, void *out, size_t n, kh_err *err) {
    char *to = out;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return kh_fail_errno(err, path, "cannot read");
        if (got == 0)
            return kh_fail(err, KH_EIO, "%s: became shorter while it was read", path);
        to += got;
        from += (size_t)got;
        n -= (size_t)got;
    }
    return 0;
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

int kh_dir_make_own(const char *path, kh_err *err) {
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return 0;
    int why = errno;
    if (why == EEXIST && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (why == EEXIST && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return kh_fail(err, KH_EIO, "%s: is a link; it is not followed: remove it first", path);
    errno = why;
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
