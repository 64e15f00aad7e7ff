/* mixture_weights.h - the weights of a mixture whose members are known: their posterior mean under
 * a Dirichlet prior. doc/methods.md, X5 to X8. */
#ifndef KH_TUNE_MIXTURE_WEIGHTS_H
#define KH_TUNE_MIXTURE_WEIGHTS_H

#include "keyhole.h"

typedef struct kh_mixture {
    const double *like; /* [n_row, n] what member m gives the label of row i, a probability > 0 */
    int n_row, n;
    const double *prior; /* [n] alpha of each member, above 0 */
} kh_mixture;

/* weight [n] gets E[w | rows], which adds up to one: exactly where that can be added up, else by
 * sampling. The same seed gives the same bits. */
int kh_mixture_weights(const kh_mixture *, uint64_t seed, double *weight, kh_err *err);

/* The two ways. exact: KH_ELIMIT if there are too many terms; *log_evidence, unless NULL, gets log
 * p(labels). sample: by so many sweeps. */
int kh_mixture_exact(const kh_mixture *, double *weight, double *log_evidence, kh_err *err);
int kh_mixture_sample(const kh_mixture *, uint64_t seed, int sweeps, double *weight, kh_err *err);

#endif
