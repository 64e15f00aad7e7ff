/* third_party.c - boxes that other people's servers are: vLLM (completions and chat), SGLang, and
 * what speaks OpenAI's chat API.
 *
 * They continue texts: the answer is the next token, so a sequence ends where the mask would stand
 * (kh_batch_opts.next), unless the tokenizer has a mask, and then the service is a masked model. A
 * label's logit is the log-probability of its word's token, log-sum-exp over several words; words
 * of several tokens are refused. Of a service that gives only its best few tokens, a word that is
 * not among them counts as the least of those that are: it cannot be more.
 *
 * vllm-completions and sglang get whole sequences of word embeddings, which are read from a local
 * safetensors file; vllm-chat gets the soft rows and the text; openai gets text alone, and no soft
 * prompt. One request is one prompt with one row. */
#include "plm/services.h"
#include "plm/torch_file.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/map.h"
#include "model/safetensors.h"
#include "model/tensor.h"
#include "model/question.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flavour { VLLM_COMPLETIONS, VLLM_CHAT, SGLANG, OPENAI } flavour;
static const char *const NAMES[] = { "vllm-completions", "vllm-chat", "sglang", "openai" };
static const char *const PATHS[] = { "/v1/completions", "/v1/chat/completions", "/generate",
    "/v1/chat/completions" };

/* TOP is the most that OpenAI's API gives and vLLM's default allows; MAX_LEN bounds what is
 * encoded, as services do not say how much they take. */
enum { MAX_LEN = 4096, TOP = 20, ANSWER_MAX = 1 << 20 };

typedef struct outside {
    flavour flavour;
    kh_http *http;
    const kh_tokenizer *tok; /* the box owns it */
    char *model;
    bool by_id; /* vllm-completions: logprob_token_ids is understood */
    /* Word embeddings, or f is NULL. */
    kh_safetensors *f;
    const kh_array *word;
    int hidden;
    double mean, std;
    unsigned char *answered; /* [pairs] of the last question */
    size_t cap;
} outside;

/* ----------------------------------------------------------------------------- word embeddings */

static int read_row(const outside *o, int32_t id, float *row, kh_err *err) {
    if (!o->f)
        return kh_fail(err, KH_EARG,
            "the word embeddings of %s are needed; --embeddings FILE.safetensors says where they "
            "are",
            o->model);
    if (id < 0 || (size_t)id >= o->word->shape[0])
        return kh_fail(err, KH_EARG, "token id %d is outside the %zu word embeddings of %s",
            (int)id, o->word->shape[0], kh_safetensors_path(o->f));
    size_t size = o->word->dtype == KH_DTYPE_F32 ? 4 : 2, n = (size_t)o->hidden;
    char *raw = (char *)row + n * (4 - size); /* widened in place, from the front */
    int rc = kh_safetensors_read(o->f, o->word, (size_t)id * n * size, n * size, raw, err);
    for (size_t i = 0; i < n && rc == 0 && size == 2; i++) {
        uint16_t h;
        memcpy(&h, raw + 2 * i, 2);
        row[i] = o->word->dtype == KH_DTYPE_F16 ? kh_f32_of_f16(h) : kh_f32_of_bf16(h);
    }
    return rc;
}

/* The usual names of the matrix. */
static const char *const WORD_NAMES[] = { "model.embed_tokens.weight", "transformer.wte.weight",
    "wte.weight", "embed_tokens.weight", "gpt_neox.embed_in.weight",
    "model.language_model.embed_tokens.weight", "roberta.embeddings.word_embeddings.weight",
    "bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight" };

/* Mean and deviation over all words are what a projection is scaled by (doc/methods.md, T4): the
 * file is read once from end to end. */
static int open_embeddings(outside *o, const char *path, kh_err *err) {
    int rc = kh_safetensors_open(&o->f, path, err);
    for (size_t i = 0; rc == 0 && !o->word && i < sizeof WORD_NAMES / sizeof WORD_NAMES[0]; i++)
        o->word = kh_safetensors_find(o->f, WORD_NAMES[i]);
    if (rc == 0 &&
        (!o->word || o->word->rank != 2 || o->word->dtype == KH_DTYPE_ANY ||
            o->word->shape[0] < 1 || o->word->shape[1] < 1 || o->word->shape[1] > 1 << 16))
        return kh_fail(err, KH_EFORMAT,
            "%s: no matrix of word embeddings under one of the usual names, such as \"%s\"", path,
            WORD_NAMES[0]);
    if (rc != 0)
        return rc;
    o->hidden = (int)o->word->shape[1];
    float *row = kh_malloc((size_t)o->hidden * sizeof *row);
    double sum = 0, squares = 0, n = (double)o->word->shape[0] * o->hidden;
    rc = row ? 0 : kh_fail_memory(err);
    for (size_t r = 0; r < o->word->shape[0] && rc == 0; r++) {
        rc = read_row(o, (int32_t)r, row, err);
        for (int i = 0; i < o->hidden && rc == 0; i++)
            sum += (double)row[i], squares += (double)row[i] * (double)row[i];
    }
    o->mean = sum / n;
    o->std = sqrt(squares / n - o->mean * o->mean);
    kh_free(row);
    return rc;
}

static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    const outside *o = self;
    *mean = o->mean;
    *std = o->std;
    return o->f ? 0
                : kh_fail(err, KH_EARG,
                      "the word embeddings of %s are needed; --embeddings FILE.safetensors says "
                      "where they are",
                      o->model);
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    return read_row(self, id, row, err);
}

/* ------------------------------------------------------------------------------------ requests */

typedef struct asking {
    outside *o;
    const kh_question *q;
    int *label;
    float *logits;
} asking;

/* The ids of the label words. */
static void put_ids(kh_json_out *j, const char *key, const kh_words *w) {
    kh_json_open_array(j, key);
    for (int i = 0; i < w->n_word; i++)
        kh_json_put_int(j, NULL, w->word[i].id[0]);
    kh_json_close(j);
}

/* The sequence as rows of word embeddings, the soft ones in their slots: fresh memory, *n rows. */
static int make_rows(
    const outside *o, const kh_question *q, int prompt, int s, float **out, int *n, kh_err *err) {
    const kh_batch *b = q->batch;
    size_t h = (size_t)o->hidden;
    const int32_t *id = b->id + b->start[s];
    *n = (int)(b->start[s + 1] - b->start[s]);
    *out = kh_malloc((size_t)*n * h * sizeof **out);
    int rc = *out ? 0 : kh_fail_memory(err);
    for (int t = 0; t < *n && rc == 0; t++) {
        int slot = b->n_slot > 0 ? t - b->slot[s] : -1;
        if (slot >= 0 && slot < b->n_slot)
            memcpy(*out + (size_t)t * h,
                q->prompt + ((size_t)prompt * (size_t)b->n_slot + (size_t)slot) * h,
                h * sizeof **out);
        else
            rc = read_row(o, id[t], *out + (size_t)t * h, err);
    }
    return rc;
}

/* The sequence as text, without slots and special tokens. */
static int put_text(
    const outside *o, const kh_question *q, int s, const char *key, kh_json_out *j, kh_err *err) {
    const kh_batch *in = q->batch;
    int n = (int)(in->start[s + 1] - in->start[s]), kept = 0;
    int32_t *id = kh_malloc((size_t)n * sizeof *id + 1);
    char *text = NULL;
    size_t length = 0;
    if (!id)
        return kh_fail_memory(err);
    for (int t = 0; t < n; t++)
        if (in->n_slot == 0 || t < in->slot[s] || t >= in->slot[s] + in->n_slot)
            id[kept++] = in->id[in->start[s] + (size_t)t];
    int rc = kh_tokenizer_decode(o->tok, id, kept, true, &text, &length, err);
    if (rc == 0)
        kh_json_put_text(j, key, text, length);
    kh_text_free(text);
    kh_free(id);
    return rc;
}

/* vLLM takes prompt embeddings as a file of torch.save, in base64. */
static void put_torch(kh_json_out *j, const char *key, const float *x, int rows, int cols) {
    kh_buf file = kh_buf_init(KH_BUF_MAX);
    kh_torch_put(&file, x, rows, cols);
    if (kh_buf_failed(&file))
        j->out->failed = true;
    else
        kh_json_put_base64(j, key, file.data, file.len);
    kh_buf_free(&file);
}

/* One token, the likeliest: what every request of an OpenAI-like service says of it. */
static void put_one_token(kh_json_out *j) {
    kh_json_put_int(j, "max_tokens", 1);
    kh_json_put_int(j, "temperature", 0);
    kh_json_put_int(j, "seed", 0);
}

/* allowed_token_ids: only label words can be generated. logprob_token_ids, where the service knows
 * it, gives exactly their log-probabilities; otherwise the best TOP must do. */
static int put_completion(const asking *a, int prompt, int s, kh_json_out *j, kh_err *err) {
    const outside *o = a->o;
    int n_word = a->q->words->n_word;
    float *rows;
    int n, rc = make_rows(o, a->q, prompt, s, &rows, &n, err);
    if (rc == 0) {
        kh_json_open_object(j, NULL);
        kh_json_put_string(j, "model", o->model);
        kh_json_put_null(j, "prompt");
        put_one_token(j);
        put_ids(j, "allowed_token_ids", a->q->words);
        if (a->logits) {
            kh_json_put_bool(j, "return_tokens_as_token_ids", true);
            kh_json_put_int(j, "logprobs", o->by_id && n_word < TOP ? n_word : TOP);
        }
        if (a->logits && o->by_id)
            put_ids(j, "logprob_token_ids", a->q->words);
        put_torch(j, "prompt_embeds", rows, n, o->hidden);
        kh_json_close(j);
    }
    kh_free(rows);
    return rc;
}

/* A label and nothing else: pushes everything else away. */
static void put_bias(kh_json_out *j, const kh_words *w) {
    kh_json_open_object(j, "logit_bias");
    for (int i = 0; i < w->n_word; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)w->word[i].id[0]);
        kh_json_put_int(j, id, 100);
    }
    kh_json_close(j);
}

/* The message of the user: the text, behind the soft prompt if there is one. */
static int put_content(const asking *a, int prompt, int s, kh_json_out *j, kh_err *err) {
    const outside *o = a->o;
    int slots = a->q->batch->n_slot;
    if (slots == 0)
        return put_text(o, a->q, s, "content", j, err);
    kh_json_open_array(j, "content");
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "type", "prompt_embeds");
    put_torch(j, "data", a->q->prompt + (size_t)prompt * (size_t)slots * (size_t)o->hidden, slots,
        o->hidden);
    kh_json_close(j);
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "type", "text");
    int rc = put_text(o, a->q, s, "text", j, err);
    kh_json_close(j);
    kh_json_close(j);
    return rc;
}

/* With log-probabilities the bias is left out: some services apply it before they compute them. */
static int put_chat(const asking *a, int prompt, int s, kh_json_out *j, kh_err *err) {
    const outside *o = a->o;
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "model", o->model);
    put_one_token(j);
    if (a->logits) {
        kh_json_put_bool(j, "logprobs", true);
        kh_json_put_int(j, "top_logprobs", TOP);
    }
    if (o->flavour == VLLM_CHAT) {
        kh_json_put_bool(j, "return_tokens_as_token_ids", true);
        put_ids(j, "allowed_token_ids", a->q->words);
    } else if (!a->logits)
        put_bias(j, a->q->words);
    kh_json_open_array(j, "messages");
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "role", "user");
    int rc = put_content(a, prompt, s, j, err);
    kh_json_close(j);
    kh_json_close(j);
    kh_json_close(j);
    return rc;
}

/* SGLang takes the rows as decimal numbers; nine digits name a float exactly. */
static int put_generate(const asking *a, int prompt, int s, kh_json_out *j, kh_err *err) {
    const outside *o = a->o;
    size_t hidden = (size_t)o->hidden;
    float *rows;
    int n, rc = make_rows(o, a->q, prompt, s, &rows, &n, err);
    if (rc == 0) {
        kh_json_open_object(j, NULL);
        kh_json_open_object(j, "sampling_params");
        kh_json_put_int(j, "temperature", 0);
        kh_json_put_int(j, "max_new_tokens", 1);
        kh_json_close(j);
        kh_json_put_bool(j, "return_logprob", true);
        kh_json_put_int(j, "top_logprobs_num", 1);
        kh_json_put_bool(j, "return_text_in_logprobs", false);
        put_ids(j, "token_ids_logprob", a->q->words);
        kh_json_open_array(j, "input_embeds");
        for (int t = 0; t < n; t++) /* nine digits name a float exactly */
            kh_json_put_floats(j, NULL, rows + (size_t)t * hidden, hidden, 9);
        kh_json_close(j);
        kh_json_close(j);
    }
    kh_free(rows);
    return rc;
}

static int make_request(void *user, int i, const char **path, kh_buf *body, kh_err *err) {
    static int (*const PUT[])(const asking *, int, int, kh_json_out *, kh_err *) = { put_completion,
        put_chat, put_generate, put_chat };
    const asking *a = user;
    int n_row = a->q->batch->n_row;
    kh_json_out j = kh_json_out_init(body, KH_JSON_COMPACT);
    *path = PATHS[a->o->flavour];
    return PUT[a->o->flavour](a, i / n_row, i % n_row, &j, err);
}

/* ------------------------------------------------------------------------------------- answers */

/* What a service said of some tokens, by their ids: the log-probability of each label word, NaN
 * where it said nothing. */
typedef struct heard {
    float *word; /* [n_word] */
    double least;
    int n; /* tokens it spoke of */
} heard;

/* Services round: a log-probability may come out a little above 0, and counts as 0. */
static bool note(heard *h, const asking *a, int32_t id, const json_t *value) {
    const kh_words *w = a->q->words;
    double x = json_number_value(value);
    if (!json_is_number(value) || !isfinite(x) || x > 1e-3)
        return false;
    h->n++;
    h->least = x < h->least ? x : h->least;
    for (int i = 0; i < w->n_word; i++)
        if (w->word[i].id[0] == id)
            h->word[i] = (float)(x < 0 ? x : 0);
    return true;
}

/* A token as services name it: "token_id:372", or its text. */
static int32_t token_id(const asking *a, const char *token) {
    static const char PREFIX[] = "token_id:";
    if (strncmp(token, PREFIX, sizeof PREFIX - 1) == 0)
        return (int32_t)atol(token + sizeof PREFIX - 1);
    for (int i = 0; i < a->q->words->n_word; i++) {
        char *text = NULL;
        size_t n;
        int32_t id = a->q->words->word[i].id[0];
        bool same = kh_tokenizer_decode(a->o->tok, &id, 1, false, &text, &n, NULL) == 0 &&
            strcmp(text, token) == 0;
        kh_text_free(text);
        if (same)
            return id;
    }
    return -1;
}

static bool hear_completion(heard *h, const asking *a, const json_t *root) {
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    json_t *top = json_array_get(
               json_object_get(json_object_get(choice, "logprobs"), "top_logprobs"), 0),
           *value;
    const char *token;
    bool ok = true;
    json_object_foreach(top, token, value) ok = note(h, a, token_id(a, token), value) && ok;
    return ok;
}

static bool hear_chat(heard *h, const asking *a, const json_t *root) {
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *first = json_array_get(
                     json_object_get(json_object_get(choice, "logprobs"), "content"), 0),
                 *one;
    size_t i;
    bool ok = true;
    json_array_foreach(json_object_get(first, "top_logprobs"), i, one) {
        const char *token = json_string_value(json_object_get(one, "token"));
        ok = token && note(h, a, token_id(a, token), json_object_get(one, "logprob")) && ok;
    }
    return ok;
}

static bool hear_generate(heard *h, const asking *a, const json_t *root) {
    const json_t *list = json_array_get(json_object_get(json_object_get(root, "meta_info"),
                                            "output_token_ids_logprobs"),
                     0),
                 *one;
    size_t i;
    bool ok = true;
    json_array_foreach(list, i, one) {
        const json_t *id = json_array_get(one, 1);
        ok = json_is_integer(id) &&
            note(h, a, (int32_t)json_integer_value(id), json_array_get(one, 0)) && ok;
    }
    return ok;
}

static void reduce(const kh_words *w, const heard *h, float *logits) {
    for (int k = 0, first = 0, end; k < w->n_label; k++, first = end) {
        double top = -INFINITY, sum = 0;
        for (end = first; end < w->n_word && w->word[end].label == k; end++)
            top = fmax(top, isnan(h->word[end]) ? h->least : (double)h->word[end]);
        for (int i = first; i < end; i++)
            sum += exp((isnan(h->word[i]) ? h->least : (double)h->word[i]) - top);
        logits[k] = (float)(end == first + 1 ? top : top + log(sum));
    }
}

/* A service that answers with something else than probabilities is told at once, with prompt and
 * row: tuning on such numbers would look like tuning. */
static int take_logits(const asking *a, int i, const json_t *root, kh_err *err) {
    static bool (*const HEAR[])(heard *, const asking *, const json_t *) = { hear_completion,
        hear_chat, hear_generate, hear_chat };
    const kh_words *w = a->q->words;
    int n_row = a->q->batch->n_row, known = 0, rc = 0;
    heard h = { .word = kh_malloc((size_t)w->n_word * sizeof *h.word), .least = 0 };
    if (!h.word)
        return kh_fail_memory(err);
    for (int k = 0; k < w->n_word; k++)
        h.word[k] = NAN;
    bool ok = HEAR[a->o->flavour](&h, a, root);
    double sum = 0; /* of the probabilities of the words; those of other tokens are not known */
    for (int k = 0; k < w->n_word; k++) {
        known += !isnan(h.word[k]);
        sum += isnan(h.word[k]) ? 0 : exp((double)h.word[k]);
    }
    if (!ok)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: answered prompt %d, row %d with a log-probability that is none",
            kh_http_url(a->o->http), i / n_row, i % n_row);
    else if (h.n == 0)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: sent no log-probabilities with its answer to prompt %d, row %d; --access labels "
            "does without",
            kh_http_url(a->o->http), i / n_row, i % n_row);
    else if (known == 0)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: none of the label words is among the tokens that it spoke of for prompt %d, row "
            "%d; --access labels does without",
            kh_http_url(a->o->http), i / n_row, i % n_row);
    else if (sum > 1.01) /* services round, and some clip at 0 */
        rc = kh_fail(err, KH_EFORMAT,
            "%s: answered prompt %d, row %d with label words whose probabilities add up to %.6g",
            kh_http_url(a->o->http), i / n_row, i % n_row, sum);
    else
        reduce(w, &h, a->logits + (size_t)i * (size_t)w->n_label);
    kh_free(h.word);
    return rc;
}

/* The token that was generated, as an id, or -1. */
static int32_t generated(const asking *a, const json_t *root) {
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    if (a->o->flavour == SGLANG) {
        const json_t *id = json_array_get(
            json_array_get(
                json_object_get(json_object_get(root, "meta_info"), "output_token_logprobs"), 0),
            1);
        return json_is_integer(id) ? (int32_t)json_integer_value(id) : -1;
    }
    const char *text = json_string_value(a->o->flavour == VLLM_COMPLETIONS
            ? json_object_get(choice, "text")
            : json_object_get(json_object_get(choice, "message"), "content"));
    int32_t id = text ? token_id(a, text) : -1;
    for (int i = 0; text && id < 0 && i < a->q->words->n_word;
         i++) /* chat answers come without the space in front */
        if (strcmp(text + strspn(text, " "), a->q->words->word[i].text) == 0)
            id = a->q->words->word[i].id[0];
    return id;
}

static int take_label(const asking *a, int i, const json_t *root, kh_err *err) {
    int n_row = a->q->batch->n_row;
    int32_t id = generated(a, root);
    for (int k = 0; k < a->q->words->n_word; k++)
        if (a->q->words->word[k].id[0] == id) {
            a->label[i] = a->q->words->word[k].label;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "%s: answered prompt %d, row %d with a token that is no label word",
        kh_http_url(a->o->http), i / n_row, i % n_row);
}

static int take_answer(void *user, int i, const char *body, size_t n, kh_err *err) {
    const asking *a = user;
    json_t *root;
    int rc = kh_json_parse(body, n, kh_http_url(a->o->http), &root, err);
    if (rc == 0)
        rc = a->label ? take_label(a, i, root, err) : take_logits(a, i, root, err);
    json_decref(root);
    a->o->answered[i] = rc == 0;
    return rc;
}

/* -------------------------------------------------------------------------------------- asking */

/* What this service cannot do at all, before a query is paid for. */
static int check(const outside *o, const kh_question *q, kh_err *err) {
    const kh_words *w = q->words;
    bool soft = q->batch->n_slot > 0;
    if (w->n_variant != 1 || w->n_mask[0] != 1)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s answers with one token, but a label word has several; choose words of one token",
            NAMES[o->flavour]);
    if (soft && o->flavour == OPENAI)
        return kh_fail(err, KH_EUNSUPPORTED,
            "a service of the kind \"openai\" takes texts and no soft prompts; methods manual and "
            "icl do without");
    if (soft && q->inject == KH_INJECT_POST_LN_ADD)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s takes word embeddings and cannot add a prompt behind LayerNorm; tune with --inject "
            "%s",
            NAMES[o->flavour],
            o->flavour == VLLM_CHAT ? "embed-prefix" : "embed-prefix or embed-inplace");
    if (soft && o->flavour == VLLM_CHAT && q->inject != KH_INJECT_EMBED_PREFIX)
        return kh_fail(err, KH_EUNSUPPORTED,
            "vllm-chat puts the prompt in front of the text; tune with --inject embed-prefix");
    return 0;
}

static int ask(outside *o, const kh_question *q, float *logits, int *label, kh_err *err) {
    asking a = { o, q, label, logits };
    int n = (int)kh_question_pairs(q), rc = check(o, q, err);
    if (!kh_grow(&o->answered, &o->cap, (size_t)n, 1))
        return kh_fail_memory(err);
    memset(o->answered, 0, (size_t)n);
    return rc == 0 ? kh_http_run(o->http,
                         &(kh_http_jobs){ n, make_request, take_answer, &a, ANSWER_MAX, NULL }, err)
                   : rc;
}

static int score(void *self, const kh_question *q, float *logits, float *energy, kh_err *err) {
    (void)energy;
    return ask(self, q, logits, NULL, err);
}

static int answer(void *self, const kh_question *q, int *label, kh_err *err) {
    return ask(self, q, NULL, label, err);
}

static const unsigned char *answered(const void *self) { return ((const outside *)self)->answered; }

/* The fingerprint is the model's name: whether the weights behind it stay the same, nobody outside
 * can know. */
static void describe(const void *self, kh_plm_info *info) {
    const outside *o = self;
    info->backend = NAMES[o->flavour];
    info->hidden = o->hidden > 0 ? o->hidden : 1;
    info->max_len = MAX_LEN;
    info->fingerprint = kh_hash64(o->model, strlen(o->model));
    info->precision = info->kernels = "the service's own";
    info->model = o->model;
    info->next = kh_tokenizer_special(o->tok, KH_TOKEN_MASK) < 0;
    /* SGLang gives every label word's log-probability over the whole vocabulary. vLLM may take
     * logarithms after it has shut out all words but those of labels, and the others say nothing of
     * words that are not among their best few. */
    info->energy = o->flavour == SGLANG;
}

static void close_outside(void *self) {
    outside *o = self;
    if (!o)
        return;
    kh_http_close(o->http);
    kh_safetensors_close(o->f);
    kh_free(o->model);
    kh_free(o->answered);
    kh_free(o);
}

static const kh_backend OUTSIDE = { .name = "outside",
    .score = score,
    .answer = answer,
    .answered = answered,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .close = close_outside };

/* ------------------------------------------------------------------------------------- opening */

/* The model's name: the one given, or the first of /v1/models. */
static int find_model(outside *o, const char *given, kh_err *err) {
    kh_buf text = kh_buf_init(0);
    json_t *root = NULL;
    const char *name = given;
    int rc = given ? 0 : kh_http_ask(o->http, "/v1/models", NULL, ANSWER_MAX, &text, err);
    if (rc == 0 && !given) {
        rc = kh_json_parse(text.data, text.len, kh_http_url(o->http), &root, err);
        name = json_string_value(
            json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
        if (rc == 0 && !name)
            rc = kh_fail(err, KH_EFORMAT, "%s: lists no model; --model-name gives its name",
                kh_http_url(o->http));
    }
    if (rc == 0 && !(o->model = kh_strdup(name)))
        rc = kh_fail_memory(err);
    json_decref(root);
    kh_buf_free(&text);
    return rc;
}

static void put_probe(const outside *o, bool by_id, int32_t mask, kh_buf *body) {
    bool plain = o->flavour == VLLM_COMPLETIONS;
    kh_json_out j = kh_json_out_init(body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "model", o->model);
    kh_json_put_int(&j, "max_tokens", 1);
    kh_json_put_int(&j, "temperature", 0);
    if (plain)
        kh_json_put_int(&j, "logprobs", 1);
    else {
        kh_json_put_bool(&j, "logprobs", true);
        kh_json_put_int(&j, "top_logprobs", 1);
    }
    if (by_id) {
        kh_json_put_ints(&j, "logprob_token_ids", (const int[]){ 3 }, 1); /* any token would do */
        kh_json_put_bool(&j, "return_tokens_as_token_ids", true);
    }
    if (plain)
        kh_json_put_string(&j, "prompt", mask >= 0 ? kh_tokenizer_token(o->tok, mask) : "Hello");
    else {
        kh_json_open_array(&j, "messages");
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "role", "user");
        kh_json_put_string(&j, "content", "Hello");
        kh_json_close(&j);
        kh_json_close(&j);
    }
    kh_json_close(&j);
}

/* One token asked for, so that what a service accepts but does not do is known before the first
 * query. */
static int probe(outside *o, bool by_id, bool *logprobs, kh_err *err) {
    kh_buf body = kh_buf_init(1 << 16), text;
    json_t *root = NULL;
    int32_t mask = kh_tokenizer_special(o->tok, KH_TOKEN_MASK);
    put_probe(o, by_id, mask, &body);
    int rc = kh_buf_failed(&body) ? kh_fail_memory(err) : 0;
    text = kh_buf_init(0);
    if (rc == 0)
        rc = kh_http_ask(o->http, PATHS[o->flavour], &body, ANSWER_MAX, &text, err);
    if (rc == 0)
        rc = kh_json_parse(text.data, text.len, kh_http_url(o->http), &root, err);
    const json_t *got =
        json_object_get(json_array_get(json_object_get(root, "choices"), 0), "logprobs");
    const json_t *top = o->flavour == VLLM_COMPLETIONS
        ? json_array_get(json_object_get(got, "top_logprobs"), 0)
        : json_object_get(json_array_get(json_object_get(got, "content"), 0), "top_logprobs");
    *logprobs = by_id ? json_object_get(top, "token_id:3") != NULL
                      : json_object_size(top) + json_array_size(top) > 0;
    json_decref(root);
    kh_buf_free(&text);
    kh_buf_free(&body);
    return rc;
}

/* Asked once, when the box is opened: a person who wants log-probabilities of a service without
 * them learns it before the first query. */
static int find_access(outside *o, kh_access *access, kh_err *err) {
    bool logprobs = true;
    int rc = 0;
    kh_err refused;
    *access = KH_ACCESS_LOGPROBS;
    if (o->flavour == SGLANG) /* /generate knows token_ids_logprob; the first answer shows whether
                                 it gives them */
        return 0;
    if (o->flavour == VLLM_COMPLETIONS && probe(o, true, &o->by_id, &refused) == 0 && o->by_id)
        return 0;
    rc = probe(o, false, &logprobs, &refused);
    if (rc == KH_EUNSUPPORTED || rc == KH_EARG) /* refused because of the log-probabilities, or
                                                   altogether: the first query shows */
        logprobs = false, rc = 0;
    if (rc != 0 && err)
        *err = refused;
    if (rc == 0 && !logprobs)
        *access = KH_ACCESS_LABELS;
    return rc;
}

static int open_outside(
    kh_service *out, flavour which, kh_http *http, const kh_http_opts *opts, kh_err *err) {
    outside *o = kh_calloc(1, sizeof *o);
    if (!o) {
        kh_http_close(http);
        return kh_fail_memory(err);
    }
    o->flavour = which;
    o->http = http;
    int rc = opts->tokenizer
        ? kh_tokenizer_open(&out->tokenizer, opts->tokenizer, err)
        : kh_fail(err, KH_EARG,
              "the tokenizer of the service's model is needed; --tokenizer says where it is");
    o->tok = out->tokenizer;
    if (rc == 0 && opts->embeddings)
        rc = open_embeddings(o, opts->embeddings, err);
    if (rc == 0)
        rc = find_model(o, opts->model, err);
    if (rc == 0)
        rc = find_access(o, &out->access, err);
    if (rc != 0) {
        close_outside(o);
        return rc;
    }
    out->backend = &OUTSIDE;
    out->self = o;
    return 0;
}

int kh_vllm_completions_open(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_outside(out, VLLM_COMPLETIONS, http, o, err);
}
int kh_vllm_chat_open(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_outside(out, VLLM_CHAT, http, o, err);
}
int kh_sglang_open(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_outside(out, SGLANG, http, o, err);
}
int kh_openai_open(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_outside(out, OPENAI, http, o, err);
}
