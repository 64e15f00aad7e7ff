/* normalize.h - the normalizers of tokenizer.json. */
#ifndef KH_TEXT_NORMALIZE_H
#define KH_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "text/chain.h"

/* The state that normalizers work on: a text, in the caller's memory or in one of two buffers. */
typedef struct kh_norm {
    const char *s; /* valid UTF-8 */
    size_t n;
    size_t first; /* how many bytes stem from the very first character of the original text;
                     "Metaspace" wants to know */
    kh_buf buf[2];
    int turn; /* the buffer that s is not in */
} kh_norm;

/* {"type": ...} names and what they do; for kh_chain_load with the list key "normalizers". */
extern const kh_kind kh_normalizers[];

/* The data of a BertNormalizer, for vocab.txt; fill the four and call kh_bert_normalizer_ready. */
typedef struct kh_bert_normalizer {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
    int8_t ascii[128]; /* what an ASCII character becomes; -1: it goes */
} kh_bert_normalizer;
void kh_bert_normalizer_ready(kh_bert_normalizer *);

void kh_norm_start(kh_norm *, const char *s, size_t n,
    size_t first); /* keeps the buffers' memory; zero the struct once */
void kh_norm_free(kh_norm *);

/* For normalizers: the buffer that the new text goes to, and the end of it; first: how many of its
 * bytes stem from the first character. */
kh_buf *kh_norm_begin(kh_norm *);
int kh_norm_finish(kh_norm *, size_t first, kh_err *err);

#endif
