/* config.h - config.json of a Hugging Face encoder, checked: what is not understood is refused by
 * name. */
#ifndef KH_MODEL_CONFIG_H
#define KH_MODEL_CONFIG_H

#include "base/buf.h"
#include "keyhole.h"

typedef enum kh_family {
    KH_FAMILY_BERT,
    KH_FAMILY_ROBERTA,
    KH_FAMILY_DISTILBERT,
    KH_FAMILY_COUNT
} kh_family;

typedef enum kh_act {
    KH_ACT_GELU,      /* x * Phi(x), through erf: "gelu" */
    KH_ACT_GELU_TANH, /* its tanh approximation: "gelu_new", "gelu_pytorch_tanh" */
    KH_ACT_RELU,
} kh_act;

typedef struct kh_config {
    kh_family family;   /* whose rules hold: tensor names, positions, head */
    const char *type;   /* "model_type"; static */
    int layers;         /* L */
    int hidden;         /* H */
    int heads;          /* A, divides H */
    int inner;          /* I, width of the feed-forward part */
    int vocab;          /* V */
    int positions;      /* P, rows of the position table */
    int types;          /* T, rows of the token-type table; 0: the family has none */
    int pad;            /* id of the padding token */
    int first_position; /* position of the first token: 0, RoBERTa pad + 1 */
    double eps;         /* of every LayerNorm */
    kh_act act;         /* of the feed-forward part */
    kh_act head_act;    /* of the head: RoBERTa's is always GELU */
    bool tied;          /* the decoder is the word-embedding matrix */
} kh_config;

int kh_config_read(kh_config *, const char *path, kh_err *err);
/* The same from n bytes; `name` is what messages call them. */
int kh_config_parse(kh_config *, const char *text, size_t n, const char *name, kh_err *err);
/* Appends a config.json that kh_config_read and Hugging Face read as this. */
void kh_config_put(const kh_config *, kh_dtype, kh_buf *out);
/* Checks what the parser also checks, for a config made by other means; `place` starts the
 * sentence. */
int kh_config_check(const kh_config *, const char *place, kh_err *err);

/* Sets the padding token, and with it where positions start. */
static inline void kh_config_set_pad(kh_config *c, int pad) {
    c->pad = pad;
    c->first_position = c->family == KH_FAMILY_ROBERTA ? pad + 1 : 0;
}

/* The position of the next token of a sequence; *next starts as first_position. BERT counts every
 * token. RoBERTa gives a padding token inside the text position `pad` and does not count it, unless
 * the input comes as word embeddings (`embedded`), in which tokens cannot be seen. */
static inline int kh_config_position(const kh_config *c, int32_t id, bool embedded, int *next) {
    bool skipped = c->family == KH_FAMILY_ROBERTA && !embedded && id == c->pad;
    return skipped ? c->pad : (*next)++;
}

/* The longest sequence. */
static inline int kh_config_max_tokens(const kh_config *c) {
    return c->positions - c->first_position;
}

#endif
