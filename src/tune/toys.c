/* toys.c - see toys.h.
 *
 * The posterior of z given "at most eps errors" is known because errors add up over coordinates
 * that are independent under the prior: given its own count e_i, coordinate i has a (two-sided,
 * truncated) normal distribution with known moments, and the distribution of the counts given their
 * sum's bound comes from convolution. doc/methods.md, L12 to L14. */
#include "tune/toys.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum {
    MAX_DIM = 1 << 16,
    MAX_COUNT = 8,     /* linear-gaussian: errors of one coordinate */
    MAX_ROWS = 32,     /* signs */
    MOONS_ERRORS = 64, /* two-moons */
    CHUNK = 8,         /* rows that signs answers before it looks whether to go on */
    MAX_TRIES = 1000,  /* two-moons: draws before one falls within the prior, which most do */
};

static const double NOISE_VAR = 0.25; /* linear-gaussian, against a prior variance of 1 */
static const double COUNT_WIDTH = 0.5;
static const double MOONS_WIDTH = 0.02;

typedef struct problem {
    const char *name;
    double prior_var;
    int fixed_dim; /* 0: any */
    void (*init)(kh_toy *);
    void (*reference)(const kh_toy *, kh_rng *, double *theta); /* one draw */
    /* Coordinate i having k errors: its prior probability, and mean and mean square of z_i then.
     * NULL: no closed form. */
    void (*part)(const kh_toy *, int i, int k, double *p, double *mean, double *square);
    int counts;                    /* k = 0 .. counts */
    int (*noises)(const kh_toy *); /* how many numbers of noise an observation takes; NULL: none */
} problem;

struct kh_toy {
    const problem *problem;
    kh_simulator sim;
    int dim;      /* of the parameters; the simulator's may be more, */
    bool carried; /* if z carries its noise with it */
    uint64_t seed;
    float *observed;
};

static kh_rng noise(const kh_toy *t, const kh_candidates *c, int i) {
    return kh_rng_stream(t->seed, KH_RNG_SIMULATE, c->round, c->first + (uint32_t)i);
}

static const float *z_of(const kh_simulator *s, const kh_candidates *c, int i) {
    return c->z + (size_t)i * (size_t)s->dim;
}

static double density(double x) { return exp(-x * x / 2) / sqrt(2 * M_PI); }
static double below(double x) { return erfc(-x / sqrt(2)) / 2; }

/* Standard normal noise number k of candidate i: carried by z, or the stream's next. */
static double noise_at(const kh_simulator *s, const kh_candidates *c, int i, int k, kh_rng *r) {
    const kh_toy *t = s->self;
    return t->carried ? (double)z_of(s, c, i)[t->dim + k] / sqrt(s->prior_var) : kh_rng_normal(r);
}

/* ----------------------------------------------------------------------------- linear-gaussian */

static int linear_noises(const kh_toy *t) { return t->dim; }

static double linear_at(const kh_simulator *s, const kh_candidates *c, int i, int j, kh_rng *r) {
    return (double)z_of(s, c, i)[j] + sqrt(NOISE_VAR) * noise_at(s, c, i, j, r);
}

static int linear_observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    (void)err;
    for (int i = 0; i < c->n; i++) {
        kh_rng r = noise(s->self, c, i);
        for (int j = 0; j < s->n_obs; j++)
            x[(size_t)i * (size_t)s->n_obs + (size_t)j] = (float)linear_at(s, c, i, j, &r);
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

static int count_of(double off, double width, int most) {
    double count = floor(fabs(off) / width);
    return count < most ? (int)count : most;
}

static int linear_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)allowance, (void)answer, (void)err;
    for (int i = 0; i < c->n; i++) {
        kh_rng r = noise(s->self, c, i);
        errors[i] = 0;
        for (int j = 0; j < s->n_obs; j++)
            errors[i] += count_of(
                linear_at(s, c, i, j, &r) - (double)s->observed[j], COUNT_WIDTH, MAX_COUNT);
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

static void linear_init(kh_toy *t) {
    kh_simulator *s = &t->sim;
    kh_rng r = kh_rng_stream(t->seed, KH_RNG_OBSERVE, 0, 0);
    for (int j = 0; j < s->dim; j++)
        t->observed[j] = (float)(sqrt(s->prior_var + NOISE_VAR) * kh_rng_normal(&r));
    s->n_obs = s->dim;
    s->n_error = MAX_COUNT * s->dim;
    s->cost = 1;
    s->errors = linear_errors;
    s->observe = linear_observe;
}

/* z_j given x_j is N(shrink x_j, shrink NOISE_VAR). */
static double shrink(const kh_toy *t) { return t->sim.prior_var / (t->sim.prior_var + NOISE_VAR); }

static void linear_reference(const kh_toy *t, kh_rng *r, double *theta) {
    for (int j = 0; j < t->dim; j++)
        theta[j] =
            shrink(t) * (double)t->observed[j] + sqrt(shrink(t) * NOISE_VAR) * kh_rng_normal(r);
}

/* Probability, first and second moment of a standard normal number within low .. high, not divided
 * by the probability. */
static void slice(double low, double high, double *p, double *mean, double *square) {
    double edge_low = isinf(low) ? 0 : low * density(low),
           edge_high = isinf(high) ? 0 : high * density(high);
    double mass = below(high) - below(low);
    *p += mass;
    *mean += density(low) - density(high);
    *square += mass + edge_low - edge_high;
}

static void linear_part(const kh_toy *t, int i, int k, double *p, double *mean, double *square) {
    double sd = sqrt(t->sim.prior_var + NOISE_VAR), y = (double)t->observed[i];
    double near = k * COUNT_WIDTH, far = k < MAX_COUNT ? near + COUNT_WIDTH : INFINITY;
    double x1 = 0, x2 = 0;
    *p = 0;
    slice((y + near) / sd, (y + far) / sd, p, &x1, &x2);
    slice((y - far) / sd, (y - near) / sd, p, &x1, &x2);
    x1 *= sd / *p;
    x2 *= sd * sd / *p;
    *mean = shrink(t) * x1;
    *square = shrink(t) * shrink(t) * x2 + shrink(t) * NOISE_VAR;
}

/* --------------------------------------------------------------------------------------- signs */

static int signs_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)err;
    for (int i = 0; i < c->n; i++) {
        const float *z = z_of(s, c, i);
        int asked = 0;
        errors[i] = 0;
        while (asked < s->n_error && errors[i] <= allowance[i])
            for (int end = asked + CHUNK < s->n_error ? asked + CHUNK : s->n_error; asked < end;
                 asked++) {
                bool up = z[asked] > 0;
                errors[i] += up != (s->observed[asked] > 0);
                answer[(size_t)i * (size_t)s->n_answer + (size_t)asked] = up;
            }
        s->asked += asked;
        s->saved += s->n_error - asked;
    }
    return 0;
}

static int signs_observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    (void)err;
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < s->n_obs; j++)
            x[(size_t)i * (size_t)s->n_obs + (size_t)j] = z_of(s, c, i)[j] > 0 ? 1 : -1;
    s->asked += (long long)c->n * s->n_obs;
    return 0;
}

static void signs_init(kh_toy *t) {
    kh_simulator *s = &t->sim;
    kh_rng r = kh_rng_stream(t->seed, KH_RNG_OBSERVE, 0, 0);
    s->n_obs = s->n_error = s->n_answer = s->cost = s->dim < MAX_ROWS ? s->dim : MAX_ROWS;
    for (int j = 0; j < s->n_obs; j++)
        t->observed[j] = kh_rng_below(&r, 2) ? 1 : -1;
    s->errors = signs_errors;
    s->observe = signs_observe;
}

static void signs_reference(const kh_toy *t, kh_rng *r, double *theta) {
    for (int j = 0; j < t->dim; j++) {
        theta[j] = sqrt(t->sim.prior_var) * kh_rng_normal(r);
        if (j < t->sim.n_obs)
            theta[j] = fabs(theta[j]) * (double)t->observed[j];
    }
}

static void signs_part(const kh_toy *t, int i, int k, double *p, double *mean, double *square) {
    bool row = i < t->sim.n_obs;
    *p = row ? 0.5 : k == 0;
    double side = k ? -1 : 1;
    *mean = row ? side * (double)t->observed[i] * sqrt(2 * t->sim.prior_var / M_PI) : 0;
    *square = t->sim.prior_var;
}

/* ----------------------------------------------------------------------------------- two-moons */

static double moons_theta(double z) { return 2 * below(z) - 1; }

static int moons_noises(const kh_toy *t) { return t->dim; }

/* A point of the crescent around (0.25, 0), by a uniform and a normal number. */
static void crescent(double uniform, double normal, double *p) {
    double a = M_PI * (uniform - 0.5), radius = 0.1 + 0.01 * normal;
    p[0] = radius * cos(a) + 0.25;
    p[1] = radius * sin(a);
}

static void moons_point(const kh_simulator *s, const kh_candidates *c, int i, double *x) {
    const kh_toy *t = s->self;
    kh_rng r = noise(t, c, i);
    double a = moons_theta((double)z_of(s, c, i)[0]), b = moons_theta((double)z_of(s, c, i)[1]);
    double uniform = t->carried ? below(noise_at(s, c, i, 0, &r)) : kh_rng_uniform(&r);
    crescent(uniform, noise_at(s, c, i, 1, &r), x);
    x[0] -= fabs(a + b) / sqrt(2);
    x[1] += (b - a) / sqrt(2);
}

static int moons_observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    (void)err;
    for (int i = 0; i < c->n; i++) {
        double point[2];
        moons_point(s, c, i, point);
        x[2 * i] = (float)point[0];
        x[2 * i + 1] = (float)point[1];
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

static int moons_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)allowance, (void)answer, (void)err;
    for (int i = 0; i < c->n; i++) {
        double x[2];
        moons_point(s, c, i, x);
        errors[i] = count_of(hypot(x[0] - (double)s->observed[0], x[1] - (double)s->observed[1]),
            MOONS_WIDTH, MOONS_ERRORS);
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

static void moons_init(kh_toy *t) {
    kh_simulator *s = &t->sim;
    t->observed[0] = t->observed[1] = 0;
    s->n_obs = 2;
    s->n_error = MOONS_ERRORS;
    s->cost = 1;
    s->errors = moons_errors;
    s->observe = moons_observe;
}

/* The way back: which parameters put this point of the crescent where the observation is. The map
 * is a rotation, so equally likely points are equally likely parameters, as long as these lie
 * within the prior. */
static void moons_reference(const kh_toy *t, kh_rng *r, double *theta) {
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        double p[2], uniform = kh_rng_uniform(r);
        crescent(uniform, kh_rng_normal(r), p);
        double sum = p[0] - (double)t->observed[0], difference = (double)t->observed[1] - p[1];
        if (kh_rng_below(r, 2))
            sum = -sum;
        theta[0] = (sum - difference) / sqrt(2);
        theta[1] = (sum + difference) / sqrt(2);
        if (p[0] >= (double)t->observed[0] && fabs(theta[0]) <= 1 && fabs(theta[1]) <= 1)
            return;
    }
}

/* ----------------------------------------------------------------------------------- the table */

static const problem PROBLEMS[] = {
    { "linear-gaussian", 1, 0, linear_init, linear_reference, linear_part, MAX_COUNT,
        linear_noises },
    { "signs", 50, 0, signs_init, signs_reference, signs_part, 1, NULL },
    { "two-moons", 1, 2, moons_init, moons_reference, NULL, 0, moons_noises },
};

enum { N_PROBLEM = sizeof PROBLEMS / sizeof PROBLEMS[0] };

int kh_toy_new(kh_toy **out, const char *name, int dim, uint64_t seed, kh_err *err) {
    const problem *p = NULL;
    *out = NULL;
    for (int i = 0; i < N_PROBLEM && !p; i++)
        p = strcmp(PROBLEMS[i].name, name) == 0 ? &PROBLEMS[i] : NULL;
    if (!p)
        return kh_fail(err, KH_EARG, "unknown problem \"%s\"; there are " KH_TOY_NAMES, name);
    if (p->fixed_dim > 0 && dim != p->fixed_dim)
        return kh_fail(
            err, KH_EARG, "problem %s has %d dimensions, not %d", name, p->fixed_dim, dim);
    if (dim < 1 || dim > MAX_DIM)
        return kh_fail(
            err, KH_EARG, "problem %s in %d dimensions; it takes 1 to %d", name, dim, MAX_DIM);
    kh_toy *t = kh_calloc(1, sizeof *t);
    float *observed = kh_calloc((size_t)dim, sizeof *observed);
    if (!t || !observed) {
        kh_free(t);
        kh_free(observed);
        return kh_fail_memory(err);
    }
    *t = (kh_toy){ .problem = p, .seed = seed, .dim = dim, .observed = observed };
    t->sim =
        (kh_simulator){ .dim = dim, .prior_var = p->prior_var, .observed = observed, .self = t };
    p->init(t);
    *out = t;
    return 0;
}

void kh_toy_free(kh_toy *t) {
    if (!t)
        return;
    kh_free(t->observed);
    kh_free(t);
}

kh_simulator *kh_toy_simulator(kh_toy *t) { return &t->sim; }

void kh_toy_carry_noise(kh_toy *t) {
    t->carried = t->problem->noises != NULL;
    t->sim.dim = t->dim + (t->carried ? t->problem->noises(t) : 0);
}

void kh_toy_parameters(const kh_toy *t, const float *z, int n, double *theta) {
    bool moons = t->problem->fixed_dim == 2;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < t->dim; j++) {
            double own = (double)z[(size_t)i * (size_t)t->sim.dim + (size_t)j];
            theta[(size_t)i * (size_t)t->dim + (size_t)j] = moons ? moons_theta(own) : own;
        }
}

void kh_toy_reference(const kh_toy *t, int n, uint64_t seed, double *theta) {
    for (int i = 0; i < n; i++) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_OBSERVE, 1, (uint32_t)i);
        t->problem->reference(t, &r, theta + (size_t)i * (size_t)t->dim);
    }
}

/* ------------------------------------------------------------------------------- the posterior */

/* sum [0 .. most]: the distribution of the errors of all coordinates but one, as far as `most`.
 * (Coordinates that make no errors change nothing.) */
static void others(const kh_toy *t, int but, int most, double *sum, double *scratch) {
    double p, mean, square;
    memset(sum, 0, ((size_t)most + 1) * sizeof *sum);
    sum[0] = 1;
    for (int i = 0; i < t->dim; i++) {
        t->problem->part(t, i, 0, &p, &mean, &square);
        if (i == but || p == 1)
            continue;
        memset(scratch, 0, ((size_t)most + 1) * sizeof *scratch);
        for (int k = 0; k <= t->problem->counts; k++) {
            t->problem->part(t, i, k, &p, &mean, &square);
            for (int e = 0; e + k <= most; e++)
                scratch[e + k] += p * sum[e];
        }
        memcpy(sum, scratch, ((size_t)most + 1) * sizeof *sum);
    }
}

bool kh_toy_moments(const kh_toy *t, int tolerance, double *mean, double *var) {
    int most = tolerance < t->sim.n_error ? tolerance : t->sim.n_error;
    size_t bytes = ((size_t)t->sim.n_error + 1) * sizeof(double);
    double *sum = kh_malloc(bytes), *scratch = kh_malloc(bytes);
    bool known = t->problem->part && tolerance >= 0 && sum && scratch;
    for (int i = 0; i < t->dim && known; i++) {
        double total = 0, first = 0, second = 0;
        others(t, i, most, sum, scratch);
        for (int e = 1; e <= most; e++)
            sum[e] += sum[e - 1];
        for (int k = 0; k <= t->problem->counts && k <= most; k++) {
            double p, m, s;
            t->problem->part(t, i, k, &p, &m, &s);
            p *= sum[most - k];
            total += p;
            first += p > 0 ? p * m : 0;
            second += p > 0 ? p * s : 0;
        }
        mean[i] = first / total;
        var[i] = second / total - mean[i] * mean[i];
    }
    kh_free(sum);
    kh_free(scratch);
    return known;
}
