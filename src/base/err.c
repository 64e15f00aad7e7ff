/* err.c - errors as values: a code, a place and a full sentence. */
#define KH_ERR_HOME
#include "base/err.h"

#include "base/controls.h"
#include "base/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int kh_err_set(kh_err *err, int code, const char *sentence) {
    return kh_fail(err, code, "%s", sentence);
}

const char *kh_code_text(int code) {
    switch (code) {
#define KH_CODE_CASE(name, value, text) \
    case value: return text;
        KH_CODES(KH_CODE_CASE)
#undef KH_CODE_CASE
    default: return "unknown code";
    }
}

/* A sentence too long for its buffer ends in "..."; the cut never splits a UTF-8 character. */
static void mark_cut(char *msg, size_t cap) {
    size_t end = cap - 4;
    while (end > 0 && ((unsigned char)msg[end] & 0xC0) == 0x80)
        end--;
    memcpy(msg + end, "...", 4);
}

static void put_text(char *msg, size_t cap, const char *fmt, va_list args) {
    int n = vsnprintf(msg, cap, fmt, args);
    if (n < 0)
        msg[0] = '\0';
    else if ((size_t)n >= cap)
        mark_cut(msg, cap);
    kh_hide_secrets(msg);
    kh_hide_controls(msg);
}

int kh_fail(kh_err *err, int code, const char *fmt, ...) {
    if (!err)
        return code;
    err->code = code;
    err->line = 0;
    va_list args;
    va_start(args, fmt);
    put_text(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    return code;
}

int kh_fail_at(kh_err *err, int code, const char *file, long line, const char *fmt, ...) {
    if (!err)
        return code;
    char sentence[sizeof err->msg];
    va_list args;
    va_start(args, fmt);
    put_text(sentence, sizeof sentence, fmt, args);
    va_end(args);
    if (line > 0)
        kh_fail(err, code, "%s:%ld: %s", file, line, sentence);
    else
        kh_fail(err, code, "%s: %s", file, sentence);
    err->line = line;
    return code;
}

int kh_fail_memory(kh_err *err) { return kh_fail(err, KH_ENOMEM, "out of memory"); }

int kh_fail_errno(kh_err *err, const char *path, const char *what) {
    int e = errno;
    return kh_fail(err, e == ENOENT || e == ENOTDIR ? KH_EMISSING : KH_EIO, "%s: %s: %s", path,
        what, strerror(e));
}

int kh_err_prefix(kh_err *err, const char *fmt, ...) {
    if (!err)
        return KH_EFORMAT;
    char front[sizeof err->msg], back[sizeof err->msg];
    va_list args;
    va_start(args, fmt);
    put_text(front, sizeof front, fmt, args);
    va_end(args);
    memcpy(back, err->msg, sizeof back);
    long line = err->line;
    kh_fail(err, err->code, "%s: %s", front, back);
    err->line = line;
    return err->code;
}
