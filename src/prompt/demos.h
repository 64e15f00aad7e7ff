/* demos.h - prompts made of text: labelled rows shown in front of the row in question (in-context
 * learning).
 *
 * A demonstration is the plain template filled in, with the label's first word in place of the
 * mask. They are drawn from the few-shot rows in one or several orders; as many stand in front of a
 * row as fit, from the order's start. */
#ifndef KH_PROMPT_DEMOS_H
#define KH_PROMPT_DEMOS_H

#include "base/arena.h"
#include "base/buf.h"
#include "data/template.h"

typedef struct kh_demos {
    kh_row *row; /* [n] copies, in the memory of the arena that they were drawn into */
    int n;
    int *order; /* [n_order, n_shown] rows */
    int n_order, n_shown;
} kh_demos;

/* Draws orders of at most `most` of the rows. balanced: classes take turns, so that any start of an
 * order shows each class equally often; otherwise a plain shuffle. */
int kh_demos_draw(kh_demos *out, kh_arena *, const kh_row *rows, int n, int most, int n_order,
    bool balanced, uint64_t seed, kh_err *err);

/* Appends the first `n` demonstrations of order number `order`, as the task's plain template shows
 * them, and the template `then`: the task's own, or another's for rows from elsewhere. */
void kh_demos_template(
    const kh_demos *, const kh_task *, bool next, int order, int n, const char *then, kh_buf *out);

/* Appends one demonstration: a plain template, whose braces stay doubled, filled with the row and
 * the first word of its label. */
void kh_demo_write(kh_buf *out, const kh_template *, const kh_task *, const kh_row *);

#endif
