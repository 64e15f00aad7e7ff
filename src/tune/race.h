/* race.h - the losses of a generation for an optimiser that only ranks them, without asking about
 * all rows where a candidate will not be among the better half (doc/methods.md, T23). */
#ifndef KH_TUNE_RACE_H
#define KH_TUNE_RACE_H

#include "tune/tuning.h"

typedef struct kh_race {
    double wrong;  /* how probable it may be that one of the better half is left behind */
    kh_batch rows; /* the train rows, classes taking turns; */
    int *label;    /* [rows.n_row] and their labels */
} kh_race;

/* Whether such losses can be raced: they are means over rows, and need no other row's answer. */
bool kh_race_suits(const kh_train_loss *);
/* Free it also on failure. */
int kh_race_new(kh_race *, const kh_batch *train, int n_label, double wrong, kh_err *err);
void kh_race_free(kh_race *);

/* z [n, d] -> f [n]. The better half (n / 2) have their loss on all rows; so have others that kept
 * up. Whoever was left behind has an estimate that is worse than the better half's. *asked grows by
 * the queries that were made. */
int kh_race_losses(const kh_race *, const kh_train_loss *, const float *z, int n, double *f,
    long long *asked, kh_err *err);

/* The rule alone. loss [n, n_row] is known for the first `asked` rows; running [n] becomes false
 * for candidates that are behind. */
void kh_race_drop(const double *loss, int n, int n_row, int asked, double wrong, bool *running);

#endif
