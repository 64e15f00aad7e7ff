/* evaluation.c - the public kh_eval: an evaluation in memory of its own, read by functions, written
 * as results.json and report.html. */
#include "report/page.h"
#include "report/results.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_out.h"

#include <math.h>
#include <string.h>

/* The evaluation first: a kh_eval * is one of these. */
typedef struct owned {
    kh_eval eval;
    kh_eval_opts opts;
} owned;

kh_eval_opts kh_eval_defaults(void) {
    kh_eval_opts o = { .decide = kh_decision_defaults(), .bootstrap = kh_bootstrap_defaults() };
    o.decide.foreign = KH_SCORE_BOTH;
    return o;
}

int kh_eval_new(
    kh_eval **out, const kh_posterior *post, kh_plm *plm, const kh_eval_opts *opts, kh_err *err) {
    *out = NULL;
    owned *o = kh_calloc(1, sizeof *o);
    if (!o)
        return kh_fail_memory(err);
    o->opts = opts ? *opts : kh_eval_defaults();
    int rc = kh_eval_run(&o->eval, post, plm, &o->opts, err);
    if (rc != 0) {
        kh_eval_free(&o->eval);
        return rc;
    }
    *out = &o->eval;
    return 0;
}

void kh_eval_free(kh_eval *e) {
    if (!e)
        return;
    kh_eval_clear(e);
    kh_free(e);
}

kh_eval_info kh_eval_describe(const kh_eval *e) {
    return (kh_eval_info){ .rows = e->rows.n,
        .dev_rows = e->dev.n,
        .n_label = e->n_label,
        .queries = e->queries,
        .value = e->m,
        .low = e->low,
        .high = e->high,
        .decided = e->decided,
        .coverage = e->coverage,
        .risk = e->risk,
        .covered = e->covered,
        .set_size = e->set_size,
        .empty = e->empty,
        .flagged = e->flagged,
        .n_ood = e->n_outside };
}

const kh_decisions *kh_eval_decisions(const kh_eval *e) {
    return e->decided ? &e->decisions : NULL;
}

kh_eval_ood_info kh_eval_ood(const kh_eval *e, int i) {
    const kh_ood_rows *o = &e->outside[i];
    kh_eval_ood_info out = {
        .name = o->rows.name, .rows = o->rows.n, .flagged = o->flagged, .n_score = e->n_score
    };
    memcpy(out.value, o->value, sizeof out.value);
    return out;
}

/* ----------------------------------------------------------------------------------- the files */

/* What the evaluation was told, for the record. */
static void put_options(const kh_eval *e, kh_buf *out) {
    const kh_eval_opts *o = e->o;
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "data", e->data);
    kh_json_put_string(&j, "split", kh_eval_split_name(o->split));
    kh_json_put_int(&j, "rows", o->rows);
    kh_json_put_number(&j, "max-risk", o->decide.max_risk, 9);
    kh_json_put_number(&j, "delta", o->decide.delta, 9);
    kh_json_put_number(&j, "alpha", o->decide.alpha, 9);
    kh_json_put_bool(&j, "per-class", o->decide.per_class);
    kh_json_put_number(&j, "keep", o->decide.keep, 9);
    kh_json_put_int(&j, "bootstrap", o->bootstrap.n_resample);
    kh_json_put_number(&j, "level", o->bootstrap.level, 9);
    kh_json_put_u64(&j, "seed", o->seed);
    kh_json_close(&j);
}

static int make_json(const kh_eval *e, const char *run, kh_buf *out, kh_err *err) {
    kh_buf options = kh_buf_init(1 << 20);
    put_options(e, &options);
    if (!kh_buf_failed(&options))
        kh_results_json(e, run, options.data, out);
    int rc = kh_buf_failed(&options) || kh_buf_failed(out) ? kh_fail_memory(err) : 0;
    kh_buf_free(&options);
    return rc;
}

static int make_html(const kh_eval *e, const char *run, kh_buf *out, kh_err *err) {
    kh_runlog log = { 0 };
    kh_buf options = kh_buf_init(1 << 20);
    put_options(e, &options);
    int rc = kh_buf_failed(&options) ? kh_fail_memory(err) : kh_runlog_open(&log, run, err);
    kh_page page = { .eval = e,
        .log = &log,
        .run = run,
        .options = options.data,
        .plotter = { .program = "gnuplot" } };
    if (rc == 0)
        rc = kh_page_write(&page, out, err);
    if (rc == 0 && kh_buf_failed(out))
        rc = kh_fail_memory(err);
    kh_buf_free(&options);
    kh_runlog_free(&log);
    return rc;
}

typedef int make_fn(const kh_eval *, const char *run, kh_buf *out, kh_err *err);

static int give_text(make_fn *make, const kh_eval *e, const char *run, char **text, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    *text = NULL;
    int rc = make(e, run, &b, err);
    if (rc == 0 && !(*text = kh_strndup(b.data, b.len)))
        rc = kh_fail_memory(err);
    kh_buf_free(&b);
    return rc;
}

int kh_eval_json(const kh_eval *e, const char *run, char **json, kh_err *err) {
    return give_text(make_json, e, run, json, err);
}

int kh_eval_html(const kh_eval *e, const char *run, char **html, kh_err *err) {
    return give_text(make_html, e, run, html, err);
}

static int write_one(make_fn *make, const kh_eval *e, const char *run, const char *dir,
    const char *name, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    char *path = kh_path_join(dir, name);
    int rc = path ? make(e, run, &b, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_file_write(path, b.data, b.len, err);
    kh_free(path);
    kh_buf_free(&b);
    return rc;
}

/* results.json last: a folder that has one has the rest, too. */
int kh_eval_save(const kh_eval *e, const char *run, const char *dir, kh_err *err) {
    int rc = dir ? kh_dir_make(dir, err) : 0;
    if (rc == 0 && e->decided)
        rc = kh_decisions_save(&e->decisions, run, err);
    if (rc == 0)
        rc = write_one(make_html, e, run, dir ? dir : run, KH_PAGE_NAME, err);
    if (rc == 0)
        rc = write_one(make_json, e, run, dir ? dir : run, KH_RESULTS_NAME, err);
    return rc;
}
