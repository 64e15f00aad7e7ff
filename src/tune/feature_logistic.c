/* feature_logistic.c - a regularised multinomial logistic regression on hidden states of a frozen
 * model: what reads most out of a few dozen rows.
 *
 * The states of all labelled rows are read once, a query each. How strong the ridge is, is chosen
 * by cross-validation over train and dev rows together; with that strength every row has an answer
 * from a fit that has not seen it, which is what the result is calibrated and compared by. What is
 * returned is fitted to all of them. Nothing is drawn but the folds. */
#include "tune/method.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "posterior/features.h"
#include "train/logistic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_FOLD = 5 };
/* Strengths of the ridge on coordinates with a variance of one, weakest last: each starts from the
 * result of the one before. */
static const double RIDGES[] = { 3, 1, 0.3, 0.1, 0.03, 0.01, 0.003 };
enum { N_RIDGE = sizeof RIDGES / sizeof RIDGES[0] };
static const double LEAST_SD = 1e-6;

typedef struct logistic_opts {
    int states; /* kh_pool */
    double ridge;
} logistic_opts;

static const kh_opt logistic_table[] = {
    { "states", KH_OPT_CHOICE, offsetof(logistic_opts, states), "mean", .arg = "mask|mean|first",
        .help = "what it reads: the state at the mask, the mean of all, the first" },
    { "ridge", KH_OPT_NUMBER, offsetof(logistic_opts, ridge), "0", .min = 0, .max = 1e6, .arg = "X",
        .help = "strength of the penalty; 0: by cross-validation" },
    { 0 },
};

/* Rows of dev, then those of train. */
typedef struct data {
    int n, dim, n_label;
    double *x;         /* [n, dim] of mean 0 and variance 1 in each coordinate */
    double *mean, *sd; /* [dim] what was taken from them, and what they were divided by */
    int *label, *part; /* [n] the labels; those of one fit, -1 for the rows that it may not see */
    int *fold;         /* [n] */
    double *w;         /* [N_FOLD + 1, n_label, dim + 1]: the fit of each fold, and that of all */
    double *fresh;     /* [n, n_label] log-probabilities by fits that have not seen the row */
} data;

static void data_free(data *d) {
    kh_free(d->x);
    kh_free(d->mean);
    kh_free(d->label);
    kh_free(d->w);
    kh_free(d->fresh);
}

static int data_new(data *d, const kh_tuning *t, kh_err *err) {
    *d = (data){ .n = t->n_dev + t->n_train,
        .dim = kh_plm_describe(t->plm).hidden,
        .n_label = t->task->n_label };
    size_t n = (size_t)d->n, dim = (size_t)d->dim, labels = (size_t)d->n_label;
    d->x = kh_malloc(n * dim * sizeof *d->x);
    d->mean = kh_calloc(2 * dim, sizeof *d->mean);
    d->label = kh_calloc(3 * n, sizeof *d->label);
    d->w = kh_calloc((N_FOLD + 1) * labels * (dim + 1), sizeof *d->w);
    d->fresh = kh_malloc(n * labels * sizeof *d->fresh);
    if (!d->x || !d->mean || !d->label || !d->w || !d->fresh)
        return kh_fail_memory(err);
    d->sd = d->mean + dim;
    d->part = d->label + n;
    d->fold = d->part + n;
    return 0;
}

static void standardise(data *d) {
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->dim; j++)
            d->mean[j] += d->x[(size_t)i * (size_t)d->dim + (size_t)j] / d->n;
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->dim; j++) {
            double *x = &d->x[(size_t)i * (size_t)d->dim + (size_t)j];
            *x -= d->mean[j];
            d->sd[j] += *x * *x / d->n;
        }
    for (int j = 0; j < d->dim; j++)
        d->sd[j] = fmax(sqrt(d->sd[j]), LEAST_SD);
    for (int i = 0; i < d->n; i++)
        for (int j = 0; j < d->dim; j++)
            d->x[(size_t)i * (size_t)d->dim + (size_t)j] /= d->sd[j];
}

/* The states of one part of the rows, into those from `first` on. */
static int read_part(
    data *d, kh_tuning *t, kh_pool pool, const kh_row *row, int n, int first, kh_err *err) {
    kh_plm_info box = kh_plm_describe(t->plm);
    kh_batch_opts o = { .max_len = box.max_len, .next = box.next };
    kh_features f = { 0 };
    int rc = kh_features_read(&f, t->plm, t->task, t->words, &o, pool, row, n, err);
    for (int i = 0; i < n && rc == 0; i++) {
        d->label[first + i] = f.row[i].label;
        for (int j = 0; j < d->dim; j++)
            d->x[(size_t)(first + i) * (size_t)d->dim + (size_t)j] = (double)f.row[i].state[j];
    }
    kh_features_free(&f);
    return rc;
}

static int read_rows(data *d, kh_tuning *t, kh_pool pool, kh_err *err) {
    long long before = kh_tuning_queries(t);
    int rc = read_part(d, t, pool, t->dev_row, t->n_dev, 0, err);
    t->dev_queries += kh_tuning_queries(t) - before;
    if (rc == 0)
        rc = read_part(d, t, pool, t->train_row, t->n_train, t->n_dev, err);
    if (rc == 0)
        standardise(d);
    return rc;
}

/* Class by class, in an order that the seed decides. */
static int deal(data *d, uint64_t seed, kh_err *err) {
    int *order = kh_malloc((size_t)d->n * sizeof *order), next = 0;
    if (!order)
        return kh_fail_memory(err);
    kh_rng r = kh_rng_stream(seed, KH_RNG_HEADS, 2, 0);
    kh_rng_permutation(&r, order, d->n);
    for (int k = 0; k < d->n_label; k++)
        for (int i = 0; i < d->n; i++)
            if (d->label[order[i]] == k)
                d->fold[order[i]] = next++ % N_FOLD;
    kh_free(order);
    return 0;
}

static double *fit_of(const data *d, int fold) {
    return d->w + (size_t)fold * (size_t)d->n_label * ((size_t)d->dim + 1);
}

static int fit_without(data *d, int fold, double ridge, kh_err *err) {
    for (int i = 0; i < d->n; i++)
        d->part[i] = d->fold[i] == fold ? -1 : d->label[i];
    return kh_logistic_fit(&(kh_logistic_rows){ d->x, d->part, d->n, d->dim, d->n_label }, ridge,
        fit_of(d, fold), err);
}

/* Every row's answer by the fit that has not seen it, and their mean of -log p. */
static int crossfit(data *d, double ridge, double *answer, double *nll, kh_err *err) {
    int rc = 0;
    *nll = 0;
    for (int fold = 0; fold < N_FOLD && rc == 0; fold++)
        rc = fit_without(d, fold, ridge, err);
    for (int i = 0; i < d->n && rc == 0; i++) {
        double *own = answer + (size_t)i * (size_t)d->n_label;
        kh_logistic_answer(
            fit_of(d, d->fold[i]), d->x + (size_t)i * (size_t)d->dim, 1, d->dim, d->n_label, own);
        *nll -= own[d->label[i]] / d->n;
    }
    return rc;
}

/* The strength with the least of them; its answers stay in d->fresh. */
static int choose_ridge(data *d, kh_tuning *t, double *ridge, kh_err *err) {
    size_t size = (size_t)d->n * (size_t)d->n_label;
    double *answer = kh_malloc(size * sizeof *answer), best = INFINITY, nll = 0;
    int rc = answer ? 0 : kh_fail_memory(err), n = *ridge > 0 ? 1 : N_RIDGE;
    double given = *ridge;
    for (int i = 0; i < n && rc == 0; i++) {
        double strength = given > 0 ? given : RIDGES[i];
        char facts[KH_FACTS];
        rc = crossfit(d, strength, answer, &nll, err);
        if (rc == 0 && nll < best) {
            best = nll;
            *ridge = strength;
            memcpy(d->fresh, answer, size * sizeof *answer);
        }
        snprintf(facts, sizeof facts, "ridge=%g loss=%.6f best=%.6f", strength, nll, best);
        if (rc == 0)
            kh_tuning_report(t, "feature-logistic",
                &(kh_generation){ -1, i + 1, i + 1, n, NAN, facts, 0, false });
        if (rc == 0 && kh_tuning_interrupted(t))
            rc = kh_fail(err, KH_STOPPED, "stopped on request");
    }
    kh_free(answer);
    return rc;
}

/* The fit to all rows, for states as they are read. */
static int take_head(data *d, kh_pool pool, double ridge, kh_posterior *p, kh_err *err) {
    size_t dim = (size_t)d->dim, labels = (size_t)d->n_label;
    double *w = fit_of(d, N_FOLD);
    kh_adapter head = { .kind = KH_ADAPTER_LINEAR,
        .pool = pool,
        .hidden = d->dim,
        .labels = d->n_label,
        .x = kh_malloc(labels * (dim + 1) * sizeof *head.x) };
    if (!head.x)
        return kh_fail_memory(err);
    int rc = kh_logistic_fit(
        &(kh_logistic_rows){ d->x, d->label, d->n, d->dim, d->n_label }, ridge, w, err);
    for (size_t k = 0; k < labels && rc == 0; k++) {
        double bias = w[k * (dim + 1) + dim];
        for (size_t j = 0; j < dim; j++) {
            double own = w[k * (dim + 1) + j] / d->sd[j];
            head.x[k * dim + j] = (float)own;
            bias -= own * d->mean[j];
        }
        head.x[labels * dim + k] = (float)bias;
    }
    if (rc == 0)
        rc = kh_posterior_set_adapter(p, &head, err);
    kh_free(head.x);
    return rc;
}

/* What the rows were answered by fits that have not seen them. */
static int hold(data *d, kh_tuning *t, kh_posterior *p, kh_err *err) {
    for (size_t i = 0; i < (size_t)d->n * (size_t)d->n_label; i++)
        d->fresh[i] = exp(d->fresh[i]);
    t->crossfitted = true;
    p->dev = kh_metric_of_p(t->task->metric, d->fresh, d->label, t->n_dev, d->n_label);
    return kh_tuning_hold(t, d->fresh, d->label, NULL, d->n, err);
}

static int run_logistic(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const logistic_opts *o = opts;
    double ridge = o->ridge;
    data d;
    int rc = data_new(&d, t, err);
    if (rc == 0)
        rc = read_rows(&d, t, (kh_pool)o->states, err);
    if (rc == 0)
        rc = deal(&d, t->o->seed, err);
    if (rc == 0)
        rc = choose_ridge(&d, t, &ridge, err);
    if (rc == 0)
        rc = take_head(&d, (kh_pool)o->states, ridge, p, err);
    if (rc == 0)
        rc = hold(&d, t, p, err);
    if (rc == 0)
        kh_tuning_stop(t, "ridge %g has the least cross-validated loss", ridge);
    data_free(&d);
    return rc;
}

/* Every row's state is read once, whatever the budget. */
static long long all_once(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_train + t->n_dev;
}

static void plan_once(const kh_tuning *t, const void *opts, kh_plan *most) {
    (void)opts;
    *most = (kh_plan){ .candidates = 1, .train = t->n_train, .dev = t->n_dev };
}

const kh_method kh_method_feature_logistic = {
    .name = "feature-logistic",
    .summary = "a logistic regression on hidden states of the model; the one for few rows",
    .access = KH_ACCESS_WEIGHTS,
    .holds = true,
    .opts = logistic_table,
    .opts_size = sizeof(logistic_opts),
    .least = all_once,
    .most = plan_once,
    .run = run_logistic,
};
