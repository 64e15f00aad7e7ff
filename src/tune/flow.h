/* flow.h - a conditional masked autoregressive flow: a density q(z | x) that can be evaluated,
 * differentiated and drawn from.
 *
 *     kh_flow *f;                                            z [D] numbers, x [C] numbers
 *     if (kh_flow_new(&f, D, C, &(kh_flow_opts){ 10, 60, 2 }, seed, err)) ...
 *     kh_flow_work *w;                                       room for 100 pairs of 20 different x
 *     if (kh_flow_work_new(&w, f, 100, 20, err)) ...
 *     kh_flow_context(f, w, x, 20);
 *     kh_flow_density(f, w, z, of, 100, logq);               log q(z[i] | x[of[i]])
 *     kh_flow_backward(f, w, g, grad);                       grad += sum_i g[i] d logq[i] / d w
 *     kh_flow_context_backward(f, w, grad);                  and for the weights that read x
 *
 * T transforms (Papamakarios et al. 2017) stand one behind the other. Each shuffles the coordinates
 * by a fixed permutation, y = z[perm], and then scales and shifts every y_i by numbers that a
 * network computes from y_0 .. y_{i-1} and x:
 *
 *     u_i = y_i exp(l_i) + t_i,   (l, t) = network(y, x)
 *
 * with l held within -B .. B by a smooth function, so the Jacobian is triangular and its logarithm
 * is the sum of l. The last u is standard normal. The network has L layers of H units, h = a /
 * sqrt(1 + a^2). Unit k has degree m_k = floor(k D / H): it sees y_j with j < m_k, units of no
 * higher degree in the layer before, and all of x; output i sees units of degree at most i. Weights
 * that would break this order are zero and stay zero. Degree 0 lets y_0 depend on x, and degrees
 * spread over all of 0 .. D - 1 use every coordinate when D > H.
 *
 * Units stand in the order of their degrees, so a draw costs no more than a density: when y_i has
 * been found, exactly the units of degree i + 1 become computable, and nothing is computed twice.
 *
 * z and x are standardised inside, and x held within 5 spreads; q is the density of z as it is
 * given. All numbers are double. A call uses one thread and its own kh_flow_work; several threads
 * may use one flow, each with a work of its own. Bits do not depend on threads as long as BLAS is
 * held (blas.h), which the caller does. doc/methods.md, S1 to S4. */
#ifndef KH_TUNE_FLOW_H
#define KH_TUNE_FLOW_H

#include "base/rng.h"
#include "keyhole.h"

typedef struct kh_flow_opts {
    int transforms, hidden, layers; /* T, H, L: all at least 1 */
} kh_flow_opts;

typedef struct kh_flow kh_flow;

/* Weights are drawn from the seed so that q starts near a standard normal in standardised z. dim,
 * context >= 1. */
int kh_flow_new(
    kh_flow **out, int dim, int context, const kh_flow_opts *, uint64_t seed, kh_err *err);
void kh_flow_free(kh_flow *);
int kh_flow_dim(const kh_flow *);

/* What z and x are centred by and divided by: [dim], [dim], [context], [context], copied; spreads
 * are above 0. Until it is called: 0 and 1. */
void kh_flow_standardise(
    kh_flow *, const double *z_mean, const double *z_sd, const double *x_mean, const double *x_sd);

/* All weights, [kh_flow_size]: those from x first, then for each transform the layers' weights and
 * biases. The caller may write them, but must leave zero what is masked. */
double *kh_flow_weights(kh_flow *);
size_t kh_flow_size(const kh_flow *);
/* Sets to zero what stands at masked weights in a [kh_flow_size]. To be called on a gradient before
 * it is used. */
void kh_flow_mask(const kh_flow *, double *a);
/* The order of transform t: perm [dim]. */
const int *kh_flow_order(const kh_flow *, int t);

typedef struct kh_flow_work kh_flow_work;
int kh_flow_work_new(
    kh_flow_work **out, const kh_flow *, int max_rows, int max_contexts, kh_err *err);
void kh_flow_work_free(kh_flow_work *);

/* x [m, context]: what the following calls mean by x number 0 .. m - 1, under the weights as they
 * are. */
void kh_flow_context(const kh_flow *, kh_flow_work *, const float *x, int m);
/* z [n, dim], of [n] -> logq [n]. */
void kh_flow_density(
    const kh_flow *, kh_flow_work *, const double *z, const int *of, int n, double *logq);
/* The u [n, dim] that the last kh_flow_density came to; lives until the next. */
const double *kh_flow_latent(const kh_flow_work *);
/* The gradient belongs to the last kh_flow_density; g [n]. It is not masked yet. */
void kh_flow_backward(const kh_flow *, kh_flow_work *, const double *g, double *grad);
/* After all backward calls since kh_flow_context. */
void kh_flow_context_backward(const kh_flow *, kh_flow_work *, double *grad);

/* u [dim], standard normal -> z [dim] with that u under x number `of`: a draw. */
void kh_flow_inverse(const kh_flow *, kh_flow_work *, int of, const double *u, double *z);
#endif
