/* unigram.h - SentencePiece's Unigram model: every piece has a log-probability, and a word is cut
 * into the pieces whose sum is largest. XLM-RoBERTa, CamemBERT, ALBERT, T5. */
#ifndef KH_TEXT_UNIGRAM_H
#define KH_TEXT_UNIGRAM_H

#include "text/trie.h"
#include "text/vocab.h"

typedef struct kh_unigram {
    const kh_vocab *vocab;
    double *score;        /* [vocab->size at kh_unigram_ready] */
    int32_t unk;          /* or -1 */
    bool byte_fallback;   /* what has no piece is spelled in bytes, if all are in the vocabulary */
    kh_trie trie;         /* the pieces */
    double unk_score;     /* of a character that is no piece: 10 below the worst */
    int32_t byte_id[256]; /* of <0x00> .. <0xFF>, or -1 */
} kh_unigram;             /* zero it, fill the first block, then kh_unigram_ready */

int kh_unigram_ready(kh_unigram *, kh_err *err);
void kh_unigram_free(kh_unigram *);

typedef struct kh_unigram_scratch {
    struct kh_unigram_end *end;
    size_t cap;
} kh_unigram_scratch; /* start as {0} */
void kh_unigram_scratch_free(kh_unigram_scratch *);

/* Appends the ids of one word. */
int kh_unigram_encode(
    const kh_unigram *, const char *word, size_t n, kh_unigram_scratch *, kh_ids *out, kh_err *err);

#endif
