/* snpe_fit.c - teaching a flow: batches, atoms, Adam, and when to stop.
 *
 * A batch is cut into a fixed number of shares. Each has room of its own and sums its own gradient,
 * and these are added in order: so the bits do not depend on how many threads there are. Validation
 * uses the same atoms in every epoch of a round, so that two epochs differ by their weights alone.
 */
#include "tune/snpe.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/blas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SHARES = 4,
    PIECE = 128, /* pairs in work at a time: their traces stay in the cache's reach */
};

/* Products of a batch, and numbers in a vector, from which threads are worth starting. Below these,
 * waking threads takes longer than the work. */
static const double WORTH_THREADS = 4e6;
static const size_t WORTH_THREADS_SUM = 1 << 16;

/* --------------------------------------------------------------------------------- simulations */

int kh_simulations_grow(kh_simulations *s, int n, kh_err *err) {
    size_t count = (size_t)n;
    return kh_grow(&s->z, &s->cap_z, count * (size_t)s->dim, sizeof *s->z) &&
            kh_grow(&s->x, &s->cap_x, count * (size_t)s->n_obs, sizeof *s->x) &&
            kh_grow(&s->log_prior, &s->cap_prior, count, sizeof *s->log_prior) &&
            kh_grow(&s->round, &s->cap_round, count, sizeof *s->round) &&
            kh_grow(&s->held, &s->cap_held, count, sizeof *s->held)
        ? 0
        : kh_fail_memory(err);
}

void kh_simulations_free(kh_simulations *s) {
    kh_free(s->z);
    kh_free(s->x);
    kh_free(s->log_prior);
    kh_free(s->round);
    kh_free(s->held);
    *s = (kh_simulations){ 0 };
}

/* ------------------------------------------------------------------------------- the loss (S6) */

/* (S6) for one simulation, whose own atom is number 0, and g = d loss / d logq. With a single atom
 * it is (S5). Normalised from the largest term down, since densities in 500 dimensions span
 * hundreds of powers of e. */
double kh_atomic_loss(const double *logq, const double *log_prior, int n, double *g) {
    double most = -INFINITY, sum = 0;
    if (n == 1) {
        g[0] = -1;
        return -logq[0];
    }
    for (int a = 0; a < n; a++)
        most = fmax(most, logq[a] - log_prior[a]);
    for (int a = 0; a < n; a++) {
        g[a] = exp(logq[a] - log_prior[a] - most);
        sum += g[a];
    }
    for (int a = 0; a < n; a++)
        g[a] = g[a] / sum - (a == 0);
    return log(sum) + most - (logq[0] - log_prior[0]);
}

/* ------------------------------------------------------------------------------------- a batch */

typedef struct share {
    kh_flow_work *work;
    double *grad; /* as the weights */
    float *x;     /* [items, n_obs] */
    double *z;    /* [rows of a piece, dim] */
    double *logq, *log_prior, *g;
    int *of;
    double loss;
} share;

typedef struct fit {
    kh_flow *flow;
    const kh_simulations *sims;
    const kh_fit_opts *o;
    bool atomic;
    int most;      /* items in a batch at most */
    int max_atoms; /* of an item */
    int *train, *valid, n_train, n_valid;
    int *item;  /* [most] the batch: numbers of simulations */
    int *atoms; /* [most, max_atoms] positions in the batch, its own first */
    int *order; /* [n_train] */
    share share[SHARES];
    double *first, *second, *best; /* Adam's moments, and the weights to be kept: as the weights */
    long step;
} fit;

static int piece_rows(const fit *f) { return f->max_atoms > PIECE ? f->max_atoms : PIECE; }
static int share_items(const fit *f) { return (f->most + SHARES - 1) / SHARES; }

static int share_new(share *s, const fit *f, kh_err *err) {
    size_t rows = (size_t)piece_rows(f);
    *s = (share){ .grad = kh_aligned(kh_flow_size(f->flow) * sizeof *s->grad),
        .x = kh_calloc((size_t)share_items(f) * (size_t)f->sims->n_obs, sizeof *s->x),
        .z = kh_calloc(rows * (size_t)f->sims->dim, sizeof *s->z),
        .logq = kh_calloc(rows, sizeof *s->logq),
        .log_prior = kh_calloc(rows, sizeof *s->log_prior),
        .g = kh_calloc(rows, sizeof *s->g),
        .of = kh_calloc(rows, sizeof *s->of) };
    if (!s->grad || !s->x || !s->z || !s->logq || !s->log_prior || !s->g || !s->of)
        return kh_fail_memory(err);
    return kh_flow_work_new(&s->work, f->flow, (int)rows, share_items(f), err);
}

static void share_free(share *s) {
    kh_flow_work_free(s->work);
    kh_free(s->grad);
    kh_free(s->x);
    kh_free(s->z);
    kh_free(s->logq);
    kh_free(s->log_prior);
    kh_free(s->g);
    kh_free(s->of);
}

/* Items first .. first + n - 1 of the batch, which are numbers at .. at + n - 1 of the share's x.
 * Every item is paired with its atoms: n * n_atom densities given the item's own x. The gradient of
 * the loss with respect to each log q goes back through the flow in one pass. */
static void run_piece(
    const fit *f, share *s, int first, int n, int at, int n_atom, double scale, bool teach) {
    int dim = f->sims->dim;
    for (int i = 0, row = 0; i < n; i++)
        for (int a = 0; a < n_atom; a++, row++) {
            int sim = f->item[f->atoms[((size_t)first + (size_t)i) * (size_t)n_atom + (size_t)a]];
            for (int j = 0; j < dim; j++)
                s->z[(size_t)row * (size_t)dim + (size_t)j] =
                    (double)f->sims->z[(size_t)sim * (size_t)dim + (size_t)j];
            s->log_prior[row] = f->sims->log_prior[sim];
            s->of[row] = at + i;
        }
    kh_flow_density(f->flow, s->work, s->z, s->of, n * n_atom, s->logq);
    for (int i = 0; i < n; i++) {
        double *g = s->g + (size_t)i * (size_t)n_atom, *logq = s->logq + (size_t)i * (size_t)n_atom;
        s->loss += kh_atomic_loss(logq, s->log_prior + (size_t)i * (size_t)n_atom, n_atom, g);
        if (f->o->combined && n_atom > 1 &&
            f->sims->round[f->item[first + i]] == 1) { /* a draw from the prior itself */
            s->loss -= logq[0];
            g[0] -= 1;
        }
        for (int a = 0; a < n_atom; a++)
            g[a] *= scale;
    }
    if (teach)
        kh_flow_backward(f->flow, s->work, s->g, s->grad);
}

/* What x gives the units is computed once for an item and used by all of its atoms. */
static void run_share(
    const fit *f, share *s, int first, int n, int n_atom, double scale, bool teach) {
    size_t n_obs = (size_t)f->sims->n_obs;
    int at_once = piece_rows(f) / n_atom;
    s->loss = 0;
    if (teach)
        memset(s->grad, 0, kh_flow_size(f->flow) * sizeof *s->grad);
    for (int i = 0; i < n; i++)
        memcpy(s->x + (size_t)i * n_obs, f->sims->x + (size_t)f->item[first + i] * n_obs,
            n_obs * sizeof *s->x);
    kh_flow_context(f->flow, s->work, s->x, n);
    for (int i = 0; i < n; i += at_once)
        run_piece(f, s, first + i, n - i < at_once ? n - i : at_once, i, n_atom, scale, teach);
    if (teach)
        kh_flow_context_backward(f->flow, s->work, s->grad);
}

/* The sum of the losses of the n items of the batch. If `teach`, share 0 gets the gradient of their
 * mean. Shares are a fixed number and are summed in their order: threads only decide who computes
 * which. */
static double run_batch(fit *f, int n, int n_atom, bool teach) {
    size_t size = kh_flow_size(f->flow);
#pragma omp parallel for schedule(dynamic) \
    num_threads(kh_threads()) if ((double)n * n_atom * (double)size > WORTH_THREADS)
    for (int k = 0; k < SHARES; k++) {
        int first = (int)((long long)n * k / SHARES), end = (int)((long long)n * (k + 1) / SHARES);
        run_share(f, &f->share[k], first, end - first, n_atom, 1.0 / n, teach);
    }
    double loss = 0;
    for (int k = 0; k < SHARES; k++)
        loss += f->share[k].loss;
    if (!teach)
        return loss;
    double *sum = f->share[0].grad;
#pragma omp parallel for schedule(static) num_threads(kh_threads()) if (size > WORTH_THREADS_SUM)
    for (size_t i = 0; i < size; i++)
        for (int k = 1; k < SHARES; k++)
            sum[i] += f->share[k].grad[i];
    kh_flow_mask(f->flow, sum);
    return loss;
}

/* Atoms of an item in a batch of n: itself alone in the first round, whose proposal is the prior.
 */
static int atoms_of(const fit *f, int n) {
    if (!f->atomic)
        return 1;
    return f->o->atoms < n ? f->o->atoms : n;
}

/* For each of n items its own position first, then others of the batch, without repeating one. */
static int draw_atoms(fit *f, int n, kh_rng r) {
    int n_atom = atoms_of(f, n);
    for (int i = 0; i < n; i++) {
        int *atom = f->atoms + (size_t)i * (size_t)n_atom;
        atom[0] = i;
        for (int a = 1; a < n_atom;) {
            int other = (int)kh_rng_below(&r, (uint32_t)n);
            bool seen = false;
            for (int b = 0; b < a && !seen; b++)
                seen = atom[b] == other;
            if (!seen)
                atom[a++] = other;
        }
    }
    return n_atom;
}

/* ---------------------------------------------------------------------------------------- Adam */

/* Kingma and Ba (2015). A gradient longer than `clip` is shortened to it; one that is not finite is
 * not followed. */
static void adam(fit *f) {
    size_t size = kh_flow_size(f->flow);
    double *w = kh_flow_weights(f->flow), *g = f->share[0].grad, square = 0;
    for (size_t i = 0; i < size; i++)
        square += g[i] * g[i];
    if (!isfinite(square))
        return;
    f->step++;
    double norm = sqrt(square), shorten = norm > f->o->clip ? f->o->clip / norm : 1;
    double rate =
        f->o->rate * sqrt(1 - pow(0.999, (double)f->step)) / (1 - pow(0.9, (double)f->step));
#pragma omp parallel for schedule(static) num_threads(kh_threads()) if (size > WORTH_THREADS_SUM)
    for (size_t i = 0; i < size; i++) {
        double d = g[i] * shorten;
        f->first[i] = 0.9 * f->first[i] + 0.1 * d;
        f->second[i] = 0.999 * f->second[i] + 0.001 * d * d;
        w[i] -= rate * f->first[i] / (sqrt(f->second[i]) + 1e-8);
    }
}

/* -------------------------------------------------------------------------------------- epochs */

/* How many batches of about the wanted size n items make; their sizes differ by one at most.
 * Rounded, so that no batch is a small remainder whose gradient would be noise. */
static int n_batch(const fit *f, int n) {
    int count = (n + f->o->batch / 2) / f->o->batch;
    return count > 0 ? count : 1;
}

static int cut(int n, int parts, int k) { return (int)((long long)n * k / parts); }

/* In report: which epoch this is, and the loss of the last one; its own loss when it is done. */
static int run_epoch(
    fit *f, int round, uint64_t seed, kh_monitor *w, kh_fit_report *report, kh_err *err) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_SNPE_EPOCH, (uint32_t)round, (uint32_t)report->epochs);
    int batches = n_batch(f, f->n_train), epoch = report->epochs, rc = 0;
    double loss = 0;
    char what[128];
    snprintf(what, sizeof what, "round=%d epoch=%d train=%.4f valid=%.4f", round, epoch + 1,
        report->train, report->valid);
    kh_rng_permutation(&r, f->order, f->n_train);
    for (int b = 0; b < batches && rc == 0; b++) {
        int first = cut(f->n_train, batches, b), n = cut(f->n_train, batches, b + 1) - first;
        for (int i = 0; i < n; i++)
            f->item[i] = f->train[f->order[first + i]];
        int n_atom = draw_atoms(f, n,
            kh_rng_stream(
                seed, KH_RNG_SNPE_ATOMS, (uint32_t)round, (uint32_t)(epoch * batches + b)));
        loss += run_batch(f, n, n_atom, true);
        adam(f);
        rc = w ? kh_monitor_tick(w, what, round > 1, err) : 0;
    }
    report->train = loss / f->n_train;
    return rc;
}

/* One stream for all epochs of a round: the same atoms each time. */
static double validate(fit *f, int round, uint64_t seed) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_SNPE_ATOMS, (uint32_t)round, UINT32_MAX);
    int batches = n_batch(f, f->n_valid);
    double loss = 0;
    for (int b = 0; b < batches; b++) {
        int first = cut(f->n_valid, batches, b), n = cut(f->n_valid, batches, b + 1) - first;
        memcpy(f->item, f->valid + first, (size_t)n * sizeof *f->item);
        loss += run_batch(f, n, draw_atoms(f, n, r), false);
    }
    return loss / f->n_valid;
}

/* (S7). The weights that the round begins with are a candidate, too: a round that only gets worse
 * changes nothing. */
static int run_epochs(
    fit *f, int round, uint64_t seed, kh_monitor *w, kh_fit_report *report, kh_err *err) {
    int rc = 0;
    size_t bytes = kh_flow_size(f->flow) * sizeof *f->best;
    *report = (kh_fit_report){ .train = NAN, .valid = validate(f, round, seed) };
    memcpy(f->best, kh_flow_weights(f->flow), bytes);
    for (int since = 0; report->epochs < f->o->max_epochs && since < f->o->patience;
         report->epochs++) {
        if ((rc = run_epoch(f, round, seed, w, report, err)) != 0)
            return rc;
        double valid = validate(f, round, seed);
        since++;
        if (valid < report->valid || (isnan(report->valid) && !isnan(valid))) {
            report->valid = valid;
            memcpy(f->best, kh_flow_weights(f->flow), bytes);
            since = 0;
        }
    }
    memcpy(kh_flow_weights(f->flow), f->best, bytes);
    return 0;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* The lists of simulations to learn from and to stop by, and room for batches of them. */
static int fit_new(fit *f, kh_err *err) {
    const kh_simulations *sims = f->sims;
    size_t n = (size_t)sims->n, bytes = kh_flow_size(f->flow) * sizeof *f->best;
    f->train = kh_calloc(n, sizeof *f->train);
    f->valid = kh_calloc(n, sizeof *f->valid);
    f->order = kh_calloc(n, sizeof *f->order);
    f->first = kh_aligned(bytes);
    f->second = kh_aligned(bytes);
    f->best = kh_aligned(bytes);
    if (!f->train || !f->valid || !f->order || !f->first || !f->second || !f->best)
        return kh_fail_memory(err);
    memset(f->first, 0, bytes);
    memset(f->second, 0, bytes);
    for (int i = 0; i < sims->n; i++)
        if (sims->held[i])
            f->valid[f->n_valid++] = i;
        else
            f->train[f->n_train++] = i;
    f->most = larger(f->n_train / n_batch(f, f->n_train), f->n_valid / n_batch(f, f->n_valid)) + 1;
    f->max_atoms = atoms_of(f, f->most);
    f->item = kh_calloc((size_t)f->most, sizeof *f->item);
    f->atoms = kh_calloc((size_t)f->most * (size_t)f->max_atoms, sizeof *f->atoms);
    int rc = f->item && f->atoms ? 0 : kh_fail_memory(err);
    for (int k = 0; k < SHARES && rc == 0; k++)
        rc = share_new(&f->share[k], f, err);
    return rc;
}

static void fit_free(fit *f) {
    for (int k = 0; k < SHARES; k++)
        share_free(&f->share[k]);
    kh_free(f->train);
    kh_free(f->valid);
    kh_free(f->order);
    kh_free(f->first);
    kh_free(f->second);
    kh_free(f->best);
    kh_free(f->item);
    kh_free(f->atoms);
}

/* OpenBLAS is held to one thread meanwhile and given back: shares are the parallelism here, and its
 * own threads would change the order of sums. */
int kh_fit(kh_flow *flow, const kh_simulations *sims, int round, const kh_fit_opts *o,
    uint64_t seed, kh_monitor *w, kh_fit_report *report, kh_err *err) {
    fit f = { .flow = flow, .sims = sims, .o = o, .atomic = round > 1 };
    int rc = fit_new(&f, err);
    if (rc == 0 && (f.n_train == 0 || f.n_valid == 0))
        rc = kh_fail(err, KH_EARG,
            "%d simulations to learn from and %d held out; there must be one of each", f.n_train,
            f.n_valid);
    if (rc == 0) {
        kh_blas_hold();
        rc = run_epochs(&f, round, seed, w, report, err);
        kh_blas_release();
    }
    fit_free(&f);
    return rc;
}
