/* predict.c - a posterior at work: rows -> predictive distributions.
 *
 * Prompts are made once, when the predictor is: a projection at a time, so that only one A is in
 * memory however many an ensemble has. Then rows pass in chunks, each with all prompts; sums are
 * taken in the order of the samples. With demonstrations, rows are asked in groups that have room
 * for equally many of them. With an adapter the box is open: a head reads its hidden states, and
 * prefixes go into its layers. */
#include "posterior/predict.h"

#include "base/alloc.h"
#include "base/err.h"
#include "data/task.h"
#include "judge/calibrate.h"
#include "judge/class_prior.h"
#include "posterior/distance.h"
#include "posterior/features.h"
#include "posterior/posterior.h"
#include "plm/http.h"
#include "plm/together.h"
#include "prompt/target.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    /* rows and prompts that are asked in one question: enough to fill the engine, and what is in
     * flight when something fails is little */
    ROWS_AT_ONCE = 64,
    PROMPTS_AT_ONCE = 32,
    SAMPLES_AT_ONCE = 64, /* orders, text prompts: as many as a request to a service carries */
    HEAD_SHARDS = 8,      /* threads that a head can use; its answers do not depend on it */
};

static const double LEAST_P = 1e-12; /* logarithms for a calibrator end here */

struct kh_predictor {
    const kh_posterior *post;
    kh_plm *plm;
    const kh_task *task;
    kh_task foreign;   /* task, if it is another one's template with our label words */
    kh_scorer *scorer; /* NULL: samples vote */
    kh_labeler *labeler;
    kh_words *words;
    kh_batch_opts batch, plain; /* rows for the samples, and for the template beside them */
    float *prompts;             /* [n, slots, hidden] */
    kh_head *head;              /* if the adapter is one */
    kh_encoder *encoder;        /* of distances, opened when they are first wanted; */
    bool no_encoder;            /* it cannot be */
    kh_words **text_words;      /* [n] text prompts: their label words */
    bool foreign_rows;          /* from another task: its template stands below the prompts */
    int *
        tokens; /* demonstrations: [n_order, n_shown + 1] what the first k of them take in tokens */
};

/* ------------------------------------------------------------------------------ pure functions */

/* (T1), not yet divided: probabilities are added, weighted, in the order of the samples. A row that
 * a service refused (NaN) adds nothing. */
void kh_mixture_add(
    double *p, const float *logprob, const float *weight, int n_sample, int n_row, int n_label) {
    for (int s = 0; s < n_sample; s++)
        for (int i = 0; i < n_row; i++, logprob += n_label)
            for (int k = 0; k < n_label && !kh_is_missing(logprob); k++)
                p[(size_t)i * (size_t)n_label + (size_t)k] +=
                    (double)weight[s] * exp((double)logprob[k]);
}

/* Weights add up to one but for rounding, and less where samples were refused: the sum is made one
 * again. NaN: no sample answered. */
void kh_mixture_finish(double *p, int n_row, int n_label) {
    for (int i = 0; i < n_row; i++, p += n_label) {
        double total = 0;
        for (int k = 0; k < n_label; k++)
            total += p[k];
        for (int k = 0; k < n_label; k++)
            p[k] = total > 0 ? p[k] / total : NAN;
    }
}

/* doc/judging.md, [29]: the mean of the energies, not the energy of the mixture (-log of the mean
 * of exp(-energy)): a prompt moves the logits of all rows by an amount of its own, and in a sum of
 * exponentials the one prompt with the largest would speak for all. */
void kh_mixture_energy(
    double *mean, const float *energy, const float *weight, int n_sample, int n_row) {
    for (int s = 0; s < n_sample; s++)
        for (int i = 0; i < n_row; i++)
            mean[i] += (double)weight[s] * (double)*energy++;
}

/* Where the answers of samples are added up for a part of the rows. */
typedef struct sums {
    double *p, *votes, *ambiguity, *energy; /* without p no sums; the others may be NULL */
    float *
        each; /* NULL, or [samples, n_each, n_label], where the part begins in the first sample's */
    int n_each;
} sums;

/* What some samples say of a part of the rows. */
typedef struct said {
    float *logprob; /* [n_sample, n_row, n_label] */
    float *energy;  /* [n_sample, n_row]; NULL: not wanted */
} said;

/* (T2) beside (T1): whose first choice a class is, and the mean entropy of the samples, the part of
 * the uncertainty that more prompts would not remove ([10] of doc/judging.md). */
void kh_mixture_parts(double *votes, double *ambiguity, const float *logprob, const float *weight,
    int n_sample, int n_row, int n_label) {
    for (int s = 0; s < n_sample; s++)
        for (int i = 0; i < n_row; i++, logprob += n_label) {
            int best = 0;
            double entropy = 0;
            if (kh_is_missing(logprob))
                continue;
            for (int k = 0; k < n_label; k++) {
                best = logprob[k] > logprob[best] ? k : best;
                entropy -= isinf(logprob[k]) ? 0 : exp((double)logprob[k]) * (double)logprob[k];
            }
            votes[(size_t)i * (size_t)n_label + (size_t)best] += (double)weight[s];
            ambiguity[i] += (double)weight[s] * entropy;
        }
}

/* Shares are of the samples that a service answered; if that was none, nothing is known. */
static void of_those_who_spoke(double *votes, double *ambiguity, int n_label) {
    double spoke = 0;
    for (int k = 0; k < n_label; k++)
        spoke += votes[k];
    if (spoke > 1 - 1e-3) /* all of them; weights are rounded */
        return;
    for (int k = 0; k < n_label; k++)
        votes[k] = spoke > 0 ? votes[k] / spoke : NAN;
    *ambiguity = spoke > 0 ? *ambiguity / spoke : NAN;
}

/* Samples from `first` on. What they say need not stay what it is. */
static void add_samples(
    const kh_predictor *p, const sums *out, const said *x, int first, int n_sample, int n_row) {
    const kh_posterior *post = p->post;
    int n_label = p->task->n_label;
    size_t size = (size_t)n_row * (size_t)n_label;
    for (int s = 0; s < n_sample && out->each; s++)
        memcpy(out->each + (size_t)(first + s) * (size_t)out->n_each * (size_t)n_label,
            x->logprob + (size_t)s * size, size * sizeof *x->logprob);
    if (!out->p)
        return;
    for (int s = 0; s < n_sample && post->log_prior; s++)
        kh_label_prior_correct(post->log_prior + (size_t)(first + s) * (size_t)n_label,
            x->logprob + (size_t)s * size, n_row, n_label);
    kh_mixture_add(out->p, x->logprob, post->weight + first, n_sample, n_row, n_label);
    if (out->votes)
        kh_mixture_parts(
            out->votes, out->ambiguity, x->logprob, post->weight + first, n_sample, n_row, n_label);
    if (out->energy)
        kh_mixture_energy(out->energy, x->energy, post->weight + first, n_sample, n_row);
}

/* ------------------------------------------------------------------------- does it belong here */

/* Prompts mean something to the model that they were tuned for and to no other: width, tokenizer
 * and weights must be the same, and the sentence says which is not. */
static int check_model(const kh_posterior *post, const kh_plm *plm, kh_err *err) {
    kh_plm_info info = kh_plm_describe(plm);
    uint64_t tokenizer = kh_tokenizer_fingerprint(kh_plm_tokenizer(plm));
    if (post->soft && post->space.hidden != info.hidden)
        return kh_fail(err, KH_EMISMATCH,
            "the posterior was made with another model: its prompts have %d numbers a slot, this "
            "model has %d",
            post->space.hidden, info.hidden);
    if (post->tokenizer != tokenizer)
        return kh_fail(err, KH_EMISMATCH,
            "the posterior was made with another tokenizer: fingerprint %016" PRIx64
            ", this one has %016" PRIx64,
            post->tokenizer, tokenizer);
    if (post->fingerprint != info.fingerprint)
        return kh_fail(err, KH_EMISMATCH,
            "the posterior was made with other weights (%s): fingerprint %016" PRIx64
            ", this model has %016" PRIx64,
            post->model ? post->model : "of a model not known by path", post->fingerprint,
            info.fingerprint);
    return 0;
}

/* The posterior's sizes are its file's word; the model's decide. */
static int check_adapter(const kh_posterior *post, kh_plm *plm, kh_err *err) {
    const kh_adapter *g = &post->adapter;
    struct kh_engine *e;
    int rc = kh_plm_trainable(plm, &e, err);
    if (rc == 0 && g->hidden != kh_plm_describe(plm).hidden)
        rc = kh_fail(err, KH_EMISMATCH,
            "the posterior's %s is for states of %d numbers; those of this model have %d",
            kh_adapter_name(g->kind), g->hidden, kh_plm_describe(plm).hidden);
    return rc;
}

static bool same(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* Names and words in their order: a task that lists its labels the other way round would turn every
 * answer into its opposite. */
static int check_labels(const kh_task *was, const kh_task *is, kh_err *err) {
    if (was->n_label != is->n_label)
        return kh_fail(err, KH_EMISMATCH,
            "the posterior was made for task \"%s\" with %d labels; task \"%s\" has %d", was->name,
            was->n_label, is->name, is->n_label);
    for (int k = 0; k < was->n_label; k++) {
        const kh_label *a = &was->label[k], *b = &is->label[k];
        bool words = a->n_word == b->n_word;
        for (int i = 0; i < a->n_word && words; i++)
            words = same(a->word[i], b->word[i]);
        if (!same(a->name, b->name))
            return kh_fail(err, KH_EMISMATCH,
                "the posterior was made for task \"%s\" whose label %d is \"%s\"; in task \"%s\" "
                "it is \"%s\"",
                was->name, k, a->name, is->name, b->name);
        if (!words)
            return kh_fail(err, KH_EMISMATCH,
                "the posterior was made for task \"%s\" whose label \"%s\" has the words \"%s\"%s; "
                "in task \"%s\" they are "
                "\"%s\"%s",
                was->name, a->name, a->word[0], a->n_word > 1 ? ", ..." : "", is->name, b->word[0],
                b->n_word > 1 ? ", ..." : "");
    }
    return 0;
}

/* Only the template that is used is compared: a task may have gained one for decoders since. */
static int check_task(const kh_posterior *post, const kh_task *is, bool next, kh_err *err) {
    const kh_task *was = post->task;
    bool soft = post->soft && post->space.placement == KH_SLOTS_TEMPLATE;
    const char *a = kh_task_template(was, soft, next), *b = kh_task_template(is, soft, next);
    if (!same(a, b))
        return kh_fail(err, KH_EMISMATCH,
            "the posterior was made for task \"%s\" with the template \"%s\"; that of task \"%s\" "
            "is \"%s\"",
            was->name, a, is->name, b);
    return check_labels(was, is, err);
}

/* ------------------------------------------------------------------------------------- prompts */

/* (T3) for every sample. Samples of one run share their projection, members of an ensemble have one
 * each. */
static int make_prompts(kh_predictor *p, kh_err *err) {
    const kh_posterior *post = p->post;
    const kh_space *s = &post->space;
    size_t size = (size_t)s->slots * (size_t)s->hidden, dim = (size_t)s->dim;
    int rc = 0;
    p->prompts = kh_calloc((size_t)post->n * size, sizeof *p->prompts);
    if (!p->prompts)
        return kh_fail_memory(err);
    for (int first = 0, n; first < post->n && rc == 0;
         first += n) { /* runs of samples that share their A */
        kh_subspace *space;
        for (n = 1; first + n < post->n && post->projection[first + n] == post->projection[first];)
            n++;
        rc = kh_subspace_new(&space, s, p->plm, post->projection[first], err);
        if (rc == 0)
            rc = kh_subspace_prompts(
                space, post->z + (size_t)first * dim, n, p->prompts + (size_t)first * size, err);
        kh_subspace_free(space);
    }
    return rc;
}

/* One chunk of rows with all prompts. */
static int ask_prompts(
    kh_predictor *p, const kh_row *rows, int n, const said *x, const sums *out, kh_err *err) {
    const kh_posterior *post = p->post;
    size_t size = (size_t)post->space.slots * (size_t)post->space.hidden;
    kh_batch *batch;
    int rc = kh_batch_encode(
        &batch, kh_plm_tokenizer(p->plm), p->task, p->words, rows, n, &p->batch, err);
    for (int s = 0; s < post->n && rc == 0; s += PROMPTS_AT_ONCE) {
        int some = post->n - s < PROMPTS_AT_ONCE ? post->n - s : PROMPTS_AT_ONCE;
        kh_question q = { batch, p->words, post->soft ? post->space.inject : KH_INJECT_NONE,
            post->soft ? p->prompts + (size_t)s * size : NULL, some };
        rc = kh_ask(p->scorer, p->labeler, &q, x->logprob, x->energy, err);
        if (rc == 0)
            add_samples(p, out, x, s, some, n);
    }
    kh_batch_free(batch);
    return rc;
}

int kh_predictor_cuts(kh_predictor *p, const kh_row *row, bool *cut, kh_err *err) {
    kh_batch *batch = NULL;
    int rc = kh_batch_encode(
        &batch, kh_plm_tokenizer(p->plm), p->task, p->words, row, 1, &p->batch, err);
    *cut = rc == 0 && batch->n_truncated + batch->n_dropped > 0;
    kh_batch_free(batch);
    return rc;
}

/* ------------------------------------------------------------------------------------ adapters */

/* The same states as in tuning (posterior/features.c), so that a head answers about a row of tuning
 * what it answered then. */
static int ask_head(kh_predictor *p, const kh_row *rows, int n, const said *x, kh_err *err) {
    const kh_adapter *g = &p->post->adapter;
    kh_features f = { 0 };
    double loss;
    int rc = kh_features_read(&f, p->plm, p->task, p->words, &p->batch, g->pool, rows, n, err);
    if (rc == 0)
        rc = kh_head_run(p->head, g->x, f.row, n, false, x->logprob, &loss, err);
    kh_features_free(&f);
    return rc;
}

static int ask_prefixed(kh_predictor *p, const kh_row *rows, int n, const said *x, kh_err *err) {
    kh_batch *batch;
    int rc = kh_batch_encode(
        &batch, kh_plm_tokenizer(p->plm), p->task, p->words, rows, n, &p->batch, err);
    if (rc == 0)
        rc = kh_plm_score_prefixed(p->plm,
            &(kh_question){ .batch = batch, .words = p->words, .inject = KH_INJECT_NONE },
            &p->post->adapter, x->logprob, x->energy, err);
    kh_batch_free(batch);
    return rc;
}

/* One chunk of rows. */
static int ask_adapter(
    kh_predictor *p, const kh_row *rows, int n, const said *x, const sums *out, kh_err *err) {
    int rc = p->head ? ask_head(p, rows, n, x, err) : ask_prefixed(p, rows, n, x, err);
    if (rc == 0)
        add_samples(p, out, x, 0, 1, n);
    return rc;
}

/* ------------------------------------------------------------------------------ demonstrations */

/* The task with k demonstrations of an order in front of its template, which lives in *text. */
static int shown(const kh_predictor *p, int order, int k, kh_buf *text, kh_task *out, kh_err *err) {
    *text = kh_buf_init(KH_BUF_MAX);
    bool next = p->batch.next;
    kh_demos_template(&p->post->demos, p->post->task, next, order, k,
        kh_task_template(p->task, false, next), text);
    *out = *p->task;
    out->plain = out->next_plain = text->data;
    return kh_buf_failed(text) ? kh_fail_memory(err) : 0;
}

/* How many tokens the longest sequence of a row has with k demonstrations before it, uncut. */
static int measure(
    const kh_predictor *p, int order, int k, const kh_row *row, int *tokens, kh_err *err) {
    kh_buf text;
    kh_task task;
    kh_batch *batch = NULL;
    kh_batch_opts whole = { .max_len = INT_MAX / 2, .next = p->batch.next };
    int rc = shown(p, order, k, &text, &task, err);
    if (rc == 0)
        rc =
            kh_batch_encode(&batch, kh_plm_tokenizer(p->plm), &task, p->words, row, 1, &whole, err);
    *tokens = rc == 0 ? batch->max_len : 0;
    kh_batch_free(batch);
    kh_buf_free(&text);
    return rc;
}

/* Tokens of the first k demonstrations of each order with an empty row behind them, once: how many
 * fit before a row is looked up afterwards. */
static int measure_demos(kh_predictor *p, kh_err *err) {
    const kh_demos *d = &p->post->demos;
    kh_row empty = { .a = "", .b = p->task->pair ? "" : NULL, .label = -1 };
    int rc = 0;
    p->tokens = kh_calloc((size_t)d->n_order * ((size_t)d->n_shown + 1), sizeof *p->tokens);
    if (!p->tokens)
        return kh_fail_memory(err);
    for (int o = 0; o < d->n_order && rc == 0; o++) {
        int *tokens = p->tokens + (size_t)o * ((size_t)d->n_shown + 1);
        for (int k = 0; k <= d->n_shown && rc == 0; k++)
            if (k > 0 && tokens[k - 1] > p->batch.max_len)
                tokens[k] = tokens[k - 1]; /* none of the longer ones fits either */
            else
                rc = measure(p, o, k, &empty, &tokens[k], err);
    }
    return rc;
}

/* Rows that an order asks with equally many demonstrations in front. */
typedef struct group {
    kh_row row[ROWS_AT_ONCE];
    int index[ROWS_AT_ONCE]; /* which row of the chunk */
    int n;
} group;

/* Asks a group with k demonstrations. Rows that are too long with so many (k > 0) stay in the group
 * for fewer; the others leave it with their answers in x. */
static int ask_group(kh_predictor *p, int order, int k, group *g, const said *x, kh_err *err) {
    int n_label = p->task->n_label;
    kh_batch_opts o = p->batch;
    o.paper_exact = k > 0; /* leave long rows out and say which, rather than cut them */
    kh_buf text;
    kh_task task;
    kh_batch *batch = NULL;
    float *answer = kh_calloc((size_t)g->n * ((size_t)n_label + 1), sizeof *answer);
    float *energy = x->energy && answer ? answer + (size_t)g->n * (size_t)n_label : NULL;
    int rc = shown(p, order, k, &text, &task, err);
    if (rc == 0 && !answer)
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_batch_encode(
            &batch, kh_plm_tokenizer(p->plm), &task, p->words, g->row, g->n, &o, err);
    if (rc == 0)
        rc = kh_ask(p->scorer, p->labeler,
            &(kh_question){ batch, p->words, KH_INJECT_NONE, NULL, 1 }, answer, energy, err);
    if (rc == 0) {
        int kept = 0, next = 0;
        for (int i = 0; i < g->n; i++)
            if (next < batch->n_row && batch->row[next] == i) {
                memcpy(x->logprob + (size_t)g->index[i] * (size_t)n_label,
                    answer + (size_t)next * (size_t)n_label, (size_t)n_label * sizeof *answer);
                if (energy)
                    x->energy[g->index[i]] = energy[next];
                next++;
            } else {
                g->row[kept] = g->row[i];
                g->index[kept++] = g->index[i];
            }
        g->n = kept;
    }
    kh_batch_free(batch);
    kh_buf_free(&text);
    kh_free(answer);
    return rc;
}

/* Whether k demonstrations of an order, whose tokens are given, leave room for a row that takes
 * `more` than an empty one. */
static bool has_room(const kh_predictor *p, const int *tokens, int k, int more) {
    return k == 0 || (tokens[k] <= p->batch.max_len && tokens[k] + more <= p->batch.max_len);
}

/* Whether every order has room for all of its demonstrations in front of each row. */
static bool all_fit(const kh_predictor *p, const int *more, int n) {
    const kh_demos *d = &p->post->demos;
    for (int o = 0; o < d->n_order; o++)
        for (int i = 0; i < n; i++)
            if (!has_room(p, p->tokens + (size_t)o * ((size_t)d->n_shown + 1), d->n_shown, more[i]))
                return false;
    return true;
}

/* The task of a sample as text: an order with all its demonstrations, or a text prompt, whose words
 * are its own. */
static int written(const kh_predictor *p, int sample, kh_buf *text, kh_task *task, kh_err *err) {
    const kh_posterior *post = p->post;
    if (post->texts.n == 0)
        return shown(p, sample, post->demos.n_shown, text, task, err);
    const char *then = p->foreign_rows ? kh_task_template(p->task, false, p->batch.next) : NULL;
    int rc = kh_text_prompt_task(
        &post->texts.prompt[sample], post->task, post->texts.row, -1, then, text, task, err);
    task->pair = p->task->pair;
    return rc;
}

/* Samples [first, first + n) in one question: answers [n, n_row, n_label]. */
static int ask_some(
    kh_predictor *p, const kh_row *rows, int n_row, int first, int n, float *answer, kh_err *err) {
    kh_buf text[SAMPLES_AT_ONCE];
    kh_task task[SAMPLES_AT_ONCE];
    kh_batch *batch[SAMPLES_AT_ONCE] = { NULL };
    kh_question q[SAMPLES_AT_ONCE];
    int made = 0, rc = 0;
    for (; made < n && rc == 0; made++) {
        const kh_words *words = p->text_words ? p->text_words[first + made] : p->words;
        rc = written(p, first + made, &text[made], &task[made], err);
        if (rc == 0)
            rc = kh_batch_encode(&batch[made], kh_plm_tokenizer(p->plm), &task[made], words, rows,
                n_row, &p->batch, err);
        q[made] = (kh_question){ batch[made], words, KH_INJECT_NONE, NULL, 1 };
    }
    if (rc == 0)
        rc = kh_ask_together(p->scorer, p->labeler, q, n, answer, err);
    for (int i = 0; i < made; i++) {
        kh_batch_free(batch[i]);
        kh_buf_free(&text[i]);
    }
    return rc;
}

/* All samples, several of them in one question: a service that takes texts gets each row once. */
static int ask_together(kh_predictor *p, const kh_row *rows, int n, const sums *out, kh_err *err) {
    size_t size = (size_t)n * (size_t)p->task->n_label;
    int rc = 0, all = p->post->n;
    float *answer = kh_malloc(SAMPLES_AT_ONCE * size * sizeof *answer);
    if (!answer)
        return kh_fail_memory(err);
    for (int s = 0, some; s < all && rc == 0; s += some) {
        some = all - s < SAMPLES_AT_ONCE ? all - s : SAMPLES_AT_ONCE;
        rc = ask_some(p, rows, n, s, some, answer, err);
        if (rc == 0)
            add_samples(p, out, &(said){ .logprob = answer }, s, some, n);
    }
    kh_free(answer);
    return rc;
}

/* One chunk of rows with every order. A row's tokens are counted behind one demonstration, as its
 * first word may be cut otherwise at the start of a text; behind more of them it takes as many.
 * Should a tokenizer not add up like that, the row turns out too long and moves on to fewer
 * demonstrations. */
static int ask_demos(
    kh_predictor *p, const kh_row *rows, int n, const said *x, const sums *out, kh_err *err) {
    const kh_demos *d = &p->post->demos;
    int more[ROWS_AT_ONCE], rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = measure(p, 0, d->n_shown > 0, &rows[i], &more[i], err);
        more[i] -= p->tokens[d->n_shown > 0];
    }
    if (rc == 0 && d->n_order > 1 && kh_plm_shares(p->plm) && all_fit(p, more, n))
        return ask_together(p, rows, n, out, err);
    for (int o = 0; o < d->n_order && rc == 0; o++) {
        const int *tokens = p->tokens + (size_t)o * ((size_t)d->n_shown + 1);
        group g = { .n = 0 };
        for (int k = d->n_shown; k >= 0 && rc == 0; k--) {
            for (int i = 0; i < n; i++)
                if (has_room(p, tokens, k, more[i]) &&
                    (k == d->n_shown || !has_room(p, tokens, k + 1, more[i]))) {
                    g.row[g.n] = rows[i];
                    g.index[g.n++] = i;
                }
            if (g.n > 0)
                rc = ask_group(p, o, k, &g, x, err);
        }
        if (rc == 0)
            add_samples(p, out, x, o, 1, n);
    }
    return rc;
}

/* -------------------------------------------------------------------------------- text prompts */

static int make_text_words(kh_predictor *p, kh_err *err) {
    const kh_posterior *post = p->post;
    int rc = 0;
    p->text_words = kh_calloc((size_t)post->n, sizeof *p->text_words);
    if (!p->text_words)
        return kh_fail_memory(err);
    for (int s = 0; s < post->n && rc == 0; s++) {
        kh_task task = *p->task;
        task.label = post->texts.prompt[s].label;
        rc = kh_words_new(
            &p->text_words[s], &task, kh_plm_tokenizer(p->plm), post->paper_exact, err);
        if (rc == 0 && p->batch.next)
            kh_words_continue(p->text_words[s]);
    }
    return rc;
}

/* One chunk of rows with every text. */
static int ask_texts(
    kh_predictor *p, const kh_row *rows, int n, const said *x, const sums *out, kh_err *err) {
    const kh_posterior *post = p->post;
    int rc = 0;
    if (post->n > 1 && kh_plm_shares(p->plm))
        return ask_together(p, rows, n, out, err);
    if (post->n > 1)
        kh_plm_keep_texts(p->plm, true);
    for (int s = 0; s < post->n && rc == 0; s++) {
        kh_buf text;
        kh_task task;
        kh_batch *batch = NULL;
        rc = written(p, s, &text, &task, err);
        if (rc == 0)
            rc = kh_batch_encode(
                &batch, kh_plm_tokenizer(p->plm), &task, p->text_words[s], rows, n, &p->batch, err);
        if (rc == 0)
            rc = kh_ask(p->scorer, p->labeler,
                &(kh_question){ batch, p->text_words[s], KH_INJECT_NONE, NULL, 1 }, x->logprob,
                x->energy, err);
        if (rc == 0)
            add_samples(p, out, x, s, 1, n);
        kh_batch_free(batch);
        kh_buf_free(&text);
    }
    if (post->n > 1)
        kh_plm_keep_texts(p->plm, false);
    return rc;
}

/* -------------------------------------------------------------------- the template beside them */

/* (T22): p^(1 - share) q^share, up to a factor that finishing takes out, or shares of votes. A row
 * that only one of the two answered is that one's. */
void kh_mixture_pool(double *p, const double *q, double share, bool votes, int n_row, int n_label) {
    for (int i = 0; i < n_row; i++, p += n_label, q += n_label) {
        if (isnan(q[0]))
            continue;
        bool lone = isnan(p[0]);
        for (int k = 0; k < n_label; k++)
            if (lone)
                p[k] = q[k];
            else if (votes)
                p[k] += share * (q[k] - p[k]);
            else
                p[k] =
                    exp((1 - share) * log(fmax(p[k], LEAST_P)) + share * log(fmax(q[k], LEAST_P)));
    }
    kh_mixture_finish(p - (size_t)n_row * (size_t)n_label, n_row, n_label);
}

/* What the samples say one by one is mixed as they are: shares of votes, means of entropies and
 * energies. */
static void blend(double *x, const double *with, double share, size_t n) {
    for (size_t i = 0; x && i < n; i++)
        x[i] += share * (with[i] - x[i]);
}

/* One chunk of rows, whose sums over the samples are finished. */
static int add_template(
    kh_predictor *p, const kh_row *rows, int n, const said *x, const sums *out, kh_err *err) {
    const kh_posterior *post = p->post;
    int n_label = p->task->n_label;
    size_t size = (size_t)n * (size_t)n_label;
    const float whole = 1;
    double *own = kh_calloc(2 * size + 2 * (size_t)n, sizeof *own), *votes = own + size,
           *ambiguity = votes + size, *energy = ambiguity + n;
    kh_batch *batch = NULL;
    int rc = own ? kh_batch_encode(
                       &batch, kh_plm_tokenizer(p->plm), p->task, p->words, rows, n, &p->plain, err)
                 : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_ask(p->scorer, p->labeler,
            &(kh_question){ batch, p->words, KH_INJECT_NONE, NULL, 1 }, x->logprob, x->energy, err);
    if (rc == 0) {
        if (post->template_prior)
            kh_label_prior_correct(post->template_prior, x->logprob, n, n_label);
        kh_mixture_add(own, x->logprob, &whole, 1, n, n_label);
        kh_mixture_finish(own, n, n_label);
        kh_mixture_pool(out->p, own, post->template_share, !p->scorer, n, n_label);
        kh_mixture_parts(votes, ambiguity, x->logprob, &whole, 1, n, n_label);
        blend(out->votes, votes, post->template_share, size);
        blend(out->ambiguity, ambiguity, post->template_share, (size_t)n);
        if (out->energy)
            kh_mixture_energy(energy, x->energy, &whole, 1, n);
        blend(out->energy, energy, post->template_share, (size_t)n);
    }
    kh_batch_free(batch);
    kh_free(own);
    return rc;
}

/* ------------------------------------------------------------------------------- the predictor */

/* The template of one task with the label words of another. For out-of-distribution rows of another
 * task: their own template makes them look natural, our label words make the answers comparable. */
static kh_task mix_tasks(const kh_task *template, const kh_task *words) {
    kh_task mixed = *template;
    mixed.label = words->label;
    mixed.n_label = words->n_label;
    mixed.metric = words->metric;
    mixed.memory = NULL;
    return mixed;
}

/* All checks come before the first prompt is made; what fails leaves nothing behind. */
static int new_predictor(kh_predictor **out, const kh_posterior *post, kh_plm *plm,
    const kh_task *task, bool foreign, kh_err *err) {
    *out = NULL;
    kh_predictor *p = kh_calloc(1, sizeof *p);
    if (!p)
        return kh_fail_memory(err);
    *p = (kh_predictor){ .post = post, .plm = plm, .task = task ? task : post->task };
    kh_plm_info box = kh_plm_describe(plm);
    p->batch = post->soft ? kh_space_batch(&post->space, plm, false)
                          : (kh_batch_opts){ .max_len = box.max_len, .next = box.next };
    p->plain = (kh_batch_opts){ .max_len = box.max_len, .next = box.next };
    int rc = check_model(post, plm, err);
    if (rc == 0 && post->adapter.kind != KH_ADAPTER_NONE)
        rc = check_adapter(post, plm, err);
    if (foreign) {
        p->foreign = mix_tasks(p->task, post->task);
        p->task = &p->foreign;
        p->foreign_rows = true;
    } else if (rc == 0)
        rc = check_task(post, p->task, box.next, err);
    if (rc == 0 && post->access >= KH_ACCESS_LOGPROBS && !(p->scorer = kh_plm_scorer(plm, err)))
        rc = KH_EUNSUPPORTED;
    if (rc == 0) {
        p->labeler = kh_plm_labeler(plm, err);
        rc = kh_words_new(&p->words, p->task, kh_plm_tokenizer(plm), post->paper_exact, err);
        if (rc == 0 && box.next)
            kh_words_continue(p->words);
    }
    if (rc == 0 && post->soft)
        rc = make_prompts(p, err);
    if (rc == 0 && post->adapter.kind != KH_ADAPTER_NONE && post->adapter.kind != KH_ADAPTER_PREFIX)
        rc = kh_head_new(&p->head, &post->adapter, HEAD_SHARDS, err);
    if (rc == 0 && post->demos.n_order > 0)
        rc = measure_demos(p, err);
    if (rc == 0 && post->texts.n > 0)
        rc = make_text_words(p, err);
    if (rc != 0)
        kh_predictor_free(p);
    else
        *out = p;
    return rc;
}

int kh_predictor_new(
    kh_predictor **out, const kh_posterior *post, kh_plm *plm, const kh_task *task, kh_err *err) {
    return new_predictor(out, post, plm, task, false, err);
}

int kh_predictor_foreign(kh_predictor **out, const kh_posterior *post, kh_plm *plm,
    const kh_task *template, kh_err *err) {
    return new_predictor(out, post, plm, template, true, err);
}

const float *kh_predictor_prompts(const kh_predictor *p) { return p->prompts; }

/* Heads have no logits of words, votes no logits at all. */
bool kh_predictor_energy(const kh_predictor *p) {
    return p->scorer && !p->head && kh_plm_describe(p->plm).energy;
}

/* A folder may come from somebody else: the encoder that it names is opened only if that is a
 * local model, and used only if its weights are those that made the features. */
bool kh_predictor_distance(kh_predictor *p) {
    const kh_posterior *post = p->post;
    if (!post->features || !post->features_model || p->no_encoder)
        return false;
    if (p->encoder)
        return true;
    int rc = kh_is_url(post->features_model)
        ? KH_EUNSUPPORTED
        : kh_encoder_open(&p->encoder, post->features_model, NULL);
    if (rc == 0 &&
        (kh_encoder_fingerprint(p->encoder) != post->features_fingerprint ||
            kh_encoder_size(p->encoder) + post->features_cuts != post->features_size)) {
        kh_encoder_close(p->encoder);
        p->encoder = NULL;
    }
    p->no_encoder = !p->encoder;
    return !p->no_encoder;
}

/* The distance to the nearest train rows, which needs no answer of the box: it works with labels
 * alone. */
static int measure_distances(
    kh_predictor *p, const kh_row *rows, int n, double *distance, kh_err *err) {
    const kh_posterior *post = p->post;
    float *x = kh_malloc((size_t)n * (size_t)post->features_size * sizeof *x);
    int rc = x ? kh_encoder_features(p->encoder, rows, n, post->features_cuts, x, err)
               : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        distance[i] = kh_nearest_distance(post->features, post->n_features,
            x + (size_t)i * (size_t)post->features_size, post->features_size, post->features_cuts,
            KH_NEIGHBOURS, -1);
    kh_free(x);
    return rc;
}

void kh_predictor_free(kh_predictor *p) {
    if (!p)
        return;
    for (int s = 0; p->text_words && s < p->post->n; s++)
        kh_words_free(p->text_words[s]);
    kh_free(p->text_words);
    kh_words_free(p->words);
    kh_free(p->prompts);
    kh_head_free(p->head);
    kh_encoder_close(p->encoder);
    kh_free(p->tokens);
    kh_free(p);
}

/* What a calibrator takes: numbers of votes of shares, logarithms of probabilities. */
void kh_calibration_input(bool votes, int samples, double *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isnan(p[i])) /* of a row that a service refused */
            p[i] = votes ? p[i] * samples : log(fmax(p[i], LEAST_P));
}

/* Answers into probabilities that mean what they say. */
static void calibrate(const kh_posterior *post, double *p, int n) {
    if (!post->calibrated)
        return;
    kh_calibration_input(kh_calibration_votes(post->calibrator.method), post->n, p,
        (size_t)n * (size_t)post->calibrator.n_label);
    for (int i = 0; i < n; i++, p += post->calibrator.n_label)
        if (!isnan(*p))
            kh_calibrator_apply(&post->calibrator, p, 1, p);
}

/* Answers for texts among which classes are as frequent as the caller says. */
static void reweigh(const kh_posterior *post, double *p, int n) {
    if (post->class_prior)
        kh_class_prior_apply(post->class_prior, post->class_share, p, n, post->task->n_label);
}

int kh_predictor_run(kh_predictor *p, const kh_row *rows, int n, double *out, kh_err *err) {
    return kh_predictor_explain(p, rows, n, &(kh_explained){ .p = out }, err);
}

/* Samples answer in floats: what they disagree by less than those can say is rounding. */
kh_decomposition kh_explained_parts(const kh_explained *e, int row, int n_label) {
    double total = kh_uncertainty(KH_SCORE_ENTROPY, e->p + (size_t)row * (size_t)n_label, n_label),
           ambiguity = e->ambiguity[row];
    if (total - ambiguity < 1e-7)
        ambiguity = total;
    return (kh_decomposition){ total, ambiguity, total - ambiguity };
}

static void zero(double *x, size_t n) {
    for (size_t i = 0; x && i < n; i++)
        x[i] = 0;
}

typedef int asker(
    kh_predictor *, const kh_row *rows, int n, const said *, const sums *out, kh_err *err);

/* What a sample is decides how it is asked; a posterior has one kind. */
static asker *asks_by(const kh_posterior *post) {
    if (post->texts.n > 0)
        return ask_texts;
    if (post->demos.n_order > 0)
        return ask_demos;
    return post->adapter.kind != KH_ADAPTER_NONE ? ask_adapter : ask_prompts;
}

/* All rows, a chunk at a time: into sums, which are zero, or one by one. Sums are finished chunk by
 * chunk: memory does not grow with the rows. Order of the steps: mixture (T1), template (T22),
 * calibration (T19), class prior (T21). */
static int ask_all(kh_predictor *p, const kh_row *rows, int n, const sums *out, kh_err *err) {
    int n_label = p->task->n_label, rc = 0;
    int samples = p->post->soft && p->post->n > 1 ? PROMPTS_AT_ONCE : 1;
    size_t cells = (size_t)samples * ROWS_AT_ONCE;
    said x = { .logprob = kh_malloc(cells * ((size_t)n_label + 1) * sizeof *x.logprob) };
    if (!x.logprob)
        return kh_fail_memory(err);
    x.energy = out->energy ? x.logprob + cells * (size_t)n_label : NULL;
    for (int first = 0; first < n && rc == 0; first += ROWS_AT_ONCE) {
        int some = n - first < ROWS_AT_ONCE ? n - first : ROWS_AT_ONCE;
        size_t at = (size_t)first * (size_t)n_label;
        sums part = { out->p ? out->p + at : NULL, out->votes ? out->votes + at : NULL,
            out->votes ? out->ambiguity + first : NULL, out->energy ? out->energy + first : NULL,
            out->each ? out->each + at : NULL, n };
        rc = asks_by(p->post)(p, rows + first, some, &x, &part, err);
        if (rc == 0 && part.p)
            kh_mixture_finish(part.p, some, n_label);
        if (rc == 0 && part.p && p->post->template_share > 0)
            rc = add_template(p, rows + first, some, &x, &part, err);
        if (rc == 0 && part.p) {
            calibrate(p->post, part.p, some);
            reweigh(p->post, part.p, some);
        }
    }
    kh_free(x.logprob);
    return rc;
}

int kh_predictor_explain(
    kh_predictor *p, const kh_row *rows, int n, const kh_explained *out, kh_err *err) {
    size_t size = (size_t)n * (size_t)p->task->n_label;
    zero(out->p, size);
    zero(out->votes, size);
    zero(out->ambiguity, (size_t)n);
    zero(out->energy, (size_t)n);
    bool energy = out->energy && kh_predictor_energy(p);
    sums all = { .p = out->p,
        .votes = out->votes,
        .ambiguity = out->ambiguity,
        .energy = energy ? out->energy : NULL };
    int rc = ask_all(p, rows, n, &all, err);
    for (int i = 0; rc == 0 && out->votes && i < n; i++)
        of_those_who_spoke(out->votes + (size_t)i * (size_t)p->task->n_label, &out->ambiguity[i],
            p->task->n_label);
    for (int i = 0; out->votes && !p->scorer && i < n;
         i++) /* a vote says nothing of what its voter saw */
        out->ambiguity[i] = NAN;
    for (int i = 0; out->energy && !energy && i < n; i++)
        out->energy[i] = NAN;
    bool near = out->distance && rc == 0 && kh_predictor_distance(p);
    for (int i = 0; out->distance && !near && i < n; i++)
        out->distance[i] = NAN;
    if (near)
        rc = measure_distances(p, rows, n, out->distance, err);
    return rc;
}

int kh_predictor_each(kh_predictor *p, const kh_row *rows, int n, float *logprob, kh_err *err) {
    return ask_all(p, rows, n, &(sums){ .each = logprob }, err);
}
