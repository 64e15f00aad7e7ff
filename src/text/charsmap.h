/* charsmap.h - the normalizer "Precompiled": SentencePiece's rules for characters, compiled into a
 * table that its models carry along. */
#ifndef KH_TEXT_CHARSMAP_H
#define KH_TEXT_CHARSMAP_H

#include "text/chain.h"

typedef struct kh_charsmap {
    const uint32_t *unit; /* [n_unit] a double-array trie; in the arena */
    size_t n_unit;
    const char *text; /* [n_text] what texts become, each ended by a NUL */
    size_t n_text;
} kh_charsmap;

/* For the table of normalizers: reads {"precompiled_charsmap": base64}, and what it does. */
int kh_charsmap_load(void *self, const json_t *obj, const kh_source *, kh_err *err);
int kh_charsmap_run(const void *self, void *norm, kh_err *err);

/* From bytes: a u32 length, the trie, the texts. */
int kh_charsmap_parse(kh_charsmap *, const void *bytes, size_t n, const kh_source *, kh_err *err);

/* What the shortest rule that begins s says, or NULL. */
const char *kh_charsmap_find(const kh_charsmap *, const char *s, size_t n, size_t *len);

#endif
