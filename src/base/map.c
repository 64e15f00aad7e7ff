/* map.c - open addressing with linear probing; see map.h.
 *
 * Keys are often a stranger's (a vocabulary, rows of a request), who could choose them so that all
 * fall into one run of slots and each costs as much as all before it. So slots are chosen by XXH3
 * with a seed of this process, which nobody outside knows. Nothing that is written may depend on
 * the order of slots; no caller looks at it. */
#include "base/map.h"

#include "base/alloc.h"
#include "base/portable.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t kh_hash64_more(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

uint64_t kh_hash64(const void *bytes, size_t n) {
    return kh_hash64_more(KH_HASH64_START, bytes, n);
}

static uint64_t seed;

static void draw_seed(void) {
    struct timespec now;
    if (kh_random_bytes(&seed, sizeof seed, false))
        return;
    clock_gettime(CLOCK_REALTIME, &now); /* a machine that has just started: better than nothing */
    seed = (uint64_t)now.tv_nsec * 0x9E3779B97F4A7C15u ^ (uint64_t)(uintptr_t)&now;
}

uint64_t kh_hash_seed(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, draw_seed);
    return seed;
}

static uint32_t slot_hash(const char *key, size_t len) {
    return (uint32_t)XXH3_64bits_withSeed(key, len, kh_hash_seed());
}

/* The slot that holds the key, or the free slot where it belongs. */
static kh_map_slot *find(const kh_map *m, const char *key, size_t len, uint32_t hash) {
    size_t mask = m->cap - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        kh_map_slot *s = &m->slots[i];
        if (!s->key || (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0))
            return s;
    }
}

bool kh_map_reserve(kh_map *m, size_t n) {
    if (n > SIZE_MAX / 4)
        return false;
    size_t cap = m->cap ? m->cap : 16;
    while (cap < n * 2)
        cap *= 2;
    if (cap == m->cap)
        return true;
    kh_map bigger = { kh_calloc(cap, sizeof *bigger.slots), cap, m->n };
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key)
            *find(&bigger, m->slots[i].key, m->slots[i].len, m->slots[i].hash) = m->slots[i];
    kh_free(m->slots);
    *m = bigger;
    return true;
}

int kh_map_add(kh_map *m, const char *key, size_t len, int32_t value, int32_t *old) {
    if (len > UINT32_MAX || !kh_map_reserve(m, m->n + 1))
        return -1;
    uint32_t hash = slot_hash(key, len);
    kh_map_slot *s = find(m, key, len, hash);
    if (s->key) {
        if (old)
            *old = s->value;
        return 0;
    }
    *s = (kh_map_slot){ key, (uint32_t)len, hash, value };
    m->n++;
    return 1;
}

bool kh_map_get(const kh_map *m, const char *key, size_t len, int32_t *value) {
    if (m->n == 0)
        return false;
    const kh_map_slot *s = find(m, key, len, slot_hash(key, len));
    if (!s->key)
        return false;
    *value = s->value;
    return true;
}

void kh_map_free(kh_map *m) {
    kh_free(m->slots);
    *m = (kh_map){ 0 };
}
