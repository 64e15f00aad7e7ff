/* classify.c - a tuned classifier as a service: POST /v1/classify, what it is made of (GET
 * /v1/run), the page at / and the report that "keyhole eval" wrote.
 *
 * Texts of requests that wait are classified in one call; the distribution of a text does not
 * depend on the others. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "data/task.h"
#include "judge/decisions.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "posterior/prediction.h"

#include <string.h>

static const char PAGE[] =
#include "server/page.inc"
    ;

/* The texts of one request. */
typedef struct texts {
    json_t *root; /* holds the strings */
    kh_row *row;
    int n;
    bool many; /* an array was given, so an array is answered */
    kh_tuned *by;
} texts;

/* ------------------------------------------------------------------------------------- reading */

static int read_row(const kh_task *task, const json_t *v, kh_row *row, kh_err *err) {
    const json_t *a = json_is_array(v) ? json_array_get(v, 0) : v,
                 *b = json_is_array(v) ? json_array_get(v, 1) : NULL;
    if (!json_is_string(a) || (json_is_array(v) && json_array_size(v) != 2) ||
        (b != NULL && !json_is_string(b)) || (b != NULL) != task->pair)
        return kh_fail(err, KH_EFORMAT, "request: for task \"%s\" a text is %s", task->name,
            task->pair ? "an array of two strings" : "a string");
    *row = (kh_row){ .a = json_string_value(a),
        .n_a = json_string_length(a),
        .b = json_string_value(b),
        .n_b = json_string_length(b),
        .label = -1 };
    return 0;
}

static int read_texts(kh_server *s, kh_call *c, texts *t, kh_err *err) {
    int rc = kh_json_parse(c->body.data ? c->body.data : "", c->body.len, "request", &t->root, err);
    const json_t *one = json_object_get(t->root, "text"), *all = json_object_get(t->root, "texts");
    if (rc == 0 &&
        (!json_is_object(t->root) || (one != NULL) == (all != NULL) ||
            (all && !json_is_array(all))))
        rc = kh_fail(err, KH_EFORMAT,
            "request: must be an object with a \"text\", or with an array of \"texts\"");
    if (rc != 0)
        return rc;
    t->by = kh_tuned_find(s, c, json_string_value(json_object_get(t->root, "model")));
    if (!t->by)
        return 0;
    const kh_task *task = kh_posterior_describe(t->by->what.posterior).task;
    t->many = all != NULL;
    size_t count = t->many ? json_array_size(all) : 1;
    if (count < 1 || count > (size_t)s->o.rows)
        return kh_fail(
            err, KH_ELIMIT, "request: %zu texts; 1 to %d are taken at a time", count, s->o.rows);
    t->row = kh_calloc(count, sizeof *t->row);
    if (!t->row)
        return kh_fail_memory(err);
    t->n = (int)count;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = read_row(task, t->many ? json_array_get(all, i) : one, &t->row[i], err);
    return rc;
}

static void free_texts(void *parsed) {
    texts *t = parsed;
    if (!t)
        return;
    json_decref(t->root);
    kh_free(t->row);
    kh_free(t);
}

/* ----------------------------------------------------------------------------------- answering */

/* The record, and whether the text was read to its end. */
static int put_answer(kh_tuned *by, const kh_prediction *a, kh_json_out *j, kh_err *err) {
    bool cut;
    int rc = kh_predictor_cuts(by->predictor, a->row, &cut, err);
    kh_json_open_object(j, NULL);
    kh_prediction_members(a, &(kh_prediction_view){ 0 }, j);
    kh_json_put_bool(j, "cut", cut);
    kh_json_close(j);
    return rc;
}

/* All rows of all calls in one question. */
static int classify(kh_server *s, kh_call **calls, int n, kh_err *err) {
    kh_tuned *by = ((const texts *)calls[0]->parsed)->by;
    kh_posterior_info info = kh_posterior_describe(by->what.posterior);
    size_t n_label = (size_t)info.task->n_label, total = 0, at = 0;
    for (int i = 0; i < n; i++)
        total += (size_t)((const texts *)calls[i]->parsed)->n;
    kh_row *rows = kh_calloc(total, sizeof *rows);
    double *p = kh_calloc(total * (2 * n_label + 3), sizeof *p),
           *votes = p ? p + total * n_label : NULL, *ambiguity = p ? votes + total * n_label : NULL,
           *energy = p ? ambiguity + total : NULL, *distance = p ? energy + total : NULL;
    kh_explained said = { p, votes, ambiguity, energy, distance };
    bool *in = kh_calloc(n_label, sizeof *in);
    int rc = rows && p && in ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        const texts *t = calls[i]->parsed;
        memcpy(rows + at, t->row, (size_t)t->n * sizeof *rows);
        at += (size_t)t->n;
    }
    if (rc == 0)
        rc = kh_predictor_explain(by->predictor, rows, (int)total, &said, err);
    at = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const texts *t = calls[i]->parsed;
        kh_reply_text(calls[i], 200, NULL, "");
        kh_json_out j = kh_json_out_init(&calls[i]->reply.body, KH_JSON_COMPACT);
        if (t->many) {
            kh_json_open_object(&j, NULL);
            kh_json_open_array(&j, "results");
        }
        for (int k = 0; k < t->n && rc == 0; k++, at++) {
            kh_prediction a = kh_prediction_of(
                info.task, &rows[at], &said, (int)at, by->decides ? &by->decisions : NULL, in);
            rc = put_answer(by, &a, &j, err);
        }
        if (t->many) {
            kh_json_close(&j);
            kh_json_close(&j);
        }
        kh_buf_char(&calls[i]->reply.body, '\n');
    }
    if (rc == 0)
        atomic_fetch_add(&s->count.queries, (long long)total * info.samples);
    kh_free(rows);
    kh_free(p);
    kh_free(in);
    return rc;
}

static void run(kh_server *s, kh_call **calls, int n) {
    kh_err err = { 0 };
    if (classify(s, calls, n, &err) == 0)
        return;
    for (int i = 0; i < n; i++) /* one of several may be the guilty one */
        if (n == 1 || classify(s, &calls[i], 1, &err) != 0)
            kh_reply_err(calls[i], &err);
}

static bool joins(const kh_call *a, const kh_call *b) {
    return ((const texts *)a->parsed)->by == ((const texts *)b->parsed)->by;
}

static const kh_way CLASSIFY = { joins, run, free_texts, true };

void kh_post_classify(kh_server *s, kh_call *c) {
    kh_err err = { 0 };
    texts *t = kh_calloc(1, sizeof *t);
    if (!t) {
        kh_reply_fail(c, 503, "out of memory");
        return;
    }
    c->parsed = t;
    c->way = &CLASSIFY;
    if (read_texts(s, c, t, &err) != 0)
        kh_reply_err(c, &err);
    else if (t->by) {
        kh_posterior_info info = kh_posterior_describe(t->by->what.posterior);
        c->queries = (long long)t->n * info.samples;
        c->cost = c->queries * s->limits.max_len;
        /* For each text: two distributions in numbers and in words, and some facts. */
        c->bound = (size_t)t->n * (1024 + 160 * (size_t)info.task->n_label);
        size_t longest = 0;
        for (int i = 0; i < t->n; i++) {
            size_t n = t->row[i].n_a + t->row[i].n_b;
            longest = n > longest ? n : longest;
        }
        c->bound += kh_encode_cost(longest);
    }
}

/* ---------------------------------------------------------------------------------- what it is */

kh_tuned *kh_tuned_find(kh_server *s, kh_call *c, const char *name) {
    if (s->n_tuned == 1 || !name)
        return s->tuned;
    char names[600];
    size_t n = 0;
    for (int i = 0; i < s->n_tuned; i++)
        if (strcmp(s->tuned[i].what.name, name) == 0)
            return &s->tuned[i];
    for (int i = 0; i < s->n_tuned && n + 80 < sizeof names; i++)
        n += (size_t)snprintf(
            names + n, sizeof names - n, "%s\"%.60s\"", i ? ", " : "", s->tuned[i].what.name);
    kh_reply_fail(c, 404, "there is no model \"%.60s\" here; there is %s", name, names);
    return NULL;
}

/* RUN/results.json, which "keyhole eval" wrote; *out NULL: there is none, or it is of no use. Only
 * beside decisions, whose stamp says that the classifier is still the one that was judged. */
static int read_results(const kh_tuned *t, json_t **out, kh_err *err) {
    char *path = t->decides ? kh_path_join(t->what.run, "results.json") : NULL;
    kh_buf text = kh_buf_init(0);
    kh_err own;
    int rc = t->decides && !path ? kh_fail_memory(err) : 0;
    *out = NULL;
    if (rc == 0 && path && kh_file_exists(path))
        rc = kh_file_read(path, 64 << 20, &text, err);
    if (rc == 0 && text.len > 0)
        kh_json_parse(text.data, text.len, path, out, &own);
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

/* The accuracy on held-out rows. */
static void put_test(const json_t *results, kh_json_out *j) {
    const json_t *a = json_object_get(json_object_get(results, "metrics"), "accuracy"),
                 *eval = json_object_get(results, "eval");
    const char *split = json_string_value(json_object_get(eval, "split"));
    if (!json_is_number(json_object_get(a, "value")) || !split || strcmp(split, "test") != 0)
        return;
    kh_json_open_object(j, "test");
    kh_json_put_number(j, "accuracy", json_number_value(json_object_get(a, "value")), 9);
    if (json_is_number(json_object_get(a, "low")) && json_is_number(json_object_get(a, "high"))) {
        kh_json_put_number(j, "low", json_number_value(json_object_get(a, "low")), 9);
        kh_json_put_number(j, "high", json_number_value(json_object_get(a, "high")), 9);
    }
    kh_json_put_int(j, "rows", json_integer_value(json_object_get(eval, "rows")));
    kh_json_close(j);
}

/* Texts to try, each a string or two. */
static void put_examples(const json_t *results, bool pair, kh_json_out *j) {
    const json_t *list = json_object_get(results, "examples"), *row;
    size_t i;
    kh_json_open_array(j, "examples");
    json_array_foreach(list, i, row) {
        const char *a = json_string_value(pair ? json_array_get(row, 0) : row),
                   *b = pair ? json_string_value(json_array_get(row, 1)) : NULL;
        if (!a || (pair && !b))
            continue;
        kh_json_open_array(j, NULL);
        kh_json_put_string(j, NULL, a);
        if (b)
            kh_json_put_string(j, NULL, b);
        kh_json_close(j);
    }
    kh_json_close(j);
}

/* When it abstains, so that a page can give the real reason. */
static void put_selector(const kh_decisions *d, kh_json_out *j) {
    const kh_selector *s = &d->selector;
    if (d->opts.max_risk <= 0) {
        kh_json_put_null(j, "abstention");
        return;
    }
    kh_json_open_object(j, "abstention");
    kh_json_put_string(j, "answers", kh_selector_answers(s));
    kh_json_put_string(j, "score", kh_score_name(d->opts.score));
    kh_json_put_number(j, "threshold", s->threshold, 9);
    kh_json_put_number(j, "max_risk", s->max_risk, 9);
    kh_json_put_number(j, "delta", s->delta, 9);
    kh_json_put_bool(j, "estimate", s->estimate);
    kh_json_put_number(j, "coverage", s->coverage, 9);
    kh_json_put_int(j, "rows", s->n);
    kh_json_close(j);
}

static void put_run(kh_tuned *t, const json_t *results, kh_buf *b) {
    kh_posterior_info info = kh_posterior_describe(t->what.posterior);
    kh_json_out j = kh_json_out_init(b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "name", t->what.name);
    kh_json_put_string(&j, "keyhole", kh_version());
    kh_json_put_string(&j, "method", info.method);
    kh_json_put_int(&j, "samples", info.samples);
    kh_json_put_string(&j, "access", kh_access_name(info.access));
    kh_json_put_hex(&j, "fingerprint", info.fingerprint);
    kh_json_put_string(&j, "metric", kh_metric_name(info.task->metric));
    kh_json_put_number(&j, "dev", info.dev, 9);
    kh_json_put_bool(&j, "decides", t->decides);
    if (t->decides && t->decisions.warning[0])
        kh_json_put_string(&j, "warning", t->decisions.warning);
    if (t->decides) {
        kh_json_put_bool(&j, "estimate", t->decisions.selector.estimate);
        put_selector(&t->decisions, &j);
    }
    put_test(results, &j);
    put_examples(results, info.task->pair, &j);
    kh_json_put_bool(&j, "report", t->report != NULL);
    kh_json_put_bool(&j, "pair", info.task->pair);
    kh_json_put_string(&j, "task", info.task->name);
    kh_json_open_array(&j, "labels");
    for (int k = 0; k < info.task->n_label; k++)
        kh_json_put_string(&j, NULL, info.task->label[k].name);
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(b, '\n');
}

/* RUN/report.html as it was when the server started; a classifier without a report is served, too.
 */
static int read_report(kh_tuned *t, kh_err *err) {
    char *path = t->what.run ? kh_path_join(t->what.run, "report.html") : NULL;
    kh_buf text = kh_buf_init(0);
    int rc = t->what.run && !path ? kh_fail_memory(err) : 0;
    if (rc == 0 && path && kh_file_exists(path))
        rc = kh_file_read(path, 64 << 20, &text, err);
    t->report = rc == 0 && text.len > 0 ? kh_buf_take(&text, NULL) : NULL;
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

static int open_tuned(kh_tuned *t, const kh_served *what, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 20);
    t->what = *what;
    t->probabilities = kh_posterior_describe(what->posterior).access > KH_ACCESS_LABELS ||
        what->posterior->calibrated;
    int rc = kh_predictor_new(&t->predictor, what->posterior, what->plm, NULL, err);
    if (rc == 0 && what->run) {
        rc = kh_decisions_open(&t->decisions, what->run, err);
        t->decides = rc == 0;
        rc = rc == KH_EMISSING ? 0 : rc;
        if (t->decides)
            rc = kh_decisions_check(&t->decisions, t->predictor, what->run, err);
    }
    json_t *results = NULL;
    if (rc == 0)
        rc = read_report(t, err);
    if (rc == 0)
        rc = read_results(t, &results, err);
    if (rc != 0)
        return rc;
    put_run(t, results, &b);
    json_decref(results);
    t->json = kh_buf_take(&b, NULL);
    return t->json ? 0 : kh_fail_memory(err);
}

int kh_classify_init(kh_server *s, kh_err *err) {
    int n = 1 + s->what.n_other, rc = 0;
    s->tuned = kh_calloc((size_t)n, sizeof *s->tuned);
    if (!s->tuned)
        return kh_fail_memory(err);
    s->limits = (kh_wire_limits){ .prompts = 1, .rows = s->o.rows, .tokens = s->o.tokens };
    for (s->n_tuned = 0; s->n_tuned < n && rc == 0; s->n_tuned++) {
        const kh_served *what = s->n_tuned == 0 ? &s->what : &s->what.others[s->n_tuned - 1];
        kh_plm_info box = kh_plm_describe(what->plm);
        s->limits.hidden = box.hidden;
        if (box.max_len > s->limits.max_len)
            s->limits.max_len = box.max_len;
        for (int i = 0; i < s->n_tuned && rc == 0; i++)
            if (strcmp(s->tuned[i].what.name, what->name) == 0)
                rc = kh_fail(err, KH_EARG,
                    "two runs are called \"%.60s\"; --run NAME=RUN gives names", what->name);
        if (rc == 0)
            rc = open_tuned(&s->tuned[s->n_tuned], what, err);
    }
    return rc;
}

void kh_classify_free(kh_server *s) {
    for (int i = 0; i < s->n_tuned; i++) {
        kh_predictor_free(s->tuned[i].predictor);
        kh_decisions_free(&s->tuned[i].decisions);
        kh_free(s->tuned[i].report);
        kh_free(s->tuned[i].json);
    }
    kh_free(s->tuned);
}

void kh_get_run(kh_server *s, kh_call *c) {
    kh_tuned *t = kh_tuned_find(s, c, kh_call_query(c, "model"));
    if (t)
        kh_reply_fixed(c, NULL, t->json);
}

void kh_get_page(kh_server *s, kh_call *c) {
    (void)s;
    kh_reply_fixed(c, "text/html; charset=utf-8", PAGE);
}

void kh_get_report(kh_server *s, kh_call *c) {
    kh_tuned *t = kh_tuned_find(s, c, kh_call_query(c, "model"));
    if (t && t->report)
        kh_reply_fixed(c, "text/html; charset=utf-8", t->report);
    else if (t)
        kh_reply_fail(c, 404, "this run has no report; \"keyhole eval RUN\" writes one");
}
