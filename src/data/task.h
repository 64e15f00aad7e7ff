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

#endif
