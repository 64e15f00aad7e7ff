/* effort.h - how much is asked for a result: one table for budget, size of the soft prompt, rows,
 * samples and settings of every method (doc/methods.md, "Effort").
 *
 * The defaults in the methods' own tables of options are the paper's. An effort changes them before
 * the user's options are read, so that these win. */
#ifndef KH_TUNE_EFFORT_H
#define KH_TUNE_EFFORT_H

#include "tune/method.h"

#define KH_EFFORT_NAMES "paper|quick|normal|thorough" /* in the order of the enum */
const char *kh_effort_name(kh_effort);
/* False: there is none of that name. */
bool kh_effort_find(kh_effort *out, const char *name);

/* The method's settings at that effort, over the defaults that opts holds. */
int kh_effort_set(kh_effort, const kh_method *, void *opts, kh_err *err);
/* What of *o is left to the effort is filled in: dimension (at most as many as slots of `hidden`
 * numbers hold), slots, rows of a search and, unless a budget was set by hand (max_queries,
 * max_tokens, max_seconds, or an option of the method called budget-...), the queries; then it
 * returns 1. opts: as they will be used. */
int kh_effort_fill(kh_tune_opts *o, const kh_method *, const void *opts, int hidden, kh_err *err);

#endif
