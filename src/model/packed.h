/* packed.h - a model as the engine multiplies with it: matrices packed in a precision, vectors as
 * floats. Inside of the engine: engine.c runs encoders on it, causal.c decoders.
 *
 * H hidden, I inner, V vocabulary, Q all heads of queries, K all heads of keys or of values. */
#ifndef KH_MODEL_PACKED_H
#define KH_MODEL_PACKED_H

#include "model/engine.h"

/* A dense layer, packed. */
typedef struct kh_dense {
    int k, n;
    kh_precision precision;
    void *w;
    float *bias; /* [n] or NULL */
} kh_dense;

typedef struct kh_packed_layer {
    kh_dense q, kv, o, up, down;          /* kv: keys, then values */
    kh_dense gate;                        /* where the feed-forward part has one */
    float *ln1_g, *ln1_b, *ln2_g, *ln2_b; /* [H]; biases only where norms have them */
    float *qn_g, *kn_g;                   /* [D], or NULL */
    float *post1_g, *post2_g;             /* [H], or NULL */
} kh_packed_layer;

/* Cosines and sines of rotary positions: [2, D / 2] for each place. */
typedef struct kh_turns {
    float *table;
    int places;
} kh_turns;

struct kh_engine {
    kh_model *model;
    const kh_kernels *kernels;
    kh_precision precision;
    kh_packed_layer *layer; /* [L] */
    float *ln_g, *ln_b;     /* of the embeddings */
    kh_dense project;       /* from embeddings to hidden states; empty in most models */
    kh_dense head;          /* f32: it is one row per mask, and the logits hang on it */
    float *head_ln_g, *head_ln_b;
    float *final_g, *final_b;  /* after the last layer, in decoders */
    kh_dense decoder;          /* the whole vocabulary; packed when first asked for */
    kh_turns turns[2];         /* of layers without window, and with one */
    struct kh_kv_cache *cache; /* of decoders: keys and values of texts, */
    struct kh_kv_heads *heads; /* and of what prompts begin with; */
    struct kh_kv_cache *texts; /* of texts that stand first, while they are kept */
    int keepers;               /* who wants that */
    size_t cache_bytes; /* limit of the first, and eight times that of the second; 0: a quarter of
                           the memory */
};

/* All of a tensor as floats in fresh memory; NULL when out of memory. */
float *kh_tensor_floats(const kh_tensor *);
/* One dense layer from the rows of w[0], then of w[1] (NULL: only one); biases may be absent. */
bool kh_dense_pack(
    kh_engine *, kh_precision, kh_dense *, const kh_tensor *w[2], const kh_tensor *b[2]);
void kh_dense_free(kh_dense *);
/* y = x W + bias + residual, then the epilogue; y must not overlap the residual. */
void kh_dense_apply(const kh_engine *, const kh_dense *, const float *x, int rows,
    const float *residual, kh_epilogue, float *y, void *scratch);
kh_epilogue kh_epilogue_of(kh_act);
/* Tables of rotary positions for so many places; true: they are there, or none are needed. */
bool kh_turns_make(kh_engine *, int places);
/* Turns heads of D numbers of this layer by their place: numbers i and i + D / 2 are a point of the
 * plane. */
void kh_turn(const kh_engine *, int layer, int place, float *x, int heads);
/* The matrix of the whole vocabulary, once. */
int kh_decoder_pack(kh_engine *, kh_err *err);
/* Its rows of the label words' first tokens, as a dense layer of its own. */
int kh_labels_pack(kh_engine *, const kh_words *, kh_dense *, kh_err *err);
/* Scores of words [n, n_word] -> logits of labels [n, n_label]. */
void kh_words_reduce(const kh_words *, const float *score, size_t n, float *logits);
/* Logits of the whole vocabulary -> log-probabilities. */
void kh_log_softmax(float *x, int n);

/* ---------------------------------------------------------------------- decoders (causal.c) */

int kh_causal_score(kh_engine *, const kh_question *, float *logits, kh_err *err);
int kh_causal_vocabulary(
    kh_engine *, const kh_question *, const int *at, int n_at, float *out, kh_err *err);
int kh_causal_hidden(kh_engine *, const kh_question *, int layers, float *out, kh_err *err);
void kh_causal_free(kh_engine *); /* what these keep */

#endif
