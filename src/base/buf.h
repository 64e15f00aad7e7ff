/* buf.h - a growable byte buffer with a hard cap.
 *
 *     kh_buf b = kh_buf_init(1 << 20);
 *     kh_buf_text(&b, "ids: ");
 *     kh_buf_printf(&b, "%d", id);
 *     if (kh_buf_failed(&b)) ...     one check at the end: failure sticks and keeps what was there
 *     kh_buf_free(&b);
 *
 * data is NUL-terminated as soon as anything was appended. */
#ifndef KH_BASE_BUF_H
#define KH_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kh_buf {
    char *data; /* NULL until something is appended */
    size_t len, cap, max;
    bool failed; /* out of memory, or more than max bytes */
} kh_buf;

#define KH_BUF_MAX ((size_t)1 << 40) /* no cap but the machine's */

kh_buf kh_buf_init(size_t max);
void kh_buf_free(kh_buf *);
bool kh_buf_failed(const kh_buf *);
void kh_buf_reset(kh_buf *); /* empty, memory kept, failure forgotten */
void kh_buf_bytes(kh_buf *, const void *bytes, size_t n);
void kh_buf_text(kh_buf *, const char *s);
void kh_buf_char(kh_buf *, char c);
void kh_buf_printf(kh_buf *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool kh_buf_reserve(kh_buf *, size_t more); /* room for `more` bytes and a NUL after len */
char *kh_buf_take(kh_buf *,
    size_t *len); /* hands over the memory (kh_free it); the buffer is empty; NULL if failed */

#endif
