/* config.c - config.json into kh_config; see config.h.
 *
 * Three tables say what is read: the model types and their families, the whole numbers with their
 * keys and ranges, the names of activations. Keys that change what is computed but are not
 * supported (relative positions, decoders, quantisation) are looked for and refused; all other keys
 * are none of our business. */
#include "model/config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct type_row {
    const char *type;
    kh_family family;
    const char *architecture; /* written into new configs */
} type_table[] = {
    { "bert", KH_FAMILY_BERT, "BertForMaskedLM" },
    { "roberta", KH_FAMILY_ROBERTA, "RobertaForMaskedLM" },
    { "xlm-roberta", KH_FAMILY_ROBERTA, "XLMRobertaForMaskedLM" },
    { "camembert", KH_FAMILY_ROBERTA, "CamembertForMaskedLM" },
    { "distilbert", KH_FAMILY_DISTILBERT, "DistilBertForMaskedLM" },
};
enum { N_TYPES = sizeof type_table / sizeof *type_table };

/* The ranges keep every product of two of them within a size_t, and refuse nothing that exists. */
static const struct size_row {
    size_t offset;
    const char *key, *distil_key; /* DistilBERT has names of its own */
    int max;
} size_table[] = {
    { offsetof(kh_config, layers), "num_hidden_layers", "n_layers", 1024 },
    { offsetof(kh_config, hidden), "hidden_size", "dim", 1 << 16 },
    { offsetof(kh_config, heads), "num_attention_heads", "n_heads", 1 << 12 },
    { offsetof(kh_config, inner), "intermediate_size", "hidden_dim", 1 << 20 },
    { offsetof(kh_config, vocab), "vocab_size", "vocab_size", 1 << 24 },
    { offsetof(kh_config, positions), "max_position_embeddings", "max_position_embeddings",
        1 << 20 },
};
enum { N_SIZES = sizeof size_table / sizeof *size_table };

static const struct act_row {
    const char *name;
    kh_act act;
} act_table[] = {
    { "gelu", KH_ACT_GELU },
    { "gelu_new", KH_ACT_GELU_TANH },
    { "gelu_pytorch_tanh", KH_ACT_GELU_TANH },
    { "relu", KH_ACT_RELU },
};
enum { N_ACTS = sizeof act_table / sizeof *act_table };

static const char *size_key(const struct size_row *row, kh_family family) {
    return family == KH_FAMILY_DISTILBERT ? row->distil_key : row->key;
}

static int read_type(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const char *type;
    int rc = kh_json_string(root, "model_type", &type, name, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(type_table[i].type, type) == 0) {
            c->type = type_table[i].type;
            c->family = type_table[i].family;
            return 0;
        }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"model_type\" is \"%.60s\"; encoders of type bert, roberta, xlm-roberta, camembert "
        "and distilbert are read",
        name, type);
}

static int read_sizes(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    for (int i = 0; i < N_SIZES; i++) {
        int *field = (int *)((char *)c + size_table[i].offset);
        int rc = kh_json_int(
            root, size_key(&size_table[i], c->family), 1, size_table[i].max, field, name, err);
        if (rc != 0)
            return rc;
    }
    c->types = c->family == KH_FAMILY_DISTILBERT ? 0 : 2;
    c->pad = c->family == KH_FAMILY_ROBERTA ? 1 : 0;
    int rc = kh_json_int_opt(root, "pad_token_id", 0, (1 << 24) - 1, &c->pad, name, err);
    if (rc == 0 && c->family != KH_FAMILY_DISTILBERT)
        rc = kh_json_int_opt(root, "type_vocab_size", 1, 1 << 10, &c->types, name, err);
    kh_config_set_pad(c, c->pad);
    return rc;
}

static int read_act(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const char *key = c->family == KH_FAMILY_DISTILBERT ? "activation" : "hidden_act",
               *act = "gelu";
    int rc = kh_json_string_opt(root, key, &act, name, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < N_ACTS; i++)
        if (strcmp(act_table[i].name, act) == 0) {
            c->act = act_table[i].act;
            c->head_act = c->family == KH_FAMILY_ROBERTA ? KH_ACT_GELU : c->act;
            return 0;
        }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"%s\" is \"%.60s\"; gelu, gelu_new, gelu_pytorch_tanh and relu are computed", name,
        key, act);
}

static int read_rest(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    c->eps = 1e-12; /* BERT's and DistilBERT's; RoBERTa's configs say 1e-05 */
    int rc = c->family == KH_FAMILY_DISTILBERT
        ? 0
        : kh_json_number_opt(root, "layer_norm_eps", &c->eps, name, err);
    if (rc != 0)
        return rc;
    if (c->eps <= 0 || c->eps > 1)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"layer_norm_eps\" is %g, expected a number above 0 and at most 1", name, c->eps);
    c->tied = true;
    return kh_json_bool_opt(root, "tie_word_embeddings", &c->tied, name, err);
}

/* What would be computed differently if we just went on. */
static int refuse_unknown(const json_t *root, const char *name, kh_err *err) {
    const char *positions = "absolute";
    bool decoder = false;
    int rc = kh_json_string_opt(root, "position_embedding_type", &positions, name, err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "is_decoder", &decoder, name, err);
    if (rc != 0)
        return rc;
    if (strcmp(positions, "absolute") != 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"position_embedding_type\" is \"%.60s\"; only absolute positions are computed",
            name, positions);
    if (decoder)
        return kh_fail(
            err, KH_EUNSUPPORTED, "%s: \"is_decoder\" is true; only encoders are read", name);
    if (json_is_object(json_object_get(root, "quantization_config")))
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: the weights are quantised (\"quantization_config\"); give the F32, F16 or BF16 "
            "model",
            name);
    return 0;
}

int kh_config_check(const kh_config *c, const char *place, kh_err *err) {
    for (int i = 0; i < N_SIZES; i++) {
        int value = *(const int *)((const char *)c + size_table[i].offset);
        if (value < 1 || value > size_table[i].max)
            return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a whole number from 1 to %d", place,
                size_key(&size_table[i], c->family), size_table[i].max);
    }
    if (c->hidden % c->heads != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: a hidden size of %d cannot be divided among %d attention heads", place, c->hidden,
            c->heads);
    if (c->pad >= c->vocab)
        return kh_fail(err, KH_EFORMAT, "%s: \"pad_token_id\" is %d in a vocabulary of %d", place,
            c->pad, c->vocab);
    if (kh_config_max_tokens(c) < 1)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"max_position_embeddings\" is %d, but the first token has position %d", place,
            c->positions, c->first_position);
    return 0;
}

int kh_config_parse(kh_config *c, const char *text, size_t n, const char *name, kh_err *err) {
    *c = (kh_config){ 0 };
    json_t *root;
    int rc = kh_json_parse(text, n, name, &root, err);
    if (rc == 0 && !json_is_object(root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must be a JSON object", name);
    if (rc == 0 && (rc = read_type(c, root, name, err)) == 0 &&
        (rc = read_sizes(c, root, name, err)) == 0 && (rc = read_act(c, root, name, err)) == 0 &&
        (rc = read_rest(c, root, name, err)) == 0 && (rc = refuse_unknown(root, name, err)) == 0)
        rc = kh_config_check(c, name, err);
    json_decref(root);
    return rc;
}

int kh_config_read(kh_config *c, const char *path, kh_err *err) {
    kh_buf bytes;
    int rc = kh_file_read(path, 1 << 20, &bytes, err);
    if (rc == 0)
        rc = kh_config_parse(c, bytes.data, bytes.len, path, err);
    kh_buf_free(&bytes);
    return rc;
}

void kh_config_put(const kh_config *c, kh_dtype dtype, kh_buf *out) {
    static const char *const torch_name[] = { "float32", "float32", "float16", "bfloat16" };
    int type = 0, act = 0;
    while (strcmp(type_table[type].type, c->type) != 0)
        type++;
    while (act_table[act].act != c->act)
        act++;
    bool distil = c->family == KH_FAMILY_DISTILBERT;
    kh_buf_printf(out, "{\n  \"architectures\": [\n    \"%s\"\n  ],\n  \"model_type\": \"%s\",\n",
        type_table[type].architecture, c->type);
    for (int i = 0; i < N_SIZES; i++)
        kh_buf_printf(out, "  \"%s\": %d,\n", size_key(&size_table[i], c->family),
            *(const int *)((const char *)c + size_table[i].offset));
    kh_buf_printf(
        out, "  \"%s\": \"%s\",\n", distil ? "activation" : "hidden_act", act_table[act].name);
    if (!distil)
        kh_buf_printf(
            out, "  \"type_vocab_size\": %d,\n  \"layer_norm_eps\": %.15g,\n", c->types, c->eps);
    kh_buf_printf(out, "  \"pad_token_id\": %d,\n", c->pad);
    kh_buf_printf(out, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"%s\"\n}\n",
        c->tied ? "true" : "false", torch_name[dtype]);
}
