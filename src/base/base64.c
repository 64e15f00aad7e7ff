/* base64.c - see base64.h. */
#include "base/base64.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void kh_base64_put(kh_buf *out, const void *bytes, size_t n) {
    const unsigned char *in = bytes;
    if (n > SIZE_MAX / 4 * 3 - 4 || !kh_buf_reserve(out, (n + 2) / 3 * 4)) {
        out->failed = true;
        return;
    }
    char *to = out->data + out->len;
    size_t i = 0;
    for (; i + 3 <= n; i += 3, to += 4) {
        uint32_t v = (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | in[i + 2];
        to[0] = letters[v >> 18], to[1] = letters[v >> 12 & 63], to[2] = letters[v >> 6 & 63],
        to[3] = letters[v & 63];
    }
    if (i < n) {
        uint32_t v = (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0);
        to[0] = letters[v >> 18], to[1] = letters[v >> 12 & 63];
        to[2] = i + 1 < n ? letters[v >> 6 & 63] : '=';
        to[3] = '=';
        to += 4;
    }
    out->len = (size_t)(to - out->data);
    out->data[out->len] = '\0';
}

size_t kh_base64_size(const char *text, size_t n) {
    if (n % 4 != 0)
        return SIZE_MAX;
    size_t pad = n > 0 && text[n - 1] == '=';
    if (pad == 1 && text[n - 2] == '=')
        pad = 2;
    return n / 4 * 3 - pad;
}

/* The value of each letter, 64 for what is none. Filled by the compiler, so that threads need not
 * agree on who does it. */
#define SIX(c, v) \
    [c] = (v), [(c) + 1] = (v) + 1, [(c) + 2] = (v) + 2, [(c) + 3] = (v) + 3, [(c) + 4] = (v) + 4, \
    [(c) + 5] = (v) + 5
#define TEN(c, v) \
    SIX(c, v), [(c) + 6] = (v) + 6, [(c) + 7] = (v) + 7, [(c) + 8] = (v) + 8, [(c) + 9] = (v) + 9
enum { NONE = 0 }; /* values are stored plus one: what the table leaves out is no letter */
static const uint8_t plus_one[256] = { TEN('A', 1), TEN('K', 11), SIX('U', 21), TEN('a', 27),
    TEN('k', 37), SIX('u', 47), TEN('0', 53), ['+'] = 63, ['/'] = 64 };

bool kh_base64_get(const char *text, size_t n, void *out) {
    const unsigned char *in = (const unsigned char *)text;
    unsigned char *to = out;
    size_t size = kh_base64_size(text, n), whole = size == SIZE_MAX ? 0 : size / 3;
    if (size == SIZE_MAX)
        return false;
    uint32_t bad = 0;
    for (size_t i = 0; i < whole; i++, in += 4, to += 3) {
        uint32_t a = plus_one[in[0]], b = plus_one[in[1]], c = plus_one[in[2]], d = plus_one[in[3]];
        bad |= (uint32_t)((a == NONE) | (b == NONE) | (c == NONE) | (d == NONE));
        uint32_t v = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6 | (d - 1);
        to[0] = (unsigned char)(v >> 16), to[1] = (unsigned char)(v >> 8), to[2] = (unsigned char)v;
    }
    if (bad)
        return false;
    size_t rest = size - whole * 3;
    if (rest == 0)
        return true;
    uint32_t a = plus_one[in[0]], b = plus_one[in[1]], c = rest == 2 ? plus_one[in[2]] : 1;
    if (a == NONE || b == NONE || c == NONE)
        return false;
    uint32_t v = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6;
    to[0] = (unsigned char)(v >> 16);
    if (rest == 2)
        to[1] = (unsigned char)(v >> 8);
    return (v & (rest == 1 ? 0xFFFFu : 0xFFu)) == 0;
}
