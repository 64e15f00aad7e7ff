/* unicode.c - see unicode.h. The data are generated (tools/make_unicode.mjs); the table for ASCII stands here to be read. */
#include "text/unicode.h"

#include "text/unicode_data.h"

#include <stddef.h>

enum {
    L = KH_CHAR_LETTER | KH_CHAR_WORD,
    N = KH_CHAR_NUMBER | KH_CHAR_NUMERIC | KH_CHAR_WORD,
    S = KH_CHAR_SPACE,
    P = KH_CHAR_PUNCT | KH_CHAR_BERT_PUNCT,
    Y = KH_CHAR_BERT_PUNCT, /* symbols: BERT calls those of ASCII punctuation */
    D = KH_CHAR_BERT_DROP,
    U = P | KH_CHAR_WORD, /* the underscore */
};

const uint16_t kh_char_ascii[128] = {
    /* 00 */ D, D, D, D, D, D, D, D, D, S, S, S | D, S | D, S, D, D,
    /* 10 */ D, D, D, D, D, D, D, D, D, D, D, D, D, D, D, D,
    /* 20 */ S, P, P, P, Y, P, P, P, P, P, P, Y, P, P, P, P,
    /* 30 */ N, N, N, N, N, N, N, N, N, N, P, P, Y, Y, Y, P,
    /* 40 */ P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    /* 50 */ L, L, L, L, L, L, L, L, L, L, L, P, P, P, Y, U,
    /* 60 */ Y, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    /* 70 */ L, L, L, L, L, L, L, L, L, L, L, P, Y, P, Y, D,
};

unsigned kh_char_class_wide(uint32_t c) {
    if (c > 0x10FFFF)
        return 0;
    /* The last run that starts at or before c: it lies in [at, at + n). The step is a conditional move, not a branch. */
    const uint32_t *at = char_runs, key = c << 5 | 31;
    for (size_t n = sizeof char_runs / sizeof *char_runs; n > 1;) {
        size_t half = n / 2;
        at = at[half] <= key ? at + half : at;
        n -= half;
    }
    return char_kinds[*at & 31];
}
