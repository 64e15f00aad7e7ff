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

enum { KH_SEEN_MAX = 512 };

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
    kh_dtype blocks;    /* KH_DTYPE_Q8_0: matrices are stored as bytes of such blocks, which
                           "quantization_config" says; otherwise KH_DTYPE_ANY */
    char seen_tasks[KH_SEEN_MAX]; /* names of tasks whose train rows it has learned from, with a
                                     comma between them; ours, "seen_tasks" in the file */
} kh_config;

int kh_config_read(kh_config *, const char *path, kh_err *err);
/* The same from n bytes; `name` is what messages call them. */
int kh_config_parse(kh_config *, const char *text, size_t n, const char *name, kh_err *err);
/* Appends a config.json that kh_config_read and Hugging Face read as this. */
void kh_config_put(const kh_config *, kh_dtype, kh_buf *out);
/* Checks what the parser also checks, for a config made by other means; `place` starts the
 * sentence. */
int kh_config_check(const kh_config *, const char *place, kh_err *err);

/* Whether one of the names in a list with commas is this. */
bool kh_name_is_listed(const char *list, const char *name);
/* Notes that the model has learned from rows of the task of this name. */
int kh_config_add_seen(kh_config *, const char *task, kh_err *err);

/* The longest sequence. */
static inline int kh_config_max_tokens(const kh_config *c) {
    return c->positions - c->first_position;
}

#endif
