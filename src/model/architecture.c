/* architecture.c - the rows of architecture.h.
 *
 * A row says what a forward pass has to compute, never who made the model: passes read the fields
 * and do not compare names. What a row leaves out is zero: LayerNorm, norm after the sum, a table
 * of positions, no gate, which is BERT. */
#include "model/architecture.h"

#include <stddef.h>
#include <string.h>

/* BERT and its relatives: embeddings are normalised, every product has a bias. */
#define ENCODER .embed_norm = true, .bias = KH_BIAS_ALL
/* Llama's layer, which Mistral and Qwen share: RMSNorm before each part, rotary positions, a gated
 * feed-forward part, and no biases. */
#define LLAMA \
    .family = KH_FAMILY_LLAMA, .causal = true, .norm = KH_NORM_RMS, .place = KH_NORM_BEFORE, \
    .position = KH_POSITION_ROTARY, .gated = true

const kh_architecture kh_architecture_table[] = {
    { "bert", KH_FAMILY_BERT, "BertForMaskedLM", ENCODER },
    { "roberta", KH_FAMILY_ROBERTA, "RobertaForMaskedLM", ENCODER },
    { "xlm-roberta", KH_FAMILY_ROBERTA, "XLMRobertaForMaskedLM", ENCODER },
    { "camembert", KH_FAMILY_ROBERTA, "CamembertForMaskedLM", ENCODER },
    { "distilbert", KH_FAMILY_DISTILBERT, "DistilBertForMaskedLM", ENCODER },
    { "gpt2", KH_FAMILY_GPT2, "GPT2LMHeadModel", .causal = true, .place = KH_NORM_BEFORE,
        .bias = KH_BIAS_ALL },
    { "llama", .class = "LlamaForCausalLM", LLAMA },
    { "mistral", .class = "MistralForCausalLM", LLAMA },
    { "qwen2", .class = "Qwen2ForCausalLM", LLAMA, .bias = KH_BIAS_QKV },
    { "qwen3", .class = "Qwen3ForCausalLM", LLAMA, .qk_norm = true },
    { "gemma3_text", KH_FAMILY_GEMMA3, "Gemma3ForCausalLM", .causal = true,
        .norm = KH_NORM_RMS_PLUS, .place = KH_NORM_AROUND, .position = KH_POSITION_ROTARY,
        .gated = true, .qk_norm = true, .scaled_words = true },
    { "electra", KH_FAMILY_ELECTRA, "ElectraForMaskedLM", ENCODER },
    { "albert", KH_FAMILY_ALBERT, "AlbertForMaskedLM", ENCODER },
    { "modernbert", KH_FAMILY_MODERNBERT, "ModernBertForMaskedLM", .embed_norm = true,
        .place = KH_NORM_BEFORE, .position = KH_POSITION_ROTARY, .gated = true, .lean = true },
    { 0 },
};

const kh_architecture *kh_architecture_find(const char *type) {
    for (const kh_architecture *a = kh_architecture_table; a->type; a++)
        if (strcmp(a->type, type) == 0)
            return a;
    return NULL;
}
