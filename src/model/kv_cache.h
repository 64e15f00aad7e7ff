/* kv_cache.h - keys and values of texts, kept from question to question.
 *
 * An entry is found by the ids of its text from the first place on. Room is given to whoever comes
 * first; when there is none left, entries that no question asked for lately make way, and if there
 * are none, the caller computes without keeping. What is kept never changes a bit of an answer. */
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
/* The memory of a text's keys and values. *known: they are there, or somebody of this round will
 * put them there; otherwise the caller must. NULL: there is no room. */
float *kh_kv_cache_get(kh_kv_cache *, const int32_t *id, int n, size_t bytes, bool *known);
/* What was promised since is there; or it is not, and is forgotten. */
void kh_kv_cache_settle(kh_kv_cache *, bool done);
/* Bytes held now. */
size_t kh_kv_cache_held(const kh_kv_cache *);

#endif
