/* bpe_train.h - byte-level BPE vocabularies from text, as Hugging Face's BpeTrainer makes them.
 *
 *     kh_bpe_opts o = { .words = { .path = paths, .n_path = 1 },
 *         .vocab = 30000, .min_frequency = 2, .style = KH_BPE_ROBERTA };
 *     kh_buf json = kh_buf_init(KH_BUF_MAX);
 *     rc = kh_bpe_train(&o, hooks, &json, &stats, err);
 *     if (rc == 0)
 *         rc = kh_file_write("tokenizer.json", json.data, json.len, err);
 */
#ifndef KH_TEXT_BPE_TRAIN_H
#define KH_TEXT_BPE_TRAIN_H

#include "base/buf.h"
#include "text/wordcount.h"

typedef enum kh_bpe_style {
    KH_BPE_ROBERTA, /* <s> ... </s> around each text; <mask> takes the space before it */
    KH_BPE_GPT2,    /* nothing around */
} kh_bpe_style;

typedef struct kh_bpe_opts {
    kh_counts_opts words;
    int vocab;         /* tokens in all: special tokens, 256 bytes, merges */
    int min_frequency; /* a pair that occurs less often is not merged */
    kh_bpe_style style;
    const char *const *special; /* they get the ids 0, 1, ...; none: those of the style */
    int n_special;
} kh_bpe_opts;

typedef struct kh_bpe_stats {
    uint64_t bytes, lines, words; /* of the corpus */
    int distinct, tokens, merges; /* distinct words, size of the vocabulary, merges learned */
} kh_bpe_stats;

/* Appends a tokenizer.json to *json. The same corpus and options give the same bytes, for any
 * number of threads. stats may be NULL. Returns KH_STOPPED when a progress callback asks for it. */
int kh_bpe_train(
    const kh_bpe_opts *, const kh_hooks *, kh_buf *json, kh_bpe_stats *stats, kh_err *err);

#endif
