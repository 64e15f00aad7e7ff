/* reference.h - the forward pass in plain C: slow, short, and the specification of every faster
 * one.
 *
 *     kh_input in = { .id = ids, .n_id = n };
 *     float logits[2];
 *     kh_output out = { .at = &mask, .n_at = 1,
 *         .token = (int32_t[]){ good, bad }, .n_token = 2, .logits = logits };
 *     kh_reference_run(model, &in, &out, err);
 */
#ifndef KH_MODEL_REFERENCE_H
#define KH_MODEL_REFERENCE_H

#include "model/model.h"

/* What is wanted of a run, in the caller's memory; T = kh_input_length(in). */
typedef struct kh_output {
    float *hidden; /* [L + 1, T, H]: embedding output, then every layer; NULL: not wanted */
    const int
        *at; /* [n_at] places in the sequence whose logits are wanted (kh_input_place of an id) */
    int n_at;
    const int32_t
        *token; /* [n_token] tokens whose logits are wanted; NULL: all V, and n_token is not read */
    int n_token;
    float *logits; /* [n_at, n_token or V] */
} kh_output;

int kh_reference_run(const kh_model *, const kh_input *, const kh_output *, kh_err *err);

#endif
