/* convert.h - a model in another container or another number format. */
#ifndef KH_TRAIN_CONVERT_H
#define KH_TRAIN_CONVERT_H

#include "keyhole.h"

typedef struct kh_convert_opts {
    const char *model; /* a folder or a GGUF file */
    const char *out;   /* a GGUF file, or a folder for safetensors */
    bool gguf;         /* the container */
    kh_dtype dtype;    /* F32, F16, BF16, or in GGUF Q8_0 or Q4_0 */
    const kh_hooks *hooks;
} kh_convert_opts;

typedef struct kh_converted {
    int tensors;
    size_t before, after; /* bytes of weights */
} kh_converted;

/* Tensors that a model has no use for are left out. Vectors are F32 in a GGUF file; a matrix whose
 * rows are no whole blocks is F16; with Q4_0, word embeddings are Q8_0. The tokenizer goes along.
 * What is written appears when it is complete. */
int kh_model_convert(kh_converted *out, const kh_convert_opts *, kh_err *err);

#endif
