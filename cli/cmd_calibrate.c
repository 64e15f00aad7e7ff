/* cmd_calibrate.c - keyhole calibrate: any tool's predictions in, probabilities that mean what they
 * say out. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "judge/calibrate.h"
#include "judge/leave_one_out.h"
#include "prediction_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct calibrate_opts {
    const char *fit, *apply, *out;
    int method;
    double sets; /* 0: none */
    bool json;
} calibrate_opts;

enum { AUTO = KH_CALIBRATE_VOTES_AFFINE + 1 }; /* of the words of --method, the last */

static const kh_opt calibrate_table[] = {
    { "fit", KH_OPT_TEXT, offsetof(calibrate_opts, fit), .arg = "FILE",
        .help = "labelled predictions to fit on; without it, the predictions themselves" },
    { "apply", KH_OPT_TEXT, offsetof(calibrate_opts, apply), .arg = "FILE",
        .help = "fit nothing: use parameters that --out wrote" },
    { "method", KH_OPT_CHOICE, offsetof(calibrate_opts, method), "temperature",
        .arg = "temperature|vector|votes|affine|votes-affine|auto",
        .help =
            "what to fit; auto: temperature, vector, affine or nothing, by cross-validated NLL" },
    { "sets", KH_OPT_NUMBER, offsetof(calibrate_opts, sets), .max = 0.5, .arg = "A",
        .help =
            "add a \"set\" of classes to each line: leave-one-out sets of level 1 - A; 0: none" },
    { "out", KH_OPT_TEXT, offsetof(calibrate_opts, out), .arg = "FILE",
        .help = "write the parameters as JSON" },
    { "json", KH_OPT_FLAG, offsetof(calibrate_opts, json),
        .help = "the before and after on standard error as JSON" },
    { 0 },
};

/* Votes need votes; the others would rather have logits than their rounded probabilities. */
static int read_rows(cli_predictions *out, const char *path, kh_calibration method, kh_err *err) {
    static const kh_evidence votes[] = { KH_VOTES }, scores[] = { KH_LOGITS, KH_PROBS, KH_VOTES };
    return kh_calibration_votes(method) ? cli_predictions_read(out, path, votes, 1, err)
                                        : cli_predictions_read(out, path, scores, 3, err);
}

/* What the method takes of all rows [n, n_label], in fresh memory. */
static int scores_of(const cli_predictions *r, kh_calibration method, double **x, kh_err *err) {
    size_t size = (size_t)r->rows.n * (size_t)r->rows.n_label;
    *x = kh_malloc(size * sizeof **x);
    if (!*x)
        return kh_fail_memory(err);
    if (kh_calibration_votes(method))
        memcpy(*x, r->rows.x, size * sizeof **x);
    else
        kh_predictions_scores(&r->rows, *x);
    return 0;
}

/* ---------------------------------------------------------------------------- before and after */

typedef struct line {
    const char *file, *what;
    int n;
    kh_metrics m;
} line;

typedef struct table {
    line line[5];
    int n;
} table;

static int add_line(table *t, const char *file, const char *what, const double *p, const int *label,
    int n, int n_label, kh_err *err) {
    line *l = &t->line[t->n];
    *l = (line){ .file = file, .what = what, .n = n };
    int rc = kh_metrics_compute(&l->m, &(kh_answers){ p, label, n, n_label }, 0, err);
    t->n += rc == 0;
    return rc;
}

static void print_table(const table *t) {
    fprintf(
        stderr, "%-24s %-28s %6s  %7s  %7s  %8s\n", "file", "", "rows", "NLL", "ECE", "accuracy");
    for (int i = 0; i < t->n; i++)
        fprintf(stderr, "%-24s %-28s %6d  %7.4f  %7.4f  %8.4f\n", t->line[i].file, t->line[i].what,
            t->line[i].n, t->line[i].m.nll, t->line[i].m.ece, t->line[i].m.accuracy);
}

static int print_json(const table *t, const kh_calibrator *c, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf calibrator = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_calibrator_json(c, &calibrator);
    kh_json_open_object(&j, NULL);
    kh_json_put_json(&j, "calibrator", calibrator.data ? calibrator.data : "", calibrator.len);
    kh_json_open_array(&j, "lines");
    for (int i = 0; i < t->n; i++) {
        kh_json_gap(&j, "\n  ");
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "file", t->line[i].file);
        kh_json_put_string(&j, "what", t->line[i].what);
        kh_json_put_int(&j, "rows", t->line[i].n);
        kh_json_put_number(&j, "nll", t->line[i].m.nll, 10);
        kh_json_put_number(&j, "ece", t->line[i].m.ece, 10);
        kh_json_put_number(&j, "accuracy", t->line[i].m.accuracy, 10);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&b, '\n');
    kh_buf_free(&calibrator);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        fwrite(b.data, 1, b.len, stderr);
    kh_buf_free(&b);
    return rc;
}

/* ------------------------------------------------------------------------------------- fitting */

static void warn_of_one_class(const cli_predictions *r) {
    char text[512];
    const kh_answers *a = &r->known;
    for (int i = 1; i < a->n; i++)
        if (a->label[i] != a->label[0])
            return;
    snprintf(text, sizeof text, "%s: every row is of class %d, which says little about the others",
        r->name, a->label[0]);
    cli_hooks.log(cli_hooks.user, KH_WARN, text);
}

/* The labelled rows of x [n, n_label], moved to its front. */
static void keep_known(const cli_predictions *r, double *x) {
    size_t k = (size_t)r->rows.n_label;
    int m = 0;
    for (int i = 0; i < r->rows.n; i++)
        if (r->rows.label[i] >= 0)
            memmove(x + (size_t)m++ * k, x + (size_t)i * k, k * sizeof *x);
}

/* auto: whichever map cross-validation prefers. No change is affine at its strongest pull. */
static int choose(int *method, const double *x, const kh_answers *a, kh_err *err) {
    bool none = false;
    kh_calibration best = KH_CALIBRATE_AFFINE;
    int rc = *method == AUTO
        ? kh_calibration_choose(&best, &none, x, a->label, a->n, a->n_label, err)
        : 0;
    if (*method == AUTO)
        *method = none ? (int)KH_CALIBRATE_AFFINE : (int)best;
    return rc;
}

static int fit(kh_calibrator *c, kh_loo *loo, const calibrate_opts *o, const cli_predictions *r,
    table *t, kh_err *err) {
    const kh_answers *a = &r->known;
    int method = o->method;
    double *x = NULL, *p = NULL;
    if (a->n == 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: no line has a \"label\" to fit on; --fit names a file that has, --apply "
            "parameters",
            r->name);
    int rc = scores_of(r, c->method, &x, err), n_fold = a->n < 5 ? a->n : 5;
    if (rc != 0)
        goto done;
    warn_of_one_class(r);
    keep_known(r, x);
    p = kh_malloc((size_t)a->n * (size_t)a->n_label * sizeof *p);
    rc = p ? choose(&method, x, a, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_calibrator_fit(c, (kh_calibration)method, x, a->label, a->n, a->n_label, err);
    if (rc == 0 && o->sets > 0)
        rc = kh_loo_fit(loo, (kh_calibration)method, x, a->label, a->n, a->n_label, o->sets, err);
    if (rc == 0)
        rc = add_line(t, r->name, "before", a->p, a->label, a->n, a->n_label, err);
    if (rc == 0) {
        kh_calibrator_apply(c, x, a->n, p);
        rc = add_line(t, r->name, "after, rows fitted on", p, a->label, a->n, a->n_label, err);
    }
    if (rc == 0 && a->n > 1) {
        rc = kh_calibrator_crossfit(
            (kh_calibration)method, x, a->label, a->n, a->n_label, n_fold, p, err);
        if (rc == 0)
            rc = add_line(
                t, r->name, "after, by cross-validation", p, a->label, a->n, a->n_label, err);
    }
done:
    kh_free(x);
    kh_free(p);
    return rc;
}

/* ------------------------------------------------------------------------------------ applying */

/* A set as the numbers of its classes; in NULL: none was asked for. */
static int put_set(json_t *root, const bool *in, int n_label) {
    json_t *list = in ? json_array() : NULL;
    for (int k = 0; list && k < n_label; k++)
        if (in[k])
            json_array_append_new(list, json_integer(k));
    return !in || (list && json_object_set_new(root, "set", list) == 0) ? 0 : -1;
}

/* The line as it stands, but "probs" are these, and "logits" and "votes" are gone: a line says one
 * thing. */
static int print_line(const char *text, size_t n, const cli_predictions *r, int row,
    const double *p, const bool *in, kh_err *err) {
    json_t *root, *list = json_array();
    int rc = kh_json_parse_line(text, n, r->name, r->rows.line[row], &root, err);
    if (rc == 0 && list) {
        for (int k = 0; k < r->rows.n_label; k++)
            json_array_append_new(list, json_real(p[k]));
        json_object_del(root, "logits");
        json_object_del(root, "votes");
    }
    char *out = NULL;
    if (rc == 0 &&
        (!list || json_array_size(list) != (size_t)r->rows.n_label ||
            json_object_set(root, "probs", list) != 0 || put_set(root, in, r->rows.n_label) != 0 ||
            !(out = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15)))))
        rc = kh_fail_memory(err);
    if (rc == 0)
        puts(out);
    free(out);
    json_decref(list);
    json_decref(root);
    return rc;
}

/* sets [n, n_label], or NULL. */
static int print_lines(const cli_predictions *r, const double *p, const bool *sets, kh_err *err) {
    const char *at = r->bytes.data, *end = r->bytes.data + r->bytes.len;
    long number = 1;
    if (r->bytes.len >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        at += 3;
    int rc = 0;
    for (int i = 0; i < r->rows.n && rc == 0; at++, number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (number == r->rows.line[i]) {
            size_t cell = (size_t)i * (size_t)r->rows.n_label;
            rc =
                print_line(at, (size_t)(stop - at), r, i, p + cell, sets ? sets + cell : NULL, err);
            i++;
        }
        at = stop;
    }
    return rc;
}

/* The sets of all rows, and what is promised of them. */
static int make_sets(const kh_loo *loo, const cli_predictions *r, const double *x, bool held_out,
    bool **out, kh_err *err) {
    size_t k = (size_t)r->rows.n_label;
    int covered = 0;
    long long size = 0;
    *out = kh_calloc((size_t)r->rows.n * k, sizeof **out);
    if (!*out)
        return kh_fail_memory(err);
    for (int i = 0; i < r->rows.n; i++) {
        bool *in = *out + (size_t)i * k;
        size += kh_loo_set(loo, x + (size_t)i * k, in);
        covered += r->rows.label[i] >= 0 && in[r->rows.label[i]];
    }
    fprintf(stderr,
        "sets: leave-one-out on %d rows (jackknife+): a new row's set holds its true class with\n"
        "      probability >= %g whatever the classifier, and about %g in practice; mean size "
        "%.2f\n",
        loo->n, 1 - 2 * loo->alpha, 1 - loo->alpha, (double)size / r->rows.n);
    if (held_out && r->rows.n_known > 0)
        fprintf(stderr, "      of %d labelled rows here, %.4f of the sets hold the true class\n",
            r->rows.n_known, (double)covered / r->rows.n_known);
    return 0;
}

/* held_out: the parameters come from other rows, so the rows of r are worth a before and after of
 * their own. */
static int apply(const kh_calibrator *c, const kh_loo *loo, const cli_predictions *r, bool held_out,
    table *t, kh_err *err) {
    const kh_answers *a = &r->known;
    double *x = NULL;
    bool *sets = NULL;
    if (c->n_label != r->rows.n_label)
        return kh_fail(err, KH_EMISMATCH, "%s: rows of %d classes, but the calibrator is for %d",
            r->name, r->rows.n_label, c->n_label);
    int rc = scores_of(r, c->method, &x, err);
    if (rc == 0 && loo->n > 0)
        rc = make_sets(loo, r, x, held_out, &sets, err);
    if (rc == 0) {
        kh_calibrator_apply(c, x, r->rows.n, x);
        rc = print_lines(r, x, sets, err);
    }
    if (rc == 0 && held_out && a->n > 0) {
        keep_known(r, x);
        rc = add_line(t, r->name, "before", a->p, a->label, a->n, a->n_label, err);
        if (rc == 0)
            rc = add_line(t, r->name, "after", x, a->label, a->n, a->n_label, err);
    }
    kh_free(sets);
    kh_free(x);
    return rc;
}

static int run_calibrate(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const calibrate_opts *o = opts;
    if (o->fit && o->apply)
        return kh_fail(err, CLI_USAGE,
            "--fit and --apply exclude each other: fit new parameters, or apply those that there "
            "are");
    if (o->fit && strcmp(o->fit, "-") == 0 && strcmp(args[0], "-") == 0)
        return kh_fail(err, CLI_USAGE,
            "standard input cannot be both the rows to fit on and the rows to calibrate");
    if (o->apply && o->sets > 0)
        return kh_fail(err, CLI_USAGE,
            "--sets needs the labelled rows: --fit names them, --apply has parameters only");
    kh_calibrator c = { .method =
                            o->method == AUTO ? KH_CALIBRATE_AFFINE : (kh_calibration)o->method };
    kh_loo loo = { 0 };
    cli_predictions rows = { 0 }, dev = { 0 };
    table t = { 0 };
    int rc = o->apply ? kh_calibrator_open(&c, o->apply, err) : 0;
    if (rc == 0)
        rc = read_rows(&rows, args[0], c.method, err);
    if (rc == 0 && o->fit)
        rc = read_rows(&dev, o->fit, c.method, err);
    if (rc == 0 && !o->apply)
        rc = fit(&c, &loo, o, o->fit ? &dev : &rows, &t, err);
    if (rc == 0 && o->out)
        rc = kh_calibrator_save(&c, o->out, err);
    if (rc == 0)
        rc = apply(&c, &loo, &rows, o->fit || o->apply, &t, err);
    if (rc == 0 && o->json)
        rc = print_json(&t, &c, err);
    else if (rc == 0)
        print_table(&t);
    kh_calibrator_free(&c);
    kh_loo_free(&loo);
    cli_predictions_free(&rows);
    cli_predictions_free(&dev);
    return rc;
}

const cli_command cmd_calibrate = {
    .name = "calibrate",
    .args = "FILE|-",
    .min_args = 1,
    .max_args = 1,
    .summary = "Make the probabilities of any classifier mean what they say",
    .text =
        "Reads one JSON object a line: {\"probs\": [0.1, 0.9], \"label\": 1}, or \"logits\", or "
        "\"votes\"\n"
        "(how many members of an ensemble chose each class). \"label\" is the true class, from 0. "
        "Prints\n"
        "the same lines with calibrated \"probs\", other keys as they were. A table of negative\n"
        "log-likelihood and calibration error, before and after, goes to standard error; \"by\n"
        "cross-validation\" is the honest after.\n\n"
        "  temperature  softmax(logits / T): one number, never changes the answer\n"
        "  vector       softmax(w * logits + b): two numbers a class, can undo a bias\n"
        "  affine       softmax(w * logits + b): one w for all classes, a bias for each, pulled "
        "to\n"
        "               no change as far as cross-validation does not show that it helps\n"
        "  votes        (votes + alpha)^(1/T): nobody is ever given no chance at all\n"
        "  votes-affine (votes + alpha)^w times a factor for each class, as far as "
        "cross-validation\n"
        "               shows that it helps\n"
        "  auto         whichever of the first three, or nothing, cross-validation prefers\n\n"
        "Few rows, separable rows and rows of one class are fine: priors hold the parameters.\n\n"
        "  keyhole calibrate test.jsonl --fit dev.jsonl --out cal.json > calibrated.jsonl\n"
        "  keyhole calibrate new.jsonl --apply cal.json > calibrated.jsonl\n"
        "  keyhole calibrate new.jsonl --fit few.jsonl --method auto --sets 0.1 > out.jsonl\n"
        "  keyhole calibrate dev.jsonl --method votes --json > /dev/null",
    .opts = calibrate_table,
    .opts_size = sizeof(calibrate_opts),
    .run = run_calibrate,
};
