/* json_out.h - the one way to write JSON: commas, quotes, brackets and numbers are the writer's
 * business, so that what comes out is JSON whatever goes in. No file prints JSON by hand.
 *
 *     kh_buf b = kh_buf_init(KH_BUF_MAX);
 *     kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
 *     kh_json_open_object(&j, NULL);           key NULL: an element, or the document itself
 *     kh_json_put_string(&j, "path", path);    NULL is null; what is not UTF-8 becomes U+FFFD
 *     kh_json_put_number(&j, "dev", dev, 12);  %.12g; NaN and infinities are null
 *     kh_json_gap(&j, "\n  ");                 white space before what comes next
 *     kh_json_open_array(&j, "seeds");
 *     for (...) kh_json_put_u64(&j, NULL, seed[i]);
 *     kh_json_close(&j);                       whatever was opened last
 *     kh_json_close(&j);
 *     if (!kh_json_out_done(&j)) ...           {"path": "a", "dev": 0.5,
 *                                                "seeds": [1, 2]}
 *
 * One check at the end: failure sticks (no memory, the buffer's limit, or a call that does not fit
 * where it stands, such as a key in an array), and marks the buffer as failed. Numbers have a point
 * whatever the locale of the process is. Names given twice in one object are the caller's mistake
 * and are not looked for. */
#ifndef KH_BASE_JSON_OUT_H
#define KH_BASE_JSON_OUT_H

#include "base/buf.h"

#include <stdint.h>

typedef enum kh_json_style {
    KH_JSON_SPACED, /* {"a": 1, "b": [2, 3]} */
    KH_JSON_COMPACT /* {"a":1,"b":[2,3]} */
} kh_json_style;

typedef struct kh_json_out {
    kh_buf *out;
    uint64_t object, filled, compact; /* one bit a level, the lowest for the innermost */
    int depth;                        /* 0: the document itself */
    bool written;                     /* the document has its value */
    char gap[80];
} kh_json_out;

/* Appends to *out, which may hold other things already: JSON lines are one writer a line. */
kh_json_out kh_json_out_init(kh_buf *out, kh_json_style);
/* Whether all is well: one whole value was written and everything that was opened is closed. */
bool kh_json_out_done(const kh_json_out *);

void kh_json_open_object(kh_json_out *, const char *key);
void kh_json_open_array(kh_json_out *, const char *key);
void kh_json_close(kh_json_out *);

/* White space (at most 79 bytes) to stand before the next key, value or closing bracket, instead of
 * what the style would put after a comma. */
void kh_json_gap(kh_json_out *, const char *white);
/* What is open now goes on without spaces: "ids": [1,2,3] in a document that has them. */
void kh_json_tight(kh_json_out *);

void kh_json_put_string(kh_json_out *, const char *key, const char *s);
void kh_json_put_text(kh_json_out *, const char *key, const char *s, size_t n);
void kh_json_put_bool(kh_json_out *, const char *key, bool);
void kh_json_put_null(kh_json_out *, const char *key);
void kh_json_put_int(kh_json_out *, const char *key, long long);
/* Above 2^53, which other readers would round or refuse, as a string of digits. */
void kh_json_put_u64(kh_json_out *, const char *key, uint64_t);
/* A hash: a string of 16 hexadecimal digits. */
void kh_json_put_hex(kh_json_out *, const char *key, uint64_t);
void kh_json_put_number(kh_json_out *, const char *key, double, int digits);  /* %.*g */
void kh_json_put_fixed(kh_json_out *, const char *key, double, int decimals); /* %.*f */
void kh_json_put_numbers(kh_json_out *, const char *key, const double *, size_t n, int digits);
void kh_json_put_floats(kh_json_out *, const char *key, const float *, size_t n, int digits);
void kh_json_put_ints(kh_json_out *, const char *key, const int *, size_t n);
/* Bytes in base64, as a string. */
void kh_json_put_base64(kh_json_out *, const char *key, const void *bytes, size_t n);
/* A whole value that is JSON already, with whatever white space it has; it is checked. */
void kh_json_put_json(kh_json_out *, const char *key, const char *json, size_t n);

#endif
