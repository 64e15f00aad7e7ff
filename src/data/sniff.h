/* sniff.h - what a file is before it is read: files that are no text are refused by name, and the
 * layout of a table is told from its first rows. */
#ifndef KH_DATA_SNIFF_H
#define KH_DATA_SNIFF_H

#include "keyhole.h"

/* Refuses what people hand over instead of text (Excel workbooks, UTF-16, archives, Parquet), with
 * the way to make text of it. */
int kh_sniff_refuse(const char *path, const char *bytes, size_t n, kh_err *err);

/* The layout of a table. */
typedef struct kh_layout {
    char sep;         /* ',', ';' or a tab */
    bool header;      /* the first row names the columns */
    bool named;       /* with names that are known: columns are found by name */
    bool label_first; /* otherwise the label is the first column, or the last */
} kh_layout;

/* Of a CSV file, from a copy of its first rows. Without names that are known, the label is in the
 * column, first or last, that has fewer different values; a first row whose label occurs nowhere
 * else is a header. */
int kh_sniff_layout(kh_layout *out, const char *bytes, size_t n, kh_err *err);

#endif
