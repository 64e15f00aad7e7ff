/* cmd_eval.c - keyhole eval: a tuned classifier judged, its decisions fitted, a page about it
 * written. */
#include "judged.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "judge/decisions.h"
#include "plm/http.h"
#include "report/grid.h"
#include "report/page.h"
#include "report/results.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct eval_opts {
    kh_eval_opts e;
    const char *model, *out, *rows_out, *class_prior;
    int precision, score, foreign;
    bool report, json, all;
    kh_http_opts http;
} eval_opts;

static const kh_opt eval_table[] = {
    { "data", KH_OPT_TEXT, offsetof(eval_opts, e.data), .arg = "DIR|FILE",
        .help = "a data folder or a file with the rows to judge on; without it, that of tuning" },
    { "split", KH_OPT_CHOICE, offsetof(eval_opts, e.split), "test", .arg = "test|dev|train",
        .help = "which rows of it" },
    { "rows", KH_OPT_INT, offsetof(eval_opts, e.rows), "0", .min = 0, .max = 1e9, .arg = "N",
        .help = "judge on N rows drawn by --seed, of each set; 0: on all" },
    { "ood", KH_OPT_LIST, offsetof(eval_opts, e.ood), .arg = "DIR|FILE|NAME=DIR",
        .help = "out-of-distribution rows, labels ignored; with a task's NAME, in its template" },
    { "max-risk", KH_OPT_NUMBER, offsetof(eval_opts, e.decide.max_risk), "-1", .min = -1,
        .max = 0.999, .arg = "R",
        .help = "of the answers given at most R are wrong; 0: never abstain (tightest of 5, 10, "
                "20, 30 %)" },
    { "delta", KH_OPT_NUMBER, offsetof(eval_opts, e.decide.delta), "0.1", .min = 1e-9, .max = 0.999,
        .arg = "P", .help = "how probable it may be that --max-risk is missed" },
    { "alpha", KH_OPT_NUMBER, offsetof(eval_opts, e.decide.alpha), "0.1", .min = 0, .max = 0.999,
        .arg = "A",
        .help = "sets of classes that miss the true one with probability A at most; 0: none" },
    { "per-class", KH_OPT_FLAG, offsetof(eval_opts, e.decide.per_class),
        .help = "--alpha holds within every class" },
    { "keep", KH_OPT_NUMBER, offsetof(eval_opts, e.decide.keep), "0.95", .min = 0.001,
        .max = 0.9999, .arg = "P",
        .help = "share of its own texts that must not be called out-of-distribution" },
    { "score", KH_OPT_CHOICE, offsetof(eval_opts, score), "maxp", .arg = "maxp|entropy",
        .help = "what decides when to abstain: 1 - max p, or entropy" },
    { "ood-score", KH_OPT_CHOICE, offsetof(eval_opts, foreign), "both",
        .arg = "maxp|entropy|energy|distance|both",
        .help = "what decides what is out-of-distribution; distance: to the texts of tuning, where "
                "RUN has their features; energy: where the box shows logits; both: as one score "
                "where both are known, else the one that is; otherwise as --score",
        .old = "foreign-score" },
    { "bootstrap", KH_OPT_INT, offsetof(eval_opts, e.bootstrap.n_resample), "1000", .min = 0,
        .max = 1000000, .arg = "N", .help = "resamples for intervals; 0: none" },
    { "level", KH_OPT_NUMBER, offsetof(eval_opts, e.bootstrap.level), "0.95", .min = 0.5,
        .max = 0.9999, .arg = "P", .help = "of the intervals" },
    { "seed", KH_OPT_SEED, offsetof(eval_opts, e.seed), "0", .arg = "N",
        .help = "of --rows, the bootstrap and ties in conformal sets" },
    { "model", KH_OPT_TEXT, offsetof(eval_opts, model), .arg = "DIR|URL|builtin",
        .help = "where the model is now; without it, where it was when tuning" },
    CLI_CLASS_PRIOR_ROW(eval_opts),
    KH_HTTP_ROWS(eval_opts, http),
    { "precision", KH_OPT_CHOICE, offsetof(eval_opts, precision), "as-tuned",
        .arg = CLI_RUN_PRECISIONS, .help = "of the model" },
    { "out", KH_OPT_TEXT, offsetof(eval_opts, out), .arg = "DIR",
        .help = "where results.json and report.html go; without it, RUN" },
    { "rows-out", KH_OPT_TEXT, offsetof(eval_opts, rows_out), .arg = "FILE",
        .help = "every row with what was said of it, as JSONL" },
    { "compare", KH_OPT_FLAG, offsetof(eval_opts, e.compare), "true",
        .help = "ask the template alone, too, and warn where it does better" },
    { "all", KH_OPT_FLAG, offsetof(eval_opts, all),
        .help = "print every metric, not the first few" },
    { "report", KH_OPT_FLAG, offsetof(eval_opts, report), "true", .help = "write report.html" },
    { "json", KH_OPT_FLAG, offsetof(eval_opts, json),
        .help = "print results.json instead of tables" },
    { 0 },
};

/* ---------------------------------------------------------------------------------- for people */

static void add_number(kh_grid *t, double x) {
    if (isnan(x))
        kh_grid_add(t, "-");
    else
        kh_grid_add(t, "%.4f", x);
}

static void add_interval(kh_grid *t, const kh_eval *e, double low, double high) {
    if (e->o->bootstrap.n_resample == 0)
        return;
    if (isnan(low) || isnan(high))
        kh_grid_add(t, "-");
    else
        kh_grid_add(t, "%.4f to %.4f", low, high);
}

/* Those that are shown without --all. */
static bool is_first(const char *metric, int n_label) {
    if (strcmp(metric, "macro_f1") == 0)
        return n_label > 2;
    static const char *const FIRST[] = { "accuracy", "nll", "ece", "brier", "auroc_error" };
    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++)
        if (strcmp(metric, FIRST[i]) == 0)
            return true;
    return false;
}

static void put_metrics(const kh_eval *e, bool all, kh_buf *out) {
    bool interval = e->o->bootstrap.n_resample > 0;
    kh_grid t = { .n_col = interval ? 4 : 3, .n_left = 1 };
    kh_grid_add(&t, "metric");
    kh_grid_add(&t, "value");
    if (interval)
        kh_grid_add(&t, "%g %% interval", 100 * e->o->bootstrap.level);
    kh_grid_add(&t, "better");
    for (int i = 0; kh_metrics_name(i); i++) {
        static const char *const BETTER[] = { "less", "", "more" };
        if (!all && !is_first(kh_metrics_name(i), e->n_label))
            continue;
        kh_grid_add(&t, "%s", kh_metrics_name(i));
        add_number(&t, kh_metrics_value(&e->m, i));
        add_interval(&t, e, kh_metrics_value(&e->low, i), kh_metrics_value(&e->high, i));
        kh_grid_add(&t, "%s", BETTER[kh_metrics_better(i) + 1]);
    }
    kh_grid_put(&t, KH_GRID_TEXT, out);
    kh_grid_free(&t);
    if (!isnan(e->template_accuracy))
        kh_buf_printf(out, "  accuracy of the template alone %.4f\n", e->template_accuracy);
    for (int i = 0; kh_metrics_name(i); i++)
        if (!all && is_first(kh_metrics_name(i), e->n_label))
            kh_buf_printf(out, "  %s: %s\n", kh_metrics_name(i), kh_metrics_text(i));
    if (!all)
        kh_buf_text(out, "  --all prints the other metrics; doc/judging.md defines them\n");
    if (all && !isnan(e->disagreement))
        kh_buf_printf(out, "  entropy %.4f = ambiguity %.4f + disagreement between prompts %.4f\n",
            e->m.entropy, e->ambiguity, e->disagreement);
}

/* Without --all one metric of each score, which fits any terminal. */
static void put_outside(const kh_eval *e, const kh_ood_rows *o, bool all, kh_buf *out) {
    bool interval = all && e->o->bootstrap.n_resample > 0;
    kh_grid t = { .n_col = 1 + e->n_score * (interval ? 2 : 1), .n_left = 1 };
    kh_buf_printf(out, "\nagainst %d rows of %s", o->rows.n, o->rows.name);
    if (e->decided && isfinite(e->decisions.ood))
        kh_buf_printf(out, ": %.1f %% of them caught as out-of-distribution, %.1f %% of its own",
            100 * o->flagged, 100 * e->flagged);
    kh_buf_char(out, '\n');
    kh_grid_add(&t, "metric");
    for (int s = 0; s < KH_N_SCORE; s++) {
        if (!e->known[s])
            continue;
        kh_grid_add(&t, "%s", kh_score_title((kh_score)s));
        if (interval)
            kh_grid_add(&t, "%g %% interval", 100 * e->o->bootstrap.level);
    }
    for (int i = 0; kh_ood_name(i) && (all || i == 0); i++) {
        kh_grid_add(&t, "%s", kh_ood_name(i));
        for (int s = 0; s < KH_N_SCORE; s++) {
            if (!e->known[s])
                continue;
            add_number(&t, kh_ood_value(&o->value[s], i));
            if (interval)
                add_interval(&t, e, kh_ood_value(&o->low[s], i), kh_ood_value(&o->high[s], i));
        }
    }
    kh_grid_put(&t, KH_GRID_TEXT, out);
    kh_grid_free(&t);
    if (!all)
        kh_buf_printf(out, "  %s: %s\n", kh_ood_name(0), kh_ood_text(0));
}

static void put_decisions(const kh_eval *e, kh_buf *out) {
    const kh_decisions *d = &e->decisions;
    const kh_selector *s = &d->selector;
    char plus[64] = "";
    if (!e->decided) {
        kh_buf_printf(
            out, "\nno decisions, as there are no dev rows to choose them on: %s\n", e->why);
        return;
    }
    if (e->n_cross > 0)
        kh_buf_printf(
            out, "\ndecisions, chosen on %d cross-fitted rows and tried on these:\n", e->n_cross);
    else
        kh_buf_printf(out, "\ndecisions, chosen on %d %sdev rows and tried on these:\n", d->n,
            e->n_train > 0 ? "train and " : "");
    if (d->opts.max_risk > 0) {
        kh_buf_text(out, "  ");
        cli_put_promise(e, out);
        if (s->n_accepted > 0)
            kh_buf_printf(out, "\n  On these rows: %.1f %% answered, %.4f of the answers wrong",
                100 * e->coverage, e->risk);
        kh_buf_char(out, '\n');
    }
    if (d->conformal.n_map > 0)
        snprintf(plus, sizeof plus, " (jackknife+: %.4g is certain)",
            kh_conformal_promise(&d->conformal));
    if (d->opts.alpha > 0)
        kh_buf_printf(out,
            "  sets for %g: %.4f hold the true class, mean size %.3f, %.4f empty; the rows can "
            "promise %.4g at best%s\n",
            1 - d->opts.alpha, e->covered, e->set_size, e->empty, 1 - d->conformal.min_alpha, plus);
    if (isinf(d->ood))
        kh_buf_printf(out,
            "  out-of-distribution: %d rows are too few for a threshold that keeps %g of such "
            "rows; --keep %.2g could be had\n",
            e->n_ood, d->opts.keep, floor(100.0 * e->n_ood / (e->n_ood + 1)) / 100);
    else
        kh_buf_printf(out,
            "  out-of-distribution where %s is above %.6g (from %d rows): %.4f of these rows",
            kh_score_title(d->opts.foreign), d->ood, e->n_ood, e->flagged);
    for (int i = 0; i < e->n_outside && isfinite(d->ood); i++)
        kh_buf_printf(out, ", %.4f of %s", e->outside[i].flagged, e->outside[i].rows.name);
    kh_buf_text(out, isfinite(d->ood) ? "\n" : "");
    if (e->o->split == KH_EVAL_DEV)
        kh_buf_text(out,
            "  These rows were chosen on and judged on at once: judge on test rows for what to "
            "expect.\n");
}

static void put_text(const kh_eval *e, bool all, kh_buf *out) {
    kh_posterior_info i = kh_posterior_describe(e->post);
    kh_buf_printf(out, "%s by %s: %d %s rows, %d classes, %lld questions\n", i.task->name, i.method,
        e->rows.n, kh_eval_split_name(e->o->split), e->n_label, e->queries);
    if (e->warning[0])
        kh_buf_printf(out, "  warning: %s\n", e->warning);
    if (e->n_known > 0)
        kh_buf_printf(out,
            "  warning: %d of these rows are among the rows it learned from; the figures flatter\n",
            e->n_known);
    put_metrics(e, all, out);
    for (int k = 0; k < e->n_outside; k++)
        put_outside(e, &e->outside[k], all, out);
    put_decisions(e, out);
}

/* ----------------------------------------------------------------------------------- the files */

static int write_file(const char *dir, const char *name, const kh_buf *bytes, kh_err *err) {
    char *path = kh_path_join(dir, name);
    int rc = !path || kh_buf_failed(bytes) ? kh_fail_memory(err)
                                           : kh_file_write(path, bytes->data, bytes->len, err);
    kh_free(path);
    return rc;
}

static int write_report(
    const kh_eval *e, const char *run, const char *dir, const char *options, kh_err *err) {
    kh_runlog log;
    kh_buf page = kh_buf_init(KH_BUF_MAX);
    int rc = kh_runlog_open(&log, run, err);
    kh_page g = {
        .eval = e, .log = &log, .run = run, .options = options, .plotter = { .program = "gnuplot" }
    };
    if (rc == 0)
        rc = kh_page_write(&g, &page, err);
    if (rc == 0)
        rc = write_file(dir, KH_PAGE_NAME, &page, err);
    if (rc == 0 && g.plotter.why[0])
        cli_say(stderr, 2,
            "keyhole: %s/" KH_PAGE_NAME " has no plots: %s; Debian's package is gnuplot-nox", dir,
            g.plotter.why);
    kh_buf_free(&page);
    kh_runlog_free(&log);
    return rc;
}

/* results.json last: a folder that has one has the rest, too. */
static int write_all(const eval_opts *o, const kh_eval *e, const char *run, const char *options,
    const kh_buf *results, kh_err *err) {
    const char *dir = o->out ? o->out : run;
    int rc = o->out ? kh_dir_make(o->out, err) : 0;
    if (rc == 0 && e->decided)
        rc = kh_decisions_save(&e->decisions, run, err);
    if (rc == 0 && o->rows_out) {
        kh_buf rows = kh_buf_init(KH_BUF_MAX);
        kh_eval_rows_json(e, &rows);
        rc = kh_buf_failed(&rows) ? kh_fail_memory(err)
                                  : kh_file_write(o->rows_out, rows.data, rows.len, err);
        kh_buf_free(&rows);
    }
    if (rc == 0 && o->report)
        rc = write_report(e, run, dir, options, err);
    return rc == 0 ? write_file(dir, KH_RESULTS_NAME, results, err) : rc;
}

/* The options that follow from others. */
static void settle(eval_opts *o, const char *run) {
    o->e.decide.score = (kh_score)o->score;
    o->e.decide.foreign = (kh_score)o->foreign;
    o->e.decide.seed = o->e.bootstrap.seed = o->e.seed;
    o->e.hooks = &cli_hooks;
    o->e.run = run;
}

int cli_judge(
    cli_judged *j, const kh_posterior *post, kh_plm *plm, const char *run, int rows, kh_err *err) {
    eval_opts *o = kh_calloc(1, sizeof *o);
    kh_buf options = kh_buf_init(KH_BUF_MAX), results = kh_buf_init(KH_BUF_MAX);
    j->opts = o;
    if (!o)
        return kh_fail_memory(err);
    kh_opts_init(eval_table, o);
    settle(o, run);
    o->e.rows = rows;
    int rc = kh_eval_run(&j->eval, post, plm, &o->e, err);
    if (rc == 0)
        kh_opts_json(eval_table, o, &options);
    if (rc == 0 && kh_buf_failed(&options))
        rc = kh_fail_memory(err);
    if (rc == 0) {
        kh_results_json(&j->eval, run, options.data, &results);
        rc = write_all(o, &j->eval, run, options.data, &results, err);
    }
    kh_buf_free(&options);
    kh_buf_free(&results);
    return rc;
}

void cli_judged_free(cli_judged *j) {
    if (!j->opts)
        return;
    if (j->eval.o)
        kh_eval_clear(&j->eval);
    kh_opts_free(eval_table, j->opts);
    kh_free(j->opts);
}

static int run_eval(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    eval_opts *o = opts;
    cli_run run = { 0 };
    kh_eval e = { .o = &o->e };
    kh_buf text = kh_buf_init(KH_BUF_MAX), options = kh_buf_init(KH_BUF_MAX),
           results = kh_buf_init(KH_BUF_MAX);
    settle(o, args[0]);
    run.http = &o->http;
    int rc = cli_run_open(&run, args[0], o->model, o->precision, err);
    if (rc == 0 && o->class_prior)
        rc = kh_posterior_set_class_prior(run.posterior, o->class_prior, err);
    if (rc == 0)
        kh_plm_has_seen(run.plm, kh_posterior_describe(run.posterior).task, &cli_hooks);
    if (rc == 0 && (rc = kh_eval_run(&e, run.posterior, run.plm, &o->e, err)) == KH_EARG)
        rc = err->code = CLI_USAGE;
    if (rc == 0) {
        kh_opts_json(eval_table, o, &options);
        rc = kh_buf_failed(&options) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0) {
        kh_results_json(&e, args[0], options.data, &results);
        rc = write_all(o, &e, args[0], options.data, &results, err);
    }
    if (rc == 0) {
        put_text(&e, o->all, &text);
        const kh_buf *shown = o->json ? &results : &text;
        rc = kh_buf_failed(shown) ? kh_fail_memory(err) : 0;
        if (rc == 0 && o->json)
            fputs(shown->data, stdout);
        else if (rc == 0)
            cli_print(stdout, shown->data);
    }
    if (rc == 0 && !o->json)
        printf("\nsaved %s/" KH_RESULTS_NAME "%s\n", o->out ? o->out : args[0],
            o->report ? " and " KH_PAGE_NAME : "");
    kh_buf_free(&text);
    kh_buf_free(&options);
    kh_buf_free(&results);
    kh_eval_clear(&e);
    cli_run_free(&run);
    return rc;
}

const cli_command cmd_eval = {
    .name = "eval",
    .args = "RUN",
    .min_args = 1,
    .max_args = 1,
    .summary = "Judge a tuned classifier: accuracy, calibration, abstention, other texts; a report",
    .text =
        "RUN is what \"keyhole tune\" made. The rows of --data it has not seen are classified\n"
        "and judged; doc/judging.md defines every number. With --ood, rows of other tasks,\n"
        "in their own templates with RUN's label words: a classifier that knows its limits\n"
        "is less certain of them. On the dev rows of tuning it is decided when to abstain\n"
        "(--max-risk), which classes to name (--alpha) and what is out-of-distribution (--keep): "
        "that is\n"
        "kept in RUN/decisions.json, and \"keyhole predict RUN\" acts on it. That last goes\n"
        "by the distance to the texts of tuning and by energy, -log sum exp of the label logits,\n"
        "as far as RUN knows them.\n\n"
        "Written are results.json (doc/results-schema.md) and report.html, one file with plots by\n"
        "gnuplot, tables, the rows to look at, and every option behind the numbers.\n\n"
        "  keyhole eval run --data data/sst2\n"
        "  keyhole eval run --data data/sst2 --ood rte=data/rte imdb=data/imdb --rows 2000\n"
        "  keyhole eval run --ood examples/foreign\n"
        "  keyhole eval run --max-risk 0.05 --alpha 0.1 --json | jq .metrics.ece.value\n"
        "  keyhole eval run --rows-out rows.jsonl --no-report",
    .opts = eval_table,
    .opts_size = sizeof(eval_opts),
    .run = run_eval,
};
