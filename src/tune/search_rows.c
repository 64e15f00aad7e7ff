/* search_rows.c - see search_rows.h.
 *
 * A search needs ranks of candidates, not exact losses: with many train rows a part of them, the
 * same for all candidates, ranks nearly as well and leaves the budget to more generations. What is
 * learned once from a finished result (calibration, priors, distances) still sees all rows. */
#include "tune/search_rows.h"

#include "base/alloc.h"
#include "base/err.h"

#include <string.h>

/* How many of each class: one more for all classes that have one more, while it fits. */
static void deal(const kh_tuning *t, const int *there, int *take) {
    int left = t->o->search_rows, n_label = t->task->n_label;
    for (bool more = true; more && left > 0;) {
        more = false;
        for (int k = 0; k < n_label && left > 0; k++)
            if (take[k] < there[k]) {
                take[k]++;
                left--;
                more = true;
            }
    }
}

int kh_search_rows(kh_tuning *t, kh_row **part, kh_err *err) {
    int most = t->o->search_rows, n_label = t->task->n_label, n = 0;
    *part = NULL;
    if (most <= 0 || most >= t->n_train || most < n_label)
        return 0;
    int *there = kh_calloc(2 * (size_t)n_label, sizeof *there), *take = there + n_label;
    t->search_row = kh_calloc((size_t)most, sizeof *t->search_row);
    *part = kh_calloc((size_t)most, sizeof **part);
    if (!there || !t->search_row || !*part) {
        kh_free(there);
        return kh_fail_memory(err);
    }
    for (int i = 0; i < t->n_train; i++)
        there[t->train_row[i].label]++;
    deal(t, there, take);
    for (int i = 0; i < t->n_train; i++)
        if (take[t->train_row[i].label] > 0) {
            take[t->train_row[i].label]--;
            (*part)[n] = t->train_row[i];
            t->search_row[n++] = i;
        }
    t->n_search = n;
    kh_free(there);
    return 0;
}
