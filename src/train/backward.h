/* backward.h - exact gradients of the encoder and the masked-language-model head: with respect to
 * all weights, to a soft prompt, and to key and value prefixes of every layer. Formulas in
 * doc/training.md.
 *
 * One pass takes sequences of different lengths, packed: their tokens follow each other as rows of
 * one matrix, and nothing is padded. It computes only what the loss needs: the last layer's queries
 * and feed-forward part at the places where the loss looks, and nowhere else. The code is written
 * once (backward_body.h) and compiled twice: in f32 for use, in double as the oracle of the tests,
 * whose gradients are checked against differences of losses.
 *
 *     kh_tape_f32 tape = { 0 };           memory, grown as needed and kept between passes
 *     kh_pass_f32 pass = { .w = w, .text = &text, .loss = &loss, .dw = gradient };
 *     kh_backward_f32(&tape, &params, &pass, &value, err);
 *     kh_tape_f32_free(&tape);
 *
 * A pass runs on the calling thread; gradient.h spreads passes over threads. */
#ifndef KH_TRAIN_BACKWARD_H
#define KH_TRAIN_BACKWARD_H

#include "train/params.h"

/* Packed sequences: the tokens of sequence s are slot[start[s]] .. slot[start[s + 1] - 1].
 * Attention sees one sequence. */
typedef struct kh_packed {
    int n_seq;
    const int *start; /* [n_seq + 1] */
    const kh_slot
        *slot;     /* [start[n_seq]] what stands at each place; prompt rows are those of the pass */
    const int *at; /* [n_at] the places where the head looks, ascending */
    const int *first_at; /* [n_seq + 1] those of sequence s are at[first_at[s]] .. */
} kh_packed;

/* -log of the probability of a target at every place, added up and multiplied by scale. Without
 * tokens the target is a token and competes with the whole vocabulary. With them it is a label:
 * only the logits of these tokens count, and those of a label's tokens are joined by log-sum-exp.
 */
typedef struct kh_lm_loss {
    const int32_t *target; /* [n_at] */
    const float *weight;   /* [n_at] of a place, beside scale; NULL: 1. Not with tokens */
    const int32_t *token;  /* [n_token] or NULL */
    const int *label;      /* [n_token] */
    int n_token, n_label;
    double scale;
} kh_lm_loss;

/* Dropout as in BERT: after the embeddings' LayerNorm, on attention probabilities, and on what
 * attention and feed-forward part add. Which numbers become 0 (the others grow by 1 / (1 - rate))
 * depends on seed, step, layer and place in the batch alone. */
typedef struct kh_dropout {
    double rate; /* below 1 */
    uint64_t seed;
    uint32_t step;
} kh_dropout;

#define KH_PASS(real) \
    { \
        const real *w; /* the weights, as kh_params lays them out */ \
        const kh_packed *text; \
        const kh_lm_loss *loss; \
        const real *prompt; /* [n_prompt, H], or NULL */ \
        int n_prompt; \
        const real *prefix; /* [L, 2, n_prefix, H]: keys and values before those of every \
                               sequence; or NULL */ \
        int n_prefix; \
        real *dw; /* the gradients are added to these; NULL: not wanted. All NULL: only the loss \
                     is computed */ \
        real *d_prompt; \
        real *d_prefix; \
        real *logprob;             /* [n_at, n_label]: of the labels; NULL: not wanted, or none */ \
        const kh_dropout *dropout; /* NULL: none */ \
        int first_token; /* where in the batch the text begins, if it is a part of one: names what \
                            is dropped */ \
        bool bf16;       /* large products round their numbers to bf16; in f32 only */ \
        bool recompute;  /* keep only the inputs of layers and compute the rest again on the way \
                            back: the same bits, slower */ \
    }

#define KH_TAPE(real) \
    { \
        real *memory; \
        size_t cap; \
        kh_layer *layers; /* [2 L]: views of weights and gradients */ \
        struct kh_layer_tape *layer; \
        int n_layer; \
    }

typedef struct kh_pass_f32 KH_PASS(float) kh_pass_f32;
typedef struct kh_pass_f64 KH_PASS(double) kh_pass_f64;
typedef struct kh_tape_f32 KH_TAPE(float) kh_tape_f32;
typedef struct kh_tape_f64 KH_TAPE(double) kh_tape_f64;

int kh_backward_f32(
    kh_tape_f32 *, const kh_params *, const kh_pass_f32 *, double *loss, kh_err *err);
int kh_backward_f64(
    kh_tape_f64 *, const kh_params *, const kh_pass_f64 *, double *loss, kh_err *err);
void kh_tape_f32_free(kh_tape_f32 *);
void kh_tape_f64_free(kh_tape_f64 *);

#endif
