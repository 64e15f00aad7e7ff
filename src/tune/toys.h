/* toys.h - problems whose posterior is known, for methods without a likelihood.
 *
 *   linear-gaussian  x = z + noise. Errors: how many half units each coordinate is off, at most 8,
 * all added up. signs            the label of row j is the sign of z_j, for 32 rows or as many as
 * there are coordinates: like the box, where most directions of z do not matter and an error is a
 * wrong label. two-moons        the two-dimensional benchmark of Greenberg et al. (2019), whose
 * posterior has two crescents. Its parameter is uniform on [-1, 1]^2; z is that, stretched to the
 * prior N(0, I) by the normal quantile function.
 *
 * doc/methods.md, L12 to L15, has their definitions and posteriors.
 *
 *     kh_toy *toy;
 *     if (kh_toy_new(&toy, "linear-gaussian", 10, 1, err)) ...
 *     sampler->run(&out, kh_toy_simulator(toy), opts, seed, &watch, err);
 *     kh_toy_parameters(toy, out.z, out.n, theta);
 *     kh_toy_free(toy);
 */
#ifndef KH_TUNE_TOYS_H
#define KH_TUNE_TOYS_H

#include "tune/simulator.h"

#define KH_TOY_NAMES "linear-gaussian|signs|two-moons"

typedef struct kh_toy kh_toy;

/* seed: of the observation, and of the simulator's noise. */
int kh_toy_new(kh_toy **out, const char *name, int dim, uint64_t seed, kh_err *err);
void kh_toy_free(kh_toy *);
kh_simulator *kh_toy_simulator(kh_toy *); /* lives as long as the toy */

/* From now on z has further coordinates, which are the noise of its observation, so that the same z
 * is always answered the same way, as the box answers: what is drawn is the posterior of both, and
 * its first coordinates are what is asked for. For methods that move z by small steps: with noise
 * anew each time, a step of nothing would be refused as often as any other. */
void kh_toy_carry_noise(kh_toy *);

/* z [n, the simulator's dim] as the problem's own parameters, theta [n, dim]. */
void kh_toy_parameters(const kh_toy *, const float *z, int n, double *theta);

/* Mean and variance [dim] of each coordinate of z given that there are at most `tolerance` errors,
 * exactly. False if this problem has no closed form. */
bool kh_toy_moments(const kh_toy *, int tolerance, double *mean, double *var);

/* Exact draws of theta [n, dim] given the observation itself (for signs: given no error). */
void kh_toy_reference(const kh_toy *, int n, uint64_t seed, double *theta);

#endif
