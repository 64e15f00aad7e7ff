/* weights.c - the table of tensors; see weights.h. */
#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A spelling is a name and, rarely, more: what a row leaves out is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* A row: where the tensor goes, its rows and columns as letters of the config (letter_table below),
 * when it is there, how a random model fills it, and its name in each family; "#" is the number of
 * the layer, "|" parts alternatives, and {name, part, parts, turned} says which part of a fused
 * matrix it is and whether that is stored transposed. */
#define W(field) offsetof(kh_weights, field), false
#define L(field) offsetof(kh_layer, field), true
#define BERT [KH_FAMILY_BERT] =
#define ROBERTA [KH_FAMILY_ROBERTA] =
#define DISTILBERT [KH_FAMILY_DISTILBERT] =
#define GPT2 [KH_FAMILY_GPT2] =
#define LLAMA [KH_FAMILY_LLAMA] =
#define GEMMA3 [KH_FAMILY_GEMMA3] =
#define ELECTRA [KH_FAMILY_ELECTRA] =
#define ALBERT [KH_FAMILY_ALBERT] =
#define MODERN [KH_FAMILY_MODERNBERT] =
#define SHARED "encoder.albert_layer_groups.0.albert_layers.0."

/* Old TensorFlow exports call LayerNorm's weight and bias gamma and beta. The decoder's bias is
 * saved under either of two names, which are one parameter. Fingerprints and random models count
 * the rows: new ones go to the end. */
const kh_weight kh_weight_table[] = {
    { W(word), 'V', 'E', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "embeddings.word_embeddings.weight" }, GPT2{ "wte.weight" },
            LLAMA{ "embed_tokens.weight" }, MODERN{ "embeddings.tok_embeddings.weight" } } },
    { W(position), 'P', 'E', KH_NEED_POSITIONS, KH_FILL_NORMAL,
        { BERT{ "embeddings.position_embeddings.weight" }, GPT2{ "wpe.weight" } } },
    { W(type), 'T', 'E', KH_NEED_TYPES, KH_FILL_NORMAL,
        { BERT{ "embeddings.token_type_embeddings.weight" } } },
    { W(ln_g), 0, 'E', KH_NEED_EMBED_NORM, KH_FILL_ONE,
        { BERT{ "embeddings.LayerNorm.weight|embeddings.LayerNorm.gamma" },
            MODERN{ "embeddings.norm.weight" } } },
    { W(ln_b), 0, 'E', KH_NEED_EMBED_BIAS, KH_FILL_ZERO,
        { BERT{ "embeddings.LayerNorm.bias|embeddings.LayerNorm.beta" } } },
    { L(q_w), 'Q', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.attention.self.query.weight" },
            DISTILBERT{ "transformer.layer.#.attention.q_lin.weight" },
            ALBERT{ SHARED "attention.query.weight" }, GPT2{ "h.#.attn.c_attn.weight", 0, 3, true },
            LLAMA{ "layers.#.self_attn.q_proj.weight" },
            MODERN{ "layers.#.attn.Wqkv.weight", 0, 3 } } },
    { L(q_b), 0, 'Q', KH_NEED_QKV_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.attention.self.query.bias" },
            DISTILBERT{ "transformer.layer.#.attention.q_lin.bias" },
            ALBERT{ SHARED "attention.query.bias" }, GPT2{ "h.#.attn.c_attn.bias", 0, 3 },
            LLAMA{ "layers.#.self_attn.q_proj.bias" },
            MODERN{ "layers.#.attn.Wqkv.bias", 0, 3 } } },
    { L(k_w), 'K', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.attention.self.key.weight" },
            DISTILBERT{ "transformer.layer.#.attention.k_lin.weight" },
            ALBERT{ SHARED "attention.key.weight" }, GPT2{ "h.#.attn.c_attn.weight", 1, 3, true },
            LLAMA{ "layers.#.self_attn.k_proj.weight" },
            MODERN{ "layers.#.attn.Wqkv.weight", 1, 3 } } },
    { L(k_b), 0, 'K', KH_NEED_QKV_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.attention.self.key.bias" },
            DISTILBERT{ "transformer.layer.#.attention.k_lin.bias" },
            ALBERT{ SHARED "attention.key.bias" }, GPT2{ "h.#.attn.c_attn.bias", 1, 3 },
            LLAMA{ "layers.#.self_attn.k_proj.bias" },
            MODERN{ "layers.#.attn.Wqkv.bias", 1, 3 } } },
    { L(v_w), 'K', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.attention.self.value.weight" },
            DISTILBERT{ "transformer.layer.#.attention.v_lin.weight" },
            ALBERT{ SHARED "attention.value.weight" }, GPT2{ "h.#.attn.c_attn.weight", 2, 3, true },
            LLAMA{ "layers.#.self_attn.v_proj.weight" },
            MODERN{ "layers.#.attn.Wqkv.weight", 2, 3 } } },
    { L(v_b), 0, 'K', KH_NEED_QKV_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.attention.self.value.bias" },
            DISTILBERT{ "transformer.layer.#.attention.v_lin.bias" },
            ALBERT{ SHARED "attention.value.bias" }, GPT2{ "h.#.attn.c_attn.bias", 2, 3 },
            LLAMA{ "layers.#.self_attn.v_proj.bias" },
            MODERN{ "layers.#.attn.Wqkv.bias", 2, 3 } } },
    { L(o_w), 'H', 'Q', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.attention.output.dense.weight" },
            DISTILBERT{ "transformer.layer.#.attention.out_lin.weight" },
            ALBERT{ SHARED "attention.dense.weight" }, GPT2{ "h.#.attn.c_proj.weight", 0, 1, true },
            LLAMA{ "layers.#.self_attn.o_proj.weight" }, MODERN{ "layers.#.attn.Wo.weight" } } },
    { L(o_b), 0, 'H', KH_NEED_OUT_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.attention.output.dense.bias" },
            DISTILBERT{ "transformer.layer.#.attention.out_lin.bias" },
            ALBERT{ SHARED "attention.dense.bias" }, GPT2{ "h.#.attn.c_proj.bias" },
            LLAMA{ "layers.#.self_attn.o_proj.bias" }, MODERN{ "layers.#.attn.Wo.bias" } } },
    { L(ln1_g), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ONE,
        { BERT{ "encoder.layer.#.attention.output.LayerNorm.weight|encoder.layer.#.attention."
                "output.LayerNorm.gamma" },
            DISTILBERT{ "transformer.layer.#.sa_layer_norm.weight" },
            ALBERT{ SHARED "attention.LayerNorm.weight" }, GPT2{ "h.#.ln_1.weight" },
            LLAMA{ "layers.#.input_layernorm.weight" }, MODERN{ "layers.#.attn_norm.weight" } } },
    { L(ln1_b), 0, 'H', KH_NEED_NORM_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.attention.output.LayerNorm.bias|encoder.layer.#.attention.output."
                "LayerNorm.beta" },
            DISTILBERT{ "transformer.layer.#.sa_layer_norm.bias" },
            ALBERT{ SHARED "attention.LayerNorm.bias" }, GPT2{ "h.#.ln_1.bias" } } },
    { L(up_w), 'I', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.intermediate.dense.weight" },
            DISTILBERT{ "transformer.layer.#.ffn.lin1.weight" }, ALBERT{ SHARED "ffn.weight" },
            GPT2{ "h.#.mlp.c_fc.weight", 0, 1, true }, LLAMA{ "layers.#.mlp.up_proj.weight" },
            MODERN{ "layers.#.mlp.Wi.weight", 1, 2 } } },
    { L(up_b), 0, 'I', KH_NEED_MLP_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.intermediate.dense.bias" },
            DISTILBERT{ "transformer.layer.#.ffn.lin1.bias" }, ALBERT{ SHARED "ffn.bias" },
            GPT2{ "h.#.mlp.c_fc.bias" }, LLAMA{ "layers.#.mlp.up_proj.bias" },
            MODERN{ "layers.#.mlp.Wi.bias", 1, 2 } } },
    { L(down_w), 'H', 'I', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { BERT{ "encoder.layer.#.output.dense.weight" },
            DISTILBERT{ "transformer.layer.#.ffn.lin2.weight" },
            ALBERT{ SHARED "ffn_output.weight" }, GPT2{ "h.#.mlp.c_proj.weight", 0, 1, true },
            LLAMA{ "layers.#.mlp.down_proj.weight" }, MODERN{ "layers.#.mlp.Wo.weight" } } },
    { L(down_b), 0, 'H', KH_NEED_MLP_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.output.dense.bias" },
            DISTILBERT{ "transformer.layer.#.ffn.lin2.bias" }, ALBERT{ SHARED "ffn_output.bias" },
            GPT2{ "h.#.mlp.c_proj.bias" }, LLAMA{ "layers.#.mlp.down_proj.bias" },
            MODERN{ "layers.#.mlp.Wo.bias" } } },
    { L(ln2_g), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ONE,
        { BERT{ "encoder.layer.#.output.LayerNorm.weight|encoder.layer.#.output.LayerNorm.gamma" },
            DISTILBERT{ "transformer.layer.#.output_layer_norm.weight" },
            ALBERT{ SHARED "full_layer_layer_norm.weight" }, GPT2{ "h.#.ln_2.weight" },
            LLAMA{ "layers.#.post_attention_layernorm.weight" },
            GEMMA3{ "layers.#.pre_feedforward_layernorm.weight" },
            MODERN{ "layers.#.mlp_norm.weight" } } },
    { L(ln2_b), 0, 'H', KH_NEED_NORM_BIAS, KH_FILL_ZERO,
        { BERT{ "encoder.layer.#.output.LayerNorm.bias|encoder.layer.#.output.LayerNorm.beta" },
            DISTILBERT{ "transformer.layer.#.output_layer_norm.bias" },
            ALBERT{ SHARED "full_layer_layer_norm.bias" }, GPT2{ "h.#.ln_2.bias" } } },
    { W(head_w), 'E', 'H', KH_NEED_HEAD, KH_FILL_NORMAL,
        { BERT{ "cls.predictions.transform.dense.weight" }, ROBERTA{ "lm_head.dense.weight" },
            DISTILBERT{ "vocab_transform.weight" }, ELECTRA{ "generator_predictions.dense.weight" },
            ALBERT{ "predictions.dense.weight" }, MODERN{ "head.dense.weight" } } },
    { W(head_b), 0, 'E', KH_NEED_HEAD_BIAS, KH_FILL_ZERO,
        { BERT{ "cls.predictions.transform.dense.bias" }, ROBERTA{ "lm_head.dense.bias" },
            DISTILBERT{ "vocab_transform.bias" }, ELECTRA{ "generator_predictions.dense.bias" },
            ALBERT{ "predictions.dense.bias" } } },
    { W(head_ln_g), 0, 'E', KH_NEED_HEAD, KH_FILL_ONE,
        { BERT{ "cls.predictions.transform.LayerNorm.weight|cls.predictions.transform.LayerNorm."
                "gamma" },
            ROBERTA{ "lm_head.layer_norm.weight|lm_head.layer_norm.gamma" },
            DISTILBERT{ "vocab_layer_norm.weight" },
            ELECTRA{ "generator_predictions.LayerNorm.weight" },
            ALBERT{ "predictions.LayerNorm.weight" }, MODERN{ "head.norm.weight" } } },
    { W(head_ln_b), 0, 'E', KH_NEED_HEAD_BIAS, KH_FILL_ZERO,
        { BERT{
              "cls.predictions.transform.LayerNorm.bias|cls.predictions.transform.LayerNorm.beta" },
            ROBERTA{ "lm_head.layer_norm.bias|lm_head.layer_norm.beta" },
            DISTILBERT{ "vocab_layer_norm.bias" },
            ELECTRA{ "generator_predictions.LayerNorm.bias" },
            ALBERT{ "predictions.LayerNorm.bias" } } },
    { W(decoder_w), 'V', 'E', KH_NEED_DECODER, KH_FILL_NORMAL,
        { BERT{ "cls.predictions.decoder.weight" }, ROBERTA{ "lm_head.decoder.weight" },
            DISTILBERT{ "vocab_projector.weight" }, ELECTRA{ "generator_lm_head.weight" },
            ALBERT{ "predictions.decoder.weight" }, GPT2{ "lm_head.weight" },
            LLAMA{ "lm_head.weight" }, MODERN{ "decoder.weight" } } },
    { W(decoder_b), 0, 'V', KH_NEED_HEAD, KH_FILL_ZERO,
        { BERT{ "cls.predictions.bias|cls.predictions.decoder.bias" },
            ROBERTA{ "lm_head.bias|lm_head.decoder.bias" }, DISTILBERT{ "vocab_projector.bias" },
            ELECTRA{ "generator_lm_head.bias" },
            ALBERT{ "predictions.bias|predictions.decoder.bias" }, MODERN{ "decoder.bias" } } },

    { W(final_g), 0, 'H', KH_NEED_FINAL_NORM, KH_FILL_ONE,
        { GPT2{ "ln_f.weight" }, LLAMA{ "norm.weight" }, MODERN{ "final_norm.weight" } } },
    { W(final_b), 0, 'H', KH_NEED_FINAL_BIAS, KH_FILL_ZERO, { GPT2{ "ln_f.bias" } } },
    { L(gate_w), 'I', 'H', KH_NEED_GATE, KH_FILL_NORMAL,
        { LLAMA{ "layers.#.mlp.gate_proj.weight" }, MODERN{ "layers.#.mlp.Wi.weight", 0, 2 } } },
    { L(gate_b), 0, 'I', KH_NEED_GATE_BIAS, KH_FILL_ZERO,
        { LLAMA{ "layers.#.mlp.gate_proj.bias" }, MODERN{ "layers.#.mlp.Wi.bias", 0, 2 } } },
    { L(qn_g), 0, 'D', KH_NEED_QK_NORM, KH_FILL_ONE,
        { LLAMA{ "layers.#.self_attn.q_norm.weight" } } },
    { L(kn_g), 0, 'D', KH_NEED_QK_NORM, KH_FILL_ONE,
        { LLAMA{ "layers.#.self_attn.k_norm.weight" } } },
    { L(post1_g), 0, 'H', KH_NEED_POST_NORM, KH_FILL_ONE,
        { GEMMA3{ "layers.#.post_attention_layernorm.weight" } } },
    { L(post2_g), 0, 'H', KH_NEED_POST_NORM, KH_FILL_ONE,
        { GEMMA3{ "layers.#.post_feedforward_layernorm.weight" } } },
    { W(project_w), 'H', 'E', KH_NEED_PROJECTION, KH_FILL_NORMAL,
        { ELECTRA{ "embeddings_project.weight" },
            ALBERT{ "encoder.embedding_hidden_mapping_in.weight" } } },
    { W(project_b), 0, 'H', KH_NEED_PROJECTION, KH_FILL_ZERO,
        { ELECTRA{ "embeddings_project.bias" },
            ALBERT{ "encoder.embedding_hidden_mapping_in.bias" } } },
    { 0 },
};

static const struct letter_row {
    char letter;
    size_t offset;
    const char *key;
} letter_table[] = {
    { 'V', offsetof(kh_config, vocab), "vocab_size" },
    { 'H', offsetof(kh_config, hidden), "hidden_size" },
    { 'I', offsetof(kh_config, inner), "intermediate_size" },
    { 'P', offsetof(kh_config, positions), "max_position_embeddings" },
    { 'T', offsetof(kh_config, types), "type_vocab_size" },
    { 'Q', 0, "num_attention_heads x head_dim" },
    { 'K', 0, "num_key_value_heads x head_dim" },
    { 'D', 0, "head_dim" },
    { 'E', 0, "embedding_size" },
};

static const struct letter_row *find_letter(char letter) {
    const struct letter_row *row = letter_table;
    while (row->letter != letter)
        row++;
    return row;
}

/* Derived sizes have no field of their own. */
int kh_weight_size(const kh_config *c, char letter) {
    switch (letter) {
    case 'Q': return kh_config_q_width(c);
    case 'K': return kh_config_kv_width(c);
    case 'D': return kh_config_head_width(c);
    case 'E': return kh_config_embed(c);
    default: return *(const int *)((const char *)c + find_letter(letter)->offset);
    }
}

/* Where heads divide the hidden size, config.json has no other word for their width. */
const char *kh_weight_key(const kh_config *c, char letter) {
    bool plain = c->kv_heads == 0 && c->head_width == 0;
    if (letter == 'E' && c->embed == 0)
        letter = 'H';
    return find_letter(plain && (letter == 'Q' || letter == 'K') ? 'H' : letter)->key;
}

/* The only place that knows which architecture has which tensor; loaders and writers ask here. */
bool kh_weight_wanted(const kh_weight *row, const kh_config *c, bool head) {
    const kh_architecture *a = c->arch;
    bool last_norm = a->place != KH_NORM_AFTER;
    switch (row->need) {
    case KH_NEED_ALWAYS: return true;
    case KH_NEED_TYPES: return c->types > 0;
    case KH_NEED_HEAD: return head && !a->causal;
    case KH_NEED_HEAD_BIAS: return head && !a->causal && !a->lean;
    case KH_NEED_DECODER: return head && !c->tied;
    case KH_NEED_POSITIONS: return a->position == KH_POSITION_TABLE;
    case KH_NEED_EMBED_NORM: return a->embed_norm;
    case KH_NEED_EMBED_BIAS: return a->embed_norm && !a->lean;
    case KH_NEED_NORM_BIAS: return a->norm == KH_NORM_LAYER && !a->lean;
    case KH_NEED_QKV_BIAS: return kh_config_has_bias(c, KH_BIAS_QKV);
    case KH_NEED_OUT_BIAS: return kh_config_has_bias(c, KH_BIAS_OUT);
    case KH_NEED_MLP_BIAS: return kh_config_has_bias(c, KH_BIAS_MLP);
    case KH_NEED_FINAL_NORM: return last_norm;
    case KH_NEED_FINAL_BIAS: return last_norm && a->norm == KH_NORM_LAYER && !a->lean;
    case KH_NEED_GATE: return a->gated;
    case KH_NEED_GATE_BIAS: return a->gated && kh_config_has_bias(c, KH_BIAS_MLP);
    case KH_NEED_QK_NORM: return a->qk_norm;
    case KH_NEED_POST_NORM: return a->place == KH_NORM_AROUND;
    /* ELECTRA has it only where the widths differ. */
    case KH_NEED_PROJECTION:
        return c->embed > 0 && (c->embed != c->hidden || a->family == KH_FAMILY_ALBERT);
    }
    return false;
}

/* ModernBERT normalises embeddings already: its first layer has no norm before attention. */
bool kh_weight_left_out(const kh_weight *row, const kh_config *c, int layer) {
    return c->arch->lean && row->layered && layer == 0 && row->offset == offsetof(kh_layer, ln1_g);
}

static const struct family_row {
    const char *prefix;
    kh_family base; /* whose names those are that the family has none of its own for */
} family_table[KH_FAMILY_COUNT] = {
    [KH_FAMILY_BERT] = { "bert.", KH_FAMILY_BERT },
    [KH_FAMILY_ROBERTA] = { "roberta.", KH_FAMILY_BERT },
    [KH_FAMILY_DISTILBERT] = { "distilbert.", KH_FAMILY_BERT },
    [KH_FAMILY_GPT2] = { "transformer.", KH_FAMILY_GPT2 },
    [KH_FAMILY_LLAMA] = { "model.", KH_FAMILY_LLAMA },
    [KH_FAMILY_GEMMA3] = { "model.", KH_FAMILY_LLAMA },
    [KH_FAMILY_ELECTRA] = { "electra.", KH_FAMILY_BERT },
    [KH_FAMILY_ALBERT] = { "albert.", KH_FAMILY_BERT },
    [KH_FAMILY_MODERNBERT] = { "model.", KH_FAMILY_MODERNBERT },
};

const char *kh_family_prefix(kh_family family) { return family_table[family].prefix; }

const kh_spelling *kh_weight_spelling(const kh_weight *row, const kh_config *c) {
    kh_family family = c->arch->family;
    return &row->name[row->name[family].name ? family : family_table[family].base];
}

/* ALBERT's names have no number: all layers are one. */
bool kh_weight_shared(const kh_weight *row, const kh_config *c) {
    const char *name = kh_weight_spelling(row, c)->name;
    return row->layered && name && !strchr(name, '#');
}

bool kh_weight_name(const kh_weight *row, const kh_config *c, bool prefixed, int layer, int n,
    char *out, size_t cap) {
    const char *at = kh_weight_spelling(row, c)->name;
    for (; at && n > 0; n--) {
        at += strcspn(at, "|");
        if (!*at++)
            return false;
    }
    if (!at)
        return false;
    bool in_head = row->need == KH_NEED_HEAD || row->need == KH_NEED_HEAD_BIAS ||
        row->need == KH_NEED_DECODER; /* the head stands outside the prefix */
    size_t len = strcspn(at, "|"), number = strcspn(at, "#|");
    const char *prefix = prefixed && !in_head ? kh_family_prefix(c->arch->family) : "";
    int used = number == len ? snprintf(out, cap, "%s%.*s", prefix, (int)len, at)
                             : snprintf(out, cap, "%s%.*s%d%.*s", prefix, (int)number, at, layer,
                                   (int)(len - number - 1), at + number + 1);
    assert(used > 0 && (size_t)used < cap);
    (void)used;
    return true;
}

int kh_weight_stored_shape(const kh_weight *row, const kh_config *c, size_t shape[2]) {
    const kh_spelling *s = kh_weight_spelling(row, c);
    int rank = kh_weight_shape(row, c, shape);
    shape[0] *= s->parts > 0 ? (size_t)s->parts : 1;
    if (s->turned && rank == 2) {
        size_t rows = shape[0];
        shape[0] = shape[1];
        shape[1] = rows;
    }
    return rank;
}

int kh_weight_shape(const kh_weight *row, const kh_config *c, size_t shape[2]) {
    int rank = 0;
    if (row->rows)
        shape[rank++] = (size_t)kh_weight_size(c, row->rows);
    shape[rank++] = (size_t)kh_weight_size(c, row->cols);
    return rank;
}

kh_tensor *kh_weight_tensor(const kh_weight *row, kh_weights *w, int layer) {
    char *base = row->layered ? (char *)&w->layer[layer] : (char *)w;
    return (kh_tensor *)(void *)(base + row->offset);
}
