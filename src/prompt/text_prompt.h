/* text_prompt.h - a prompt that is nothing but text, for boxes that take nothing else.
 *
 * It has four parts: an instruction, labelled rows shown as demonstrations in their order, a
 * template, and the words that stand for the labels. Written one below the other they are one long
 * template, and so every box can be asked with it: masked models, models that continue texts, and
 * services that take instructions and options. */
#ifndef KH_PROMPT_TEXT_PROMPT_H
#define KH_PROMPT_TEXT_PROMPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "keyhole.h"

typedef struct kh_text_prompt {
    const char *instruction; /* plain text; "" is none */
    const char *template;    /* as tasks have them, without {prompt} */
    const kh_label *label;   /* [n_label] the task's names, and the prompt's own words */
    const int *demo;         /* [n_demo] rows, in the order in which they are shown */
    int n_demo;
} kh_text_prompt;

/* Those of a posterior. */
typedef struct kh_text_prompts {
    kh_text_prompt *prompt; /* [n] */
    int n;                  /* 0: it has none */
    kh_row *row;            /* [n_row] that demonstrations count in */
    int n_row;
} kh_text_prompts;

/* Appends the whole prompt as one template. omit: a row that is left out of the demonstrations,
 * because it is the one in question; -1: none. then: the template in the end; NULL: the prompt's
 * own. */
void kh_text_prompt_write(const kh_text_prompt *, const kh_task *, const kh_row *rows, int omit,
    const char *then, kh_buf *out);
/* The task that asks with it: the prompt's words, and a template that lives in *text. */
int kh_text_prompt_task(const kh_text_prompt *, const kh_task *, const kh_row *rows, int omit,
    const char *then, kh_buf *text, kh_task *out, kh_err *err);
/* The same as a person would paste it: texts instead of braces, the label words listed. */
void kh_text_prompt_show(const kh_text_prompt *, const kh_task *, const kh_row *rows, kh_buf *out);

/* A copy of a prompt, and of all that it points to, as the next one of those of a posterior; rows
 * stay numbers. */
int kh_text_prompts_add(
    kh_text_prompts *, kh_arena *, const kh_text_prompt *, int n_label, size_t *cap, kh_err *err);
/* Copies of rows; texts longer than `most` characters (0: any) end at a word before. */
int kh_text_rows_copy(
    kh_row **out, kh_arena *, const kh_row *rows, int n, size_t most, kh_err *err);

#endif
