/* wire.h - a question and its answer as JSON: what POST /v1/score carries, written and read by both
 * sides (doc/serving.md).
 *
 * A question by ids, as keyhole's own client sends it:
 *
 *     { "want": "labels"|"logprobs"|"energies", "encoding": "base64"|"json",
 *       "inject": "post-ln-add",
 *       "prompts": { "dtype": "f32"|"f16"|"bf16", "shape": [n, slots, hidden],
 *                    "data": "<base64, little-endian>" },
 *       "ids": [[0, 1000, ...], ...], "mask": [57, ...], "slot": [1, ...], "masks": [1],
 *       "labels": [ [[1099]], [[372], [205]] ] }            label -> words -> token ids
 *
 * or by texts, which the server encodes:
 *
 *     { "want": ..., "inject": ..., "prompts": ..., "slot_ids": [1000, ...],
 *       "task": "sst2"|{...}, "texts": ["...", ...] }
 *
 * An answer:
 *
 *     { "want": "labels", "shape": [n, rows], "labels": [0, 1, ...] }
 *     { "want": "logprobs", "shape": [n, rows, labels], "dtype": "f32", "data": "<base64>" }
 *                                                           or "logprobs": [...]
 *     { "want": "energies", ..., "energy": { "shape": [n, rows], "dtype": "f32",
 *       "data": "<base64>" } }                              or a list
 *
 * Everything read is checked: what kh_wire_question_parse accepts can be given to the engine as it
 * is. */
#ifndef KH_PLM_WIRE_H
#define KH_PLM_WIRE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/json_out.h"
#include "plm/answer_kind.h"

/* ----------------------------------------------------------------------------------- questions */

/* Appends the question; its answer is wanted in base64. */
void kh_wire_question_put(kh_buf *out, const kh_question *, int hidden, kh_answer_kind);

/* What the model and the server's owner allow. */
typedef struct kh_wire_limits {
    int hidden, max_len, vocab;
    int prompts, rows; /* of one request */
    long long tokens;  /* prompts times the tokens of all rows */
    bool next;         /* the model continues texts */
} kh_wire_limits;

typedef struct kh_wire_question {
    kh_answer_kind want;
    bool want_given; /* otherwise: whatever the server lets out */
    bool base64;
    kh_inject inject;
    float *prompt; /* [n_prompt, n_slot, hidden] or NULL */
    int n_prompt, n_slot;
    /* By ids: ready for a kh_question. */
    kh_batch batch;
    kh_words words;
    /* By texts: task is not NULL. */
    const kh_task *task; /* owned */
    kh_row *row;
    int n_row;
    int32_t *slot_id; /* [n_slot], or NULL: the usual ones */
    bool paper_exact;
    kh_arena arena; /* of all but the prompts and the task */
} kh_wire_question;

/* Free it, failed ones too. */
int kh_wire_question_parse(
    kh_wire_question *, const char *body, size_t n, const kh_wire_limits *, kh_err *err);
void kh_wire_question_free(kh_wire_question *);

/* ------------------------------------------------------------------------------------- answers */

/* label [n_prompt, n_row] or logprob [n_prompt, n_row, n_label]; the other is NULL. energy
 * [n_prompt, n_row] or NULL. `model` is the served model's name. */
typedef struct kh_wire_answer {
    const char *model;
    int n_prompt, n_row, n_label;
    const int *label;
    const float *logprob, *energy;
    bool base64;
} kh_wire_answer;
void kh_wire_answer_put(kh_buf *out, const kh_wire_answer *);

/* Reads an answer of exactly this shape into label or logprob (whichever is not NULL), and energy
 * unless it is NULL. `who` is what messages call the service. Labels must be labels,
 * log-probabilities finite or minus infinity, at most 0; energies finite. */
typedef struct kh_wire_wanted {
    int n_prompt, n_row, n_label;
    int *label;
    float *logprob, *energy;
} kh_wire_wanted;
int kh_wire_answer_parse(
    const char *body, size_t n, const kh_wire_wanted *, const char *who, kh_err *err);

/* Fresh floats of {"dtype", "shape": [...], "data"}; at most `most` numbers, rank dimensions, each
 * at least 1. */
int kh_wire_floats(const json_t *obj, const char *place, int rank, size_t most, size_t *shape,
    float **out, kh_err *err);
/* The members "dtype" and "data" of an object that is open. */
void kh_wire_floats_put(kh_json_out *, const float *x, size_t n);

#endif
