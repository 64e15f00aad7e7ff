/* bytelevel.c - GPT-2's regular expression by hand.
 *
 * A piece is decided by its first character, or by the second when the first is a space: apostrophe
 * endings first, then runs of letters, of numbers, of anything else, each with one leading space
 * allowed, and last white space. \s+(?!\S) takes a run of white space without its last character
 * when something follows, so that the last one can lead the next piece. */
#include "text/bytelevel.h"

#include "base/utf8.h"
#include "text/unicode.h"

enum {
    LETTER = KH_CHAR_LETTER,
    NUMBER = KH_CHAR_NUMBER,
    SPACE = KH_CHAR_SPACE,
    KINDS = LETTER | NUMBER | SPACE
};

/* LETTER, NUMBER, SPACE or 0 (anything else) for the character at text[at]; *len gets its length.
 */
static unsigned kind_at(const char *text, size_t n, size_t at, int *len) {
    unsigned char first = (unsigned char)text[at];
    if (first < 0x80) {
        *len = 1;
        return kh_char_ascii[first] & KINDS;
    }
    return kh_char_class_wide(kh_utf8_next(text + at, n - at, len, NULL)) & KINDS;
}

/* The end of the run of characters of one kind from text[at]; *last gets where its last character
 * starts. */
static size_t run_end(const char *text, size_t n, size_t at, unsigned kind, size_t *last) {
    int len;
    while (at < n && kind_at(text, n, at, &len) == kind) {
        *last = at;
        at += (size_t)len;
    }
    return at;
}

/* The length of 's 't 're 've 'm 'll 'd at s, or 0. */
static size_t ending(const char *s, size_t n) {
    if (n < 2)
        return 0;
    switch (s[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return n > 2 && s[2] == 'e' ? 3 : 0;
    case 'l': return n > 2 && s[2] == 'l' ? 3 : 0;
    default: return 0;
    }
}

size_t kh_gpt2_split(const char *text, size_t n, size_t at) {
    size_t last = at, found;
    int len;
    if (text[at] == '\'' && (found = ending(text + at, n - at)) > 0)
        return at + found;
    unsigned kind = kind_at(text, n, at, &len);
    if (kind != SPACE)
        return run_end(text, n, at, kind, &last);
    if (text[at] == ' ' && at + 1 < n) {
        kind = kind_at(text, n, at + 1, &len);
        if (kind != SPACE)
            return run_end(text, n, at + 1, kind, &last);
    }
    size_t end = run_end(text, n, at, SPACE, &last);
    return end == n || last == at ? end : last;
}
