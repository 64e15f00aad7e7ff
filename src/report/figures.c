/* figures.c - the plots of the report: a script for gnuplot each, made of numbers and words of our
 * own. Names from data stand in the captions, which are HTML. */
#include "report/page.h"

#include "base/clamp.h"
#include "base/err.h"
#include "posterior/posterior.h"
#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CURVE_POINTS = 400, HISTOGRAM_BINS = 25, LOG_POINTS = 1000 };

/* Puts the plot, its caption and the <figure> around them. */
static int put_figure(kh_page *g, const kh_buf *script, const char *title, const char *desc,
    const kh_buf *caption, kh_buf *out, kh_err *err) {
    kh_buf_text(out, "<figure>\n");
    int rc = kh_plot_svg(&g->plotter, script, title, desc, out, err);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        kh_buf_printf(out, "<p class=\"missing\">%s: no plot, because ", title);
        kh_html_text(out, g->plotter.why, strlen(g->plotter.why));
        kh_buf_text(out, ".</p>\n");
    }
    kh_buf_printf(out, "<figcaption><strong>%s.</strong> ", title);
    kh_buf_bytes(out, caption->data, caption->len);
    kh_buf_text(out, "</figcaption>\n</figure>\n");
    return kh_buf_failed(caption) ? kh_fail_memory(err) : 0;
}

/* One figure from its parts, which are used up. */
static int finish(kh_page *g, kh_buf *script, const char *title, const char *desc, kh_buf *caption,
    kh_buf *out, kh_err *err) {
    int rc = put_figure(g, script, title, desc, caption, out, err);
    kh_buf_free(script);
    kh_buf_free(caption);
    return rc;
}

/* --------------------------------------------------------------------------------- calibration */

int kh_figure_reliability(kh_page *g, kh_buf *out, kh_err *err) {
    const kh_eval *e = g->eval;
    kh_buf s = kh_buf_init(1 << 20), caption = kh_buf_init(1 << 16);
    double low = e->bin[0].low, width = e->bin[0].high - e->bin[0].low;
    kh_buf_text(&s, "$bins << EOD\n");
    for (int b = 0; b < KH_BINS; b++)
        if (e->bin[b].n > 0)
            kh_buf_printf(&s, "%.6f %.6f %.6f %.4f\n", (e->bin[b].low + e->bin[b].high) / 2,
                e->bin[b].accuracy, e->bin[b].confidence,
                0.35 + 1.4 * sqrt((double)e->bin[b].n / e->rows.n));
    kh_buf_printf(&s,
        "EOD\nset xrange [%g:1]\nset yrange [0:1]\nset xlabel 'confidence'\nset ylabel 'accuracy'\n"
        "set style fill transparent solid 0.25 noborder\n"
        "plot $bins using 1:2:(%.6f) with boxes lc " KH_PLOT_FIRST " title 'accuracy in the bin', "
        "x with lines lw 1.5 dt 2 lc " KH_PLOT_MUTED " title 'as sure as right', "
        "$bins using 3:2:4 with points pt 7 ps variable lc " KH_PLOT_FIRST " notitle\n",
        low, width * 0.94);
    kh_buf_text(&caption,
        "On the dashed line a classifier is as often right as it claims; below it, it claims too "
        "much. "
        "Points stand at the mean confidence of a bin; the larger, the more rows.");
    return finish(g, &s, "Reliability",
        "Accuracy against confidence in ten bins; the numbers are in the table below.", &caption,
        out, err);
}

/* ----------------------------------------------------------------------------------- answering */

static void put_curve(kh_buf *s, const char *name, const kh_curve_point *point, int n) {
    int step = n > CURVE_POINTS ? n / CURVE_POINTS + 1 : 1;
    kh_buf_printf(s, "$%s << EOD\n", name);
    for (int i = 0; i < n; i = i + 1 < n && i + step >= n ? n - 1 : i + step)
        kh_buf_printf(s, "%.6f %.6f\n", point[i].coverage, point[i].risk);
    kh_buf_text(s, "EOD\n");
}

int kh_figure_risk(kh_page *g, kh_buf *out, kh_err *err) {
    const kh_eval *e = g->eval;
    kh_buf s = kh_buf_init(1 << 22), caption = kh_buf_init(1 << 16);
    bool line = e->decided && isfinite(e->coverage) && e->coverage > 0;
    put_curve(&s, "maxp", e->point[KH_SCORE_MAXP], e->n_point[KH_SCORE_MAXP]);
    put_curve(&s, "entropy", e->point[KH_SCORE_ENTROPY], e->n_point[KH_SCORE_ENTROPY]);
    if (line)
        kh_buf_printf(&s,
            "set arrow from %.6f, graph 0 to %.6f, graph 1 nohead lw 1.5 dt 3 lc " KH_PLOT_SECOND
            "\n",
            e->coverage, e->coverage);
    kh_buf_printf(&s,
        "set xrange [0:1]\nset yrange [0:*]\nset xlabel 'coverage: share of rows answered'\nset "
        "ylabel 'risk: share of them "
        "wrong'\n"
        "set samples 400\n"
        "plot $maxp using 1:2 with lines lw 2 lc " KH_PLOT_FIRST " title 'most confident first'%s, "
        "x > %.9f ? (x - %.9f) / x : 0 with lines lw 1.5 dt 2 lc " KH_PLOT_MUTED
        " title 'by an oracle'%s\n",
        e->n_label > 2 ? ", $entropy using 1:2 with lines lw 1.5 lc " KH_PLOT_SECOND
                         " title 'lowest entropy first'"
                       : "",
        e->m.accuracy, e->m.accuracy,
        line ? ", NaN with lines lw 1.5 dt 3 lc " KH_PLOT_SECOND " title 'chosen coverage'" : "");
    kh_buf_text(&caption,
        "What is gained by leaving the least certain rows unanswered: the lower the curve on its "
        "left, the better the "
        "classifier knows where it errs. An oracle would answer all right rows first.");
    return finish(g, &s, "Risk against coverage",
        "Share of wrong answers among the rows answered, most certain rows first.", &caption, out,
        err);
}

/* ----------------------------------------------------------------------------------- elsewhere */

typedef struct range {
    double low, high;
} range;

/* Of the scores of p all that are possible; energies have no bounds. */
static range range_of(const kh_eval *e, const kh_ood_rows *o, kh_score score) {
    range r = { 0, score == KH_SCORE_MAXP ? 1 - 1.0 / e->n_label : log(e->n_label) };
    if (score <= KH_SCORE_ENTROPY)
        return r;
    r = (range){ INFINITY, -INFINITY };
    const kh_judged *both[] = { &e->rows, &o->rows };
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < both[k]->n; i++) {
            double u = kh_judged_score(both[k], i, score, e->n_label);
            r.low = fmin(r.low, u);
            r.high = fmax(r.high, u);
        }
    return r.high > r.low ? r : (range){ r.low - 0.5, r.low + 0.5 };
}

static void put_histogram(
    kh_buf *s, const char *name, const kh_judged *j, const kh_eval *e, kh_score score, range r) {
    int count[HISTOGRAM_BINS] = { 0 };
    double width = (r.high - r.low) / HISTOGRAM_BINS;
    for (int i = 0; i < j->n; i++) {
        int at = (int)((kh_judged_score(j, i, score, e->n_label) - r.low) / width);
        count[kh_clamp_int(at, 0, HISTOGRAM_BINS - 1)]++;
    }
    kh_buf_printf(s, "$%s << EOD\n", name);
    for (int b = 0; b < HISTOGRAM_BINS; b++)
        kh_buf_printf(s, "%.6f %.6f\n", r.low + (b + 0.5) * width, (double)count[b] / j->n);
    kh_buf_text(s, "EOD\n");
}

int kh_figure_outside(kh_page *g, const kh_ood_rows *o, kh_buf *out, kh_err *err) {
    const kh_eval *e = g->eval;
    static const char *const AXIS[KH_N_SCORE] = { "uncertainty: 1 - max p",
        "uncertainty: entropy in nats", "energy: -log sum exp of the label logits",
        "distance to the texts of tuning", "energy and distance, in spreads of its own rows" };
    kh_score score = kh_eval_foreign(e);
    range r = range_of(e, o, score);
    kh_buf s = kh_buf_init(1 << 20), caption = kh_buf_init(1 << 16);
    put_histogram(&s, "inside", &e->rows, e, score, r);
    put_histogram(&s, "outside", &o->rows, e, score, r);
    bool line = e->decided && isfinite(e->decisions.ood);
    if (line)
        kh_buf_printf(&s,
            "set arrow from %.6f, graph 0 to %.6f, graph 1 nohead lw 1.5 dt 3 lc " KH_PLOT_MUTED
            "\n",
            e->decisions.ood, e->decisions.ood);
    kh_buf_printf(&s,
        "set xrange [%.6f:%.6f]\nset yrange [0:*]\nset xlabel '%s'\nset ylabel 'share of rows'\n"
        "set style fill transparent solid 0.4 noborder\nset boxwidth %.6f\n"
        "plot $inside using 1:2 with boxes lc " KH_PLOT_FIRST " title 'its own texts', "
        "$outside using 1:2 with boxes lc " KH_PLOT_SECOND " title 'out-of-distribution'%s\n",
        r.low, r.high, AXIS[score], (r.high - r.low) / HISTOGRAM_BINS * 0.96,
        line ? ", NaN with lines lw 1.5 dt 3 lc " KH_PLOT_MUTED " title 'threshold'" : "");
    kh_buf_printf(&caption, "%d rows of ", o->rows.n);
    kh_html_foreign(&caption, o->rows.name, strlen(o->rows.name), 80);
    kh_buf_printf(&caption,
        " beside %d of its own. Texts that are none of its business should be the %s ones, to the "
        "right.",
        e->rows.n, score > KH_SCORE_ENTROPY ? "less expected" : "less certain");
    return finish(g, &s, "Uncertainty in and out of distribution",
        "Histograms of the uncertainty of rows of the task and of out-of-distribution rows.",
        &caption, out, err);
}

/* ------------------------------------------------------------------------------------- the run */

/* What a log may hold, in the order of the report. */
static const struct series {
    const char *key[2], *label[2]; /* drawn together; the second may be NULL */
    const char *title, *axis, *caption;
} SERIES[] = {
    { { "loss", "best" }, { "of the generation", "best so far" }, "Loss", "loss on train",
        "The loss on the train rows, by generations or epochs." },
    { { "dev", NULL }, { "dev", NULL }, "Choice on dev", "metric on dev",
        "What the dev rows say of the candidates, by which the result was chosen." },
    { { "eps", NULL }, { "tolerance", NULL }, "Tolerance", "tolerance",
        "The error that a sample may make to be accepted." },
    { { "acceptance", NULL }, { "acceptance", NULL }, "Acceptance", "share accepted",
        "Share of proposed samples that were accepted." },
    { { "rate", NULL }, { "acceptance", NULL }, "Acceptance", "share accepted",
        "Share of proposed samples that were accepted." },
    { { "train", "valid" }, { "train", "held out" }, "Loss of the flow", "loss",
        "The loss of the density estimator, round by round." },
    { { "ess", NULL }, { "effective samples", NULL }, "Effective sample size", "samples",
        "How many equally weighted samples the weighted ones are worth." },
};

/* Whether the line belongs to another search than the one before: generations begin again, or auto
 * says what a method has come to. */
static bool is_apart(const kh_runlog *l, int line) {
    int gen = kh_runlog_find(l, "gen"), score = kh_runlog_find(l, "score");
    return kh_runlog_at(l, line, gen) < kh_runlog_at(l, line - 1, gen) ||
        !isnan(kh_runlog_at(l, line, score)) || !isnan(kh_runlog_at(l, line - 1, score));
}

/* The lines that have the number, members and searches apart, thinned. */
static void put_series(kh_buf *s, const kh_runlog *l, int name, int column, int x, double unit) {
    int member = kh_runlog_find(l, "member"), step = l->n > LOG_POINTS ? l->n / LOG_POINTS + 1 : 1;
    double last = NAN, before = -INFINITY;
    bool apart = false;
    kh_buf_printf(s, "$s%d << EOD\n", name);
    for (int i = 0; i < l->n; i++) {
        double y = kh_runlog_at(l, i, column), at = x < 0 ? i + 1 : kh_runlog_at(l, i, x),
               m = kh_runlog_at(l, i, member);
        apart |= i > 0 && is_apart(l, i);
        if (isnan(y) || isnan(at) || (i % step && i + 1 < l->n))
            continue;
        bool back = at < before; /* auto: the next method's epochs */
        if ((!isnan(last) && m != last) || back || apart)
            kh_buf_text(s, "\n");
        apart = false;
        last = m;
        before = at;
        kh_buf_printf(s, "%.9g %.9g\n", at / unit, y);
    }
    kh_buf_text(s, "EOD\n");
}

static double largest(const kh_runlog *l, int column) {
    double max = 0;
    for (int i = 0; i < l->n; i++)
        max = kh_runlog_at(l, i, column) > max ? kh_runlog_at(l, i, column) : max;
    return max;
}

/* Methods that descend ask nothing between their looks at dev, or nothing at all: their lines would
 * stand above each other, and epochs tell them apart. */
static bool asks_while_learning(const kh_runlog *l, int queries) {
    int moved = 0;
    for (int i = 1; i < l->n; i++)
        moved += kh_runlog_at(l, i, queries) > kh_runlog_at(l, i - 1, queries);
    return l->n < 2 || 2 * moved >= l->n - 1;
}

static const char *axis_of(bool asks, bool thousands) {
    if (!asks)
        return "epochs";
    return thousands ? "queries, in thousands" : "queries";
}

static int put_log(kh_page *g, const struct series *what, kh_buf *out, kh_err *err) {
    const kh_runlog *l = g->log;
    int x = kh_runlog_find(l, "queries"), column[2], n = 0;
    bool asks = x >= 0 && asks_while_learning(l, x);
    x = asks ? x : kh_runlog_find(l, "gen");
    bool thousands = asks && largest(l, x) >= 10000;
    kh_buf s = kh_buf_init(1 << 24), caption = kh_buf_init(1 << 16), plot = kh_buf_init(1 << 12);
    static const char *const COLOUR[] = { KH_PLOT_FIRST, KH_PLOT_SECOND };
    for (int i = 0; i < 2 && what->key[i]; i++)
        if ((column[n] = kh_runlog_find(l, what->key[i])) >= 0 &&
            kh_runlog_count(l, column[n]) > 0) {
            bool few = kh_runlog_count(l, column[n]) < 40;
            put_series(&s, l, n, column[n], x, thousands ? 1000 : 1);
            kh_buf_printf(&plot, "%s $s%d using 1:2 with %s lw %s lc %s %s '%s'", n ? "," : "plot",
                n, few ? "linespoints pt 7 ps 0.4" : "lines", i ? "2" : "1.5", COLOUR[i], "title",
                what->label[i]);
            n++;
        }
    kh_buf_printf(&s,
        "set xlabel '%s'\nset ylabel '%s'\nset key %s\nset offsets 0, 0, graph 0.08, graph 0.05\n",
        axis_of(asks, thousands), what->axis, what->key[1] ? "on" : "off");
    kh_buf_bytes(&s, plot.data, plot.len);
    kh_buf_char(&s, '\n');
    kh_buf_text(&caption, what->caption);
    s.failed |= kh_buf_failed(&plot);
    kh_buf_free(&plot);
    if (n == 0) {
        kh_buf_free(&s);
        kh_buf_free(&caption);
        return 0;
    }
    return finish(g, &s, what->title, what->caption, &caption, out, err);
}

int kh_figure_log(kh_page *g, kh_buf *out, kh_err *err) {
    int rc = 0;
    for (size_t i = 0; i < sizeof SERIES / sizeof SERIES[0] && rc == 0; i++)
        rc = put_log(g, &SERIES[i], out, err);
    return rc;
}

int kh_figure_plane(kh_page *g, kh_buf *out, kh_err *err) {
    const kh_eval *e = g->eval;
    if (!e->xy)
        return 0;
    kh_buf s = kh_buf_init(1 << 22), caption = kh_buf_init(1 << 16);
    double heaviest = 0;
    for (int i = 0; i < e->n_xy; i++)
        heaviest = (double)e->post->weight[i] > heaviest ? (double)e->post->weight[i] : heaviest;
    kh_buf_text(&s, "$samples << EOD\n");
    for (int i = 0; i < e->n_xy; i++)
        kh_buf_printf(&s, "%.9g %.9g %.4f\n", e->xy[2 * i], e->xy[2 * i + 1],
            0.2 + 0.5 * sqrt((double)e->post->weight[i] / heaviest));
    kh_buf_printf(&s,
        "EOD\nset xlabel 'first direction: %.0f %% of the variance'\nset ylabel 'second: %.0f "
        "%%'\nset key off\n"
        "set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05\nset xzeroaxis lc " KH_PLOT_GRID
        "\nset yzeroaxis lc " KH_PLOT_GRID "\n"
        "plot $samples using 1:2:3 with points pt 7 ps variable lc " KH_PLOT_FIRST "\n",
        100 * e->share[0], 100 * e->share[1]);
    kh_buf_printf(&caption,
        "%s%d prompts of the posterior, projected from %s onto the two directions in which they "
        "differ most; "
        "the larger a point, the more weight its prompt has.",
        e->n_xy < e->post->n ? "The first " : "The ", e->n_xy,
        e->of_prompts ? "their soft prompts" : "z");
    return finish(g, &s, "The posterior",
        "Samples of the posterior on the plane of their first two principal components.", &caption,
        out, err);
}
