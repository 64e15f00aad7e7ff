/* config.h - config.json of a Hugging Face model, checked: what is not understood is refused by
 * name. What follows from the type alone is in architecture.h. */
#ifndef KH_MODEL_CONFIG_H
#define KH_MODEL_CONFIG_H

#include "base/buf.h"
#include "keyhole.h"
#include "model/architecture.h"

typedef enum kh_act {
    KH_ACT_GELU,      /* x * Phi(x), through erf: "gelu" */
    KH_ACT_GELU_TANH, /* its tanh approximation: "gelu_new", "gelu_pytorch_tanh" */
    KH_ACT_RELU,
    KH_ACT_SILU, /* x / (1 + e^-x): "silu" */
} kh_act;

enum { KH_SEEN_MAX = 512 };
/* How frequencies of rotary positions are changed, so that a model reads texts longer than those
 * that it was taught on. */
typedef enum kh_rope_kind { KH_ROPE_PLAIN, KH_ROPE_LINEAR, KH_ROPE_LLAMA3 } kh_rope_kind;

typedef struct kh_rope {
    double theta;       /* base of the frequencies */
    double local_theta; /* of layers with a window; 0: the same */
    kh_rope_kind kind;  /* what follows is for it; layers with a base of their own are plain */
    double factor, low, high, original;
} kh_rope;

typedef struct kh_config {
    const kh_architecture *arch;
    int layers;         /* L */
    int hidden;         /* H */
    int embed;          /* E, width of the embeddings, which a matrix then makes H; 0: H */
    int heads;          /* A */
    int kv_heads;       /* heads of keys and values, divides A; 0: A */
    int head_width;     /* D, numbers of a head; 0: H / A */
    int inner;          /* I, width of the feed-forward part */
    int vocab;          /* V */
    int positions;      /* P, rows of the position table, or how many places are known */
    int types;          /* T, rows of the token-type table; 0: the family has none */
    int pad;            /* id of the padding token */
    int first_position; /* position of the first token: 0, RoBERTa pad + 1 */
    double eps;         /* of every norm */
    kh_act act;         /* of the feed-forward part */
    kh_act head_act;    /* of the head: RoBERTa's is always GELU */
    bool tied;          /* the decoder is the word-embedding matrix */
    unsigned bias;      /* kh_bias, beyond those of the architecture */
    kh_rope rope;
    double query_scale;           /* what attention divides by is its root; 0: D */
    int window;                   /* places that a token sees, itself included: before it, or
                                   * half of the others to each side in an encoder; 0: all */
    int window_first;             /* layers before this one have no window, */
    int window_every;             /* nor has every so-manieth; 0: all the others have it */
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

/* What 0 stands for above. */
static inline int kh_config_embed(const kh_config *c) {
    return c->embed > 0 ? c->embed : c->hidden;
}
static inline int kh_config_kv_heads(const kh_config *c) {
    return c->kv_heads > 0 ? c->kv_heads : c->heads;
}
static inline int kh_config_head_width(const kh_config *c) {
    return c->head_width > 0 ? c->head_width : c->hidden / c->heads;
}
/* Numbers of all heads: of queries, and of keys or values. */
static inline int kh_config_q_width(const kh_config *c) {
    return c->heads * kh_config_head_width(c);
}
static inline int kh_config_kv_width(const kh_config *c) {
    return kh_config_kv_heads(c) * kh_config_head_width(c);
}
static inline bool kh_config_has_bias(const kh_config *c, unsigned bias) {
    return ((c->arch->bias | c->bias) & bias) != 0;
}
/* What scores of attention are multiplied by. */
double kh_config_attention_scale(const kh_config *);
/* The window of a layer, 0: none. */
int kh_config_window(const kh_config *, int layer);
/* What word embeddings are multiplied by before anything else: 1 in most. */
float kh_config_word_scale(const kh_config *);
/* Radians a position turns pair i of numbers by, [D / 2], in this layer. */
void kh_config_frequencies(const kh_config *, int layer, double *out);

/* Sets the padding token, and with it where positions start. */
static inline void kh_config_set_pad(kh_config *c, int pad) {
    c->pad = pad;
    c->first_position = c->arch->family == KH_FAMILY_ROBERTA ? pad + 1 : 0;
}

/* The position of the next token of a sequence; *next starts as first_position. BERT counts every
 * token. RoBERTa gives a padding token inside the text position `pad` and does not count it, unless
 * the input comes as word embeddings (`embedded`), in which tokens cannot be seen. */
static inline int kh_config_position(const kh_config *c, int32_t id, bool embedded, int *next) {
    bool skipped = c->arch->family == KH_FAMILY_ROBERTA && !embedded && id == c->pad;
    return skipped ? c->pad : (*next)++;
}

/* The longest sequence. */
static inline int kh_config_max_tokens(const kh_config *c) {
    return c->positions - c->first_position;
}

#endif
