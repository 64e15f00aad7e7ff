/* cmd_fill_mask.c - keyhole fill-mask: which tokens a model would put in place of the mask. */
#include "texts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "model/engine.h"

#include <math.h>
#include <string.h>

typedef struct fill_opts {
    const char *model;
    int top, precision, batch;
    bool json, json_input;
} fill_opts;

static const kh_opt fill_table[] = {
    { "model", KH_OPT_TEXT, offsetof(fill_opts, model), .arg = "DIR|builtin",
        .help = "a model folder with its tokenizer", .required = true },
    { "top", KH_OPT_INT, offsetof(fill_opts, top), "5", .min = 1, .max = 1000, .arg = "K",
        .help = "how many tokens for each mask" },
    { "precision", KH_OPT_CHOICE, offsetof(fill_opts, precision), "f32",
        .arg = "f32|bf16|int8|auto", .help = "how the model multiplies" },
    CLI_BATCH_OPTION(fill_opts, batch),
    { "json", KH_OPT_FLAG, offsetof(fill_opts, json),
        .help = "print one JSON object for each text" },
    { "json-input", KH_OPT_FLAG, offsetof(fill_opts, json_input),
        .help = "each line of standard input is a JSON string" },
    { 0 },
};

enum { CHUNK_MASKS = 64 }; /* each takes as many numbers as the vocabulary has tokens */

typedef struct filler {
    const fill_opts *opts;
    kh_engine *engine;
    kh_tokenizer *tokenizer;
    int32_t mask;
    int *at; /* places of masks among the ids of a chunk */
    size_t at_cap;
    int n_at;
    float *logprob; /* [n_at, V] */
    size_t logprob_cap;
    int32_t *best; /* [top] */
    kh_buf spelled, out;
} filler;

/* The best tokens of mask m; j NULL: as lines. */
static int put_mask(filler *f, int m, kh_json_out *j, kh_err *err) {
    int vocab = kh_engine_model(f->engine)->config.vocab,
        top = f->opts->top < vocab ? f->opts->top : vocab, rc = 0;
    const float *logprob = f->logprob + (size_t)m * (size_t)vocab;
    for (int k = 0; k < vocab; k++)
        if (isnan(logprob[k]))
            return kh_fail(err, KH_EFORMAT,
                "%s: its answer is not a number: are its weights too large, or damaged?",
                f->opts->model);
    cli_best_tokens(logprob, vocab, f->best, top);
    for (int i = 0; i < top && rc == 0; i++)
        rc = cli_put_token(
            &f->out, j, f->tokenizer, i, f->best[i], (double)logprob[f->best[i]], err);
    return rc;
}

static int put_json(filler *f, const cli_chunk *c, int text, int first, int after, kh_err *err) {
    kh_json_out j = kh_json_out_init(&f->out, KH_JSON_COMPACT);
    int rc = 0;
    kh_json_open_object(&j, NULL);
    kh_json_put_text(&j, "text", c->bytes.data + c->text[text], c->text[text + 1] - c->text[text]);
    kh_json_open_array(&j, "masks");
    for (int m = first; m < after && rc == 0; m++) {
        kh_json_open_object(&j, NULL);
        kh_json_put_int(&j, "place", f->at[m] - (int)c->start[text]);
        kh_json_open_array(&j, "tokens");
        rc = put_mask(f, m, &j, err);
        kh_json_close(&j);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&f->out, '\n');
    return rc;
}

static int put_lines(filler *f, const cli_chunk *c, int text, int first, int after, kh_err *err) {
    int rc = 0;
    kh_json_quote(&f->out, c->bytes.data + c->text[text], c->text[text + 1] - c->text[text]);
    kh_buf_char(&f->out, '\n');
    for (int m = first; m < after && rc == 0; m++) {
        if (after - first > 1)
            kh_buf_printf(&f->out, " mask %d of %d\n", m - first + 1, after - first);
        rc = put_mask(f, m, NULL, err);
    }
    return rc;
}

/* One text of a chunk, whose masks are `first` to `after` - 1 of the chunk's. */
static int put_result(filler *f, const cli_chunk *c, int text, int first, int after, kh_err *err) {
    kh_buf_reset(&f->out);
    int rc = f->opts->json ? put_json(f, c, text, first, after, err)
                           : put_lines(f, c, text, first, after, err);
    if (rc == 0 && kh_buf_failed(&f->out))
        rc = kh_fail_memory(err);
    if (rc == 0)
        fwrite(f->out.data, 1, f->out.len, stdout);
    return rc;
}

/* The masks of the ids from `first` on join those of the texts before. */
static int find_masks(filler *f, const kh_ids *ids, int first, kh_err *err) {
    int before = f->n_at;
    for (int i = first; i < ids->n; i++) {
        if (ids->id[i] != f->mask)
            continue;
        if (!kh_grow(&f->at, &f->at_cap, (size_t)f->n_at + 1, sizeof *f->at))
            return kh_fail_memory(err);
        f->at[f->n_at++] = i;
    }
    if (f->n_at == before)
        return kh_fail(err, KH_EARG,
            "the text has no mask; write %s where a token is to be guessed",
            kh_tokenizer_token(f->tokenizer, f->mask));
    return f->n_at >= CHUNK_MASKS;
}

/* Masks of either family, in the spelling of this tokenizer: people should not have to know which
 * model they talk to. */
static int spell_masks(filler *f, const char *text, size_t n, kh_err *err) {
    static const char *const MASKS[] = { "<mask>", "[MASK]" };
    const char *own = kh_tokenizer_token(f->tokenizer, f->mask);
    kh_buf_reset(&f->spelled);
    for (size_t i = 0, used; i < n; i += used) {
        used = 0;
        for (size_t k = 0; k < sizeof MASKS / sizeof *MASKS && used == 0; k++)
            used = n - i >= strlen(MASKS[k]) && memcmp(text + i, MASKS[k], strlen(MASKS[k])) == 0
                ? strlen(MASKS[k])
                : 0;
        kh_buf_bytes(&f->spelled, used ? own : text + i, used ? strlen(own) : 1);
        used += used == 0;
    }
    return kh_buf_failed(&f->spelled) ? kh_fail_memory(err) : 0;
}

static int encode_text(void *user, const char *text, size_t n, kh_ids *ids, kh_err *err) {
    filler *f = user;
    int first = ids->n;
    kh_single single;
    int rc = spell_masks(f, text, n, err);
    if (rc == 0)
        rc = kh_tokenizer_encode(f->tokenizer, f->spelled.data ? f->spelled.data : "",
            f->spelled.len, KH_ENCODE_FRAME, ids, err);
    if (rc != 0)
        return rc;
    kh_single_init(&single, ids->id + first,
        ids->n - first); /* checked before there is memory for every mask of an endless text */
    rc = kh_engine_check(f->engine, &(kh_question){ .batch = &single.batch }, err);
    return rc != 0 ? rc : find_masks(f, ids, first, err);
}

static int fill_texts(void *user, const cli_chunk *c, kh_err *err) {
    filler *f = user;
    size_t vocab = (size_t)kh_engine_model(f->engine)->config.vocab;
    int n_at = 0, rc = 0;
    while (n_at < f->n_at &&
        f->at[n_at] < c->ids.n) /* a text that was refused may have left masks behind */
        n_at++;
    if (!kh_grow(&f->logprob, &f->logprob_cap, (size_t)n_at * vocab, sizeof *f->logprob))
        return kh_fail_memory(err);
    rc = kh_engine_vocabulary(
        f->engine, &(kh_question){ .batch = &c->batch }, f->at, n_at, f->logprob, err);
    for (int i = 0, first = 0, after; rc == 0 && i < c->n; i++, first = after) {
        for (after = first; after < n_at && (size_t)f->at[after] < c->start[i + 1]; after++)
            ;
        rc = put_result(f, c, i, first, after, err);
    }
    f->n_at = 0;
    fflush(stdout);
    return rc;
}

static int open_all(filler *f, kh_err *err) {
    kh_model_opts opts = { .need_head = "fill-mask", .hooks = &cli_hooks };
    int rc = kh_tokenizer_open(&f->tokenizer, f->opts->model, err);
    if (rc != 0)
        return rc;
    f->mask = kh_tokenizer_special(f->tokenizer, KH_TOKEN_MASK);
    if (f->mask < 0)
        return kh_fail(err, KH_EUNSUPPORTED, "%s: the tokenizer has no mask token", f->opts->model);
    kh_model *model;
    if ((rc = kh_model_open(&model, f->opts->model, &opts, err)) != 0)
        return rc;
    if (model->config.arch->causal) {
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: a %s model continues texts, and fills no masks; \"keyhole next\" asks it",
            f->opts->model, model->config.arch->type);
        kh_model_close(model);
        return rc;
    }
    if ((rc = kh_engine_new(&f->engine, model, (kh_precision)f->opts->precision, err)) != 0)
        return rc;
    f->best = kh_calloc((size_t)f->opts->top, sizeof *f->best);
    return f->best ? 0 : kh_fail_memory(err);
}

static int run_fill(void *opts, int n_args, char **args, kh_err *err) {
    filler f = { .opts = opts, .spelled = kh_buf_init(KH_BUF_MAX), .out = kh_buf_init(KH_BUF_MAX) };
    cli_texts texts = { .args = args, .n_args = n_args, .json = f.opts->json_input };
    int rc = open_all(&f, err);
    if (rc == 0)
        rc = cli_texts_ask(&texts, &(cli_asker){ encode_text, fill_texts, &f }, f.opts->batch, err);
    cli_texts_free(&texts);
    kh_engine_free(f.engine);
    kh_tokenizer_close(f.tokenizer);
    kh_free(f.at);
    kh_free(f.logprob);
    kh_free(f.best);
    kh_buf_free(&f.spelled);
    kh_buf_free(&f.out);
    return rc;
}

const cli_command cmd_fill_mask = {
    .name = "fill-mask",
    .args = "[TEXT...]",
    .max_args = -1,
    .summary = "Show what a model would put in place of the mask",
    .text = "Prints the likeliest tokens for each mask of each text, with their\n"
            "log-probabilities over the whole vocabulary and their ids. Texts are arguments\n"
            "or, if there are none, the lines of standard input. The mask may be written\n"
            "<mask> (RoBERTa) or [MASK] (BERT), whichever family the model is of.\n"
            "\n"
            "  keyhole fill-mask --model roberta-base \"The capital of France is <mask>.\"\n"
            "  keyhole fill-mask --model DIR --top 20 --json < texts.txt",
    .opts = fill_table,
    .opts_size = sizeof(fill_opts),
    .run = run_fill,
};
