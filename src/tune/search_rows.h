/* search_rows.h - which train rows a search asks its candidates about. */
#ifndef KH_TUNE_SEARCH_ROWS_H
#define KH_TUNE_SEARCH_ROWS_H

#include "tune/tuning.h"

/* At most o->search_rows of the train rows, as many of each class as there are, the first ones of
 * each, in their order: t->search_row, and copies in *part, which the caller frees. *part NULL: all
 * rows. */
int kh_search_rows(kh_tuning *, kh_row **part, kh_err *err);

#endif
