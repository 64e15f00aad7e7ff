/* decode.h - the decoders of tokenizer.json: tokens back to text. */
#ifndef KH_TEXT_DECODE_H
#define KH_TEXT_DECODE_H

#include "base/buf.h"
#include "text/chain.h"

/* The state of decoders: a list of strings, each end[i-1]..end[i) of the text, in one of two sets
 * of buffers. */
typedef struct kh_list {
    kh_buf text;
    size_t *end;
    int n;
    size_t cap;
} kh_list;

typedef struct kh_unfold {
    kh_list list[2];
    int now; /* which of them is current */
} kh_unfold; /* start with kh_unfold_init */

void kh_unfold_init(kh_unfold *);
void kh_unfold_free(kh_unfold *);
/* Ends a string that was appended to list->text. */
int kh_list_close(kh_list *, kh_err *err);

/* For kh_chain_load with the list key "decoders". */
extern const kh_kind kh_decoders[];

/* The data of a WordPiece decoder. */
typedef struct kh_wordpiece_decoder {
    const char *prefix;
    bool cleanup;
} kh_wordpiece_decoder;

#endif
