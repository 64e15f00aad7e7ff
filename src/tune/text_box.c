/* text_box.c - see text_box.h.
 *
 * A text prompt changes the sequence itself, so rows are encoded for each prompt anew; what is
 * shared between prompts are the label words as tokens, cached by (template, words). A train row
 * that a prompt shows as a demonstration is asked without itself: leaving the answer in its own
 * prompt would make every prompt look perfect on the rows it shows. */
#include "tune/text_box.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/map.h"
#include "plm/together.h"

#include <string.h>

int kh_text_box_open(
    kh_text_box *b, kh_tuning *t, const kh_text_space_opts *o, bool scores, kh_err *err) {
    *b = (kh_text_box){ .t = t, .labeler = t->labeler };
    if (scores && kh_plm_describe(t->plm).access >= KH_ACCESS_LOGPROBS)
        b->scorer = kh_plm_scorer(t->plm, err);
    int rc = kh_text_space_new(&b->space, o, t->task, t->plm, t->train_row, t->n_train, err);
    if (rc != 0)
        return rc;
    kh_plm_keep_texts(t->plm, true); /* all prompts are asked about the same rows */
    b->keeps = true;
    int n = b->space->material.n_wording;
    b->words = kh_calloc((size_t)n, sizeof *b->words);
    b->demo = kh_calloc((size_t)b->space->demos + 1, sizeof *b->demo);
    if (!b->words || !b->demo)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        if (!(b->words[i] =
                    kh_calloc((size_t)b->space->material.wording[i].n_words, sizeof **b->words)))
            return kh_fail_memory(err);
    return 0;
}

void kh_text_box_close(kh_text_box *b) {
    if (b->keeps)
        kh_plm_keep_texts(b->t->plm, false);
    for (int i = 0; b->words && i < b->space->material.n_wording; i++) {
        for (int k = 0; b->words[i] && k < b->space->material.wording[i].n_words; k++)
            kh_words_free(b->words[i][k]);
        kh_free(b->words[i]);
    }
    kh_free(b->words);
    kh_free(b->demo);
    kh_text_space_free(b->space);
    *b = (kh_text_box){ 0 };
}

/* The words of a point as tokens. Words are tokenized once for each template they stand in: whether
 * a space belongs to them depends on what is before the mask. */
static int find_words(
    kh_text_box *b, const float *point, const kh_task *task, kh_words **out, kh_err *err) {
    kh_words **w = &b->words[(int)point[KH_TEXT_TEMPLATE]][(int)point[KH_TEXT_WORDS]];
    bool made = *w;
    int rc =
        made ? 0 : kh_words_new(w, task, kh_plm_tokenizer(b->t->plm), b->t->o->paper_exact, err);
    if (rc == 0 && !made && kh_plm_describe(b->t->plm).next)
        kh_words_continue(*w);
    *out = *w;
    return rc;
}

/* A prompt and the rows that it is asked about with the same demonstrations. */
typedef struct asked {
    kh_buf text; /* the template that it is, */
    kh_task task;
    kh_batch *batch; /* filled with the rows */
    kh_question q;
} asked;

static void asked_free(asked *a) {
    kh_batch_free(a->batch);
    kh_buf_free(&a->text);
}

/* The remedy is added here, because only here it is known that demonstrations are what fills the
 * sequence. Free it, failed ones too. */
static int asked_new(
    asked *a, kh_text_box *b, const float *point, int omit, const kh_row *row, int n, kh_err *err) {
    kh_plm_info box = kh_plm_describe(b->t->plm);
    kh_batch_opts o = { .max_len = box.max_len, .next = box.next };
    kh_text_prompt prompt = kh_text_space_prompt(b->space, point, b->demo);
    kh_words *words = NULL;
    kh_err why = { 0 };
    *a = (asked){ .batch = NULL };
    int rc = kh_text_prompt_task(
        &prompt, b->space->task, b->space->row, omit, NULL, &a->text, &a->task, &why);
    if (rc == 0)
        rc = find_words(b, point, &a->task, &words, &why);
    if (rc == 0)
        rc = kh_batch_encode(
            &a->batch, kh_plm_tokenizer(b->t->plm), &a->task, words, row, n, &o, &why);
    bool full = rc == KH_ELIMIT && prompt.n_demo > 0;
    a->q = (kh_question){ a->batch, words, KH_INJECT_NONE, NULL, 1 };
    if (rc == 0)
        return 0;
    return kh_fail(
        err, rc, "%s%s", why.msg, full ? "; a smaller --demos or --demo-length leaves room" : "");
}

/* Rows that are asked with the same demonstrations. */
static int ask_alike(kh_text_box *b, const float *point, int omit, const kh_row *row, int n,
    float *logprob, int *label, kh_err *err) {
    asked a;
    int rc = asked_new(&a, b, point, omit, row, n, err);
    if (rc == 0)
        rc = logprob ? kh_plm_score(b->scorer, &a.q, logprob, err)
                     : kh_plm_answer(b->labeler, &a.q, label, err);
    asked_free(&a);
    return rc;
}

static bool shows(const kh_text_prompt *p, int row) {
    for (int i = 0; i < p->n_demo; i++)
        if (p->demo[i] == row)
            return true;
    return false;
}

/* Rows without a conflict go in one batch; those that the prompt shows, at most as many as it has
 * demonstrations, one by one. Answers return to the places of `index`. */
int kh_text_box_ask(kh_text_box *b, const float *point, const kh_text_rows *rows, const int *index,
    int n, float *logprob, int *label, kh_err *err) {
    kh_text_prompt prompt = kh_text_space_prompt(b->space, point, b->demo);
    int n_label = b->t->task->n_label, many = 0, rc = 0;
    kh_row *row = kh_malloc((size_t)n * sizeof *row + 1);
    int *at = kh_malloc((size_t)n * sizeof *at + 1), *said = kh_calloc((size_t)n + 1, sizeof *said);
    float *answer = logprob ? kh_malloc((size_t)n * (size_t)n_label * sizeof *answer + 1) : NULL;
    if (!row || !at || !said || (logprob && !answer))
        rc = kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        if (!rows->train || !shows(&prompt, index[i])) {
            row[many] = rows->row[index[i]];
            at[many++] = i;
        } else /* alone, without itself */
            rc = ask_alike(b, point, index[i], &rows->row[index[i]], 1,
                logprob ? logprob + (size_t)i * (size_t)n_label : NULL, label ? label + i : NULL,
                err);
    }
    if (rc == 0 && many > 0)
        rc = ask_alike(b, point, -1, row, many, answer, said, err);
    for (int i = 0; i < many && rc == 0; i++) {
        if (logprob)
            memcpy(logprob + (size_t)at[i] * (size_t)n_label, answer + (size_t)i * (size_t)n_label,
                (size_t)n_label * sizeof *answer);
        else
            label[at[i]] = said[i];
    }
    kh_free(row);
    kh_free(at);
    kh_free(said);
    kh_free(answer);
    return rc;
}

/* Rows that all points ask with all of their demonstrations, or a single row; answers [n_point, n,
 * n_label]. */
static int ask_shared(kh_text_box *b, const float *point, int n_point, int omit, const kh_row *row,
    int n, float *answer, kh_err *err) {
    asked *a = kh_calloc((size_t)n_point, sizeof *a);
    kh_question *q = kh_calloc((size_t)n_point, sizeof *q);
    int rc = a && q ? 0 : kh_fail_memory(err), made = 0;
    for (; made < n_point && rc == 0; made++) {
        rc =
            asked_new(&a[made], b, point + (size_t)made * (size_t)b->space->dim, omit, row, n, err);
        q[made] = a[made].q;
    }
    if (rc == 0)
        rc = kh_plm_score_together(b->scorer, q, n_point, answer, err);
    for (int i = 0; i < made; i++)
        asked_free(&a[i]);
    kh_free(a);
    kh_free(q);
    return rc;
}

/* Whether any of the points shows the row. */
static bool any_shows(kh_text_box *b, const float *point, int n_point, int row) {
    for (int i = 0; i < n_point; i++) {
        kh_text_prompt p =
            kh_text_space_prompt(b->space, point + (size_t)i * (size_t)b->space->dim, b->demo);
        if (shows(&p, row))
            return true;
    }
    return false;
}

static int ask_in_turn(kh_text_box *b, const float *point, int n_point, const kh_text_rows *rows,
    const int *index, int n, float *logprob, size_t stride, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < n_point && rc == 0; i++)
        rc = kh_text_box_ask(b, point + (size_t)i * (size_t)b->space->dim, rows, index, n,
            logprob + (size_t)i * stride, NULL, err);
    return rc;
}

/* Rows that no point shows go together; a row that some of them show goes alone, and is left out of
 * their demonstrations: it is still one request. */
int kh_text_box_ask_together(kh_text_box *b, const float *point, int n_point,
    const kh_text_rows *rows, const int *index, int n, float *logprob, size_t stride, kh_err *err) {
    size_t n_label = (size_t)b->t->task->n_label, size = (size_t)n * n_label;
    if (n_point < 2 || !kh_plm_shares(b->t->plm))
        return ask_in_turn(b, point, n_point, rows, index, n, logprob, stride, err);
    kh_row *row = kh_malloc((size_t)n * sizeof *row + 1);
    int *at = kh_malloc((size_t)n * sizeof *at + 1), many = 0, rc = 0;
    float *answer = kh_malloc((size_t)n_point * size * sizeof *answer + 1);
    if (!row || !at || !answer)
        rc = kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        if (!rows->train || !any_shows(b, point, n_point, index[i])) {
            row[many] = rows->row[index[i]];
            at[many++] = i;
            continue;
        }
        rc = ask_shared(b, point, n_point, index[i], &rows->row[index[i]], 1, answer, err);
        for (int p = 0; p < n_point && rc == 0; p++)
            memcpy(logprob + (size_t)p * stride + (size_t)i * n_label, answer + (size_t)p * n_label,
                n_label * sizeof *answer);
    }
    if (rc == 0 && many > 0)
        rc = ask_shared(b, point, n_point, -1, row, many, answer, err);
    for (int p = 0; p < n_point && rc == 0; p++)
        for (int i = 0; i < many; i++)
            memcpy(logprob + (size_t)p * stride + (size_t)at[i] * n_label,
                answer + ((size_t)p * (size_t)many + (size_t)i) * n_label,
                n_label * sizeof *answer);
    kh_free(row);
    kh_free(at);
    kh_free(answer);
    return rc;
}

/* A prompt that a service cannot answer with these words is left out of the search; the task's own
 * template (all coordinates 0) may not be, since then nothing can be answered. */
bool kh_text_box_useless(const kh_text_box *b, const float *point, int rc, const kh_err *err) {
    bool own = true;
    for (int i = 0; i < KH_TEXT_FIRST_DEMO; i++)
        own &= point[i] == 0;
    if (rc != KH_EFORMAT || own)
        return false;
    kh_log(b->t->o->hooks, KH_INFO, "a prompt is left out: %s", err->msg);
    return true;
}

/* ------------------------------------------------------------------------------- the posterior */

/* Adds a prompt; its rows are copied into those that the posterior shows. new_row [n_row]: their
 * numbers there, -1: not yet. */
static int add_prompt(
    kh_text_box *b, const float *point, int *new_row, kh_posterior *p, kh_err *err) {
    kh_text_prompt prompt = kh_text_space_prompt(b->space, point, b->demo);
    int rc = 0;
    for (int i = 0; i < prompt.n_demo && rc == 0; i++) {
        int *to = &new_row[b->demo[i]];
        kh_row *copy;
        if (*to < 0) {
            rc = kh_text_rows_copy(&copy, &p->arena, &b->space->row[b->demo[i]], 1, 0, err);
            *to = p->texts.n_row;
            if (rc == 0)
                p->texts.row[p->texts.n_row++] = *copy;
        }
        b->demo[i] = *to;
    }
    return rc == 0 ? kh_posterior_add_text(p, &prompt, err) : rc;
}

/* Equal points are one prompt with the sum of their weights: a chain visits good prompts often, and
 * predicting with each copy would ask the same question again. */
int kh_text_box_fill(
    kh_text_box *b, const float *point, const double *weight, int n, kh_posterior *p, kh_err *err) {
    size_t dim = (size_t)b->space->dim, bytes = dim * sizeof *point, rows = (size_t)b->space->n_row;
    int *new_row = kh_malloc(rows * sizeof *new_row), rc = 0;
    double *sum = kh_calloc((size_t)n + 1, sizeof *sum);
    kh_map seen = { 0 };
    p->texts.row = kh_arena_array(&p->arena, rows, sizeof *p->texts.row);
    if (!new_row || !sum || !p->texts.row)
        rc = kh_fail_memory(err);
    else
        memset(new_row, -1, rows * sizeof *new_row);
    for (int i = 0; i < n && rc == 0; i++) {
        int32_t same = p->n;
        const char *x = (const char *)(point + (size_t)i * dim);
        if (!kh_map_get(&seen, x, bytes, &same)) {
            same = p->n;
            rc = kh_map_add(&seen, x, bytes, same, NULL) < 0
                ? kh_fail_memory(err)
                : add_prompt(b, point + (size_t)i * dim, new_row, p, err);
        }
        sum[same] += weight[i];
    }
    for (int i = 0; i < p->n && rc == 0; i++)
        p->weight[i] = (float)sum[i];
    kh_map_free(&seen);
    kh_free(new_row);
    kh_free(sum);
    return rc;
}
