/* trainable.h - what a box at access level weights lets out beyond answers. Its model must run in
 * this process.
 *
 * These are no questions of a black box: no cache keeps them, and a run that is resumed computes
 * them again. The meter counts them: a row whose states are read, or that is answered with
 * prefixes, is a query. */
#ifndef KH_PLM_TRAINABLE_H
#define KH_PLM_TRAINABLE_H

#include "model/adapter.h"

struct kh_engine;

/* The engine, if the box is open and here. */
int kh_plm_trainable(kh_plm *, struct kh_engine **out, kh_err *err);

/* Hidden states after the last layer, sequence after sequence: out [sum of T, H]. */
int kh_plm_hidden(kh_plm *, const kh_batch *, float *out, kh_err *err);

/* As kh_plm_score_energy, with an adapter of prefixes; energy NULL: not wanted. */
int kh_plm_score_prefixed(
    kh_plm *, const kh_question *, const kh_adapter *, float *logprob, float *energy, kh_err *err);

/* Passes of rows through the weights beside the box: `rows` of `tokens` in all went forward, and
 * back if `gradients`. */
void kh_plm_count_passes(kh_plm *, int rows, long long tokens, bool gradients, double seconds);

#endif
