/* weights.h - the table of tensors: what each is called in each family, its shape in terms of the
 * config, where it goes and whether it is needed. Binding, checking, writing random models and
 * every error text walk this table. */
#ifndef KH_MODEL_WEIGHTS_H
#define KH_MODEL_WEIGHTS_H

#include "model/model.h"

typedef enum kh_need {
    KH_NEED_ALWAYS,
    KH_NEED_TYPES,   /* if the family has token types */
    KH_NEED_HEAD,    /* if the model has a head */
    KH_NEED_DECODER, /* if the model has a head and its decoder is not tied */
} kh_need;

typedef enum kh_fill {
    KH_FILL_NORMAL,
    KH_FILL_ZERO,
    KH_FILL_ONE
} kh_fill; /* how a fresh model starts */

typedef struct kh_weight {
    size_t offset;   /* of the kh_tensor in kh_weights, or in kh_layer if `layered` */
    bool layered;    /* one for each layer; '#' in the name is its number */
    char rows, cols; /* letters of config.h: V H I P T; rows 0 for a vector */
    kh_need need;
    kh_fill fill;
    const char *name[KH_FAMILY_COUNT]; /* spellings, the usual one first: "a|b"; NULL: BERT's */
} kh_weight;

extern const kh_weight kh_weight_table[]; /* ends with a row whose name[0] is NULL */

/* Whether a model of this config has this tensor. */
bool kh_weight_wanted(const kh_weight *, const kh_config *, bool head);
/* The n-th spelling, with the family's prefix ("bert.", ...) if `prefixed`; false if there is no
 * n-th. */
bool kh_weight_name(
    const kh_weight *, const kh_config *, bool prefixed, int layer, int n, char *out, size_t cap);
const char *kh_family_prefix(kh_family);
/* The size that a letter of the table stands for, and the config key that sets it. */
int kh_weight_size(const kh_config *, char letter);
const char *kh_weight_key(char letter);
/* rank 1 or 2, and the shape. */
int kh_weight_shape(const kh_weight *, const kh_config *, size_t shape[2]);
/* Its place in a model. */
kh_tensor *kh_weight_tensor(const kh_weight *, kh_weights *, int layer);

#endif
