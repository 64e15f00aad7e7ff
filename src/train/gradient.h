/* gradient.h - gradients of a batch, on several threads, with the same bits for any number of them.
 *
 * The sequences of a batch are cut into a fixed number of shards of about equal length. Each shard
 * is one pass (backward.h) on one thread with gradients of its own, and these are added in the
 * order of the shards. So the number of shards is part of the result, and the number of threads is
 * not.
 *
 *     kh_gradient *g;
 *     kh_gradient_new(&g, &params, 4, KH_WRT_WEIGHTS, 0, 0, err);
 *     kh_pass_f32 pass = { .w = w, .text = &text, .loss = &loss };
 *     kh_gradient_run(g, &pass, true, &value, err);
 *     ... kh_gradient_weights(g) [params.size]
 */
#ifndef KH_TRAIN_GRADIENT_H
#define KH_TRAIN_GRADIENT_H

#include "train/backward.h"

typedef struct kh_gradient kh_gradient;

enum { KH_WRT_WEIGHTS = 1, KH_WRT_PROMPT = 2, KH_WRT_PREFIX = 4 };

/* Whether there are gradients of models of this kind with respect to that; if not, the sentence. */
int kh_gradient_check(const kh_config *, unsigned wrt, kh_err *err);
/* wrt: with respect to what. n_prompt and n_prefix: rows of the soft prompt, and of the prefix in
 * each layer. */
int kh_gradient_new(kh_gradient **out, const kh_params *, int shards, unsigned wrt, int n_prompt,
    int n_prefix, kh_err *err);
void kh_gradient_free(kh_gradient *);

/* The loss, and if `gradients` its gradients; pass->dw, d_prompt and d_prefix are not read. The
 * loss alone is without dropout. */
int kh_gradient_run(
    kh_gradient *, const kh_pass_f32 *pass, bool gradients, double *loss, kh_err *err);

/* The gradients of the last run; NULL for what was not asked for. They may be written to until the
 * next. */
float *kh_gradient_weights(kh_gradient *);
float *kh_gradient_prompt(kh_gradient *);
float *kh_gradient_prefix(kh_gradient *);

#endif
