/* postprocess.h - the post-processors of tokenizer.json: what stands around and between the
 * sequences. */
#ifndef KH_TEXT_POSTPROCESS_H
#define KH_TEXT_POSTPROCESS_H

#include "text/chain.h"

/* A run of ids that belong together: a sequence, or special tokens beside it. */
typedef struct kh_id_part {
    const int32_t *id;
    int n;
    int32_t type_id; /* token type of all of them */
    int group;       /* parts that the next step takes as one, numbered from 0 in order */
} kh_id_part;

/* The state of post-processors: a list of parts. Ids are borrowed, from the encoded sequences and
 * from the steps' data. */
typedef struct kh_parts {
    kh_id_part *part;
    int n;
    size_t cap;
    kh_id_part *next; /* the list being written */
    int n_next;
    size_t cap_next;
    bool special; /* whether special tokens are added */
} kh_parts; /* start as {0}, then add one part for a single sequence, two for a pair, each a group
               of its own */

int kh_parts_add(kh_parts *, kh_id_part, kh_err *err); /* to the list */
void kh_parts_free(kh_parts *);

/* For kh_chain_load with the list key "processors". */
extern const kh_kind kh_postprocessors[];

/* RobertaProcessing and BertProcessing: one token before, one after each sequence. */
typedef struct kh_around {
    int32_t cls, sep;
} kh_around;

/* The largest id that the chain adds, or -1. */
int32_t kh_postprocessors_max_id(const kh_chain *);
/* The first id and the last that stand around a single sequence; -1: none. */
int kh_postprocessors_ends(const kh_chain *, int32_t *first, int32_t *last, kh_err *err);

#endif
