/* map.h - byte strings to int32, by open addressing. Keys are borrowed: they must live as long as
 * the map. Removal is not offered; nobody needs it. */
#ifndef KH_BASE_MAP_H
#define KH_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kh_map_slot {
    const char *key; /* NULL: free */
    uint32_t len, hash;
    int32_t value;
} kh_map_slot;

typedef struct kh_map {
    kh_map_slot *slots; /* a power of two of them, at most half full */
    size_t cap, n;
} kh_map; /* start as {0} */

/* Returns 1 if added, 0 if the key was there (its value stays, and is put in *old if old is not
 * NULL), -1 out of memory. */
int kh_map_add(kh_map *, const char *key, size_t len, int32_t value, int32_t *old);
/* True, and *value filled, if the key is there. */
bool kh_map_get(const kh_map *, const char *key, size_t len, int32_t *value);
bool kh_map_reserve(kh_map *, size_t n); /* room for n keys; false when out of memory */
void kh_map_free(kh_map *);

/* Random, and the same for the life of the process: for tables elsewhere whose keys come from
 * strangers. Nothing that is written may depend on it. */
uint64_t kh_hash_seed(void);

/* A 64-bit hash of bytes, stable across machines and versions (FNV-1a). */
uint64_t kh_hash64(const void *bytes, size_t n);
#define KH_HASH64_START 0xcbf29ce484222325u
uint64_t kh_hash64_more(uint64_t hash, const void *bytes, size_t n);

#endif
