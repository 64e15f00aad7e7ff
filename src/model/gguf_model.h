/* gguf_model.h - a GGUF file seen as the folder that it was made from: its config.json, and the
 * names and layouts that its tensors have there. */
#ifndef KH_MODEL_GGUF_MODEL_H
#define KH_MODEL_GGUF_MODEL_H

#include "base/buf.h"
#include "base/gguf.h"

/* Keys of files that keyhole wrote: config.json as it was; tensors then have their own names. */
#define KH_GGUF_CONFIG "keyhole.config.json"

/* Appends the config.json that the file's keys amount to. */
int kh_gguf_config(const kh_gguf *, kh_buf *out, kh_err *err);

/* How a tensor differs from the one of the folder. */
typedef struct kh_gguf_layout {
    char name[256]; /* there */
    int heads; /* > 0: each head's rows are the pairs that rotary positions turn, side by side */
    bool straight; /* [out, in] where the folder has [in, out] */
    float plus;    /* what was added to every number */
} kh_gguf_layout;

/* False if a model has no use for the tensor. */
bool kh_gguf_find_layout(const kh_gguf *, const kh_gguf_tensor *, kh_gguf_layout *out);

#endif
