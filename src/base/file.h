/* file.h - whole files, read and written with every failure named. */
#ifndef KH_BASE_FILE_H
#define KH_BASE_FILE_H

#include "base/buf.h"
#include "keyhole.h"

#include <stdio.h>

/* Reads a regular file of at most `max` bytes into *out (initialised here; free it with
 * kh_buf_free, also on failure). */
int kh_file_read(const char *path, size_t max, kh_buf *out, kh_err *err);

/* Writes through a temporary file in the same folder, fsync and rename: readers see the old file or
 * the new, never half. */
int kh_file_write(const char *path, const void *bytes, size_t n, kh_err *err);

/* The same piece by piece, for files too large to hold: nothing has the final name before close
 * with keep = true, which flushes and renames. Close after every open, failed ones too; keep =
 * false throws the temporary file away. */
typedef struct kh_file_writer {
    char *path, *temp; /* temp: a name within the folder */
    int fd, dir;
} kh_file_writer;
int kh_file_writer_open(kh_file_writer *, const char *path, kh_err *err);
int kh_file_writer_put(kh_file_writer *, const void *bytes, size_t n, kh_err *err);
int kh_file_writer_close(kh_file_writer *, bool keep, kh_err *err);

/* Opens a file that is written in place, such as a log or a lock: flags are open's. A link, a pipe
 * and a second name of another file are refused before anything is cut or written. */
int kh_file_open_own(const char *path, int flags, int *fd, kh_err *err);
/* A log, begun anew: whatever stands under the name is removed first, a link that leads elsewhere
 * among it. */
int kh_file_open_log(const char *path, FILE **out, kh_err *err);

bool kh_file_exists(const char *path); /* a regular file */
/* Opens a regular file that is read in pieces, by kh_file_read_at: *fd, -1 if it cannot be opened,
 * is the caller's to close, also on failure. *then is for kh_file_unchanged. */
struct stat;
int kh_file_open_data(const char *path, int *fd, struct stat *then, kh_err *err);
/* Fails if the file's size or time of change is another one than when it was opened: somebody has
 * written to it meanwhile. Good against a download that is still under way, not against forgers. */
int kh_file_unchanged(const char *path, int fd, const struct stat *then, kh_err *err);
/* Exactly n bytes of an open file, from byte `from` on; a file that ends before is an error. `path`
 * is for the sentence. */
int kh_file_read_at(int fd, const char *path, size_t from, void *out, size_t n, kh_err *err);

bool kh_dir_exists(const char *path);
int kh_dir_make(
    const char *path, kh_err *err); /* the last component only; an existing folder is fine */
/* The same for a folder within a run: a link in its place is refused. */
int kh_dir_make_own(const char *path, kh_err *err);

/* "dir/name" in fresh memory (kh_free), or NULL when out of memory. */
char *kh_path_join(const char *dir, const char *name);
/* The part after the last '/'. */
const char *kh_path_base(const char *path);

#endif
