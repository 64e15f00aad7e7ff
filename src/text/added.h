/* added.h - added tokens: strings that are found in the text before the model sees it ("<mask>",
 * "[SEP]").
 *
 * Tokens that are not "normalized" are looked for in the raw text, the others, themselves
 * normalized, in the normalized text that is left; each time leftmost, then longest. */
#ifndef KH_TEXT_ADDED_H
#define KH_TEXT_ADDED_H

#include "base/map.h"
#include "text/chain.h"
#include "text/normalize.h"
#include "text/pieces.h"
#include "text/trie.h"

typedef struct kh_added_token {
    const char *content;
    size_t n;
    const char *decoded; /* what decoding writes: the normalized content of a normalized token */
    size_t n_decoded;
    int32_t id;
    bool single_word;    /* only between characters that are no word characters */
    bool lstrip, rstrip; /* takes the white space on that side with it */
    bool normalized, special;
} kh_added_token;

typedef struct kh_added {
    kh_added_token *token;
    int n;
    size_t cap;
    kh_map index;            /* content -> index into token */
    kh_trie raw, normalized; /* values are indices into token */
} kh_added;                  /* start as {0} */

/* Adds a token; content is copied into the arena. KH_EFORMAT if it was added before. */
int kh_added_add(kh_added *, const kh_added_token *, kh_arena *, const char *place, kh_err *err);
/* To be called once, after the last token: normalizes contents and builds what finding needs. */
int kh_added_ready(kh_added *, const kh_chain *normalizers, kh_arena *, kh_err *err);
void kh_added_free(kh_added *);

const kh_added_token *kh_added_find(const kh_added *, const char *content, size_t n); /* or NULL */
const kh_added_token *kh_added_by_id(const kh_added *, int32_t id);                   /* or NULL */

/* Takes a fresh kh_pieces through both searches and the normalizers. Special tokens are not
 * recognised where they touch what a piece has that is plain. */
int kh_added_split(
    const kh_added *, const kh_chain *normalizers, kh_pieces *, kh_norm *, kh_err *err);

#endif
