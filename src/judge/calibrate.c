/* calibrate.c - scores into probabilities that mean what they say: temperature, vector scaling, one
 * slope and a bias for each class whose strength is cross-validated ("affine"), smoothed votes.
 *
 * All of them fit by penalised likelihood: the sum over rows of -log p(true class), plus a standard
 * normal prior on how far the parameters are from "no change" (log T from 0, weights from 1, biases
 * from 0), equations [25] to [28] of doc/judging.md. Few-shot development sets are small, often
 * separable and sometimes of one class; without the prior the likelihood then has no maximum and
 * the temperature runs to 0. With it there always is one, and the parameters are bounded besides.
 *
 * Temperature is one number: a scan over its whole range, then golden section. Vector scaling is
 * convex in its 2K parameters: L-BFGS with a diagonal start. Affine is the same with one slope for
 * all classes, K + 1 parameters, since a few rows can tell that a class is named too readily but
 * not how each class is stretched; the prior's precision is chosen by cross-validation from a grid
 * that ends in "no change" [30]: what dev rows cannot show to help is not done; and as far as it is
 * too sure of rows it did not learn from, it is made less sure [35]. Votes: for each
 * alpha of a grid the temperature is fitted on four fifths and scored on the rest, five times; the
 * best alpha then gets its temperature from all rows. Votes with biases are scored beside them,
 * as affine is beside no change. No step is random. */
#include "judge/calibrate.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"
#include "base/logsum.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

static const double DEEPEST =
    -100; /* log-scores relative to the row's best end here: e^-100 is as good as never */

enum { N_FOLD = 5 };

/* ------------------------------------------------------------------------------------- softmax */

/* v [n] becomes log-softmax(v). */
static void log_softmax(double *v, int n) {
    double shift = kh_log_sum_exp(v, n);
    for (int k = 0; k < n; k++)
        v[k] -= shift;
}

/* Log-scores relative to the best; centred for vector scaling, which is not invariant to a shift of
 * the row. z may be x. */
static void prepare_logits(const double *x, int n_label, bool centre, double *z) {
    double max = x[0], mean = 0;
    for (int k = 1; k < n_label; k++)
        max = x[k] > max ? x[k] : max;
    for (int k = 0; k < n_label; k++) {
        z[k] = x[k] - max > DEEPEST ? x[k] - max : DEEPEST;
        mean += z[k] / n_label;
    }
    for (int k = 0; k < n_label && centre; k++)
        z[k] -= mean;
}

static void prepare_votes(const double *x, int n_label, double alpha, double *z) {
    for (int k = 0; k < n_label; k++)
        z[k] = log(x[k] + alpha);
}

/* --------------------------------------------------------------------------------- temperature */

/* Rows whose fold is `held` are left out, or with `only` are the ones that count; fold NULL: all
 * rows count. */
typedef struct sample {
    const double *z; /* [n, n_label] prepared */
    const int *label;
    int n, n_label;
    const int *fold; /* [n] */
    int held;
    bool only;
    double strength; /* of the prior of vector scaling */
    bool shared;     /* one slope for all classes */
} sample;

static int n_slope(const sample *s) { return s->shared ? 1 : s->n_label; }

/* Whether row i counts. */
static bool counts(const sample *s, int i) {
    return !s->fold || (s->fold[i] == s->held) == s->only;
}

/* [25]: the sum of -log softmax(z / T)[label] over the rows that count */
static double nll_at(const sample *s, double log_t) {
    double beta = exp(-log_t), total = 0;
    for (int i = 0; i < s->n; i++) {
        if (!counts(s, i))
            continue;
        const double *z = s->z + (size_t)i * (size_t)s->n_label;
        double max = z[0], sum = 0;
        for (int k = 1; k < s->n_label; k++)
            max = z[k] > max ? z[k] : max;
        for (int k = 0; k < s->n_label; k++)
            sum += exp(beta * (z[k] - max));
        total += log(sum) - beta * (z[s->label[i]] - max);
    }
    return total;
}

/* [26] */
static double temperature_loss(const sample *s, double log_t) {
    return nll_at(s, log_t) + 0.5 * log_t * log_t;
}

/* log T in [log KH_T_MIN, log KH_T_MAX]. In log T the loss may have several dips, so a scan finds
 * the right one first. */
static double fit_log_t(const sample *s) {
    enum { N_SCAN = 25, N_GOLDEN = 32 };
    const double low = log(KH_T_MIN), step = (log(KH_T_MAX) - low) / (N_SCAN - 1),
                 golden = 0.61803398874989485;
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < N_SCAN; i++) {
        double loss = temperature_loss(s, low + i * step);
        if (loss < least) {
            least = loss;
            best = i;
        }
    }
    double a = low + (best > 0 ? best - 1 : 0) * step,
           b = low + (best + 1 < N_SCAN ? best + 1 : best) * step;
    double c = b - golden * (b - a), d = a + golden * (b - a), fc = temperature_loss(s, c),
           fd = temperature_loss(s, d);
    for (int i = 0; i < N_GOLDEN; i++) {
        if (fc <= fd) {
            b = d, d = c, fd = fc;
            c = b - golden * (b - a);
            fc = temperature_loss(s, c);
        } else {
            a = c, c = d, fc = fd;
            d = a + golden * (b - a);
            fd = temperature_loss(s, d);
        }
    }
    double log_t = (a + b) / 2;
    return temperature_loss(s, log_t) <= temperature_loss(s, 0) ? log_t : 0;
}

/* --------------------------------------------------------------------------------------- votes */

/* Rows go round the folds in the order of their classes: folds of equal size, with equal shares of
 * every class. */
static int deal_folds(int *fold, const int *label, int n, int n_label, int n_fold, kh_err *err) {
    int *next = kh_calloc((size_t)n_label + 1, sizeof *next);
    if (!next)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        next[label[i] + 1]++;
    for (int k = 1; k <= n_label; k++)
        next[k] += next[k - 1];
    for (int i = 0; i < n; i++)
        fold[i] = next[label[i]]++ % n_fold;
    kh_free(next);
    return 0;
}

/* [28]: the NLL of every fold under the temperature of the others. */
static double crossval_nll(sample s, int n_fold) {
    double total = 0;
    for (s.held = 0; s.held < n_fold; s.held++) {
        s.only = false;
        double log_t = fit_log_t(&s);
        s.only = true;
        total += nll_at(&s, log_t);
    }
    return total;
}

static double mean_votes(const double *x, int n, size_t size) {
    double mean = 0;
    for (size_t i = 0; i < size; i++)
        mean += x[i] / n;
    return mean;
}

/* alpha from mean votes * 10^-4 to mean votes * 1, in half decades; of equals the largest, which is
 * the most cautious. Returns the cross-validated NLL. */
static double fit_votes(
    kh_calibrator *c, const double *x, const int *label, const int *fold, double *z) {
    enum { N_ALPHA = 9 };
    int n_fold = c->n < N_FOLD ? c->n : N_FOLD;
    sample s = { .z = z, .label = label, .n = c->n, .n_label = c->n_label, .fold = fold };
    size_t size = (size_t)c->n * (size_t)c->n_label;
    double mean = mean_votes(x, c->n, size), least = INFINITY;
    c->alpha = 0.01 * mean; /* what a single row gets, which cannot be split */
    for (int g = N_ALPHA - 1; g >= 0 && c->n > 1; g--) {
        double alpha = mean * pow(10, -4 + 0.5 * g);
        prepare_votes(x, (int)size, alpha, z);
        double nll = crossval_nll(s, n_fold);
        if (nll < least) {
            least = nll;
            c->alpha = alpha;
        }
    }
    prepare_votes(x, (int)size, c->alpha, z);
    s.fold = NULL;
    c->temperature = kh_clamp(exp(fit_log_t(&s)), KH_T_MIN, KH_T_MAX);
    return least;
}

/* ------------------------------------------------------------------------------ vector scaling */

/* [27] or [30] with its gradient; theta = (w [slopes], b [K]). s->strength is the precision of the
 * prior. */
static double vector_loss(const sample *s, const double *theta, double *grad, double *row) {
    int m = s->n_label, slopes = n_slope(s), own = slopes > 1; /* K is at least 2 */
    const double *w = theta, *b = theta + slopes;
    double loss = 0;
    for (int k = 0; k < slopes + m; k++) {
        double away = theta[k] - (k < slopes);
        grad[k] = s->strength * away;
        loss += 0.5 * s->strength * away * away;
    }
    for (int i = 0; i < s->n; i++) {
        if (!counts(s, i))
            continue;
        const double *z = s->z + (size_t)i * (size_t)m;
        for (int k = 0; k < m; k++)
            row[k] = w[own * k] * z[k] + b[k];
        log_softmax(row, m);
        loss -= row[s->label[i]];
        for (int k = 0; k < m; k++) {
            double r = exp(row[k]) - (k == s->label[i]);
            grad[own * k] += r * z[k];
            grad[slopes + k] += r;
        }
    }
    return loss;
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

enum { MEMORY = 8, MAX_ITERATION = 500 };

typedef struct lbfgs {
    int d, stored, newest;
    double *theta, *grad, *next, *next_grad, *step, *diag; /* [d] each */
    double *s, *y; /* [MEMORY, d] changes of theta and of the gradient */
} lbfgs;

/* -H grad by the two-loop recursion, H0 = diag. */
static void descend(const lbfgs *o) {
    double a[MEMORY];
    int d = o->d;
    for (int i = 0; i < d; i++)
        o->step[i] = -o->grad[i];
    for (int j = 0; j < o->stored; j++) {
        int at = (o->newest - j + MEMORY) % MEMORY;
        const double *s = o->s + at * d, *y = o->y + at * d;
        a[at] = dot(s, o->step, d) / dot(s, y, d);
        for (int i = 0; i < d; i++)
            o->step[i] -= a[at] * y[i];
    }
    for (int i = 0; i < d; i++)
        o->step[i] *= o->diag[i];
    for (int j = o->stored - 1; j >= 0; j--) {
        int at = (o->newest - j + MEMORY) % MEMORY;
        const double *s = o->s + at * d, *y = o->y + at * d;
        double b = dot(y, o->step, d) / dot(s, y, d);
        for (int i = 0; i < d; i++)
            o->step[i] += (a[at] - b) * s[i];
    }
}

/* Keeps the pair of the step just made, if it is usable: the loss is strictly convex, so only
 * rounding can spoil it. */
static void remember(lbfgs *o) {
    int at = (o->newest + 1) % MEMORY, d = o->d;
    double *s = o->s + at * d, *y = o->y + at * d;
    for (int i = 0; i < d; i++) {
        s[i] = o->next[i] - o->theta[i];
        y[i] = o->next_grad[i] - o->grad[i];
    }
    if (dot(s, y, d) > 1e-14 * dot(y, y, d)) {
        o->newest = at;
        o->stored += o->stored < MEMORY;
    }
}

/* One iteration with a backtracking line search. False when there is nothing more to gain. */
static bool improve(lbfgs *o, const sample *data, double *loss, double *row) {
    descend(o);
    double slope = dot(o->step, o->grad, o->d), next = *loss;
    if (!(slope < 0) || -slope < 1e-13 * (1 + fabs(*loss)))
        return false;
    double t = 1;
    for (int i = 0; i < 50; i++, t /= 2) {
        for (int j = 0; j < o->d; j++)
            o->next[j] = o->theta[j] + t * o->step[j];
        next = vector_loss(data, o->next, o->next_grad, row);
        if (next <= *loss + 1e-4 * t * slope)
            break;
    }
    if (!(next < *loss))
        return false;
    remember(o);
    memcpy(o->theta, o->next, (size_t)o->d * sizeof *o->theta);
    memcpy(o->grad, o->next_grad, (size_t)o->d * sizeof *o->grad);
    *loss = next;
    return true;
}

/* The inverse of a bound on the diagonal of the Hessian: p (1 - p) is at most 1/4. */
static void start_diagonal(double *diag, const sample *s) {
    int m = s->n_label, slopes = n_slope(s), own = slopes > 1;
    for (int k = 0; k < slopes + m; k++)
        diag[k] = s->strength;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < m && counts(s, i); k++) {
            double z = s->z[(size_t)i * (size_t)m + (size_t)k];
            diag[own * k] += 0.25 * z * z;
            diag[slopes + k] += 0.25;
        }
    for (int k = 0; k < slopes + m; k++)
        diag[k] = 1 / diag[k];
}

/* All memory that a fit of d parameters to m classes takes, in one piece (kh_free). */
static double *lbfgs_new(lbfgs *o, int d, int m, double **row) {
    double *memory = kh_calloc((size_t)(6 + 2 * MEMORY) * (size_t)d + (size_t)m, sizeof *memory),
           *at = memory;
    *o = (lbfgs){ .d = d };
    double **const part[] = { &o->theta, &o->grad, &o->next, &o->next_grad, &o->step, &o->diag };
    for (int i = 0; i < 6 && memory; i++, at += d)
        *part[i] = at;
    o->s = at;
    o->y = memory ? o->s + MEMORY * d : NULL;
    *row = memory ? o->y + MEMORY * d : NULL;
    return memory;
}

/* Leaves the best parameters within their bounds in o->theta: "no change" if the bounds undo all
 * that was gained. */
static void minimise(lbfgs *o, const sample *data, double *row) {
    int slopes = n_slope(data);
    o->stored = 0;
    o->newest = MEMORY - 1;
    for (int k = 0; k < o->d; k++)
        o->theta[k] = k < slopes;
    start_diagonal(o->diag, data);
    double start = vector_loss(data, o->theta, o->grad, row), loss = start;
    for (int i = 0; i < MAX_ITERATION && improve(o, data, &loss, row); i++)
        ;
    for (int k = 0; k < o->d; k++)
        o->next[k] = kh_clamp(o->theta[k], -KH_WEIGHT_MAX, KH_WEIGHT_MAX);
    bool better = vector_loss(data, o->next, o->next_grad, row) <= start;
    for (int k = 0; k < o->d; k++)
        o->theta[k] = better ? o->next[k] : k < slopes;
}

/* The NLL of every fold under the parameters of the others; strength 0: under no change. */
static double crossval_vector(lbfgs *o, sample s, int n_fold, double *row) {
    double total = 0, strength = s.strength;
    for (s.held = 0; s.held < n_fold; s.held++) {
        s.only = false;
        if (strength > 0)
            minimise(o, &s, row);
        for (int k = 0; k < o->d && strength == 0; k++)
            o->theta[k] = k < n_slope(&s);
        s.only = true;
        s.strength = 0; /* the penalty is none of the score's */
        total += vector_loss(&s, o->theta, o->next_grad, row);
        s.strength = strength;
    }
    return total;
}

/* [30]: strengths in half decades from 1000 to 0.01, no change first; of equals the stronger. Folds
 * are dealt by class, so a class with one row is never learned from itself. */
static double choose_strength(lbfgs *o, sample s, int n_fold, double *row) {
    enum { N_STRENGTH = 11 };
    double best = 0, least = crossval_vector(o, s, n_fold, row); /* s.strength is 0 */
    for (int g = 0; g < N_STRENGTH && n_fold > 1; g++) {
        s.strength = pow(10, 3 - 0.5 * g);
        double nll = crossval_vector(o, s, n_fold, row);
        if (nll < least) {
            least = nll;
            best = s.strength;
        }
    }
    return best;
}

/* [35]: the temperature that answers want, at least 1, to rows which the map did not learn from. Of
 * few rows a map learns their chance, too, and is surer of new ones than it should be. */
static int excess(lbfgs *o, sample s, int n_fold, double *row, double *temperature, kh_err *err) {
    size_t m = (size_t)s.n_label;
    double *held = kh_malloc((size_t)s.n * m * sizeof *held);
    if (!held)
        return kh_fail_memory(err);
    for (s.held = 0; s.held < n_fold; s.held++) {
        minimise(o, &s, row);
        for (int i = 0; i < s.n; i++)
            for (size_t k = 0; k < m && s.fold[i] == s.held; k++)
                held[(size_t)i * m + k] = o->theta[0] * s.z[(size_t)i * m + k] + o->theta[1 + k];
    }
    s.z = held;
    s.fold = NULL;
    *temperature = fmax(1, exp(fit_log_t(&s)));
    kh_free(held);
    return 0;
}

/* The map of these scores by data.strength, with [35] if there are folds; without strength no
 * change, which is a slope of `plain`. */
static int fit_map(kh_calibrator *c, lbfgs *o, sample data, const int *fold, int n_fold,
    double *row, double plain, kh_err *err) {
    int m = c->n_label, slopes = n_slope(&data), rc = 0;
    bool fitted = data.strength > 0;
    double temperature = 1;
    data.fold = fold;
    if (fold && fitted)
        rc = excess(o, data, n_fold, row, &temperature, err);
    data.fold = NULL;
    if (rc == 0 && fitted)
        minimise(o, &data, row);
    for (int k = 0; k < m && rc == 0; k++) {
        int slope = data.shared ? 0 : k;
        c->weight[k] = fitted ? o->theta[slope] / temperature : plain;
        c->bias[k] = fitted ? o->theta[slopes + k] / temperature : 0;
    }
    return rc;
}

static int new_map(
    kh_calibrator *c, lbfgs *o, int slopes, double **memory, double **row, kh_err *err) {
    int m = c->n_label;
    *memory = lbfgs_new(o, slopes + m, m, row);
    c->weight = kh_malloc((size_t)m * sizeof *c->weight);
    c->bias = kh_malloc((size_t)m * sizeof *c->bias);
    return *memory && c->weight && c->bias ? 0 : kh_fail_memory(err);
}

/* fold NULL: the strength is one; otherwise the folds decide, there is one slope, and 0 stands for
 * no change. */
static int fit_vector(kh_calibrator *c, sample data, const int *fold, int n_fold, kh_err *err) {
    lbfgs o;
    double *memory, *row;
    data.shared = fold != NULL;
    int rc = new_map(c, &o, n_slope(&data), &memory, &row, err);
    data.strength = fold ? 0 : 1;
    if (rc == 0 && fold) {
        data.fold = fold;
        data.strength = c->strength = choose_strength(&o, data, n_fold, row);
    }
    if (rc == 0)
        rc = fit_map(c, &o, data, fold, n_fold, row, 1, err);
    kh_free(memory);
    return rc;
}

/* Whether more votes for a class make it more probable. Few rows at which prompts can only guess
 * may seem to say the opposite. */
static bool goes_up(lbfgs *o, sample s, double *row) {
    s.fold = NULL;
    minimise(o, &s, row);
    return o->theta[0] > 0;
}

/* [38]: votes with a slope and a bias for each class, if folds show that it helps beside [28]. A
 * class that few prompts ever name may still be the right one wherever some do: with a bias the
 * votes of many prompts tell what a single answer cannot. */
static int fit_votes_affine(kh_calibrator *c, const double *x, const int *label, const int *fold,
    int n_fold, double *z, kh_err *err) {
    enum { N_ALPHA = 5, N_STRENGTH = 4 };
    size_t size = (size_t)c->n * (size_t)c->n_label;
    double least = fit_votes(c, x, label, fold, z), plain = 1 / c->temperature,
           mean = mean_votes(x, c->n, size), *memory, *row;
    sample s = {
        .z = z, .label = label, .n = c->n, .n_label = c->n_label, .fold = fold, .shared = true
    };
    lbfgs o;
    int rc = new_map(c, &o, 1, &memory, &row, err);
    for (int g = 0; g < N_ALPHA * N_STRENGTH && rc == 0 && n_fold > 1; g++) {
        double alpha = mean * pow(10, -0.5 * (g / N_STRENGTH));
        prepare_votes(x, (int)size, alpha, z);
        s.strength = pow(10, 3 - g % N_STRENGTH);
        double nll = crossval_vector(&o, s, n_fold, row);
        if (nll < least && goes_up(&o, s, row)) {
            least = nll;
            c->alpha = alpha;
            c->strength = s.strength;
        }
    }
    prepare_votes(x, (int)size, c->alpha, z);
    s.strength = c->strength;
    c->temperature = 1;
    if (rc == 0)
        rc = fit_map(c, &o, s, fold, n_fold, row, plain, err);
    kh_free(memory);
    return rc;
}

/* ------------------------------------------------------------------------------------- fitting */

static int check_row(kh_calibration method, const double *x, int n_label, int i, kh_err *err) {
    for (int k = 0; k < n_label; k++) {
        if (!isfinite(x[k]))
            return kh_fail(err, KH_EARG, "row %d: the %s of class %d is not a finite number", i,
                kh_calibration_votes(method) ? "vote count" : "score", k);
        if (kh_calibration_votes(method) && x[k] < 0)
            return kh_fail(
                err, KH_EARG, "row %d: %g votes for class %d, expected 0 or more", i, x[k], k);
    }
    return 0;
}

static int check_input(
    kh_calibration method, const double *x, const int *label, int n, int n_label, kh_err *err) {
    double votes = 0;
    size_t size;
    if (n <= 0)
        return kh_fail(err, KH_EARG, "there are no labelled rows to calibrate on");
    if (n_label < 2)
        return kh_fail(err, KH_EARG, "%d class%s, but a classifier needs at least two", n_label,
            n_label == 1 ? "" : "es");
    if (n_label > 65536 || !kh_mul((size_t)n, (size_t)n_label, &size) || size > INT32_MAX)
        return kh_fail(
            err, KH_ELIMIT, "%d rows of %d classes are more than can be calibrated on", n, n_label);
    for (int i = 0; i < n; i++) {
        const double *row = x + (size_t)i * (size_t)n_label;
        int rc = check_row(method, row, n_label, i, err);
        if (rc != 0)
            return rc;
        if (label[i] < 0 || label[i] >= n_label)
            return kh_fail(
                err, KH_EARG, "row %d: label %d, expected 0 to %d", i, label[i], n_label - 1);
        for (int k = 0; k < n_label; k++)
            votes += row[k];
    }
    if (kh_calibration_votes(method) && !(votes > 1e-200 && votes < 1e300))
        return kh_fail(err, KH_EARG,
            "the votes of all rows add up to %g, expected more than nothing and less than 1e300",
            votes);
    return 0;
}

int kh_calibrator_fit(kh_calibrator *out, kh_calibration method, const double *x, const int *label,
    int n, int n_label, kh_err *err) {
    *out = (kh_calibrator){ .method = method, .n_label = n_label, .n = n, .temperature = 1 };
    int rc = check_input(method, x, label, n, n_label, err);
    if (rc != 0)
        return rc;
    double *z = kh_malloc((size_t)n * (size_t)n_label * sizeof *z);
    int *fold = kh_malloc((size_t)n * sizeof *fold);
    rc = z && fold ? deal_folds(fold, label, n, n_label, n < N_FOLD ? n : N_FOLD, err)
                   : kh_fail_memory(err);
    if (rc != 0)
        goto done;
    int n_fold = n < N_FOLD ? n : N_FOLD;
    if (method == KH_CALIBRATE_VOTES)
        fit_votes(out, x, label, fold, z);
    if (method == KH_CALIBRATE_VOTES_AFFINE)
        rc = fit_votes_affine(out, x, label, fold, n_fold, z, err);
    if (kh_calibration_votes(method))
        goto done;
    for (int i = 0; i < n; i++)
        prepare_logits(x + (size_t)i * (size_t)n_label, n_label, kh_calibration_per_class(method),
            z + (size_t)i * (size_t)n_label);
    sample s = { .z = z, .label = label, .n = n, .n_label = n_label };
    if (kh_calibration_per_class(method))
        rc = fit_vector(out, s, method == KH_CALIBRATE_AFFINE ? fold : NULL, n_fold, err);
    else
        out->temperature = kh_clamp(exp(fit_log_t(&s)), KH_T_MIN, KH_T_MAX);
done:
    kh_free(z);
    kh_free(fold);
    return rc;
}

void kh_calibrator_free(kh_calibrator *c) {
    kh_free(c->weight);
    kh_free(c->bias);
    c->weight = c->bias = NULL;
}

/* ------------------------------------------------------------------------------------ applying */

void kh_calibrator_apply(const kh_calibrator *c, const double *x, int n, double *p) {
    for (int i = 0; i < n; i++) {
        const double *from = x + (size_t)i * (size_t)c->n_label;
        double *to = p + (size_t)i * (size_t)c->n_label;
        if (kh_calibration_votes(c->method))
            prepare_votes(from, c->n_label, c->alpha, to);
        else
            prepare_logits(from, c->n_label, kh_calibration_per_class(c->method), to);
        for (int k = 0; k < c->n_label; k++)
            to[k] = kh_calibration_per_class(c->method) ? c->weight[k] * to[k] + c->bias[k]
                                                        : to[k] / c->temperature;
        log_softmax(to, c->n_label);
        for (int k = 0; k < c->n_label; k++)
            to[k] = exp(to[k]);
    }
}

/* Fits on the rows that are not of this fold, in x_fit and label_fit, and applies to those that
 * are. */
static int crossfit_fold(kh_calibration method, const kh_answers *all, const int *fold, int held,
    double *x_fit, int *label_fit, kh_calibrator *c, double *p, kh_err *err) {
    size_t k = (size_t)all->n_label;
    int m = 0;
    for (int i = 0; i < all->n; i++)
        if (fold[i] != held) {
            memcpy(x_fit + (size_t)m * k, all->p + (size_t)i * k, k * sizeof *x_fit);
            label_fit[m++] = all->label[i];
        }
    int rc = kh_calibrator_fit(c, method, x_fit, label_fit, m, all->n_label, err);
    for (int i = 0; i < all->n && rc == 0; i++)
        if (fold[i] == held)
            kh_calibrator_apply(c, all->p + (size_t)i * k, 1, p + (size_t)i * k);
    return rc;
}

int kh_calibrator_crossfit_maps(kh_calibration method, const double *x, const int *label, int n,
    int n_label, int n_fold, double *p, kh_calibrator *map, int *fold, kh_err *err) {
    int rc = check_input(method, x, label, n, n_label, err);
    if (rc == 0 && (n_fold < 2 || n_fold > n))
        rc = kh_fail(
            err, KH_EARG, "%d folds of %d rows, expected 2 to the number of rows", n_fold, n);
    if (rc != 0)
        return rc;
    kh_answers all = { x, label, n,
        n_label }; /* scores, not probabilities: only the shape matters here */
    double *x_fit = kh_malloc((size_t)n * (size_t)n_label * sizeof *x_fit);
    int *label_fit = kh_malloc((size_t)n * sizeof *label_fit),
        *own = fold ? NULL : kh_malloc((size_t)n * sizeof *own), *of = fold ? fold : own;
    rc = x_fit && label_fit && of ? deal_folds(of, label, n, n_label, n_fold, err)
                                  : kh_fail_memory(err);
    for (int held = 0; held < n_fold && rc == 0; held++) {
        kh_calibrator c = { 0 }, *to = map ? &map[held] : &c;
        rc = crossfit_fold(method, &all, of, held, x_fit, label_fit, to, p, err);
        kh_calibrator_free(&c);
    }
    kh_free(x_fit);
    kh_free(label_fit);
    kh_free(own);
    return rc;
}

int kh_calibrator_crossfit(kh_calibration method, const double *x, const int *label, int n,
    int n_label, int n_fold, double *p, kh_err *err) {
    return kh_calibrator_crossfit_maps(method, x, label, n, n_label, n_fold, p, NULL, NULL, err);
}
