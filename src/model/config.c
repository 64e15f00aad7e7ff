/* config.c - config.json into kh_config; see config.h.
 *
 * Tables say what is read: the whole numbers with their keys and ranges, and the names of
 * activations; architecture.h has the model types. Keys that change what is computed but are not
 * supported (relative positions, soft caps, quantisation, ...) are looked for and refused; all
 * other keys are none of our business. */
#include "model/config.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json_in.h"
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

/* All of it by the sticky reader of base/json_in.h: what is refused first is what is told. */

static void read_type(kh_config *c, kh_json_in *in, const json_t *root) {
    const char *type = kh_json_get_string(in, root, "model_type");
    c->arch = kh_architecture_find(type);
    if (c->arch)
        return;
    char known[512] = "";
    for (const kh_architecture *a = kh_architecture_table; a->type; a++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", a->type);
    }
    kh_json_refuse(in, KH_EUNSUPPORTED, "\"model_type\" is \"%.60s\"; models of type %s are read",
        type, known);
}

static void read_sizes(kh_config *c, kh_json_in *in, const json_t *root) {
    kh_family family = c->arch->family;
    for (int i = 0; i < N_SIZES; i++) {
        const struct size_row *row = &size_table[i];
        const char *key = size_key(row, family);
        int *field = (int *)((char *)c + row->offset);
        if (family == KH_FAMILY_GPT2 && field == &c->inner) /* null: four times H */
            *field = kh_json_int_or(in, root, key, 1, row->max, 4 * c->hidden);
        else
            *field = kh_json_get_int(in, root, key, 1, row->max);
    }
    c->pad = -1;
    if (c->arch->causal)
        return;
    bool typed = family != KH_FAMILY_DISTILBERT && family != KH_FAMILY_MODERNBERT;
    c->pad = kh_json_int_or(
        in, root, "pad_token_id", 0, (1 << 24) - 1, family == KH_FAMILY_ROBERTA ? 1 : 0);
    c->types = typed ? kh_json_int_or(in, root, "type_vocab_size", 1, 1 << 10, 2) : 0;
    kh_config_set_pad(c, c->pad);
}

/* ELECTRA and ALBERT: embeddings of a width of their own. ALBERT may have groups of layers; only
 * one of one layer, which is all of them, is computed. */
static void read_factored(kh_config *c, kh_json_in *in, const json_t *root) {
    if (c->arch->family != KH_FAMILY_ELECTRA && c->arch->family != KH_FAMILY_ALBERT)
        return;
    c->embed = kh_json_get_int(in, root, "embedding_size", 1, 1 << 16);
    int groups = kh_json_int_or(in, root, "num_hidden_groups", 1, 1024, 1);
    int inner = kh_json_int_or(in, root, "inner_group_num", 1, 1024, 1);
    if (c->arch->family == KH_FAMILY_ALBERT && (groups != 1 || inner != 1))
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "\"num_hidden_groups\" is %d and \"inner_group_num\" %d; only 1 and 1 are computed",
            groups, inner);
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
static kh_act read_act(kh_json_in *in, const json_t *root, const char *key, const char *usual) {
    const char *act = kh_json_string_or(in, root, key, usual);
    for (int i = 0; i < N_ACTS; i++)
        if (strcmp(act_table[i].name, act) == 0)
            return act_table[i].act;
    kh_json_refuse(in, KH_EUNSUPPORTED,
        "\"%s\" is \"%.60s\"; gelu, gelu_new, gelu_pytorch_tanh, relu and silu are computed", key,
        act);
    return KH_ACT_GELU;
}

static void read_acts(kh_config *c, kh_json_in *in, const json_t *root) {
    kh_family family = c->arch->family;
    c->act = read_act(in, root, act_key(c), usual_act(c));
    bool fixed = family == KH_FAMILY_ROBERTA || family == KH_FAMILY_ELECTRA;
    c->head_act = fixed ? KH_ACT_GELU : c->act;
    if (family == KH_FAMILY_MODERNBERT)
        c->head_act = read_act(in, root, "classifier_activation", "gelu");
}

static double usual_eps(const kh_config *c) {
    if (c->arch->family == KH_FAMILY_GPT2 || c->arch->family == KH_FAMILY_MODERNBERT)
        return 1e-5;
    return c->arch->norm == KH_NORM_LAYER ? 1e-12 : 1e-6; /* RoBERTa's configs say 1e-05 */
}

static void read_rest(kh_config *c, kh_json_in *in, const json_t *root) {
    const char *key = eps_key(c);
    c->eps = usual_eps(c);
    if (c->arch->family != KH_FAMILY_DISTILBERT)
        c->eps = kh_json_number_or(in, root, key, c->eps);
    if (c->eps <= 0 || c->eps > 1)
        kh_json_refuse(
            in, KH_EFORMAT, "\"%s\" is %g, expected a number above 0 and at most 1", key, c->eps);
    c->tied = kh_json_bool_or(in, root, "tie_word_embeddings", c->arch->family != KH_FAMILY_LLAMA);
}

static double positive(kh_json_in *in, const char *key, double x) {
    if (!(x > 0))
        kh_json_refuse(in, KH_EFORMAT, "\"%s\" is %g, expected a number above 0", key, x);
    return x;
}

/* Numbers that must be above 0: one that must be there, and one that need not. */
static double get_positive(kh_json_in *in, const json_t *obj, const char *key) {
    return positive(in, key, kh_json_get_number(in, obj, key));
}

static double positive_or(kh_json_in *in, const json_t *obj, const char *key, double other) {
    return positive(in, key, kh_json_number_or(in, obj, key, other));
}

/* An object that says how frequencies are changed; older configs say "type" for "rope_type". */
static void read_scaling(kh_rope *r, kh_json_in *in, const json_t *o) {
    const char *kind = kh_json_string_or(in, o, "type", "default");
    kind = kh_json_string_or(in, o, "rope_type", kind);
    if (in->rc != 0 || strcmp(kind, "default") == 0)
        return;
    bool llama3 = strcmp(kind, "llama3") == 0;
    if (!llama3 && strcmp(kind, "linear") != 0)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "rotary positions of type \"%.60s\" are not computed; default, linear and llama3 are",
            kind);
    r->kind = llama3 ? KH_ROPE_LLAMA3 : KH_ROPE_LINEAR;
    r->factor = get_positive(in, o, "factor");
    if (!llama3)
        return;
    r->low = get_positive(in, o, "low_freq_factor");
    r->high = get_positive(in, o, "high_freq_factor");
    r->original = get_positive(in, o, "original_max_position_embeddings");
    if (!(r->high > r->low))
        kh_json_refuse(in, KH_EFORMAT,
            "\"high_freq_factor\" is %g and must be above \"low_freq_factor\", which is %g",
            r->high, r->low);
}

/* "rope_theta" and "rope_scaling", or one object "rope_parameters" with both. */
static void read_rope(kh_config *c, kh_json_in *in, const json_t *root) {
    static const char *const KEYS[] = { "rope_scaling", "rope_parameters" };
    kh_rope *r = &c->rope;
    kh_family family = c->arch->family;
    if (family == KH_FAMILY_MODERNBERT) {
        r->theta = positive_or(in, root, "global_rope_theta", 160000);
        r->local_theta = positive_or(in, root, "local_rope_theta", 1e4);
    } else
        r->theta = positive_or(in, root, "rope_theta", family == KH_FAMILY_GEMMA3 ? 1e6 : 1e4);
    if (family == KH_FAMILY_GEMMA3)
        r->local_theta = positive_or(in, root, "rope_local_base_freq", 1e4);
    for (int i = 0; i < 2 && in->rc == 0; i++) {
        const json_t *o = json_object_get(root, KEYS[i]);
        char place[512];
        snprintf(place, sizeof place, "%s: \"%s\"", in->name, KEYS[i]);
        if (!o || json_is_null(o))
            continue;
        kh_json_in within = { .name = place, .err = in->err };
        if (!json_is_object(o))
            within.rc = kh_fail(in->err, KH_EFORMAT, "%s must be an object", place);
        if (json_is_object(json_object_get(o, "full_attention")))
            kh_json_refuse(&within, KH_EUNSUPPORTED,
                "settings for each kind of layer are not read; write \"rope_theta\" and "
                "\"rope_local_base_freq\"");
        r->theta = positive_or(&within, o, "rope_theta", r->theta);
        read_scaling(r, &within, o);
        in->rc = within.rc;
    }
}

/* A list of what every layer is, if there is one, must say what the other keys say. */
static void check_layer_types(const kh_config *c, kh_json_in *in, const json_t *root) {
    const json_t *list = json_object_get(root, "layer_types");
    if (!list || json_is_null(list))
        return;
    if (!json_is_array(list) || json_array_size(list) != (size_t)c->layers)
        kh_json_refuse(in, KH_EFORMAT, "\"layer_types\" must be a list of %d names", c->layers);
    for (int l = 0; l < c->layers && in->rc == 0; l++) {
        const char *have = json_string_value(json_array_get(list, (size_t)l));
        const char *want = kh_config_window(c, l) > 0 ? "sliding_attention" : "full_attention";
        if (!have || strcmp(have, want) != 0)
            kh_json_refuse(in, KH_EUNSUPPORTED,
                "\"layer_types\" calls layer %d \"%.40s\", the other keys make it \"%s\"", l,
                have ? have : "?", want);
    }
}

/* ModernBERT: every so-manieth layer sees all, from the first on, the others half of
 * "local_attention" to each side. */
static void read_local(kh_config *c, kh_json_in *in, const json_t *root) {
    int local = kh_json_int_or(in, root, "local_attention", 1, 1 << 28, 128);
    c->window_every = kh_json_int_or(in, root, "global_attn_every_n_layers", 1, 1024, 3);
    c->window = local / 2 * 2 + 1;
}

/* Which layers see only so far back: Mistral's all, Qwen's from one on, Gemma's all but each sixth.
 */
static void read_window(kh_config *c, kh_json_in *in, const json_t *root) {
    bool qwen = strncmp(c->arch->type, "qwen", 4) == 0;
    if (strcmp(c->arch->type, "llama") == 0)
        return;
    bool used = qwen ? kh_json_bool_or(in, root, "use_sliding_window", false) : true;
    if (c->arch->family == KH_FAMILY_MODERNBERT)
        read_local(c, in, root);
    else if (used) {
        bool silent = !json_object_get(root, "sliding_window");
        c->window = silent ? 4096 : 0; /* what these types mean by silence; null is none */
        c->window = kh_json_int_or(in, root, "sliding_window", 1, 1 << 30, c->window);
    }
    if (used && qwen)
        c->window_first = kh_json_get_int(in, root, "max_window_layers", 0, 1024);
    if (c->arch->family == KH_FAMILY_GEMMA3) { /* of two spellings the public one counts */
        int every = kh_json_int_or(in, root, "_sliding_window_pattern", 1, 1024, 6);
        c->window_every = kh_json_int_or(in, root, "sliding_window_pattern", 1, 1024, every);
    }
    check_layer_types(c, in, root);
}

/* What models with rotary positions have beyond sizes. */
static void read_rotary(kh_config *c, kh_json_in *in, const json_t *root) {
    static const char HEADS[] = "num_key_value_heads";
    bool gemma = c->arch->family == KH_FAMILY_GEMMA3;
    if (gemma)
        c->kv_heads = kh_json_get_int(in, root, HEADS, 1, 1 << 12);
    else
        c->kv_heads = kh_json_int_or(in, root, HEADS, 1, 1 << 12, c->heads);
    c->head_width = kh_json_int_or(in, root, "head_dim", 1, 1 << 12, gemma ? 256 : 0);
    if (gemma)
        c->query_scale = positive_or(in, root, "query_pre_attn_scalar", 256);
    bool by_type = strcmp(c->arch->type, "qwen2") == 0; /* its biases are a matter of the type */
    bool bias = by_type ? false : kh_json_bool_or(in, root, "attention_bias", false);
    bool mlp = kh_json_bool_or(in, root, "mlp_bias", false);
    c->bias = (bias ? KH_BIAS_QKV | KH_BIAS_OUT : 0U) | (mlp ? (unsigned)KH_BIAS_MLP : 0U);
    read_rope(c, in, root);
    read_window(c, in, root);
}

/* ----------------------------------------------------------------------------- refusing */

/* A flag that would change what is computed, and the value with which it does not. */
static void refuse_flag(kh_json_in *in, const json_t *root, const char *key, bool harmless) {
    bool value = kh_json_bool_or(in, root, key, harmless);
    if (value != harmless)
        kh_json_refuse(in, KH_EUNSUPPORTED, "\"%s\" is %s, which is not computed", key,
            value ? "true" : "false");
}

/* A number that would change what is computed unless it is null or `harmless`. */
static void refuse_number(kh_json_in *in, const json_t *root, const char *key, double harmless) {
    double value = kh_json_number_or(in, root, key, harmless);
    if (!(value >= harmless && value <= harmless))
        kh_json_refuse(in, KH_EUNSUPPORTED, "\"%s\" is %g, which is not computed", key, value);
}

static void refuse_in_modernbert(kh_json_in *in, const json_t *root) {
    refuse_flag(in, root, "norm_bias", false);
    refuse_flag(in, root, "classifier_bias", false);
    refuse_flag(in, root, "decoder_bias", true);
}

static void refuse_in_decoder(kh_json_in *in, const json_t *root) {
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
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        refuse_flag(in, root, flag[i].key, flag[i].harmless);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        refuse_number(in, root, number[i].key, number[i].harmless);
}

/* What would be computed differently if we just went on. */
static void refuse_unknown(const kh_config *c, kh_json_in *in, const json_t *root) {
    const char *positions = kh_json_string_or(in, root, "position_embedding_type", "absolute");
    bool decoder = kh_json_bool_or(in, root, "is_decoder", false);
    if (c->arch->causal)
        refuse_in_decoder(in, root);
    if (c->arch->lean)
        refuse_in_modernbert(in, root);
    if (strcmp(positions, "absolute") != 0)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "\"position_embedding_type\" is \"%.60s\"; only absolute positions are computed",
            positions);
    if (decoder && !c->arch->causal)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "\"is_decoder\" is true; models of type %s are read as encoders", c->arch->type);
    if (json_is_object(json_object_get(root, "quantization_config")))
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "the weights are quantised (\"quantization_config\"); give the F32, F16 or BF16 model");
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

static void read_seen(kh_config *c, kh_json_in *in, const json_t *root) {
    const json_t *list = json_object_get(root, "seen_tasks");
    if (list && !json_is_array(list))
        kh_json_refuse(in, KH_EFORMAT, "\"seen_tasks\" must be a list of names of tasks");
    for (size_t i = 0; i < json_array_size(list) && in->rc == 0; i++) {
        const char *task = json_string_value(json_array_get(list, i));
        if (kh_config_add_seen(c, task ? task : "", in->err) != 0)
            in->rc = kh_err_prefix(in->err, "%s", in->name);
    }
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
    kh_json_in in = { .name = name, .err = err };
    in.rc = kh_json_parse(text, n, name, &root, err);
    if (!json_is_object(root))
        kh_json_refuse(&in, KH_EFORMAT, "must be a JSON object");
    read_type(c, &in, root);
    if (in.rc == 0) { /* which keys there are follows from the type */
        read_sizes(c, &in, root);
        read_factored(c, &in, root);
        read_acts(c, &in, root);
        read_rest(c, &in, root);
        refuse_unknown(c, &in, root);
        read_seen(c, &in, root);
        if (c->arch->position == KH_POSITION_ROTARY)
            read_rotary(c, &in, root);
    }
    json_decref(root);
    return in.rc == 0 ? kh_config_check(c, name, err) : in.rc;
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
