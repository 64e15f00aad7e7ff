/* random_model.h - folders with models of random weights: for tests, for speed, and as the start of
 * training.
 *
 * Weights start as Hugging Face starts them: normal with mean 0 and a standard deviation of 0.02,
 * biases 0, LayerNorm 1 and 0, the padding token's embedding 0. Each row of each tensor has a
 * random stream of its own, so the same seed gives the same file on any machine and with any number
 * of threads. */
#ifndef KH_MODEL_RANDOM_MODEL_H
#define KH_MODEL_RANDOM_MODEL_H

#include "model/weights.h"

typedef struct kh_random_opts {
    kh_config config;
    kh_dtype dtype; /* F32, F16 or BF16 */
    double std;
    uint64_t seed;
    const kh_hooks *hooks;
} kh_random_opts;

/* The sizes of a known architecture ("roberta-large", "bert-tiny", ...), or NULL. */
const kh_config *kh_arch_find(const char *name);

/* Writes config.json and model.safetensors into `dir`, which is made if it is not there; a model
 * that is there already is replaced only when the new one is complete. */
int kh_random_model_write(const char *dir, const kh_random_opts *, kh_err *err);

/* Rows first .. first + n of one tensor, as the file would hold them in F32. */
void kh_random_rows(const kh_random_opts *, const kh_weight *row, int layer, size_t first, size_t n,
    size_t cols, float *out);

#endif
