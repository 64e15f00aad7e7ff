/* kv_cache.c - see kv_cache.h. A table of entries with open addressing, keyed by a hash of 128 bits
 * over the ids. */
#include "model/kv_cache.h"

#include "base/alloc.h"

#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STALE = 64 }; /* questions after which an entry may make way */

typedef struct entry {
    XXH128_hash_t key;
    float *kv; /* NULL: a free place */
    size_t bytes;
    long used; /* the last question that asked for it */
    bool pending;
} entry;

struct kh_kv_cache {
    entry *entry; /* [cap], a power of two, at most half full */
    size_t cap, n, held, limit;
    long now;
};

kh_kv_cache *kh_kv_cache_new(size_t bytes) {
    kh_kv_cache *c = kh_calloc(1, sizeof *c);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t memory = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)1 << 32;
    if (c)
        c->limit = bytes > 0 ? bytes : memory / 4;
    return c;
}

void kh_kv_cache_free(kh_kv_cache *c) {
    for (size_t i = 0; c && i < c->cap; i++)
        kh_free(c->entry[i].kv);
    if (c)
        kh_free(c->entry);
    kh_free(c);
}

void kh_kv_cache_begin(kh_kv_cache *c) { c->now++; }

size_t kh_kv_cache_held(const kh_kv_cache *c) { return c->held; }

/* The place of a key, or the free one where it would go. */
static entry *find(const kh_kv_cache *c, XXH128_hash_t key) {
    size_t at = (size_t)key.low64 & (c->cap - 1);
    while (c->entry[at].kv && !XXH128_isEqual(c->entry[at].key, key))
        at = (at + 1) & (c->cap - 1);
    return &c->entry[at];
}

/* All entries but those that `drop` names, in a table of so many places. */
static bool rebuild(kh_kv_cache *c, size_t cap, bool (*drop)(const kh_kv_cache *, const entry *)) {
    kh_kv_cache now = *c;
    now.entry = kh_calloc(cap, sizeof *now.entry);
    now.cap = cap;
    now.n = now.held = 0;
    if (!now.entry)
        return false;
    for (size_t i = 0; i < c->cap; i++) {
        entry *e = &c->entry[i];
        if (!e->kv)
            continue;
        if (drop && drop(c, e)) {
            kh_free(e->kv);
            continue;
        }
        *find(&now, e->key) = *e;
        now.n++;
        now.held += e->bytes;
    }
    kh_free(c->entry);
    *c = now;
    return true;
}

static bool is_stale(const kh_kv_cache *c, const entry *e) { return e->used + STALE < c->now; }
static bool is_pending(const kh_kv_cache *c, const entry *e) {
    (void)c;
    return e->pending;
}

float *kh_kv_cache_get(kh_kv_cache *c, const int32_t *id, int n, size_t bytes, bool *known) {
    XXH128_hash_t key = XXH3_128bits(id, (size_t)n * sizeof *id);
    *known = false;
    if (c->n * 2 >= c->cap && !rebuild(c, c->cap ? 2 * c->cap : 64, NULL))
        return NULL;
    entry *e = find(c, key);
    if (e->kv) {
        e->used = c->now;
        *known = true;
        return e->kv;
    }
    if (c->held + bytes > c->limit) {
        if (!rebuild(c, c->cap, is_stale) || c->held + bytes > c->limit)
            return NULL;
        e = find(c, key);
    }
    float *kv = kh_aligned(bytes);
    if (!kv)
        return NULL;
    *e = (entry){ key, kv, bytes, c->now, true };
    c->n++;
    c->held += bytes;
    return kv;
}

void kh_kv_cache_settle(kh_kv_cache *c, bool done) {
    for (size_t i = 0; i < c->cap && done; i++)
        c->entry[i].pending = false;
    if (!done && !rebuild(c, c->cap ? c->cap : 64, is_pending)) /* no memory even for that: */
        for (size_t i = 0; i < c->cap; i++)                     /* nobody will look it up again */
            c->entry[i].key.low64 ^= c->entry[i].pending ? 1 : 0;
}
