/* labelled.c - see labelled.h. Rows are encoded once for each template of their task. */
#include "train/labelled.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/map.h"
#include "data/folder.h"

#include <string.h>

/* One way to ask. */
typedef struct question {
    kh_batch *batch;
    kh_words *words;
    int *first; /* [n_label + 1] words of a label are words->word[first[k]] .. */
} question;

typedef struct kh_labelled_set {
    const kh_task *task;
    question *question; /* [n_question] the task's template, then its variants */
    int n_question;
    int *row;   /* [n_row] row numbers of the batches, label after label */
    int *first; /* [n_label + 1] those of a label are row[first[k]] .. */
    int *label; /* [n_full] labels that have rows */
    int n_full, n_row;
} set;

/* --------------------------------------------------------------------------------- which rows */

/* Texts that must not be learned from. */
typedef struct forbidden {
    kh_map map;
    kh_arena arena;
    kh_buf key;
} forbidden;

static int row_key(forbidden *f, const kh_row *r, kh_err *err) {
    kh_buf_reset(&f->key);
    kh_buf_bytes(&f->key, r->a, r->n_a);
    kh_buf_char(&f->key, '\t');
    if (r->b)
        kh_buf_bytes(&f->key, r->b, r->n_b);
    return kh_buf_failed(&f->key) ? kh_fail_memory(err) : 0;
}

static int forbid_file(forbidden *f, const char *path, const kh_task *task, kh_err *err) {
    kh_dataset *d = NULL;
    int rc = path
        ? kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task, .unlabelled = true }, err)
        : 0;
    for (int i = 0; d && i < kh_dataset_size(d) && rc == 0; i++) {
        rc = row_key(f, &kh_dataset_rows(d)[i], err);
        char *copy = rc == 0 ? kh_arena_strndup(&f->arena, f->key.data, f->key.len) : NULL;
        if (rc == 0 && (!copy || kh_map_add(&f->map, copy, f->key.len, i, NULL) < 0))
            rc = kh_fail_memory(err);
    }
    kh_dataset_close(d);
    return rc;
}

static int forbid_folder(
    forbidden *f, const char *dir, const kh_task *task, const char *test, kh_err *err) {
    kh_split_name *split = NULL;
    int n = 0, rc = forbid_file(f, test, task, err);
    if (rc == 0)
        rc = kh_folder_splits(dir, task, &split, &n, err);
    for (int i = 0; i < n && rc == 0; i++) {
        kh_folder files;
        rc = kh_folder_split(dir, task, split[i].shots, split[i].seed, &files, err);
        if (rc == 0)
            rc = forbid_file(f, files.train, task, err);
        if (rc == 0)
            rc = forbid_file(f, files.dev, task, err);
        if (rc == 0 && files.test && (!test || strcmp(files.test, test) != 0))
            rc = forbid_file(f, files.test, task, err);
        kh_folder_free(&files);
    }
    kh_split_names_free(split, n);
    return rc;
}

/* The rows of a file that may be learned from: *n of them in *out, which points into the file. */
static int choose_rows(forbidden *f, const kh_dataset *d, kh_row **out, int *n, kh_err *err) {
    int all = kh_dataset_size(d), rc = 0;
    const kh_row *row = kh_dataset_rows(d);
    *n = 0;
    *out = kh_calloc((size_t)all + 1, sizeof **out);
    if (!*out)
        return kh_fail_memory(err);
    for (int i = 0; i < all && rc == 0; i++) {
        int32_t where;
        rc = row_key(f, &row[i], err);
        if (rc == 0 && row[i].label >= 0 && !kh_map_get(&f->map, f->key.data, f->key.len, &where))
            (*out)[(*n)++] = row[i];
    }
    return rc;
}

/* ------------------------------------------------------------------------------------ one set */

/* What a model is taught is one token at one mask. */
static int check_words(const question *q, const kh_task *t, kh_err *err) {
    int rc = kh_words_check(q->words, t, err);
    for (int i = 0; i < q->words->n_word && rc == 0; i++)
        if (q->words->word[i].n_token != 1)
            rc = kh_fail(err, KH_EMISMATCH,
                "task \"%s\": the word \"%s\" of label \"%s\" is %d tokens of this vocabulary; "
                "rows "
                "to train on need words of one token",
                t->name, q->words->word[i].text, t->label[q->words->word[i].label].name,
                q->words->word[i].n_token);
    return rc;
}

static int make_question(question *q, const kh_tokenizer *tok, const kh_task *t, const kh_row *rows,
    int n, int longest, kh_err *err) {
    int rc = kh_words_new(&q->words, t, tok, false, err);
    if (rc == 0)
        rc = check_words(q, t, err);
    if (rc == 0)
        rc = kh_batch_encode(
            &q->batch, tok, t, q->words, rows, n, &(kh_batch_opts){ .max_len = longest }, err);
    if (rc != 0)
        return rc;
    q->first = kh_calloc((size_t)t->n_label + 1, sizeof *q->first);
    if (!q->first)
        return kh_fail_memory(err);
    for (int i = 0; i < q->words->n_word; i++)
        q->first[q->words->word[i].label + 1] = i + 1;
    return 0;
}

/* Rows by label, and the labels that have any. */
static int sort_rows(set *s, const kh_row *rows, int n, kh_err *err) {
    int labels = s->task->n_label;
    s->row = kh_calloc((size_t)n, sizeof *s->row);
    s->first = kh_calloc((size_t)labels + 1, sizeof *s->first);
    s->label = kh_calloc((size_t)labels, sizeof *s->label);
    if (!s->row || !s->first || !s->label)
        return kh_fail_memory(err);
    for (int k = 0; k < labels; k++) {
        s->first[k] = s->n_row;
        for (int i = 0; i < n; i++)
            if (rows[i].label == k)
                s->row[s->n_row++] = i;
        if (s->n_row > s->first[k])
            s->label[s->n_full++] = k;
    }
    s->first[labels] = s->n_row;
    return 0;
}

static int make_set(
    set *s, const kh_tokenizer *tok, const kh_row *rows, int n, int longest, kh_err *err) {
    const kh_task *t = s->task;
    s->n_question = 1 + t->n_variant;
    s->question = kh_calloc((size_t)s->n_question, sizeof *s->question);
    int rc = s->question ? sort_rows(s, rows, n, err) : kh_fail_memory(err);
    for (int i = 0; i < s->n_question && rc == 0; i++)
        rc = make_question(
            &s->question[i], tok, i == 0 ? t : &t->variant[i - 1], rows, n, longest, err);
    return rc;
}

static int read_set(
    set *s, const kh_tokenizer *tok, const kh_labelled_opts *o, int i, int longest, kh_err *err) {
    forbidden f = { .key = kh_buf_init(KH_BUF_MAX) };
    kh_folder files = { 0 };
    kh_dataset *d = NULL;
    kh_row *rows = NULL;
    int n = 0, rc = kh_task_open(&s->task, o->task[i], err);
    if (rc == 0)
        rc = kh_folder_find(o->dir[i], &files, err);
    if (rc == 0 && !files.train)
        rc = kh_fail(err, KH_EMISSING, "%s: holds no train.tsv, .csv or .jsonl", o->dir[i]);
    if (rc == 0)
        rc = kh_dataset_open(&d, files.train, &(kh_dataset_opts){ .task = s->task }, err);
    if (rc == 0)
        rc = forbid_folder(&f, o->dir[i], s->task, files.test, err);
    if (rc == 0)
        rc = choose_rows(&f, d, &rows, &n, err);
    if (rc == 0 && n == 0)
        rc = kh_fail(err, KH_EARG,
            "%s: no row is left to train on: all %d are also in the test file or in ready-made "
            "few-shot splits",
            files.train, kh_dataset_size(d));
    if (rc == 0)
        rc = make_set(s, tok, rows, n, longest, err);
    if (rc == 0)
        kh_log(o->hooks, KH_INFO,
            "%s: %d rows for task %s in %d templates; %d are left to judge with", files.train, n,
            s->task->name, s->n_question, kh_dataset_size(d) - n);
    kh_free(rows);
    kh_dataset_close(d);
    kh_folder_free(&files);
    kh_map_free(&f.map);
    kh_arena_free(&f.arena);
    kh_buf_free(&f.key);
    return rc;
}

int kh_labelled_read(
    kh_labelled *l, const kh_tokenizer *tok, const kh_labelled_opts *o, int longest, kh_err *err) {
    *l = (kh_labelled){ .set = kh_calloc((size_t)o->n + 1, sizeof *l->set),
        .share = kh_calloc((size_t)o->n + 1, sizeof *l->share) };
    int rc = l->set && l->share ? 0 : kh_fail_memory(err);
    for (int i = 0; i < o->n && rc == 0; i++) {
        l->n++;
        rc = read_set(&l->set[i], tok, o, i, longest, err);
        l->share[i] = o->weight[i] * l->set[i].n_row;
    }
    return rc;
}

void kh_labelled_free(kh_labelled *l) {
    for (int i = 0; i < l->n; i++) {
        set *s = &l->set[i];
        for (int q = 0; s->question && q < s->n_question; q++) {
            kh_batch_free(s->question[q].batch);
            kh_words_free(s->question[q].words);
            kh_free(s->question[q].first);
        }
        kh_free(s->question);
        kh_free(s->row);
        kh_free(s->first);
        kh_free(s->label);
        kh_task_close(s->task);
    }
    kh_free(l->set);
    kh_free(l->share);
    *l = (kh_labelled){ 0 };
}

int kh_labelled_rows(const kh_labelled *l, int i) { return l->set[i].n_row; }
const char *kh_labelled_name(const kh_labelled *l, int i) { return l->set[i].task->name; }

/* -------------------------------------------------------------------------------------- a draw */

static int draw(kh_rng *rng, int from, int to) {
    return from + (int)kh_rng_below(rng, (uint32_t)(to - from));
}

int kh_labelled_add(
    const kh_labelled *l, const kh_masker *m, kh_rng *rng, kh_masked *batch, kh_err *err) {
    const set *s = &l->set[kh_rng_categorical(rng, l->share, l->n)];
    int label = s->label[draw(rng, 0, s->n_full)];
    int row = s->row[draw(rng, s->first[label], s->first[label + 1])];
    const question *q = &s->question[draw(rng, 0, s->n_question)];
    const kh_word *word = &q->words->word[draw(rng, q->first[label], q->first[label + 1])];
    const kh_batch *b = q->batch;
    return kh_masked_add_asked(batch, m, b->id + b->start[row],
        (int)(b->start[row + 1] - b->start[row]), b->mask[row], word->id[0], err);
}
