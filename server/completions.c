/* completions.c - POST /v1/completions as vLLM has it, for one token: prompts as text, as token
 * ids, or as word embeddings (prompt_embeds: base64 of a file of torch.save).
 *
 * Of a decoder it is the next token. Other models are masked ones, where "the next token" is the
 * one at the mask: the last mask token of a text, or the last row that is the mask's own word
 * embedding. Log-probabilities are those of the whole vocabulary. At access level labels a token
 * comes out and no number; a bias on tokens, which would let probabilities be measured, is never
 * taken. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/json_out.h"
#include "base/map.h"
#include "model/engine.h"
#include "plm/backend.h"
#include "plm/torch_file.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { MOST_LOGPROBS = 20, MOST_IDS = 128 };

/* One sequence: ids, or rows in their place. */
typedef struct item {
    int32_t *id;
    float *rows; /* [n, hidden] */
    int n, mask;
} item;

typedef struct completion {
    item *item;
    int n;
    int logprobs; /* of the best tokens; -1: none are wanted */
    int32_t want[MOST_IDS], allowed[MOST_IDS];
    int n_want, n_allowed; /* 0: all of the vocabulary */
    bool as_ids;
} completion;

typedef struct reader {
    kh_server *s;
    completion *c;
    kh_err *err;
} reader;

/* ------------------------------------------------------------------------------------- reading */

static int read_ids(
    reader *r, const json_t *array, const char *key, size_t most, int32_t *out, int *n) {
    if (!json_is_array(array) || json_array_size(array) > most)
        return kh_fail(
            r->err, KH_EFORMAT, "\"%s\" must be an array of at most %zu token ids", key, most);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= r->s->limits.vocab)
            return kh_fail(r->err, KH_EFORMAT, "element %zu of \"%s\" is no token id from 0 to %d",
                i, key, r->s->limits.vocab - 1);
        out[i] = (int32_t)json_integer_value(v);
    }
    *n = (int)json_array_size(array);
    return 0;
}

static int add_item(reader *r, item it) {
    completion *c = r->c;
    if (it.mask < 0) {
        kh_free(it.id);
        kh_free(it.rows);
        return kh_fail(r->err, KH_EFORMAT,
            "prompt %d holds no mask; the model answers at the mask, as a token of a text or as "
            "the row of its word embedding",
            c->n);
    }
    c->item[c->n++] = it;
    return 0;
}

static int last_mask(const reader *r, const int32_t *id, int n) {
    int32_t mask = kh_tokenizer_special(kh_plm_tokenizer(r->s->what.plm), KH_TOKEN_MASK);
    int at = r->s->limits.next ? n - 1 : -1;
    for (int i = 0; i < n && !r->s->limits.next; i++)
        at = id[i] == mask ? i : at;
    return at;
}

static int add_text(reader *r, const json_t *v) {
    kh_ids ids = { 0 };
    const char *text = json_string_value(v);
    int rc = 0;
    if (text)
        rc = kh_tokenizer_encode(kh_plm_tokenizer(r->s->what.plm), text, json_string_length(v),
            KH_ENCODE_FRAME, &ids, r->err);
    else if (!(ids.id = kh_calloc(json_array_size(v) + 1, sizeof *ids.id)))
        rc = kh_fail_memory(r->err);
    else
        rc = read_ids(r, v, "prompt", (size_t)r->s->limits.max_len, ids.id, &ids.n);
    int32_t eos = kh_tokenizer_special(kh_plm_tokenizer(r->s->what.plm), KH_TOKEN_EOS);
    if (rc == 0 && text && r->s->limits.next && ids.n > 1 && ids.id[ids.n - 1] == eos)
        ids.n--; /* a text that goes on has no end */
    if (rc == 0 && (ids.n < 1 || ids.n > r->s->limits.max_len))
        rc = kh_fail(r->err, KH_ELIMIT, "a prompt of %d tokens; the model takes 1 to %d", ids.n,
            r->s->limits.max_len);
    if (rc == 0)
        return add_item(r, (item){ .id = ids.id, .n = ids.n, .mask = last_mask(r, ids.id, ids.n) });
    kh_ids_free(&ids);
    return rc;
}

/* *at: the last row that is the mask's word embedding, exactly or as it is after a trip through
 * half precision; or -1. */
static int find_mask_row(const reader *r, const float *rows, int n, int *at) {
    size_t h = (size_t)r->s->limits.hidden;
    if (r->s->limits.next) {
        *at = n - 1;
        return 0;
    }
    float *mask = kh_malloc(3 * h * sizeof *mask);
    int32_t id = kh_tokenizer_special(kh_plm_tokenizer(r->s->what.plm), KH_TOKEN_MASK);
    int rc = mask ? 0 : kh_fail_memory(r->err);
    *at = -1;
    if (rc == 0 && id >= 0 && (rc = kh_plm_embedding_row(r->s->what.plm, id, mask, r->err)) == 0) {
        for (size_t i = 0; i < h; i++) {
            mask[h + i] = kh_f32_of_f16(kh_f16_of_f32(mask[i]));
            mask[2 * h + i] = kh_f32_of_bf16(kh_bf16_of_f32(mask[i]));
        }
        for (int i = 0; i < n; i++)
            for (size_t k = 0; k < 3; k++)
                if (memcmp(rows + (size_t)i * h, mask + k * h, h * sizeof *rows) == 0)
                    *at = i;
    }
    kh_free(mask);
    return rc;
}

static int add_embeds(reader *r, const json_t *v) {
    const kh_wire_limits *l = &r->s->limits;
    const char *text = json_string_value(v);
    size_t size = text ? kh_base64_size(text, json_string_length(v)) : SIZE_MAX;
    float *rows = NULL;
    int n, cols, mask;
    if (size == SIZE_MAX)
        return kh_fail(
            r->err, KH_EFORMAT, "\"prompt_embeds\" must be base64, or an array of such strings");
    unsigned char *bytes = kh_malloc(size + 1);
    int rc;
    if (!bytes)
        rc = kh_fail_memory(r->err);
    else if (!kh_base64_get(text, json_string_length(v), bytes))
        rc = kh_fail(r->err, KH_EFORMAT, "\"prompt_embeds\" is not base64");
    else
        rc = kh_torch_get(bytes, size, l->max_len, 1 << 16, &rows, &n, &cols, r->err);
    kh_free(bytes);
    if (rc == 0 && cols != l->hidden)
        rc = kh_fail(r->err, KH_EFORMAT,
            "\"prompt_embeds\" has rows of %d numbers; the model's word embeddings have %d", cols,
            l->hidden);
    for (size_t i = 0; rc == 0 && i < (size_t)n * (size_t)cols; i++)
        if (!isfinite(rows[i]))
            rc = kh_fail(r->err, KH_EFORMAT, "\"prompt_embeds\" holds NaN or infinity");
    int32_t *id = rc == 0 ? kh_calloc((size_t)n, sizeof *id) : NULL;
    if (rc == 0 && !id)
        rc = kh_fail_memory(r->err);
    if (rc == 0 && (rc = find_mask_row(r, rows, n, &mask)) == 0)
        return add_item(r, (item){ .id = id, .rows = rows, .n = n, .mask = mask });
    kh_free(id);
    kh_free(rows);
    return rc;
}

/* A prompt, or an array of prompts; one made of ids is an array of numbers. */
static int read_prompts(reader *r, const json_t *root) {
    const json_t *embeds = json_object_get(root, "prompt_embeds"),
                 *prompt = json_object_get(root, "prompt");
    bool e_many = json_is_array(embeds),
         p_many = json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0));
    size_t n_e = e_many ? json_array_size(embeds) : embeds && !json_is_null(embeds),
           n_p = p_many ? json_array_size(prompt) : prompt && !json_is_null(prompt);
    int rc = 0;
    if (n_e + n_p == 0 || n_e + n_p > (size_t)r->s->limits.prompts)
        return kh_fail(r->err, KH_EFORMAT,
            "1 to %d prompts are needed, in \"prompt\" or \"prompt_embeds\"", r->s->limits.prompts);
    if (!(r->c->item = kh_calloc(n_e + n_p, sizeof *r->c->item)))
        return kh_fail_memory(r->err);
    for (size_t i = 0; i < n_e && rc == 0; i++) /* as vLLM has it: embeddings first */
        rc = add_embeds(r, e_many ? json_array_get(embeds, i) : embeds);
    for (size_t i = 0; i < n_p && rc == 0; i++)
        rc = add_text(r, p_many ? json_array_get(prompt, i) : prompt);
    return rc;
}

/* What would need more than one token, or another access level, is refused rather than passed over.
 */
static int read_options(reader *r, const json_t *root) {
    completion *c = r->c;
    int tokens = 1, n = 1;
    bool echo = false, stream = false;
    const json_t *logprobs = json_object_get(root, "logprobs"),
                 *want = json_object_get(root, "logprob_token_ids"),
                 *allowed = json_object_get(root, "allowed_token_ids"),
                 *bias = json_object_get(root, "logit_bias");
    int rc = kh_json_int_opt(root, "max_tokens", 1, 1, &tokens, "request", r->err);
    if (rc == 0)
        rc = kh_json_int_opt(root, "n", 1, 1, &n, "request", r->err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "echo", &echo, "request", r->err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "stream", &stream, "request", r->err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "return_tokens_as_token_ids", &c->as_ids, "request", r->err);
    c->logprobs = -1;
    if (rc == 0 && logprobs && !json_is_null(logprobs))
        rc = kh_json_int(root, "logprobs", 0, MOST_LOGPROBS, &c->logprobs, "request", r->err);
    if (rc == 0 && want && !json_is_null(want))
        rc = read_ids(r, want, "logprob_token_ids", MOST_IDS, c->want, &c->n_want);
    if (rc == 0 && allowed && !json_is_null(allowed))
        rc = read_ids(r, allowed, "allowed_token_ids", MOST_IDS, c->allowed, &c->n_allowed);
    if (rc == 0 && (echo || stream || (bias && !json_is_null(bias) && json_object_size(bias) > 0)))
        rc = kh_fail(
            r->err, KH_EARG, "\"echo\", \"stream\" and \"logit_bias\" are not offered here");
    if (rc == 0 && c->n_want > 0 && c->logprobs < 0)
        rc = kh_fail(r->err, KH_EARG, "\"logprob_token_ids\" needs \"logprobs\"");
    if (rc == 0 && c->logprobs >= 0 && !r->s->scorer)
        rc = kh_fail(r->err, KH_EUNSUPPORTED,
            "this server was started with --access labels and lets no probability out");
    return rc;
}

static void free_completion(void *parsed) {
    completion *c = parsed;
    if (!c)
        return;
    for (int i = 0; i < c->n; i++) {
        kh_free(c->item[i].id);
        kh_free(c->item[i].rows);
    }
    kh_free(c->item);
    kh_free(c);
}

/* ----------------------------------------------------------------------------------- answering */

static int best_token(const completion *c, const float *logprob, int vocab) {
    int best = c->n_allowed > 0 ? c->allowed[0] : 0;
    if (c->n_allowed > 0) {
        for (int i = 1; i < c->n_allowed; i++)
            best = logprob[c->allowed[i]] > logprob[best] ? c->allowed[i] : best;
        return best;
    }
    for (int i = 1; i < vocab; i++)
        best = logprob[i] > logprob[best] ? i : best;
    return best;
}

/* The token's text, or its id, as `out` bytes; what cannot be spelled is told by its id. */
static void name_token(kh_server *s, const completion *c, int32_t id, kh_buf *out) {
    char *text = NULL;
    size_t n = 0;
    int rc = c->as_ids
        ? KH_EARG
        : kh_tokenizer_decode(kh_plm_tokenizer(s->what.plm), &id, 1, false, &text, &n, NULL);
    kh_buf_reset(out);
    if (rc == KH_ENOMEM)
        out->failed = true;
    else if (rc != 0)
        kh_buf_printf(out, "token_id:%d", (int)id);
    else
        kh_buf_bytes(out, text, n);
    kh_text_free(text);
}

static void put_token(
    kh_server *s, kh_json_out *j, const char *key, const completion *c, int32_t id) {
    kh_buf name = kh_buf_init(1 << 16);
    name_token(s, c, id, &name);
    kh_json_put_text(j, key, name.data ? name.data : "", name.len);
    j->out->failed |= kh_buf_failed(&name);
    kh_buf_free(&name);
}

static double told(float x) { return isfinite(x) ? (double)x : -9999.0; }

/* The tokens asked for, or the best; the chosen one always, first. Returns how many. */
static int top_tokens(
    const kh_server *s, const completion *c, const float *logprob, int chosen, int32_t *id) {
    int n = 0;
    id[n++] = chosen;
    for (int i = 0; i < c->n_want; i++) {
        bool there = false;
        for (int k = 0; k < n; k++)
            there |= id[k] == c->want[i];
        if (!there)
            id[n++] = c->want[i];
    }
    for (int k = 0; c->n_want == 0 && k < c->logprobs; k++) { /* the k-th best, in turn */
        int best = -1;
        for (int i = 0; i < s->limits.vocab; i++) {
            bool there = false;
            for (int j = 0; j < n && (best < 0 || logprob[i] > logprob[best]); j++)
                there |= id[j] == i;
            if (!there && (best < 0 || logprob[i] > logprob[best]))
                best = i;
        }
        if (best >= 0)
            id[n++] = best;
    }
    return n;
}

/* {"token": logprob, ...}; of two tokens with one text the later is told by its id. */
static void put_top(
    kh_server *s, kh_json_out *j, const completion *c, const float *logprob, int chosen) {
    int32_t id[MOST_IDS + 1];
    int n = top_tokens(s, c, logprob, chosen, id);
    completion by_id = { .as_ids = true };
    kh_buf key = kh_buf_init(1 << 16);
    kh_map used = { 0 };
    kh_arena names = { 0 };
    kh_json_open_object(j, NULL);
    for (int i = 0; i < n; i++) {
        int32_t before;
        name_token(s, c, id[i], &key);
        if (kh_map_get(&used, key.data ? key.data : "", key.len, &before))
            name_token(s, &by_id, id[i], &key);
        char *copy = kh_arena_strndup(&names, key.data ? key.data : "", key.len);
        j->out->failed |= kh_buf_failed(&key);
        if (!copy || kh_map_add(&used, copy, key.len, i, NULL) < 0)
            j->out->failed = true;
        else
            kh_json_put_number(j, copy, told(logprob[id[i]]), 9);
    }
    kh_json_close(j);
    kh_buf_free(&key);
    kh_map_free(&used);
    kh_arena_free(&names);
}

static void put_logprobs(
    kh_server *s, kh_json_out *j, const completion *c, const float *logprob, int chosen) {
    kh_json_open_object(j, "logprobs");
    kh_json_put_ints(j, "text_offset", (const int[]){ 0 }, 1);
    kh_json_put_numbers(j, "token_logprobs", (const double[]){ told(logprob[chosen]) }, 1, 9);
    kh_json_open_array(j, "tokens");
    put_token(s, j, NULL, c, chosen);
    kh_json_close(j);
    kh_json_open_array(j, "top_logprobs");
    put_top(s, j, c, logprob, chosen);
    kh_json_close(j);
    kh_json_close(j);
}

static void put_choice(
    kh_server *s, kh_json_out *j, const completion *c, int index, const float *logprob) {
    int chosen = best_token(c, logprob, s->limits.vocab);
    completion plain = { .as_ids = false };
    kh_json_open_object(j, NULL);
    kh_json_put_int(j, "index", index);
    put_token(s, j, "text", &plain, chosen);
    if (c->logprobs < 0)
        kh_json_put_null(j, "logprobs");
    else
        put_logprobs(s, j, c, logprob, chosen);
    kh_json_put_string(j, "finish_reason", "length");
    kh_json_put_null(j, "stop_reason");
    kh_json_put_null(j, "prompt_logprobs");
    kh_json_close(j);
}

static int ask(kh_server *s, const item *it, float *logprob, kh_err *err) {
    kh_single single;
    kh_single_init(&single, it->id, it->n);
    kh_question q = { .batch = &single.batch, .n_prompt = 1 };
    if (it->rows) { /* slots from the first to the last: nothing but rows */
        single.slot = 0;
        single.batch.n_slot = it->n;
        q.prompt = it->rows;
        q.inject = KH_INJECT_EMBED_PREFIX;
    }
    return kh_engine_vocabulary(kh_plm_engine(s->what.plm), &q, &it->mask, 1, logprob, err);
}

static void run_one(kh_server *s, kh_call *call) {
    const completion *c = call->parsed;
    kh_err err = { 0 };
    float *logprob = kh_malloc((size_t)s->limits.vocab * sizeof *logprob);
    int rc = logprob ? 0 : kh_fail_memory(&err), tokens = 0;
    kh_reply_text(call, 200, NULL, "");
    kh_json_out j = kh_json_out_init(&call->reply.body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "id", "cmpl-0");
    kh_json_put_string(&j, "object", "text_completion");
    kh_json_put_string(&j, "model", s->what.name);
    kh_json_put_int(&j, "created", (long long)time(NULL));
    kh_json_open_array(&j, "choices");
    for (int i = 0; i < c->n && rc == 0; i++) {
        rc = ask(s, &c->item[i], logprob, &err);
        if (rc == 0)
            put_choice(s, &j, c, i, logprob);
        tokens += c->item[i].n;
    }
    kh_json_close(&j);
    kh_json_open_object(&j, "usage");
    kh_json_put_int(&j, "prompt_tokens", tokens);
    kh_json_put_int(&j, "completion_tokens", c->n);
    kh_json_put_int(&j, "total_tokens", tokens + c->n);
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&call->reply.body, '\n');
    atomic_fetch_add(&s->count.queries, c->n);
    if (rc != 0)
        kh_reply_err(call, &err);
    kh_free(logprob);
}

static void run(kh_server *s, kh_call **calls, int n) {
    for (int i = 0; i < n; i++)
        run_one(s, calls[i]);
}

static const kh_way COMPLETE = { NULL, run, free_completion, false };

void kh_post_completions(kh_server *s, kh_call *call) {
    kh_err err = { 0 };
    completion *c = kh_calloc(1, sizeof *c);
    json_t *root = NULL;
    if (!c) {
        kh_reply_fail(call, 503, "out of memory");
        return;
    }
    reader r = { s, c, &err };
    call->parsed = c;
    call->way = &COMPLETE;
    int rc = kh_json_parse(
        call->body.data ? call->body.data : "", call->body.len, "request", &root, &err);
    if (rc == 0 && !json_is_object(root))
        rc = kh_fail(&err, KH_EFORMAT, "request: must be an object");
    if (rc == 0)
        rc = read_options(&r, root);
    if (rc == 0 &&
        !kh_guard_charge(
            s, call, kh_encode_cost(kh_longest_text(json_object_get(root, "prompt"))))) {
        json_decref(root);
        return;
    }
    if (rc == 0)
        rc = read_prompts(&r, root);
    if (rc == 0)
        rc = kh_guard_tokens(s, c->allowed, c->n_allowed, &err);
    if (rc != 0)
        kh_reply_err(call, &err);
    call->queries = c->n;
    call->bound = (size_t)c->n * 16384 + (size_t)s->limits.vocab * sizeof(float);
    json_decref(root);
}
