/* smc.h - the options of SMC with prior-reversible moves, for the rows that run it on the box and on toys. */
#ifndef KH_TUNE_SMC_H
#define KH_TUNE_SMC_H

#include "tune/labels.h"

enum { KH_ACCEPT_HARD, KH_ACCEPT_SOFT };

typedef struct kh_smc_opts {
    kh_labels_opts labels;
    int samples, accept, tolerance, levels, max_moves, first_draws, early;
    double survivors, target, unmoved, step, noise, min_rate;
} kh_smc_opts;

extern const kh_opt kh_smc_table[];

#endif
