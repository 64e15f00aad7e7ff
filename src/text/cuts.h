/* cuts.h - how finely a tokenizer cuts the words of a text.
 *
 *     kh_cuts c = { 0 };
 *     kh_cuts_count(&c, tokenizer, text, n, err);
 *     kh_cuts_rate(&c);                          0.02 for "The parcel never came.", 0.6 for "asdf
 * qwer"
 *
 * A vocabulary holds the words of the texts that it was made from: such text is hardly cut, other
 * languages are cut often, and what is no language nearly everywhere. */
#ifndef KH_TEXT_CUTS_H
#define KH_TEXT_CUTS_H

#include "keyhole.h"

typedef struct kh_cuts {
    long cuts;   /* between letters of one word, */
    long places; /* of so many where one could be */
} kh_cuts;

/* Adds those of a text. A word is a run of letters, and is cut by itself; what stands between words
 * (digits, signs) does not count. A word with a token for what is not known is cut everywhere. */
int kh_cuts_count(kh_cuts *, const kh_tokenizer *, const char *text, size_t n, kh_err *err);

/* From 0 to 1. One place is added, so that a word or two say less than a sentence. */
double kh_cuts_rate(const kh_cuts *);

#endif
