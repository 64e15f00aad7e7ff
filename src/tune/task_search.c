/* task_search.c - template and label words for rows that come without a task.
 *
 * Label words start as the words of the labels' names. Two choices are then made by the
 * cross-entropy of the train rows, each row's log-probabilities corrected by the prior of labels
 * over all of them (Zhou et al. 2024, "Batch Calibration"), because untuned models prefer some
 * words whatever the text is and a choice without the correction would go by that preference:
 *
 *  1. the template, of a short list, with the names as words: one question each;
 *  2. the word of each label, among the words of its name and those that are typical of its rows
 *     (largest log-odds of occurring in them): all candidates are asked as labels of one task, in
 *     one question, and combinations are scored from the answers by coordinate descent.
 *
 * A word of the name gives way only to a word that is better by MARGIN: few rows, many words. Dev
 * and test rows take no part, so that what is measured on them stays measured on held-out rows. */
#include "keyhole.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/json_out.h"
#include "base/map.h"
#include "data/task.h"
#include "judge/label_prior.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum {
    ROWS_MOST = 96,      /* asked about; more would cost much and change little */
    TYPICAL = 6,         /* words from the rows of a label, */
    CANDIDATES_MOST = 8, /* and words of a label in all */
    LABELS_MOST = 40,    /* more labels: their names as they are */
    SWEEPS = 3
};
static const double MARGIN = 0.2; /* nats a row: about twice what chance gives on 36 rows */

static const char *const SINGLE[] = { "{text} This is about {mask} .", "{text} . It was {mask} .",
    "[ Category: {mask} ] {text}", "{mask} : {text}", "Topic: {mask} . {text}" };
static const char *const PAIR[] = { "{text_a} ? {mask} , {text_b}",
    "{text_a} . {mask} : {text_b}" };

typedef struct search {
    kh_plm *plm;
    const kh_dataset *train;
    kh_task_search *o;
    kh_row *row; /* [n] of train */
    int n, n_label;
    int asked, to_ask; /* questions, for progress */
    kh_arena arena;
    const char *word[LABELS_MOST][CANDIDATES_MOST];
    int n_word[LABELS_MOST];
    bool nameless[LABELS_MOST]; /* its name is no word of the model's */
} search;

/* ------------------------------------------------------------------------------------- asking */

/* Rows at equal distances, in the order of the file. */
static int take_rows(search *s, kh_err *err) {
    int all = kh_dataset_size(s->train);
    s->n = all < ROWS_MOST ? all : ROWS_MOST;
    s->row = kh_malloc((size_t)s->n * sizeof *s->row);
    if (!s->row)
        return kh_fail_memory(err);
    for (int i = 0; i < s->n; i++)
        s->row[i] = kh_dataset_rows(s->train)[(long long)i * all / s->n];
    return 0;
}

/* logprob [n, task->n_label] */
static int ask(search *s, const kh_task *task, float *logprob, kh_err *err) {
    kh_plm_info box = kh_plm_describe(s->plm);
    kh_batch_opts o = { .max_len = box.max_len, .next = box.next };
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    kh_scorer *scorer = kh_plm_scorer(s->plm, err);
    const kh_tokenizer *tok = kh_plm_tokenizer(s->plm);
    int rc = scorer ? kh_words_new(&words, task, tok, false, err) : KH_EUNSUPPORTED;
    if (rc == 0)
        rc = kh_batch_encode(&batch, tok, task, words, s->row, s->n, &o, err);
    if (rc == 0)
        rc = kh_plm_score(
            scorer, &(kh_question){ .batch = batch, .words = words, .n_prompt = 1 }, logprob, err);
    kh_batch_free(batch);
    kh_words_free(words);
    s->asked++;
    if (rc == 0 && kh_report_progress(s->o->hooks, "label words", s->asked, s->to_ask, NULL) != 0)
        rc = kh_fail(err, KH_STOPPED, "stopped on request");
    return rc;
}

/* The cross-entropy of the rows, a row, after correction by the prior; spoils logprob. */
static int cross_entropy(const search *s, float *logprob, double *out, kh_err *err) {
    size_t n_label = (size_t)s->n_label;
    double *prior = kh_malloc(n_label * sizeof *prior);
    int rc = prior
        ? kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, logprob, s->n, s->n_label, NULL, prior, err)
        : kh_fail_memory(err);
    if (rc == 0)
        kh_label_prior_correct(prior, logprob, s->n, s->n_label);
    *out = 0;
    for (int i = 0; i < s->n && rc == 0; i++)
        *out -= (double)logprob[(size_t)i * n_label + (size_t)s->row[i].label] / s->n;
    kh_free(prior);
    return rc;
}

/* Of the templates, the one with the least cross-entropy. */
static int choose_template(
    search *s, const char *const *list, int n, const char **best, kh_err *err) {
    float *logprob = kh_malloc((size_t)s->n * (size_t)s->n_label * sizeof *logprob);
    double least = INFINITY, ce;
    int rc = logprob ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        const kh_task *task;
        rc = kh_task_of_labels(&task, s->o->name, list[i], s->train, NULL, err);
        if (rc == 0)
            rc = ask(s, task, logprob, err);
        if (rc == 0)
            rc = cross_entropy(s, logprob, &ce, err);
        if (rc == 0 && ce < least) {
            least = ce;
            *best = list[i];
        }
        kh_task_close(task);
    }
    kh_free(logprob);
    return rc;
}

/* --------------------------------------------------------------------------------- candidates */

/* A word as a token of its own, known to the tokenizer. */
static int is_token(const search *s, const char *word, bool *yes, kh_err *err) {
    const kh_tokenizer *tok = kh_plm_tokenizer(s->plm);
    kh_ids ids = { 0 };
    char spaced[80];
    int n = snprintf(spaced, sizeof spaced, " %s", word);
    *yes = false;
    if (n >= (int)sizeof spaced)
        return 0;
    int rc = kh_tokenizer_encode(tok, spaced, (size_t)n, KH_ENCODE_PLAIN, &ids, err);
    *yes = rc == 0 && ids.n == 1 && ids.id[0] != kh_tokenizer_special(tok, KH_TOKEN_UNK);
    kh_ids_free(&ids);
    return rc;
}

/* Whether a label has the word already; a word can stand for one label only. */
static bool is_taken(const search *s, const char *word) {
    for (int k = 0; k < s->n_label; k++)
        for (int j = 0; j < s->n_word[k]; j++)
            if (strcmp(s->word[k][j], word) == 0)
                return true;
    return false;
}

static int add_candidate(search *s, int k, const char *word, kh_err *err) {
    if (s->n_word[k] == CANDIDATES_MOST || is_taken(s, word))
        return 0;
    char *copy = kh_arena_strndup(&s->arena, word, strlen(word));
    if (!copy)
        return kh_fail_memory(err);
    s->word[k][s->n_word[k]++] = copy;
    return 0;
}

/* Words of the names, as the task has them: words of several tokens are kept only where a label has
 * no other. */
static int add_names(search *s, const kh_task *task, kh_err *err) {
    int rc = 0;
    for (int k = 0; k < s->n_label && rc == 0; k++) {
        for (int j = 0; j < task->label[k].n_word && rc == 0; j++) {
            bool token;
            rc = is_token(s, task->label[k].word[j], &token, err);
            if (rc == 0 && token)
                rc = add_candidate(s, k, task->label[k].word[j], err);
        }
        s->nameless[k] = s->n_word[k] == 0;
        if (rc == 0 && s->nameless[k])
            rc = add_candidate(s, k, task->label[k].word[0], err);
    }
    return rc;
}

/* In how many rows of each label each word of the rows occurs. */
typedef struct counts {
    kh_map index; /* word -> number */
    const char **word;
    int *rows; /* [n, n_label] */
    int n;
    size_t cap_word, cap_rows;
} counts;

static int count_word(search *s, counts *c, const char *word, int label, int *last, kh_err *err) {
    int32_t at = c->n;
    char *copy = kh_arena_strndup(&s->arena, word, strlen(word));
    int added = copy ? kh_map_add(&c->index, copy, strlen(copy), at, &at) : -1;
    if (added > 0) {
        size_t n = (size_t)c->n + 1, n_label = (size_t)s->n_label;
        if (!kh_grow(&c->word, &c->cap_word, n, sizeof *c->word) ||
            !kh_grow(&c->rows, &c->cap_rows, n * n_label, sizeof *c->rows))
            added = -1;
        else {
            memset(c->rows + (size_t)c->n * n_label, 0, n_label * sizeof *c->rows);
            c->word[c->n++] = copy;
        }
    }
    if (added < 0)
        return kh_fail_memory(err);
    if (*last != at) /* the commonest repetition; others count twice, which does no harm */
        c->rows[(size_t)at * (size_t)s->n_label + (size_t)label]++;
    *last = at;
    return 0;
}

static int count_text(search *s, counts *c, const char *text, size_t n, int label, kh_err *err) {
    char word[32];
    int length = 0, last = -1, rc = 0;
    for (size_t i = 0; i <= n && rc == 0; i++) {
        unsigned char ch = i < n ? (unsigned char)text[i] : ' ';
        bool letter = isalpha(ch) || ch >= 0x80;
        if (letter && length < (int)sizeof word - 1)
            word[length++] = (char)(ch < 0x80 ? tolower(ch) : ch);
        else if (!letter) {
            word[length] = '\0';
            if (length >= 4)
                rc = count_word(s, c, word, label, &last, err);
            length = 0;
        }
    }
    return rc;
}

/* How typical a word is of a label: the log-odds of its rows against the others, for words of at
 * least two rows. */
static double typical(const counts *c, const int *size, int n_label, int word, int k) {
    const int *rows = c->rows + (size_t)word * (size_t)n_label;
    int others = 0, other_rows = 0;
    for (int j = 0; j < n_label; j++)
        if (j != k) {
            others += rows[j];
            other_rows += size[j];
        }
    return rows[k] < 2
        ? -INFINITY
        : log((rows[k] + 0.5) / (size[k] + 1)) - log((others + 0.5) / (other_rows + 1));
}

static int add_typical(search *s, const counts *c, const int *size, int k, kh_err *err) {
    int rc = 0;
    for (int taken = 0; taken < TYPICAL && rc == 0; taken++) {
        int best = -1;
        double most = log(3); /* less is chance with so few rows */
        for (int w = 0; w < c->n; w++) {
            double x = typical(c, size, s->n_label, w, k);
            bool token;
            if (!(x > most) || is_taken(s, c->word[w]))
                continue;
            if ((rc = is_token(s, c->word[w], &token, err)) != 0)
                return rc;
            if (token) {
                most = x;
                best = w;
            }
        }
        if (best < 0)
            break;
        rc = add_candidate(s, k, c->word[best], err);
    }
    return rc;
}

static int add_words_of_rows(search *s, kh_err *err) {
    counts c = { 0 };
    int size[LABELS_MOST] = { 0 }, rc = 0, n = kh_dataset_size(s->train);
    const kh_row *row = kh_dataset_rows(s->train);
    for (int i = 0; i < n && i < 2000 && rc == 0; i++) {
        size[row[i].label]++;
        rc = count_text(s, &c, row[i].a, row[i].n_a, row[i].label, err);
    }
    for (int k = 0; k < s->n_label && rc == 0; k++)
        rc = add_typical(s, &c, size, k, err);
    kh_map_free(&c.index);
    kh_free(c.word);
    kh_free(c.rows);
    return rc;
}

/* ------------------------------------------------------------------------------- combinations */

/* One task whose labels are the candidates. */
static int candidates_task(
    search *s, const char *template, const kh_task **out, int *total, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 20);
    *total = 0;
    kh_json_out writer = kh_json_out_init(&b, KH_JSON_SPACED), *json = &writer;
    kh_json_open_object(json, NULL);
    kh_json_put_string(json, "name", "words");
    kh_json_put_string(json, "template", template);
    kh_json_open_array(json, "labels");
    for (int k = 0; k < s->n_label; k++)
        for (int j = 0; j < s->n_word[k]; j++) {
            char name[16];
            snprintf(name, sizeof name, "%d", (*total)++);
            kh_json_open_object(json, NULL);
            kh_json_put_string(json, "name", name);
            kh_json_open_array(json, "words");
            kh_json_put_string(json, NULL, s->word[k][j]);
            kh_json_close(json);
            kh_json_close(json);
        }
    kh_json_close(json);
    kh_json_close(json);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err)
                               : kh_task_parse(out, b.data, b.len, "label words", err);
    kh_buf_free(&b);
    return rc;
}

/* The cross-entropy with word pick[k] for label k: columns of `all`, normalised. */
static int score_pick(const search *s, const float *all, int total, const int *pick, float *own,
    double *out, kh_err *err) {
    for (int i = 0; i < s->n; i++) {
        const float *from = all + (size_t)i * (size_t)total;
        float *to = own + (size_t)i * (size_t)s->n_label;
        double sum = 0;
        for (int k = 0, first = 0; k < s->n_label; first += s->n_word[k++]) {
            to[k] = from[first + pick[k]];
            sum += exp((double)to[k]);
        }
        for (int k = 0; k < s->n_label; k++)
            to[k] -= (float)log(sum);
    }
    return cross_entropy(s, own, out, err);
}

static int descend(search *s, const float *all, int total, int *pick, kh_err *err) {
    float *own = kh_malloc((size_t)s->n * (size_t)s->n_label * sizeof *own);
    double best, ce;
    int rc = own ? score_pick(s, all, total, pick, own, &best, err) : kh_fail_memory(err);
    bool moved = true;
    for (int sweep = 0; sweep < SWEEPS && moved && rc == 0; sweep++) {
        moved = false;
        for (int k = 0; k < s->n_label && rc == 0; k++) {
            int kept = pick[k];
            for (int j = 0; j < s->n_word[k] && rc == 0; j++) {
                int before = pick[k];
                pick[k] = j;
                rc = score_pick(s, all, total, pick, own, &ce, err);
                if (rc == 0 && ce < best - (s->nameless[k] ? 0 : MARGIN))
                    best = ce;
                else
                    pick[k] = before;
            }
            moved |= pick[k] != kept;
        }
    }
    kh_free(own);
    return rc;
}

static int choose_words(search *s, const char *template, const char **word, kh_err *err) {
    const kh_task *task = NULL;
    int total = 0, pick[LABELS_MOST] = { 0 };
    float *all = NULL;
    int rc = kh_task_of_labels(&task, s->o->name, template, s->train, NULL, err);
    if (rc == 0)
        rc = add_names(s, task, err);
    kh_task_close(task);
    task = NULL;
    if (rc == 0)
        rc = add_words_of_rows(s, err);
    if (rc == 0)
        rc = candidates_task(s, template, &task, &total, err);
    if (rc == 0 && !(all = kh_malloc((size_t)s->n * (size_t)total * sizeof *all)))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = ask(s, task, all, err);
    if (rc == 0)
        rc = descend(s, all, total, pick, err);
    for (int k = 0; k < s->n_label; k++)
        word[k] = s->word[k][pick[k]];
    kh_free(all);
    kh_task_close(task);
    return rc;
}

int kh_task_make(
    const kh_task **out, kh_plm *plm, const kh_dataset *train, kh_task_search *o, kh_err *err) {
    bool pair = kh_dataset_pairs(train);
    const char *const *list = pair ? PAIR : SINGLE;
    int n_list = pair ? sizeof PAIR / sizeof *PAIR : sizeof SINGLE / sizeof *SINGLE, rc = 0;
    search s = { .plm = plm, .train = train, .o = o, .n_label = kh_dataset_labels(train) };
    const char *template = list[0], *word[LABELS_MOST];
    bool searched = o->ask && s.n_label <= LABELS_MOST;
    long long before = kh_plm_meter(plm).queries;
    *out = NULL;
    s.to_ask = n_list + 1;
    if (searched)
        rc = take_rows(&s, err);
    if (searched && rc == 0)
        rc = choose_template(&s, list, n_list, &template, err);
    if (searched && rc == 0)
        rc = choose_words(&s, template, word, err);
    if (rc == 0)
        rc = kh_task_of_labels(out, o->name, template, train, searched ? word : NULL, err);
    o->queries = kh_plm_meter(plm).queries - before;
    kh_free(s.row);
    kh_arena_free(&s.arena);
    return rc;
}
