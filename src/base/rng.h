/* rng.h - random streams that depend on nothing but their name.
 *
 * A stream is named by (seed, purpose, i, j), e.g. (13, KH_RNG_CMAES, generation, candidate). Two
 * names never share a number; a stream can be made anywhere, in any order, on any thread or
 * machine, and gives the same bits: Philox 4x32-10 (Salmon et al. 2011), whose key is the seed and
 * whose counter is the rest of the name. No call uses libm, because its last bits differ between
 * machines.
 *
 *     kh_rng r = kh_rng_stream(seed, KH_RNG_SPLIT, class_id, 0);
 *     double z = kh_rng_normal(&r);
 *
 * The state is plain data: copy it to fork, store it to resume. One stream holds 2^34 words of 32
 * bits. */
#ifndef KH_BASE_RNG_H
#define KH_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Purposes are part of every result: numbers are never reused or changed. */
typedef enum kh_purpose {
    KH_RNG_TEST = 0,
    KH_RNG_SPLIT = 1,      /* the few-shot split */
    KH_RNG_WEIGHTS = 2,    /* random models; i = tensor */
    KH_RNG_PROJECTION = 3, /* the matrix A; i = row */
    KH_RNG_PROMPT = 4,     /* random P0 */
    KH_RNG_CMAES = 5,      /* i = generation, j = candidate */
    KH_RNG_EPOCH = 10,     /* order of the windows of a corpus; i = file, j = epoch */
    KH_RNG_PICK = 11, /* which file a sequence of a training step comes from; i = step, j = phase */
    KH_RNG_MASK = 12, /* masked tokens; i = step, j = sequence */
    KH_RNG_HELD_OUT = 13, /* masks of held-out text; i = sequence */
    KH_RNG_HEADS = 14,    /* small trained heads, prefixes, order of examples; i = what */
    KH_RNG_DROPOUT =
        15, /* what a training step drops; i = step, j = layer and kind, blocks by place */
    KH_RNG_ROWS = 16,      /* labelled rows of a training step; i = step, j = sequence */
    KH_RNG_VARIATION = 20, /* noise of a variational distribution; i = generation, j = draw */
    KH_RNG_MEMBER = 21,    /* seeds of ensemble members; i = member */
    KH_RNG_DEMOS = 22,     /* demonstrations in context; i = order */
    KH_RNG_BOOTSTRAP = 30, /* i = resample, j = which of several samples */
    KH_RNG_CONFORMAL = 31, /* ties of conformal sets; i = row */
    KH_RNG_EVAL = 32,      /* which rows are judged, if not all */
    KH_RNG_ABC = 40,       /* approximate Bayesian computation; i = generation, j = candidate */
    KH_RNG_SMC = 41,       /* sequential Monte Carlo; i = sweep, j = particle */
    KH_RNG_RESAMPLE = 42,  /* i = level */
    KH_RNG_SIMULATE = 43,  /* noise of toy problems; i = round, j = candidate */
    KH_RNG_OBSERVE =
        44, /* what toy problems observed; i = 0, or 1 for draws from their posterior, j = draw */
    KH_RNG_TEXT = 45,  /* text prompts drawn from their prior; i = round, j = draw */
    KH_RNG_WEIGH = 46, /* weights of a mixture; j = draw */
    KH_RNG_FLOW =
        50, /* weights of a flow; i = transform + 1, j = layer; 0, 0: those that read the context */
    KH_RNG_FLOW_ORDER = 51, /* the order of coordinates in a flow; i = transform */
    KH_RNG_SNPE_DRAW = 52,  /* simulated draws of a flow; i = round, j = draw */
    KH_RNG_SNPE_SPLIT = 53, /* which simulations are held out; i = round */
    KH_RNG_SNPE_EPOCH = 54, /* shuffles of the simulations; i = round, j = epoch */
    KH_RNG_SNPE_ATOMS =
        55, /* atoms; i = round, j = step; j = 2^32 - 1: those of the held-out simulations */
    KH_RNG_SNPE_RESULT = 56, /* draws that are returned; i = round, j = draw */
    KH_RNG_SNPE_PRIOR = 57,  /* simulated draws of the prior; i = round, j = draw */
} kh_purpose;

typedef struct kh_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* the next block */
    uint32_t word[4];    /* the current block */
    int left;            /* words of it not yet used */
} kh_rng;

kh_rng kh_rng_stream(uint64_t seed, kh_purpose purpose, uint32_t i, uint32_t j);

uint32_t kh_rng_u32(kh_rng *);
uint64_t kh_rng_u64(kh_rng *);
double kh_rng_uniform(kh_rng *); /* in (0, 1): a multiple of 2^-52 plus 2^-53, never 0 or 1 */
double kh_rng_normal(kh_rng *);  /* one uniform each, through the inverse distribution function */
uint32_t kh_rng_below(kh_rng *, uint32_t n); /* 0 .. n-1 without bias; n > 0 */
int kh_rng_categorical(
    kh_rng *, const double *weight, int n); /* weights >= 0, not all 0; they need not sum to 1 */
void kh_rng_permutation(kh_rng *, int *out, int n); /* out becomes a shuffle of 0 .. n-1 */

/* The quantile of the standard normal distribution, p in (0, 1); relative error below 1e-15
 * (Wichura 1988, AS 241). */
double kh_normal_quantile(double p);

/* Philox 4x32-10 itself: ten rounds of `in` under `key`. */
void kh_philox(const uint32_t in[4], const uint32_t key[2], uint32_t out[4]);

#endif
