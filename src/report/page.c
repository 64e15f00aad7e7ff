/* page.c - report.html, section by section. All text that came from data, options or files passes
 * html.c. */
#include "report/page.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "data/task.h"
#include "judge/decisions.h"
#include "posterior/posterior.h"
#include "report/html.h"
#include "report/style.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_ROWS = 10,
    SHOWN_PROMPTS = 10,
    SHOWN_CHARACTERS = 600,
    SHOWN_CLASSES = 4,
    NAME_CHARACTERS = 80
};

/* The part of a bar that has room for the name of its class. */
static const double LABELLED_SHARE = 0.2;
enum { TILE_FILES = 4 };

static void put_foreign(kh_buf *b, const char *s) {
    kh_html_foreign(b, s ? s : "", s ? strlen(s) : 0, 0);
}
static void put_name(kh_buf *b, const char *s) {
    kh_html_foreign(b, s, strlen(s), NAME_CHARACTERS);
}

static void put_value(kh_buf *b, double x) {
    if (isnan(x))
        kh_buf_text(b, "–");
    else
        kh_buf_printf(b, "%.4f", x);
}

static bool has_intervals(const kh_eval *e) { return e->o->bootstrap.n_resample > 0; }

/* A table that scrolls by itself where the window is narrow, and can be reached by keyboard. */
static void open_table(kh_buf *b, const char *class, const char *label) {
    kh_buf_printf(b,
        "<div class=\"scroll\" role=\"region\" aria-label=\"%s\" tabindex=\"0\">\n<table%s%s%s>\n",
        label, class ? " class=\"" : "", class ? class : "", class ? "\"" : "");
    kh_buf_printf(b, "<caption>%s</caption>\n", label);
}

static void close_table(kh_buf *b) { kh_buf_text(b, "</tbody>\n</table>\n</div>\n"); }

/* ------------------------------------------------------------------------------------- the top */

/* What the numbers come to, in one or two sentences. */
static void put_lede(kh_buf *b, const kh_eval *e) {
    double gap = 100 * (e->m.confidence - e->m.accuracy);
    kh_buf_printf(b, "<p class=\"lede\">On %d %s rows it is right in <strong>%.1f&nbsp;%%</strong>",
        e->rows.n, kh_eval_split_name(e->o->split), 100 * e->m.accuracy);
    if (has_intervals(e))
        kh_buf_printf(b, " (%g&nbsp;%% interval %.1f to %.1f)", 100 * e->o->bootstrap.level,
            100 * e->low.accuracy, 100 * e->high.accuracy);
    kh_buf_printf(
        b, " and claims to be right in <strong>%.1f&nbsp;%%</strong>: ", 100 * e->m.confidence);
    if (fabs(gap) < 1)
        kh_buf_text(b, "it is as sure as it may be.");
    else
        kh_buf_printf(b, "it is %s by %.1f points.",
            gap > 0 ? "too sure of itself" : "less sure than it could be", fabs(gap));
    kh_buf_text(b, "</p>\n");
}

static void put_tile(
    kh_buf *b, const char *name, double x, double low, double high, bool interval, bool percent) {
    double scale = percent ? 100 : 1;
    kh_buf_printf(b, "<div><dt>%s</dt><dd>", name);
    if (isnan(x))
        kh_buf_text(b, "–");
    else
        kh_buf_printf(b, percent ? "%.1f&nbsp;%%" : "%.3f", scale * x);
    if (interval && !isnan(low))
        kh_buf_printf(b, percent ? "<small>%.1f to %.1f</small>" : "<small>%.3f to %.3f</small>",
            scale * low, scale * high);
    kh_buf_text(b, "</dd></div>\n");
}

/* The last of the scores that out-of-distribution texts are told apart by. */
static int last_score(const kh_eval *e) {
    int last = KH_N_SCORE - 1;
    while (!e->known[last])
        last--;
    return last;
}

static const char *const SCORE[KH_N_SCORE] = { "1 − max p", "entropy", "energy", "distance",
    "energy and distance" };

/* The file, with what is caught of it where the threshold stands: that is what a reader gets. How
 * well a threshold could tell the two apart comes second. All files stand in one tile, the bad ones
 * beside the good. */
static void put_outside_tile(kh_buf *b, const kh_eval *e) {
    int s = last_score(e), n = 0;
    double caught = 0, least = INFINITY;
    bool decides = e->decided && isfinite(e->decisions.ood);
    for (int k = 0; k < e->n_outside; k++) {
        n += e->outside[k].rows.n;
        caught += e->outside[k].flagged * e->outside[k].rows.n;
        least = fmin(least, e->outside[k].value[s].auroc);
    }
    kh_buf_text(b, "<div><dt>");
    if (decides)
        kh_buf_printf(b,
            "other texts called out-of-distribution</dt><dd>%.1f&nbsp;%%<small>of its own "
            "%.1f&nbsp;%%",
            n > 0 ? 100 * caught / n : 0, 100 * e->flagged);
    else
        kh_buf_printf(
            b, "other texts told apart by %s (AUROC)</dt><dd>%.3f<small>at worst", SCORE[s], least);
    for (int k = 0; k < e->n_outside && k < TILE_FILES; k++) {
        kh_buf_text(b, "<br>");
        put_name(b, e->outside[k].rows.name);
        if (decides)
            kh_buf_printf(b, " %.1f&nbsp;%%", 100 * e->outside[k].flagged);
        else
            kh_buf_printf(b, " %.3f", e->outside[k].value[s].auroc);
    }
    kh_buf_text(b, e->n_outside > TILE_FILES ? "<br>…" : "");
    if (decides)
        kh_buf_printf(
            b, "<br>AUROC by %s %.3f%s", SCORE[s], least, e->n_outside > 1 ? " at worst" : "");
    kh_buf_text(b, "</small></dd></div>\n");
}

static void put_tiles(kh_buf *b, const kh_eval *e) {
    bool i = has_intervals(e), f1 = e->post->task->metric == KH_METRIC_F1;
    kh_buf_text(b, "<dl class=\"tiles\">\n");
    if (f1)
        put_tile(b, "F1", e->m.f1, e->low.f1, e->high.f1, i, true);
    put_tile(b, "accuracy", e->m.accuracy, e->low.accuracy, e->high.accuracy, i, true);
    put_tile(b, "calibration error (ECE)", e->m.ece, e->low.ece, e->high.ece, i, true);
    put_tile(b, "negative log-likelihood", e->m.nll, e->low.nll, e->high.nll, i, false);
    put_tile(b, "errors found by uncertainty (AUROC)", e->m.auroc_error, e->low.auroc_error,
        e->high.auroc_error, i, false);
    if (e->n_outside > 0)
        put_outside_tile(b, e);
    kh_buf_text(b, "</dl>\n");
}

static void put_top(kh_buf *b, const kh_page *g) {
    const kh_eval *e = g->eval;
    const kh_posterior *p = e->post;
    enum { ELSEWHERE = 2, PROMPTS = 5 };
    static const struct {
        const char *id, *name;
    } parts[] = { { "calibration", "Calibration" }, { "answering", "When to answer" },
        { "elsewhere", "Out-of-distribution texts" }, { "confusion", "Confusion" },
        { "rows", "Rows to look at" }, { "prompts", "Prompts that carry the weight" },
        { "numbers", "All numbers" }, { "run", "The run" }, { "behind", "Behind the numbers" } };
    kh_buf_text(b,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    kh_html_text(b, p->task->name, strlen(p->task->name));
    kh_buf_text(b, " by ");
    kh_html_text(b, p->method, strlen(p->method));
    kh_buf_text(b, " · keyhole</title>\n<style>\n");
    kh_buf_text(b, KH_STYLE);
    kh_buf_text(b,
        "</style>\n</head>\n<body>\n<header>\n<p class=\"kicker\">keyhole · what a classifier is "
        "worth</p>\n<h1>");
    put_name(b, p->task->name);
    kh_buf_text(b, " by ");
    put_name(b, p->method);
    kh_buf_text(b, "</h1>\n");
    put_lede(b, e);
    if (e->warning[0]) {
        kh_buf_text(b, "<p class=\"lede\"><strong>Warning: ");
        put_foreign(b, e->warning);
        kh_buf_text(b, ".</strong></p>\n");
    }
    put_tiles(b, e);
    kh_buf_text(b, "<nav aria-label=\"Sections\">\n<ul>\n");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if ((i != ELSEWHERE || e->n_outside > 0) && (i != PROMPTS || p->texts.n > 0))
            kh_buf_printf(b, "<li><a href=\"#%s\">%s</a></li>\n", parts[i].id, parts[i].name);
    kh_buf_text(b, "</ul>\n</nav>\n</header>\n<main>\n");
}

static void put_section(kh_buf *b, const char *id, const char *name) {
    kh_buf_printf(b, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", id, id, name);
}

static void end_section(kh_buf *b) { kh_buf_text(b, "</section>\n"); }

/* ------------------------------------------------------------------------ numbers, calibration */

static void put_interval(kh_buf *b, double low, double high) {
    kh_buf_text(b, "<td class=\"n dim\">");
    if (isnan(low) || isnan(high))
        kh_buf_text(b, "–");
    else
        kh_buf_printf(b, "%.4f to %.4f", low, high);
    kh_buf_text(b, "</td>");
}

/* A row of numbers, with a line below it, as wide as the table, that says what they are. */
static void open_explained(kh_buf *b, const char *name) {
    kh_buf_printf(b, "<tr class=\"said\"><th scope=\"row\">%s</th>", name);
}

static void close_explained(kh_buf *b, int columns, const char *text, const char *which) {
    kh_buf_printf(b, "</tr>\n<tr><td colspan=\"%d\" class=\"says\"><span>%s%s%s</span></td></tr>\n",
        columns, text, *which ? "; " : "", which);
}

static void put_numbers(kh_buf *b, const kh_eval *e) {
    static const char *const better[] = { "less is better", "", "more is better" };
    put_section(b, "numbers", "All numbers");
    open_table(b, NULL, "What the answers are worth");
    kh_buf_text(
        b, "<thead><tr><th scope=\"col\">metric</th><th scope=\"col\" class=\"n\">value</th>");
    if (has_intervals(e))
        kh_buf_printf(b, "<th scope=\"col\" class=\"n\">%g&nbsp;%% interval</th>",
            100 * e->o->bootstrap.level);
    kh_buf_text(b, "</tr></thead>\n<tbody>\n");
    for (int i = 0; kh_metrics_name(i); i++) {
        const char *which = better[kh_metrics_better(i) + 1];
        if (e->n_label > 2 && strcmp(kh_metrics_name(i), "f1") == 0)
            continue; /* of one class of two */
        open_explained(b, kh_metrics_name(i));
        kh_buf_text(b, "<td class=\"n\">");
        put_value(b, kh_metrics_value(&e->m, i));
        kh_buf_text(b, "</td>");
        if (has_intervals(e))
            put_interval(b, kh_metrics_value(&e->low, i), kh_metrics_value(&e->high, i));
        close_explained(b, 2 + has_intervals(e), kh_metrics_text(i), which);
    }
    close_table(b);
    if (!isnan(e->disagreement))
        kh_buf_printf(b,
            "<p>Of the mean entropy of %.4f nats, %.4f is ambiguity, which every prompt sees in "
            "the text, and %.4f disagreement "
            "between prompts.</p>\n",
            e->m.entropy, e->ambiguity, e->disagreement);
    end_section(b);
}

static int put_calibration(kh_buf *b, kh_page *g, kh_err *err) {
    const kh_eval *e = g->eval;
    put_section(b, "calibration", "Calibration");
    kh_buf_text(b, "<div class=\"pair\">\n");
    int rc = kh_figure_reliability(g, b, err);
    kh_buf_text(b, "<div>\n");
    open_table(b, NULL, "Confidence and accuracy, bin by bin");
    kh_buf_text(b,
        "<thead><tr><th scope=\"col\">confidence</th><th scope=\"col\" class=\"n\">rows</th><th "
        "scope=\"col\" class=\"n\">mean</th>"
        "<th scope=\"col\" class=\"n\">accuracy</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < KH_BINS; i++) {
        const kh_bin *bin = &e->bin[i];
        kh_buf_printf(b, "<tr><th scope=\"row\">%.2f to %.2f</th><td class=\"n\">%d</td>", bin->low,
            bin->high, bin->n);
        if (bin->n > 0)
            kh_buf_printf(b, "<td class=\"n\">%.4f</td><td class=\"n\">%.4f</td></tr>\n",
                bin->confidence, bin->accuracy);
        else
            kh_buf_text(b, "<td class=\"n dim\">–</td><td class=\"n dim\">–</td></tr>\n");
    }
    close_table(b);
    kh_buf_text(b, "</div>\n</div>\n");
    end_section(b);
    return rc;
}

/* ------------------------------------------------------------------------------ when to answer */

/* The rows that the decisions are by. */
static const char *rows_by(const kh_eval *e) {
    if (e->n_cross > 0)
        return "cross-fitted";
    return e->n_train > 0 ? "train and dev" : "dev";
}

static void put_selector(kh_buf *b, const kh_eval *e) {
    const kh_selector *s = &e->decisions.selector;
    const char *rows = rows_by(e);
    if (s->estimate)
        kh_buf_printf(b,
            "<h3>Abstaining</h3>\n<p>%s %d %s rows. <strong>Estimate, not a promise</strong>: "
            "about %.0f&nbsp;%% of the answers wrong. ",
            e->chosen_on ? "The method has chosen on the" : "Nothing can be promised by", s->n,
            rows, 100 * s->max_risk);
    else
        kh_buf_printf(b,
            "<h3>Abstaining</h3>\n<p>%s: of the answers given, at most %g&nbsp;%% wrong, with "
            "probability %g&nbsp;%%. ",
            s->n_accepted > 0 ? "Promised" : "Wanted", 100 * s->max_risk, 100 * (1 - s->delta));
    if (s->n_accepted == 0) {
        kh_buf_printf(b,
            "The %d rows cannot show it, so it would abstain always; it takes at least %d "
            "answers, all right.</p>\n",
            s->n, s->n_needed);
        return;
    }
    kh_buf_printf(b, "Chosen on %d %s rows: answer %s", s->n, rows,
        isinf(s->threshold) ? "always" : "where ");
    if (!isinf(s->threshold))
        kh_buf_printf(b, "%s is below %.4g",
            e->decisions.opts.score == KH_SCORE_MAXP ? "1 − max p" : "the entropy", s->threshold);
    kh_buf_printf(b,
        " (%d wrong of %d there). To expect: %.1f&nbsp;%% of rows answered, %.1f to %.1f. ",
        s->n_wrong, s->n_accepted, 100 * s->coverage, 100 * s->coverage_low,
        100 * s->coverage_high);
    kh_buf_printf(b, "On these rows: <strong>%.1f&nbsp;%% answered, ", 100 * e->coverage);
    if (isnan(e->risk))
        kh_buf_text(b, "so no risk to speak of</strong>.</p>\n");
    else
        kh_buf_printf(b, "%.1f&nbsp;%% of the answers wrong</strong>.</p>\n", 100 * e->risk);
}

static void put_conformal(kh_buf *b, const kh_eval *e) {
    const kh_conformal *c = &e->decisions.conformal;
    kh_buf_printf(b,
        "<h3>Sets of classes</h3>\n<p>Wanted: sets that hold the true class in %g&nbsp;%%%s. The "
        "%d %s rows can promise %.1f&nbsp;%% at best%s. ",
        100 * (1 - c->alpha), c->per_class ? " within every class" : "", c->start[c->n_label],
        rows_by(e), 100 * (1 - c->min_alpha),
        c->alpha < c->min_alpha
            ? ", too little for it: sets of all classes are given where rows are too few"
            : "");
    if (c->n_map > 0)
        kh_buf_printf(b,
            "The same rows have calibrated the classifier, and none is lost to a split: certain is "
            "%.1f&nbsp;%% (jackknife+), usual the share that was wanted. ",
            100 * kh_conformal_promise(c));
    kh_buf_printf(b,
        "On these rows: <strong>%.1f&nbsp;%% hold it</strong>, with %.2f classes on average; "
        "%.1f&nbsp;%% are empty.</p>\n",
        100 * e->covered, e->set_size, 100 * e->empty);
}

static int put_answering(kh_buf *b, kh_page *g, kh_err *err) {
    const kh_eval *e = g->eval;
    put_section(b, "answering", "When to answer");
    kh_buf_text(b, "<div class=\"pair\">\n");
    int rc = kh_figure_risk(g, b, err);
    kh_buf_text(b, "<div>\n");
    if (!e->decided) {
        kh_buf_text(b, "<p>No decisions: they are made on dev rows, and there are none (");
        put_foreign(b, e->why);
        kh_buf_text(b, ").</p>\n");
    }
    if (e->decided && e->decisions.opts.max_risk > 0)
        put_selector(b, e);
    if (e->decided && e->decisions.opts.alpha > 0)
        put_conformal(b, e);
    if (e->decided && e->decisions.opts.alpha > 0 && e->chosen_on)
        kh_buf_text(b,
            "<p class=\"dim\">The dev rows also chose among candidates when tuning, so sets fitted "
            "on them are a little optimistic.</p>\n");
    kh_buf_text(b, "</div>\n</div>\n");
    end_section(b);
    return rc;
}

/* ----------------------------------------------------------------------------------- elsewhere */

static void put_caught(kh_buf *b, const kh_eval *e, const kh_ood_rows *o) {
    if (e->decided && isfinite(e->decisions.ood))
        kh_buf_printf(b,
            "<p>The threshold on %s that lets %g&nbsp;%% of its own texts pass, chosen on %d "
            "rows, calls <strong>%.1f&nbsp;%%</strong> of these out-of-distribution, and "
            "%.1f&nbsp;%% of its own.</p>\n",
            SCORE[e->decisions.opts.foreign], 100 * e->decisions.opts.keep, e->n_ood,
            100 * o->flagged, 100 * e->flagged);
}

static void put_outside_table(kh_buf *b, const kh_eval *e, const kh_ood_rows *o) {
    int last = last_score(e);
    static const char *const CAPTION[2][2] = {
        { "Told apart by 1 − max p and by entropy",
            "Told apart by 1 − max p, entropy and distance" },
        { "Told apart by 1 − max p, entropy and energy",
            "Told apart by 1 − max p, entropy, energy and distance" },
    };
    open_table(b, NULL,
        e->known[KH_SCORE_BOTH]
            ? "Told apart by 1 − max p, entropy, energy, distance, and both of these as one"
            : CAPTION[e->known[KH_SCORE_ENERGY]][e->known[KH_SCORE_DISTANCE]]);
    kh_buf_text(b, "<thead><tr><th scope=\"col\">metric</th>");
    for (int s = 0; s <= last; s++)
        if (e->known[s])
            kh_buf_printf(b, "<th scope=\"col\" class=\"n\">%s</th>",
                s == KH_SCORE_BOTH ? "both" : SCORE[s]); /* its name is too long for a column */
    if (has_intervals(e))
        kh_buf_printf(b, "<th scope=\"col\" class=\"n\">%g&nbsp;%% interval</th>",
            100 * e->o->bootstrap.level);
    kh_buf_text(b, "</tr></thead>\n<tbody>\n");
    for (int i = 0; kh_ood_name(i); i++) {
        int columns = 1 + has_intervals(e);
        open_explained(b, kh_ood_name(i));
        for (int s = 0; s <= last; s++) {
            if (!e->known[s])
                continue;
            kh_buf_text(b, "<td class=\"n\">");
            put_value(b, kh_ood_value(&o->value[s], i));
            kh_buf_text(b, "</td>");
            columns++;
        }
        if (has_intervals(e))
            put_interval(b, kh_ood_value(&o->low[last], i), kh_ood_value(&o->high[last], i));
        close_explained(b, columns, kh_ood_text(i), "");
    }
    close_table(b);
    if (has_intervals(e))
        kh_buf_printf(b, "<p class=\"dim\">The interval is that of %s.</p>\n", SCORE[last]);
}

static int put_elsewhere(kh_buf *b, kh_page *g, kh_err *err) {
    const kh_eval *e = g->eval;
    int rc = 0;
    if (e->n_outside == 0)
        return 0;
    put_section(b, "elsewhere", "Out-of-distribution texts");
    kh_buf_text(b,
        "<p>Rows of other kinds, in the template of their own task if they have one, with the "
        "label words of this one. "
        "A classifier that knows its limits is less certain of them.");
    if (e->known[KH_SCORE_DISTANCE])
        kh_buf_text(b,
            " Distance is that of the text to the nearest texts of tuning, by the features of a "
            "local encoder and by how finely their words are cut.");
    if (e->known[KH_SCORE_ENERGY])
        kh_buf_text(b,
            " 1 − max p and entropy are about how it divides its probability between the label "
            "words. Energy, "
            "−log&nbsp;∑&nbsp;exp of their logits, is about how much the model expects any of "
            "them, which "
            "normalising forgets.");
    if (e->known[KH_SCORE_BOTH])
        kh_buf_text(b,
            " Energy and distance as one score: each from the middle of the classifier's own rows "
            "in units of their spread, and of the two roughly the larger.");
    kh_buf_text(b, "</p>\n");
    for (int i = 0; i < e->n_outside && rc == 0; i++) {
        kh_buf_text(b, "<h3>");
        put_name(b, e->outside[i].rows.name);
        kh_buf_text(b, "</h3>\n<div class=\"pair\">\n");
        rc = kh_figure_outside(g, &e->outside[i], b, err);
        kh_buf_text(b, "<div>\n");
        put_caught(b, e, &e->outside[i]);
        put_outside_table(b, e, &e->outside[i]);
        kh_buf_text(b, "</div>\n</div>\n");
    }
    end_section(b);
    return rc;
}

/* ----------------------------------------------------------------------------------- confusion */

static void put_confusion(kh_buf *b, const kh_eval *e) {
    const kh_label *label = e->post->task->label;
    put_section(b, "confusion", "Confusion");
    open_table(b, "matrix", "Rows: the true class; columns: what was said");
    kh_buf_text(b, "<thead><tr><th scope=\"col\">true class</th>");
    for (int k = 0; k < e->n_label; k++) {
        kh_buf_text(b, "<th scope=\"col\">");
        put_name(b, label[k].name);
        kh_buf_text(b, "</th>");
    }
    kh_buf_text(b, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < e->n_label; i++) {
        const int *row = e->confusion + (size_t)i * (size_t)e->n_label;
        int total = 0;
        for (int k = 0; k < e->n_label; k++)
            total += row[k];
        kh_buf_text(b, "<tr><th scope=\"row\">");
        put_name(b, label[i].name);
        kh_buf_text(b, "</th>");
        for (int k = 0; k < e->n_label; k++)
            kh_buf_printf(b, "<td%s style=\"background:rgba(var(--tint),%.2f)\">%d</td>",
                i == k ? " class=\"hit\"" : "", total ? 0.5 * row[k] / total : 0, row[k]);
        kh_buf_text(b, "</tr>\n");
    }
    close_table(b);
    end_section(b);
}

/* ---------------------------------------------------------------------------------------- rows */

/* Rows by how interesting they are, most first; equals in the order of the file. */
typedef struct ranked {
    double key;
    int row;
} ranked;

static int by_key(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    return x->row - y->row;
}

/* Classes by the weight of those who voted for them: up to SHOWN_CLASSES of them, in order[]. */
static int top_classes(const double *votes, const double *p, int n_label, int *order) {
    int n = 0;
    for (int want = 0; want < SHOWN_CLASSES && want < n_label; want++) {
        int best = -1;
        for (int k = 0; k < n_label; k++) {
            bool used = false;
            for (int i = 0; i < n; i++)
                used |= order[i] == k;
            if (!used &&
                (best < 0 || votes[k] > votes[best] || (votes[k] == votes[best] && p[k] > p[best])))
                best = k;
        }
        if (want > 1 && votes[best] <= 0 && p[best] < 0.01)
            break;
        order[n++] = best;
    }
    return n;
}

static void put_said(kh_buf *b, const kh_eval *e, int i) {
    const kh_label *label = e->post->task->label;
    const double *p = e->rows.p + (size_t)i * (size_t)e->n_label,
                 *votes = e->rows.votes + (size_t)i * (size_t)e->n_label;
    int order[SHOWN_CLASSES], n = top_classes(e->post->n > 1 ? votes : p, p, e->n_label, order),
                              said = kh_predicted(p, e->n_label);
    kh_decomposition parts = kh_judged_parts(&e->rows, i, e->n_label);
    kh_buf_text(b, "<p class=\"said\">says <b>");
    put_name(b, label[said].name);
    kh_buf_printf(b, "</b> with %.1f&nbsp;%%; %s <b>", 100 * p[said],
        said == e->label[i] ? "right, it is" : "wrong, it is");
    put_name(b, label[e->label[i]].name);
    kh_buf_printf(b, "</b>. Entropy %.3f", parts.total);
    if (!isnan(parts.ambiguity) && e->post->n > 1)
        kh_buf_printf(b, ", of which disagreement %.3f", parts.disagreement);
    kh_buf_text(b, e->post->n > 1 ? ". Votes of the prompts: " : ". ");
    for (int k = 0; k < n; k++) {
        put_name(b, label[order[k]].name);
        kh_buf_printf(b, " %.0f&nbsp;%%%s", 100 * (e->post->n > 1 ? votes[order[k]] : p[order[k]]),
            k + 1 < n ? ", " : "");
    }
    if (e->decided) {
        kh_decision d = kh_decide(&e->decisions, &e->rows.row[i], p,
            kh_judged_score(&e->rows, i, kh_eval_foreign(e), e->n_label), NULL);
        kh_buf_text(b, d.foreign ? "; called out-of-distribution" : "");
        kh_buf_text(
            b, d.unsure && e->decisions.selector.n_accepted > 0 ? "; it would abstain" : "");
    }
    kh_buf_printf(b, ". <span class=\"mono\">line %ld</span></p>\n", e->rows.row[i].line);
    kh_buf_text(b, "<div class=\"votes\" aria-hidden=\"true\">");
    for (int k = 0; k < n; k++) {
        double share = e->post->n > 1 ? votes[order[k]] : p[order[k]];
        kh_buf_printf(b, "<span style=\"width:%.1f%%\">", 100 * share);
        if (share >= LABELLED_SHARE)
            put_name(b, label[order[k]].name);
        kh_buf_text(b, "</span>");
    }
    kh_buf_text(b, "</div>\n");
}

static void put_row(kh_buf *b, const kh_eval *e, int i) {
    const kh_row *row = &e->rows.row[i];
    kh_buf_text(b, "<li>\n<p>");
    kh_html_foreign(b, row->a, row->n_a, SHOWN_CHARACTERS);
    if (row->b) {
        kh_buf_text(b, "</p>\n<p>");
        kh_html_foreign(b, row->b, row->n_b, SHOWN_CHARACTERS);
    }
    kh_buf_text(b, "</p>\n");
    put_said(b, e, i);
    kh_buf_text(b, "</li>\n");
}

static void put_list(
    kh_buf *b, const kh_eval *e, ranked *rank, int n, const char *title, const char *none) {
    kh_buf_printf(b, "<h3>%s</h3>\n", title);
    if (n == 0) {
        kh_buf_printf(b, "<p>%s</p>\n", none);
        return;
    }
    qsort(rank, (size_t)n, sizeof *rank, by_key);
    kh_buf_text(b, "<ol class=\"rows\">\n");
    for (int i = 0; i < n && i < SHOWN_ROWS; i++)
        put_row(b, e, rank[i].row);
    kh_buf_text(b, "</ol>\n");
}

static int put_rows(kh_buf *b, const kh_eval *e, kh_err *err) {
    ranked *rank = kh_malloc((size_t)e->rows.n * sizeof *rank);
    if (!rank)
        return kh_fail_memory(err);
    put_section(b, "rows", "Rows to look at");
    int n = 0;
    for (int i = 0; i < e->rows.n; i++) {
        const double *p = e->rows.p + (size_t)i * (size_t)e->n_label;
        int said = kh_predicted(p, e->n_label);
        if (said != e->label[i])
            rank[n++] = (ranked){ p[said], i };
    }
    put_list(b, e, rank, n, "Wrong, and most sure of it", "Nothing is wrong.");
    for (n = 0; n < e->rows.n; n++)
        rank[n] = (ranked){ kh_uncertainty(KH_SCORE_ENTROPY,
                                e->rows.p + (size_t)n * (size_t)e->n_label, e->n_label),
            n };
    put_list(b, e, rank, n, "Least certain", "");
    end_section(b);
    kh_free(rank);
    return 0;
}

/* -------------------------------------------------------------------------------- text prompts */

/* One prompt line by line, as it is pasted; its weight below it. */
static int put_text_prompt(kh_buf *b, const kh_posterior *p, int sample, kh_err *err) {
    const kh_text_prompt *t = &p->texts.prompt[sample];
    char *text;
    int rc = kh_posterior_text(p, sample, &text, err);
    kh_buf_text(b, "<li>");
    for (const char *at = rc == 0 ? text : ""; *at;) {
        size_t n = strcspn(at, "\n");
        kh_buf_text(b, "<p>");
        kh_html_foreign(b, at, n, SHOWN_CHARACTERS);
        kh_buf_text(b, "</p>\n");
        at += n + (at[n] == '\n');
    }
    kh_buf_printf(
        b, "<p class=\"said\">weight <b>%.1f&nbsp;%%</b>", 100 * (double)p->weight[sample]);
    kh_buf_printf(b, ", %s, ", *t->instruction ? "with an instruction" : "no instruction");
    if (t->n_demo > 0)
        kh_buf_printf(b, "%d example%s shown</p></li>\n", t->n_demo, t->n_demo == 1 ? "" : "s");
    else
        kh_buf_text(b, "no example shown</p></li>\n");
    kh_text_free(text);
    return rc;
}

static int put_texts(kh_buf *b, const kh_posterior *p, kh_err *err) {
    if (p->texts.n == 0)
        return 0;
    int *order = kh_calloc((size_t)p->n, sizeof *order), rc = order ? 0 : kh_fail_memory(err);
    int shown = p->n < SHOWN_PROMPTS ? p->n : SHOWN_PROMPTS;
    double sum = 0;
    if (rc == 0)
        kh_posterior_by_weight(p, order);
    for (int i = 0; i < shown && rc == 0; i++)
        sum += (double)p->weight[order[i]];
    put_section(b, "prompts", "Prompts that carry the weight");
    kh_buf_printf(b,
        "<p>Every text is asked with %s, and %s. The %s, word by word as the model gets "
        "%s:</p>\n",
        p->n == 1 ? "one prompt" : "several prompts",
        p->access == KH_ACCESS_LABELS ? "each answer is a vote that counts by the prompt's weight"
                                      : "the answers are averaged by the prompts' weights",
        p->n == 1 ? "prompt" : "heaviest of them", p->n == 1 ? "it" : "them");
    if (p->n > 1)
        kh_buf_printf(b,
            "<p>%d of %d prompts are shown; together they have %.0f&nbsp;%% of the "
            "weight.</p>\n",
            shown, p->n, 100 * sum);
    kh_buf_text(b, "<ol class=\"rows\">\n");
    for (int i = 0; i < shown && rc == 0; i++)
        rc = put_text_prompt(b, p, order[i], err);
    kh_buf_text(b, "</ol>\n");
    end_section(b);
    kh_free(order);
    return rc;
}

/* ------------------------------------------------------------------------------------- the run */

/* First, middle and last lines of the log, all of its keys. */
static void put_log_table(kh_buf *b, const kh_runlog *l) {
    if (l->n == 0) {
        kh_buf_text(b, "<p>The run left no log.</p>\n");
        return;
    }
    int line[] = { 0, l->n / 4, l->n / 2, (int)(3 * (long long)l->n / 4), l->n - 1 };
    open_table(b, NULL, "From the log of the run");
    kh_buf_text(b, "<thead><tr>");
    for (int k = 0; k < l->n_key; k++) {
        if (kh_runlog_count(l, k) == 0) /* words, as the name of a method */
            continue;
        kh_buf_text(b, "<th scope=\"col\" class=\"n\">");
        kh_html_text(b, l->key[k], strlen(l->key[k]));
        kh_buf_text(b, "</th>");
    }
    kh_buf_text(b, "</tr></thead>\n<tbody>\n");
    for (int i = 0; i < 5; i++) {
        if (i > 0 && line[i] <= line[i - 1])
            continue;
        kh_buf_text(b, "<tr>");
        for (int k = 0; k < l->n_key; k++) {
            double x = kh_runlog_at(l, line[i], k);
            if (kh_runlog_count(l, k) == 0)
                continue;
            if (isnan(x))
                kh_buf_text(b, "<td class=\"n dim\">–</td>");
            else
                kh_buf_printf(b, "<td class=\"n\">%.7g</td>", x);
        }
        kh_buf_text(b, "</tr>\n");
    }
    close_table(b);
}

/* What auto has tried, from the posterior's array without its brackets. */
static int put_tried(kh_buf *b, const kh_posterior *p, kh_err *err) {
    kh_buf text = kh_buf_init(1 << 20);
    json_t *list, *row;
    size_t i;
    kh_buf_printf(&text, "[%s]", p->tried);
    int rc = kh_buf_failed(&text) ? kh_fail_memory(err)
                                  : kh_json_parse(text.data, text.len, "tried", &list, err);
    kh_buf_free(&text);
    if (rc != 0)
        return rc;
    open_table(b, NULL, "What was tried");
    kh_buf_text(b,
        "<thead><tr><th scope=\"col\">method</th><th scope=\"col\" class=\"n\">score</th>"
        "<th scope=\"col\" class=\"n\">dev</th><th scope=\"col\" class=\"n\">questions</th>"
        "</tr></thead>\n<tbody>\n");
    json_array_foreach(list, i, row) {
        const char *name = json_string_value(json_object_get(row, "method"));
        kh_buf_text(b, "<tr><th scope=\"row\">");
        put_foreign(b, name ? name : "?");
        kh_buf_printf(b,
            "</th><td class=\"n\">%.4f</td><td class=\"n\">%.4f</td><td "
            "class=\"n\">%lld</td></tr>\n",
            json_number_value(json_object_get(row, "score")),
            json_number_value(json_object_get(row, "dev")),
            (long long)json_integer_value(json_object_get(row, "queries")));
    }
    close_table(b);
    kh_buf_text(b,
        "<p class=\"dim\">Score: the mean of −log p of labelled rows, each by a classifier that "
        "had "
        "not learned from it; less is better.</p>\n");
    json_decref(list);
    return 0;
}

static int put_run(kh_buf *b, kh_page *g, kh_err *err) {
    const kh_posterior *p = g->eval->post;
    put_section(b, "run", "The run");
    kh_buf_printf(b,
        "<p>%lld questions to the model while tuning, %lld of them on dev rows; %d prompt%s in the "
        "posterior. It stopped because: ",
        p->train_queries + p->dev_queries, p->dev_queries, p->n, p->n == 1 ? "" : "s");
    put_foreign(b, p->stopped ? p->stopped : "not known");
    kh_buf_text(b, ".</p>\n");
    int rc = p->tried ? put_tried(b, p, err) : 0;
    kh_buf_text(b, "<div class=\"pair\">\n");
    if (rc == 0)
        rc = kh_figure_log(g, b, err);
    if (rc == 0)
        rc = kh_figure_plane(g, b, err);
    kh_buf_text(b, "</div>\n");
    put_log_table(b, g->log);
    if (!g->eval->xy)
        kh_buf_printf(b, "<p class=\"dim\">No picture of the posterior: %s.</p>\n",
            p->soft ? "it is a single prompt" : "it has no soft prompts");
    end_section(b);
    return rc;
}

/* -------------------------------------------------------------------------- behind the numbers */

static void put_fact(kh_buf *b, const char *name, const char *value) {
    kh_buf_text(b, "<tr><th scope=\"row\">");
    kh_html_text(b, name, strlen(name));
    kh_buf_text(b, "</th><td class=\"wide\">");
    put_foreign(b, value ? value : "not known");
    kh_buf_text(b, "</td></tr>\n");
}

static void put_fact_number(kh_buf *b, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put_fact_number(kh_buf *b, const char *name, const char *fmt, ...) {
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_fact(b, name, text);
}

/* Every option of a JSON object. */
static int put_options(kh_buf *b, const char *json, kh_err *err) {
    json_t *root, *value;
    const char *key;
    int rc = kh_json_parse(json, strlen(json), "options", &root, err);
    if (rc != 0)
        return rc;
    json_object_foreach(root, key, value) {
        char *text = json_is_string(value)
            ? NULL
            : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        const char *plain = json_is_string(value) ? json_string_value(value) : text;
        put_fact(b, key, json_is_null(value) ? "–" : plain);
        free(text);
    }
    json_decref(root);
    return 0;
}

static void open_facts(kh_buf *b, const char *label) {
    open_table(b, NULL, label);
    kh_buf_text(b,
        "<thead><tr><th scope=\"col\">what</th><th "
        "scope=\"col\">value</th></tr></thead>\n<tbody>\n");
}

static int put_behind(kh_buf *b, const kh_page *g, kh_err *err) {
    const kh_eval *e = g->eval;
    const kh_posterior *p = e->post;
    put_section(b, "behind", "Behind the numbers");
    open_facts(b, "What was judged, and where it came from");
    put_fact(b, "run", g->run);
    put_fact(b, "judged by keyhole", kh_version());
    put_fact(b, "tuned by keyhole", p->version);
    put_fact(b, "model", p->model);
    put_fact_number(b, "fingerprint of weights and tokenizer", "%016" PRIx64 ", %016" PRIx64,
        p->fingerprint, p->tokenizer);
    put_fact_number(b, "tuned on", "%s, %s, %s", p->backend ? p->backend : "?",
        p->precision ? p->precision : "?", p->kernels ? p->kernels : "?");
    put_fact_number(b, "judged on", "%s, %s, %s", e->box.backend, e->box.precision, e->box.kernels);
    put_fact(b, "task", p->task->name);
    put_fact(b, "template", p->soft ? p->task->soft : p->task->plain);
    put_fact(b, "method", p->method);
    put_fact(b, "what the model lets out", kh_access_name(p->access));
    put_fact_number(b, "seed", "%" PRIu64, p->seed);
    put_fact(b, "as the published code", p->paper_exact ? "yes" : "no");
    put_fact(b, "data of tuning", p->data);
    if (p->shots > 0)
        put_fact_number(b, "rows of tuning", "%d for train, %d for dev; %d of each class",
            p->train_rows, p->dev_rows, p->shots);
    else
        put_fact_number(
            b, "rows of tuning", "%d for train, %d for dev", p->train_rows, p->dev_rows);
    put_fact_number(
        b, "metric on dev when tuned", "%s %.4f", kh_metric_name(p->task->metric), p->dev);
    put_fact(b, "judged rows", kh_dataset_path(e->rows.data));
    put_fact_number(b, "rows judged", "%d of %d", e->rows.n, e->rows.of);
    for (int i = 0; i < e->n_outside; i++) {
        put_fact(b, "rows from elsewhere", kh_dataset_path(e->outside[i].rows.data));
        put_fact_number(
            b, "how many of them", "%d of %d", e->outside[i].rows.n, e->outside[i].rows.of);
    }
    put_fact_number(b, "questions to judge", "%lld", e->queries);
    close_table(b);
    int rc = 0;
    if (p->options && strcmp(p->options, "{}") != 0) {
        open_facts(b, "Options of the method");
        rc = put_options(b, p->options, err);
        close_table(b);
    }
    if (rc == 0) {
        open_facts(b, "Options of the evaluation");
        rc = put_options(b, g->options, err);
        close_table(b);
    }
    end_section(b);
    return rc;
}

int kh_page_write(kh_page *g, kh_buf *b, kh_err *err) {
    put_top(b, g);
    int rc = put_calibration(b, g, err);
    if (rc == 0)
        rc = put_answering(b, g, err);
    if (rc == 0)
        rc = put_elsewhere(b, g, err);
    if (rc == 0)
        put_confusion(b, g->eval);
    if (rc == 0)
        rc = put_rows(b, g->eval, err);
    if (rc == 0)
        rc = put_texts(b, g->eval->post, err);
    if (rc == 0)
        put_numbers(b, g->eval);
    if (rc == 0)
        rc = put_run(b, g, err);
    if (rc == 0)
        rc = put_behind(b, g, err);
    kh_buf_printf(b,
        "</main>\n<footer>\n<p>Made by keyhole %s. The equations of all numbers are in "
        "doc/judging.md; the same numbers for "
        "programs "
        "in results.json.</p>\n</footer>\n</body>\n</html>\n",
        kh_version());
    return rc == 0 && kh_buf_failed(b) ? kh_fail_memory(err) : rc;
}
