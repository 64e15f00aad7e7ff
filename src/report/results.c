/* results.c - see results.h. Nothing in the file depends on the clock: the same evaluation gives
 * the same bytes. */
#include "report/results.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
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

typedef struct reader {
    kh_result *r;
    const char *name;
    kh_err *err;
} reader;

static int add_metric(reader *r, const char *prefix, const char *key, const json_t *metric) {
    const json_t *value = json_object_get(metric, "value");
    if (!json_is_number(value) && !json_is_null(value))
        return kh_fail(r->err, KH_EFORMAT, "%s: \"%s%s\" must be an object with a \"value\"",
            r->name, prefix, key);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&b, prefix);
    kh_buf_text(&b, key);
    if (!kh_grow(&r->r->metric, &r->r->cap, (size_t)r->r->n + 1, sizeof *r->r->metric) ||
        kh_buf_failed(&b)) {
        kh_buf_free(&b);
        return kh_fail_memory(r->err);
    }
    r->r->metric[r->r->n++] = (struct kh_named){ kh_buf_take(&b, NULL),
        json_is_number(value) ? json_number_value(value) : NAN };
    return 0;
}

static int add_metrics(reader *r, const char *prefix, json_t *object, const char *what) {
    const char *key;
    json_t *metric;
    if (!json_is_object(object))
        return kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must be an object", r->name, what);
    int rc = 0;
    json_object_foreach(object, key, metric) if (rc == 0) rc = add_metric(r, prefix, key, metric);
    return rc;
}

static int add_outside(reader *r, const json_t *o) {
    const char *name;
    int rc = kh_json_string(o, "name", &name, r->name, r->err);
    for (int s = 0; s < KH_N_SCORE && rc == 0; s++) {
        const char *score = kh_score_name((kh_score)s);
        if (s > KH_SCORE_ENTROPY && !json_object_get(o, score))
            continue;
        kh_buf prefix = kh_buf_init(KH_BUF_MAX);
        kh_buf_printf(&prefix, "ood.%s.%s.", name, score);
        rc = kh_buf_failed(&prefix) ? kh_fail_memory(r->err)
                                    : add_metrics(r, prefix.data, json_object_get(o, score), score);
        kh_buf_free(&prefix);
    }
    return rc;
}

static int keep(reader *r, const json_t *o, const char *key, char **out) {
    const char *s = NULL;
    int rc = kh_json_string_opt(o, key, &s, r->name, r->err);
    if (rc == 0 && !(*out = kh_strdup(s ? s : "")))
        rc = kh_fail_memory(r->err);
    return rc;
}

static int read_head(reader *r, const json_t *root) {
    const char *schema;
    int version, rc = kh_json_string(root, "schema", &schema, r->name, r->err);
    if (rc == 0 && strcmp(schema, "keyhole-results") != 0)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"schema\" is \"%s\", expected \"keyhole-results\"",
            r->name, schema);
    if (rc == 0)
        rc = kh_json_int(root, "version", 1, INT32_MAX, &version, r->name, r->err);
    if (rc == 0 && version > KH_RESULTS_VERSION)
        rc = kh_fail(r->err, KH_EUNSUPPORTED,
            "%s: written in version %d by a later keyhole; this one reads up to %d", r->name,
            version, KH_RESULTS_VERSION);
    static const char *const parts[] = { "run", "model", "task", "eval" };
    for (size_t i = 0; i < 4 && rc == 0; i++)
        if (!json_is_object(json_object_get(root, parts[i])))
            rc = kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must be an object", r->name, parts[i]);
    return rc;
}

static int read_run(reader *r, const json_t *root) {
    const json_t *run = json_object_get(root, "run"), *seed = json_object_get(run, "seed");
    int rc = keep(r, run, "method", &r->r->method);
    if (rc == 0)
        rc = keep(r, json_object_get(root, "model"), "path", &r->r->model);
    if (rc == 0)
        rc = keep(r, json_object_get(root, "task"), "name", &r->r->task);
    if (rc == 0)
        rc = kh_json_int(
            json_object_get(root, "eval"), "rows", 1, INT32_MAX, &r->r->rows, r->name, r->err);
    if (rc != 0)
        return rc;
    r->r->seed = json_is_string(seed) ? strtoull(json_string_value(seed), NULL, 10)
                                      : (uint64_t)json_integer_value(seed);
    const json_t *options = json_object_get(run, "options");
    char *text =
        json_is_object(options) ? json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    r->r->options = kh_strdup(text ? text : "{}");
    free(text);
    return r->r->options ? 0 : kh_fail_memory(r->err);
}

static double number_or_nan(const json_t *object, const char *key) {
    const json_t *x = json_object_get(object, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* Risk against coverage, from the surest row on; as much of it as is well-formed. */
static int read_curve(reader *r, const json_t *root) {
    const json_t *curve =
        json_object_get(json_object_get(root, "risk_coverage"), kh_score_name(KH_SCORE_MAXP));
    size_t n = json_array_size(curve);
    kh_result *out = r->r;
    if (n == 0)
        return 0;
    if (!(out->curve = kh_calloc(n, sizeof *out->curve)))
        return kh_fail_memory(r->err);
    for (size_t i = 0; i < n; i++) {
        const json_t *point = json_array_get(curve, i);
        out->curve[out->n_curve++] = (kh_curve_point){
            .coverage = json_number_value(json_array_get(point, 0)),
            .risk = json_number_value(json_array_get(point, 1)),
        };
    }
    return 0;
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
    reader r = { out, name, err };
    int rc = kh_json_parse(text, n, name, &root, err);
    if (rc == 0 && !json_is_object(root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must hold a JSON object", name);
    if (rc == 0)
        rc = read_head(&r, root);
    if (rc == 0)
        rc = read_run(&r, root);
    if (rc == 0)
        rc = read_curve(&r, root);
    out->half = risk_of_half(out);
    if (rc == 0)
        rc = add_metrics(&r, "", json_object_get(root, "metrics"), "metrics");
    if (rc == 0) {
        const json_t *outcome = json_object_get(root, "outcome");
        out->answered = number_or_nan(outcome, "coverage");
        out->risk = number_or_nan(outcome, "risk");
        out->covered = number_or_nan(outcome, "covered");
        out->set_size = number_or_nan(outcome, "mean_size");
        out->alpha = number_or_nan(
            json_object_get(json_object_get(root, "decisions"), "conformal"), "alpha");
    }
    const json_t *ood = rc == 0 ? json_object_get(root, "ood") : NULL;
    for (size_t i = 0; rc == 0 && i < json_array_size(ood); i++)
        rc = add_outside(&r, json_array_get(ood, i));
    json_decref(root);
    return rc;
}

int kh_result_open(kh_result *out, const char *run, kh_err *err) {
    *out = (kh_result){ 0 };
    char *path = kh_path_join(run, KH_RESULTS_NAME);
    kh_buf text = kh_buf_init(0);
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && !kh_file_exists(path))
        rc = kh_fail(err, KH_EMISSING,
            "%s: no " KH_RESULTS_NAME " in it; \"keyhole eval %s --data DIR\" makes one", run, run);
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
