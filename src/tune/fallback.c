/* fallback.c - see fallback.h.
 *
 * What a search finds on 32 rows may be worth less than the template that it began with. Both are
 * judged by the mean of -log p of rows that were not learned from, calibrated by rows that do not
 * hold the row in question: a score that few rows can bear. But the search has been chosen by its
 * answers on dev, and the template has not: the score flatters the search. So it must win by
 * MARGIN standard errors of the rows' differences. (With none, bbt was ahead by 1.7 of them on the
 * reviews of examples/ and five points of accuracy behind on the test rows.)
 *
 * The template is asked as the method asks: for labels only, if that is all that it may see. */
#include "tune/fallback.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "posterior/predict.h"

#include <math.h>
#include <string.h>

enum { N_FOLD = 5 };
static const double MARGIN = 2;

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
    if (kh_calibrator_crossfit(votes ? KH_CALIBRATE_VOTES : KH_CALIBRATE_AFFINE, x, t->dev->label,
            n, n_label, n_fold, x + size, err) == 0) {
        worth = 0;
        for (int i = 0; i < n; i++)
            worth +=
                log(fmax(x[size + (size_t)i * (size_t)n_label + (size_t)t->dev->label[i]], 1e-15)) /
                n;
    }
    kh_free(x);
    return worth;
}

double kh_scores_apart(const kh_row_scores *a, const kh_row_scores *b, double *mean) {
    double sum = 0, squares = 0;
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
    *mean = n > 0 ? sum / n : 0;
    double variance = n > 1 ? (squares - sum * sum / n) / (n - 1) : 0;
    if (n < 2 || *mean == 0)
        return 0;
    return variance > 0 ? *mean / sqrt(variance / n) : *mean * INFINITY;
}

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

static void say_so(
    kh_tuning *t, const kh_method *m, const kh_posterior *p, const kh_posterior *plain, double by) {
    char before[sizeof t->stopped];
    memcpy(before, t->stopped, sizeof before);
    before[sizeof before / 2] = '\0'; /* the rest of the sentence matters more */
    kh_tuning_stop(t,
        "%s; %s found nothing that is surely better than the template (scores %.3f and %.3f, %.1f "
        "standard errors), which is returned",
        before, m->name, p->score, plain->score, by);
}

int kh_tuning_fall_back(kh_tuning *t, const kh_method *m, kh_posterior *p, kh_err *err) {
    kh_posterior *plain = NULL;
    kh_tune_opts o = *t->o;
    o.max_queries = 0; /* what it takes was kept back from the budget */
    o.max_seconds = 0;
    kh_row_scores scores = { 0 };
    kh_trial template = { .o = &o, .votes = p->access == KH_ACCESS_LABELS, .scores = &scores };
    long long asked = kh_tuning_queries(t);
    int rc = kh_method_try(t, &kh_method_manual, &template, &plain, err);
    double mean, by = rc == 0 ? kh_scores_apart(&scores, &t->scores, &mean) : 0;
    double margin = m->text ? 0 : MARGIN; /* text prompts are learned from the train rows alone */
    bool stays = rc == 0 && by >= margin;
    if (rc == 0)
        rc = keep_table(stays ? p : plain, p, asked, plain, kh_tuning_queries(t) - asked, err);
    if (rc == 0 && !stays) {
        say_so(t, m, p, plain, by);
        kh_posterior found = *p; /* what was found goes, the template comes into its place */
        *p = *plain;
        *plain = found;
    }
    kh_posterior_free(plain);
    kh_row_scores_free(&scores);
    return rc;
}
