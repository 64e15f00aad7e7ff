/* answer_kind.h - what a question asks for: one word for the wire, the journal and the box. */
#ifndef KH_PLM_ANSWER_KIND_H
#define KH_PLM_ANSWER_KIND_H

#include "keyhole.h"

/* The numbers are part of every key in a journal: they stay. */
typedef enum kh_answer_kind {
    KH_ANSWER_LABELS,
    KH_ANSWER_LOGPROBS,
    KH_ANSWER_ENERGIES, /* with log-probabilities */
} kh_answer_kind;
const char *kh_answer_kind_name(kh_answer_kind); /* "labels", "logprobs", "energies" */

static inline kh_answer_kind kh_answer_kind_of(bool labels, bool energies) {
    if (labels)
        return KH_ANSWER_LABELS;
    return energies ? KH_ANSWER_ENERGIES : KH_ANSWER_LOGPROBS;
}

/* Where the answers to a question go. What is not wanted is NULL: either label alone, or logprob
 * and perhaps energy. */
typedef struct kh_cells {
    int *label;     /* [n_prompt, n_row] */
    float *logprob; /* [n_prompt, n_row, n_label] */
    float *energy;  /* [n_prompt, n_row] */
} kh_cells;

#endif
