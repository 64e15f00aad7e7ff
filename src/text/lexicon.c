/* lexicon.c - see lexicon.h. */
#include "text/lexicon.h"

#include "base/alloc.h"
#include "base/map.h"

bool kh_lexicon_reserve(kh_lexicon *t, size_t n) {
    for (t->cap = 64; t->cap < n * 2; t->cap *= 2)
        ;
    t->key[0] = kh_hash_seed() | 1;
    t->key[1] = (kh_hash_seed() ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u | 1;
    t->slot = kh_calloc(t->cap, sizeof *t->slot);
    return t->slot != NULL;
}

void kh_lexicon_add(kh_lexicon *t, const char *s, size_t n, int32_t id) {
    uint64_t low, high;
    kh_lexicon_word *w = kh_lexicon_slot(t, s, n, &low, &high);
    *w = (kh_lexicon_word){ low, high, (uint32_t)n, id };
}

void kh_lexicon_free(kh_lexicon *t) {
    kh_free(t->slot);
    *t = (kh_lexicon){ 0 };
}
