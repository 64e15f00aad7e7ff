/* label_names.h - what a file writes as label, turned into 0 .. n-1.
 *
 * Numbers and names are both accepted, one kind a file. Names come from labels.txt beside the file,
 * from the task, or from the file itself. Some of it is known only at the end of the file (whether
 * classes count from 0 or 1, the alphabetical order of names), so that reading gives codes, and
 * kh_labels_finish makes labels of them. */
#ifndef KH_DATA_LABEL_NAMES_H
#define KH_DATA_LABEL_NAMES_H

#include "base/arena.h"
#include "base/map.h"
#include "keyhole.h"

enum { KH_LABELS_MAX = 65536 };

typedef struct kh_labels {
    kh_arena *arena;     /* owns the names */
    const kh_task *task; /* may be NULL */
    const char **name; /* [n] of labels.txt, of the task, or found in the file; entries may be NULL
                          if numbers were found */
    int n;
    size_t cap;
    kh_map index;     /* name -> number in `name` */
    int *order;       /* [n] number in `name` -> label; NULL: the same */
    const char *list; /* where the names come from, for messages; NULL: found in the file */
    bool from_one;    /* set by the reader: numbers count from 1, unless a 0 is among them */
    bool names_only;  /* set by the reader: digits are names too */
    enum { KH_LABELS_NONE, KH_LABELS_NUMBERS, KH_LABELS_NAMES } kind;
    int least; /* of the numbers read */
} kh_labels;

/* path: the data file, beside which labels.txt is sought; NULL: do not look. Names live in the
 * arena. */
int kh_labels_init(kh_labels *, kh_arena *, const char *path, const kh_task *, kh_err *err);
/* The code of a label as written; -1 for "-" and "-1". KH_EFORMAT with path and line if it is not a
 * label. */
int kh_labels_read(
    kh_labels *, const char *s, size_t n, const char *path, long line, int *code, kh_err *err);
/* Learns that a number goes by this name, if there is no list of names. */
int kh_labels_learn(kh_labels *, int code, const char *s, size_t n, kh_err *err);
/* After the last row: from now on codes can be turned into labels. */
int kh_labels_finish(kh_labels *, kh_err *err);
int kh_labels_final(
    const kh_labels *, int code, const char *path, long line, int *label, kh_err *err);
/* The number of classes, and the name of one or NULL; valid after kh_labels_finish. */
int kh_labels_count(const kh_labels *);
const char *kh_labels_name(const kh_labels *, int label);
void kh_labels_free(kh_labels *); /* not the names */

/* The white space around a text, cut off. */
void kh_trim(const char **s, size_t *n);

#endif
