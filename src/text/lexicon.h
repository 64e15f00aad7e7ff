/* lexicon.h - short words that are one token, found by one look at one place in memory: a slot
 * holds the whole word.
 *
 * Most words of a text are such words; this is what makes tokenizing them fast. */
#ifndef KH_TEXT_LEXICON_H
#define KH_TEXT_LEXICON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KH_LEXICON_MAX = 16 }; /* bytes of the longest */

typedef struct kh_lexicon_word {
    uint64_t low, high; /* its first and its last bytes, overlapping */
    uint32_t len;       /* 0: a free slot */
    int32_t id;
} kh_lexicon_word;

typedef struct kh_lexicon {
    kh_lexicon_word *slot; /* open addressing, a power of two of them, at most half full */
    size_t cap;
    uint64_t key[2]; /* random odd factors: words come from a stranger's vocabulary */
} kh_lexicon;        /* start as {0} */

/* Room for n words, once, before they are added. False when out of memory. */
bool kh_lexicon_reserve(kh_lexicon *, size_t n);
/* Adds a word of 1 to KH_LEXICON_MAX bytes; one that is there gets the new id. */
void kh_lexicon_add(kh_lexicon *, const char *s, size_t n, int32_t id);
void kh_lexicon_free(kh_lexicon *);

static inline uint64_t kh_lexicon_read(const char *s, size_t n) {
    uint64_t x = 0;
    memcpy(&x, s, n);
    return x;
}

/* The slot of a word, or the free one where it belongs. Two numbers hold all of its bytes; together
 * with the length they tell it from every other word. */
static inline kh_lexicon_word *kh_lexicon_slot(
    const kh_lexicon *t, const char *s, size_t n, uint64_t *low, uint64_t *high) {
    *high = 0;
    if (n >= 8) {
        *low = kh_lexicon_read(s, 8);
        *high = kh_lexicon_read(s + n - 8, 8);
    } else if (n >= 4)
        *low = kh_lexicon_read(s, 4) | kh_lexicon_read(s + n - 4, 4) << 32;
    else
        *low = kh_lexicon_read(s, 1) | kh_lexicon_read(s + n / 2, 1) << 8 |
            kh_lexicon_read(s + n - 1, 1) << 16;
    /* The middle of the product: bits on which all bits of the word have a say. */
    unsigned __int128 h = (unsigned __int128)(*low ^ (uint64_t)n << 56) * t->key[0] +
        (unsigned __int128)*high * t->key[1];
    for (size_t i = (size_t)(h >> 64) & (t->cap - 1);; i = (i + 1) & (t->cap - 1)) {
        kh_lexicon_word *w = &t->slot[i];
        if ((w->low == *low && w->high == *high && w->len == n) || w->len == 0)
            return w;
    }
}

/* The id of a word, or -1; any length may be asked. */
static inline int32_t kh_lexicon_find(const kh_lexicon *t, const char *s, size_t n) {
    uint64_t low, high;
    if (n == 0 || n > KH_LEXICON_MAX)
        return -1;
    const kh_lexicon_word *w = kh_lexicon_slot(t, s, n, &low, &high);
    return w->len ? w->id : -1;
}

#endif
