/* prune_model.h - a model with a smaller vocabulary: what a warm start in a narrow field begins
 * with.
 *
 * Tokens are counted in a corpus, the most frequent stay, and with them their rows of the word
 * embeddings and of the decoder. All other weights are the same, so hidden states of a text whose
 * tokens stayed are the same too. */
#ifndef KH_TRAIN_PRUNE_MODEL_H
#define KH_TRAIN_PRUNE_MODEL_H

#include "train/corpus.h"

typedef struct kh_prune_opts {
    const char *model;     /* a folder with model and tokenizer */
    const char *out;       /* a folder, made if missing */
    kh_corpus_opts corpus; /* whose tokens are counted, times the weight of their file; valid_share
                              is not used */
    const char *const *word; /* [n_word] texts whose tokens stay in any case: label words */
    int n_word;
    int vocab; /* tokens in all; those that the corpus has not and that need not stay go in any case
                */
    kh_dtype dtype; /* of the new file; KH_DTYPE_ANY: as the old */
} kh_prune_opts;

typedef struct kh_pruned {
    int before, after; /* tokens */
    double covered;    /* the share of the corpus's tokens that stayed */
    size_t params;     /* of the new model */
} kh_pruned;

int kh_model_prune(kh_pruned *out, const kh_prune_opts *, kh_err *err);

#endif
