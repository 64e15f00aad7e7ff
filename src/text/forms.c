/* forms.c - see forms.h. Decompositions, combining classes and compositions come from utf8proc.
 *
 * Hugging Face's library normalizes with the tables of Unicode 9, so characters that came later
 * pass through unchanged here, and, being starters without compositions there, nothing moves or
 * composes across them. Lower case is that of Unicode 17.
 *
 * Text is worked on in segments that start at a character below U+0300: those never combine with
 * what precedes them. Marks are ordered by insertion when they are few and by counting when they
 * are many, so that a megabyte of accents is no attack. */
#include "text/forms.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

typedef struct range {
    uint32_t first, last;
} range;

/* Characters after Unicode 9 that decompose, compose or have a combining class, up to Unicode 17.
 */
static const range newer[] = {
    { 0x7FD, 0x7FD },
    { 0x897, 0x89F },
    { 0x8CA, 0x8D3 },
    { 0x9FE, 0x9FE },
    { 0xC3C, 0xC3C },
    { 0xD3B, 0xD3C },
    { 0xEBA, 0xEBA },
    { 0x1715, 0x1715 },
    { 0x1ABF, 0x1AFF },
    { 0x1DF6, 0x1DFA },
    { 0x32FF, 0x32FF },
    { 0xA7F1, 0xA7F4 },
    { 0xA82C, 0xA82C },
    { 0xAB69, 0xAB69 },
    { 0x10781, 0x107BA },
    { 0x10D24, 0x10D27 },
    { 0x10D69, 0x10D6D },
    { 0x10EAB, 0x10EAC },
    { 0x10EFA, 0x10EFF },
    { 0x10F46, 0x10F50 },
    { 0x10F82, 0x10F85 },
    { 0x11070, 0x11070 },
    { 0x1133B, 0x1133B },
    { 0x11380, 0x113FF },
    { 0x1145E, 0x1145E },
    { 0x11839, 0x1183A },
    { 0x11900, 0x1195F },
    { 0x119E0, 0x119E0 },
    { 0x11A34, 0x11A34 },
    { 0x11A47, 0x11A47 },
    { 0x11A99, 0x11A99 },
    { 0x11D42, 0x11D45 },
    { 0x11D97, 0x11D97 },
    { 0x11F41, 0x11F42 },
    { 0x16100, 0x1613F },
    { 0x16D40, 0x16D7F },
    { 0x16FF0, 0x16FF1 },
    { 0x1E030, 0x1E08F },
    { 0x1E130, 0x1E136 },
    { 0x1E2AE, 0x1E2AE },
    { 0x1E2EC, 0x1E2EF },
    { 0x1E4EC, 0x1E4EF },
    { 0x1E5EE, 0x1E5EF },
    { 0x1E6E3, 0x1E6F5 },
    { 0x1F16C, 0x1F16C },
    { 0x1FBF0, 0x1FBF9 },
};

static bool is_newer(uint32_t c) {
    size_t low = 0, high = sizeof newer / sizeof *newer;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > newer[mid].last)
            low = mid + 1;
        else if (c < newer[mid].first)
            high = mid;
        else
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------ segments */

typedef struct segment {
    utf8proc_int32_t *c;
    size_t n, cap;
    utf8proc_int32_t *spare; /* for ordering long runs */
    size_t cap_spare;
} segment;

static int combining(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Stable order by combining class of c[0..n), all of them marks. */
static bool order_marks(segment *s, utf8proc_int32_t *c, size_t n) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t x = c[i];
            int class = combining(x);
            size_t k = i;
            for (; k > 0 && combining(c[k - 1]) > class; k--)
                c[k] = c[k - 1];
            c[k] = x;
        }
        return true;
    }
    if (!kh_grow(&s->spare, &s->cap_spare, n, sizeof *s->spare))
        return false;
    size_t start[257] = { 0 };
    for (size_t i = 0; i < n; i++)
        start[combining(c[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        s->spare[start[combining(c[i])]++] = c[i];
    memcpy(c, s->spare, n * sizeof *c);
    return true;
}

static bool order_segment(segment *s) {
    for (size_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && combining(s->c[end]) != 0; end++)
            ;
        if (end - i > 1 && !order_marks(s, s->c + i, end - i))
            return false;
        if (end == i)
            end++;
    }
    return true;
}

static bool flush_segment(segment *s, enum kh_form form, kh_buf *out) {
    if (!order_segment(s))
        return false;
    utf8proc_ssize_t n = (utf8proc_ssize_t)s->n;
    if ((form & 1) && n > 1)
        n = utf8proc_normalize_utf32(s->c, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char utf8[4];
        kh_buf_bytes(out, utf8, (size_t)kh_utf8_put((uint32_t)s->c[i], utf8));
    }
    s->n = 0;
    return true;
}

/* Appends the decomposition of c to the segment. False when out of memory. */
static bool decompose(segment *s, enum kh_form form, uint32_t c) {
    enum { LONGEST = 32 }; /* the longest in Unicode is 18 */
    if (!kh_grow(&s->c, &s->cap, s->n + LONGEST, sizeof *s->c))
        return false;
    int boundary = 0;
    int options = UTF8PROC_DECOMPOSE | (form & 2 ? UTF8PROC_COMPAT : 0);
    s->n += (size_t)utf8proc_decompose_char(
        (utf8proc_int32_t)c, s->c + s->n, LONGEST, (utf8proc_option_t)options, &boundary);
    return true;
}

bool kh_form_text(enum kh_form form, const char *s, size_t n, kh_buf *out, size_t *first) {
    segment seg = { 0 };
    bool ok = true;
    bool whole = *first >= n;
    if (*first > 0 && !whole) { /* how long that part becomes by itself */
        size_t start = out->len, none = 0;
        ok = kh_form_text(form, s, *first, out, &none);
        *first = out->len - start;
        if (ok)
            out->len = start;
    }
    size_t start = out->len;
    for (size_t i = 0; ok && i < n;) {
        int len;
        uint32_t c = kh_utf8_next(s + i, n - i, &len, NULL);
        bool apart = c < 0x80 || is_newer(c);
        if (c < 0x300 || apart)
            ok = flush_segment(&seg, form, out);
        /* An ASCII character can only change through what follows it. */
        if (ok && c < 0x80 && (i + 1 == n || (unsigned char)s[i + 1] < 0x80))
            kh_buf_char(out, (char)c);
        else if (ok && is_newer(c))
            kh_buf_bytes(out, s + i, (size_t)len);
        else if (ok)
            ok = decompose(&seg, form, c);
        i += (size_t)len;
    }
    ok = ok && flush_segment(&seg, form, out) && !kh_buf_failed(out);
    if (whole || *first > out->len - start)
        *first = out->len - start;
    kh_free(seg.c);
    kh_free(seg.spare);
    return ok;
}

/* ---------------------------------------------------------------------------------- lower case */

/* Capital letters after Unicode 15, the last that every utf8proc knows. */
static const struct {
    range capital;
    uint32_t lower; /* of the first; the rest follow in order */
} newer_capitals[] = {
    { { 0x1C89, 0x1C89 }, 0x1C8A },
    { { 0xA7CB, 0xA7CB }, 0x264 },
    { { 0xA7CC, 0xA7CC }, 0xA7CD },
    { { 0xA7CE, 0xA7CE }, 0xA7CF },
    { { 0xA7D2, 0xA7D2 }, 0xA7D3 },
    { { 0xA7D4, 0xA7D4 }, 0xA7D5 },
    { { 0xA7DA, 0xA7DA }, 0xA7DB },
    { { 0xA7DC, 0xA7DC }, 0x19B },
    { { 0x10D50, 0x10D65 }, 0x10D70 },
    { { 0x16EA0, 0x16EB8 }, 0x16EBB },
};

void kh_lower_char(uint32_t c, kh_buf *out) {
    uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    for (size_t i = 0; i < sizeof newer_capitals / sizeof *newer_capitals; i++)
        if (c >= newer_capitals[i].capital.first && c <= newer_capitals[i].capital.last)
            lower = newer_capitals[i].lower + (c - newer_capitals[i].capital.first);
    char utf8[4];
    kh_buf_bytes(out, utf8, (size_t)kh_utf8_put(lower, utf8));
    if (c == 0x130) /* the only one whose lower case is two characters: i and a dot above */
        kh_buf_bytes(out, "\xCC\x87", 2);
}
