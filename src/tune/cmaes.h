/* cmaes.h - CMA-ES: minimises a function of n reals of which only values are known, by ask and
 * tell.
 *
 *     kh_cmaes_opts o = kh_cmaes_defaults();
 *     o.pop = 20, o.bound = 100, o.seed = 13;
 *     kh_cmaes *c;
 *     if (kh_cmaes_new(&c, NULL, 500, 1.0, &o, err)) ...              from 0 with step size 1
 *     while (!kh_cmaes_stop(c)) {
 *         kh_cmaes_ask(c, x);                                         x [pop, n]
 *         for (int k = 0; k < 20; k++)
 *             f[k] = loss(x + k * 500);
 *         kh_cmaes_tell(c, f);
 *     }
 *     kh_cmaes_free(c);
 *
 * The search distribution N(m, sigma^2 C) starts as N(x0, sigma^2 I). All steps and constants are
 * those of Hansen's tutorial (arXiv 1604.00772): weighted recombination, cumulative step-size
 * adaptation, rank-one, rank-mu and active updates of C; doc/methods.md has the equations. C is
 * decomposed again after a number of evaluations, never by the clock.
 *
 * Candidate k of generation g is made of the random stream (seed, KH_RNG_CMAES, g, k) and the
 * state, nothing else: asking again gives the same candidates, and the bits of a run depend neither
 * on the number of threads nor on interruptions.
 *
 * Memory is taken when an optimiser is made; ask and tell cannot fail. Use one optimiser from one
 * thread at a time. */
#ifndef KH_TUNE_CMAES_H
#define KH_TUNE_CMAES_H

#include "base/buf.h"
#include "base/opts.h"
#include "keyhole.h"

/* Rows that methods of tuning which search with CMA-ES have in common, for a struct S with fields
 * of these names. */
#define KH_SEARCH_ROWS(S, what) \
    { "budget-generations", KH_OPT_INT, offsetof(S, generations), "300", .min = 1, .max = 1 << 30, \
        .arg = "N", .help = what }, \
    { \
        "pop", KH_OPT_INT, offsetof(S, pop), "20", .min = 2, .max = KH_CMAES_MAX_POP, .arg = "N", \
                                                   .help = "candidates per generation" \
    }
#define KH_SEARCH_STEP_ROWS(S, bound_default, bounded) \
    { "sigma", KH_OPT_NUMBER, offsetof(S, sigma), "1", .min = 1e-9, .max = 1e9, .arg = "X", \
        .help = "first step size" }, \
    { \
        "bound", KH_OPT_NUMBER, offsetof(S, bound), bound_default, \
            .min = 0, .max = 1e9, .arg = "X", .help = bounded " within -X .. X; 0: no bounds" \
    }
#define KH_SEARCH_DEV_ROW(S) \
    { "dev-every", KH_OPT_INT, offsetof(S, dev_every), "20", .min = 1, .max = 1 << 30, .arg = "N", \
        .help = "generations between two looks at the dev rows" }, \
    { \
        "budget-stall", KH_OPT_INT, offsetof(S, stall), "0", \
            .min = 0, .max = 1 << 30, .arg = "N", \
            .help = "stop when N looks at the dev rows have found nothing better; 0: never" \
    }
#define KH_SEARCH_SHAPE_ROWS(S) \
    { "variant", KH_OPT_CHOICE, offsetof(S, variant), "full", .arg = "full|separable", \
        .help = "covariance of CMA-ES: all of it, or its diagonal" }, \
    { \
        "active", KH_OPT_FLAG, offsetof(S, active), "true", \
            .help = "learn from bad candidates, too" \
    }

/* The rows of all fields above but lower and upper, for a table of options whose struct S holds a
 * kh_cmaes_opts called m: static const kh_opt table[] = { KH_CMAES_ROWS(my_opts, cmaes), ... }; */
#define KH_CMAES_ROWS(S, m) \
    { "variant", KH_OPT_CHOICE, offsetof(S, m.variant), "full", .arg = "full|separable", \
        .help = "all of the covariance matrix, or its diagonal" }, \
        { "pop", KH_OPT_INT, offsetof(S, m.pop), "0", .max = KH_CMAES_MAX_POP, .arg = "N", \
            .help = "candidates per generation; 0: 4 + floor(3 ln n)" }, \
        { "active", KH_OPT_FLAG, offsetof(S, m.active), "true", \
            .help = "learn from bad candidates, too" }, \
        { "seed", KH_OPT_SEED, offsetof(S, m.seed), "1", .arg = "N", \
            .help = "of the random numbers" }, \
        { "bound", KH_OPT_NUMBER, offsetof(S, m.bound), "0", .max = 1e100, .arg = "B", \
            .help = "stay within -B .. B; 0: no bounds" }, \
        { "target", KH_OPT_NUMBER, offsetof(S, m.target), "-1e300", .arg = "F", \
            .help = "stop at a value of at most F" }, \
        { "max-evals", KH_OPT_INT, offsetof(S, m.max_evals), "0", .arg = "N", \
            .help = "stop after N evaluations; 0: pop (100 + 150 (n + 3)^2 / sqrt(pop))" }, \
        { "tolfun", KH_OPT_NUMBER, offsetof(S, m.tolfun), "1e-11", .max = 1e300, .arg = "F", \
            .help = "stop if recent values differ by less; 0: never" }, \
        { "tolfunhist", KH_OPT_NUMBER, offsetof(S, m.tolfunhist), "1e-12", .max = 1e300, \
            .arg = "F", .help = "stop if recent best values differ by less" }, \
        { "tolx", KH_OPT_NUMBER, offsetof(S, m.tolx), "1e-11", .max = 1e300, .arg = "X", \
            .help = "stop if steps are shorter" }, \
        { "tolfacupx", KH_OPT_NUMBER, offsetof(S, m.tolfacupx), "1e3", .max = 1e300, .arg = "R", \
            .help = "stop if steps grew by this factor" }, \
        { "tolupsigma", KH_OPT_NUMBER, offsetof(S, m.tolupsigma), "1e20", .max = 1e300, \
            .arg = "R", .help = "stop if the step size grew so much more than C" }, \
        { "tolcondition", KH_OPT_NUMBER, offsetof(S, m.tolcondition), "1e14", .max = 1e300, \
            .arg = "R", .help = "stop if the condition number of C exceeds this" }, \
        { "tolflat", KH_OPT_INT, offsetof(S, m.tolflat), "2", .arg = "N", \
            .help = "stop after N generations of equal values; 0: never" }, \
    { \
        "stagnation", KH_OPT_FLAG, offsetof(S, m.stagnation), "true", \
            .help = "stop if values no longer improve over a long time" \
    }

/* The rows of a kh_cmaes_opts that stands alone. */
extern const kh_opt kh_cmaes_table[];

/* The whole state, options included, as bytes: little-endian, versioned, with a checksum. At n
 * dimensions the full variant takes about 12 n^2 bytes. Appends to *out. A restored optimiser gives
 * the same bits as the one that was saved. */
int kh_cmaes_save(const kh_cmaes *, kh_buf *out, kh_err *err);
/* `name` is what messages call the bytes. */
int kh_cmaes_load(kh_cmaes **out, const void *bytes, size_t n, const char *name, kh_err *err);

#endif
