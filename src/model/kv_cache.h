/* kv_cache.h - keys and values of texts, and of what prompts begin with, kept from question to
 * question.
 *
 * Texts: an entry is found by the ids of its text from the first place on. Room is given to whoever
 * comes first; when there is none left, entries that no question asked for lately make way, and if
 * there are none, the caller computes without keeping.
 *
 * Heads: instruction and demonstrations stand in front of every row, also where rows are asked one
 * by one. A new sequence begins as a kept one does, up to some place; those that were used last
 * stay.
 *
 * What is kept never changes a bit of an answer. */
#ifndef KH_MODEL_KV_CACHE_H
#define KH_MODEL_KV_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kh_kv_cache kh_kv_cache;

/* bytes 0: a quarter of the machine's memory. */
kh_kv_cache *kh_kv_cache_new(size_t bytes);
void kh_kv_cache_free(kh_kv_cache *);

/* A new question. */
void kh_kv_cache_begin(kh_kv_cache *);
/* The memory of a text's keys and values, of its places `from` to n - 1. *known: they are there, or
 * somebody of this round will put them there; otherwise the caller must. NULL: there is no room. */
float *kh_kv_cache_get(
    kh_kv_cache *, const int32_t *id, int from, int n, size_t bytes, bool *known);
/* What was promised since is there; or it is not, and is forgotten. */
void kh_kv_cache_settle(kh_kv_cache *, bool done);
/* Bytes held now. */
size_t kh_kv_cache_held(const kh_kv_cache *);

/* The keys and values of ids [n], [layers, n, width]. */
typedef struct kh_kv_head {
    int32_t *id;
    int n;
    float *kv;
    long used;
} kh_kv_head;

typedef struct kh_kv_heads {
    kh_kv_head *head; /* [n] */
    int n;
    size_t cap, held, limit; /* bytes */
    int layers;
    size_t width;
    long now;
} kh_kv_heads;

/* bytes 0: 1/32 of the machine's memory. layers, width: of keys and values, of both together. */
kh_kv_heads *kh_kv_heads_new(size_t bytes, int layers, size_t width);
void kh_kv_heads_free(kh_kv_heads *);

/* The head that shares most with ids [n], *shared of them; NULL: none shares enough to be worth it.
 * It stays until the next call of keep. */
const kh_kv_head *kh_kv_heads_find(kh_kv_heads *, const int32_t *id, int n, int *shared);
/* Keeps a copy of the head of ids [n] whose first `shared` are those of `from` (NULL: 0), and whose
 * others have their keys and values in rest [layers, n - shared, width]. Without memory, or room,
 * nothing is kept. */
void kh_kv_heads_keep(
    kh_kv_heads *, const kh_kv_head *from, int shared, const int32_t *id, int n, const float *rest);

#endif
