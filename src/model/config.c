/* config.c - config.json into kh_config; see config.h.
 *
 * Tables say what is read: the whole numbers with their keys and ranges, and the names of
 * activations; architecture.h has the model types. Keys that change what is computed but are not
 * supported (relative positions, soft caps, quantisation, ...) are looked for and refused; all
 * other keys are none of our business. */
#include "model/config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The ranges keep every product of two of them within a size_t, and refuse nothing that exists. */
static const struct size_row {
    size_t offset;
    const char *key, *distil_key, *gpt2_key; /* two families have names of their own */
    int max;
} size_table[] = {
    { offsetof(kh_config, layers), "num_hidden_layers", "n_layers", "n_layer", 1024 },
    { offsetof(kh_config, hidden), "hidden_size", "dim", "n_embd", 1 << 16 },
    { offsetof(kh_config, heads), "num_attention_heads", "n_heads", "n_head", 1 << 12 },
    { offsetof(kh_config, inner), "intermediate_size", "hidden_dim", "n_inner", 1 << 20 },
    { offsetof(kh_config, vocab), "vocab_size", "vocab_size", "vocab_size", 1 << 24 },
    { offsetof(kh_config, positions), "max_position_embeddings", "max_position_embeddings",
        "n_positions", 1 << 20 },
};
enum { N_SIZES = sizeof size_table / sizeof *size_table };

/* The first name of an activation is the one that is written. */
static const struct act_row {
    const char *name;
    kh_act act;
} act_table[] = {
    { "gelu", KH_ACT_GELU },
    { "gelu_new", KH_ACT_GELU_TANH },
    { "gelu_pytorch_tanh", KH_ACT_GELU_TANH },
    { "relu", KH_ACT_RELU },
    { "silu", KH_ACT_SILU },
    { "swish", KH_ACT_SILU },
};
enum { N_ACTS = sizeof act_table / sizeof *act_table };

static const char *size_key(const struct size_row *row, kh_family family) {
    switch (family) {
    case KH_FAMILY_DISTILBERT: return row->distil_key;
    case KH_FAMILY_GPT2: return row->gpt2_key;
    default: return row->key;
    }
}

static const char *act_key(const kh_config *c) {
    switch (c->arch->family) {
    case KH_FAMILY_DISTILBERT: return "activation";
    case KH_FAMILY_GPT2: return "activation_function";
    case KH_FAMILY_GEMMA3:
    case KH_FAMILY_MODERNBERT: return "hidden_activation";
    default: return "hidden_act";
    }
}

static const char *eps_key(const kh_config *c) {
    if (c->arch->family == KH_FAMILY_GPT2)
        return "layer_norm_epsilon";
    if (c->arch->family == KH_FAMILY_MODERNBERT)
        return "norm_eps";
    return c->arch->norm == KH_NORM_LAYER ? "layer_norm_eps" : "rms_norm_eps";
}

/* ------------------------------------------------------------------------------ reading */

static int read_type(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const char *type;
    int rc = kh_json_string(root, "model_type", &type, name, err);
    if (rc != 0)
        return rc;
    c->arch = kh_architecture_find(type);
    if (c->arch)
        return 0;
    char known[512] = "";
    for (const kh_architecture *a = kh_architecture_table; a->type; a++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", a->type);
    }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"model_type\" is \"%.60s\"; models of type %s are read", name, type, known);
}

static int read_sizes(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    kh_family family = c->arch->family;
    for (int i = 0; i < N_SIZES; i++) {
        const struct size_row *row = &size_table[i];
        const char *key = size_key(row, family);
        int *field = (int *)((char *)c + row->offset);
        bool inner = family == KH_FAMILY_GPT2 && field == &c->inner; /* null: four times H */
        int rc = inner ? kh_json_int_opt(root, key, 1, row->max, field, name, err)
                       : kh_json_int(root, key, 1, row->max, field, name, err);
        if (rc != 0)
            return rc;
        if (inner && *field == 0)
            *field = 4 * c->hidden;
    }
    c->pad = -1;
    if (c->arch->causal)
        return 0;
    bool typed = family != KH_FAMILY_DISTILBERT && family != KH_FAMILY_MODERNBERT;
    c->types = typed ? 2 : 0;
    c->pad = family == KH_FAMILY_ROBERTA ? 1 : 0;
    int rc = kh_json_int_opt(root, "pad_token_id", 0, (1 << 24) - 1, &c->pad, name, err);
    if (rc == 0 && typed)
        rc = kh_json_int_opt(root, "type_vocab_size", 1, 1 << 10, &c->types, name, err);
    kh_config_set_pad(c, c->pad);
    return rc;
}

/* ELECTRA and ALBERT: embeddings of a width of their own. ALBERT may have groups of layers; only
 * one of one layer, which is all of them, is computed. */
static int read_factored(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    int groups = 1, inner = 1;
    if (c->arch->family != KH_FAMILY_ELECTRA && c->arch->family != KH_FAMILY_ALBERT)
        return 0;
    int rc = kh_json_int(root, "embedding_size", 1, 1 << 16, &c->embed, name, err);
    if (rc == 0)
        rc = kh_json_int_opt(root, "num_hidden_groups", 1, 1024, &groups, name, err);
    if (rc == 0)
        rc = kh_json_int_opt(root, "inner_group_num", 1, 1024, &inner, name, err);
    if (rc == 0 && c->arch->family == KH_FAMILY_ALBERT && (groups != 1 || inner != 1))
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"num_hidden_groups\" is %d and \"inner_group_num\" %d; only 1 and 1 are computed",
            name, groups, inner);
    return rc;
}

/* The activation that a config without one means. */
static const char *usual_act(const kh_config *c) {
    switch (c->arch->family) {
    case KH_FAMILY_GPT2:
    case KH_FAMILY_ALBERT: return "gelu_new";
    case KH_FAMILY_LLAMA: return "silu";
    case KH_FAMILY_GEMMA3: return "gelu_pytorch_tanh";
    default: return "gelu";
    }
}

/* The activation that a key names, or `usual`. */
static int read_act(const json_t *root, const char *key, const char *usual, kh_act *out,
    const char *name, kh_err *err) {
    const char *act = usual;
    int rc = kh_json_string_opt(root, key, &act, name, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < N_ACTS; i++)
        if (strcmp(act_table[i].name, act) == 0) {
            *out = act_table[i].act;
            return 0;
        }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"%s\" is \"%.60s\"; gelu, gelu_new, gelu_pytorch_tanh, relu and silu are computed",
        name, key, act);
}

static int read_acts(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    kh_family family = c->arch->family;
    int rc = read_act(root, act_key(c), usual_act(c), &c->act, name, err);
    bool fixed = family == KH_FAMILY_ROBERTA || family == KH_FAMILY_ELECTRA;
    c->head_act = fixed ? KH_ACT_GELU : c->act;
    if (rc == 0 && family == KH_FAMILY_MODERNBERT)
        rc = read_act(root, "classifier_activation", "gelu", &c->head_act, name, err);
    return rc;
}

static double usual_eps(const kh_config *c) {
    if (c->arch->family == KH_FAMILY_GPT2 || c->arch->family == KH_FAMILY_MODERNBERT)
        return 1e-5;
    return c->arch->norm == KH_NORM_LAYER ? 1e-12 : 1e-6; /* RoBERTa's configs say 1e-05 */
}

static int read_rest(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const char *key = eps_key(c);
    c->eps = usual_eps(c);
    int rc = c->arch->family == KH_FAMILY_DISTILBERT
        ? 0
        : kh_json_number_opt(root, key, &c->eps, name, err);
    if (rc != 0)
        return rc;
    if (c->eps <= 0 || c->eps > 1)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is %g, expected a number above 0 and at most 1",
            name, key, c->eps);
    c->tied = c->arch->family != KH_FAMILY_LLAMA;
    return kh_json_bool_opt(root, "tie_word_embeddings", &c->tied, name, err);
}

/* A number that must be above 0. */
static int read_positive(
    const json_t *obj, const char *key, double *out, bool needed, const char *place, kh_err *err) {
    int rc = needed ? kh_json_number(obj, key, out, place, err)
                    : kh_json_number_opt(obj, key, out, place, err);
    if (rc == 0 && !(*out > 0))
        rc = kh_fail(
            err, KH_EFORMAT, "%s: \"%s\" is %g, expected a number above 0", place, key, *out);
    return rc;
}

/* An object that says how frequencies are changed; older configs say "type" for "rope_type". */
static int read_scaling(kh_rope *r, const json_t *o, const char *place, kh_err *err) {
    const char *kind = "default";
    int rc = kh_json_string_opt(o, "type", &kind, place, err);
    if (rc == 0)
        rc = kh_json_string_opt(o, "rope_type", &kind, place, err);
    if (rc != 0 || strcmp(kind, "default") == 0)
        return rc;
    bool llama3 = strcmp(kind, "llama3") == 0;
    if (!llama3 && strcmp(kind, "linear") != 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: rotary positions of type \"%.60s\" are not computed; default, linear and llama3 "
            "are",
            place, kind);
    r->kind = llama3 ? KH_ROPE_LLAMA3 : KH_ROPE_LINEAR;
    rc = read_positive(o, "factor", &r->factor, true, place, err);
    if (rc != 0 || !llama3)
        return rc;
    if ((rc = read_positive(o, "low_freq_factor", &r->low, true, place, err)) != 0 ||
        (rc = read_positive(o, "high_freq_factor", &r->high, true, place, err)) != 0 ||
        (rc = read_positive(
             o, "original_max_position_embeddings", &r->original, true, place, err)) != 0)
        return rc;
    return r->high > r->low
        ? 0
        : kh_fail(err, KH_EFORMAT,
              "%s: \"high_freq_factor\" is %g and must be above \"low_freq_factor\", which is %g",
              place, r->high, r->low);
}

/* "rope_theta" and "rope_scaling", or one object "rope_parameters" with both. */
static int read_rope(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    static const char *const KEYS[] = { "rope_scaling", "rope_parameters" };
    kh_rope *r = &c->rope;
    bool gemma = c->arch->family == KH_FAMILY_GEMMA3,
         modern = c->arch->family == KH_FAMILY_MODERNBERT;
    r->theta = 1e4;
    if (gemma || modern) {
        r->theta = gemma ? 1e6 : 160000;
        r->local_theta = 1e4;
    }
    int rc = read_positive(
        root, modern ? "global_rope_theta" : "rope_theta", &r->theta, false, name, err);
    if (rc == 0 && (gemma || modern))
        rc = read_positive(root, modern ? "local_rope_theta" : "rope_local_base_freq",
            &r->local_theta, false, name, err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        const json_t *o = json_object_get(root, KEYS[i]);
        char place[512];
        snprintf(place, sizeof place, "%s: \"%s\"", name, KEYS[i]);
        if (!o || json_is_null(o))
            continue;
        if (!json_is_object(o))
            return kh_fail(err, KH_EFORMAT, "%s must be an object", place);
        if (json_is_object(json_object_get(o, "full_attention")))
            return kh_fail(err, KH_EUNSUPPORTED,
                "%s: settings for each kind of layer are not read; write \"rope_theta\" and "
                "\"rope_local_base_freq\"",
                place);
        rc = read_positive(o, "rope_theta", &r->theta, false, place, err);
        if (rc == 0)
            rc = read_scaling(r, o, place, err);
    }
    return rc;
}

/* A list of what every layer is, if there is one, must say what the other keys say. */
static int check_layer_types(
    const kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const json_t *list = json_object_get(root, "layer_types");
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->layers)
        return kh_fail(
            err, KH_EFORMAT, "%s: \"layer_types\" must be a list of %d names", name, c->layers);
    for (int l = 0; l < c->layers; l++) {
        const char *have = json_string_value(json_array_get(list, (size_t)l));
        const char *want = kh_config_window(c, l) > 0 ? "sliding_attention" : "full_attention";
        if (!have || strcmp(have, want) != 0)
            return kh_fail(err, KH_EUNSUPPORTED,
                "%s: \"layer_types\" calls layer %d \"%.40s\", the other keys make it \"%s\"", name,
                l, have ? have : "?", want);
    }
    return 0;
}

/* ModernBERT: every so-manieth layer sees all, from the first on, the others half of
 * "local_attention" to each side. */
static int read_local(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    int local = 128;
    c->window_every = 3;
    int rc = kh_json_int_opt(root, "local_attention", 1, 1 << 28, &local, name, err);
    if (rc == 0)
        rc = kh_json_int_opt(
            root, "global_attn_every_n_layers", 1, 1024, &c->window_every, name, err);
    c->window = local / 2 * 2 + 1;
    return rc ? rc : check_layer_types(c, root, name, err);
}

/* Which layers see only so far back: Mistral's all, Qwen's from one on, Gemma's all but each sixth.
 */
static int read_window(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    bool qwen = strncmp(c->arch->type, "qwen", 4) == 0, used = !qwen;
    bool gemma = c->arch->family == KH_FAMILY_GEMMA3;
    int rc = 0;
    if (strcmp(c->arch->type, "llama") == 0)
        return 0;
    if (c->arch->family == KH_FAMILY_MODERNBERT)
        return read_local(c, root, name, err);
    if (qwen)
        rc = kh_json_bool_opt(root, "use_sliding_window", &used, name, err);
    if (used && !json_object_get(root, "sliding_window"))
        c->window = 4096; /* what these types mean by silence; null is none */
    if (rc == 0 && used)
        rc = kh_json_int_opt(root, "sliding_window", 1, 1 << 30, &c->window, name, err);
    if (rc == 0 && used && qwen)
        rc = kh_json_int(root, "max_window_layers", 0, 1024, &c->window_first, name, err);
    if (rc == 0 && gemma) {
        c->window_every = 6;
        rc = kh_json_int_opt(root, "_sliding_window_pattern", 1, 1024, &c->window_every, name, err);
        if (rc == 0)
            rc = kh_json_int_opt(
                root, "sliding_window_pattern", 1, 1024, &c->window_every, name, err);
    }
    return rc ? rc : check_layer_types(c, root, name, err);
}

/* What models with rotary positions have beyond sizes. */
static int read_rotary(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    bool gemma = c->arch->family == KH_FAMILY_GEMMA3, bias = false, mlp = false;
    c->kv_heads = c->heads;
    int rc = gemma
        ? kh_json_int(root, "num_key_value_heads", 1, 1 << 12, &c->kv_heads, name, err)
        : kh_json_int_opt(root, "num_key_value_heads", 1, 1 << 12, &c->kv_heads, name, err);
    if (gemma)
        c->head_width = 256;
    if (rc == 0)
        rc = kh_json_int_opt(root, "head_dim", 1, 1 << 12, &c->head_width, name, err);
    if (rc == 0 && gemma) {
        c->query_scale = 256;
        rc = read_positive(root, "query_pre_attn_scalar", &c->query_scale, false, name, err);
    }
    if (rc == 0 && strcmp(c->arch->type, "qwen2") != 0) /* where they are a matter of the type */
        rc = kh_json_bool_opt(root, "attention_bias", &bias, name, err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "mlp_bias", &mlp, name, err);
    c->bias = (bias ? KH_BIAS_QKV | KH_BIAS_OUT : 0U) | (mlp ? (unsigned)KH_BIAS_MLP : 0U);
    if (rc == 0)
        rc = read_rope(c, root, name, err);
    return rc ? rc : read_window(c, root, name, err);
}

/* ----------------------------------------------------------------------------- refusing */

/* A flag that would change what is computed, and the value with which it does not. */
static int refuse_flag(
    const json_t *root, const char *key, bool harmless, const char *name, kh_err *err) {
    bool value = harmless;
    int rc = kh_json_bool_opt(root, key, &value, name, err);
    if (rc == 0 && value != harmless)
        rc = kh_fail(err, KH_EUNSUPPORTED, "%s: \"%s\" is %s, which is not computed", name, key,
            value ? "true" : "false");
    return rc;
}

/* A number that would change what is computed unless it is null or `harmless`. */
static int refuse_number(
    const json_t *root, const char *key, double harmless, const char *name, kh_err *err) {
    double value = harmless;
    int rc = kh_json_number_opt(root, key, &value, name, err);
    if (rc == 0 && !(value >= harmless && value <= harmless))
        rc = kh_fail(
            err, KH_EUNSUPPORTED, "%s: \"%s\" is %g, which is not computed", name, key, value);
    return rc;
}

static int refuse_in_modernbert(const json_t *root, const char *name, kh_err *err) {
    int rc = refuse_flag(root, "norm_bias", false, name, err);
    if (rc == 0)
        rc = refuse_flag(root, "classifier_bias", false, name, err);
    return rc ? rc : refuse_flag(root, "decoder_bias", true, name, err);
}

static int refuse_in_decoder(const json_t *root, const char *name, kh_err *err) {
    static const struct {
        const char *key;
        bool harmless;
    } flag[] = { { "scale_attn_weights", true }, { "scale_attn_by_inverse_layer_idx", false },
        { "add_cross_attention", false }, { "use_bidirectional_attention", false } };
    static const struct {
        const char *key;
        double harmless;
    } number[] = { { "partial_rotary_factor", 1 }, { "attn_logit_softcapping", 0 },
        { "final_logit_softcapping", 0 }, { "logit_scale", 1 }, { "embedding_multiplier", 1 } };
    int rc = 0;
    for (size_t i = 0; i < sizeof flag / sizeof *flag && rc == 0; i++)
        rc = refuse_flag(root, flag[i].key, flag[i].harmless, name, err);
    for (size_t i = 0; i < sizeof number / sizeof *number && rc == 0; i++)
        rc = refuse_number(root, number[i].key, number[i].harmless, name, err);
    return rc;
}

/* What would be computed differently if we just went on. */
static int refuse_unknown(const kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const char *positions = "absolute";
    bool decoder = false;
    int rc = kh_json_string_opt(root, "position_embedding_type", &positions, name, err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "is_decoder", &decoder, name, err);
    if (rc == 0 && c->arch->causal)
        rc = refuse_in_decoder(root, name, err);
    if (rc == 0 && c->arch->lean)
        rc = refuse_in_modernbert(root, name, err);
    if (rc != 0)
        return rc;
    if (strcmp(positions, "absolute") != 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"position_embedding_type\" is \"%.60s\"; only absolute positions are computed",
            name, positions);
    if (decoder && !c->arch->causal)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"is_decoder\" is true; models of type %s are read as encoders", name,
            c->arch->type);
    if (json_is_object(json_object_get(root, "quantization_config")))
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: the weights are quantised (\"quantization_config\"); give the F32, F16 or BF16 "
            "model",
            name);
    return 0;
}

/* Heads of queries, keys and values. */
static int check_heads(const kh_config *c, const char *place, kh_err *err) {
    if (c->head_width == 0 && c->hidden % c->heads != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: a hidden size of %d cannot be divided among %d attention heads", place, c->hidden,
            c->heads);
    if (c->heads % kh_config_kv_heads(c) != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: %d attention heads cannot share %d heads of keys and values", place, c->heads,
            c->kv_heads);
    if (c->arch->position == KH_POSITION_ROTARY && kh_config_head_width(c) % 2 != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: heads of %d numbers have no rotary positions; the number must be even", place,
            kh_config_head_width(c));
    if (kh_config_q_width(c) > 1 << 17)
        return kh_fail(err, KH_EFORMAT, "%s: %d heads of %d numbers are too many", place, c->heads,
            kh_config_head_width(c));
    return 0;
}

/* ---------------------------------------------------------------------------------- seen tasks */

bool kh_name_is_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; *at;) {
        const char *end = at + strcspn(at, ",");
        if ((size_t)(end - at) == n && memcmp(at, name, n) == 0)
            return true;
        at = end + (*end == ',');
    }
    return false;
}

int kh_config_add_seen(kh_config *c, const char *task, kh_err *err) {
    size_t used = strlen(c->seen_tasks);
    if (kh_name_is_listed(c->seen_tasks, task))
        return 0;
    if (!*task || strchr(task, ',') || used + strlen(task) + 2 > KH_SEEN_MAX)
        return kh_fail(err, KH_ELIMIT,
            "\"seen_tasks\" cannot hold \"%.80s\": names have no comma, and all of them %d bytes",
            task, (int)KH_SEEN_MAX);
    snprintf(c->seen_tasks + used, KH_SEEN_MAX - used, "%s%s", used ? "," : "", task);
    return 0;
}

static int read_seen(kh_config *c, const json_t *root, const char *name, kh_err *err) {
    const json_t *list = json_object_get(root, "seen_tasks");
    if (list && !json_is_array(list))
        return kh_fail(
            err, KH_EFORMAT, "%s: \"seen_tasks\" must be a list of names of tasks", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *task = json_string_value(json_array_get(list, i));
        int rc = kh_config_add_seen(c, task ? task : "", err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static const char LINE[] = "\n  "; /* each key of config.json has its own */

static void put_seen(const kh_config *c, kh_json_out *j) {
    if (!*c->seen_tasks)
        return;
    kh_json_gap(j, LINE);
    kh_json_open_array(j, "seen_tasks");
    for (const char *at = c->seen_tasks; *at;) {
        const char *end = at + strcspn(at, ",");
        kh_json_put_text(j, NULL, at, (size_t)(end - at));
        at = end + (*end == ',');
    }
    kh_json_close(j);
}

int kh_config_check(const kh_config *c, const char *place, kh_err *err) {
    for (int i = 0; i < N_SIZES; i++) {
        int value = *(const int *)((const char *)c + size_table[i].offset);
        if (value < 1 || value > size_table[i].max)
            return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a whole number from 1 to %d", place,
                size_key(&size_table[i], c->arch->family), size_table[i].max);
    }
    int rc = check_heads(c, place, err);
    if (rc != 0)
        return rc;
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
        (rc = read_sizes(c, root, name, err)) == 0 &&
        (rc = read_factored(c, root, name, err)) == 0 &&
        (rc = read_acts(c, root, name, err)) == 0 && (rc = read_rest(c, root, name, err)) == 0 &&
        (rc = refuse_unknown(c, root, name, err)) == 0 &&
        (rc = read_seen(c, root, name, err)) == 0 &&
        (c->arch->position != KH_POSITION_ROTARY || (rc = read_rotary(c, root, name, err)) == 0))
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

/* ----------------------------------------------------------------------------- writing */

static const char *act_name(kh_act act) {
    int i = 0;
    while (act_table[i].act != act)
        i++;
    return act_table[i].name;
}

static void put_int(kh_json_out *j, const char *key, int x) {
    kh_json_gap(j, LINE);
    kh_json_put_int(j, key, x);
}

static void put_real(kh_json_out *j, const char *key, double x) {
    kh_json_gap(j, LINE);
    kh_json_put_number(j, key, x, 17);
}

static void put_flag(kh_json_out *j, const char *key, bool x) {
    kh_json_gap(j, LINE);
    kh_json_put_bool(j, key, x);
}

static void put_word(kh_json_out *j, const char *key, const char *x) {
    kh_json_gap(j, LINE);
    kh_json_put_string(j, key, x);
}

static void put_scaling(kh_json_out *j, const kh_rope *r) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "rope_scaling");
    kh_json_gap(j, " ");
    kh_json_put_string(j, "rope_type", r->kind == KH_ROPE_LINEAR ? "linear" : "llama3");
    kh_json_put_number(j, "factor", r->factor, 17);
    if (r->kind == KH_ROPE_LLAMA3) {
        kh_json_put_number(j, "low_freq_factor", r->low, 17);
        kh_json_put_number(j, "high_freq_factor", r->high, 17);
        kh_json_put_number(j, "original_max_position_embeddings", r->original, 17);
    }
    kh_json_gap(j, " ");
    kh_json_close(j);
}

static void put_modernbert(const kh_config *c, kh_json_out *j) {
    put_real(j, "global_rope_theta", c->rope.theta);
    put_real(j, "local_rope_theta", c->rope.local_theta);
    put_int(j, "local_attention", c->window - 1);
    put_int(j, "global_attn_every_n_layers", c->window_every);
    put_word(j, "classifier_activation", act_name(c->head_act));
    put_flag(j, "attention_bias", c->bias & KH_BIAS_QKV);
    put_flag(j, "mlp_bias", c->bias & KH_BIAS_MLP);
}

static void put_rotary(const kh_config *c, kh_json_out *j) {
    const kh_rope *r = &c->rope;
    if (c->arch->family == KH_FAMILY_MODERNBERT) {
        put_modernbert(c, j);
        return;
    }
    put_int(j, "num_key_value_heads", kh_config_kv_heads(c));
    put_int(j, "head_dim", kh_config_head_width(c));
    put_real(j, "rope_theta", r->theta);
    if (r->kind != KH_ROPE_PLAIN)
        put_scaling(j, r);
    if (c->bias & KH_BIAS_QKV)
        put_flag(j, "attention_bias", true);
    if (c->bias & KH_BIAS_MLP)
        put_flag(j, "mlp_bias", true);
    if (c->window > 0)
        put_int(j, "sliding_window", c->window);
    else if (c->arch->family == KH_FAMILY_GEMMA3 || strcmp(c->arch->type, "mistral") == 0)
        put_word(j, "sliding_window", NULL); /* silence would mean a window */
    if (c->window > 0 && strncmp(c->arch->type, "qwen", 4) == 0) {
        put_flag(j, "use_sliding_window", true);
        put_int(j, "max_window_layers", c->window_first);
    }
    if (c->arch->family == KH_FAMILY_GEMMA3) {
        put_int(j, "sliding_window_pattern", c->window_every);
        put_real(j, "rope_local_base_freq", r->local_theta);
        put_real(j, "query_pre_attn_scalar", c->query_scale);
    }
}

static void put_class(kh_json_out *j, const char *class) {
    kh_json_gap(j, LINE);
    kh_json_open_array(j, "architectures");
    kh_json_gap(j, "\n    ");
    kh_json_put_string(j, NULL, class);
    kh_json_gap(j, LINE);
    kh_json_close(j);
}

/* Keys in the order in which Hugging Face's own files have them, one a line. */
void kh_config_put(const kh_config *c, kh_dtype dtype, kh_buf *out) {
    static const char *const torch_name[] = { "float32", "float32", "float16", "bfloat16" };
    const kh_architecture *a = c->arch;
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    put_class(&j, a->class);
    put_word(&j, "model_type", a->type);
    for (int i = 0; i < N_SIZES; i++)
        put_int(&j, size_key(&size_table[i], a->family),
            *(const int *)((const char *)c + size_table[i].offset));
    put_word(&j, act_key(c), act_name(c->act));
    if (c->embed > 0)
        put_int(&j, "embedding_size", c->embed);
    if (c->types > 0)
        put_int(&j, "type_vocab_size", c->types);
    if (a->family != KH_FAMILY_DISTILBERT) {
        kh_json_gap(&j, LINE);
        kh_json_put_number(&j, eps_key(c), c->eps, 15); /* 1e-12, not 9.9999999999999998e-13 */
    }
    if (a->position == KH_POSITION_ROTARY)
        put_rotary(c, &j);
    if (c->pad >= 0)
        put_int(&j, "pad_token_id", c->pad);
    put_seen(c, &j);
    put_flag(&j, "tie_word_embeddings", c->tied);
    put_word(&j, "torch_dtype", torch_name[dtype <= KH_DTYPE_BF16 ? dtype : KH_DTYPE_ANY]);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* ---------------------------------------------------------------------- what follows from it */

double kh_config_attention_scale(const kh_config *c) {
    return 1 / sqrt(c->query_scale > 0 ? c->query_scale : kh_config_head_width(c));
}

/* Of so many layers it is the last that sees all in Gemma, and the first in ModernBERT. */
int kh_config_window(const kh_config *c, int layer) {
    int number = c->arch->causal ? layer + 1 : layer;
    bool whole = layer < c->window_first || (c->window_every > 0 && number % c->window_every == 0);
    return whole ? 0 : c->window;
}

float kh_config_word_scale(const kh_config *c) {
    return c->arch->scaled_words ? (float)sqrt(c->hidden) : 1;
}

/* Llama 3: a frequency that turns less than `low` times within the first length is divided by the
 * factor, one that turns more than `high` times stays, those between are mixed. */
static double change_frequency(const kh_rope *r, double f) {
    double turns = r->original * f / 6.283185307179586477, smooth;
    switch (r->kind) {
    case KH_ROPE_PLAIN: return f;
    case KH_ROPE_LINEAR: return f / r->factor;
    case KH_ROPE_LLAMA3: break;
    }
    if (turns < r->low)
        return f / r->factor;
    if (turns > r->high)
        return f;
    smooth = (turns - r->low) / (r->high - r->low);
    return (1 - smooth) * f / r->factor + smooth * f;
}

void kh_config_frequencies(const kh_config *c, int layer, double *out) {
    int width = kh_config_head_width(c);
    bool local = c->rope.local_theta > 0 && kh_config_window(c, layer) > 0;
    for (int i = 0; i < width / 2; i++) {
        double f = pow(local ? c->rope.local_theta : c->rope.theta, -2.0 * i / width);
        out[i] = local ? f : change_frequency(&c->rope, f);
    }
}
