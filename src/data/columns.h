/* columns.h - which columns of a file are the texts and the label, by their names. */
#ifndef KH_DATA_COLUMNS_H
#define KH_DATA_COLUMNS_H

#include "keyhole.h"

typedef struct kh_columns {
    const char *a, *b;      /* names of the text columns; b NULL: one text */
    bool join;              /* a and b are one text, with a space between */
    const char *label;      /* NULL: none */
    const char *label_name; /* a column of names beside a label of numbers, or NULL */
} kh_columns;

/* has(file, name) tells whether the file has the column. Looks for two texts if the task is about
 * pairs, and for one text first if it is not; without a task whatever is there. False if no text is
 * found; *half is then the column whose partner is missing, or NULL. */
bool kh_columns_find(kh_columns *out, const kh_task *task,
    bool (*has)(const void *file, const char *name), const void *file, const char **half);

/* Names of columns that number the rows, as GLUE's test files have: no labels. */
bool kh_column_numbers(const char *name, size_t n);

/* For messages: the names that are looked for. */
#define KH_TEXT_COLUMNS \
    "text, sentence, review, message, body, comment, ...; text_a and text_b, sentence1 and " \
    "sentence2, premise and hypothesis"
#define KH_LABEL_COLUMNS "label, class, category, target, intent, topic, sentiment, type, ..."

#endif
