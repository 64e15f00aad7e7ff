/* snpe.h - sequential neural posterior estimation: a flow q(z | x) is taught simulations and then
 * asked for z given what was observed.
 *
 * kh_sampler_snpe (snpe.c) is the method: rounds of simulations, each drawn from what the round
 * before has learned. This header is what it is made of: the simulations, and the fit of a flow to
 * them (snpe_fit.c). doc/methods.md, S5 to S8. */
#ifndef KH_TUNE_SNPE_H
#define KH_TUNE_SNPE_H

#include "tune/flow.h"
#include "tune/simulator.h"

/* All simulations of a run so far. */
typedef struct kh_simulations {
    int n, dim, n_obs;
    float *z;          /* [n, dim] */
    float *x;          /* [n, n_obs] */
    double *log_prior; /* [n] of z, up to a constant */
    int *round;        /* [n] from 1 */
    bool *held;        /* [n] held out: it never teaches, it only tells when to stop */
    size_t cap_z, cap_x, cap_prior, cap_round, cap_held;
} kh_simulations;

/* Room for n in all; what is there stays. Free them also on failure. */
int kh_simulations_grow(kh_simulations *, int n, kh_err *err);
void kh_simulations_free(kh_simulations *);

typedef struct kh_fit_opts {
    int atoms, batch, patience, max_epochs;
    double rate, clip;
    bool combined;
} kh_fit_opts;

typedef struct kh_fit_report {
    int epochs;
    double train, valid; /* mean losses: of the last epoch while it was taught, of the weights that
                            are kept */
} kh_fit_report;

/* -log of the share that q / prior gives to the first of n atoms, and its derivatives by each logq,
 * g [n]. One atom stands for no atoms: -logq. */
double kh_atomic_loss(const double *logq, const double *log_prior, int n, double *g);

/* Teaches the flow what all simulations show, from the weights as they are, until the held-out ones
 * have not become more likely for `patience` epochs. The weights that they liked best are kept. In
 * round 1, and while there is one round, the loss is -log q; after it the atomic one. The watch
 * (may be NULL) gets a tick with every batch; 1: it has ended the fit, and the flow is of no use.
 */
int kh_fit(kh_flow *, const kh_simulations *, int round, const kh_fit_opts *, uint64_t seed,
    kh_monitor *, kh_fit_report *, kh_err *err);

#endif
