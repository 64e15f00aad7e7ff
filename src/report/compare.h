/* compare.h - runs side by side: methods x metrics, mean and standard deviation over seeds, the
 * best of each metric. */
#ifndef KH_REPORT_COMPARE_H
#define KH_REPORT_COMPARE_H

#include "report/grid.h"
#include "report/results.h"

/* Runs that differ by their seed alone. */
typedef struct kh_group {
    const kh_result *first; /* borrowed: model, task, method, options */
    int n;                  /* runs */
    double *mean, *sd;      /* [n_metric]; mean NaN: no run has it; sd NaN: fewer than two have */
    bool *best;             /* [n_metric] the best mean among the groups of its model and task */
} kh_group;

typedef struct kh_comparison {
    const char *const *metric; /* borrowed */
    int n_metric;
    kh_group *group;
    int n;
} kh_comparison;

/* Groups appear in the order of their first run. Free it, failed ones too. */
int kh_comparison_make(kh_comparison *out, const kh_result *runs, int n, const char *const *metric,
    int n_metric, kh_err *err);
void kh_comparison_free(kh_comparison *);

void kh_comparison_put(const kh_comparison *, kh_grid_format, bool colour, kh_buf *out);
void kh_comparison_json(const kh_comparison *, kh_buf *out);

#endif
