/* engine.h - the fast forward pass: soft prompts x sequences -> label logits.
 *
 * The engine packs the encoder's weights once, in the precision asked for, and gives their first
 * copy back. It computes only what is asked for: no padding; in the last layer one row per mask; of
 * the vocabulary the label words. What depends on the text alone, or on the prompt alone, is
 * computed once and shared (the first layer up to its attention).
 *
 * A sequence's result is a pure function of (weights, precision, kernels, ids, prompt): equal bits
 * for any number of threads, any batch and any order. reference.h is the specification it is tested
 * against.
 *
 *     kh_engine *e;
 *     if (kh_engine_new(&e, model, KH_F32, err)) ...     the engine owns the model from here on
 *     kh_question q = { b, words, KH_INJECT_POST_LN_ADD, prompts, 20 };
 *     kh_engine_score(e, &q, logits, err);
 */
#ifndef KH_MODEL_ENGINE_H
#define KH_MODEL_ENGINE_H

#include "model/adapter.h"
#include "model/kernels.h"
#include "model/model.h"

typedef struct kh_engine kh_engine;

/* Takes the model over, also when it fails. */
int kh_engine_new(kh_engine **out, kh_model *, kh_precision, kh_err *err);
void kh_engine_free(kh_engine *);
const kh_model *kh_engine_model(const kh_engine *);
const kh_kernels *kh_engine_kernels(const kh_engine *);

kh_precision kh_engine_precision(const kh_engine *); /* never KH_PRECISION_AUTO */
const char *kh_precision_name(kh_precision);

/* Questions are kh_question of keyhole.h. The ids in the slots are the same for all sequences that
 * have their slots at the same place, as kh_batch_encode makes them. */

/* logits [n_prompt, n_row, n_label], as kh_words defines them. */
int kh_engine_score(kh_engine *, const kh_question *, float *logits, kh_err *err);

/* The same with keys and values in front of those of every sequence (adapter.h, prefix). They take
 * no positions. */
int kh_engine_score_prefixed(
    kh_engine *, const kh_question *, const kh_adapter *prefix, float *logits, kh_err *err);

/* The other two questions are about sequences as they are (with one prompt, if they have slots);
 * words is not used. */

/* Log-probabilities of the whole vocabulary at n_at places of the batch, ascending, which count its
 * ids: place t of sequence s is start[s] + t. out [n_at, V]. */
int kh_engine_vocabulary(
    kh_engine *, const kh_question *, const int *at, int n_at, float *out, kh_err *err);

/* Hidden states after `layers` layers (0: the embedding output), sequence after sequence: out [sum
 * of T, H]. */
int kh_engine_hidden(kh_engine *, const kh_question *, int layers, float *out, kh_err *err);

/* Whether the model can take the sequences: what the questions complain of first. Says the same. */
int kh_engine_check(const kh_engine *, const kh_question *, kh_err *err);

/* Decoders keep keys and values of texts that stand before the slots, at most so many bytes; 0: a
 * quarter of the memory; and of what questions begin with, an eighth of that. Bits never depend on
 * it. */
void kh_engine_cache(kh_engine *, size_t bytes);

/* Between true and false, which may nest, decoders keep the keys and values of texts that stand
 * first in a sequence without slots, in as many bytes: for questions about the same rows that
 * differ in what comes after the text. Bits never depend on it. */
void kh_engine_keep_texts(kh_engine *, bool keep);

/* A batch of one sequence without slots. */
typedef struct kh_single {
    size_t start[2];
    int mask, slot, n_mask;
    kh_batch batch;
} kh_single;
void kh_single_init(kh_single *, const int32_t *id, int n);

#endif
