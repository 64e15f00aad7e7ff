/* describe.c - what a client needs to know before it can ask: sizes, fingerprint, limits,
 * tokenizer, word embeddings. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_out.h"
#include "model/engine.h"
#include "plm/backend.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *access_name(const kh_server *s) {
    return s->what.embeddings ? "embeddings" : kh_access_name(s->access);
}

static int describe_model(kh_server *s, const kh_model_info *m, kh_err *err) {
    kh_plm_info info = kh_plm_describe(s->what.plm);
    kh_buf b = kh_buf_init(1 << 20);
    double mean, std;
    int rc = kh_plm_embedding_stats(s->what.plm, &mean, &std, err);
    if (rc != 0)
        return rc;
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "name", s->what.name);
    kh_json_put_string(&j, "keyhole", kh_version());
    kh_json_put_string(&j, "access", access_name(s));
    kh_json_put_string(&j, "backend", info.backend);
    kh_json_put_string(&j, "precision", info.precision);
    kh_json_put_string(&j, "kernels", info.kernels);
    kh_json_put_int(&j, "hidden", info.hidden);
    kh_json_put_int(&j, "max_len", info.max_len);
    kh_json_put_int(&j, "vocab", m->vocab);
    kh_json_put_hex(&j, "fingerprint", m->fingerprint);
    kh_json_open_object(&j, "embeddings");
    kh_json_put_number(&j, "mean", mean, 17);
    kh_json_put_number(&j, "std", std, 17);
    kh_json_close(&j);
    kh_json_put_bool(&j, "energy", info.energy && s->scorer);
    if (info.next)
        kh_json_put_bool(&j, "next", true);
    kh_json_open_object(&j, "limits");
    kh_json_put_int(&j, "body", (long long)s->o.body_mb << 20);
    kh_json_put_int(&j, "prompts", s->limits.prompts);
    kh_json_put_int(&j, "rows", s->limits.rows);
    kh_json_put_int(&j, "tokens", s->limits.tokens);
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&b, '\n');
    s->model_json = kh_buf_take(&b, NULL);
    return s->model_json ? 0 : kh_fail_memory(err);
}

static int describe_tokenizer(kh_server *s, kh_err *err) {
    kh_tokenizer_files f;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = kh_tokenizer_files_read(&f, s->what.dir, err);
    if (rc == 0) {
        kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "main", kh_path_base(f.file[KH_FILE_MAIN].path));
        kh_json_open_object(&j, "files");
        for (int i = 0; i < KH_N_TOKENIZER_FILE; i++)
            if (f.file[i].there)
                kh_json_put_base64(
                    &j, kh_path_base(f.file[i].path), f.file[i].bytes.data, f.file[i].bytes.len);
        kh_json_close(&j);
        kh_json_close(&j);
        kh_buf_char(&b, '\n');
        s->tokenizer_json = kh_buf_take(&b, NULL);
        rc = s->tokenizer_json ? 0 : kh_fail_memory(err);
    }
    kh_buf_free(&b);
    kh_tokenizer_files_free(&f);
    return rc;
}

int kh_describe_init(kh_server *s, kh_err *err) {
    kh_engine *e = kh_plm_engine(s->what.plm);
    if (!e)
        return kh_fail(err, KH_EUNSUPPORTED,
            "only a model that runs in this process can be served as a black box");
    kh_model_info m = kh_model_describe(kh_engine_model(e));
    s->limits = (kh_wire_limits){ .hidden = m.hidden,
        .max_len = m.max_tokens,
        .vocab = m.vocab,
        .prompts = s->o.prompts,
        .rows = s->o.rows,
        .tokens = s->o.tokens,
        .next = kh_plm_describe(s->what.plm).next };
    int rc = describe_model(s, &m, err);
    return rc == 0 ? describe_tokenizer(s, err) : rc;
}

/* -------------------------------------------------------------------------------------- routes */

void kh_get_health(kh_server *s, kh_call *c) {
    bool draining = atomic_load(&s->draining);
    kh_reply_text(c, draining ? 503 : 200, NULL,
        draining ? "{\"status\":\"draining\"}\n" : "{\"status\":\"ok\"}\n");
}

void kh_get_metrics(kh_server *s, kh_call *c) {
    kh_reply_text(c, 200, "text/plain; version=0.0.4; charset=utf-8", "");
    kh_metrics_put(s, &c->reply.body);
}

static void put_card(kh_json_out *j, const kh_server *s, int i, bool openai) {
    const kh_served *what = s->n_tuned > 0 ? &s->tuned[i].what : &s->what;
    char text[200], date[16];
    struct tm day;
    gmtime_r(&(time_t){ s->since }, &day);
    strftime(date, sizeof date, "%Y-%m-%d", &day);
    if (what->posterior) {
        kh_posterior_info info = kh_posterior_describe(what->posterior);
        snprintf(text, sizeof text, "a classifier for the task %.60s, %d labels, tuned by %.40s",
            info.task->name, info.task->n_label, info.method);
    } else {
        snprintf(text, sizeof text, "a language model, access level %.20s", access_name(s));
    }
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, openai ? "id" : "name", what->name);
    if (openai) {
        kh_json_put_string(j, "object", "model");
        kh_json_put_int(j, "created", s->since);
        kh_json_put_string(j, "owned_by", "keyhole");
        kh_json_put_int(j, "max_model_len", kh_plm_describe(what->plm).max_len);
    } else {
        kh_json_put_string(j, "description", text);
        kh_json_put_string(j, "release_date", date);
    }
    kh_json_close(j);
}

/* "data" is OpenAI's list, "models" TypeSafe's: each client passes over the other's. */
void kh_get_models(kh_server *s, kh_call *c) {
    int n = s->n_tuned > 0 ? s->n_tuned : 1;
    kh_reply_text(c, 200, NULL, "");
    kh_json_out j = kh_json_out_init(&c->reply.body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "object", "list");
    for (int list = 0; list < 2; list++) {
        kh_json_open_array(&j, list == 0 ? "data" : "models");
        for (int i = 0; i < n; i++)
            put_card(&j, s, i, list == 0);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_buf_char(&c->reply.body, '\n');
}

void kh_get_model(kh_server *s, kh_call *c) { kh_reply_fixed(c, NULL, s->model_json); }
void kh_get_tokenizer(kh_server *s, kh_call *c) { kh_reply_fixed(c, NULL, s->tokenizer_json); }

/* One row of the word embeddings, what prompts are made from; reading it asks the model nothing. */
void kh_get_embedding(kh_server *s, kh_call *c) {
    const char *text = kh_call_query(c, "id");
    size_t digits = text ? strspn(text, "0123456789") : 0;
    kh_err err = { 0 };
    if (digits == 0 || digits > 9 || text[digits]) {
        kh_reply_fail(c, 400, "the word embedding of which token? /v1/embedding?id=N");
        return;
    }
    float *row = kh_malloc((size_t)s->limits.hidden * sizeof *row);
    int rc = row ? kh_plm_embedding_row(s->what.plm, atoi(text), row, &err) : kh_fail_memory(&err);
    if (rc != 0)
        kh_reply_err(c, &err);
    else {
        kh_reply_text(c, 200, NULL, "");
        kh_json_out j = kh_json_out_init(&c->reply.body, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_ints(&j, "shape", (const int[]){ 1, s->limits.hidden }, 2);
        kh_wire_floats_put(&j, row, (size_t)s->limits.hidden);
        kh_json_close(&j);
        kh_buf_char(&c->reply.body, '\n');
    }
    kh_free(row);
}
