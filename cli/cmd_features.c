/* cmd_features.c - keyhole features: the hidden states of texts. */
#include "texts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "model/engine.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_NONE, POOL_MEAN, POOL_CLS };
static const char *const pool_name[] = { "none", "mean", "cls" };

typedef struct features_opts {
    const char *model, *layer;
    int pool, precision, batch;
    bool json, json_input, ids;
} features_opts;

static const kh_opt features_table[] = {
    { "model", KH_OPT_TEXT, offsetof(features_opts, model), .arg = "DIR|builtin",
        .help = "a model folder with its tokenizer", .required = true },
    { "layer", KH_OPT_TEXT, offsetof(features_opts, layer), "last", .arg = "N|last",
        .help = "which layer; 0 is the output of the embeddings" },
    { "pool", KH_OPT_CHOICE, offsetof(features_opts, pool), "mean", .arg = "none|mean|cls",
        .help = "every token, their mean (special tokens included), or the first token" },
    { "precision", KH_OPT_CHOICE, offsetof(features_opts, precision), "f32",
        .arg = "f32|bf16|int8|auto", .help = "how the model multiplies" },
    CLI_BATCH_OPTION(features_opts, batch),
    { "ids", KH_OPT_FLAG, offsetof(features_opts, ids),
        .help = "each line holds token ids instead of text; no tokenizer is needed" },
    { "json", KH_OPT_FLAG, offsetof(features_opts, json),
        .help = "print one JSON object for each text" },
    { "json-input", KH_OPT_FLAG, offsetof(features_opts, json_input),
        .help = "each line of standard input is a JSON string" },
    { 0 },
};

typedef struct extractor {
    const features_opts *opts;
    kh_engine *engine;
    kh_tokenizer *tokenizer; /* NULL with --ids */
    int layer;
    float *hidden; /* of a chunk: [sum of T, H] */
    size_t hidden_cap;
    kh_buf out;
} extractor;

static int parse_layer(extractor *e, kh_err *err) {
    int layers = kh_engine_model(e->engine)->config.layers;
    e->layer = layers;
    if (strcmp(e->opts->layer, "last") == 0)
        return 0;
    char *end;
    errno = 0;
    long n = strtol(e->opts->layer, &end, 10);
    if (end == e->opts->layer || *end || errno || n < 0 || n > layers)
        return kh_fail(err, CLI_USAGE,
            "--layer takes \"last\" or a number from 0 to %d for this model; got \"%s\"", layers,
            e->opts->layer);
    e->layer = (int)n;
    return 0;
}

/* "0 31414 232 2", separated by white space */
static int parse_ids(const char *text, size_t n, kh_ids *ids, kh_err *err) {
    if (strlen(text) != n)
        return kh_fail(err, KH_EFORMAT, "expected token ids, found a NUL byte");
    for (char *end;; text = end) {
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text)
            break;
        if (errno || id < 0 || id > INT32_MAX)
            return kh_fail(
                err, KH_EFORMAT, "expected token ids, found \"%.*s\"", (int)(end - text), text);
        if (!kh_grow(&ids->id, &ids->cap, (size_t)ids->n + 1, sizeof *ids->id))
            return kh_fail_memory(err);
        ids->id[ids->n++] = (int32_t)id;
    }
    text += strspn(text, " \t");
    return *text ? kh_fail(err, KH_EFORMAT, "expected token ids, found \"%.40s\"", text) : 0;
}

static void put_numbers(kh_buf *out, const float *x, int n, const char *between) {
    for (int i = 0; i < n; i++)
        kh_buf_printf(out, "%s%.9g", i ? between : "", (double)x[i]);
}

/* The mean goes into the first row. */
static void pool_mean(float *x, int tokens, int hidden) {
    for (int i = 0; i < hidden; i++) {
        double sum = 0;
        for (int t = 0; t < tokens; t++)
            sum += (double)x[(size_t)t * (size_t)hidden + (size_t)i];
        x[i] = (float)(sum / tokens);
    }
}

static void put_json(extractor *e, const cli_chunk *c, int i, const float *x, int rows) {
    int hidden = kh_engine_model(e->engine)->config.hidden;
    bool each = e->opts->pool == POOL_NONE; /* an array a token */
    kh_json_out j = kh_json_out_init(&e->out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    if (!e->opts->ids)
        kh_json_put_text(&j, "text", c->bytes.data + c->text[i], c->text[i + 1] - c->text[i]);
    kh_json_open_array(&j, "ids");
    for (size_t t = c->start[i]; t < c->start[i + 1]; t++)
        kh_json_put_int(&j, NULL, c->ids.id[t]);
    kh_json_close(&j);
    kh_json_put_int(&j, "layer", e->layer);
    kh_json_put_string(&j, "pool", pool_name[e->opts->pool]);
    kh_json_open_array(&j, "features");
    for (int t = 0; t < rows; t++) {
        if (each)
            kh_json_open_array(&j, NULL);
        for (int k = 0; k < hidden; k++)
            kh_json_put_number(&j, NULL, (double)x[(size_t)t * (size_t)hidden + (size_t)k], 9);
        if (each)
            kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&e->out, '\n');
}

/* Pooled: one line a text. Otherwise one line a token, and an empty line after each text. */
static void put_plain(extractor *e, const float *x, int rows) {
    int hidden = kh_engine_model(e->engine)->config.hidden;
    for (int t = 0; t < rows; t++) {
        put_numbers(&e->out, x + (size_t)t * (size_t)hidden, hidden, " ");
        kh_buf_char(&e->out, '\n');
    }
    if (e->opts->pool == POOL_NONE)
        kh_buf_char(&e->out, '\n');
}

static int encode_text(void *user, const char *text, size_t n, kh_ids *ids, kh_err *err) {
    extractor *e = user;
    int before = ids->n;
    int rc = e->opts->ids ? parse_ids(text, n, ids, err)
                          : kh_tokenizer_encode(e->tokenizer, text, n, KH_ENCODE_FRAME, ids, err);
    kh_single single;
    kh_single_init(&single, ids->id + before, ids->n - before);
    return rc != 0 ? rc : kh_engine_check(e->engine, &(kh_question){ .batch = &single.batch }, err);
}

static int extract(void *user, const cli_chunk *c, kh_err *err) {
    extractor *e = user;
    int hidden = kh_engine_model(e->engine)->config.hidden;
    if (!kh_grow(&e->hidden, &e->hidden_cap, (size_t)c->ids.n * (size_t)hidden, sizeof *e->hidden))
        return kh_fail_memory(err);
    int rc =
        kh_engine_hidden(e->engine, &(kh_question){ .batch = &c->batch }, e->layer, e->hidden, err);
    for (int i = 0; rc == 0 && i < c->n; i++) {
        float *x = e->hidden + c->start[i] * (size_t)hidden;
        int tokens = (int)(c->start[i + 1] - c->start[i]),
            rows = e->opts->pool == POOL_NONE ? tokens : 1;
        if (e->opts->pool == POOL_MEAN)
            pool_mean(x, tokens, hidden);
        kh_buf_reset(&e->out);
        if (e->opts->json)
            put_json(e, c, i, x, rows);
        else
            put_plain(e, x, rows);
        if (kh_buf_failed(&e->out))
            return kh_fail_memory(err);
        fwrite(e->out.data, 1, e->out.len, stdout);
    }
    fflush(stdout);
    return rc;
}

static int run_features(void *opts, int n_args, char **args, kh_err *err) {
    extractor e = { .opts = opts, .out = kh_buf_init(KH_BUF_MAX) };
    cli_texts texts = { .args = args, .n_args = n_args, .json = e.opts->json_input };
    int rc = e.opts->ids ? 0 : kh_tokenizer_open(&e.tokenizer, e.opts->model, err);
    kh_model *model;
    if (rc == 0 &&
        (rc = kh_model_open(&model, e.opts->model, &(kh_model_opts){ .hooks = &cli_hooks }, err)) ==
            0 &&
        (rc = kh_engine_new(&e.engine, model, (kh_precision)e.opts->precision, err)) == 0)
        rc = parse_layer(&e, err);
    if (rc == 0)
        rc = cli_texts_ask(&texts, &(cli_asker){ encode_text, extract, &e }, e.opts->batch, err);
    cli_texts_free(&texts);
    kh_engine_free(e.engine);
    kh_tokenizer_close(e.tokenizer);
    kh_free(e.hidden);
    kh_buf_free(&e.out);
    return rc;
}

const cli_command cmd_features = {
    .name = "features",
    .args = "[TEXT...]",
    .max_args = -1,
    .summary = "Print the hidden states of texts",
    .text = "Prints what a layer of the model makes of each text: one line of numbers a\n"
            "text, or with --pool none one line a token and an empty line after each text.\n"
            "Texts are arguments or, if there are none, the lines of standard input. The\n"
            "model needs no masked-language-model head. Numbers are exact: reading them back\n"
            "gives the same floats.\n"
            "\n"
            "  keyhole features --model DIR --pool mean < texts.txt > features.txt\n"
            "  keyhole features --model DIR --layer 3 --pool none --json \"Hello there.\"\n"
            "  echo \"101 7592 102\" | keyhole features --model DIR --ids --layer 0",
    .opts = features_table,
    .opts_size = sizeof(features_opts),
    .run = run_features,
};
