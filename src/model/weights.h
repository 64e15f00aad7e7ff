/* weights.h - the table of tensors: what each is called in each family, its shape in terms of the
 * config, where it goes and whether it is needed. Binding, checking, writing random models and
 * every error text walk this table. */
#ifndef KH_MODEL_WEIGHTS_H
#define KH_MODEL_WEIGHTS_H

#include "model/model.h"

typedef enum kh_need {
    KH_NEED_ALWAYS,
    KH_NEED_TYPES,      /* if the family has token types */
    KH_NEED_HEAD,       /* if the model has a masked-language-model head */
    KH_NEED_HEAD_BIAS,  /* and that has biases */
    KH_NEED_DECODER,    /* if the model has a head and its decoder is not tied */
    KH_NEED_POSITIONS,  /* if positions are rows of a table */
    KH_NEED_EMBED_NORM, /* if the embeddings are normalised */
    KH_NEED_EMBED_BIAS,
    KH_NEED_NORM_BIAS, /* if norms have a bias */
    KH_NEED_QKV_BIAS,  /* these three: if there is such a bias */
    KH_NEED_OUT_BIAS,
    KH_NEED_MLP_BIAS,
    KH_NEED_FINAL_NORM, /* if a norm follows the last layer */
    KH_NEED_FINAL_BIAS,
    KH_NEED_GATE, /* if the feed-forward part has a gate */
    KH_NEED_GATE_BIAS,
    KH_NEED_QK_NORM,    /* if queries and keys are normalised */
    KH_NEED_POST_NORM,  /* if what a layer adds is normalised */
    KH_NEED_PROJECTION, /* if embeddings have a width of their own */
} kh_need;

typedef enum kh_fill {
    KH_FILL_NORMAL,
    KH_FILL_ZERO,
    KH_FILL_ONE
} kh_fill; /* how a fresh model starts */

/* What a family calls a tensor, and how it stores it. */
typedef struct kh_spelling {
    const char *name; /* the usual name first: "a|b"; NULL: that of the family it descends from */
    int part, parts;  /* the tensor is part number `part` of `parts` along the outputs of a fused
                       * one; parts 0 or 1: it is stored alone */
    bool turned;      /* stored as [in, out] (GPT-2's Conv1D) */
} kh_spelling;

typedef struct kh_weight {
    size_t offset;   /* of the kh_tensor in kh_weights, or in kh_layer if `layered` */
    bool layered;    /* one for each layer; '#' in the name is its number */
    char rows, cols; /* letters of config.h: V H I P T, D a head, Q all heads of queries, K all of
                      * keys or values; rows 0 for a vector */
    kh_need need;
    kh_fill fill;
    kh_spelling name[KH_FAMILY_COUNT];
} kh_weight;

extern const kh_weight kh_weight_table[]; /* ends with a row whose cols is 0 */

/* Whether a model of this config has this tensor. */
bool kh_weight_wanted(const kh_weight *, const kh_config *, bool head);
/* Whether this layer is without it, though others have it. */
bool kh_weight_left_out(const kh_weight *, const kh_config *, int layer);
/* The n-th spelling, with the family's prefix ("bert.", ...) if `prefixed`; false if there is no
 * n-th. */
bool kh_weight_name(
    const kh_weight *, const kh_config *, bool prefixed, int layer, int n, char *out, size_t cap);
const kh_spelling *kh_weight_spelling(const kh_weight *, const kh_config *);
/* Whether all layers have one tensor. */
bool kh_weight_shared(const kh_weight *, const kh_config *);
const char *kh_family_prefix(kh_family);
/* The size that a letter of the table stands for, and the config key that sets it. */
int kh_weight_size(const kh_config *, char letter);
const char *kh_weight_key(const kh_config *, char letter);
/* rank 1 or 2, and the shape: in memory, and of the tensor in the file that holds it. */
int kh_weight_shape(const kh_weight *, const kh_config *, size_t shape[2]);
int kh_weight_stored_shape(const kh_weight *, const kh_config *, size_t shape[2]);
/* Its place in a model. */
kh_tensor *kh_weight_tensor(const kh_weight *, kh_weights *, int layer);

#endif
