/* results.c - see results.h. Nothing in the file depends on the clock: the same evaluation gives
 * the same bytes. */
#include "report/results.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "data/task.h"
#include "judge/decisions.h"
#include "posterior/posterior.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Points of a curve: more than a screen shows; one of 10,000 rows would be most of the file. */
enum { CURVE_POINTS = 200, EXAMPLES = 4, EXAMPLE_BYTES = 300 };
static const size_t JSON_MAX = (size_t)256 << 20;

/* ------------------------------------------------------------------------------------- writing */

enum {
    DIGITS = 12,      /* of results: more than any of them is known to */
    CURVE_DIGITS = 9, /* of points that are drawn */
};

/* "accuracy": {"value": 0.9, "low": 0.88, "high": 0.92} */
static void put_interval(
    kh_json_out *j, const char *key, double value, double low, double high, bool interval) {
    kh_json_open_object(j, key);
    kh_json_put_number(j, "value", value, DIGITS);
    if (interval) {
        kh_json_put_number(j, "low", low, DIGITS);
        kh_json_put_number(j, "high", high, DIGITS);
    }
    kh_json_close(j);
}

/* Enough to make the run again: method, options, seed, data and version. */
static void put_run(kh_json_out *j, const kh_eval *e, const char *run) {
    const kh_posterior *p = e->post;
    const char *options = p->options ? p->options : "{}";
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "run");
    kh_json_put_string(j, "path", run);
    kh_json_put_string(j, "method", p->method);
    kh_json_put_string(j, "access", kh_access_name(p->access));
    kh_json_put_u64(j, "seed", p->seed);
    kh_json_put_bool(j, "paper_exact", p->paper_exact);
    kh_json_put_int(j, "samples", p->n);
    kh_json_gap(j, "\n    ");
    kh_json_put_json(j, "options", options, strlen(options));
    kh_json_gap(j, "\n    ");
    kh_json_put_string(j, "data", p->data);
    kh_json_put_int(j, "shots", p->shots);
    kh_json_put_int(j, "train_queries", p->train_queries);
    kh_json_put_int(j, "dev_queries", p->dev_queries);
    kh_json_put_number(j, "dev", p->dev, DIGITS);
    kh_json_put_string(j, "stopped", p->stopped);
    kh_json_put_string(j, "keyhole", p->version);
    kh_json_close(j);
}

static void put_model_and_task(kh_json_out *j, const kh_eval *e) {
    const kh_posterior *p = e->post;
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "model");
    kh_json_put_string(j, "path", p->model);
    kh_json_put_hex(j, "fingerprint", p->fingerprint);
    kh_json_put_hex(j, "tokenizer", p->tokenizer);
    kh_json_put_bool(j, "seen", e->seen);
    kh_json_close(j);
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "task");
    kh_json_put_string(j, "name", p->task->name);
    kh_json_put_string(j, "metric", kh_metric_name(p->task->metric));
    kh_json_open_array(j, "labels");
    for (int k = 0; k < e->n_label; k++)
        kh_json_put_string(j, NULL, p->task->label[k].name);
    kh_json_close(j);
    kh_json_close(j);
}

static void put_eval(kh_json_out *j, const kh_eval *e, const char *options) {
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "eval");
    kh_json_put_string(j, "data", e->data);
    kh_json_put_string(j, "split", kh_eval_split_name(e->o->split));
    kh_json_put_int(j, "rows", e->rows.n);
    kh_json_put_int(j, "of", e->rows.of);
    kh_json_put_int(j, "queries", e->queries);
    kh_json_put_string(j, "backend", e->box.backend);
    kh_json_put_string(j, "precision", e->box.precision);
    kh_json_put_string(j, "kernels", e->box.kernels);
    kh_json_gap(j, "\n    ");
    kh_json_put_json(j, "options", options, strlen(options));
    kh_json_close(j);
}

/* Texts to try the classifier with, if they are short enough to be shown whole: a page that serves
 * it has no others. */
static void put_examples(kh_json_out *j, const kh_eval *e) {
    int shown[EXAMPLES], n = kh_eval_examples(e, shown, EXAMPLES);
    kh_json_gap(j, "\n  ");
    kh_json_open_array(j, "examples");
    for (int i = 0; i < n; i++) {
        const kh_row *row = &e->rows.row[shown[i]];
        if (row->n_a + row->n_b > EXAMPLE_BYTES)
            continue;
        if (row->b)
            kh_json_open_array(j, NULL);
        kh_json_put_text(j, NULL, row->a, row->n_a);
        if (row->b) {
            kh_json_put_text(j, NULL, row->b, row->n_b);
            kh_json_close(j);
        }
    }
    kh_json_close(j);
}

static void put_metrics(kh_json_out *j, const kh_eval *e) {
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "metrics");
    for (int i = 0; kh_metrics_name(i); i++) {
        kh_json_gap(j, "\n    ");
        put_interval(j, kh_metrics_name(i), kh_metrics_value(&e->m, i),
            kh_metrics_value(&e->low, i), kh_metrics_value(&e->high, i),
            e->o->bootstrap.n_resample > 0);
    }
    kh_json_close(j);
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "uncertainty");
    kh_json_put_number(j, "total", e->m.entropy, DIGITS);
    kh_json_put_number(j, "ambiguity", e->ambiguity, DIGITS);
    kh_json_put_number(j, "disagreement", e->disagreement, DIGITS);
    kh_json_close(j);
}

/* At most CURVE_POINTS of the points, the first and the last among them. */
static void put_curve(kh_json_out *j, const kh_eval *e, kh_score s) {
    int n = e->n_point[s], step = n > CURVE_POINTS ? n / (CURVE_POINTS - 1) + 1 : 1;
    kh_json_open_array(j, kh_score_name(s));
    for (int i = 0; i < n; i = i + 1 < n && i + step >= n ? n - 1 : i + step) {
        double pair[] = { e->point[s][i].coverage, e->point[s][i].risk };
        kh_json_put_numbers(j, NULL, pair, 2, CURVE_DIGITS);
    }
    kh_json_close(j);
}

static void put_reliability(kh_json_out *j, const kh_eval *e) {
    kh_json_gap(j, "\n  ");
    kh_json_open_array(j, "reliability");
    for (int i = 0; i < KH_BINS; i++) {
        kh_json_gap(j, "\n    ");
        kh_json_open_object(j, NULL);
        kh_json_put_number(j, "low", e->bin[i].low, CURVE_DIGITS);
        kh_json_put_number(j, "high", e->bin[i].high, CURVE_DIGITS);
        kh_json_put_int(j, "rows", e->bin[i].n);
        kh_json_put_number(j, "confidence", e->bin[i].confidence, CURVE_DIGITS);
        kh_json_put_number(j, "accuracy", e->bin[i].accuracy, CURVE_DIGITS);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_arrays(kh_json_out *j, const kh_eval *e) {
    put_reliability(j, e);
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "risk_coverage");
    put_curve(j, e, KH_SCORE_MAXP);
    kh_json_gap(j, "\n    ");
    put_curve(j, e, KH_SCORE_ENTROPY);
    kh_json_close(j);
    kh_json_gap(j, "\n  ");
    kh_json_open_array(j, "confusion"); /* rows of the true classes */
    for (int i = 0; i < e->n_label; i++)
        kh_json_put_ints(
            j, NULL, e->confusion + (size_t)i * (size_t)e->n_label, (size_t)e->n_label);
    kh_json_close(j);
}

static void put_outside(kh_json_out *j, const kh_eval *e, const kh_ood_rows *o) {
    kh_json_gap(j, "\n    ");
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "name", o->rows.name);
    kh_json_put_string(j, "data", kh_dataset_path(o->rows.data));
    kh_json_put_int(j, "rows", o->rows.n);
    kh_json_put_int(j, "of", o->rows.of);
    kh_json_put_number(j, "flagged", o->flagged, DIGITS);
    for (int s = 0; s < KH_N_SCORE; s++) {
        if (!e->known[s])
            continue;
        kh_json_gap(j, "\n      ");
        kh_json_open_object(j, kh_score_name((kh_score)s));
        for (int i = 0; kh_ood_name(i); i++) {
            kh_json_gap(j, i ? "\n        " : "");
            put_interval(j, kh_ood_name(i), kh_ood_value(&o->value[s], i),
                kh_ood_value(&o->low[s], i), kh_ood_value(&o->high[s], i),
                e->o->bootstrap.n_resample > 0);
        }
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_decisions(kh_json_out *j, const kh_eval *e) {
    kh_json_gap(j, "\n  ");
    if (!e->decided) {
        kh_json_put_null(j, "decisions");
        kh_json_put_string(j, "undecided", e->why);
        return;
    }
    kh_json_open_object(j, "decisions");
    kh_decisions_json(&e->decisions, j);
    kh_json_close(j);
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "outcome");
    kh_json_put_number(j, "coverage", e->coverage, DIGITS);
    kh_json_put_number(j, "risk", e->risk, DIGITS);
    kh_json_put_number(j, "covered", e->covered, DIGITS);
    kh_json_put_number(j, "mean_size", e->set_size, DIGITS);
    kh_json_put_number(j, "empty", e->empty, DIGITS);
    kh_json_put_number(j, "flagged", e->flagged, DIGITS);
    kh_json_close(j);
}

void kh_results_json(const kh_eval *e, const char *run, const char *options, kh_buf *b) {
    kh_json_out j = kh_json_out_init(b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_gap(&j, "\n  ");
    kh_json_put_string(&j, "schema", "keyhole-results");
    kh_json_put_int(&j, "version", KH_RESULTS_VERSION);
    kh_json_put_string(&j, "keyhole", kh_version());
    put_run(&j, e, run);
    put_model_and_task(&j, e);
    put_eval(&j, e, options);
    put_examples(&j, e);
    put_metrics(&j, e);
    put_arrays(&j, e);
    kh_json_gap(&j, "\n  ");
    kh_json_open_array(&j, "ood");
    for (int i = 0; i < e->n_outside; i++)
        put_outside(&j, e, &e->outside[i]);
    kh_json_close(&j);
    put_decisions(&j, e);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(b, '\n');
}

/* ------------------------------------------------------------------------------------- reading */

/* By the sticky reader of base/json_in.h. Metrics are read by whatever names they have: a later
 * version's results can be compared in what both know. */

static void no_memory(kh_json_in *in) {
    if (in->rc == 0)
        in->rc = kh_fail_memory(in->err);
}

static void add_metric(
    kh_result *r, kh_json_in *in, const char *prefix, const char *key, const json_t *metric) {
    const json_t *value = json_object_get(metric, "value");
    if (!json_is_number(value) && !json_is_null(value))
        kh_json_refuse(in, KH_EFORMAT, "\"%s%s\" must be an object with a \"value\"", prefix, key);
    if (in->rc != 0)
        return;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&b, prefix);
    kh_buf_text(&b, key);
    if (!kh_grow(&r->metric, &r->cap, (size_t)r->n + 1, sizeof *r->metric) || kh_buf_failed(&b)) {
        kh_buf_free(&b);
        no_memory(in);
        return;
    }
    if (b.data)
        kh_hide_controls(b.data);
    r->metric[r->n++] = (struct kh_named){ kh_buf_take(&b, NULL),
        json_is_number(value) ? json_number_value(value) : NAN };
}

static void add_metrics(
    kh_result *r, kh_json_in *in, const char *prefix, const json_t *from, const char *what) {
    const char *key;
    json_t *metric, *object = (json_t *)kh_json_get_object(in, from, what);
    json_object_foreach(object, key, metric) add_metric(r, in, prefix, key, metric);
}

/* Scores that were not there in version 0.1 may be missing. */
static void add_outside(kh_result *r, kh_json_in *in, const json_t *o) {
    const char *name = kh_json_get_string(in, o, "name");
    for (int s = 0; s < KH_N_SCORE && in->rc == 0; s++) {
        const char *score = kh_score_name((kh_score)s);
        if (s > KH_SCORE_ENTROPY && !json_object_get(o, score))
            continue;
        kh_buf prefix = kh_buf_init(KH_BUF_MAX);
        kh_buf_printf(&prefix, "ood.%s.%s.", name, score);
        if (kh_buf_failed(&prefix))
            no_memory(in);
        else
            add_metrics(r, in, prefix.data, o, score);
        kh_buf_free(&prefix);
    }
}

/* A name, without what could command the terminal that it is shown on. */
static char *keep(kh_json_in *in, const json_t *o, const char *key) {
    const char *s = kh_json_string_or(in, o, key, "");
    char *copy = in->rc == 0 ? kh_strdup(s) : NULL;
    if (!copy)
        no_memory(in);
    else
        kh_hide_controls(copy);
    return copy;
}

static void read_head(kh_json_in *in, const json_t *root) {
    const char *schema = kh_json_get_string(in, root, "schema");
    if (strcmp(schema, "keyhole-results") != 0)
        kh_json_refuse(
            in, KH_EFORMAT, "\"schema\" is \"%s\", expected \"keyhole-results\"", schema);
    int version = kh_json_get_int(in, root, "version", 1, INT32_MAX);
    if (version > KH_RESULTS_VERSION)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "written in version %d by a later keyhole; this one reads up to %d", version,
            KH_RESULTS_VERSION);
    static const char *const parts[] = { "run", "model", "task", "eval" };
    for (size_t i = 0; i < 4; i++)
        kh_json_get_object(in, root, parts[i]);
}

/* Options are sorted: runs are grouped by them as texts. */
static void read_run(kh_result *r, kh_json_in *in, const json_t *root) {
    const json_t *run = json_object_get(root, "run"), *seed = json_object_get(run, "seed");
    r->method = keep(in, run, "method");
    r->model = keep(in, json_object_get(root, "model"), "path");
    r->task = keep(in, json_object_get(root, "task"), "name");
    r->rows = kh_json_get_int(in, json_object_get(root, "eval"), "rows", 1, INT32_MAX);
    r->seed = json_is_string(seed) ? strtoull(json_string_value(seed), NULL, 10)
                                   : (uint64_t)json_integer_value(seed);
    const json_t *options = json_object_get(run, "options");
    char *text =
        json_is_object(options) ? json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    r->options = kh_strdup(text ? text : "{}");
    free(text);
    if (!r->options)
        no_memory(in);
}

static double number_or_nan(const json_t *object, const char *key) {
    const json_t *x = json_object_get(object, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* Risk against coverage, from the surest row on; as much of it as is well-formed. */
static void read_curve(kh_result *out, kh_json_in *in, const json_t *root) {
    const json_t *curve =
        json_object_get(json_object_get(root, "risk_coverage"), kh_score_name(KH_SCORE_MAXP));
    size_t n = json_array_size(curve);
    if (n > 0 && !(out->curve = kh_calloc(n, sizeof *out->curve)))
        no_memory(in);
    for (size_t i = 0; i < n && in->rc == 0; i++) {
        const json_t *point = json_array_get(curve, i);
        out->curve[out->n_curve++] = (kh_curve_point){
            .coverage = json_number_value(json_array_get(point, 0)),
            .risk = json_number_value(json_array_get(point, 1)),
        };
    }
}

/* At the first point that covers half of the rows. */
static double risk_of_half(const kh_result *r) {
    for (int i = 0; i < r->n_curve; i++)
        if (r->curve[i].coverage >= 0.5)
            return r->curve[i].risk;
    return NAN;
}

int kh_result_parse(kh_result *out, const char *text, size_t n, const char *name, kh_err *err) {
    *out = (kh_result){ 0 };
    json_t *root;
    kh_json_in in = { .name = name, .err = err };
    in.rc = kh_json_parse(text, n, name, &root, err);
    if (!json_is_object(root))
        kh_json_refuse(&in, KH_EFORMAT, "must hold a JSON object");
    read_head(&in, root);
    if (in.rc == 0) {
        read_run(out, &in, root);
        read_curve(out, &in, root);
        add_metrics(out, &in, "", root, "metrics");
    }
    out->half = risk_of_half(out);
    const json_t *outcome = json_object_get(root, "outcome"), *ood = json_object_get(root, "ood");
    out->answered = number_or_nan(outcome, "coverage");
    out->risk = number_or_nan(outcome, "risk");
    out->covered = number_or_nan(outcome, "covered");
    out->set_size = number_or_nan(outcome, "mean_size");
    out->alpha =
        number_or_nan(json_object_get(json_object_get(root, "decisions"), "conformal"), "alpha");
    for (size_t i = 0; in.rc == 0 && i < json_array_size(ood); i++)
        add_outside(out, &in, json_array_get(ood, i));
    json_decref(root);
    return in.rc;
}

/* Only a run can be judged. */
static int refuse_folder(const char *run, kh_err *err) {
    char *posterior = kh_path_join(run, "posterior.json");
    bool judgeable = posterior && kh_file_exists(posterior);
    kh_free(posterior);
    if (!judgeable)
        return kh_fail(err, KH_EMISSING,
            "%s: not the folder of a run: neither posterior.json nor " KH_RESULTS_NAME " in it",
            run);
    return kh_fail(err, KH_EMISSING,
        "%s: no " KH_RESULTS_NAME " in it; \"keyhole eval %s --data DIR\" makes one", run, run);
}

int kh_result_open(kh_result *out, const char *run, kh_err *err) {
    *out = (kh_result){ 0 };
    char *path = kh_path_join(run, KH_RESULTS_NAME);
    kh_buf text = kh_buf_init(0);
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && !kh_file_exists(path))
        rc = refuse_folder(run, err);
    if (rc == 0)
        rc = kh_file_read(path, JSON_MAX, &text, err);
    if (rc == 0)
        rc = kh_result_parse(out, text.data, text.len, path, err);
    if (rc == 0 && !(out->run = kh_strdup(run)))
        rc = kh_fail_memory(err);
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

void kh_result_free(kh_result *r) {
    char *const strings[] = { r->run, r->model, r->task, r->method, r->options };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        kh_free(strings[i]);
    for (int i = 0; i < r->n; i++)
        kh_free(r->metric[i].name);
    kh_free(r->metric);
    kh_free(r->curve);
    *r = (kh_result){ 0 };
}

double kh_result_value(const kh_result *r, const char *name) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->metric[i].name, name) == 0)
            return r->metric[i].value;
    return NAN;
}

int kh_result_better(const char *name) {
    const char *dot = strrchr(name, '.');
    bool ood = strncmp(name, "ood.", 4) == 0;
    const char *last = dot ? dot + 1 : name;
    for (int i = 0; ood && kh_ood_name(i); i++)
        if (strcmp(kh_ood_name(i), last) == 0) {
            static const int BETTER[] = {
#define OOD_BETTER(field, better, text) better,
                KH_OOD_METRICS(OOD_BETTER)
            };
            return BETTER[i];
        }
    for (int i = 0; !ood && kh_metrics_name(i); i++)
        if (strcmp(kh_metrics_name(i), last) == 0)
            return kh_metrics_better(i);
    return 0;
}
