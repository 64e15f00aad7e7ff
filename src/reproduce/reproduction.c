/* reproduction.c - see reproduction.h. Every table is a grid of methods x tasks, ours in one row
 * and the paper's under it; a dash stands for what is not known. An average is given only where
 * every task has a number. */
#include "reproduce/reproduction.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "judge/predictions.h"
#include "report/html.h"
#include "reproduce/claims.h"
#include "reproduce/findings.h"
#include "report/style.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TASKS = 16, PAPER_SEEDS = 3, MAX_BACKBONES = 8 };

/* What other methods are held against when their signs are compared with the paper's. */
#define BASELINE "bbt"

/* ------------------------------------------------------------------------------------- reading */

int kh_reproduction_open(kh_reproduction *r, const kh_repro_plan *a, const kh_published *published,
    const char *runs, const char *model, const char *common, kh_err *err) {
    *r = (kh_reproduction){
        .a = a, .published = published, .runs = runs, .model = model, .n_resample = 500
    };
    r->outcome = kh_calloc((size_t)a->n, sizeof *r->outcome);
    int rc = r->outcome ? 0 : kh_fail_memory(err);
    for (int i = 0; i < a->n && rc == 0; i++) {
        kh_outcome *o = &r->outcome[i];
        if (kh_planned_state(&a->run[i], a->o.preset, common, runs, &o->manifest) != KH_STATE_DONE)
            continue;
        char *dir = kh_path_join(runs, a->run[i].name);
        rc = dir ? kh_result_open(&o->result, dir, err) : kh_fail_memory(err);
        o->done = rc == 0;
        kh_free(dir);
    }
    return rc;
}

void kh_reproduction_free(kh_reproduction *r) {
    for (int i = 0; r->outcome && i < r->a->n; i++) {
        kh_manifest_free(&r->outcome[i].manifest);
        kh_result_free(&r->outcome[i].result);
    }
    kh_free(r->outcome);
    *r = (kh_reproduction){ 0 };
}

/* The paper gives F1 for the task whose metric it is. */
static double value_of(const kh_result *r, const kh_experiment *x, const char *metric) {
    const kh_task *task;
    if (strcmp(metric, "covered") == 0)
        return r->covered;
    if (strcmp(metric, "set_size") == 0)
        return r->set_size;
    if (strcmp(metric, "score") != 0)
        return kh_result_value(r, metric);
    bool f1 = kh_task_open(&task, x->task, NULL) == 0 && task->metric == KH_METRIC_F1;
    return kh_result_value(r, f1 ? "f1" : "accuracy");
}

int kh_reproduction_mean(const kh_reproduction *r, const kh_variant *v, const kh_experiment *x,
    const char *metric, double *mean, double *sd) {
    double sum = 0, squares = 0;
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < r->a->n; i++) {
            const kh_planned *p = &r->a->run[i];
            double value = p->variant == v && p->on == x && r->outcome[i].done
                ? value_of(&r->outcome[i].result, x, metric)
                : NAN;
            if (isnan(value))
                continue;
            n += pass == 0;
            sum += pass == 0 ? value : 0;
            squares += pass == 1 ? (value - sum / n) * (value - sum / n) : 0;
        }
    }
    *mean = n ? sum / n : NAN;
    *sd = n > 1 ? sqrt(squares / (n - 1)) : NAN;
    return n;
}

/* The tasks that have runs in these tables. */
static int tasks_of(
    const kh_reproduction *r, unsigned tables, const kh_experiment *task[MAX_TASKS]) {
    int n = 0;
    for (int i = 0; i < r->a->n; i++) {
        bool there = !(r->a->run[i].tables & tables);
        for (int k = 0; k < n && !there; k++)
            there = task[k] == r->a->run[i].on;
        if (!there && n < MAX_TASKS)
            task[n++] = r->a->run[i].on;
    }
    return n;
}

static bool has_variant(const kh_reproduction *r, const kh_variant *v, unsigned tables) {
    for (int i = 0; i < r->a->n; i++)
        if (r->a->run[i].variant == v && (r->a->run[i].tables & tables))
            return true;
    return false;
}

static double average(
    const kh_reproduction *r, const kh_variant *v, unsigned tables, const char *metric) {
    const kh_experiment *task[MAX_TASKS];
    int n = tasks_of(r, tables, task);
    double sum = 0, mean, sd;
    for (int i = 0; i < n; i++) {
        kh_reproduction_mean(r, v, task[i], metric, &mean, &sd);
        sum += mean;
    }
    return n ? sum / n : NAN;
}

/* ------------------------------------------------------------------------------------- writing */

typedef struct writer {
    const kh_reproduction *r;
    kh_grid_format format;
    kh_buf *out;
} writer;

static void heading(const writer *w, int level, const char *text) {
    if (w->format == KH_GRID_HTML)
        kh_buf_printf(w->out, "<h%d>%s</h%d>\n", level, text, level);
    else
        kh_buf_printf(w->out, "\n%.*s %s\n\n", level, "####", text);
}

static void para(const writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void para(const writer *w, const char *fmt, ...) {
    char text[2600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bool html = w->format == KH_GRID_HTML;
    kh_buf_text(w->out, html ? "<p>" : "");
    if (html)
        kh_html_text(w->out, text, strlen(text));
    else
        kh_buf_text(w->out, text);
    kh_buf_text(w->out, html ? "</p>\n" : "\n\n");
}

static void put_grid(const writer *w, kh_grid *t) {
    bool html = w->format == KH_GRID_HTML;
    kh_buf_text(w->out,
        html ? "<div class=\"scroll\" role=\"region\" aria-label=\"table\" tabindex=\"0\">\n" : "");
    kh_grid_put(t, w->format, w->out);
    kh_buf_text(w->out, html ? "</div>\n" : "\n");
    kh_grid_free(t);
}

/* How a metric is shown: the first table counts in per cent. */
static const char *value_text(double mean, double sd, bool percent, char *out, size_t n) {
    double scale = percent ? 100 : 1;
    if (isnan(mean))
        snprintf(out, n, "–");
    else if (isnan(sd))
        snprintf(out, n, percent ? "%.1f" : "%.3f", scale * mean);
    else
        snprintf(out, n, percent ? "%.1f ± %.1f" : "%.3f ± %.3f", scale * mean, scale * sd);
    return out;
}

static void add_value(kh_grid *t, double mean, double sd, bool percent) {
    char text[64];
    kh_grid_add(t, "%s", value_text(mean, sd, percent, text, sizeof text));
}

/* ----------------------------------------------------------------- methods x tasks, one metric */

typedef struct sheet {
    const char *caption;
    const char *published; /* the paper's table; NULL: it has none */
    const char *score;     /* as the paper's table 3 calls it; NULL elsewhere */
    const char *metric;
    unsigned table;
    int better; /* 1: more, -1: less, 0: neither */
    bool bound; /* with a row for what an oracle would reach */
} sheet;

static bool is_best(const kh_reproduction *r, const sheet *s, const kh_experiment *x, double mean) {
    double best = NAN, other, sd;
    for (int i = 0; kh_variant_at(i); i++) {
        const kh_variant *v = kh_variant_at(i);
        if (!has_variant(r, v, s->table))
            continue;
        other = NAN;
        if (x)
            kh_reproduction_mean(r, v, x, s->metric, &other, &sd);
        else
            other = average(r, v, s->table, s->metric);
        if (!isnan(other) && (isnan(best) || (s->better > 0 ? other > best : other < best)))
            best = other;
    }
    return s->better != 0 && !isnan(mean) && fabs(mean - best) < 5e-7;
}

static const kh_variant *baseline(void) {
    int i = 0;
    while (strcmp(kh_variant_at(i)->name, BASELINE) != 0)
        i++;
    return kh_variant_at(i);
}

/* Which way a method differs from the baseline; 0 if by no more than the seeds do. */
static int sign_of(double x, double base, double sd, double base_sd, int n) {
    double noise = sqrt((sd * sd + base_sd * base_sd) / (n > 0 ? n : 1));
    if (isnan(x) || isnan(base) || isnan(noise) || fabs(x - base) <= noise)
        return 0;
    return x > base ? 1 : -1;
}

/* A place of a table, here and in the paper. */
typedef struct place {
    const char *table, *method, *task, *ood, *score; /* as the paper's; table NULL: it has none */
    const kh_variant *variant;                       /* NULL: the lower bound */
    const kh_experiment *on;                         /* NULL: the average over the tasks */
    unsigned tables;                                 /* of the average */
    const char *metric;
} place;

/* Mean and deviation over seeds; a mean over tasks has no deviation. */
static void measure(const kh_reproduction *r, const place *at, const kh_variant *v, double out[2]) {
    out[1] = NAN;
    if (at->on)
        kh_reproduction_mean(r, v, at->on, at->metric, &out[0], &out[1]);
    else
        out[0] = average(r, v, at->tables, at->metric);
}

/* What the other backbones have in this place, a line each. */
static void note_beside(const writer *w, kh_grid *t, const place *at) {
    for (int i = 0; i < w->r->n_beside && at->variant; i++) {
        double x[2];
        char text[64];
        measure(w->r->beside[i], at, at->variant, x);
        kh_grid_note(t, 0, "%s",
            value_text(x[0], x[1], strcmp(at->metric, "score") == 0, text, sizeof text));
    }
}

/* What the paper has in this place, on its two backbones, as the cell's last line. The cell has a
 * tone if method and baseline differ, by more than the seeds do, here and in the paper: agreement
 * is about the sign, since the level belongs to the model. */
static void note_published(const writer *w, kh_grid *t, const place *at) {
    static const char *const MODEL[] = { KH_PAPER_MODEL, KH_PAPER_MODEL_2 };
    const kh_published_value *p[2], *b;
    if (!at->table)
        return;
    for (int i = 0; i < 2; i++)
        p[i] = kh_published_find(
            w->r->published, MODEL[i], at->table, at->method, at->task, at->ood, at->score);
    b = kh_published_find(
        w->r->published, MODEL[0], at->table, BASELINE, at->task, at->ood, at->score);
    int seeds = w->r->a->n_seed, tone = 0;
    if (p[0] && b && at->variant && at->on) {
        double ours[2], base[2];
        measure(w->r, at, at->variant, ours);
        measure(w->r, at, baseline(), base);
        tone = sign_of(p[0]->value, b->value, p[0]->sd, b->sd, PAPER_SEEDS) *
            sign_of(ours[0], base[0], ours[1], base[1], seeds);
    }
    const char *fmt = at->table[0] == '1' ? "%.1f" : "%.3f";
    char text[2][32] = { "", "" };
    for (int i = 0; i < 2; i++)
        if (p[i])
            snprintf(text[i], sizeof text[i], fmt, p[i]->value);
    if (p[0] || p[1])
        kh_grid_note(t, tone, "%s%s%s", text[0], p[1] ? " · " : "", text[1]);
}

/* A cell: here, the other backbones, the paper. */
static void add_place(const writer *w, kh_grid *t, const place *at, bool best) {
    double ours[2];
    measure(w->r, at, at->variant, ours);
    add_value(t, ours[0], ours[1], strcmp(at->metric, "score") == 0);
    if (best)
        kh_grid_strong(t);
    note_beside(w, t, at);
    note_published(w, t, at);
}

/* The row of what an oracle would reach, here and there. */
static void add_lower_bound(
    const writer *w, const sheet *s, const kh_experiment *const *task, int n, kh_grid *t) {
    double sum = 0;
    kh_grid_add(t, "lower bound");
    for (int i = 0; i <= n; i++) {
        double mean = NAN, sd;
        if (i < n)
            kh_reproduction_mean(w->r, baseline(), task[i], "aurrrc_oracle", &mean, &sd);
        sum += i < n ? mean : 0;
        place at = { .table = s->published,
            .method = "lower-bound",
            .task = i < n ? task[i]->task : "average" };
        add_value(t, i < n ? mean : sum / n, NAN, false);
        note_published(w, t, &at);
    }
}

static void put_sheet(const writer *w, const sheet *s) {
    const kh_experiment *task[MAX_TASKS];
    int n = tasks_of(w->r, s->table, task);
    kh_grid t = { .caption = s->caption, .n_col = n + 2, .n_left = 1 };
    kh_grid_add(&t, "method");
    for (int i = 0; i < n; i++)
        kh_grid_add(&t, "%s", task[i]->task);
    kh_grid_add(&t, "average");
    for (int k = 0; kh_variant_at(k); k++) {
        const kh_variant *v = kh_variant_at(k);
        if (!has_variant(w->r, v, s->table))
            continue;
        kh_grid_add(&t, "%s", v->title);
        for (int i = 0; i <= n; i++) {
            place at = { s->published, v->name, i < n ? task[i]->task : "average", NULL, s->score,
                v, i < n ? task[i] : NULL, s->table, s->metric };
            double ours[2];
            measure(w->r, &at, v, ours);
            add_place(w, &t, &at, is_best(w->r, s, at.on, ours[0]));
        }
    }
    if (s->bound)
        add_lower_bound(w, s, task, n, &t);
    put_grid(w, &t);
}

/* ------------------------------------------------------------------------- out-of-distribution
 * rows */

static bool judged_against(const kh_reproduction *r, const kh_experiment *x, const char *task) {
    for (int i = 0; i < r->a->n; i++)
        for (int k = 0; r->a->run[i].on == x && k < r->a->run[i].n_ood; k++)
            if (strncmp(r->a->run[i].ood[k], task, strlen(task)) == 0 &&
                r->a->run[i].ood[k][strlen(task)] == '=')
                return true;
    return false;
}

/* The pairs of a task and a set of out-of-distribution rows that runs were judged on. */
typedef struct ood_pair {
    const kh_experiment *on;
    const char *task;
} ood_pair;

static int find_pairs(const writer *w, bool near, ood_pair pair[MAX_TASKS]) {
    const kh_experiment *task[MAX_TASKS];
    int n = tasks_of(w->r, KH_TABLE_OOD, task), n_pair = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2 && n_pair < MAX_TASKS; k++)
            if (task[i]->outside[k].task && task[i]->outside[k].near == near &&
                judged_against(w->r, task[i], task[i]->outside[k].task))
                pair[n_pair++] = (ood_pair){ task[i], task[i]->outside[k].task };
    return n_pair;
}

/* What an oracle would reach. */
static void add_ood_bound(
    const writer *w, const char *score, const ood_pair *pair, int n_pair, kh_grid *t) {
    kh_grid_add(t, "lower bound");
    for (int i = 0; i < n_pair; i++) {
        char name[128];
        double mean = NAN, sd;
        snprintf(name, sizeof name, "ood.%s.%s.aurrrc_oracle", pair[i].task, score);
        for (int k = 0; kh_variant_at(k) && isnan(mean); k++)
            kh_reproduction_mean(w->r, kh_variant_at(k), pair[i].on, name, &mean, &sd);
        place at = {
            .table = "4", .method = "lower-bound", .task = pair[i].on->task, .ood = pair[i].task
        };
        add_value(t, mean, NAN, false);
        note_published(w, t, &at);
    }
}

static void put_ood(
    const writer *w, bool near, const char *score, const char *metric, const char *caption) {
    ood_pair pair[MAX_TASKS];
    int n_pair = find_pairs(w, near, pair);
    bool known = strcmp(metric, "aurrrc") == 0;
    if (n_pair == 0)
        return;
    kh_grid t = { .caption = caption, .n_col = n_pair + 1, .n_left = 1 };
    kh_grid_add(&t, "method");
    for (int i = 0; i < n_pair; i++)
        kh_grid_add(&t, "%s/%s", pair[i].on->task, pair[i].task);
    for (int k = 0; kh_variant_at(k); k++) {
        const kh_variant *v = kh_variant_at(k);
        if (!has_variant(w->r, v, KH_TABLE_OOD))
            continue;
        kh_grid_add(&t, "%s", v->title);
        for (int i = 0; i < n_pair; i++) {
            char name[128];
            snprintf(name, sizeof name, "ood.%s.%s.%s", pair[i].task, score, metric);
            place at = { known ? "4" : NULL, v->name, pair[i].on->task, pair[i].task, score, v,
                pair[i].on, 0, name };
            add_place(w, &t, &at, false);
        }
    }
    if (known)
        add_ood_bound(w, score, pair, n_pair, &t);
    put_grid(w, &t);
}

static void put_all_ood(const writer *w) {
    static const struct {
        const char *score, *metric, *far, *near;
    } parts[] = {
        { "entropy", "aurrrc", "AURRRC by entropy, far; less is better",
            "AURRRC by entropy, near; less is better" },
        { "maxp", "aurrrc", "AURRRC by 1 - max p, far; less is better",
            "AURRRC by 1 - max p, near; less is better" },
        { "entropy", "auroc", "AUROC by entropy, far; more is better",
            "AUROC by entropy, near; more is better" },
        { "maxp", "auroc", "AUROC by 1 - max p, far; more is better",
            "AUROC by 1 - max p, near; more is better" },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        put_ood(w, false, parts[i].score, parts[i].metric, parts[i].far);
        put_ood(w, true, parts[i].score, parts[i].metric, parts[i].near);
    }
}

/* ------------------------------------------------------------------ labels only, rank, meaning */

/* The best of a family; x NULL: of averages. */
static double best_of(const kh_reproduction *r, kh_method_family f, bool paper, const char *metric,
    const kh_experiment *x, const char **who) {
    double best = NAN, mean, sd;
    *who = NULL;
    for (int i = 0; kh_variant_at(i); i++) {
        const kh_variant *v = kh_variant_at(i);
        if (v->family != f || v->paper != paper || !has_variant(r, v, KH_TABLE_MAIN))
            continue;
        if (x)
            kh_reproduction_mean(r, v, x, metric, &mean, &sd);
        else
            mean = average(r, v, KH_TABLE_MAIN, metric);
        if (!isnan(mean) &&
            (isnan(best) || (strcmp(metric, "ece") == 0 ? mean < best : mean > best))) {
            best = mean;
            *who = v->title;
        }
    }
    return best;
}

/* The paper's best of a family, on its first backbone. */
static double best_published(const kh_reproduction *r, kh_method_family f, const char *table,
    const char *task, const char **who) {
    double best = NAN;
    *who = NULL;
    for (int i = 0; kh_variant_at(i); i++) {
        const kh_variant *v = kh_variant_at(i);
        const kh_published_value *p = v->family == f && (v->tables & KH_TABLE_MAIN)
            ? kh_published_find(r->published, KH_PAPER_MODEL, table, v->name, task, NULL, NULL)
            : NULL;
        if (p && (isnan(best) || (table[0] == '1' ? p->value > best : p->value < best))) {
            best = p->value;
            *who = v->title;
        }
    }
    return best;
}

static void add_named(kh_grid *t, double x, const char *who, bool percent) {
    if (isnan(x))
        kh_grid_add(t, "–");
    else
        kh_grid_add(t, percent ? "%.1f (%s)" : "%.3f (%s)", percent ? 100 * x : x, who);
}

static void put_access(const writer *w) {
    static const struct {
        const char *name, *table, *task, *metric;
    } rows[] = { { "average accuracy or F1", "1", "average", "score" },
        { "accuracy on dbpedia", "1", "dbpedia", "score" },
        { "average ECE", "2", "average", "ece" } };
    kh_grid t = { .n_col = 6, .n_left = 1 };
    static const char *const HEAD[] = { "", "published, logits", "published, labels only",
        "here, logits: the best", "here, labels only: the paper's best",
        "here, labels only: ours" };
    for (int i = 0; i < 6; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (size_t i = 0; i < 3; i++) {
        const kh_experiment *x = NULL;
        for (int k = 0; kh_experiment_at(k); k++)
            x = strcmp(kh_experiment_at(k)->task, rows[i].task) == 0 ? kh_experiment_at(k) : x;
        bool percent = rows[i].table[0] == '1';
        const char *who;
        kh_grid_add(&t, "%s", rows[i].name);
        for (int k = 0; k < 2; k++) {
            double there = best_published(
                w->r, k ? KH_METHODS_LABELS : KH_METHODS_LOGITS, rows[i].table, rows[i].task, &who);
            add_named(&t, percent ? there / 100 : there, who, percent);
        }
        double best = best_of(w->r, KH_METHODS_LOGITS, true, rows[i].metric, x, &who);
        add_named(&t, best, who, percent);
        best = best_of(w->r, KH_METHODS_LABELS, true, rows[i].metric, x, &who);
        add_named(&t, best, who, percent);
        best = best_of(w->r, KH_METHODS_LABELS, false, rows[i].metric, x, &who);
        add_named(&t, best, who, percent);
    }
    put_grid(w, &t);
    for (int i = 0; i < w->r->published->n; i++) {
        const kh_published_value *p = &w->r->published->value[i];
        if (p->note)
            para(w, "Published %g (table %s, %s, %s): %s.", p->value, p->table, p->method, p->task,
                p->note);
    }
}

/* How many of the paper's methods have a better average, and one; 0: it has none. of: published
 * averages. */
static int rank_of(
    const writer *w, const kh_variant *v, const char *table, const char *metric, bool published) {
    bool less = strcmp(metric, "ece") == 0;
    int rank = 1;
    double mine = NAN;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; kh_variant_at(i); i++) {
            const kh_variant *o = kh_variant_at(i);
            const kh_published_value *p = kh_published_find(
                w->r->published, KH_PAPER_MODEL, table, o->name, "average", NULL, NULL);
            double theirs = p ? p->value : NAN;
            double x = published ? theirs : average(w->r, o, KH_TABLE_MAIN, metric);
            if (!o->paper || !(o->tables & KH_TABLE_MAIN) || isnan(x))
                continue;
            if (pass == 0 && o == v)
                mine = x;
            rank += pass == 1 && (less ? x < mine : x > mine);
        }
    return isnan(mine) ? 0 : rank;
}

static void put_ranks(const writer *w) {
    static const char *const HEAD[] = { "method", "accuracy, here", "published", "ECE, here",
        "published" };
    kh_grid t = { .n_col = 5, .n_left = 1 };
    for (int i = 0; i < 5; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (int i = 0; kh_variant_at(i); i++) {
        const kh_variant *v = kh_variant_at(i);
        if (!v->paper || !has_variant(w->r, v, KH_TABLE_MAIN))
            continue;
        kh_grid_add(&t, "%s", v->title);
        for (int k = 0; k < 4; k++) {
            int rank = rank_of(w, v, k < 2 ? "1" : "2", k < 2 ? "score" : "ece", k % 2);
            if (rank)
                kh_grid_add(&t, "%d", rank);
            else
                kh_grid_add(&t, "–");
        }
    }
    put_grid(w, &t);
}

/* -------------------------------------------------------------------------------- significance */

static void add_difference(kh_grid *t, const kh_difference *d, bool percent) {
    double scale = percent ? 100 : 1;
    kh_grid_add(t, percent ? "%+.1f (%+.1f to %+.1f)" : "%+.3f (%+.3f to %+.3f)", scale * d->mean,
        scale * d->low, scale * d->high);
    if (kh_claim_sign(d) != 0)
        kh_grid_strong(t);
}

static int put_significance(const writer *w, kh_err *err) {
    static const char *const PAIRS[][2] = { { "ensemble", "bbt" }, { "elbo", "bbt" },
        { "elbo", "ensemble" }, { "abc-smc", "bbt" }, { "snpe", "abc-smc" }, { "smc", "abc-smc" },
        { "smc", "bbt" }, { "abc-smc-importance", "abc-smc" }, { "smc", "smc-raw" },
        { "smc-soft", "smc" }, { "tune-bbt", "bbt" }, { "tune-smc", "abc-smc" },
        { "tune-smc", "tune-bbt" }, { "tune-smc", "ensemble" } };
    static const char *const HEAD[] = { "methods", "task", "accuracy, difference",
        "ECE, difference" };
    const kh_experiment *task[MAX_TASKS];
    int n = tasks_of(w->r, KH_TABLE_ALL, task), rc = 0, rows = 0;
    kh_grid t = { .n_col = 4, .n_left = 2 };
    for (int i = 0; i < 4; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (size_t k = 0; k < sizeof PAIRS / sizeof PAIRS[0]; k++)
        for (int i = 0; i <= n && rc == 0; i++) {
            kh_claim c;
            rc = kh_claim_compare(w->r, PAIRS[k][0], PAIRS[k][1], i < n ? task[i] : NULL, &c, err);
            if (rc != 0 || c.pairs == 0)
                continue;
            kh_grid_add(&t, "%s - %s", PAIRS[k][0], PAIRS[k][1]);
            kh_grid_add(&t, "%s", i < n ? task[i]->task : "all");
            add_difference(&t, &c.score, true);
            add_difference(&t, &c.ece, false);
            rows++;
        }
    if (rows > 0)
        put_grid(w, &t);
    else
        para(w, "No task has runs of two methods that are compared here.");
    kh_grid_free(&t);
    return rc;
}

/* ------------------------------------------------------------------------------ cost, the rest */

static void put_cost(const writer *w) {
    static const char *const HEAD[] = { "method", "runs", "queries", "tokens", "seconds",
        "queries to judge", "seconds to judge" };
    kh_grid t = { .n_col = 7, .n_left = 1 };
    for (int i = 0; i < 7; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (int k = 0; kh_variant_at(k); k++) {
        double sum[5] = { 0 };
        int n = 0;
        for (int i = 0; i < w->r->a->n; i++) {
            const kh_manifest *c = &w->r->outcome[i].manifest;
            if (w->r->a->run[i].variant != kh_variant_at(k) || !w->r->outcome[i].done)
                continue;
            double x[5] = { (double)c->queries, (double)c->tokens, c->seconds,
                (double)c->eval_queries, c->eval_seconds };
            for (int j = 0; j < 5; j++)
                sum[j] += x[j];
            n++;
        }
        if (n == 0)
            continue;
        kh_grid_add(&t, "%s", kh_variant_at(k)->title);
        kh_grid_add(&t, "%d", n);
        for (int j = 0; j < 5; j++)
            kh_grid_add(&t, j == 2 || j == 4 ? "%.1f" : "%.0f", sum[j] / n);
    }
    put_grid(w, &t);
}

/* Conformal sets on and off: a set that keeps a promise, or one answer that makes none. */
static void put_sets(const writer *w) {
    static const char *const HEAD[] = { "method", "one answer is right", "the set holds the class",
        "classes in a set" };
    static const char *const METRIC[] = { "accuracy", "covered", "set_size" };
    double alpha = NAN;
    for (int i = 0; i < w->r->a->n && isnan(alpha); i++)
        alpha = w->r->outcome[i].done ? w->r->outcome[i].result.alpha : NAN;
    if (isnan(alpha))
        return;
    kh_grid t = { .n_col = 4, .n_left = 1 };
    for (int i = 0; i < 4; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (int k = 0; kh_variant_at(k); k++) {
        if (!has_variant(w->r, kh_variant_at(k), KH_TABLE_MAIN))
            continue;
        kh_grid_add(&t, "%s", kh_variant_at(k)->title);
        for (int i = 0; i < 3; i++)
            add_value(&t, average(w->r, kh_variant_at(k), KH_TABLE_MAIN, METRIC[i]), NAN, i < 2);
    }
    heading(w, 2, "Conformal sets on and off");
    para(w,
        "Averages over tasks, in per cent. A set promises to hold the true class in %.0f %% of "
        "rows; one answer promises nothing.",
        100 * (1 - alpha));
    put_grid(w, &t);
}

/* How many queries it took to a level, on average over the runs that reached it, and how many did.
 */
static int put_reach(const writer *w, kh_err *err) {
    static const double LEVEL[] = { 0.5, 0.6, 0.7, 0.8, 0.9 };
    kh_grid t = { .n_col = 6, .n_left = 1 };
    int rc = 0;
    kh_grid_add(&t, "method");
    for (int i = 0; i < 5; i++)
        kh_grid_add(&t, "%.1f", LEVEL[i]);
    for (int k = 0; kh_variant_at(k) && rc == 0; k++) {
        const kh_variant *v = kh_variant_at(k);
        if (v->family != KH_METHODS_LABELS || !has_variant(w->r, v, KH_TABLE_ALL))
            continue;
        kh_grid_add(&t, "%s", v->title);
        for (int l = 0; l < 5 && rc == 0; l++) {
            double sum = 0;
            int runs = 0, reached = 0;
            for (int i = 0; i < w->r->a->n && rc == 0; i++) {
                long long queries;
                if (w->r->a->run[i].variant != v || !w->r->outcome[i].done)
                    continue;
                rc = kh_queries_to_reach(w->r, i, LEVEL[l], &queries, NULL, err);
                runs++;
                reached += queries > 0;
                sum += (double)queries;
            }
            if (reached)
                kh_grid_add(&t, "%.0f (%d of %d)", sum / reached, reached, runs);
            else
                kh_grid_add(&t, "– (0 of %d)", runs);
        }
    }
    if (t.n > 6) {
        heading(w, 2, "Queries to reach a dev accuracy");
        para(w,
            "Mean over the runs that reached it, and how many of them did. Compare columns where "
            "about as many did.");
        put_grid(w, &t);
    } else
        kh_grid_free(&t);
    return rc;
}

/* ------------------------------------------------------------------------------- the questions */

/* The name of a backbone: the last part of its path. */
static const char *short_name(const char *model) {
    const char *at = strrchr(model, '/');
    return at && at[1] ? at + 1 : model;
}

/* All backbones: [0] is the page's own. */
typedef struct answers {
    kh_finding f[1 + MAX_BACKBONES][KH_QUESTIONS];
    const char *model[1 + MAX_BACKBONES];
    int n;
} answers;

static int answer_all(const writer *w, answers *a, kh_err *err) {
    int rc = kh_questions_answer(w->r, a->f[0], err);
    a->model[0] = short_name(w->r->model);
    for (a->n = 1; a->n <= w->r->n_beside && a->n <= MAX_BACKBONES && rc == 0; a->n++) {
        const kh_reproduction *r = w->r->beside[a->n - 1];
        a->model[a->n] = short_name(r->model);
        rc = kh_questions_answer(r, a->f[a->n], err);
    }
    return rc;
}

/* What is asked, what the paper says, and yes, no or cannot tell for every backbone. */
static void put_verdicts(const writer *w, const answers *a) {
    static const char *const SAID[] = { "no", "cannot tell", "yes" };
    kh_grid t = { .n_col = 1 + a->n, .n_left = 1 };
    kh_grid_add(&t, "question");
    for (int k = 0; k < a->n; k++)
        kh_grid_add(&t, "%s", a->model[k]);
    for (int i = 0; i < KH_QUESTIONS; i++) {
        const kh_finding *f = &a->f[0][i];
        kh_grid_add(&t, "%d. %s", i + 1, f->question);
        kh_grid_note(&t, 0, "the paper: %s", f->paper ? f->paper : "does not ask this");
        for (int k = 0; k < a->n; k++) {
            kh_grid_add(&t, "%s", SAID[a->f[k][i].agrees + 1]);
            kh_grid_tone(&t, f->paper ? a->f[k][i].agrees : 0);
        }
    }
    heading(w, 2, "The six questions");
    para(w,
        "Yes: as the paper has it, here too; no: otherwise; both only if an interval of 95 %% says "
        "so. The sentences below have the intervals; where one seed is done, they know of the rows "
        "only.");
    put_grid(w, &t);
}

static void put_finding(const writer *w, const answers *a, int i) {
    static const char *const HOW[] = { "Not so here.", "Here it cannot be told.",
        "So it is here." };
    const kh_finding *f = &a->f[0][i];
    char title[160];
    snprintf(title, sizeof title, "%d. %s", i + 1, f->question);
    heading(w, 3, title);
    if (f->paper)
        para(w, "The paper: %s. %s %s", f->paper, HOW[f->agrees + 1], f->text);
    else
        para(w, "The paper does not ask this. %s", f->text);
    for (int k = 1; k < a->n; k++)
        para(w, "%s: %s %s", a->model[k], HOW[a->f[k][i].agrees + 1], a->f[k][i].text);
}

/* After the verdicts, what does not agree comes first. */
static void put_findings(const writer *w, const answers *a) {
    int against = 0, answered = 0;
    put_verdicts(w, a);
    heading(w, 2, "What the paper found and we do not");
    for (int i = 0; i < KH_QUESTIONS; i++) {
        bool not_so = a->f[0][i].paper && a->f[0][i].agrees < 0;
        if (not_so)
            put_finding(w, a, i);
        against += not_so;
        answered += a->f[0][i].paper && a->f[0][i].agrees != 0;
    }
    if (!against)
        para(w,
            answered ? "None of the questions below was answered otherwise than in the paper."
                     : "None of the questions below could be answered by these runs.");
    heading(w, 2, "The other questions");
    for (int i = 0; i < KH_QUESTIONS; i++)
        if (!a->f[0][i].paper || a->f[0][i].agrees >= 0)
            put_finding(w, a, i);
}

static int put_questions(const writer *w, kh_err *err) {
    answers *a = kh_calloc(1, sizeof *a);
    int rc = a ? answer_all(w, a, err) : kh_fail_memory(err);
    if (rc == 0)
        put_findings(w, a);
    kh_free(a);
    return rc;
}

static void put_missing(const writer *w) {
    const kh_repro_plan *a = w->r->a;
    kh_grid t = { .n_col = 2, .n_left = 2 };
    kh_grid_add(&t, "what");
    kh_grid_add(&t, "why");
    for (int i = 0; i < a->n_missing; i++) {
        const char *colon = strchr(a->missing[i], ':');
        kh_grid_add(&t, "%.*s", (int)(colon - a->missing[i]), a->missing[i]);
        kh_grid_add(&t, "%s", colon + 2);
    }
    for (int i = 0; i < a->n; i++)
        if (!w->r->outcome[i].done) {
            kh_grid_add(&t, "%s", a->run[i].name);
            kh_grid_add(&t, "%s",
                w->r->outcome[i].why ? w->r->outcome[i].why
                                     : "not done yet: the same command goes on");
        }
    if (t.n > 2) {
        heading(w, 2, "What is missing");
        put_grid(w, &t);
    } else
        kh_grid_free(&t);
}

static int count_done(const kh_reproduction *r) {
    int done = 0;
    for (int i = 0; i < r->a->n; i++)
        done += r->outcome[i].done;
    return done;
}

/* Which line of a cell is whose. */
static void put_legend(const writer *w) {
    const kh_reproduction *r = w->r;
    for (int i = 0; i < r->n_beside; i++)
        para(w, "Line %d of a cell is %s: %d of %d runs are done.", i + 2,
            short_name(r->beside[i]->model), count_done(r->beside[i]), r->a->n);
    para(w,
        "The %s line of a cell is what the paper has there, on RoBERTa-large and, after the "
        "dot, on BERT-large. What should carry over to another model is the order of the methods, "
        "not the level: a cell is coloured if its method differs from BBT by more than the seeds "
        "do, both here and on RoBERTa-large; blue if the sign is the same, red if it is not. "
        "--published FILE adds numbers (doc/reproduce.md).",
        r->n_beside ? "last" : "second");
}

static void put_head(const writer *w) {
    const kh_repro_plan *a = w->r->a;
    if (w->format == KH_GRID_HTML)
        kh_buf_printf(w->out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
            "name=\"viewport\" "
            "content=\"width=device-width, initial-scale=1\">\n<title>Reproduction · "
            "keyhole</title>\n<style>\n%s</style>\n"
            "</head>\n<body>\n<main>\n",
            KH_STYLE);
    heading(w, 1, "The paper's tables, reproduced");
    para(w,
        "Reliable Gradient-free and Likelihood-free Prompt Tuning (Shen et al., Findings of EACL "
        "2023), run again by keyhole %s.",
        kh_version());
    kh_buf seeds = kh_buf_init(1 << 16);
    for (int i = 0; i < a->n_seed; i++)
        kh_buf_printf(&seeds, "%s%llu", i ? ", " : "", (unsigned long long)a->seed[i]);
    para(w,
        "Model: %s. Preset: %s. Seeds: %s. %d of %d runs are done. Numbers are mean ± standard "
        "deviation over seeds; the best "
        "of a column is bold.",
        w->r->model, kh_preset_describe(a->o.preset)->name, seeds.data ? seeds.data : "",
        count_done(w->r), a->n);
    kh_buf_free(&seeds);
    if (kh_preset_describe(a->o.preset)->note)
        para(w, "%s", kh_preset_describe(a->o.preset)->note);
}

int kh_reproduction_put(const kh_reproduction *r, kh_grid_format format, kh_buf *out, kh_err *err) {
    writer w = { r, format, out };
    static const struct {
        unsigned table;
        const char *title;
        sheet sheet[3];
    } PARTS[] = {
        { KH_TABLE_SCORE, "Table 1: accuracy",
            { { "accuracy in per cent, F1 for mrpc; more is better", "1", NULL, "score",
                KH_TABLE_SCORE, 1, false } } },
        { KH_TABLE_ECE, "Table 2: calibration",
            { { "ECE; less is better", "2", NULL, "ece", KH_TABLE_ECE, -1, false } } },
        { KH_TABLE_SELECTIVE, "Table 3: selective classification",
            { { "AURRRC by 1 - max p; less is better", "3", "maxp", "aurrrc", KH_TABLE_SELECTIVE,
                  -1, true },
                { "AURRRC by entropy; less is better", "3", "entropy", "aurrrc_entropy",
                    KH_TABLE_SELECTIVE, -1, true } } },
        { KH_TABLE_WEIGHTS, "Appendix: uniform against importance weights",
            { { "accuracy in per cent, F1 for mrpc", "1", NULL, "score", KH_TABLE_WEIGHTS, 1,
                  false },
                { "ECE", "2", NULL, "ece", KH_TABLE_WEIGHTS, -1, false } } },
        { KH_TABLE_SAMPLES, "More samples",
            { { "accuracy in per cent, F1 for mrpc", NULL, NULL, "score", KH_TABLE_SAMPLES, 1,
                  false },
                { "ECE", NULL, NULL, "ece", KH_TABLE_SAMPLES, -1, false },
                { "NLL", NULL, NULL, "nll", KH_TABLE_SAMPLES, -1, false } } },
        { KH_TABLE_ABLATIONS, "Ablations: each improvement on and off",
            { { "accuracy in per cent, F1 for mrpc", NULL, NULL, "score", KH_TABLE_ABLATIONS, 1,
                  false },
                { "ECE", NULL, NULL, "ece", KH_TABLE_ABLATIONS, -1, false },
                { "NLL", NULL, NULL, "nll", KH_TABLE_ABLATIONS, -1, false } } },
        { KH_TABLE_DEFAULTS, "Beyond the paper: what tune does by default",
            { { "accuracy in per cent, F1 for mrpc; more is better", NULL, NULL, "score",
                  KH_TABLE_DEFAULTS, 1, false },
                { "ECE; less is better", NULL, NULL, "ece", KH_TABLE_DEFAULTS, -1, false },
                { "NLL; less is better", NULL, NULL, "nll", KH_TABLE_DEFAULTS, -1, false } } },
    };
    put_head(&w);
    int rc = put_questions(&w, err);
    heading(&w, 2, "How to read the tables");
    put_legend(&w);
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        const kh_experiment *task[MAX_TASKS];
        if (!(r->a->tables & PARTS[i].table) || tasks_of(r, PARTS[i].table, task) == 0)
            continue;
        heading(&w, 2, PARTS[i].title);
        for (int k = 0; k < 3 && PARTS[i].sheet[k].caption; k++)
            put_sheet(&w, &PARTS[i].sheet[k]);
        if (PARTS[i].table == KH_TABLE_SELECTIVE && (r->a->tables & KH_TABLE_OOD)) {
            heading(&w, 2, "Table 4: out-of-distribution rows");
            put_all_ood(&w);
        }
    }
    if (!(r->a->tables & KH_TABLE_SELECTIVE) && (r->a->tables & KH_TABLE_OOD)) {
        heading(&w, 2, "Table 4: out-of-distribution rows");
        put_all_ood(&w);
    }
    heading(&w, 2, "What labels only cost");
    put_access(&w);
    heading(&w, 2, "Rank of the paper's methods");
    put_ranks(&w);
    heading(&w, 2, "Significance");
    para(&w,
        "First method minus second, by a paired bootstrap over seeds and, for each seed, rows (%d "
        "resamples): 95 %% intervals; bold where zero is outside. No correction is made for the "
        "number of tests.",
        r->n_resample);
    if (rc == 0)
        rc = put_significance(&w, err);
    put_sets(&w);
    heading(&w, 2, "Cost of a run, on average");
    put_cost(&w);
    if (rc == 0)
        rc = put_reach(&w, err);
    put_missing(&w);
    if (format == KH_GRID_HTML)
        kh_buf_text(out, "</main>\n</body>\n</html>\n");
    return rc == 0 && kh_buf_failed(out) ? kh_fail_memory(err) : rc;
}
