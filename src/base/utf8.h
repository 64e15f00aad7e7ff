/* utf8.h - decoding UTF-8 that may be broken. */
#ifndef KH_BASE_UTF8_H
#define KH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KH_REPLACEMENT 0xFFFDu

/* Decodes one character at s[0..n), n > 0. *len gets the bytes it took (>= 1). A broken sequence
 * gives U+FFFD and takes its maximal valid prefix, as Python's errors="replace" and the Unicode
 * standard (section 3.9) do; *ok, if not NULL, then becomes 0 (it is never set to 1). */
uint32_t kh_utf8_next(const char *s, size_t n, int *len, int *ok);

/* The length of the longest valid prefix of s[0..n): n itself if all of it is well-formed UTF-8. */
size_t kh_utf8_prefix(const char *s, size_t n);
static inline bool kh_utf8_valid(const char *s, size_t n) { return kh_utf8_prefix(s, n) == n; }

/* Writes the character c (not a surrogate, at most 0x10FFFF) and returns its length, 1 to 4. */
int kh_utf8_put(uint32_t c, char out[4]);

#endif
