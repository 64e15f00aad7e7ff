/* base64.h - bytes as text (RFC 4648, section 4), for wire formats. Decoding is strict: whole
 * groups of four, padding as it must be, no white space, no bits beyond the end; so every string of
 * bytes has exactly one text. */
#ifndef KH_BASE_BASE64_H
#define KH_BASE_BASE64_H

#include "base/buf.h"

#include <stdint.h>

void kh_base64_put(kh_buf *out, const void *bytes, size_t n);

/* The bytes that n characters stand for if they are base64 at all; SIZE_MAX if n or the padding
 * cannot be right. */
size_t kh_base64_size(const char *text, size_t n);
/* Writes kh_base64_size bytes to out; false if the text is not base64. */
bool kh_base64_get(const char *text, size_t n, void *out);

#endif
