/* labelled.h - labelled rows as training data: each is filled into a template of its task, and the
 * word of its label is what stands at the mask. A model that has seen many such questions answers
 * new ones better than one that has only read text (Schick and Schütze 2021, Wei et al. 2022).
 *
 * Which row comes next is drawn from a stream alone: a set in proportion to weight times rows, then
 * a label of it, each as often as the others, a row of that label, one of the task's templates, and
 * one of the words that it gives the label. So there is nothing to remember between steps.
 *
 * Only the train file of a folder is read. Rows whose texts are also in its test file or in a
 * ready-made few-shot split are left out: they are there to judge with. */
#ifndef KH_TRAIN_LABELLED_H
#define KH_TRAIN_LABELLED_H

#include "train/corpus.h"

typedef struct kh_labelled_opts {
    const char *const *task; /* [n] names or files */
    const char *const *dir;  /* [n] data folders */
    const double *weight;    /* [n] */
    int n;
    const kh_hooks *hooks;
} kh_labelled_opts;

typedef struct kh_labelled {
    struct kh_labelled_set *set; /* [n] */
    double *share;               /* [n] weight times rows */
    int n;
} kh_labelled; /* start as {0} */

/* Sequences have at most `longest` tokens; of longer ones texts lose their ends. Free it, also
 * after failure. */
int kh_labelled_read(
    kh_labelled *, const kh_tokenizer *, const kh_labelled_opts *, int longest, kh_err *err);
void kh_labelled_free(kh_labelled *);

/* How many rows set i has, and what its task is called. */
int kh_labelled_rows(const kh_labelled *, int i);
const char *kh_labelled_name(const kh_labelled *, int i);

/* Adds one row, with one target, to a batch of masked sequences. */
int kh_labelled_add(
    const kh_labelled *, const kh_masker *, kh_rng *, kh_masked *batch, kh_err *err);

#endif
