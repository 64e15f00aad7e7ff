/* remote_keyhole.c - the box behind keyhole's own API: "keyhole serve" on the other side.
 *
 * The service tells what it is (GET /v1/model) and gives its tokenizer, so rows are encoded here
 * exactly as they would be beside the model, and answers come back with the bits that the engine
 * there computed. Backend, precision and kernels are those of the engine that answers: a posterior
 * does not change by the wire in between.
 *
 * A question is cut into requests of some prompts, or where one prompt is too much already, of some
 * rows; several are in flight, and the service joins those that wait. */
#include "plm/services.h"
#include "plm/wire.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/json_in.h"
#include "text/tokenizer.h"
#include "model/question.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct remote {
    kh_http *http;
    char *name, *backend, *precision, *kernels;
    int hidden, max_len, prompts, rows; /* of the model; and the most that a request may hold */
    long long tokens;
    size_t body;
    uint64_t fingerprint;
    double mean, std;
    bool energy;             /* it lets energies out */
    bool next;               /* the model continues texts */
    unsigned char *answered; /* [pairs] of the last question */
    size_t cap;
} remote;

/* -------------------------------------------------------------------------------------- asking */

/* One request: prompts [p0, p1) with rows [r0, r1). */
typedef struct part {
    int p0, p1, r0, r1;
} part;

typedef struct asking {
    remote *r;
    const kh_question *q;
    kh_answer_kind want;
    part *part;
    int n_part;
    int *label;
    float *logprob, *energy; /* energy NULL: not wanted */
} asking;

static size_t tokens_of(const kh_batch *b, int r0, int r1) {
    return b->start[r1 * b->n_variant] - b->start[r0 * b->n_variant];
}

/* How many prompts and rows go into one request: as the service allows, and for a large question a
 * share that keeps several requests in flight. */
static void cut(const asking *a, int *prompts, int *rows) {
    const kh_batch *b = a->q->batch;
    const remote *r = a->r;
    int n = kh_question_prompts(a->q), share = (n + 3) / 4;
    size_t prompt_bytes = ((size_t)b->n_slot * (size_t)r->hidden * sizeof(float) + 2) / 3 * 4 + 64,
           room = r->body / 2;
    *rows = b->n_row < r->rows ? b->n_row : r->rows;
    while (*rows > 1 &&
        ((long long)tokens_of(b, 0, *rows) > r->tokens || tokens_of(b, 0, *rows) * 8 > room))
        *rows = (*rows + 1) / 2;
    long long each = (long long)*rows * b->n_variant * b->max_len;
    *prompts = share < r->prompts ? share : r->prompts;
    while (*prompts > 1 &&
        ((long long)*prompts * each > r->tokens || (size_t)*prompts * prompt_bytes > room))
        *prompts = (*prompts + 1) / 2;
}

static int make_parts(asking *a, kh_err *err) {
    int n = kh_question_prompts(a->q), n_row = a->q->batch->n_row, prompts, rows;
    cut(a, &prompts, &rows);
    size_t most = ((size_t)n / (size_t)prompts + 1) * ((size_t)n_row / (size_t)rows + 1);
    if (most > INT_MAX || !(a->part = kh_calloc(most, sizeof *a->part)))
        return kh_fail_memory(err);
    for (int r0 = 0; r0 < n_row; r0 += rows)
        for (int p0 = 0; p0 < n; p0 += prompts)
            a->part[a->n_part++] = (part){ p0, p0 + prompts < n ? p0 + prompts : n, r0,
                r0 + rows < n_row ? r0 + rows : n_row };
    return 0;
}

static int make_request(void *user, int i, const char **path, kh_buf *body, kh_err *err) {
    const asking *a = user;
    const part *p = &a->part[i];
    kh_question some = *a->q;
    kh_batch rows = kh_batch_part(a->q->batch, p->r0, p->r1 - p->r0);
    (void)err;
    some.batch = &rows;
    some.n_prompt = p->p1 - p->p0;
    if (some.prompt)
        some.prompt += (size_t)p->p0 * (size_t)rows.n_slot * (size_t)a->r->hidden;
    *path = "/v1/score";
    kh_wire_question_put(body, &some, a->r->hidden, a->want);
    return 0;
}

/* The answers of a part, [n_p, n_r] of `size` bytes, stand row by row among those of all rows. */
static void place(const asking *a, const part *p, void *out, const void *mine, size_t size) {
    size_t n_r = (size_t)(p->r1 - p->r0), n_row = (size_t)a->q->batch->n_row;
    for (size_t k = 0; k < (size_t)(p->p1 - p->p0); k++)
        memcpy((char *)out + (((size_t)p->p0 + k) * n_row + (size_t)p->r0) * size,
            (const char *)mine + k * n_r * size, n_r * size);
}

/* A distribution over the labels, up to what rounding to floats leaves. */
static int check_sums(const asking *a, const kh_wire_wanted *w, kh_err *err) {
    size_t n_label = (size_t)w->n_label, n_row = (size_t)w->n_row;
    for (size_t pair = 0; w->logprob && pair < (size_t)w->n_prompt * n_row; pair++) {
        double sum = 0;
        for (size_t k = 0; k < n_label; k++)
            sum += exp((double)w->logprob[pair * n_label + k]);
        if (fabs(sum - 1) > 1e-3)
            return kh_fail(err, KH_EFORMAT,
                "%s: answered prompt %zu, row %zu with probabilities that add up to %.6g and not "
                "to "
                "1",
                kh_http_url(a->r->http), pair / n_row, pair % n_row, sum);
    }
    return 0;
}

static int take_answer(void *user, int i, const char *body, size_t n, kh_err *err) {
    const asking *a = user;
    const part *p = &a->part[i];
    kh_wire_wanted mine = {
        .n_prompt = p->p1 - p->p0, .n_row = p->r1 - p->r0, .n_label = a->q->words->n_label
    };
    size_t pairs = (size_t)mine.n_prompt * (size_t)mine.n_row, n_label = (size_t)mine.n_label;
    mine.label = a->label ? kh_malloc(pairs * sizeof *mine.label) : NULL;
    mine.logprob = a->label ? NULL : kh_malloc(pairs * n_label * sizeof *mine.logprob);
    mine.energy = a->energy ? kh_malloc(pairs * sizeof *mine.energy) : NULL;
    int rc = (mine.label || mine.logprob) && (mine.energy || !a->energy)
        ? kh_wire_answer_parse(body, n, &mine, kh_http_url(a->r->http), err)
        : kh_fail_memory(err);
    if (rc == 0)
        rc = check_sums(a, &mine, err);
    if (rc == 0 && a->label)
        place(a, p, a->label, mine.label, sizeof *mine.label);
    if (rc == 0 && a->logprob)
        place(a, p, a->logprob, mine.logprob, n_label * sizeof *mine.logprob);
    if (rc == 0 && a->energy)
        place(a, p, a->energy, mine.energy, sizeof *mine.energy);
    for (int k = p->p0; k < p->p1 && rc == 0; k++)
        memset(a->r->answered + (size_t)k * (size_t)a->q->batch->n_row + p->r0, 1,
            (size_t)(p->r1 - p->r0));
    kh_free(mine.label);
    kh_free(mine.logprob);
    kh_free(mine.energy);
    return rc;
}

static int ask(
    remote *r, const kh_question *q, int *label, float *logprob, float *energy, kh_err *err) {
    asking a = { .r = r,
        .q = q,
        .want = kh_answer_kind_of(label, energy),
        .label = label,
        .logprob = logprob,
        .energy = energy };
    size_t pairs = kh_question_pairs(q);
    if (!kh_grow(&r->answered, &r->cap, pairs, 1))
        return kh_fail_memory(err);
    memset(r->answered, 0, pairs);
    int rc = make_parts(&a, err);
    if (rc == 0) {
        part *p = &a.part[0];
        size_t each = label ? 1 : (size_t)q->words->n_label + (energy != NULL);
        size_t numbers = (size_t)(p->p1 - p->p0) * (size_t)(p->r1 - p->r0) * each;
        rc = kh_http_run(r->http,
            &(kh_http_jobs){
                a.n_part, make_request, take_answer, &a, numbers * 16 + (1 << 16), NULL },
            err);
    }
    kh_free(a.part);
    return rc;
}

static int score(void *self, const kh_question *q, float *logprob, float *energy, kh_err *err) {
    return ask(self, q, NULL, logprob, energy, err);
}

static int answer(void *self, const kh_question *q, int *label, kh_err *err) {
    return ask(self, q, label, NULL, NULL, err);
}

static const unsigned char *answered(const void *self) { return ((const remote *)self)->answered; }

/* ------------------------------------------------------------------- what is on the other side */

static void describe(const void *self, kh_plm_info *info) {
    const remote *r = self;
    info->backend = r->backend;
    info->hidden = r->hidden;
    info->max_len = r->max_len;
    info->fingerprint = r->fingerprint;
    info->precision = r->precision;
    info->kernels = r->kernels;
    info->model = r->name;
    info->energy = r->energy;
    info->next = r->next;
}

static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    const remote *r = self;
    (void)err;
    *mean = r->mean;
    *std = r->std;
    return 0;
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    const remote *r = self;
    char path[64];
    kh_buf text;
    json_t *root = NULL;
    size_t shape[2];
    float *x = NULL;
    snprintf(path, sizeof path, "/v1/embedding?id=%d", (int)id);
    int rc = kh_http_ask(r->http, path, NULL, (size_t)r->hidden * 16 + 4096, &text, err);
    if (rc == 0)
        rc = kh_json_parse(text.data, text.len, kh_http_url(r->http), &root, err);
    if (rc == 0)
        rc = kh_wire_floats(root, kh_http_url(r->http), 2, (size_t)r->hidden, shape, &x, err);
    if (rc == 0 && (shape[0] != 1 || shape[1] != (size_t)r->hidden))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: answered with a word embedding of %zu numbers, expected %d", kh_http_url(r->http),
            shape[1], r->hidden);
    if (rc == 0)
        memcpy(row, x, (size_t)r->hidden * sizeof *row);
    kh_free(x);
    json_decref(root);
    kh_buf_free(&text);
    return rc;
}

static void close_remote(void *self) {
    remote *r = self;
    if (!r)
        return;
    kh_http_close(r->http);
    kh_free(r->name);
    kh_free(r->backend);
    kh_free(r->precision);
    kh_free(r->kernels);
    kh_free(r->answered);
    kh_free(r);
}

static const kh_backend KEYHOLE = { .name = "keyhole",
    .score = score,
    .normalised = true,
    .answer = answer,
    .answered = answered,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .close = close_remote };

/* ------------------------------------------------------------------------------------- opening */

static void read_limits(remote *r, kh_json_in *in, const json_t *root) {
    const json_t *limits = json_object_get(root, "limits"),
                 *stats = json_object_get(root, "embeddings");
    if (!json_is_object(limits) || !json_is_object(stats))
        kh_json_refuse(in, KH_EFORMAT,
            "/v1/model says nothing of \"limits\" or \"embeddings\"; is it a keyhole service?");
    r->prompts = kh_json_get_int(in, limits, "prompts", 1, INT_MAX);
    r->rows = kh_json_get_int(in, limits, "rows", 1, INT_MAX);
    double tokens = kh_json_get_number(in, limits, "tokens");
    double body = kh_json_get_number(in, limits, "body");
    r->mean = kh_json_get_number(in, stats, "mean");
    r->std = kh_json_get_number(in, stats, "std");
    if (!(body >= 1024) || !(tokens >= 1) || body > 1e15 || tokens > 1e15)
        kh_json_refuse(in, KH_EFORMAT,
            "/v1/model allows bodies of %g bytes and %g tokens, which cannot be", body, tokens);
    r->body = in->rc == 0 ? (size_t)body : 0;
    r->tokens = in->rc == 0 ? (long long)tokens : 0;
}

static char *copy_string(kh_json_in *in, const json_t *root, const char *key) {
    const char *text = kh_json_get_string(in, root, key);
    char *copy = in->rc == 0 ? kh_strdup(text) : NULL;
    if (in->rc == 0 && !copy)
        in->rc = kh_fail_memory(in->err);
    return copy;
}

static int read_model(remote *r, const json_t *root, kh_access *access, kh_err *err) {
    kh_json_in in = { .name = kh_http_url(r->http), .err = err };
    if (!json_is_object(root))
        kh_json_refuse(&in, KH_EFORMAT, "/v1/model is not an object");
    r->name = copy_string(&in, root, "name");
    r->backend = copy_string(&in, root, "backend");
    r->precision = copy_string(&in, root, "precision");
    r->kernels = copy_string(&in, root, "kernels");
    r->hidden = kh_json_get_int(&in, root, "hidden", 1, 1 << 16);
    r->max_len = kh_json_get_int(&in, root, "max_len", 1, 1 << 24);
    /* services before this one's time say nothing of the next token and of energies */
    r->next = kh_json_bool_or(&in, root, "next", r->next);
    r->energy = json_is_true(json_object_get(root, "energy"));
    const char *hex = kh_json_get_string(&in, root, "fingerprint"),
               *level = kh_json_get_string(&in, root, "access");
    if (strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16)
        kh_json_refuse(&in, KH_EFORMAT, "\"fingerprint\" must be 16 hexadecimal digits");
    r->fingerprint = in.rc == 0 ? strtoull(hex, NULL, 16) : 0;
    *access = strcmp(level, "labels") == 0 ? KH_ACCESS_LABELS : KH_ACCESS_LOGPROBS;
    read_limits(r, &in, root);
    return in.rc;
}

/* {"main": "tokenizer.json", "files": {"tokenizer.json": "<base64>", ...}}; names are only names.
 */
static int take_file(
    const json_t *files, const char *name, kh_tokenizer_file *f, const char *who, kh_err *err) {
    const json_t *v = json_object_get(files, name);
    if (!v)
        return 0;
    const char *text = json_string_value(v);
    size_t n = text ? kh_base64_size(text, json_string_length(v)) : SIZE_MAX;
    if (n == SIZE_MAX || n > KH_TOKENIZER_FILE_MAX)
        return kh_fail(err, KH_EFORMAT, "%s: the tokenizer's \"%s\" is not base64", who, name);
    f->bytes = kh_buf_init(KH_TOKENIZER_FILE_MAX);
    if (!kh_buf_reserve(&f->bytes, n))
        return kh_fail_memory(err);
    if (!kh_base64_get(text, json_string_length(v), f->bytes.data))
        return kh_fail(err, KH_EFORMAT, "%s: the tokenizer's \"%s\" is not base64", who, name);
    f->bytes.data[f->bytes.len = n] = '\0';
    f->there = true;
    return 0;
}

static int read_tokenizer(kh_http *http, kh_tokenizer **out, kh_err *err) {
    static const char *const NAMES[] = { NULL, "merges.txt", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json" };
    const char *who = kh_http_url(http), *main = "";
    kh_tokenizer_files f = { 0 };
    kh_buf text;
    json_t *root = NULL;
    int rc =
        kh_http_ask(http, "/v1/tokenizer", NULL, (size_t)KH_TOKENIZER_FILE_MAX * 2, &text, err);
    if (rc == 0)
        rc = kh_json_parse(text.data, text.len, who, &root, err);
    if (rc == 0)
        rc = kh_json_string(root, "main", &main, who, err);
    const json_t *files = json_object_get(root, "files");
    for (int i = 0; i < KH_N_TOKENIZER_FILE && rc == 0; i++) {
        const char *name = i == KH_FILE_MAIN ? main : NAMES[i];
        if (i == KH_FILE_MERGES && strcmp(main, "vocab.json") != 0)
            continue;
        if (!(f.file[i].path = kh_strdup(name)))
            rc = kh_fail_memory(err);
        if (rc == 0)
            rc = take_file(files, name, &f.file[i], who, err);
    }
    if (rc == 0 && !f.file[KH_FILE_MAIN].there)
        rc = kh_fail(err, KH_EFORMAT, "%s: gives no tokenizer", who);
    if (rc == 0 && (rc = kh_tokenizer_from_files(out, &f, err)) != 0)
        rc = err ? kh_err_prefix(err, "%s", who) : rc;
    kh_tokenizer_files_free(&f);
    json_decref(root);
    kh_buf_free(&text);
    return rc;
}

int kh_keyhole_open(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    kh_buf text = kh_buf_init(0);
    json_t *root = NULL;
    remote *r = kh_calloc(1, sizeof *r);
    if (!r) {
        kh_http_close(http);
        return kh_fail_memory(err);
    }
    r->http = http;
    int rc = kh_http_ask(http, "/v1/model", NULL, 1 << 20, &text, err);
    if (rc == KH_EMISSING && err)
        rc = kh_err_prefix(
            err, "no keyhole service is there; --backend says what else the service speaks");
    if (rc == 0)
        rc = kh_json_parse(text.data, text.len, kh_http_url(http), &root, err);
    if (rc == 0)
        rc = read_model(r, root, &out->access, err);
    if (rc == 0 && o->model && strcmp(o->model, r->name) != 0)
        rc = kh_fail(err, KH_EMISMATCH, "%s: serves \"%s\", not \"%s\"", kh_http_url(http), r->name,
            o->model);
    if (rc == 0)
        rc = read_tokenizer(http, &out->tokenizer, err);
    json_decref(root);
    kh_buf_free(&text);
    if (rc != 0) {
        close_remote(r);
        return rc;
    }
    out->backend = &KEYHOLE;
    out->self = r;
    return 0;
}
