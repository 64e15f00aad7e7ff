/* cmaes_impl.h - what an optimiser is made of; for cmaes*.c alone.
 *
 * Letters are the tutorial's: n dimension, lambda = pop, w weights, m mean, C covariance = B D^2
 * B', p_s and p_c the evolution paths; z ~ N(0, I), y = B D z, x = m + sigma y. With bounds, all of
 * these live on the far side of the map. */
#ifndef KH_TUNE_CMAES_IMPL_H
#define KH_TUNE_CMAES_IMPL_H

#include "tune/cmaes.h"

enum { CMAES_HISTORY = 20000 }; /* generations looked back at, at most (tutorial, B.3) */

/* A value and the index of its candidate. */
typedef struct rank {
    double f;
    int k;
} rank;

struct kh_cmaes {
    kh_cmaes_opts o; /* as completed by kh_cmaes_new; lower and upper are not used */
    int n, pop, mu;
    bool full, bounded;
    double sigma0;

    /* Strategy parameters: functions of n, pop, variant and active. */
    double mueff, c1, cmu, cs, cc, damps, chi;
    double gap;          /* evaluations between two decompositions */
    long long max_evals; /* as of the options, or what their 0 stands for */

    /* State; saved. */
    long long generation, evals, eigen_evals;
    int flat; /* generations of equal values, up to now */
    kh_cmaes_reason stop;
    double sigma, best_f, condition;
    double *m, *ps, *pc, *best; /* [n] */
    double *lo, *hi;            /* [n], if bounded */
    double *D;                  /* [n] square roots of the eigenvalues */
    double *C;                  /* full: [n, n], the lower triangle; separable: [n], the diagonal */
    double *B;                  /* full: [n, n], row j is the j-th eigenvector */
    double *hist, *hist_median; /* [CMAES_HISTORY] rings: best and median value of generation g at g
                                   % CMAES_HISTORY */

    /* Derived or passing; not saved. */
    double *w;           /* [pop] recombination weights, the best candidate's first */
    bool sampled;        /* z, y and len are those of this generation */
    double *z, *y, *len; /* [pop, n], [pop, n], [pop]: the candidates, and |z|^2 */
    double *zw, *yw;     /* [n] weighted means of z and y */
    double *coef;        /* [pop] what each y counts for in C */
    double *work;        /* full: for the decomposition */
    double *window;      /* [CMAES_HISTORY] values to find medians of */
    rank *rank;          /* [pop], sorted by value */
    double *memory;      /* all the arrays: one block, state first */
    size_t n_state;      /* doubles of state at its start */
};

/* Memory for an optimiser whose n, pop, full and bounded are set; the state is zero. */
int cmaes_alloc(kh_cmaes *, kh_err *err);
/* Strategy parameters, from n, pop, full and o.active. */
void cmaes_parameters(kh_cmaes *);
/* The variance of coordinate i, without sigma. */
double cmaes_variance(const kh_cmaes *, int i);
/* Whether all variances are; C is left as it is once one is not. */
bool cmaes_in_range(const kh_cmaes *);
/* Why to stop, after a generation whose ranked values are in c->rank (cmaes_stop.c). */
kh_cmaes_reason cmaes_judge(kh_cmaes *);
/* Refuses options, dimension or step size out of range (cmaes_opts.c). */
int cmaes_check(const kh_cmaes_opts *, int n, double sigma, kh_err *err);

#endif
