/* published.c - see published.h. */
#include "reproduce/published.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "reproduce/plan.h"

#include <math.h>
#include <string.h>

enum { FILE_MAX = 16 << 20 };

/* The JSON document as a C string, made by the Makefile. */
static const char PAPER[] =
#include "paper_tables.inc"
    ;

static int add(kh_published *p, const kh_published_value *v, kh_err *err) {
    if (!kh_grow(&p->value, &p->cap, (size_t)p->n + 1, sizeof *p->value))
        return kh_fail_memory(err);
    p->value[p->n++] = *v;
    return 0;
}

void kh_published_free(kh_published *p) {
    kh_free(p->value);
    kh_arena_free(&p->arena);
    *p = (kh_published){ 0 };
}

/* ------------------------------------------------------------------------------------ the file */

static int keep(kh_published *p, const json_t *o, const char *key, const char **out,
    const char *place, kh_err *err) {
    const char *s = NULL;
    int rc = kh_json_string_opt(o, key, &s, place, err);
    *out = NULL;
    if (rc == 0 && s && !(*out = kh_arena_strndup(&p->arena, s, strlen(s))))
        rc = kh_fail_memory(err);
    return rc;
}

static bool is_method(const char *name) {
    bool known = strcmp(name, "lower-bound") == 0;
    for (int i = 0; kh_variant_at(i) && !known; i++)
        known = strcmp(kh_variant_at(i)->name, name) == 0;
    return known;
}

static bool is_task(const char *name) {
    bool known = strcmp(name, "average") == 0;
    for (int i = 0; kh_experiment_at(i) && !known; i++)
        known = strcmp(kh_experiment_at(i)->task, name) == 0;
    return known;
}

static int read_value(
    kh_published *p, const json_t *o, const char *source, const char *place, kh_err *err) {
    kh_published_value v = { .sd = NAN, .model = KH_PAPER_MODEL, .source = source };
    struct {
        const char *key, **out;
        bool needed;
    } text[] = { { "table", &v.table, true }, { "model", &v.model, false },
        { "method", &v.method, true }, { "task", &v.task, true }, { "ood", &v.ood, false },
        { "score", &v.score, false }, { "note", &v.note, false } };
    int rc = 0;
    for (size_t i = 0; i < sizeof text / sizeof text[0] && rc == 0; i++) {
        rc = keep(p, o, text[i].key, text[i].out, place, err);
        if (rc == 0 && text[i].needed && !*text[i].out)
            rc = kh_fail(err, KH_EFORMAT, "%s: \"%s\" is missing", place, text[i].key);
    }
    v.model = v.model ? v.model : KH_PAPER_MODEL;
    if (rc == 0)
        rc = kh_json_number(o, "value", &v.value, place, err);
    if (rc == 0)
        rc = kh_json_number_opt(o, "sd", &v.sd, place, err);
    if (rc == 0 && (strlen(v.table) != 1 || v.table[0] < '1' || v.table[0] > '4'))
        rc = kh_fail(
            err, KH_EFORMAT, "%s: \"table\" is \"%s\", expected \"1\" to \"4\"", place, v.table);
    if (rc == 0 && !is_method(v.method))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: \"method\" is \"%s\", which no table has; \"keyhole reproduce --help\" lists them",
            place, v.method);
    if (rc == 0 && !is_task(v.task))
        rc = kh_fail(err, KH_EFORMAT, "%s: \"task\" is \"%s\", which no table has", place, v.task);
    return rc == 0 ? add(p, &v, err) : rc;
}

static int read_all(kh_published *p, const json_t *root, const char *name, kh_err *err) {
    const char *source = NULL;
    int rc = keep(p, root, "source", &source, name, err);
    if (rc == 0 && !source)
        rc = kh_fail(
            err, KH_EFORMAT, "%s: must say where its numbers come from, in \"source\"", name);
    const json_t *values = rc == 0 ? json_object_get(root, "values") : NULL;
    if (rc == 0 && !json_is_array(values))
        rc = kh_fail(err, KH_EFORMAT, "%s: \"values\" must be an array", name);
    for (size_t i = 0; rc == 0 && i < json_array_size(values); i++) {
        char place[512];
        snprintf(place, sizeof place, "%.400s: value %zu", name, i + 1);
        rc = read_value(p, json_array_get(values, i), source, place, err);
    }
    return rc;
}

int kh_published_init(kh_published *p, kh_err *err) {
    *p = (kh_published){ 0 };
    json_t *root = NULL;
    int rc = kh_json_parse(PAPER, sizeof PAPER - 1, "paper_tables.json", &root, err);
    if (rc == 0)
        rc = read_all(p, root, "paper_tables.json", err);
    json_decref(root);
    return rc;
}

int kh_published_read(kh_published *p, const char *path, kh_err *err) {
    json_t *root = NULL;
    int rc = kh_json_read(path, FILE_MAX, &root, err);
    if (rc == 0)
        rc = read_all(p, root, path, err);
    json_decref(root);
    return rc;
}

/* ---------------------------------------------------------------------------------- looking up */

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

const kh_published_value *kh_published_find(const kh_published *p, const char *model,
    const char *table, const char *method, const char *task, const char *ood, const char *score) {
    for (int i = p->n; i-- > 0;) {
        const kh_published_value *v = &p->value[i];
        if (same(v->model, model) && same(v->table, table) && same(v->method, method) &&
            same(v->task, task) && same(v->ood, ood) && same(v->score, score))
            return v;
    }
    return NULL;
}
