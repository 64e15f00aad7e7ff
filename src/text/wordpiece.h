/* wordpiece.h - WordPiece: the longest token that a word starts with, then the longest
 * continuation, and so on. */
#ifndef KH_TEXT_WORDPIECE_H
#define KH_TEXT_WORDPIECE_H

#include "text/trie.h"
#include "text/vocab.h"
#include "text/lexicon.h"

typedef struct kh_wordpiece {
    const kh_vocab *vocab;          /* the model's tokens, without added ones */
    const char *unk_token, *prefix; /* in the tokenizer's arena; prefix: of continuations, "##" */
    int max_chars;                  /* a longer word is unknown */
    kh_trie trie;
    kh_lexicon words; /* tokens that are short; a word that is a token is its own longest */
    int32_t middle;   /* the node where continuations start; -1: there are none */
    int32_t unk;      /* -1: not in the vocabulary */
} kh_wordpiece;       /* zero it, fill the first three lines, then kh_wordpiece_ready */

int kh_wordpiece_ready(kh_wordpiece *, kh_err *err);
void kh_wordpiece_free(kh_wordpiece *);

/* Appends the ids of one word; an unknown one becomes one unknown token. Time is linear but for the
 * length of tokens. */
int kh_wordpiece_encode(const kh_wordpiece *, const char *word, size_t n, kh_ids *out, kh_err *err);

#endif
