/* findings.c - see findings.h. Two methods are compared by their means over the tasks that both
 * have runs of, so that a grid that is not finished says something, too; how many tasks that are is
 * said with it. */
#include "reproduce/findings.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "reproduce/claims.h"
#include "run/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A loss of accuracy that still counts as none: two points. */
static const double AS_GOOD = 0.02;

static void say(kh_finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(kh_finding *f, const char *fmt, ...) {
    size_t n = strlen(f->text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->text + n, sizeof f->text - n, fmt, args);
    va_end(args);
}

static const kh_variant *variant(const char *name) {
    for (int i = 0; kh_variant_at(i); i++)
        if (strcmp(kh_variant_at(i)->name, name) == 0)
            return kh_variant_at(i);
    return NULL;
}

/* Means of a metric over the tasks that all n methods have; returns how many tasks. */
static int means(
    const kh_reproduction *r, const char *const *name, int n, const char *metric, double *mean) {
    int tasks = 0;
    for (int i = 0; i < n; i++)
        mean[i] = 0;
    for (int k = 0; kh_experiment_at(k); k++) {
        double x[8], sd;
        int there = 0;
        for (int i = 0; i < n; i++)
            there += kh_reproduction_mean(
                         r, variant(name[i]), kh_experiment_at(k), metric, &x[i], &sd) > 0;
        if (there < n)
            continue;
        tasks++;
        for (int i = 0; i < n; i++)
            mean[i] += x[i];
    }
    for (int i = 0; i < n && tasks; i++)
        mean[i] /= tasks;
    return tasks;
}

static int accuracy_and_ece(
    const kh_reproduction *r, const char *const *name, int n, double *score, double *ece) {
    means(r, name, n, "ece", ece);
    return means(r, name, n, "score", score);
}

/* Where x[first .. last] is highest, or lowest if sign is -1; the first of equals. */
static int best(const double *x, int first, int last, int sign) {
    int at = first;
    for (int i = first + 1; i <= last; i++)
        at = sign * x[i] > sign * x[at] ? i : at;
    return at;
}

static const char *plural(int n) { return n == 1 ? "" : "s"; }

/* What several intervals say together of a statement that needs all of them: each sign is 1 where
 * an interval is on the statement's side of zero, -1 where it is on the other. */
static int all_of(int a, int b) {
    if (a < 0 || b < 0)
        return -1;
    return a > 0 && b > 0;
}

static void say_claim(kh_finding *f, const kh_claim *c) {
    say(f, " (accuracy %+.1f, %+.1f to %+.1f; ECE %+.3f, %+.3f to %+.3f)", 100 * c->score.mean,
        100 * c->score.low, 100 * c->score.high, c->ece.mean, c->ece.low, c->ece.high);
}

/* ---------------------------------------------------------------------------- accuracy and ECE */

static int ensembles_and_elbo(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    static const char *const NAMES[] = { "bbt", "ensemble", "elbo" };
    double score[3], ece[3];
    kh_claim ensemble, elbo;
    int n = accuracy_and_ece(r, NAMES, 3, score, ece);
    if (n == 0) {
        say(f, "No task has runs of BBT, Ensembles and ELBO.");
        return 0;
    }
    int rc = kh_claim_compare(r, "ensemble", "bbt", NULL, &ensemble, err);
    if (rc == 0)
        rc = kh_claim_compare(r, "elbo", "bbt", NULL, &elbo, err);
    if (rc != 0)
        return rc;
    say(f,
        "Over %d task%s: accuracy of Ensembles %.1f against %.1f of BBT; ECE of ELBO %.3f against "
        "%.3f of BBT and %.3f of Ensembles. Ensembles - BBT",
        n, plural(n), 100 * score[1], 100 * score[0], ece[2], ece[0], ece[1]);
    say_claim(f, &ensemble);
    say(f, ", ELBO - BBT");
    say_claim(f, &elbo);
    say(f, ".");
    f->agrees = all_of(kh_claim_sign(&ensemble.score), -kh_claim_sign(&elbo.ece));
    return 0;
}

/* The same question of what tune does unless told otherwise. */
static int labels_only_by_default(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    static const char *const NAMES[] = { "tune-bbt", "tune-smc" };
    double score[2], ece[2];
    kh_claim c;
    int n = accuracy_and_ece(r, NAMES, 2, score, ece);
    int rc = n > 0 ? kh_claim_compare(r, NAMES[1], NAMES[0], NULL, &c, err) : 0;
    if (n == 0 || rc != 0)
        return rc;
    say(f,
        " As tune has it, over %d task%s: bbt %.1f and %.3f, smc, with labels only, %.1f and %.3f. "
        "smc - bbt",
        n, plural(n), 100 * score[0], ece[0], 100 * score[1], ece[1]);
    say_claim(f, &c);
    say(f, ".");
    return 0;
}

/* The paper's best with labels only against its best with logits. */
static int labels_only(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    static const char *const NAMES[] = { "bbt", "ensemble", "elbo", "abc-smc", "snpe", "smc" };
    static const char *const WON[] = { "abc-smc", "abc-smc-votes", "smc-raw", "smc", "smc-soft" };
    static const char *const WHAT[] = { "abc-smc", "with calibrated votes", "smc with plain votes",
        "smc with calibrated votes", "smc with soft acceptance" };
    double score[6], ece[6], part[5], gap[5];
    int n = accuracy_and_ece(r, NAMES, 6, score, ece), rc = 0;
    int open = best(score, 0, 2, 1), open_ece = best(ece, 0, 2, -1);
    int closed = best(score, 3, 4, 1), closed_ece = best(ece, 3, 4, -1);
    kh_claim paper, ours;
    if (n == 0)
        say(f, "No task has runs of all of them.");
    else if ((rc = kh_claim_compare(r, "abc-smc", "ensemble", NULL, &paper, err)) == 0 &&
        (rc = kh_claim_compare(r, "smc", "ensemble", NULL, &ours, err)) == 0) {
        say(f,
            "Over %d task%s the best with logits has accuracy %.1f (%s) and ECE %.3f (%s), the "
            "paper's best with labels only %.1f (%s) and %.3f (%s), smc %.1f and %.3f. "
            "abc-smc - Ensembles",
            n, plural(n), 100 * score[open], NAMES[open], ece[open_ece], NAMES[open_ece],
            100 * score[closed], NAMES[closed], ece[closed_ece], NAMES[closed_ece], 100 * score[5],
            ece[5]);
        say_claim(f, &paper);
        say(f, ", smc - Ensembles");
        say_claim(f, &ours);
        say(f, ".");
        f->agrees = all_of(-kh_claim_sign(&paper.score), kh_claim_sign(&paper.ece));
    }
    int tasks = rc == 0 ? accuracy_and_ece(r, WON, 5, part, gap) : 0;
    if (tasks > 0) {
        say(f, " What wins it back, on %d task%s, accuracy and ECE:", tasks, plural(tasks));
        for (int i = 0; i < 5; i++)
            say(f, "%s %s %.1f and %.3f", i ? "," : "", WHAT[i], 100 * part[i], gap[i]);
        say(f, ".");
    }
    return rc == 0 ? labels_only_by_default(r, f, err) : rc;
}

static int samples(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    static const char *const NAMES[] = { "smc-10", "smc-30", "smc-100", "smc-300" };
    int first = -1, last = -1;
    for (int i = 0; i < 4; i++) {
        double ece, nll;
        int n = means(r, &NAMES[i], 1, "ece", &ece);
        means(r, &NAMES[i], 1, "nll", &nll);
        if (n == 0)
            continue;
        say(f, "%s%s samples: ECE %.3f, NLL %.3f", f->text[0] ? "; " : "", NAMES[i] + 4, ece, nll);
        first = first < 0 ? i : first;
        last = i;
    }
    if (first < 0)
        say(f, "There are no runs of it.");
    kh_claim c = { 0 };
    int rc = first < last ? kh_claim_compare(r, NAMES[last], NAMES[first], NULL, &c, err) : 0;
    if (rc == 0 && first < last) {
        say(f, ". The most against the fewest");
        say_claim(f, &c);
        f->agrees = -kh_claim_sign(&c.ece);
    }
    say(f, first < 0 ? "" : ".");
    return rc;
}

/* ------------------------------------------------------------------------------------- queries */

typedef struct reach {
    double level, best;
    long long queries;
    int generations;
} reach;

static void look(void *user, const char *line, const char *facts) {
    reach *x = user;
    const char *queries = strstr(line, "queries="), *dev = strstr(line, "dev=");
    (void)facts;
    x->generations++;
    if (!queries || !dev || dev[4] < '0' || dev[4] > '9')
        return;
    double value = strtod(dev + 4, NULL);
    x->best = value > x->best ? value : x->best;
    if (x->queries == 0 && value >= x->level - 1e-9)
        x->queries = strtoll(queries + 8, NULL, 10);
}

static int read_record(const kh_reproduction *r, int i, reach *x, kh_err *err) {
    char *dir = kh_path_join(r->runs, r->a->run[i].name);
    int next = 0, rc = dir ? kh_run_read_lines(dir, 0, look, x, &next, err) : kh_fail_memory(err);
    kh_free(dir);
    return rc == KH_ENOMEM ? rc : 0; /* a run without a journal has no record */
}

int kh_queries_to_reach(
    const kh_reproduction *r, int i, double level, long long *queries, double *best, kh_err *err) {
    reach x = { .level = level };
    int rc = read_record(r, i, &x, err);
    *queries = x.queries;
    if (best)
        *best = x.best;
    return rc;
}

/* The run of this method beside run i: the same task and seed; -1: there is none that is done. */
static int beside(const kh_reproduction *r, int i, const char *name) {
    for (int k = 0; k < r->a->n; k++)
        if (r->a->run[k].on == r->a->run[i].on && r->a->run[k].seed == r->a->run[i].seed &&
            r->outcome[k].done && strcmp(r->a->run[k].variant->name, name) == 0)
            return k;
    return -1;
}

/* There are weights from the second generation on. */
static int weights(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    static const char *const NAMES[] = { "abc-smc", "abc-smc-importance" };
    double score[2], ece[2];
    int n = accuracy_and_ece(r, NAMES, 2, score, ece), runs = 0, weighed = 0, rc = 0;
    for (int i = 0; i < r->a->n && rc == 0; i++) {
        reach x = { .level = 2 };
        if (!r->outcome[i].done || strcmp(r->a->run[i].variant->name, NAMES[1]) != 0)
            continue;
        rc = read_record(r, i, &x, err);
        runs++;
        weighed += x.generations > 1;
    }
    if (n == 0) {
        say(f, "No task has runs of both.");
        return rc;
    }
    kh_claim c;
    if (rc == 0)
        rc = kh_claim_compare(r, NAMES[0], NAMES[1], NULL, &c, err);
    if (rc != 0)
        return rc;
    say(f,
        "Over %d task%s: uniform weights accuracy %.1f and ECE %.3f, importance weights %.1f and "
        "%.3f. %d of %d run%s with importance weights came to a second generation, the first that "
        "has any. Uniform - importance",
        n, plural(n), 100 * score[0], ece[0], 100 * score[1], ece[1], weighed, runs, plural(runs));
    say_claim(f, &c);
    say(f, ".");
    /* "As good" is told by an interval, too: one that ends above AS_GOOD below zero. */
    if (weighed > 0)
        f->agrees = c.score.low > -AS_GOOD ? 1 : -(c.score.high < 0);
    return rc;
}

static bool any_done(const kh_reproduction *r, const char *name) {
    bool any = false;
    for (int i = 0; i < r->a->n; i++)
        any |= r->outcome[i].done && strcmp(r->a->run[i].variant->name, name) == 0;
    return any;
}

/* For each pair of runs, the level is the best that both have reached. "smc" asks dev at its end
 * only, so that all its queries count; better take "smc-watched", which asks after every level, as
 * "abc-smc" does after every generation. */
static int queries_to_reach(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    bool watched = any_done(r, "smc-watched");
    enum { MAX_PAIRS = 512 };
    double sum[2] = { 0 }, level = 0, ratio[MAX_PAIRS];
    int pairs = 0, first = 0, rc = 0;
    for (int i = 0; i < r->a->n && rc == 0; i++) {
        int at[2] = { i, -1 };
        double highest[2] = { 0 };
        long long q[2];
        if (!r->outcome[i].done || strcmp(r->a->run[i].variant->name, "abc-smc") != 0 ||
            (at[1] = beside(r, i, watched ? "smc-watched" : "smc")) < 0)
            continue;
        for (int k = 0; k < 2 && rc == 0; k++)
            rc = kh_queries_to_reach(r, at[k], 2, &q[k], &highest[k], err);
        double both = highest[0] < highest[1] ? highest[0] : highest[1];
        for (int k = 0; k < 2 && rc == 0; k++)
            rc = kh_queries_to_reach(r, at[k], both, &q[k], NULL, err);
        if (rc != 0 || q[0] == 0 || q[1] == 0 || pairs == MAX_PAIRS)
            continue;
        ratio[pairs] = log((double)q[0] / (double)q[1]);
        pairs++;
        level += both;
        first += q[1] < q[0];
        sum[0] += (double)q[0];
        sum[1] += (double)q[1];
    }
    if (pairs == 0) {
        say(f, "No task has runs of both with a record of dev accuracy.");
        return rc;
    }
    kh_difference c = { NAN, NAN, NAN };
    if (rc == 0)
        rc = kh_claim_units(ratio, pairs, r->n_resample, &c, err);
    say(f,
        "In %d pair%s of runs, to the best dev accuracy that both reach (%.3f on average): "
        "smc, which asks dev %s, %.0f "
        "queries on average, abc-smc %.0f (%.2f times as many); smc is first in %d.",
        pairs, plural(pairs), level / pairs, watched ? "after every level" : "at its end only",
        sum[1] / pairs, sum[0] / pairs, sum[0] / sum[1], first);
    if (pairs > 1)
        say(f, " By pairs, abc-smc asks %.2f times as many (%.2f to %.2f).", exp(c.mean),
            exp(c.low), exp(c.high));
    f->agrees = kh_claim_sign(&c);
    if (!watched && f->agrees < 0) {
        say(f, " But smc may have been there long before it asked.");
        f->agrees = 0;
    }
    return rc;
}

/* ----------------------------------------------------------------------------------------- OOD */

/* With two classes both scores put rows in the same order, so only tasks with more can tell. */
static bool can_tell(const kh_experiment *x) {
    const kh_task *task;
    return kh_task_open(&task, x->task, NULL) == 0 && task->n_label > 2;
}

/* entropy - MaxP of every run of a method that was judged on out-of-distribution rows. */
static int maxp_units(const kh_reproduction *r, const kh_variant *v, double *d, int cap) {
    int n = 0;
    for (int i = 0; i < r->a->n; i++) {
        const kh_planned *p = &r->a->run[i];
        if (p->variant != v || !r->outcome[i].done || !can_tell(p->on))
            continue;
        for (int o = 0; o < 2 && p->on->outside[o].task && n < cap; o++) {
            char name[2][96];
            snprintf(name[0], sizeof name[0], "ood.%s.entropy.auroc", p->on->outside[o].task);
            snprintf(name[1], sizeof name[1], "ood.%s.maxp.auroc", p->on->outside[o].task);
            double x = kh_result_value(&r->outcome[i].result, name[0]) -
                kh_result_value(&r->outcome[i].result, name[1]);
            if (!isnan(x))
                d[n++] = x;
        }
    }
    return n;
}

static int against_maxp(const kh_reproduction *r, kh_finding *f, kh_err *err) {
    enum { MAX_UNITS = 512 };
    int methods = 0, better = 0, worse = 0, rc = 0;
    for (int k = 0; kh_variant_at(k) && rc == 0; k++) {
        double d[MAX_UNITS];
        kh_difference c;
        int n = maxp_units(r, kh_variant_at(k), d, MAX_UNITS);
        rc = kh_claim_units(d, n, r->n_resample, &c, err);
        if (rc != 0 || n == 0)
            continue;
        say(f, "%s%s %+.3f",
            methods ? ", "
                    : "AUROC by entropy less that by MaxP, on pairs of tasks with more than two "
                      "classes: ",
            kh_variant_at(k)->name, c.mean);
        if (n > 1)
            say(f, " (%+.3f to %+.3f)", c.low, c.high);
        else
            say(f, " (one run)");
        methods++;
        better += kh_claim_sign(&c) > 0;
        worse += kh_claim_sign(&c) < 0;
    }
    if (methods == 0) {
        say(f,
            "No task with more than two classes was judged against out-of-distribution rows; with "
            "two, "
            "both put rows in the same order.");
        return rc;
    }
    say(f, ". Entropy is better for %d of %d and worse for %d.", better, methods, worse);
    f->agrees = better == methods ? 1 : -(worse > 0);
    return rc;
}

/* ----------------------------------------------------------------------------------------- all */

int kh_questions_answer(const kh_reproduction *r, kh_finding out[KH_QUESTIONS], kh_err *err) {
    static const struct {
        const char *question, *paper;
        int (*answer)(const kh_reproduction *, kh_finding *, kh_err *err);
    } ASKED[KH_QUESTIONS] = {
        { "Do ensembles beat BBT in accuracy, and does ELBO improve ECE?",
            "both, in Tables 1 and 2", ensembles_and_elbo },
        { "What do labels only cost, and how much of it is won back?",
            "accuracy 74.4 to 70.1, ECE 0.067 to 0.217", labels_only },
        { "Are uniform weights as good as importance weights?", "they are, and are recommended",
            weights },
        { "Do more samples close the calibration gap?", "a guess that they do", samples },
        { "Does smc with early rejection need fewer queries to a given dev accuracy than abc-smc?",
            NULL, queries_to_reach },
        { "Does every uncertainty method beat its own MaxP baseline on out-of-distribution rows?",
            "it does", against_maxp },
    };
    int rc = 0;
    for (int i = 0; i < KH_QUESTIONS; i++) {
        out[i] = (kh_finding){ .question = ASKED[i].question, .paper = ASKED[i].paper };
        if (rc == 0)
            rc = ASKED[i].answer(r, &out[i], err);
    }
    return rc;
}
