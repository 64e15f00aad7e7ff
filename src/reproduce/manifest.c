/* manifest.c - what a run of a plan, and a whole grid, leave behind; see reproduction.h. */
#include "reproduce/reproduction.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_in.h"
#include "base/json_out.h"

#include "tune/effort.h"

#include <limits.h>
#include <string.h>

/* A line of terms and five numbers. */
enum { MANIFEST_MAX = 1 << 20 };

/* Whole numbers that a double holds exactly. */
static double get_count(kh_json_in *in, const json_t *root, const char *key) {
    double x = kh_json_get_number(in, root, key);
    if (!(x >= 0 && x < 9e15))
        kh_json_refuse(in, KH_EFORMAT, "\"%s\" is %g, expected a count", key, x);
    return in->rc == 0 ? x : 0;
}

static int parse(kh_manifest *r, const json_t *root, const char *path, kh_err *err) {
    kh_json_in in = { path, err, 0 };
    const char *terms = kh_json_get_string(&in, root, "terms");
    r->queries = (long long)get_count(&in, root, "queries");
    r->tokens = (long long)get_count(&in, root, "tokens");
    r->eval_queries = (long long)get_count(&in, root, "eval_queries");
    r->seconds = get_count(&in, root, "seconds");
    r->eval_seconds = get_count(&in, root, "eval_seconds");
    if (in.rc == 0 && !(r->terms = kh_strdup(terms)))
        in.rc = kh_fail_memory(err);
    return in.rc;
}

int kh_manifest_read(kh_manifest *r, const char *dir, kh_err *err) {
    *r = (kh_manifest){ 0 };
    json_t *root = NULL;
    char *path = kh_path_join(dir, KH_MANIFEST_NAME);
    int rc;
    if (!path)
        rc = kh_fail_memory(err);
    else if (!kh_file_exists(path))
        rc = kh_fail(err, KH_EMISSING, "%s: not there: the run is not done", path);
    else
        rc = kh_json_read(path, MANIFEST_MAX, &root, err);
    if (rc == 0)
        rc = parse(r, root, path, err);
    json_decref(root);
    kh_free(path);
    return rc;
}

/* Frees the bytes. */
static int save(kh_buf *b, const char *dir, const char *name, kh_err *err) {
    char *path = kh_path_join(dir, name);
    int rc =
        !path || kh_buf_failed(b) ? kh_fail_memory(err) : kh_file_write(path, b->data, b->len, err);
    kh_buf_free(b);
    kh_free(path);
    return rc;
}

int kh_manifest_write(const kh_manifest *r, const char *dir, kh_err *err) {
    kh_buf b = kh_buf_init(MANIFEST_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "terms", r->terms);
    kh_json_gap(&j, "\n ");
    kh_json_put_int(&j, "queries", r->queries);
    kh_json_put_int(&j, "tokens", r->tokens);
    kh_json_put_fixed(&j, "seconds", r->seconds, 3);
    kh_json_put_int(&j, "eval_queries", r->eval_queries);
    kh_json_put_fixed(&j, "eval_seconds", r->eval_seconds, 3);
    kh_json_close(&j);
    kh_buf_char(&b, '\n');
    return save(&b, dir, KH_MANIFEST_NAME, err);
}

void kh_manifest_free(kh_manifest *r) {
    kh_free(r->terms);
    *r = (kh_manifest){ 0 };
}

int kh_backbone_read(kh_backbone *b, const char *dir, kh_err *err) {
    *b = (kh_backbone){ 0 };
    json_t *root = NULL;
    char *path = kh_path_join(dir, KH_BACKBONE_NAME);
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && !kh_file_exists(path))
        rc = kh_fail(err, KH_EMISSING,
            "%s: not there; --beside takes the --out of another \"keyhole reproduce\" that has "
            "done a run",
            path);
    if (rc == 0)
        rc = kh_json_read(path, MANIFEST_MAX, &root, err);
    if (rc == 0) {
        kh_json_in in = { path, err, 0 };
        const char *model = kh_json_get_string(&in, root, "model"),
                   *common = kh_json_get_string(&in, root, "common");
        rc = in.rc;
        if (rc == 0 && (!(b->model = kh_strdup(model)) || !(b->common = kh_strdup(common))))
            rc = kh_fail_memory(err);
    }
    json_decref(root);
    kh_free(path);
    return rc;
}

int kh_backbone_write(const char *dir, const char *model, const char *common, kh_err *err) {
    kh_buf b = kh_buf_init(MANIFEST_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "model", model);
    kh_json_put_string(&j, "common", common);
    kh_json_close(&j);
    kh_buf_char(&b, '\n');
    return save(&b, dir, KH_BACKBONE_NAME, err);
}

void kh_backbone_free(kh_backbone *b) {
    kh_free(b->model);
    kh_free(b->common);
    *b = (kh_backbone){ 0 };
}

/* Everything that decides a run's result, in words, with a bar between what decides the posterior
 * and what decides only how it is judged: after a change behind the bar, a run is judged again
 * without being tuned again. */
void kh_planned_terms(const kh_planned *r, kh_preset preset, const char *common, kh_buf *out) {
    const kh_variant *v = r->variant;
    kh_buf_printf(out, "%s method=%s shots=%d seed=%llu", common, v->method, r->shots,
        (unsigned long long)r->seed);
    kh_buf_printf(out, "%s%s", v->exact ? " exact" : "", v->code ? " code" : "");
    kh_buf_text(out, v->calibrated ? " calibrated" : "");
    if (v->own)
        kh_buf_printf(out, " effort=%s", kh_effort_name(kh_variant_effort(v, preset)));
    kh_buf_printf(out, "%s%s", v->set ? " " : "", v->set ? v->set : "");
    if (preset == KH_PRESET_FAST)
        kh_buf_printf(out, " fast %s candidates=%d", v->fast ? v->fast : "", v->candidates);
    if (preset == KH_PRESET_STANDARD)
        kh_buf_printf(out, " standard %s queries=%lld", v->standard ? v->standard : "",
            kh_variant_queries(v, preset, INT_MAX));
    kh_buf_printf(out, " | rows=%d", r->rows);
    for (int i = 0; i < r->n_ood; i++)
        kh_buf_printf(out, " ood=%s", r->ood[i]);
}

/* Up to and with the bar: what decides the posterior. */
static size_t tuning_terms(const char *terms) { return (size_t)(strrchr(terms, '|') - terms) + 1; }

kh_state kh_planned_state(const kh_planned *r, kh_preset preset, const char *common,
    const char *runs, kh_manifest *found) {
    kh_state state = KH_STATE_OPEN;
    kh_buf terms = kh_buf_init(MANIFEST_MAX);
    char *dir = kh_path_join(runs, r->name);
    kh_planned_terms(r, preset, common, &terms);
    *found = (kh_manifest){ 0 };
    if (dir && !kh_buf_failed(&terms) && kh_manifest_read(found, dir, NULL) == 0) {
        if (strcmp(found->terms, terms.data) == 0)
            state = KH_STATE_DONE;
        else if (strncmp(found->terms, terms.data, tuning_terms(terms.data)) == 0)
            state = KH_STATE_TUNED;
    }
    kh_buf_free(&terms);
    kh_free(dir);
    return state;
}
