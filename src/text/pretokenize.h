/* pretokenize.h - the pre-tokenizers of tokenizer.json; their state is kh_pieces. */
#ifndef KH_TEXT_PRETOKENIZE_H
#define KH_TEXT_PRETOKENIZE_H

#include "text/chain.h"

/* For kh_chain_load with the list key "pretokenizers". */
extern const kh_kind kh_pretokenizers[];

/* The data of a ByteLevel step. raw: cut only, and leave the bytes to a model that reads bytes;
 * only in the last step. */
typedef struct kh_byte_level {
    bool add_prefix_space, use_regex, raw;
} kh_byte_level;

/* Metaspace, which is a decoder too. */
typedef struct kh_metaspace {
    char mark[4]; /* the character that stands for a space, mark_len bytes */
    int mark_len;
    enum { KH_PREPEND_ALWAYS, KH_PREPEND_FIRST, KH_PREPEND_NEVER } prepend;
    bool split;
} kh_metaspace;
int kh_metaspace_load(void *self, const json_t *obj, const kh_source *from, kh_err *err);

#endif
