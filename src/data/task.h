/* task.h - tasks beyond what the public header says. */
#ifndef KH_DATA_TASK_H
#define KH_DATA_TASK_H

#include "base/buf.h"
#include "keyhole.h"

const char *kh_metric_name(kh_metric); /* "accuracy", "f1": the words of a task file */

/* The template of a task, with or without {prompt}, for a model that fills masks or one that
 * continues texts. */
const char *kh_task_template(const kh_task *, bool soft, bool next);

/* Appends the task as a task file that kh_task_parse reads back to the same task. */
void kh_task_json(const kh_task *, kh_buf *out);

/* A task for rows that come without one: the labels of the data set, with `template` and, for each
 * label, the words of words[k] (NULL: taken from the name of the label: "Sci/Tech" gives "sci" and
 * "tech"). A word that two labels have goes to neither. Close it with kh_task_close. */
int kh_task_of_labels(const kh_task **out, const char *name, const char *template,
    const kh_dataset *, const char *const *words, kh_err *err);
/* The words that a label's name is made of, as one string with spaces between, in lower case. */
void kh_label_name_words(const char *name, kh_buf *out);

#endif
