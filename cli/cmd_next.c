/* cmd_next.c - keyhole next: which tokens a decoder would continue texts with. */
#include "texts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "model/engine.h"

#include <math.h>
#include <string.h>

typedef struct next_opts {
    const char *model;
    int top, precision, batch;
    bool json, json_input;
} next_opts;

static const kh_opt next_table[] = {
    { "model", KH_OPT_TEXT, offsetof(next_opts, model), .arg = "DIR",
        .help = "a decoder with its tokenizer", .required = true },
    { "top", KH_OPT_INT, offsetof(next_opts, top), "5", .min = 1, .max = 1000, .arg = "N",
        .help = "how many tokens for each text" },
    { "precision", KH_OPT_CHOICE, offsetof(next_opts, precision), "f32",
        .arg = "f32|bf16|int8|auto", .help = "how the model multiplies" },
    CLI_BATCH_OPTION(next_opts, batch),
    { "json", KH_OPT_FLAG, offsetof(next_opts, json), .help = "print one JSON object a line" },
    { "json-input", KH_OPT_FLAG, offsetof(next_opts, json_input),
        .help = "each line of standard input is a JSON string" },
    { 0 },
};

enum { CHUNK_TEXTS = 64 }; /* each takes as many numbers as the vocabulary has tokens */

typedef struct nexter {
    const next_opts *opts;
    kh_engine *engine;
    kh_tokenizer *tokenizer;
    int texts;      /* of the chunk that is being filled */
    float *logprob; /* [texts, V] */
    size_t cap;
    int32_t *best; /* [top] */
    kh_buf out;
} nexter;

/* The tokens of a text, with the start token but no end token behind it: the text goes on. */
static int encode_text(void *user, const char *text, size_t n, kh_ids *ids, kh_err *err) {
    nexter *x = user;
    int first = ids->n;
    int32_t eos = kh_tokenizer_special(x->tokenizer, KH_TOKEN_EOS);
    kh_ids plain = { 0 };
    kh_single single;
    int rc = kh_tokenizer_encode(x->tokenizer, text, n, KH_ENCODE_FRAME, ids, err);
    if (rc == 0)
        rc = kh_tokenizer_encode(x->tokenizer, text, n, 0, &plain, err);
    if (rc == 0 && ids->n > first && ids->id[ids->n - 1] == eos &&
        (plain.n == 0 || plain.id[plain.n - 1] != eos) && ids->n - first > 1)
        ids->n--;
    kh_ids_free(&plain);
    if (rc == 0 && ids->n == first)
        rc = kh_fail(err, KH_EARG, "the text has no tokens, so nothing comes next");
    if (rc != 0)
        return rc;
    kh_single_init(&single, ids->id + first, ids->n - first);
    rc = kh_engine_check(x->engine, &(kh_question){ .batch = &single.batch }, err);
    return rc != 0 ? rc : ++x->texts >= CHUNK_TEXTS;
}

static int put_result(nexter *x, const cli_chunk *c, int text, kh_err *err) {
    bool json = x->opts->json;
    int vocab = kh_engine_model(x->engine)->config.vocab,
        top = x->opts->top < vocab ? x->opts->top : vocab, rc = 0;
    const float *logprob = x->logprob + (size_t)text * (size_t)vocab;
    for (int k = 0; k < vocab; k++)
        if (isnan(logprob[k]))
            return kh_fail(err, KH_EFORMAT,
                "%s: its answer is not a number: are its weights too large, or damaged?",
                x->opts->model);
    const char *bytes = c->bytes.data + c->text[text];
    size_t n = c->text[text + 1] - c->text[text], first = c->start[text];
    kh_buf_reset(&x->out);
    kh_json_out j = kh_json_out_init(&x->out, KH_JSON_COMPACT);
    if (json) {
        kh_json_open_object(&j, NULL);
        kh_json_put_text(&j, "text", bytes, n);
        kh_json_put_ints(&j, "ids", c->ids.id + first, c->start[text + 1] - first);
        kh_json_open_array(&j, "next");
    } else {
        kh_json_quote(&x->out, bytes, n);
        kh_buf_char(&x->out, '\n');
    }
    cli_best_tokens(logprob, vocab, x->best, top);
    for (int i = 0; i < top && rc == 0; i++)
        rc = cli_put_token(&x->out, json ? &j : NULL, x->tokenizer, i, x->best[i],
            (double)logprob[x->best[i]], err);
    if (json) {
        kh_json_close(&j);
        kh_json_close(&j);
        kh_buf_char(&x->out, '\n');
    }
    if (rc == 0 && kh_buf_failed(&x->out))
        rc = kh_fail_memory(err);
    if (rc == 0)
        fwrite(x->out.data, 1, x->out.len, stdout);
    return rc;
}

static int ask_texts(void *user, const cli_chunk *c, kh_err *err) {
    nexter *x = user;
    size_t vocab = (size_t)kh_engine_model(x->engine)->config.vocab;
    int *at = kh_calloc((size_t)c->n + 1, sizeof *at), rc = 0;
    x->texts = 0;
    if (!at || !kh_grow(&x->logprob, &x->cap, (size_t)c->n * vocab, sizeof *x->logprob))
        rc = kh_fail_memory(err);
    for (int i = 0; i < c->n && rc == 0; i++)
        at[i] = (int)c->start[i + 1] - 1;
    if (rc == 0)
        rc = kh_engine_vocabulary(
            x->engine, &(kh_question){ .batch = &c->batch }, at, c->n, x->logprob, err);
    for (int i = 0; i < c->n && rc == 0; i++)
        rc = put_result(x, c, i, err);
    kh_free(at);
    fflush(stdout);
    return rc;
}

static int open_all(nexter *x, kh_err *err) {
    kh_model_opts opts = { .need_head = "next", .hooks = &cli_hooks };
    kh_model *model;
    int rc = kh_tokenizer_open(&x->tokenizer, x->opts->model, err);
    if (rc == 0)
        rc = kh_model_open(&model, x->opts->model, &opts, err);
    if (rc != 0)
        return rc;
    if (!model->config.arch->causal) {
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: a %s model fills masks, and does not continue texts; \"keyhole fill-mask\" asks "
            "it",
            x->opts->model, model->config.arch->type);
        kh_model_close(model);
        return rc;
    }
    rc = kh_engine_new(&x->engine, model, (kh_precision)x->opts->precision, err);
    if (rc == 0 && !(x->best = kh_calloc((size_t)x->opts->top, sizeof *x->best)))
        rc = kh_fail_memory(err);
    return rc;
}

static int run_next(void *opts, int n_args, char **args, kh_err *err) {
    nexter x = { .opts = opts, .out = kh_buf_init(KH_BUF_MAX) };
    cli_texts texts = { .args = args, .n_args = n_args, .json = x.opts->json_input };
    int rc = open_all(&x, err);
    if (rc == 0)
        rc = cli_texts_ask(&texts, &(cli_asker){ encode_text, ask_texts, &x }, x.opts->batch, err);
    cli_texts_free(&texts);
    kh_engine_free(x.engine);
    kh_tokenizer_close(x.tokenizer);
    kh_free(x.logprob);
    kh_free(x.best);
    kh_buf_free(&x.out);
    return rc;
}

const cli_command cmd_next = {
    .name = "next",
    .args = "[TEXT...]",
    .max_args = -1,
    .summary = "Show which tokens a decoder would continue a text with",
    .text = "Prints the likeliest next tokens of each text, with their log-probabilities over\n"
            "the whole vocabulary and their ids. Texts are arguments or, if there are none,\n"
            "the lines of standard input.\n"
            "\n"
            "  keyhole next --model gpt2 \"The capital of France is\"\n"
            "  keyhole next --model DIR --top 20 --json < texts.txt",
    .opts = next_table,
    .opts_size = sizeof(next_opts),
    .run = run_next,
};
