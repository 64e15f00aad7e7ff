/* utf8.c - the table of well-formed byte sequences (Unicode 15, table 3-7), walked one byte at a
 * time. */
#include "base/utf8.h"

#include <string.h>

static uint32_t broken(int used, int *len, int *ok) {
    *len = used;
    if (ok)
        *ok = 0;
    return KH_REPLACEMENT;
}

uint32_t kh_utf8_next(const char *text, size_t n, int *len, int *ok) {
    const unsigned char *s = (const unsigned char *)text;
    unsigned char first = s[0];
    if (first < 0x80) {
        *len = 1;
        return first;
    }
    if (first < 0xC2 || first > 0xF4)
        return broken(1, len, ok);
    int more = 1 + (first >= 0xE0) + (first >= 0xF0);
    /* The second byte's range rules out overlong forms, surrogates and what lies above U+10FFFF. */
    unsigned char low = 0x80, high = 0xBF;
    switch (first) {
    case 0xE0: low = 0xA0; break;
    case 0xED: high = 0x9F; break;
    case 0xF0: low = 0x90; break;
    case 0xF4: high = 0x8F; break;
    default: break;
    }
    uint32_t c = first & (0x3Fu >> more);
    for (int k = 1; k <= more; k++) {
        if ((size_t)k >= n || s[k] < low || s[k] > high)
            return broken(k, len, ok);
        c = c << 6 | (s[k] & 0x3Fu);
        low = 0x80, high = 0xBF;
    }
    *len = more + 1;
    return c;
}

int kh_utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int more = 1 + (c >= 0x800) + (c >= 0x10000);
    for (int k = more; k > 0; k--) {
        out[k] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)((0xFF00u >> (more + 1) & 0xFF) | c);
    return more + 1;
}

size_t kh_utf8_prefix(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) { /* most text is ASCII: eight bytes at a time */
            memcpy(&eight, s + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        int len, ok = 1;
        kh_utf8_next(s + i, n - i, &len, &ok);
        if (!ok)
            return i;
        i += (size_t)len;
    }
    return n;
}
