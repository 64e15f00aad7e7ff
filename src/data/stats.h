/* stats.h - what can be said about a data set without a model. */
#ifndef KH_DATA_STATS_H
#define KH_DATA_STATS_H

#include "keyhole.h"

typedef struct kh_lengths {
    double mean;
    int median, p95,
        max; /* the smallest length that at least a half, or 95 %, of the rows do not exceed */
} kh_lengths;

/* Of n > 0 lengths, which are sorted on the way. */
kh_lengths kh_lengths_of(int *length, int n);

/* The characters of each row, both texts together, into length [size]. */
void kh_dataset_characters(const kh_dataset *, int *length);

/* Rows whose texts stand in an earlier row too, and those of them whose label is another. */
int kh_dataset_duplicates(const kh_dataset *, int *n_duplicate, int *n_conflict, kh_err *err);

/* Rows of `test` whose texts stand in `train` too. */
int kh_dataset_overlap(const kh_dataset *train, const kh_dataset *test, int *n, kh_err *err);

#endif
