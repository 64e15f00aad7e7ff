/* text_box.h - the box, asked with text prompts: what the three methods that search them share.
 *
 * A train row is never asked with itself among the demonstrations: it is left out of them. Label
 * words become tokens once. */
#ifndef KH_TUNE_TEXT_BOX_H
#define KH_TUNE_TEXT_BOX_H

#include "prompt/text_space.h"
#include "tune/method.h"

#define KH_TEXT_ROWS(S, m) \
    { "instructions", KH_OPT_TEXT, offsetof(S, m.instructions), .arg = "FILE", \
        .help = "instructions, one a line, instead of the built-in ones; a line with {mask} is a " \
                "template" }, \
        { "synonyms", KH_OPT_TEXT, offsetof(S, m.synonyms), "builtin", \
            .arg = "builtin|model|none|FILE", \
            .help = "what words of instructions are replaced by: a short list, the model's own " \
                    "guesses, lines \"word: other, other\"" }, \
        { "demos", KH_OPT_INT, offsetof(S, m.demos), "4", .min = 0, .max = 64, .arg = "N", \
            .help = "demonstrations in a prompt, at most" }, \
        { "demo-length", KH_OPT_INT, offsetof(S, m.demo_length), "160", .min = 1, .max = 1 << 16, \
            .arg = "N", .help = "characters of a text that is shown" }, \
    { \
        "edits", KH_OPT_NUMBER, offsetof(S, m.edits), "0.5", \
            .min = 0, .max = 1, .arg = "X", \
            .help = "how probable it is that an instruction is edited" \
    }

typedef struct kh_text_box {
    kh_tuning *t;
    kh_text_space *space;
    kh_scorer *scorer; /* NULL: labels only */
    kh_labeler *labeler;
    kh_words ***words; /* [n_wording][n_words], NULL until they are needed */
    int *demo;         /* scratch: [demos] */
    bool keeps;        /* texts, between questions */
} kh_text_box;

/* scores: log-probabilities are wanted, if the box gives them. Close it also after a failure. */
int kh_text_box_open(
    kh_text_box *, kh_tuning *, const kh_text_space_opts *, bool scores, kh_err *err);
void kh_text_box_close(kh_text_box *);

/* Which rows: the train rows, or others that no demonstration is made of. index [n]: some of them.
 * Answers stand in the order of index: logprob [n, n_label] if the box has a scorer, else label
 * [n]. */
typedef struct kh_text_rows {
    const kh_row *row;
    bool train;
} kh_text_rows;
/* KH_EFORMAT: a service answered with none of the prompt's label words, as may be where it chooses
 * from all words; the prompt is of no use there (kh_text_box_useless). */
int kh_text_box_ask(kh_text_box *, const float *point, const kh_text_rows *, const int *index,
    int n, float *logprob, int *label, kh_err *err);

/* n_point of them about the same rows: logprob [n_point, stride], in each the first n * n_label are
 * the answers. A service that reads texts gets each row once (plm/together.h); any other box is
 * asked as above. */
int kh_text_box_ask_together(kh_text_box *, const float *point, int n_point, const kh_text_rows *,
    const int *index, int n, float *logprob, size_t stride, kh_err *err);

/* Whether a failure means no more than that this prompt is of no use: it is logged, and another one
 * can be tried. That of the task's own prompt is a failure. */
bool kh_text_box_useless(const kh_text_box *, const float *point, int rc, const kh_err *err);

/* Points with weights become the samples of a posterior; equal ones become one. */
int kh_text_box_fill(
    kh_text_box *, const float *point, const double *weight, int n, kh_posterior *, kh_err *err);

#endif
