/* verdict.h - whether a classifier is of any use, told from its answers to labelled rows. */
#ifndef KH_JUDGE_VERDICT_H
#define KH_JUDGE_VERDICT_H

#include "keyhole.h"

/* One sentence into out [cap] that says why the classifier is of no use, or nothing: it gives one
 * class to nearly all rows, is not better than always saying the commonest class, or is worse than
 * the template alone (template_accuracy; NaN: not known). name(user, k) is the name of class k. */
void kh_verdict(const kh_answers *, double template_accuracy,
    const char *(*name)(const void *user, int k), const void *user, char *out, size_t cap);

#endif
