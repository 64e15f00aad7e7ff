/* params.h - all weights of a model as one long vector, which is how an optimiser sees them.
 *
 * The table says where each tensor lies in it. Within a layer matrices come first, so that those of
 * queries, keys and values are one matrix [3H, H], and their biases one vector [3H]. A tied decoder
 * is the word embeddings.
 *
 *     kh_params p;
 *     kh_params_init(&p, &model->config, err);
 *     float *w = kh_aligned(p.size * sizeof *w);
 *     kh_params_take(&p, model, seed, w);
 *     kh_params_save(&p, w, dir, KH_DTYPE_F32, err);
 */
#ifndef KH_TRAIN_PARAMS_H
#define KH_TRAIN_PARAMS_H

#include "model/weights.h"

typedef struct kh_param {
    const kh_weight *row;
    int layer;
    int rows, cols; /* rows is 1 for a vector */
    size_t at;      /* its first number */
} kh_param;

typedef struct kh_params {
    kh_config config;
    kh_param *item; /* [n], in the order of the vector */
    int n;
    size_t size; /* numbers in all */
    kh_arena arena;
} kh_params; /* start as {0} */

/* The parameters of a model of this config with a head. Free it, also after failure. */
int kh_params_init(kh_params *, const kh_config *, kh_err *err);
void kh_params_free(kh_params *);

/* Whether weight decay is for this one: matrices, but neither biases nor LayerNorm. */
static inline bool kh_param_decays(const kh_param *p) { return p->row->rows != 0; }

/* The numbers of a model; a head that it does not have starts as in a fresh model of this seed. */
void kh_params_take(const kh_params *, const kh_model *, uint64_t seed, float *w);

/* Points the tensors of `out`, whose layers are the caller's [L], into a vector of numbers of
 * `bytes` each. */
void kh_params_view(const kh_params *, void *vector, size_t bytes, kh_weights *out);

/* Writes config.json and model.safetensors into dir, which must be there; each appears when it is
 * whole. */
int kh_params_save(const kh_params *, const float *w, const char *dir, kh_dtype, kh_err *err);

#endif
