/* text_space.h - the text prompts that there may be, how probable each is before anything is known,
 * and steps between them that leave those probabilities alone. doc/methods.md, X1 to X4.
 *
 * A prompt is a point: whole numbers, which stand in floats so that what samples points of R^d
 * (simulator.h) can carry it.
 *
 *     0 template   1 its words   2 instruction   3 edit of it   4 demonstrations   5.. their rows
 *
 * Places behind the last demonstration hold -1, so that equal prompts are equal bytes. */
#ifndef KH_PROMPT_TEXT_SPACE_H
#define KH_PROMPT_TEXT_SPACE_H

#include "base/rng.h"
#include "prompt/instructions.h"
#include "prompt/text_prompt.h"

typedef struct kh_text_space_opts {
    const char *instructions; /* file; NULL: the built-in sets */
    const char *synonyms;     /* "builtin", "model", "none" or a file */
    int demos;                /* demonstrations at most */
    int demo_length;          /* characters of a text that is shown, at most */
    double edits;             /* how probable it is that an instruction is edited */
} kh_text_space_opts;

enum {
    KH_TEXT_TEMPLATE,
    KH_TEXT_WORDS,
    KH_TEXT_INSTRUCTION,
    KH_TEXT_EDIT,
    KH_TEXT_DEMOS,
    KH_TEXT_FIRST_DEMO,
};

typedef struct kh_text_space {
    kh_material material;
    const kh_task *task;
    kh_row *row; /* [n_row] that can be shown, copies */
    int n_row;
    int demos;    /* at most */
    double edits; /* probability */
    int dim;      /* KH_TEXT_FIRST_DEMO + demos */
    kh_arena arena;
} kh_text_space;

/* The box is asked nothing, except for synonyms by "model". rows: those that may be shown. */
int kh_text_space_new(kh_text_space **out, const kh_text_space_opts *, const kh_task *, kh_plm *,
    const kh_row *rows, int n, kh_err *err);
void kh_text_space_free(kh_text_space *);

/* The task's own prompt: no instruction, no demonstration. */
void kh_text_space_own(const kh_text_space *, float *point);
void kh_text_space_draw(const kh_text_space *, kh_rng *, float *point);
double kh_text_space_log_prior(const kh_text_space *, const float *point);
/* A proposal for a Metropolis step, reversible under the prior: with probability b^2 half of the
 * parts, on average, are drawn anew, else one small change is made. 0 < b <= 1. */
void kh_text_space_move(const kh_text_space *, kh_rng *, double b, const float *from, float *point);

/* The prompt of a point; demo [demos] is where its rows go. It borrows from the space. */
kh_text_prompt kh_text_space_prompt(const kh_text_space *, const float *point, int *demo);
/* The label words of a point. */
const kh_label *kh_text_space_words(const kh_text_space *, const float *point);

#endif
