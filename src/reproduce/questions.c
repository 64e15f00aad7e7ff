/* questions.c - see questions.h. Two methods are compared by their means over the tasks that both
 * have runs of, so that a grid that is not finished says something, too; how many tasks that are is
 * said with it. */
#include "reproduce/questions.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "run/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---------------------------------------------------------------------------- accuracy and ECE */

static void ensembles_and_elbo(const kh_reproduction *r, kh_finding *f) {
    static const char *const NAMES[] = { "bbt", "ensemble", "elbo" };
    double score[3], ece[3];
    int n = accuracy_and_ece(r, NAMES, 3, score, ece);
    if (n == 0) {
        say(f, "No task has runs of BBT, Ensembles and ELBO.");
        return;
    }
    say(f,
        "Over %d task%s: accuracy of Ensembles %.1f against %.1f of BBT (%+.1f); ECE of ELBO %.3f "
        "against %.3f of BBT and %.3f "
        "of Ensembles.",
        n, plural(n), 100 * score[1], 100 * score[0], 100 * (score[1] - score[0]), ece[2], ece[0],
        ece[1]);
    f->agrees = score[1] > score[0] && ece[2] < ece[0] ? 1 : -1;
}

static void labels_only(const kh_reproduction *r, kh_finding *f) {
    static const char *const NAMES[] = { "bbt", "ensemble", "elbo", "abc-smc", "snpe", "smc" };
    static const char *const WON[] = { "abc-smc", "abc-smc-votes", "smc-raw", "smc", "smc-soft" };
    double score[6], ece[6], part[5], gap[5];
    int n = accuracy_and_ece(r, NAMES, 6, score, ece);
    int open = best(score, 0, 2, 1), open_ece = best(ece, 0, 2, -1);
    int closed = best(score, 3, 4, 1), closed_ece = best(ece, 3, 4, -1);
    if (n == 0)
        say(f, "No task has runs of all of them.");
    else {
        say(f,
            "Over %d task%s the best with logits has accuracy %.1f (%s) and ECE %.3f (%s), the "
            "paper's best with labels only "
            "%.1f (%s) and %.3f (%s), smc %.1f and %.3f.",
            n, plural(n), 100 * score[open], NAMES[open], ece[open_ece], NAMES[open_ece],
            100 * score[closed], NAMES[closed], ece[closed_ece], NAMES[closed_ece], 100 * score[5],
            ece[5]);
        f->agrees = score[closed] < score[open] && ece[closed_ece] > ece[open_ece] ? 1 : -1;
    }
    int tasks = accuracy_and_ece(r, WON, 5, part, gap);
    if (tasks > 0) {
        say(f, " What wins it back, on %d task%s, accuracy and ECE:", tasks, plural(tasks));
        static const char *const WHAT[] = { "abc-smc", "with calibrated votes",
            "smc with plain votes", "smc with calibrated votes", "smc with soft acceptance" };
        for (int i = 0; i < 5; i++)
            say(f, "%s %s %.1f and %.3f", i ? "," : "", WHAT[i], 100 * part[i], gap[i]);
        say(f, ".");
    }
}

static void samples(const kh_reproduction *r, kh_finding *f) {
    static const char *const NAMES[] = { "smc-10", "smc-30", "smc-100", "smc-300" };
    double first = NAN, last = NAN;
    for (int i = 0; i < 4; i++) {
        double ece, nll;
        int n = means(r, &NAMES[i], 1, "ece", &ece);
        means(r, &NAMES[i], 1, "nll", &nll);
        if (n == 0)
            continue;
        say(f, "%s%s samples: ECE %.3f, NLL %.3f", f->text[0] ? "; " : "", NAMES[i] + 4, ece, nll);
        first = isnan(first) ? ece : first;
        last = ece;
    }
    if (isnan(first)) {
        say(f, "There are no runs of it.");
        return;
    }
    say(f, ".");
    f->agrees = last == first ? 0 : last < first ? 1 : -1;
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
    say(f,
        "Over %d task%s: uniform weights accuracy %.1f and ECE %.3f, importance weights %.1f and "
        "%.3f. %d of %d run%s with "
        "importance weights came to a second generation, the first that has any.",
        n, plural(n), 100 * score[0], ece[0], 100 * score[1], ece[1], weighed, runs, plural(runs));
    f->agrees = weighed == 0 ? 0 : score[0] >= score[1] ? 1 : -1;
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
    double sum[2] = { 0 }, level = 0;
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
        if (rc != 0 || q[0] == 0 || q[1] == 0)
            continue;
        pairs++;
        level += both;
        first += q[1] < q[0];
        sum[0] += (double)q[0];
        sum[1] += (double)q[1];
    }
    if (pairs == 0)
        say(f, "No task has runs of both with a record of dev accuracy.");
    else
        say(f,
            "In %d pair%s of runs, to the best dev accuracy that both reach (%.3f on average): "
            "smc, which asks dev %s, %.0f "
            "queries on average, abc-smc %.0f (%.2f times as many); smc is first in %d.",
            pairs, plural(pairs), level / pairs, watched ? "after every level" : "at its end only",
            sum[1] / pairs, sum[0] / pairs, sum[0] / sum[1], first);
    return rc;
}

/* ----------------------------------------------------------------------------------------- OOD */

/* With two classes both scores put rows in the same order, so only tasks with more can tell. */
static bool can_tell(const kh_experiment *x) {
    const kh_task *task;
    return kh_task_open(&task, x->task, NULL) == 0 && task->n_label > 2;
}

static void against_maxp(const kh_reproduction *r, kh_finding *f) {
    int methods = 0, beaten = 0;
    for (int k = 0; kh_variant_at(k); k++) {
        double entropy = 0, maxp = 0, a, b, sd;
        int pairs = 0;
        for (int i = 0; kh_experiment_at(i); i++)
            for (int o = 0; o < 2 && can_tell(kh_experiment_at(i)); o++) {
                const char *task = kh_experiment_at(i)->outside[o].task;
                char name[2][96];
                if (!task)
                    continue;
                snprintf(name[0], sizeof name[0], "ood.%s.entropy.auroc", task);
                snprintf(name[1], sizeof name[1], "ood.%s.maxp.auroc", task);
                if (kh_reproduction_mean(
                        r, kh_variant_at(k), kh_experiment_at(i), name[0], &a, &sd) == 0 ||
                    kh_reproduction_mean(
                        r, kh_variant_at(k), kh_experiment_at(i), name[1], &b, &sd) == 0)
                    continue;
                entropy += a;
                maxp += b;
                pairs++;
            }
        if (pairs == 0)
            continue;
        say(f, "%s%s %.3f and %.3f",
            methods ? ", "
                    : "AUROC by entropy and by MaxP, mean over pairs of tasks with more than two "
                      "classes: ",
            kh_variant_at(k)->name, entropy / pairs, maxp / pairs);
        methods++;
        beaten += entropy > maxp;
    }
    if (methods == 0) {
        say(f,
            "No task with more than two classes was judged against rows from elsewhere; with two, "
            "both put rows in the same "
            "order.");
        return;
    }
    say(f, ". Entropy is better for %d of %d.", beaten, methods);
    f->agrees = beaten == methods ? 1 : -1;
}

/* ----------------------------------------------------------------------------------------- all */

int kh_questions_answer(const kh_reproduction *r, kh_finding out[KH_QUESTIONS], kh_err *err) {
    static const struct {
        const char *question, *paper;
        void (*answer)(const kh_reproduction *, kh_finding *);
        int (*read)(const kh_reproduction *, kh_finding *,
            kh_err *err); /* instead, if records are needed */
    } ASKED[KH_QUESTIONS] = {
        { "Do ensembles beat BBT in accuracy, and does ELBO improve ECE?",
            "both, in Tables 1 and 2", ensembles_and_elbo, NULL },
        { "What do labels only cost, and how much of it is won back?",
            "accuracy 74.4 to 70.1, ECE 0.067 to 0.217", labels_only, NULL },
        { "Are uniform weights as good as importance weights?", "they are, and are recommended",
            NULL, weights },
        { "Do more samples close the calibration gap?", "a guess that they do", samples, NULL },
        { "How many queries to a given dev accuracy, smc with early rejection against abc-smc?",
            NULL, NULL, queries_to_reach },
        { "Does every uncertainty method beat its own MaxP baseline on rows from elsewhere?",
            "it does", against_maxp, NULL },
    };
    int rc = 0;
    for (int i = 0; i < KH_QUESTIONS; i++) {
        out[i] = (kh_finding){ .question = ASKED[i].question, .paper = ASKED[i].paper };
        if (ASKED[i].answer)
            ASKED[i].answer(r, &out[i]);
        else if (rc == 0)
            rc = ASKED[i].read(r, &out[i], err);
    }
    return rc;
}
