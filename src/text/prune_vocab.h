/* prune_vocab.h - a tokenizer with fewer tokens.
 *
 * WordPiece takes the longest token that fits, so a text whose tokens are all kept is still cut in
 * the same way: its ids are the old ones, renumbered. A word whose token went is spelled with what
 * is left, down to single characters, which stay. */
#ifndef KH_TEXT_PRUNE_VOCAB_H
#define KH_TEXT_PRUNE_VOCAB_H

#include "keyhole.h"

/* Sets keep[id] for what must stay: added and special tokens, single characters and their forms
 * inside a word. keep has one element for each id. Fails for a tokenizer that is not WordPiece:
 * merges of BPE lean on each other. */
int kh_prune_mark(const kh_tokenizer *, bool *keep, const char *name, kh_err *err);

/* Writes the files of the tokenizer at `path`, whose n ids stay or go as keep says, into a folder.
 * Ids are numbered anew from 0 in their old order. */
int kh_prune_write(const char *path, const bool *keep, int n, const char *folder, kh_err *err);

#endif
