/* buf.c - growable bytes; see buf.h. */
#include "base/buf.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

kh_buf kh_buf_init(size_t max) { return (kh_buf){ .max = max }; }

void kh_buf_free(kh_buf *b) {
    kh_free(b->data);
    *b = kh_buf_init(b->max);
}

bool kh_buf_failed(const kh_buf *b) { return b->failed; }

void kh_buf_reset(kh_buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

bool kh_buf_reserve(kh_buf *b, size_t more) {
    if (b->failed)
        return false;
    bool fits = more <= b->max - b->len &&
        more < SIZE_MAX - b->len; /* the second: a byte more, for the NUL, must not wrap */
    if (!fits || !kh_grow(&b->data, &b->cap, b->len + more + 1, 1)) {
        b->failed = true;
        return false;
    }
    return true;
}

void kh_buf_bytes(kh_buf *b, const void *bytes, size_t n) {
    if (!kh_buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void kh_buf_text(kh_buf *b, const char *s) { kh_buf_bytes(b, s, strlen(s)); }

void kh_buf_char(kh_buf *b, char c) { kh_buf_bytes(b, &c, 1); }

void kh_buf_printf(kh_buf *b, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        b->failed = true;
    else if (kh_buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

char *kh_buf_take(kh_buf *b, size_t *len) {
    kh_buf_bytes(b, "", 0); /* an empty buffer hands over an empty string */
    if (b->failed) {
        kh_buf_free(b);
        return NULL;
    }
    char *data = b->data;
    if (len)
        *len = b->len;
    *b = kh_buf_init(b->max);
    return data;
}
