/* task_search.h - a task for rows that come without one, made from their labels and improved by
 * asking the box about the train rows. */
#ifndef KH_TUNE_TASK_SEARCH_H
#define KH_TUNE_TASK_SEARCH_H

#include "keyhole.h"

typedef struct kh_task_search {
    const char *name; /* of the task */
    bool ask;         /* the box may be asked; otherwise the first template and the labels' names */
    const kh_hooks *hooks;
    long long queries; /* set: what it took */
} kh_task_search;

/* train: the rows to learn from, opened without a task. Uses their labels, and no other rows. The
 * result depends on the rows and the box alone. */
int kh_task_make(
    const kh_task **out, kh_plm *, const kh_dataset *train, kh_task_search *, kh_err *err);

#endif
