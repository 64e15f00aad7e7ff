/* fallback.c - see fallback.h.
 *
 * What a search finds on 32 rows may be worth less than the template that it began with. Both are
 * judged by the mean of -log p of rows that were not learned from, calibrated by rows that do not
 * hold the row in question: a score that few rows can bear. But the search has been chosen by its
 * answers on dev, and the template has not: the score flatters the search. What is the best of L
 * looks at dev may be ahead by ln L by luck alone (T27); that is taken off its lead. What is left
 * must be MARGIN standard errors of the rows' differences.
 *
 * A soft prompt that is ahead by less need not be thrown away: the template answers beside it, by a
 * share that the same rows tell (T23). Two answers that err on different rows are better together
 * than either is, and what the search made of 32 rows counts only as far as they bear it out. The
 * search has only a part in them, and so they need to win by less: POOL_MARGIN, and half of that
 * where the lead has paid for its looks already, or by fits that had not seen the row.
 *
 * Answers by fits that had not seen the row (feature-logistic) flatter nobody: the template answers
 * beside them even where they are surely better alone.
 *
 * The template is asked as the method asks: for labels only, if that is all that it may see. */
#include "tune/fallback.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "judge/calibrate.h"
#include "posterior/predict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { N_FOLD = 5 };
static const double MARGIN = 2, POOL_MARGIN = 1;

bool kh_tuning_guards(const kh_tuning *t) {
    const kh_tune_opts *o = t->o;
    bool wanted = o->fallback == KH_FALLBACK_TEMPLATE ||
        (o->fallback == KH_FALLBACK_AUTO && o->effort != KH_EFFORT_PAPER && !o->paper_exact);
    return wanted && kh_tuning_calibrates(t);
}

bool kh_tuning_has_net(const kh_tuning *t, const kh_method *m) {
    return kh_tuning_guards(t) && m != &kh_method_manual && !m->chooses;
}

long long kh_tuning_net_cost(const kh_tuning *t, const kh_method *m) {
    return kh_tuning_has_net(t, m) ? (long long)t->n_dev + t->n_train : 0;
}

double kh_tuning_worth(
    const kh_tuning *t, const double *answers, bool votes, int samples, kh_err *err) {
    int n = t->dev->n_row, n_label = t->words->n_label, n_fold = n < N_FOLD ? n : N_FOLD;
    size_t size = kh_dev_size(t);
    if (!kh_tuning_guards(t) || n_fold < 2)
        return kh_dev_metric(t, answers);
    double *x = kh_malloc(2 * size * sizeof *x), worth = NAN;
    if (!x) {
        kh_fail_memory(err);
        return NAN;
    }
    memcpy(x, answers, size * sizeof *x);
    kh_mixture_finish(x, n, n_label);
    kh_calibration_input(votes, samples, x, size);
    if (kh_calibrator_crossfit(
            kh_calibration_of(votes), x, t->dev->label, n, n_label, n_fold, x + size, err) == 0) {
        worth = 0;
        for (int i = 0; i < n; i++)
            worth +=
                log(fmax(x[size + (size_t)i * (size_t)n_label + (size_t)t->dev->label[i]], 1e-15)) /
                n;
    }
    kh_free(x);
    return worth;
}

/* (T27) */
static double luck_of(int looks) { return looks > 1 ? log(looks) : 0; }

double kh_scores_apart(const kh_row_scores *a, const kh_row_scores *b, double *mean) {
    double sum = 0, squares = 0, luck = luck_of(b->looks) - luck_of(a->looks);
    int n = 0;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++)
            if (a->row[i] == b->row[j]) {
                double d = a->nll[i] - b->nll[j];
                sum += d;
                squares += d * d;
                n++;
                break;
            }
    *mean = n > 0 ? (sum - luck) / n : 0;
    double variance = n > 1 ? (squares - sum * sum / n) / (n - 1) : 0;
    if (n < 2 || *mean == 0)
        return 0;
    return variance > 0 ? *mean / sqrt(variance / n) : *mean * INFINITY;
}

/* ------------------------------------------------------------- the template beside what was found
 */

static const double SHARES[] = { 0, 0.25, 0.5, 0.75, 1 };
enum { N_SHARE = sizeof SHARES / sizeof SHARES[0] };
static const double LEAST_SHARE = 0.05; /* less is not worth a question more for every text */

/* What is pooled: answers of both to the rows that the result was not learned from. */
typedef struct pool {
    double *of_template; /* [n, n_label] NaN: it knows nothing of the row */
    double *x, *fresh;   /* [n, n_label] scratch */
    int n, n_label, samples;
    bool votes;
} pool;

static int pool_new(
    pool *b, const kh_tuning *t, const kh_posterior *p, const kh_held_rows *plain, kh_err *err) {
    *b = (pool){ .n = t->held.n,
        .n_label = t->task->n_label,
        .samples = p->n,
        .votes = p->access == KH_ACCESS_LABELS };
    size_t k = (size_t)b->n_label, size = (size_t)b->n * k;
    b->of_template = kh_malloc(3 * size * sizeof *b->of_template);
    if (!b->of_template)
        return kh_fail_memory(err);
    b->x = b->of_template + size;
    b->fresh = b->x + size;
    for (size_t i = 0; i < size; i++)
        b->of_template[i] = NAN;
    for (int i = 0; i < b->n; i++)
        for (int j = 0; j < plain->n; j++)
            if (plain->row[j] == t->held.row[i])
                memcpy(
                    b->of_template + (size_t)i * k, plain->p + (size_t)j * k, k * sizeof(double));
    return 0;
}

/* Answers of both by this share, into b->x. */
static void pool_by(pool *b, const kh_tuning *t, double share) {
    memcpy(b->x, t->held.p, (size_t)b->n * (size_t)b->n_label * sizeof *b->x);
    kh_mixture_pool(b->x, b->of_template, share, b->votes, b->n, b->n_label);
}

/* The sum of -ln p of the rows, each calibrated by those of other folds. */
static int pool_score(pool *b, const kh_tuning *t, double share, double *sum, kh_err *err) {
    size_t k = (size_t)b->n_label, size = (size_t)b->n * k;
    pool_by(b, t, share);
    kh_calibration_input(b->votes, b->samples, b->x, size);
    int rc = kh_calibrator_crossfit(kh_calibration_of(b->votes), b->x, t->held.label, b->n,
        b->n_label, b->n < N_FOLD ? b->n : N_FOLD, b->fresh, err);
    *sum = 0;
    for (int i = 0; i < b->n && rc == 0; i++)
        *sum -= log(fmax(b->fresh[(size_t)i * k + (size_t)t->held.label[i]], 1e-15));
    return rc;
}

/* (T23) The mean of the share under the rows' likelihood, all shares being as likely before. A mean
 * and not the best: with 32 rows several are nearly as good. */
static int pool_share(pool *b, const kh_tuning *t, double *share, kh_err *err) {
    double sum[N_SHARE], least = INFINITY, total = 0;
    int rc = 0;
    for (int j = 0; j < N_SHARE && rc == 0; j++) {
        rc = pool_score(b, t, SHARES[j], &sum[j], err);
        sum[j] += SHARES[j] < 1 ? luck_of(t->looks) : 0;
        least = sum[j] < least ? sum[j] : least;
    }
    *share = 0;
    for (int j = 0; j < N_SHARE && rc == 0; j++) {
        double weight = exp(least - sum[j]);
        total += weight;
        *share += weight * SHARES[j];
    }
    *share /= total;
    return rc;
}

/* Puts the template beside the samples of p, and calibrates what both say together. */
static int put_beside(
    kh_tuning *t, kh_posterior *p, const kh_posterior *plain, pool *b, double share, kh_err *err) {
    size_t n_label = (size_t)b->n_label;
    pool_by(b, t, share);
    p->template_share = share;
    if (plain->log_prior) {
        p->template_prior = kh_arena_array(&p->arena, n_label, sizeof *p->template_prior);
        if (!p->template_prior)
            return kh_fail_memory(err);
        memcpy(p->template_prior, plain->log_prior, n_label * sizeof *p->template_prior);
    }
    int n = b->n, rc = 0;
    int *label = kh_malloc(2 * (size_t)n * sizeof *label), *row = label ? label + n : NULL;
    if (!label)
        return kh_fail_memory(err);
    memcpy(label, t->held.label, (size_t)n * sizeof *label);
    memcpy(row, t->held.row, (size_t)n * sizeof *row);
    rc = kh_tuning_hold(t, b->x, label, row, n, err);
    kh_free(label);
    if (rc == 0) {
        p->dev = kh_tuning_held_metric(t);
        kh_calibrator_free(&p->calibrator);
        p->calibrated = false;
        rc = kh_tuning_calibrate(t, p, err);
    }
    return rc;
}

int kh_tuning_pool(kh_tuning *t, kh_posterior *p, const kh_posterior *plain,
    const kh_held_rows *answers, kh_err *err) {
    pool b;
    double share;
    int rc = pool_new(&b, t, p, answers, err);
    if (rc == 0 && b.n > 1) {
        rc = pool_share(&b, t, &share, err);
        if (rc == 0 && share >= LEAST_SHARE && share < 1)
            rc = put_beside(t, p, plain, &b, share, err);
    }
    kh_free(b.of_template);
    return rc;
}

/* ------------------------------------------------------------------------------------ the choice
 */

static void put_trial(kh_json_out *j, const kh_posterior *p, long long queries) {
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "method", p->method);
    kh_json_put_number(j, "score", p->score, 17);
    kh_json_put_number(j, "dev", p->dev, 17);
    kh_json_put_int(j, "queries", queries);
    kh_json_close(j);
}

/* The table of what was compared, as auto has it: objects without the brackets of an array. */
static int keep_table(kh_posterior *to, const kh_posterior *found, long long asked,
    const kh_posterior *plain, long long more, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 12);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    put_trial(&j, found, asked);
    kh_buf_text(&b, ", ");
    kh_json_out k = kh_json_out_init(&b, KH_JSON_COMPACT);
    put_trial(&k, plain, more);
    to->tried = kh_buf_failed(&b) ? NULL : kh_posterior_keep(to, b.data);
    kh_buf_free(&b);
    return to->tried ? 0 : kh_fail_memory(err);
}

/* The reason for the end, with what became of the comparison. */
static void say_so(kh_tuning *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say_so(kh_tuning *t, const char *fmt, ...) {
    char before[sizeof t->stopped], more[sizeof t->stopped];
    va_list args;
    memcpy(before, t->stopped, sizeof before);
    before[sizeof before / 2] = '\0'; /* the rest of the sentence matters more */
    va_start(args, fmt);
    vsnprintf(more, sizeof more, fmt, args);
    va_end(args);
    kh_tuning_stop(t, "%s; %s", before, more);
}

/* A map that turns answers round says that they were wrong more often than not: on the few rows
 * that a search was chosen by that is chance, and nothing to build on. */
static bool turns_round(const kh_calibrator *c) {
    for (int k = 0; c->weight && k < c->n_label; k++)
        if (c->weight[k] <= 0)
            return true;
    return false;
}

bool kh_pool_stays(const kh_posterior *p, double by, bool paid) {
    return p->template_share > 0 && by >= (paid ? POOL_MARGIN / 2 : POOL_MARGIN) &&
        !turns_round(&p->calibrator);
}

/* Soft prompts that are ahead, but not surely, are mixed with the template, and so is all that is
 * judged by rows which had no part in it. Others must be ahead by so many standard errors: text
 * prompts are learned from the train rows alone. */
static int compare(kh_tuning *t, const kh_method *m, kh_posterior *p, const kh_posterior *plain,
    const kh_row_scores *scores, const kh_held_rows *answers, bool *stays, kh_err *err) {
    double mean, found = p->score, by = kh_scores_apart(scores, &t->scores, &mean);
    bool surely = by >= (m->text ? 0 : MARGIN), fair = t->crossfitted;
    int rc = 0;
    if (fair || (!surely && p->soft)) {
        rc = kh_tuning_pool(t, p, plain, answers, err);
        by = rc == 0 ? kh_scores_apart(scores, &t->scores, &mean) : 0;
    }
    *stays = surely || kh_pool_stays(p, by, fair || t->looks > 1);
    if (rc == 0 && !*stays)
        say_so(t,
            "%s found nothing that is surely better than the template (scores %.3f and %.3f), "
            "which is returned",
            m->name, found, plain->score);
    else if (rc == 0 && surely && p->template_share > 0)
        say_so(t, "the template answers beside it by a share of %.2f", p->template_share);
    else if (rc == 0 && p->template_share > 0)
        say_so(t,
            "%s is not surely better than the template (scores %.3f and %.3f), which answers "
            "beside it by a share of %.2f (%.3f)",
            m->name, found, plain->score, p->template_share, p->score);
    return rc;
}

int kh_tuning_fall_back(kh_tuning *t, const kh_method *m, kh_posterior *p, kh_err *err) {
    kh_posterior *plain = NULL;
    kh_tune_opts o = *t->o;
    o.max_queries = o.max_tokens = 0; /* what it takes was kept back from the budget */
    o.max_seconds = 0;
    kh_row_scores scores = { 0 };
    kh_held_rows answers = { 0 };
    kh_trial template = {
        .o = &o, .votes = p->access == KH_ACCESS_LABELS, .scores = &scores, .answers = &answers
    };
    long long asked = kh_tuning_queries(t);
    bool stays = false;
    int rc = kh_method_try(t, &kh_method_manual, &template, &plain, err);
    if (rc == 0)
        rc = compare(t, m, p, plain, &scores, &answers, &stays, err);
    if (rc == 0)
        rc = keep_table(stays ? p : plain, p, asked, plain, kh_tuning_queries(t) - asked, err);
    if (rc == 0 && !stays) {
        kh_posterior found = *p; /* what was found goes, the template comes into its place */
        *p = *plain;
        *plain = found;
    }
    kh_posterior_free(plain);
    kh_row_scores_free(&scores);
    kh_held_rows_free(&answers);
    return rc;
}
