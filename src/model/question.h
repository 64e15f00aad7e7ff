/* question.h - the size of a question: how many prompts and how many (prompt, row) pairs it has.
 *
 * A batch without slots takes no soft prompt, whatever n_prompt says: it is asked once. */
#ifndef KH_MODEL_QUESTION_H
#define KH_MODEL_QUESTION_H

#include "keyhole.h"

static inline int kh_question_prompts(const kh_question *q) {
    return q->batch->n_slot > 0 ? q->n_prompt : 1;
}

/* Each pair is one query and has one answer. */
static inline size_t kh_question_pairs(const kh_question *q) {
    return (size_t)kh_question_prompts(q) * (size_t)q->batch->n_row;
}

#endif
