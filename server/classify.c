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
#include "posterior/prediction.h"

#include <inttypes.h>
#include <math.h>
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

static int read_texts(kh_server *s, texts *t, const char *body, size_t n, kh_err *err) {
    const kh_task *task = kh_posterior_describe(s->what.posterior).task;
    int rc = kh_json_parse(body, n, "request", &t->root, err);
    const json_t *one = json_object_get(t->root, "text"), *all = json_object_get(t->root, "texts");
    if (rc == 0 &&
        (!json_is_object(t->root) || (one != NULL) == (all != NULL) ||
            (all && !json_is_array(all))))
        rc = kh_fail(err, KH_EFORMAT,
            "request: must be an object with a \"text\", or with an array of \"texts\"");
    if (rc != 0)
        return rc;
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

/* All rows of all calls in one question. */
static int classify(kh_server *s, kh_call **calls, int n, kh_err *err) {
    kh_posterior_info info = kh_posterior_describe(s->what.posterior);
    size_t n_label = (size_t)info.task->n_label, total = 0, at = 0;
    for (int i = 0; i < n; i++)
        total += (size_t)((const texts *)calls[i]->parsed)->n;
    kh_row *rows = kh_calloc(total, sizeof *rows);
    double *p = kh_calloc(total * (2 * n_label + 2), sizeof *p),
           *votes = p ? p + total * n_label : NULL, *ambiguity = p ? votes + total * n_label : NULL,
           *energy = p ? ambiguity + total : NULL;
    kh_explained said = { p, votes, ambiguity, energy };
    bool *in = kh_calloc(n_label, sizeof *in);
    int rc = rows && p && in ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        const texts *t = calls[i]->parsed;
        memcpy(rows + at, t->row, (size_t)t->n * sizeof *rows);
        at += (size_t)t->n;
    }
    if (rc == 0)
        rc = kh_predictor_explain(s->predictor, rows, (int)total, &said, err);
    at = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const texts *t = calls[i]->parsed;
        kh_reply_text(calls[i], 200, NULL, t->many ? "{\"results\":[" : "");
        for (int k = 0; k < t->n; k++, at++) {
            kh_json_out j = kh_json_out_init(&calls[i]->reply.body, KH_JSON_COMPACT);
            kh_prediction a = kh_prediction_of(
                info.task, &rows[at], &said, (int)at, s->decides ? &s->decisions : NULL, in);
            kh_buf_text(&calls[i]->reply.body, k ? "," : "");
            kh_prediction_json(&a, &(kh_prediction_view){ 0 }, &j, NULL);
        }
        kh_buf_text(&calls[i]->reply.body, t->many ? "]}\n" : "\n");
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

static bool joins(const kh_call *a, const kh_call *b) { return a->way == b->way; }

static const kh_way CLASSIFY = { joins, run, free_texts };

void kh_post_classify(kh_server *s, kh_call *c) {
    kh_err err = { 0 };
    texts *t = kh_calloc(1, sizeof *t);
    if (!t) {
        kh_reply_fail(c, 503, "out of memory");
        return;
    }
    c->parsed = t;
    c->way = &CLASSIFY;
    if (read_texts(s, t, c->body.data ? c->body.data : "", c->body.len, &err) != 0)
        kh_reply_err(c, &err);
    c->cost =
        (long long)t->n * kh_posterior_describe(s->what.posterior).samples * s->limits.max_len;
}

/* ---------------------------------------------------------------------------------- what it is */

int kh_classify_init(kh_server *s, kh_err *err) {
    kh_plm_info box = kh_plm_describe(s->what.plm);
    kh_posterior_info info = kh_posterior_describe(s->what.posterior);
    kh_buf b = kh_buf_init(1 << 20);
    s->limits = (kh_wire_limits){ .hidden = box.hidden,
        .max_len = box.max_len,
        .prompts = 1,
        .rows = s->o.rows,
        .tokens = s->o.tokens };
    int rc = kh_predictor_new(&s->predictor, s->what.posterior, s->what.plm, NULL, err);
    if (rc == 0 && s->what.run) {
        rc = kh_decisions_open(&s->decisions, s->what.run, err);
        s->decides = rc == 0;
        rc = rc == KH_EMISSING ? 0 : rc;
        if (s->decides)
            rc = kh_decisions_check(&s->decisions, s->predictor, s->what.run, err);
    }
    if (rc != 0)
        return rc;
    kh_buf_text(&b, "{\"name\":");
    kh_json_quote(&b, s->what.name, strlen(s->what.name));
    kh_buf_printf(&b,
        ",\"keyhole\":\"%s\",\"method\":\"%s\",\"samples\":%d,\"access\":\"%s\",\"fingerprint\":\"%"
        "016" PRIx64 "\",\"metric\":\"%s\"",
        kh_version(), info.method, info.samples, kh_access_name(info.access), info.fingerprint,
        kh_metric_name(info.task->metric));
    kh_buf_printf(&b, ",\"dev\":%.9g,\"decides\":%s,\"report\":%s,\"pair\":%s,\"task\":", info.dev,
        s->decides ? "true" : "false", s->report ? "true" : "false",
        info.task->pair ? "true" : "false");
    kh_json_quote(&b, info.task->name, strlen(info.task->name));
    kh_buf_text(&b, ",\"labels\":[");
    for (int k = 0; k < info.task->n_label; k++) {
        kh_buf_text(&b, k ? "," : "");
        kh_json_quote(&b, info.task->label[k].name, strlen(info.task->label[k].name));
    }
    kh_buf_text(&b, "]}\n");
    s->model_json = kh_buf_take(&b, NULL);
    return s->model_json ? 0 : kh_fail_memory(err);
}

/* RUN/report.html as it was when the server started; a classifier without a report is served, too.
 */
int kh_report_init(kh_server *s, kh_err *err) {
    char *path = s->what.run ? kh_path_join(s->what.run, "report.html") : NULL;
    kh_buf text = kh_buf_init(0);
    int rc = s->what.run && !path ? kh_fail_memory(err) : 0;
    if (rc == 0 && path && kh_file_exists(path))
        rc = kh_file_read(path, 64 << 20, &text, err);
    s->report = rc == 0 && text.len > 0 ? kh_buf_take(&text, NULL) : NULL;
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

void kh_get_page(kh_server *s, kh_call *c) {
    (void)s;
    kh_reply_text(c, 200, "text/html; charset=utf-8", PAGE);
}

void kh_get_report(kh_server *s, kh_call *c) {
    if (s->report)
        kh_reply_text(c, 200, "text/html; charset=utf-8", s->report);
    else
        kh_reply_fail(c, 404, "this run has no report; \"keyhole eval RUN\" writes one");
}
