/* cmd_inspect.c - keyhole inspect: what a model folder, or the folder of a run, holds. */
#include "cli.h"

#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/place.h"
#include "model/model.h"
#include "model/weights.h"
#include "runs.h"

#include <string.h>

typedef struct inspect_opts {
    bool json;
} inspect_opts;

static const kh_opt inspect_table[] = {
    { "json", KH_OPT_FLAG, offsetof(inspect_opts, json), .help = "print one JSON object" },
    { 0 },
};

/* What is known of the tokenizer beside the model: it, or the sentence why there is none. */
typedef struct tokenizer_part {
    kh_tokenizer *tokenizer;
    kh_err err;
} tokenizer_part;

static const char *act_text(kh_act act) {
    static const char *const names[] = { [KH_ACT_GELU] = "gelu",
        [KH_ACT_GELU_TANH] = "gelu_new",
        [KH_ACT_RELU] = "relu",
        [KH_ACT_SILU] = "silu" };
    return names[act];
}

/* ------------------------------------------------------------------------------------- as JSON */

static void json_tokenizer(kh_json_out *j, const tokenizer_part *t, int vocab) {
    if (!t->tokenizer) {
        kh_json_put_null(j, "tokenizer");
        kh_json_put_string(j, "tokenizer_error", t->err.msg);
        return;
    }
    int32_t mask = kh_tokenizer_special(t->tokenizer, KH_TOKEN_MASK);
    kh_json_open_object(j, "tokenizer");
    kh_json_put_int(j, "size", kh_tokenizer_size(t->tokenizer));
    kh_json_put_bool(j, "fits", kh_tokenizer_size(t->tokenizer) <= vocab);
    kh_json_put_int(j, "mask_id", mask);
    kh_json_put_string(j, "mask", mask < 0 ? NULL : kh_tokenizer_token(t->tokenizer, mask));
    kh_json_put_hex(j, "fingerprint", kh_tokenizer_fingerprint(t->tokenizer));
    kh_json_close(j);
}

/* How many tensors are of one format, and their bytes. */
static int count_format(const kh_model *m, kh_dtype dtype, size_t *bytes) {
    kh_weights w = m->w;
    int n = 0;
    *bytes = 0;
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        for (int layer = 0; layer < (row->layered ? m->config.layers : 1); layer++) {
            const kh_tensor *t = kh_weight_tensor(row, &w, layer);
            bool twice = t == &w.decoder_w && w.decoder_w.data == w.word.data;
            if (!t->data || t->dtype != dtype || twice)
                continue;
            n++;
            *bytes += kh_tensor_bytes(t);
        }
    return n;
}

static void json_formats(kh_json_out *j, const kh_model *m) {
    size_t bytes;
    kh_json_open_object(j, "formats");
    for (kh_dtype d = KH_DTYPE_F32; d <= KH_DTYPE_MXFP4; d++) {
        int n = count_format(m, d, &bytes);
        if (n == 0)
            continue;
        kh_json_open_object(j, kh_dtype_name(d));
        kh_json_put_int(j, "tensors", n);
        kh_json_put_int(j, "bytes", (long long)bytes);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_json(kh_buf *out, const kh_model *m, const tokenizer_part *t) {
    kh_model_info i = kh_model_describe(m);
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "kind", "model");
    kh_json_put_string(&j, "path", m->dir);
    kh_json_put_string(&j, "type", i.type);
    kh_json_put_int(&j, "layers", i.layers);
    kh_json_put_int(&j, "hidden", i.hidden);
    kh_json_put_int(&j, "heads", i.heads);
    kh_json_put_int(&j, "inner", i.inner);
    kh_json_put_int(&j, "vocab", i.vocab);
    kh_json_put_int(&j, "max_tokens", i.max_tokens);
    kh_json_put_string(&j, "activation", act_text(m->config.act));
    kh_json_put_number(&j, "layer_norm_eps", m->config.eps, 9);
    kh_json_put_bool(&j, "head", i.head);
    kh_json_put_bool(&j, "tied", i.tied);
    kh_json_put_string(&j, "dtype", kh_dtype_name(i.dtype));
    json_formats(&j, m);
    kh_json_put_int(&j, "parameters", (long long)i.params);
    kh_json_put_int(&j, "bytes", (long long)i.bytes);
    kh_json_put_hex(&j, "fingerprint", i.fingerprint);
    kh_json_open_array(&j, "unused");
    for (int e = 0; e < m->n_extra; e++)
        kh_json_put_string(&j, NULL, m->extra[e]);
    kh_json_close(&j);
    json_tokenizer(&j, t, i.vocab);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* ------------------------------------------------------------------------------------- as text */

static void text_tokenizer(kh_buf *out, const tokenizer_part *t, int vocab) {
    if (!t->tokenizer) {
        kh_buf_printf(out, "tokenizer    none: %s\n", t->err.msg);
        return;
    }
    int32_t mask = kh_tokenizer_special(t->tokenizer, KH_TOKEN_MASK);
    int size = kh_tokenizer_size(t->tokenizer);
    kh_buf_printf(
        out, "tokenizer    %d tokens%s, ", size, size > vocab ? " (more than the model has!)" : "");
    const char *token = mask >= 0 ? kh_tokenizer_token(t->tokenizer, mask) : NULL;
    if (token) {
        kh_buf_text(out, "mask ");
        kh_json_quote(out, token, strlen(token)); /* a file may call it anything */
        kh_buf_printf(out, " = %d, ", mask);
    } else
        kh_buf_text(out, "no mask, ");
    kh_buf_printf(
        out, "fingerprint %016llx\n", (unsigned long long)kh_tokenizer_fingerprint(t->tokenizer));
}

static const char *head_text(const kh_model *m, bool head, bool tied) {
    if (!head)
        return "none: only features";
    if (m->config.arch->causal)
        return tied ? "next token, decoder tied to the word embeddings"
                    : "next token, decoder of its own";
    return tied ? "masked LM, decoder tied to the word embeddings"
                : "masked LM, decoder of its own";
}

static void put_text(kh_buf *out, const kh_model *m, const tokenizer_part *t) {
    kh_model_info i = kh_model_describe(m);
    kh_buf_printf(out, "model        %s\n", m->dir);
    kh_buf_printf(out, "type         %s\n", i.type);
    kh_buf_printf(out, "layers       %d\n", i.layers);
    kh_buf_printf(out, "hidden       %d (%d heads of %d)\n", i.hidden, i.heads, i.hidden / i.heads);
    kh_buf_printf(out, "inner        %d, %s\n", i.inner, act_text(m->config.act));
    kh_buf_printf(out, "vocabulary   %d\n", i.vocab);
    kh_buf_printf(out, "longest text %d tokens\n", i.max_tokens);
    kh_buf_printf(out, "head         %s\n", head_text(m, i.head, i.tied));
    kh_buf_printf(out, "parameters   %zu\n", i.params);
    kh_buf_printf(out, "stored as    %s\n", kh_dtype_name(i.dtype));
    for (kh_dtype d = KH_DTYPE_F32; d <= KH_DTYPE_MXFP4; d++) {
        size_t bytes;
        int n = count_format(m, d, &bytes);
        if (n > 0)
            kh_buf_printf(
                out, "  %-9s  %d tensors, %.1f MB\n", kh_dtype_name(d), n, (double)bytes / 1e6);
    }
    kh_buf_printf(out, "memory       %.1f MB\n", (double)i.bytes / 1e6);
    kh_buf_printf(out, "fingerprint  %016llx\n", (unsigned long long)i.fingerprint);
    text_tokenizer(out, t, i.vocab);
    for (int e = 0; e < m->n_extra; e++)
        kh_buf_printf(out, "not used     %s\n", m->extra[e]);
}

static int run_inspect(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const inspect_opts *o = opts;
    kh_model *m;
    if (strcmp(args[0], KH_BUILTIN) != 0 && cli_is_run(args[0]))
        return cli_inspect_run(args[0], o->json, err);
    int rc = kh_model_open(&m, args[0], NULL, err);
    if (rc != 0)
        return rc;
    tokenizer_part t = { 0 };
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    if (kh_tokenizer_open(&t.tokenizer, args[0], &t.err) != 0)
        t.tokenizer = NULL;
    if (o->json)
        put_json(&out, m, &t);
    else
        put_text(&out, m, &t);
    if (kh_buf_failed(&out))
        rc = kh_fail_memory(err);
    else
        fwrite(out.data, 1, out.len, stdout);
    kh_buf_free(&out);
    kh_tokenizer_close(t.tokenizer);
    kh_model_close(m);
    return rc;
}

const cli_command cmd_inspect = {
    .name = "inspect",
    .args = "MODEL|RUN",
    .min_args = 1,
    .max_args = 1,
    .summary = "Say what a model folder, or the folder of a run, holds",
    .text = "Loads the model, which checks every tensor, and prints its sizes, how its\n"
            "numbers are stored, whether it has a masked-language-model head, its tokenizer,\n"
            "and its fingerprint: a hash over sizes and weights that results are recorded\n"
            "with. Tensors that no part of the model uses are listed.\n"
            "\n"
            "Of a run it prints where it stands and all that decides its result, also while\n"
            "it goes on.\n"
            "\n"
            "  keyhole inspect roberta-base\n"
            "  keyhole inspect RUN\n"
            "  keyhole inspect DIR --json",
    .opts = inspect_table,
    .opts_size = sizeof(inspect_opts),
    .run = run_inspect,
};
