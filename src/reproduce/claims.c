/* claims.c - see claims.h.
 *
 * A resample draws, for each task, as many seeds as there are with replacement, and for each drawn
 * seed as many rows, the same for both methods; the statistic is the difference of the means over
 * tasks. So the interval covers what another draw of few-shot rows and of test rows would change,
 * and not what another choice of tasks would: the paper's tasks are given. Resample r draws from
 * the stream (0, KH_RNG_BOOTSTRAP, r, task), so that the answer is the same on any machine. */
#include "reproduce/claims.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/rng.h"
#include "judge/metrics.h"
#include "judge/predictions.h"

#include <math.h>
#include <string.h>

enum { LOW = 25, HIGH = 975 }; /* of a thousand */

/* The answers of one run. */
typedef struct answered {
    kh_predictions rows;
    kh_buf bytes;
} answered;

/* Both methods on one task with one seed. */
typedef struct pair {
    const kh_experiment *on;
    bool f1;
    answered of[2];
} pair;

typedef struct pairs {
    pair *p;
    int n;
    size_t cap;
} pairs;

static void free_pairs(pairs *x) {
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < 2; k++) {
            kh_predictions_free(&x->p[i].of[k].rows);
            kh_buf_free(&x->p[i].of[k].bytes);
        }
    kh_free(x->p);
}

/* ------------------------------------------------------------------------------- reading answers
 */

static int read_answers(
    const kh_reproduction *r, const kh_planned *run, answered *out, kh_err *err) {
    static const kh_evidence PROBS[] = { KH_PROBS };
    kh_buf path = kh_buf_init(1 << 16);
    kh_buf_printf(&path, "%s/%s/" KH_ANSWERS_NAME, r->runs, run->name);
    int rc = kh_buf_failed(&path) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        rc = kh_file_read(path.data, (size_t)1 << 30, &out->bytes, err);
    if (rc == 0)
        rc = kh_predictions_parse(
            &out->rows, out->bytes.data, out->bytes.len, path.data, PROBS, 1, err);
    kh_buf_free(&path);
    return rc;
}

/* The run of this method on the task with the seed, if it is done; -1: it is not. */
static int find_run(
    const kh_reproduction *r, const char *name, const kh_experiment *x, uint64_t seed) {
    for (int i = 0; i < r->a->n; i++)
        if (r->a->run[i].on == x && r->a->run[i].seed == seed && r->outcome[i].done &&
            strcmp(r->a->run[i].variant->name, name) == 0)
            return i;
    return -1;
}

static int add_pair(
    const kh_reproduction *r, const kh_experiment *x, const int at[2], pairs *all, kh_err *err) {
    const kh_task *task;
    if (!kh_grow(&all->p, &all->cap, (size_t)all->n + 1, sizeof *all->p))
        return kh_fail_memory(err);
    pair *p = &all->p[all->n++];
    *p = (pair){ .on = x };
    p->f1 = kh_task_open(&task, x->task, NULL) == 0 && task->metric == KH_METRIC_F1;
    int rc = 0;
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = read_answers(r, &r->a->run[at[k]], &p->of[k], err);
    if (rc == 0 &&
        (p->of[0].rows.n != p->of[1].rows.n ||
            memcmp(p->of[0].rows.label, p->of[1].rows.label,
                (size_t)p->of[0].rows.n * sizeof(int)) != 0))
        rc = kh_fail(err, KH_EMISMATCH,
            "%s and %s were judged on different rows; remove " KH_MANIFEST_NAME
            " from both and run the command again",
            r->a->run[at[0]].name, r->a->run[at[1]].name);
    return rc;
}

/* Task after task, seed after seed. */
static int find_pairs(const kh_reproduction *r, const char *const name[2], const kh_experiment *x,
    pairs *all, kh_err *err) {
    int rc = 0;
    for (int t = 0; kh_experiment_at(t) && rc == 0; t++)
        for (int s = 0; s < r->a->n_seed && rc == 0; s++) {
            const kh_experiment *on = kh_experiment_at(t);
            int at[2] = { find_run(r, name[0], on, r->a->seed[s]),
                find_run(r, name[1], on, r->a->seed[s]) };
            if (at[0] >= 0 && at[1] >= 0 && (!x || x == on))
                rc = add_pair(r, on, at, all, err);
        }
    return rc;
}

/* -------------------------------------------------------------------------------- the statistic */

typedef struct scratch {
    double *p;
    int *label;
    size_t cap_p, cap_label;
} scratch;

static double score_of(const kh_answers *a, bool f1) {
    int right = 0, hit = 0, said = 0, there = 0;
    for (int i = 0; i < a->n; i++) {
        int best = 0;
        for (int k = 1; k < a->n_label; k++)
            best = a->p[i * a->n_label + k] > a->p[i * a->n_label + best] ? k : best;
        right += best == a->label[i];
        hit += best == 1 && a->label[i] == 1;
        said += best == 1;
        there += a->label[i] == 1;
    }
    if (f1)
        return said + there > 0 ? 2.0 * hit / (said + there) : 0;
    return (double)right / a->n;
}

/* Score and ECE of one method on the rows drawn (row NULL: all as they are). */
static int judge(const pair *p, int which, const int *row, scratch *s, double out[2], kh_err *err) {
    const kh_predictions *x = &p->of[which].rows;
    size_t n = (size_t)x->n, k = (size_t)x->n_label;
    kh_bin bin[KH_BINS];
    if (!kh_grow(&s->p, &s->cap_p, n * k, sizeof *s->p) ||
        !kh_grow(&s->label, &s->cap_label, n, sizeof *s->label))
        return kh_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        size_t from = row ? (size_t)row[i] : i;
        memcpy(s->p + i * k, x->x + from * k, k * sizeof *s->p);
        s->label[i] = x->label[from];
    }
    kh_answers a = { s->p, s->label, x->n, x->n_label };
    out[0] = score_of(&a, p->f1);
    return kh_ece(&a, KH_BINS_UQ360, KH_BINS, bin, &out[1], err);
}

/* first - second of one pair. */
static int differ(const pair *p, const int *row, scratch *s, double out[2], kh_err *err) {
    double a[2], b[2];
    int rc = judge(p, 0, row, s, a, err);
    if (rc == 0)
        rc = judge(p, 1, row, s, b, err);
    out[0] = a[0] - b[0];
    out[1] = a[1] - b[1];
    return rc;
}

/* Over all tasks; draw < 0: the rows and seeds as they are. */
static int statistic(
    const pairs *all, int draw, scratch *s, int **row, size_t *cap, double out[2], kh_err *err) {
    int tasks = 0, rc = 0;
    out[0] = out[1] = 0;
    for (int i = 0, n; i < all->n && rc == 0; i += n, tasks++) {
        double sum[2] = { 0 }, d[2];
        for (n = 1; i + n < all->n && all->p[i + n].on == all->p[i].on;)
            n++;
        kh_rng rng = kh_rng_stream(0, KH_RNG_BOOTSTRAP, (uint32_t)(draw + 1), (uint32_t)tasks);
        for (int k = 0; k < n && rc == 0; k++) {
            const pair *p = &all->p[i + (draw < 0 ? k : (int)kh_rng_below(&rng, (uint32_t)n))];
            int rows = p->of[0].rows.n;
            if (!kh_grow(row, cap, (size_t)rows, sizeof **row))
                return kh_fail_memory(err);
            for (int j = 0; j < rows; j++)
                (*row)[j] = draw < 0 ? j : (int)kh_rng_below(&rng, (uint32_t)rows);
            rc = differ(p, *row, s, d, err);
            sum[0] += d[0];
            sum[1] += d[1];
        }
        out[0] += sum[0] / n;
        out[1] += sum[1] / n;
    }
    out[0] /= tasks;
    out[1] /= tasks;
    return rc;
}

/* Between two ranks, as numpy's default; x is sorted. */
static double quantile(const double *x, int n, int thousandth) {
    double at = (n - 1) * thousandth / 1000.0;
    int low = (int)at;
    int high = low + 1 < n ? low + 1 : low;
    return x[low] + (at - low) * (x[high] - x[low]);
}

static kh_difference interval(double mean, double *x, int n) {
    kh_sort_doubles(x, n);
    return (kh_difference){ mean, quantile(x, n, LOW), quantile(x, n, HIGH) };
}

int kh_claim_compare(const kh_reproduction *r, const char *first, const char *second,
    const kh_experiment *x, kh_claim *out, kh_err *err) {
    static const kh_difference NONE = { NAN, NAN, NAN };
    const char *const name[2] = { first, second };
    pairs all = { 0 };
    scratch s = { 0 };
    int *row = NULL, n = r->n_resample;
    size_t cap = 0;
    double d[2], *drawn = kh_malloc(2 * (size_t)n * sizeof *drawn);
    *out = (kh_claim){ NONE, NONE, 0, 0 };
    int rc = drawn ? find_pairs(r, name, x, &all, err) : kh_fail_memory(err);
    for (int i = -1; i < n && rc == 0 && all.n > 0; i++) {
        rc = statistic(&all, i, &s, &row, &cap, d, err);
        for (int k = 0; k < 2 && i >= 0; k++)
            drawn[k * n + i] = d[k];
        if (i < 0)
            *out = (kh_claim){ { d[0], NAN, NAN }, { d[1], NAN, NAN }, 0, all.n };
    }
    for (int i = 0; i < all.n && rc == 0; i++)
        out->tasks += i == 0 || all.p[i].on != all.p[i - 1].on;
    if (rc == 0 && all.n > 0) {
        out->score = interval(out->score.mean, drawn, n);
        out->ece = interval(out->ece.mean, drawn + n, n);
    }
    free_pairs(&all);
    kh_free(s.p);
    kh_free(s.label);
    kh_free(row);
    kh_free(drawn);
    return rc;
}

int kh_claim_units(const double *d, int n, int n_resample, kh_difference *out, kh_err *err) {
    *out = (kh_difference){ NAN, NAN, NAN };
    if (n == 0)
        return 0;
    double *drawn = kh_malloc((size_t)n_resample * sizeof *drawn), mean = 0;
    if (!drawn)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        mean += d[i] / n;
    if (n == 1) { /* every resample is the one: a point, which would exclude zero */
        *out = (kh_difference){ mean, NAN, NAN };
        kh_free(drawn);
        return 0;
    }
    for (int r = 0; r < n_resample; r++) {
        kh_rng rng = kh_rng_stream(0, KH_RNG_BOOTSTRAP, (uint32_t)r, 0);
        drawn[r] = 0;
        for (int i = 0; i < n; i++)
            drawn[r] += d[kh_rng_below(&rng, (uint32_t)n)] / n;
    }
    *out = interval(mean, drawn, n_resample);
    kh_free(drawn);
    return 0;
}

int kh_claim_sign(const kh_difference *d) { return (d->low > 0) - (d->high < 0); }
