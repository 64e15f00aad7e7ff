/* bpe.h - byte pair encoding: characters joined, pair by pair, in the order in which the joins were
 * learnt. */
#ifndef KH_TEXT_BPE_H
#define KH_TEXT_BPE_H

#include "base/buf.h"
#include "text/vocab.h"
#include "text/lexicon.h"

typedef struct kh_bpe_pair {
    int32_t left, right; /* left -1: a free slot */
    int32_t rank, joined;
} kh_bpe_pair;

typedef struct kh_bpe {
    const kh_vocab *vocab;                   /* the model's tokens, without added ones */
    const char *unk_token, *prefix, *suffix; /* "" for none; in the tokenizer's arena */
    bool fuse_unk, byte_fallback, ignore_merges;

    kh_bpe_pair *pair; /* open addressing, a power of two of them */
    size_t n_pair, cap_pair;
    uint64_t key;             /* of their hash, random: merges come from strangers */
    int32_t byte_id[256];     /* of the printable character that stands for a byte */
    int32_t fallback_id[256]; /* of <0x00> .. <0xFF> */
    bool reads_bytes;         /* words may be given as bytes instead of printable characters */
    kh_lexicon words;         /* if so: those that are one token */
} kh_bpe;                     /* zero it, fill the first block, add merges, then kh_bpe_ready */

/* The next merge in order. `place` names it in sentences. */
int kh_bpe_merge(kh_bpe *, int rank, const char *left, size_t n_left, const char *right,
    size_t n_right, const char *place, kh_err *err);
int kh_bpe_ready(kh_bpe *, kh_err *err);
void kh_bpe_free(kh_bpe *);

/* Memory that words share. */
typedef struct kh_bpe_scratch {
    int32_t *link; /* two for each symbol: the previous and the next */
    uint64_t *heap;
    size_t cap_link, cap_heap;
    kh_buf text, affixed;
} kh_bpe_scratch;
kh_bpe_scratch kh_bpe_scratch_init(void);
void kh_bpe_scratch_free(kh_bpe_scratch *);

/* Appends the ids of one word: characters of the vocabulary, or bytes if the model reads bytes. */
int kh_bpe_encode(const kh_bpe *, const char *word, size_t n, bool bytes, kh_bpe_scratch *,
    kh_ids *out, kh_err *err);

#endif
