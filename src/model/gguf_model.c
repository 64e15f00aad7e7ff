/* gguf_model.c - see gguf_model.h.
 *
 * llama.cpp's converter renames keys and tensors and changes some numbers on the way. Two tables
 * undo the names: keys of each architecture, and tensors. What is changed besides:
 *
 *     llama    rows of queries and keys are reordered within a head, so that the two numbers that a
 *              rotary position turns together stand side by side
 *     gemma3   weights of norms have 1 added
 *     gpt2     matrices are [out, in], and not [in, out]
 *
 * What the converter leaves out cannot be had back: BERT's masked-language-model head. */
#include "model/gguf_model.h"

#include "base/err.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- config */

typedef struct maker {
    const kh_gguf *f;
    const char *arch; /* "llama", ... */
    json_t *root;
    kh_err *err;
    int rc; /* the first failure */
} maker;

static const char *key_of(const maker *m, const char *key) {
    static _Thread_local char name[128];
    snprintf(name, sizeof name, "%s.%s", m->arch, key);
    return name;
}

static void put(maker *m, const char *to, json_t *value) {
    if (m->rc == 0 && (!value || json_object_set_new(m->root, to, value) != 0))
        m->rc = kh_fail_memory(m->err);
    else if (m->rc != 0)
        json_decref(value);
}

/* Whole numbers of the file: `key` of the architecture becomes `to`. Returns it, 0 if missing. */
static int put_int(maker *m, const char *key, const char *to, bool needed) {
    int x = 0;
    const char *name = key_of(m, key);
    if (m->rc == 0 && (needed || kh_gguf_has(m->f, name)))
        m->rc = kh_gguf_int(m->f, name, 0, 1 << 30, &x, m->err);
    if (m->rc == 0 && x > 0)
        put(m, to, json_integer(x));
    return x;
}

static void put_number(maker *m, const char *key, const char *to, bool needed) {
    double x = 0;
    const char *name = key_of(m, key);
    if (m->rc == 0 && (needed || kh_gguf_has(m->f, name))) {
        m->rc = kh_gguf_number(m->f, name, &x, m->err);
        /* An f32 of the file as the decimal that it was rounded from. */
        char text[32];
        snprintf(text, sizeof text, "%.7g", x);
        put(m, to, json_real(strtod(text, NULL)));
    }
}

static const kh_gguf_tensor *find_tensor(const kh_gguf *f, const char *name) {
    int n;
    const kh_gguf_tensor *t = kh_gguf_tensors(f, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0)
            return &t[i];
    return NULL;
}

/* Rows of a matrix of the file, 0 if there is none. */
static int rows_of(const kh_gguf *f, const char *name) {
    const kh_gguf_tensor *t = find_tensor(f, name);
    return t && t->rank == 2 && t->shape[0] <= 1 << 24 ? (int)t->shape[0] : 0;
}

static int fail_split(const kh_gguf *f, kh_err *err) {
    return kh_fail(err, KH_EFORMAT,
        "%s: no tensor \"token_embd.weight\" with the word embeddings; "
        "of a model in several files give the first, -00001-of-...",
        kh_gguf_path(f));
}

/* Llama 3.1 and later: factors of frequencies come as a tensor. Their largest is the scaling's
 * factor; the other numbers are the same in all such models, which is checked. */
static bool is_llama3(const float *x, size_t n, double theta, double factor) {
    const double low = 1, high = 4, original = 8192, turn = 6.283185307179586;
    for (size_t i = 0; i < n; i++) {
        double waves = original / turn * pow(theta, -(double)i / (double)n);
        double share = fmin(fmax((waves - low) / (high - low), 0), 1);
        double want = 1 / ((1 - share) / factor + share);
        if (fabs(want - (double)x[i]) > 1e-3 * want)
            return false;
    }
    return true;
}

static void put_llama3(maker *m) {
    const kh_gguf_tensor *t = find_tensor(m->f, "rope_freqs.weight");
    float x[512], most = 1;
    double theta = 10000;
    if (!t || m->rc != 0)
        return;
    if (t->type->dtype != KH_DTYPE_F32 || t->rank != 1 || t->shape[0] > 512) {
        m->rc = kh_fail(m->err, KH_EUNSUPPORTED,
            "%s: \"rope_freqs.weight\" is not a list of at most 512 F32 numbers",
            kh_gguf_path(m->f));
        return;
    }
    if ((m->rc = kh_gguf_read(m->f, t, 0, t->bytes, x, m->err)) != 0)
        return;
    size_t n = t->shape[0];
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    m->rc = kh_gguf_number_opt(m->f, key_of(m, "rope.freq_base"), &theta, m->err);
    if (m->rc == 0 && !is_llama3(x, n, theta, (double)most))
        m->rc = kh_fail(m->err, KH_EUNSUPPORTED,
            "%s: \"rope_freqs.weight\" scales rotary positions in a way that is not known",
            kh_gguf_path(m->f));
    if (m->rc == 0 && most > 1)
        put(m, "rope_scaling",
            json_pack("{s:s,s:f,s:f,s:f,s:f}", "rope_type", "llama3", "factor", (double)most,
                "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings",
                8192.0));
}

static void put_scaling(maker *m) {
    const char *type = "none";
    double factor = 1;
    if (m->rc == 0)
        m->rc = kh_gguf_text_opt(m->f, key_of(m, "rope.scaling.type"), &type, m->err);
    if (m->rc == 0)
        m->rc = kh_gguf_number_opt(m->f, key_of(m, "rope.scaling.factor"), &factor, m->err);
    if (m->rc == 0 && strcmp(type, "none") != 0)
        put(m, "rope_scaling", json_pack("{s:s,s:f}", "rope_type", type, "factor", factor));
    put_llama3(m);
}

static void put_decoder(maker *m, const char *model_type) {
    bool gpt2 = strcmp(model_type, "gpt2") == 0, gemma = strncmp(model_type, "gemma", 5) == 0;
    put(m, "model_type", json_string(model_type));
    int layers = put_int(m, "block_count", gpt2 ? "n_layer" : "num_hidden_layers", true);
    int hidden = put_int(m, "embedding_length", gpt2 ? "n_embd" : "hidden_size", true);
    int heads = put_int(m, "attention.head_count", gpt2 ? "n_head" : "num_attention_heads", true);
    put_int(m, "feed_forward_length", gpt2 ? "n_inner" : "intermediate_size", true);
    put_int(m, "context_length", gpt2 ? "n_positions" : "max_position_embeddings", true);
    put(m, "tie_word_embeddings", json_boolean(!find_tensor(m->f, "output.weight")));
    if (gpt2) {
        put_number(m, "attention.layer_norm_epsilon", "layer_norm_epsilon", true);
        return;
    }
    put_int(m, "attention.head_count_kv", "num_key_value_heads", false);
    int width = put_int(m, "attention.key_length", "head_dim", false);
    put_number(m, "attention.layer_norm_rms_epsilon", "rms_norm_eps", true);
    put_number(m, "rope.freq_base", "rope_theta", false);
    put_scaling(m);
    int window = put_int(m, "attention.sliding_window", "sliding_window", false);
    if (strcmp(model_type, "qwen2") == 0 || strcmp(model_type, "qwen3") == 0)
        put(m, "use_sliding_window", json_false());
    if (!gemma)
        return;
    put_number(m, "rope.freq_base_swa", "rope_local_base_freq", false);
    if (window == 0)
        put(m, "sliding_window", json_null());
    /* The largest of them, with 62 layers, divides by another root than the width of a head. */
    int scale = width > 0 ? width : 256;
    if (layers == 62 && heads > 0)
        scale = hidden / heads;
    put(m, "query_pre_attn_scalar", json_integer(scale));
}

static void put_bert(maker *m) {
    put(m, "model_type", json_string("bert"));
    put_int(m, "block_count", "num_hidden_layers", true);
    put_int(m, "embedding_length", "hidden_size", true);
    put_int(m, "attention.head_count", "num_attention_heads", true);
    put_int(m, "feed_forward_length", "intermediate_size", true);
    put_number(m, "attention.layer_norm_epsilon", "layer_norm_eps", true);
    int positions = rows_of(m->f, "position_embd.weight"),
        types = rows_of(m->f, "token_types.weight");
    put(m, "max_position_embeddings", json_integer(positions));
    put(m, "type_vocab_size", json_integer(types));
    put(m, "pad_token_id", json_integer(0));
    if (m->rc == 0 && (positions == 0 || types == 0))
        m->rc = kh_fail(m->err, KH_EUNSUPPORTED,
            "%s: a bert model without \"position_embd.weight\" or \"token_types.weight\" is not "
            "read",
            kh_gguf_path(m->f));
}

static const struct {
    const char *arch, *type;
} types[] = { { "llama", "llama" }, { "qwen2", "qwen2" }, { "qwen3", "qwen3" },
    { "gemma3", "gemma3_text" }, { "gpt2", "gpt2" }, { "bert", "bert" } };
enum { N_TYPE = sizeof types / sizeof *types };

static int make_config(maker *m) {
    const char *type = NULL;
    for (int i = 0; i < N_TYPE; i++)
        if (strcmp(types[i].arch, m->arch) == 0)
            type = types[i].type;
    if (!type)
        return kh_fail(m->err, KH_EUNSUPPORTED,
            "%s: \"general.architecture\" is \"%.60s\"; llama, qwen2, qwen3, gemma3, gpt2 and bert "
            "are read",
            kh_gguf_path(m->f), m->arch);
    int vocab = rows_of(m->f, "token_embd.weight");
    if (vocab == 0)
        return fail_split(m->f, m->err);
    m->root = json_object();
    if (!m->root)
        return kh_fail_memory(m->err);
    put(m, "vocab_size", json_integer(vocab));
    if (strcmp(type, "bert") == 0)
        put_bert(m);
    else
        put_decoder(m, type);
    return m->rc;
}

int kh_gguf_config(const kh_gguf *f, kh_buf *out, kh_err *err) {
    const char *own = NULL;
    maker m = { .f = f, .arch = "", .err = err };
    int rc = kh_gguf_text_opt(f, KH_GGUF_CONFIG, &own, err);
    if (rc == 0 && own) {
        kh_buf_text(out, own);
        return kh_buf_failed(out) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0)
        rc = kh_gguf_text(f, "general.architecture", &m.arch, err);
    if (rc == 0)
        rc = make_config(&m);
    char *text = rc == 0 ? json_dumps(m.root, JSON_COMPACT) : NULL;
    if (rc == 0 && !text)
        rc = kh_fail_memory(err);
    if (rc == 0)
        kh_buf_text(out, text);
    free(text);
    json_decref(m.root);
    if (rc == 0 && kh_buf_failed(out))
        rc = kh_fail_memory(err);
    return rc;
}

/* ---------------------------------------------------------------------------------- tensors */

/* Names in the file, and in folders of the families (Gemma 3 where it differs from Llama); '#' is
 * the number of the layer. */
enum { LLAMA, GPT2, BERT, GEMMA };
static const struct {
    const char *name, *to[4];
} names[] = {
    { "token_embd.weight",
        { "model.embed_tokens.weight", "transformer.wte.weight",
            "bert.embeddings.word_embeddings.weight" } },
    { "position_embd.weight",
        { NULL, "transformer.wpe.weight", "bert.embeddings.position_embeddings.weight" } },
    { "token_types.weight", { NULL, NULL, "bert.embeddings.token_type_embeddings.weight" } },
    { "token_embd_norm.weight", { NULL, NULL, "bert.embeddings.LayerNorm.weight" } },
    { "token_embd_norm.bias", { NULL, NULL, "bert.embeddings.LayerNorm.bias" } },
    { "output_norm.weight", { "model.norm.weight", "transformer.ln_f.weight" } },
    { "output_norm.bias", { NULL, "transformer.ln_f.bias" } },
    { "output.weight", { "lm_head.weight", "lm_head.weight" } },
    { "blk.#.attn_norm.weight",
        { "model.layers.#.input_layernorm.weight", "transformer.h.#.ln_1.weight" } },
    { "blk.#.attn_norm.bias", { NULL, "transformer.h.#.ln_1.bias" } },
    { "blk.#.attn_qkv.weight", { NULL, "transformer.h.#.attn.c_attn.weight" } },
    { "blk.#.attn_qkv.bias", { NULL, "transformer.h.#.attn.c_attn.bias" } },
    { "blk.#.attn_q.weight",
        { "model.layers.#.self_attn.q_proj.weight", NULL,
            "bert.encoder.layer.#.attention.self.query.weight" } },
    { "blk.#.attn_q.bias",
        { "model.layers.#.self_attn.q_proj.bias", NULL,
            "bert.encoder.layer.#.attention.self.query.bias" } },
    { "blk.#.attn_k.weight",
        { "model.layers.#.self_attn.k_proj.weight", NULL,
            "bert.encoder.layer.#.attention.self.key.weight" } },
    { "blk.#.attn_k.bias",
        { "model.layers.#.self_attn.k_proj.bias", NULL,
            "bert.encoder.layer.#.attention.self.key.bias" } },
    { "blk.#.attn_v.weight",
        { "model.layers.#.self_attn.v_proj.weight", NULL,
            "bert.encoder.layer.#.attention.self.value.weight" } },
    { "blk.#.attn_v.bias",
        { "model.layers.#.self_attn.v_proj.bias", NULL,
            "bert.encoder.layer.#.attention.self.value.bias" } },
    { "blk.#.attn_q_norm.weight", { "model.layers.#.self_attn.q_norm.weight" } },
    { "blk.#.attn_k_norm.weight", { "model.layers.#.self_attn.k_norm.weight" } },
    { "blk.#.attn_output.weight",
        { "model.layers.#.self_attn.o_proj.weight", "transformer.h.#.attn.c_proj.weight",
            "bert.encoder.layer.#.attention.output.dense.weight" } },
    { "blk.#.attn_output.bias",
        { "model.layers.#.self_attn.o_proj.bias", "transformer.h.#.attn.c_proj.bias",
            "bert.encoder.layer.#.attention.output.dense.bias" } },
    { "blk.#.attn_output_norm.weight",
        { NULL, NULL, "bert.encoder.layer.#.attention.output.LayerNorm.weight" } },
    { "blk.#.attn_output_norm.bias",
        { NULL, NULL, "bert.encoder.layer.#.attention.output.LayerNorm.bias" } },
    { "blk.#.post_attention_norm.weight",
        { [GEMMA] = "model.layers.#.post_attention_layernorm.weight" } },
    { "blk.#.ffn_norm.weight",
        { "model.layers.#.post_attention_layernorm.weight", "transformer.h.#.ln_2.weight", NULL,
            "model.layers.#.pre_feedforward_layernorm.weight" } },
    { "blk.#.ffn_norm.bias", { NULL, "transformer.h.#.ln_2.bias" } },
    { "blk.#.post_ffw_norm.weight",
        { [GEMMA] = "model.layers.#.post_feedforward_layernorm.weight" } },
    { "blk.#.ffn_gate.weight", { "model.layers.#.mlp.gate_proj.weight" } },
    { "blk.#.ffn_gate.bias", { "model.layers.#.mlp.gate_proj.bias" } },
    { "blk.#.ffn_up.weight",
        { "model.layers.#.mlp.up_proj.weight", "transformer.h.#.mlp.c_fc.weight",
            "bert.encoder.layer.#.intermediate.dense.weight" } },
    { "blk.#.ffn_up.bias",
        { "model.layers.#.mlp.up_proj.bias", "transformer.h.#.mlp.c_fc.bias",
            "bert.encoder.layer.#.intermediate.dense.bias" } },
    { "blk.#.ffn_down.weight",
        { "model.layers.#.mlp.down_proj.weight", "transformer.h.#.mlp.c_proj.weight",
            "bert.encoder.layer.#.output.dense.weight" } },
    { "blk.#.ffn_down.bias",
        { "model.layers.#.mlp.down_proj.bias", "transformer.h.#.mlp.c_proj.bias",
            "bert.encoder.layer.#.output.dense.bias" } },
    { "blk.#.layer_output_norm.weight",
        { NULL, NULL, "bert.encoder.layer.#.output.LayerNorm.weight" } },
    { "blk.#.layer_output_norm.bias",
        { NULL, NULL, "bert.encoder.layer.#.output.LayerNorm.bias" } },
};
enum { N_NAME = sizeof names / sizeof *names };

/* Whether `name` is `pattern` with a number for '#', which goes to *layer. */
static bool matches(const char *pattern, const char *name, long *layer) {
    size_t n = strcspn(pattern, "#");
    if (strncmp(pattern, name, n) != 0)
        return false;
    if (!pattern[n])
        return name[n] == '\0';
    char *end;
    if (name[n] < '0' || name[n] > '9')
        return false;
    *layer = strtol(name + n, &end, 10);
    return *layer <= 1 << 20 && strcmp(pattern + n + 1, end) == 0;
}

static bool fill_name(const char *pattern, long layer, kh_gguf_layout *out) {
    size_t n = strcspn(pattern, "#");
    if (pattern[n])
        snprintf(out->name, sizeof out->name, "%.*s%ld%s", (int)n, pattern, layer, pattern + n + 1);
    else
        snprintf(out->name, sizeof out->name, "%s", pattern);
    return true;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

bool kh_gguf_find_layout(const kh_gguf *f, const kh_gguf_tensor *t, kh_gguf_layout *out) {
    *out = (kh_gguf_layout){ 0 };
    const char *arch = "";
    long layer = 0;
    kh_gguf_text_opt(f, "general.architecture", &arch, NULL);
    if (kh_gguf_has(f, KH_GGUF_CONFIG)) {
        bool fits = strlen(t->name) < sizeof out->name;
        snprintf(out->name, sizeof out->name, "%s", fits ? t->name : "");
        return fits;
    }
    bool gemma = strcmp(arch, "gemma3") == 0, gpt2 = strcmp(arch, "gpt2") == 0;
    int family = strcmp(arch, "bert") == 0 ? BERT : LLAMA;
    if (gpt2)
        family = GPT2;
    if (strcmp(arch, "llama") == 0) {
        /* The heads whose rows were reordered; a count that is wrong is found by the shapes. */
        if (ends_with(t->name, ".attn_q.weight") || ends_with(t->name, ".attn_q.bias"))
            kh_gguf_int_opt(f, "llama.attention.head_count", 1, 1 << 12, &out->heads, NULL);
        if (ends_with(t->name, ".attn_k.weight") || ends_with(t->name, ".attn_k.bias")) {
            kh_gguf_int_opt(f, "llama.attention.head_count", 1, 1 << 12, &out->heads, NULL);
            kh_gguf_int_opt(f, "llama.attention.head_count_kv", 1, 1 << 12, &out->heads, NULL);
        }
    }
    out->straight = gpt2 && ends_with(t->name, ".weight") && t->rank == 2;
    out->plus = gemma && ends_with(t->name, "norm.weight") ? 1 : 0;
    for (int i = 0; i < N_NAME; i++)
        if (matches(names[i].name, t->name, &layer)) {
            const char *to = names[i].to[gemma && names[i].to[GEMMA] ? GEMMA : family];
            return to && fill_name(to, layer, out);
        }
    return false;
}
