/* crossfit.h - answers to rows by classifiers that did not learn from them. */
#ifndef KH_TUNE_CROSSFIT_H
#define KH_TUNE_CROSSFIT_H

#include "tune/method.h"

enum { KH_CROSSFIT_FOLDS = 5 };

/* Runs the method once for each fold of train and dev rows, without the fold, and asks the result
 * about the fold. Appends one line a row, as "keyhole metrics" reads it, to out; nothing if a class
 * has too few rows. o: as for the run itself; its run, folder and hooks are not used. */
int kh_crossfit(kh_buf *out, const kh_method *, const void *opts, kh_plm *, const kh_task *,
    const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *o, const kh_hooks *,
    kh_err *err);

#endif
