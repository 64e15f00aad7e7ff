/* architecture.h - the table of architectures: for each "model_type" that is read, whose names its
 * tensors have, and what a layer is made of. Sizes and settings that differ from model to model
 * are in config.h; tensors are in weights.h; the formulas are in doc/model.md.
 *
 * A new architecture is a row here, its names in weights.c, and what is new about its config.json
 * in config.c. Forward passes read these fields and never ask for a type by name. */
#ifndef KH_MODEL_ARCHITECTURE_H
#define KH_MODEL_ARCHITECTURE_H

#include <stdbool.h>

/* Who named the tensors and the keys of config.json. */
typedef enum kh_family {
    KH_FAMILY_BERT,
    KH_FAMILY_ROBERTA,
    KH_FAMILY_DISTILBERT,
    KH_FAMILY_GPT2,
    KH_FAMILY_LLAMA, /* and Mistral and Qwen */
    KH_FAMILY_GEMMA3,
    KH_FAMILY_ELECTRA,
    KH_FAMILY_ALBERT, /* all its layers are one */
    KH_FAMILY_MODERNBERT,
    KH_FAMILY_COUNT
} kh_family;

typedef enum kh_norm_kind {
    KH_NORM_LAYER,    /* (x - mean) / sqrt(variance + eps) * g + b */
    KH_NORM_RMS,      /* x / sqrt(mean of x^2 + eps) * g */
    KH_NORM_RMS_PLUS, /* the same with 1 + g */
} kh_norm_kind;

/* Where a layer normalises, for f its attention or its feed-forward part. */
typedef enum kh_norm_place {
    KH_NORM_AFTER,  /* x = norm(x + f(x)) */
    KH_NORM_BEFORE, /* x = x + f(norm(x)), and a last norm after all layers */
    KH_NORM_AROUND, /* x = x + norm'(f(norm(x))), and a last norm */
} kh_norm_place;

typedef enum kh_position {
    KH_POSITION_TABLE,  /* a row of a table is added to the word embedding */
    KH_POSITION_ROTARY, /* queries and keys are turned by their position (RoPE) */
} kh_position;

enum kh_bias {
    KH_BIAS_QKV = 1, /* of queries, keys and values */
    KH_BIAS_OUT = 2, /* of the product after attention */
    KH_BIAS_MLP = 4, /* of the feed-forward part */
    KH_BIAS_ALL = 7,
};

typedef struct kh_architecture {
    const char *type; /* "model_type" */
    kh_family family;
    const char *class; /* "architectures" of a config.json that keyhole writes */
    bool causal;       /* a decoder: a token sees none behind it, and the head predicts the next */
    bool embed_norm;   /* the embeddings are normalised */
    kh_norm_kind norm;
    kh_norm_place place;
    kh_position position;
    bool gated;        /* the feed-forward part is down(act(gate(x)) * up(x)) */
    unsigned bias;     /* kh_bias: always there; config.json may add some */
    bool qk_norm;      /* queries and keys are normalised, each head for itself */
    bool scaled_words; /* word embeddings are multiplied by sqrt(H) */
    bool lean;         /* norms and the head's matrix have no bias; the first attention no norm */
} kh_architecture;

extern const kh_architecture kh_architecture_table[]; /* ends with a row whose type is NULL */
const kh_architecture *kh_architecture_find(const char *type); /* NULL: there is none */

#endif
