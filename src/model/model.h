/* model.h - a model in memory: its sizes, its weights, and how an input is laid out for it.
 *
 * One struct of bound weights serves every forward pass: the plain one (reference.h) and the fast
 * one read the same tensors. Matrices hold the numbers as they were stored, or as
 * kh_model_opts.store asked; vectors are always F32. kh_tensor_row gives floats of either. The
 * formulas are in doc/model.md.
 *
 * L layers, H hidden, A heads, I inner, V vocabulary, P positions, T token types, as in config.h.
 * Matrices multiply from the right as in PyTorch: y = x W^T + b, so W is [out, in]. */
#ifndef KH_MODEL_MODEL_H
#define KH_MODEL_MODEL_H

#include "base/arena.h"
#include "model/config.h"
#include "model/tensor.h"

typedef struct kh_layer {
    kh_tensor q_w, q_b;         /* [Q, H], [Q]: attention queries */
    kh_tensor k_w, k_b;         /* [K, H], [K]: keys */
    kh_tensor v_w, v_b;         /* [K, H], [K]: values */
    kh_tensor o_w, o_b;         /* [H, Q], [H]: what the heads' results are mixed by */
    kh_tensor ln1_g, ln1_b;     /* [H], [H]: norm of attention: after it, or before it */
    kh_tensor up_w, up_b;       /* [I, H], [I]: feed-forward, in */
    kh_tensor down_w, down_b;   /* [H, I], [H]: feed-forward, out */
    kh_tensor ln2_g, ln2_b;     /* [H], [H]: norm of feed-forward: after it, or before it */
    kh_tensor gate_w, gate_b;   /* [I, H], [I]: what the feed-forward part is multiplied by */
    kh_tensor qn_g, kn_g;       /* [D]: norms of the heads of queries and keys */
    kh_tensor post1_g, post2_g; /* [H]: norms of what attention and feed-forward add */
} kh_layer;

typedef struct kh_weights {
    kh_tensor word;                 /* [V, E]; E is H in most */
    kh_tensor position;             /* [P, E]; absent where positions are rotary */
    kh_tensor type;                 /* [T, E]; absent in DistilBERT and in decoders */
    kh_tensor ln_g, ln_b;           /* [E], [E]: LayerNorm of the embeddings; absent in decoders */
    kh_layer *layer;                /* [L] */
    kh_tensor head_w, head_b;       /* [E, H], [E]: the head; absent in a model without one */
    kh_tensor head_ln_g, head_ln_b; /* [E], [E] */
    kh_tensor decoder_w;            /* [V, E]; the same memory as `word` if tied */
    kh_tensor decoder_b;            /* [V]; absent in decoders */
    kh_tensor project_w,
        project_b;              /* [H, E], [H]: from embeddings to hidden states; mostly absent */
    kh_tensor final_g, final_b; /* [H], [H]: norm after the last layer */
} kh_weights;

struct kh_model {
    kh_config config;
    kh_weights w;
    bool head; /* the head's tensors are there */
    char *dir;
    kh_dtype file_dtype; /* of the word embeddings in the file */
    uint64_t fingerprint;
    size_t params;
    const char *
        *extra; /* [n_extra] names of tensors that nothing uses, harmless ones not among them */
    int n_extra;
    kh_arena arena; /* names, layers, extra */
};

/* Fails with a sentence if the model has no head; `what` needs it, e.g. "fill-mask". */
int kh_model_needs_head(const kh_model *, const char *what, kh_err *err);

/* Frees the memory of one tensor of the model, which then is absent: for code that keeps its own,
 * packed copy. */
void kh_model_drop(kh_model *, kh_tensor *);

/* -------------------------------------------------------------------------------------- inputs */

/* One sequence and the soft prompt in it. */
typedef struct kh_input {
    const int32_t *id; /* [n_id], special tokens included, without padding */
    int n_id;
    kh_inject inject;
    const float *prompt; /* [n_prompt, H] */
    int n_prompt;
} kh_input;

/* T, the length of the sequence as the model sees it: ids, and rows that are not ids. */
int kh_input_length(const kh_input *);
/* Where the i-th id stands in it. */
int kh_input_place(const kh_input *, int i);
/* Checks ids, length and prompt against the model. */
int kh_input_check(const kh_model *, const kh_input *, kh_err *err);
/* What stands at one place of the sequence. */
typedef struct kh_slot {
    int32_t id;   /* the token, or -1 */
    int embedded; /* the prompt row that stands here as a word embedding, or -1 */
    int added;    /* the prompt row that is added after LayerNorm, or -1 */
    int position; /* row of the position table */
} kh_slot;
/* All T places of a checked input. */
void kh_input_slots(const kh_model *, const kh_input *, kh_slot *out);

#endif
