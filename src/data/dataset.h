/* dataset.h - the inside of a data set, for the files of this room. */
#ifndef KH_DATA_DATASET_H
#define KH_DATA_DATASET_H

#include "base/arena.h"
#include "base/buf.h"
#include "keyhole.h"

struct kh_dataset {
    kh_buf bytes; /* the file; the texts of rows are cut out of it in place */
    kh_row *row;  /* [n_row] */
    int n_row;
    size_t cap;
    kh_arena arena;     /* path and label names */
    const char **label; /* [n_label], entries may be NULL */
    int n_label;
    const char *path;
    kh_format format;
    bool pairs;
    int n_skipped, n_undecided;
};

/* "tsv", "csv", ...: the words of --format. */
const char *kh_format_name(kh_format);

/* How many rows each class has: count [n_label], zeroed here. Rows without a label are not counted.
 */
void kh_dataset_count(const kh_dataset *, int *count);

/* The rows of both, which have the same labels, in one. */
int kh_dataset_join(kh_dataset **out, const kh_dataset *, const kh_dataset *, kh_err *err);

/* Writes rows as TSV with the header "label text" or "label text_a text_b"; labels as numbers, an
 * unknown one as "-". Tabs and line breaks inside texts become spaces. */
int kh_dataset_write(const kh_dataset *, const char *path, kh_err *err);
/* Writes labels.txt: the names of all classes. Does nothing if one of them has no name. */
int kh_dataset_write_labels(const kh_dataset *, const char *path, kh_err *err);

#endif
