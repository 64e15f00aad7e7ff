/* err.h - how internal code fills a kh_err.
 *
 *     if (n > limit)
 *         return kh_fail(err, KH_ELIMIT, "%s: %d tensors, at most %d are allowed", path, n, limit);
 *
 * One sentence says all: the file, the place in it, what was found, what was expected or what to
 * do. */
#ifndef KH_BASE_ERR_H
#define KH_BASE_ERR_H

#include "keyhole.h"

#include <stdarg.h>

/* Fills *err (which may be NULL) and returns code, so that callers can return the call itself. */
int kh_fail(kh_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same with a place: the message becomes "file:line: sentence" and err->line is set. line
 * counts from 1; 0 leaves it out. */
int kh_fail_at(kh_err *err, int code, const char *file, long line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The sentence for a failed allocation; it must not allocate. */
int kh_fail_memory(kh_err *err);

/* "path: what: strerror(errno)", with KH_EMISSING for ENOENT and KH_EIO otherwise. */
int kh_fail_errno(kh_err *err, const char *path, const char *what);

/* Puts "prefix: " in front of the message that is already there. Returns err's code. */
int kh_err_prefix(kh_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A static analyser sees one file at a time and must be told that a failure is never 0. (err.c
 * itself defines KH_ERR_HOME.) */
#if defined(__clang_analyzer__) && !defined(KH_ERR_HOME)
#define kh_fail(err, code, ...) ((void)kh_fail(err, code, __VA_ARGS__), (code))
#define kh_fail_at(err, code, file, line, ...) \
    ((void)kh_fail_at(err, code, file, line, __VA_ARGS__), (code))
#define kh_fail_memory(err) ((void)kh_fail_memory(err), KH_ENOMEM)
#define kh_fail_errno(err, path, what) ((void)kh_fail_errno(err, path, what), KH_EIO)
#endif

#endif
