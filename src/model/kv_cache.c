/* kv_cache.c - see kv_cache.h. Texts are a table of entries with open addressing, keyed by a hash
 * of 128 bits over the ids; heads are few, and are gone through one by one. */
#include "model/kv_cache.h"

#include "base/alloc.h"

#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    STALE = 64,      /* questions after which an entry may make way */
    WORTHWHILE = 8,  /* ids that a head has at least */
    HEADS_MOST = 64, /* of them */
};

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

/* Of the machine. */
static size_t memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)1 << 32;
}

kh_kv_cache *kh_kv_cache_new(size_t bytes) {
    kh_kv_cache *c = kh_calloc(1, sizeof *c);
    if (c)
        c->limit = bytes > 0 ? bytes : memory() / 4;
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

float *kh_kv_cache_get(
    kh_kv_cache *c, const int32_t *id, int from, int n, size_t bytes, bool *known) {
    XXH128_hash_t key = XXH3_128bits_withSeed(id, (size_t)n * sizeof *id, (XXH64_hash_t)from);
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

/* ---------------------------------------------------------------------------------------- heads */

kh_kv_heads *kh_kv_heads_new(size_t bytes, int layers, size_t width) {
    kh_kv_heads *h = kh_calloc(1, sizeof *h);
    if (h)
        *h = (kh_kv_heads){
            .limit = bytes > 0 ? bytes : memory() / 32, .layers = layers, .width = width
        };
    return h;
}

static void head_free(kh_kv_head *head) {
    kh_free(head->id);
    kh_free(head->kv);
}

void kh_kv_heads_free(kh_kv_heads *h) {
    for (int i = 0; h && i < h->n; i++)
        head_free(&h->head[i]);
    if (h)
        kh_free(h->head);
    kh_free(h);
}

static size_t bytes_of(const kh_kv_heads *h, int n) {
    return (size_t)n * ((size_t)h->layers * h->width * sizeof(float) + sizeof(int32_t));
}

const kh_kv_head *kh_kv_heads_find(kh_kv_heads *h, const int32_t *id, int n, int *shared) {
    kh_kv_head *best = NULL;
    *shared = 0;
    h->now++;
    for (int i = 0; i < h->n; i++) {
        const kh_kv_head *head = &h->head[i];
        int most = head->n < n ? head->n : n, same = 0;
        while (same < most && head->id[same] == id[same])
            same++;
        /* of two that share as much the shorter: it is what they have in common */
        if (same > *shared || (best && same == *shared && head->n < best->n)) {
            best = &h->head[i];
            *shared = same;
        }
    }
    if (*shared < WORTHWHILE) {
        *shared = 0;
        return NULL;
    }
    best->used = h->now;
    return best;
}

/* Room for so many bytes and one head more: those that were not used for longest make way. */
static bool make_room(kh_kv_heads *h, size_t bytes) {
    while (h->n > 0 && (h->held + bytes > h->limit || h->n == HEADS_MOST)) {
        int oldest = 0;
        for (int i = 1; i < h->n; i++)
            oldest = h->head[i].used < h->head[oldest].used ? i : oldest;
        h->held -= bytes_of(h, h->head[oldest].n);
        head_free(&h->head[oldest]);
        h->head[oldest] = h->head[--h->n];
    }
    return h->held + bytes <= h->limit &&
        kh_grow(&h->head, &h->cap, (size_t)h->n + 1, sizeof *h->head);
}

void kh_kv_heads_keep(kh_kv_heads *h, const kh_kv_head *from, int shared, const int32_t *id, int n,
    const float *rest) {
    size_t bytes = bytes_of(h, n), w = h->width, old = (size_t)shared, more = (size_t)(n - shared);
    if (n < WORTHWHILE || bytes > h->limit)
        return;
    kh_kv_head head = { .n = n,
        .used = h->now,
        .id = kh_malloc((size_t)n * sizeof *head.id),
        .kv = kh_aligned((size_t)n * (size_t)h->layers * w * sizeof *head.kv) };
    for (size_t l = 0; head.id && head.kv && l < (size_t)h->layers; l++) {
        float *to = head.kv + l * (size_t)n * w;
        if (old > 0)
            memcpy(to, from->kv + l * (size_t)from->n * w, old * w * sizeof *to);
        if (more > 0)
            memcpy(to + old * w, rest + l * more * w, more * w * sizeof *to);
    }
    if (!head.id || !head.kv || !make_room(h, bytes)) {
        head_free(&head);
        return;
    }
    memcpy(head.id, id, (size_t)n * sizeof *id);
    h->head[h->n++] = head;
    h->held += bytes;
}
