/* abc.h - the options of rejection ABC and ABC-SMC, for the rows that run them on the box and on toys. */
#ifndef KH_TUNE_ABC_H
#define KH_TUNE_ABC_H

#include "tune/labels.h"

typedef struct kh_abc_opts {
    kh_labels_opts labels;
    int samples, first_draws, max_misses, early, tolerance;
    double min_rate;
    int generations, importance; /* ABC-SMC */
    double kernel_mean;
} kh_abc_opts;

extern const kh_opt kh_rejection_table[], kh_abc_smc_table[];

#endif
