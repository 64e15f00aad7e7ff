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

typedef struct kh_cmaes kh_cmaes;

/* full: all of C, O(n^2) memory and time per candidate. separable: the diagonal of C alone (Ros and
 * Hansen 2008), O(n), and learns (n + 2) / 3 times faster; for high dimension, or functions whose
 * coordinates hardly interact. */
typedef enum kh_cmaes_variant { KH_CMAES_FULL, KH_CMAES_SEPARABLE } kh_cmaes_variant;

enum {
    KH_CMAES_MAX_FULL = 16384,        /* dimensions of the full variant */
    KH_CMAES_MAX_SEPARABLE = 1 << 20, /* and of the separable one */
    KH_CMAES_MAX_POP = 1 << 16,
};

typedef struct kh_cmaes_opts {
    int variant; /* kh_cmaes_variant */
    int pop;     /* candidates per generation, >= 2; 0: 4 + floor(3 ln n) */
    bool active; /* bad candidates count, too: negative weights */
    uint64_t seed;
    double bound;  /* candidates stay within -bound .. bound; 0: no bounds */
    double target; /* stop at f <= target */
    int max_evals; /* 0: pop * (100 + 150 (n + 3)^2 / sqrt(pop)) */
    double tolfun; /* and the rest as the names of the stop reasons below say; 0 switches a
                      tolerance off */
    double tolfunhist;
    double tolx;
    double tolfacupx;
    double tolupsigma;
    double tolcondition;
    int tolflat;
    bool stagnation;
    /* Bounds of each coordinate [n], copied, instead of `bound` on that side; infinities are none.
     * NULL: as `bound` says. */
    const double *lower, *upper;
} kh_cmaes_opts;

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
    { \
        "dev-every", KH_OPT_INT, offsetof(S, dev_every), "20", \
            .min = 1, .max = 1 << 30, .arg = "N", \
            .help = "generations between two looks at the dev rows" \
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
kh_cmaes_opts kh_cmaes_defaults(void);

/* Why a run should end, the most telling reason first. A caller may go on nevertheless; all stays
 * defined. name, name in results, sentence */
#define KH_CMAES_STOPS(X) \
    X(KH_CMAES_GOING, "none", "No stop condition is met.") \
    X(KH_CMAES_TARGET, "target", "The target value was reached.") \
    X(KH_CMAES_MAX_EVALS, "max-evals", "The limit of evaluations was reached.") \
    X(KH_CMAES_ALL_NAN, "all-nan", "Every value of the last generation was not a number.") \
    X(KH_CMAES_FLAT, "flat", \
        "All candidates of several successive generations had the same value.") \
    X(KH_CMAES_TOLFUN, "tolfun", \
        "The values of the last generation and the best values of recent ones differ by less " \
        "than tolfun.") \
    X(KH_CMAES_TOLFUNHIST, "tolfunhist", \
        "The best values of recent generations differ by less than tolfunhist.") \
    X(KH_CMAES_TOLX, "tolx", "Steps became shorter than tolx in every coordinate.") \
    X(KH_CMAES_TOLFACUPX, "tolfacupx", \
        "Steps grew by more than the factor tolfacupx: the start was far too narrow, or f has no " \
        "minimum.") \
    X(KH_CMAES_TOLUPSIGMA, "tolupsigma", \
        "The step size grew by more than tolupsigma times what the covariance explains.") \
    X(KH_CMAES_CONDITION, "condition", \
        "The covariance matrix is too ill-conditioned, or its entries too large or small, to go " \
        "on.") \
    X(KH_CMAES_NO_EFFECT_AXIS, "no-effect-axis", \
        "A tenth of a step along a principal axis no longer changes the mean.") \
    X(KH_CMAES_NO_EFFECT_COORD, "no-effect-coord", \
        "A fifth of a step in some coordinate no longer changes the mean.") \
    X(KH_CMAES_STAGNATION, "stagnation", \
        "Best and median values have not improved over a long window of generations.")

typedef enum kh_cmaes_reason {
#define KH_CMAES_STOP_ENUM(name, text, sentence) name,
    KH_CMAES_STOPS(KH_CMAES_STOP_ENUM)
#undef KH_CMAES_STOP_ENUM
} kh_cmaes_reason;

/* x0 [n], inside the bounds; NULL: 0 in every coordinate. sigma: the first standard deviation in
 * every coordinate, about a third of the distance in which the optimum is expected; it is held to a
 * third of the distance of bounds. opts NULL: the defaults. */
int kh_cmaes_new(
    kh_cmaes **out, const double *x0, int n, double sigma, const kh_cmaes_opts *opts, kh_err *err);
void kh_cmaes_free(kh_cmaes *);
/* An independent optimiser in the same state. */
int kh_cmaes_copy(kh_cmaes **out, const kh_cmaes *, kh_err *err);

/* The candidates of this generation, x [pop, n], within the bounds. The state stays as it is. */
void kh_cmaes_ask(kh_cmaes *, double *x);
/* Their values, f [pop], in the same order; ends the generation. Smaller is better; equals rank by
 * index. NaN counts as worse than any number; if all are NaN, the distribution stays as it is. */
void kh_cmaes_tell(kh_cmaes *, const double *f);

/* KH_CMAES_GOING (0), or why the run should end, as of the last tell. */
kh_cmaes_reason kh_cmaes_stop(const kh_cmaes *);
const char *kh_cmaes_stop_name(kh_cmaes_reason);
const char *kh_cmaes_stop_text(kh_cmaes_reason);

int kh_cmaes_dim(const kh_cmaes *);
int kh_cmaes_pop(const kh_cmaes *);
long long kh_cmaes_generation(const kh_cmaes *); /* generations told so far */
long long kh_cmaes_evals(const kh_cmaes *);      /* values told so far */
double kh_cmaes_sigma(const kh_cmaes *);
double kh_cmaes_condition(const kh_cmaes *);     /* of C, as of its last decomposition */
void kh_cmaes_mean(const kh_cmaes *, double *x); /* x [n], within the bounds */
/* The best candidate told so far [n], with its value in *f (if not NULL). Until a value below
 * infinity was told: the start, and infinity. Lives until the next tell. */
const double *kh_cmaes_best(const kh_cmaes *, double *f);

/* The whole state, options included, as bytes: little-endian, versioned, with a checksum. At n
 * dimensions the full variant takes about 12 n^2 bytes. Appends to *out. A restored optimiser gives
 * the same bits as the one that was saved. */
int kh_cmaes_save(const kh_cmaes *, kh_buf *out, kh_err *err);
/* `name` is what messages call the bytes. */
int kh_cmaes_load(kh_cmaes **out, const void *bytes, size_t n, const char *name, kh_err *err);

#endif
