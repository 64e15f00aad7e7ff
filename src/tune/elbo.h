/* elbo.h - gradient-free variational inference: a Gaussian over z, fitted by CMA-ES to the evidence
 * lower bound.
 *
 * q = N(mu, diag |v|) over z in R^d; lambda = (mu, v) in R^2d is what CMA-ES moves. doc/methods.md,
 * T12 to T15.
 *
 *     kh_elbo *e;
 *     if (kh_elbo_new(&e, dim, &opts, seed, err)) ...
 *     for (int g = 0; g < 300; g++)
 *         kh_elbo_step(e, &nll, err);               nll: -log p(data | z), of many z at once
 *     kh_elbo_draw(lambda, dim, seed, generation, draw, z);
 *     kh_elbo_free(e);
 */
#ifndef KH_TUNE_ELBO_H
#define KH_TUNE_ELBO_H

#include "tune/tuning.h"

typedef struct kh_elbo_opts {
    int generations, dev_every, stall, draws, samples;
    double kl_weight, prior; /* beta, and the variance of the prior N(0, prior I) */
    double sigma, bound;
    int pop, variant;
    bool active;
    bool common;  /* all candidates of a generation see the same noise */
    bool dev_all; /* every candidate of every generation is scored on dev */
} kh_elbo_opts;
extern const kh_opt kh_elbo_table[];

/* Everything that a fit is in the middle of. */
typedef struct kh_elbo {
    const kh_elbo_opts *o;
    int dim, gen;
    uint64_t seed;
    struct kh_cmaes *es;
    double *x;    /* [pop, 2 dim]: the generation's candidates, */
    double *loss; /* [pop]: -ELBO of each, */
    float *z;     /* [pop, draws, dim]: their draws, */
    double *nll;  /* [pop, draws]: and what the objective said of those */
    int top;      /* the best candidate of the generation */
    double best;  /* the least loss so far */
} kh_elbo;

/* o must outlive it. */
int kh_elbo_new(kh_elbo **out, int dim, const kh_elbo_opts *o, uint64_t seed, kh_err *err);
void kh_elbo_free(kh_elbo *);
/* One generation: draws of every candidate, their likelihoods, the bounds, and CMA-ES's step. */
int kh_elbo_step(kh_elbo *, const kh_objective *nll, kh_err *err);
const double *kh_elbo_candidate(const kh_elbo *, int k); /* lambda [2 dim] of the last generation */

/* KL(q || N(0, prior I)), in closed form. lambda [2 dim]. */
double kh_elbo_kl(const double *lambda, int dim, double prior);
/* z [dim] = mu + sqrt|v| * noise, the noise of stream (seed, variation, generation, draw). */
void kh_elbo_draw(
    const double *lambda, int dim, uint64_t seed, uint32_t generation, uint32_t draw, float *z);

#endif
