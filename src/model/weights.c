/* weights.c - the table of tensors; see weights.h. */
#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define W(field) offsetof(kh_weights, field), false
#define L(field) offsetof(kh_layer, field), true

/* Old TensorFlow exports call LayerNorm's weight and bias gamma and beta. The decoder's bias is
 * saved under either of two names, which are one parameter. */
const kh_weight kh_weight_table[] = {
    { W(word), 'V', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL, { "embeddings.word_embeddings.weight" } },
    { W(position), 'P', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "embeddings.position_embeddings.weight" } },
    { W(type), 'T', 'H', KH_NEED_TYPES, KH_FILL_NORMAL,
        { "embeddings.token_type_embeddings.weight" } },
    { W(ln_g), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ONE,
        { "embeddings.LayerNorm.weight|embeddings.LayerNorm.gamma" } },
    { W(ln_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "embeddings.LayerNorm.bias|embeddings.LayerNorm.beta" } },

    { L(q_w), 'H', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.attention.self.query.weight", NULL,
            "transformer.layer.#.attention.q_lin.weight" } },
    { L(q_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.attention.self.query.bias", NULL,
            "transformer.layer.#.attention.q_lin.bias" } },
    { L(k_w), 'H', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.attention.self.key.weight", NULL,
            "transformer.layer.#.attention.k_lin.weight" } },
    { L(k_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.attention.self.key.bias", NULL,
            "transformer.layer.#.attention.k_lin.bias" } },
    { L(v_w), 'H', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.attention.self.value.weight", NULL,
            "transformer.layer.#.attention.v_lin.weight" } },
    { L(v_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.attention.self.value.bias", NULL,
            "transformer.layer.#.attention.v_lin.bias" } },
    { L(o_w), 'H', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.attention.output.dense.weight", NULL,
            "transformer.layer.#.attention.out_lin.weight" } },
    { L(o_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.attention.output.dense.bias", NULL,
            "transformer.layer.#.attention.out_lin.bias" } },
    { L(ln1_g), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ONE,
        { "encoder.layer.#.attention.output.LayerNorm.weight|encoder.layer.#.attention.output."
          "LayerNorm.gamma",
            NULL, "transformer.layer.#.sa_layer_norm.weight" } },
    { L(ln1_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.attention.output.LayerNorm.bias|encoder.layer.#.attention.output."
          "LayerNorm.beta",
            NULL, "transformer.layer.#.sa_layer_norm.bias" } },
    { L(up_w), 'I', 'H', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.intermediate.dense.weight", NULL,
            "transformer.layer.#.ffn.lin1.weight" } },
    { L(up_b), 0, 'I', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.intermediate.dense.bias", NULL, "transformer.layer.#.ffn.lin1.bias" } },
    { L(down_w), 'H', 'I', KH_NEED_ALWAYS, KH_FILL_NORMAL,
        { "encoder.layer.#.output.dense.weight", NULL, "transformer.layer.#.ffn.lin2.weight" } },
    { L(down_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.output.dense.bias", NULL, "transformer.layer.#.ffn.lin2.bias" } },
    { L(ln2_g), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ONE,
        { "encoder.layer.#.output.LayerNorm.weight|encoder.layer.#.output.LayerNorm.gamma", NULL,
            "transformer.layer.#.output_layer_norm.weight" } },
    { L(ln2_b), 0, 'H', KH_NEED_ALWAYS, KH_FILL_ZERO,
        { "encoder.layer.#.output.LayerNorm.bias|encoder.layer.#.output.LayerNorm.beta", NULL,
            "transformer.layer.#.output_layer_norm.bias" } },

    { W(head_w), 'H', 'H', KH_NEED_HEAD, KH_FILL_NORMAL,
        { "cls.predictions.transform.dense.weight", "lm_head.dense.weight",
            "vocab_transform.weight" } },
    { W(head_b), 0, 'H', KH_NEED_HEAD, KH_FILL_ZERO,
        { "cls.predictions.transform.dense.bias", "lm_head.dense.bias", "vocab_transform.bias" } },
    { W(head_ln_g), 0, 'H', KH_NEED_HEAD, KH_FILL_ONE,
        { "cls.predictions.transform.LayerNorm.weight|cls.predictions.transform.LayerNorm.gamma",
            "lm_head.layer_norm.weight|lm_head.layer_norm.gamma", "vocab_layer_norm.weight" } },
    { W(head_ln_b), 0, 'H', KH_NEED_HEAD, KH_FILL_ZERO,
        { "cls.predictions.transform.LayerNorm.bias|cls.predictions.transform.LayerNorm.beta",
            "lm_head.layer_norm.bias|lm_head.layer_norm.beta", "vocab_layer_norm.bias" } },
    { W(decoder_w), 'V', 'H', KH_NEED_DECODER, KH_FILL_NORMAL,
        { "cls.predictions.decoder.weight", "lm_head.decoder.weight", "vocab_projector.weight" } },
    { W(decoder_b), 0, 'V', KH_NEED_HEAD, KH_FILL_ZERO,
        { "cls.predictions.bias|cls.predictions.decoder.bias", "lm_head.bias|lm_head.decoder.bias",
            "vocab_projector.bias" } },
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
};

static const struct letter_row *find_letter(char letter) {
    const struct letter_row *row = letter_table;
    while (row->letter != letter)
        row++;
    return row;
}

int kh_weight_size(const kh_config *c, char letter) {
    return *(const int *)((const char *)c + find_letter(letter)->offset);
}

const char *kh_weight_key(char letter) { return find_letter(letter)->key; }

bool kh_weight_wanted(const kh_weight *row, const kh_config *c, bool head) {
    switch (row->need) {
    case KH_NEED_ALWAYS: return true;
    case KH_NEED_TYPES: return c->types > 0;
    case KH_NEED_HEAD: return head;
    case KH_NEED_DECODER: return head && !c->tied;
    }
    return false;
}

const char *kh_family_prefix(kh_family family) {
    static const char *const prefix[KH_FAMILY_COUNT] = { "bert.", "roberta.", "distilbert." };
    return prefix[family];
}

bool kh_weight_name(const kh_weight *row, const kh_config *c, bool prefixed, int layer, int n,
    char *out, size_t cap) {
    const char *at = row->name[c->family] ? row->name[c->family] : row->name[KH_FAMILY_BERT];
    for (; n > 0; n--) {
        at += strcspn(at, "|");
        if (!*at++)
            return false;
    }
    bool in_head = row->need == KH_NEED_HEAD ||
        row->need == KH_NEED_DECODER; /* the head stands outside the prefix */
    size_t len = strcspn(at, "|"), number = strcspn(at, "#|");
    const char *prefix = prefixed && !in_head ? kh_family_prefix(c->family) : "";
    int used = number == len ? snprintf(out, cap, "%s%.*s", prefix, (int)len, at)
                             : snprintf(out, cap, "%s%.*s%d%.*s", prefix, (int)number, at, layer,
                                   (int)(len - number - 1), at + number + 1);
    assert(used > 0 && (size_t)used < cap);
    (void)used;
    return true;
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
