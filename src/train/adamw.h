/* adamw.h - AdamW (Loshchilov and Hutter 2019): Adam whose weight decay does not pass through the
 * moments. Warm-up, a schedule, and clipping by the norm of the whole gradient. Steps as PyTorch's
 * torch.optim.AdamW takes them.
 *
 *     kh_adamw a;
 *     kh_adamw_init(&a, segments, n_segment, err);
 *     kh_adamw_step(&a, &opts, kh_adamw_rate(&opts, a.step, total), w, gradient, &norm);
 */
#ifndef KH_TRAIN_ADAMW_H
#define KH_TRAIN_ADAMW_H

#include "keyhole.h"

typedef enum kh_decay { KH_DECAY_CONSTANT, KH_DECAY_LINEAR, KH_DECAY_COSINE } kh_decay;

typedef struct kh_adamw_opts {
    double lr; /* at its highest */
    double beta1, beta2, eps;
    double weight_decay;
    double clip;   /* largest norm of a gradient; 0: any */
    double warmup; /* steps over which the rate rises from 0; below 1, a share of all steps */
    int decay;     /* kh_decay: after that */
    double floor;  /* the rate at the end, as a share of lr */
} kh_adamw_opts;

/* Numbers that are treated alike. */
typedef struct kh_param_group {
    size_t n;
    bool decay;
} kh_param_group;

typedef struct kh_adamw {
    float *m, *v; /* [n] the moments */
    size_t n;
    long step; /* steps taken */
    kh_param_group *segment;
    int n_segment;
    double *partial; /* sums of squares, piece by piece */
} kh_adamw;

kh_adamw_opts kh_adamw_defaults(
    void); /* 1e-3, 0.9, 0.999, 1e-8, 0.01, no clipping, no warm-up, constant */

/* The segments follow each other and make up the whole vector. Free it, also after failure. */
int kh_adamw_init(kh_adamw *, const kh_param_group *, int n_segment, kh_err *err);
void kh_adamw_free(kh_adamw *);

/* The learning rate of step number `step` (from 0) of `total`. */
double kh_adamw_rate(const kh_adamw_opts *, long step, long total);

/* One step on w; norm, if not NULL, gets the norm of the gradient before clipping. The bits do not
 * depend on threads. */
void kh_adamw_step(
    kh_adamw *, const kh_adamw_opts *, double rate, float *w, const float *gradient, double *norm);

#endif
