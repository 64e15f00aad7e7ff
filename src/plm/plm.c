/* plm.c - the black box: access levels, the meter, and early rejection, whatever stands behind.
 *
 * kh_labeler and kh_scorer are the box itself under other names: no struct of theirs exists, so
 * what they may do is exactly what the functions that take them do.
 *
 * Whatever stands behind the box (the engine, ranks, a service, a caller's functions), a question
 * goes the same way: kh_plm_score or kh_plm_answer -> the cache of answers, if a run has one ->
 * ask(), which calls the backend, counts, and checks -> normalisation to log-probabilities. Methods
 * get a kh_scorer or a kh_labeler and so cannot see more than their access level, which the
 * compiler checks. */
#include "plm/trainable.h"
#include "plm/ranks.h"
#include "plm/services.h"
#include "plm/together.h"
#include "plm/answer_cache.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/map.h"
#include "model/engine.h"
#include "model/question.h"

#include <math.h>
#include <string.h>

struct kh_plm {
    const kh_backend *backend;
    void *self;
    kh_access access;
    char *opened; /* what kh_plm_open was given */
    kh_tokenizer *tokenizer;
    kh_meter meter;
    const kh_answer_cache *cache; /* NULL: answers are not kept */
    double rate; /* queries a second, of the last piece that went through the cache */
};

/* A service: it brings its tokenizer, and the box lets out no more than the service does. */
static int open_service(kh_plm *p, const char *url, const kh_plm_opts *opts, kh_err *err) {
    kh_service s;
    if (opts->ranks && opts->ranks->port->size > 1) {
        kh_log(opts->hooks, KH_WARN,
            "the model is a service, which rank 0 alone speaks to; the other ranks have nothing to "
            "do");
        opts->ranks->told = true;
    }
    int rc = kh_service_find(&s, url, opts->http, opts->hooks, err);
    p->backend = s.backend;
    p->self = s.self;
    p->tokenizer = s.tokenizer;
    p->access = s.access < p->access ? s.access : p->access;
    return rc;
}

static int open_native(kh_plm *p, const char *dir, const kh_plm_opts *opts, kh_err *err) {
    int rc = kh_tokenizer_open(&p->tokenizer, dir, err);
    bool spread = opts->ranks && opts->ranks->port->size > 1 && !opts->ranks->taken;
    if (rc != 0)
        return rc;
    return spread ? kh_mpi_open(&p->backend, &p->self, dir, opts, err)
                  : kh_native_open(&p->backend, &p->self, dir, opts, err);
}

/* URL or folder: the caller need not know which. */
int kh_plm_open(kh_plm **out, const char *model, const kh_plm_opts *opts, kh_err *err) {
    *out = NULL;
    kh_plm *p = kh_calloc(1, sizeof *p);
    if (!p)
        return kh_fail_memory(err);
    p->access = opts->access;
    p->opened = kh_strdup(model);
    int rc = p->opened ? 0 : kh_fail_memory(err);
    if (rc == 0)
        rc =
            kh_is_url(model) ? open_service(p, model, opts, err) : open_native(p, model, opts, err);
    if (rc != 0) {
        kh_plm_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

/* The access level is the caller's to state; own_box.c checks that the functions for it are there.
 */
int kh_plm_new(kh_plm **out, const kh_box *box, void *self, kh_err *err) {
    *out = NULL;
    kh_plm *p = kh_calloc(1, sizeof *p);
    if (!p)
        return kh_fail_memory(err);
    p->access = box->access;
    p->opened = kh_strdup(box->name ? box->name : "own box");
    int rc = p->opened ? 0 : kh_fail_memory(err);
    if (rc == 0 && box->tokenizer)
        rc = kh_tokenizer_open(&p->tokenizer, box->tokenizer, err);
    if (rc == 0) /* the last step that can fail: from here on the box closes the caller's state */
        rc = kh_own_open(&p->backend, &p->self, box, self, err);
    if (rc != 0) {
        kh_plm_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void kh_plm_close(kh_plm *p) {
    if (!p)
        return;
    if (p->backend)
        p->backend->close(p->self);
    kh_tokenizer_close(p->tokenizer);
    kh_free(p->opened);
    kh_free(p);
}

/* The tokenizer is part of the box's identity: the same weights behind another tokenizer answer
 * other questions. */
kh_plm_info kh_plm_describe(const kh_plm *p) {
    kh_plm_info info = {
        .backend = p->backend->name, .access = p->access, .opened = p->opened, .ranks = 1
    };
    p->backend->describe(p->self, &info);
    info.energy = info.energy && p->access >= KH_ACCESS_LOGPROBS;
    uint64_t both[2] = { info.fingerprint, kh_tokenizer_fingerprint(p->tokenizer) };
    info.fingerprint = kh_hash64(both, sizeof both);
    return info;
}

/* A model that was trained on a task's rows is no few-shot model of that task; a figure measured on
 * it must say so. */
bool kh_plm_has_seen(const kh_plm *p, const kh_task *task, const kh_hooks *hooks) {
    const char *seen = kh_plm_describe(p).seen_tasks;
    bool has = seen && kh_name_is_listed(seen, task->name);
    if (has && hooks)
        kh_log(hooks, KH_WARN,
            "the model has learned from train rows of task \"%s\" (\"seen_tasks\" of its "
            "config.json): these rows are not few-shot to it",
            task->name);
    return has;
}

kh_engine *kh_plm_engine(kh_plm *p) {
    return p->backend->engine ? p->backend->engine(p->self) : NULL;
}

const kh_tokenizer *kh_plm_tokenizer(const kh_plm *p) { return p->tokenizer; }
bool kh_plm_shares(const kh_plm *p) { return p->backend->share != NULL; }
kh_meter kh_plm_meter(const kh_plm *p) { return p->meter; }
void kh_plm_set_cache(kh_plm *p, const kh_answer_cache *cache) { p->cache = cache; }

const char *kh_access_name(kh_access a) {
    switch (a) {
    case KH_ACCESS_LABELS: return "labels";
    case KH_ACCESS_LOGPROBS: return "logprobs";
    default: return "weights";
    }
}

kh_labeler *kh_plm_labeler(kh_plm *p, kh_err *err) {
    (void)err; /* every box gives labels */
    return (kh_labeler *)p;
}

kh_scorer *kh_plm_scorer(kh_plm *p, kh_err *err) {
    if (p->access >= KH_ACCESS_LOGPROBS)
        return (kh_scorer *)p;
    kh_fail(err, KH_EUNSUPPORTED,
        "the box was opened at access level %s, which does not let probabilities out; this needs "
        "logprobs",
        kh_access_name(p->access));
    return NULL;
}

int kh_plm_embedding_stats(kh_plm *p, double *mean, double *std, kh_err *err) {
    return p->backend->embedding_stats(p->self, mean, std, err);
}

int kh_plm_embedding_row(kh_plm *p, int32_t id, float *row, kh_err *err) {
    return p->backend->embedding_row(p->self, id, row, err);
}

/* -------------------------------------------------------------------------------------- asking */

/* What the meter calls tokens: ids that the engine processes, or, for services that are paid by
 * text, an estimate from bytes. */
long long kh_plm_tokens(const kh_plm *p, const kh_batch *b) {
    long long n = (long long)(b->start[b->n_seq] - b->start[0]);
    int each = p->backend->bytes_a_token;
    /* a text goes out once, however many lengths label words have */
    return each > 0 ? n / b->n_variant / each : n;
}

/* A query is one prompt with one row (doc/methods.md), however many sequences the lengths of label
 * words make of it. */
static void count(kh_plm *p, const kh_question *q, double seconds) {
    const kh_batch *b = q->batch;
    long long n = kh_question_prompts(q);
    p->meter.prompts += n;
    p->meter.queries += n * b->n_row;
    p->meter.tokens += n * kh_plm_tokens(p, b);
    p->meter.seconds += seconds;
}

void kh_plm_count(kh_plm *p, const kh_question *q, double seconds) {
    count(p, q, seconds);
    p->meter.replayed += (long long)kh_question_prompts(q) * q->batch->n_row;
}

/* Queries of an earlier process: counted, as the result rests on them, and marked as replayed, as
 * nothing was asked. */
void kh_plm_count_replayed(kh_plm *p, const kh_meter *before) {
    p->meter.prompts += before->prompts;
    p->meter.queries += before->queries;
    p->meter.tokens += before->tokens;
    p->meter.seconds += before->seconds;
    p->meter.replayed += before->queries;
}

/* What one pair of shared questions takes: the text of its row comes with the first of a request.
 */
static long long pair_tokens(const kh_plm *p, const kh_question *q, int question, int row) {
    kh_batch one = kh_batch_part(q->batch, row, 1);
    long long n = kh_plm_tokens(p, &one);
    int each = p->backend->bytes_a_token;
    if (question % KH_SHARED_MOST == 0 || each == 0 || !one.given)
        return n;
    const kh_row *text = &one.given[one.row[0]];
    long long shared = (long long)(text->n_a + text->n_b) / each;
    return n > shared ? n - shared : 0;
}

void kh_plm_count_pair(
    kh_plm *p, const kh_question *q, int question, int row, double seconds, bool replayed) {
    p->meter.prompts += row == 0;
    p->meter.queries++;
    p->meter.tokens += pair_tokens(p, q, question, row);
    p->meter.seconds += seconds;
    p->meter.replayed += replayed;
}

/* missing_ok: a whole row may be NaN, which is one that a service refused. */
static int check_finite(
    const float *x, size_t n, int n_row, int n_label, bool missing_ok, kh_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) && !(missing_ok && isnan(x[i]))) {
            size_t pair = i / (size_t)n_label;
            return kh_fail(err, KH_EFORMAT,
                "the model's answer to prompt %zu, row %zu is not a number: are its weights, or "
                "the prompt, too large?",
                pair / (size_t)n_row, pair % (size_t)n_row);
        }
    return 0;
}

/* Every question to every backend passes here: logits [n_prompt, n_row, n_label] or label
 * [n_prompt, n_row], the other NULL; with logits also energy, if it is not NULL. */
static int ask(
    kh_plm *p, const kh_question *q, float *logits, float *energy, int *label, kh_err *err) {
    int n_label = q->words->n_label, n_row = q->batch->n_row;
    if (q->batch->n_slot > 0 && q->n_prompt < 1)
        return kh_fail(err, KH_EARG, "a question needs at least one prompt");
    if (n_row == 0)
        return 0;
    double start = kh_clock();
    int rc = label ? p->backend->answer(p->self, q, label, err)
                   : p->backend->score(p->self, q, logits, energy, err);
    if (rc != 0)
        return rc;
    p->meter.calls++;
    count(p, q, kh_clock() - start);
    return label ? 0
                 : check_finite(logits, kh_question_pairs(q) * (size_t)n_label, n_row, n_label,
                       kh_plm_shares(p), err);
}

/* energy [pairs] of what x was before; NULL: not wanted. log softmax over the label words, in
 * double from the largest down; the energy is minus the log of the sum (Liu et al. 2020), which
 * normalising loses. */
static void normalise(float *x, size_t pairs, int n_label, float *energy) {
    for (size_t i = 0; i < pairs; i++, x += n_label) {
        double top = -INFINITY, sum = 0;
        for (int k = 0; k < n_label; k++)
            top = (double)x[k] > top ? (double)x[k] : top;
        for (int k = 0; k < n_label; k++)
            sum += exp((double)x[k] - top);
        for (int k = 0; k < n_label; k++)
            x[k] = (float)((double)x[k] - top - log(sum));
        if (energy)
            energy[i] = (float)-(top + log(sum));
    }
}

const unsigned char *kh_plm_answered(const kh_plm *p) {
    return p->backend->answered ? p->backend->answered(p->self) : NULL;
}

/* logprob [n_prompt, n_row, n_label]; energy [n_prompt, n_row], or NULL. */
static int ask_both(kh_plm *p, const kh_question *q, float *logprob, float *energy, kh_err *err) {
    bool normalised = p->backend->normalised;
    int rc = ask(p, q, logprob, normalised ? energy : NULL, NULL, err);
    if (!normalised && (rc == 0 || kh_plm_answered(p))) /* what was answered may be kept */
        normalise(logprob, kh_question_pairs(q), q->words->n_label, energy);
    return rc;
}

static int best_label(const float *x, int n_label) {
    int best = 0;
    for (int k = 1; k < n_label; k++)
        best = x[k] > x[best] ? k : best;
    return best;
}

/* Backends without labels of their own are scored and the best label taken: at access level labels
 * nothing more than that leaves this function. */
static int ask_labels(kh_plm *p, const kh_question *q, int *label, kh_err *err) {
    int n_label = q->words->n_label;
    size_t pairs = kh_question_pairs(q);
    if (p->backend->answer)
        return ask(p, q, NULL, NULL, label, err);
    float *logits = kh_calloc(pairs * (size_t)n_label, sizeof *logits);
    if (!logits)
        return kh_fail_memory(err);
    int rc = ask(p, q, logits, NULL, NULL, err);
    for (size_t i = 0; rc == 0 && i < pairs; i++)
        label[i] = best_label(logits + i * (size_t)n_label, n_label);
    kh_free(logits);
    return rc;
}

int kh_plm_ask_box(kh_plm *p, const kh_question *q, const kh_cells *out, kh_err *err) {
    return out->label ? ask_labels(p, q, out->label, err)
                      : ask_both(p, q, out->logprob, out->energy, err);
}

int kh_plm_share_box(kh_plm *p, const kh_shared *x, kh_err *err) {
    int n_row = x->q->batch->n_row;
    double start = kh_clock();
    int rc = p->backend->share(p->self, x, err);
    if (rc != 0)
        return rc;
    p->meter.calls++;
    p->meter.seconds += kh_clock() - start;
    for (int k = 0; k < x->n; k++)
        for (int row = x->first; row < x->end; row++)
            if (!x->known || !x->known[(size_t)k * (size_t)n_row + (size_t)row])
                kh_plm_count_pair(p, &x->q[k], k, row, 0, false);
    return 0;
}

/* From the cache what it knows, the rest from the box. */
static int ask_cached(kh_plm *p, const kh_question *q, kh_cells out, kh_err *err) {
    return p->cache ? kh_answer_cache_ask(p->cache, p, q, &out, &p->rate, err)
                    : kh_plm_ask_box(p, q, &out, err);
}

int kh_plm_score(kh_scorer *s, const kh_question *q, float *logprob, kh_err *err) {
    return ask_cached((kh_plm *)s, q, (kh_cells){ .logprob = logprob }, err);
}

/* NaN: this box has none to give. */
int kh_plm_score_energy(
    kh_scorer *s, const kh_question *q, float *logprob, float *energy, kh_err *err) {
    kh_plm *p = (kh_plm *)s;
    if (kh_plm_describe(p).energy)
        return ask_cached(p, q, (kh_cells){ .logprob = logprob, .energy = energy }, err);
    for (size_t i = 0; i < kh_question_pairs(q); i++)
        energy[i] = NAN;
    return kh_plm_score(s, q, logprob, err);
}

int kh_plm_answer(kh_labeler *l, const kh_question *q, int *label, kh_err *err) {
    return ask_cached((kh_plm *)l, q, (kh_cells){ .label = label }, err);
}

/* ------------------------------------------------------------------------------ asking together */

/* NULL is a text that is not there, which differs from an empty one. */
static bool same_text(const char *a, size_t n_a, const char *b, size_t n_b) {
    return !a == !b && n_a == n_b && (!a || a == b || memcmp(a, b, n_a) == 0);
}

/* Whether the questions are of one shape and about the same rows. */
static bool fit_together(const kh_question *q, int n) {
    const kh_batch *x = q[0].batch;
    for (int k = 0; k < n; k++) {
        const kh_batch *y = q[k].batch;
        if (y->n_slot > 0 || y->n_row != x->n_row || q[k].words->n_label != q[0].words->n_label ||
            !y->given != !x->given)
            return false;
        for (int i = 0; x->given && k > 0 && i < x->n_row; i++) {
            const kh_row *a = &x->given[x->row[i]], *b = &y->given[y->row[i]];
            if (!same_text(a->a, a->n_a, b->a, b->n_a) || !same_text(a->b, a->n_b, b->b, b->n_b))
                return false;
        }
    }
    return true;
}

/* Several questions about the same rows in one request, where the service has such a call; one
 * after another where not. Which way it went is visible in the meter only. */
static int ask_together(kh_plm *p, const kh_question *q, int n, kh_cells out, kh_err *err) {
    if (n == 0 || q->batch->n_row == 0)
        return 0;
    if (!fit_together(q, n))
        return kh_fail(err, KH_EARG,
            "questions that are asked together must be about the same rows and labels, without "
            "soft prompts");
    size_t rows = (size_t)q->batch->n_row, cells = rows * (size_t)q->words->n_label;
    int rc = 0;
    if (kh_plm_shares(p)) {
        kh_shared x = { .q = q, .n = n, .out = out, .end = q->batch->n_row };
        return p->cache ? kh_answer_cache_share(p->cache, p, q, n, &out, err)
                        : kh_plm_share_box(p, &x, err);
    }
    for (int k = 0; k < n && rc == 0; k++)
        rc = ask_cached(p, &q[k],
            (kh_cells){ .label = out.label ? out.label + (size_t)k * rows : NULL,
                .logprob = out.logprob ? out.logprob + (size_t)k * cells : NULL },
            err);
    return rc;
}

int kh_plm_score_together(kh_scorer *s, const kh_question *q, int n, float *logprob, kh_err *err) {
    return ask_together((kh_plm *)s, q, n, (kh_cells){ .logprob = logprob }, err);
}

int kh_plm_answer_together(kh_labeler *l, const kh_question *q, int n, int *label, kh_err *err) {
    return ask_together((kh_plm *)l, q, n, (kh_cells){ .label = label }, err);
}

void kh_plm_keep_texts(kh_plm *p, bool keep) {
    struct kh_engine *e = kh_plm_engine(p);
    if (e)
        kh_engine_keep_texts(e, keep);
}

/* -------------------------------------------------------------------------------- the open box */

int kh_plm_trainable(kh_plm *p, kh_engine **out, kh_err *err) {
    *out = kh_plm_engine(p);
    if (!*out)
        return kh_fail(err, KH_EUNSUPPORTED,
            "this needs the weights of a model, which the %s backend does not expose; pass a model "
            "folder",
            p->backend->name);
    return p->access >= KH_ACCESS_WEIGHTS
        ? 0
        : kh_fail(err, KH_EUNSUPPORTED, "this needs access level weights; the box was opened at %s",
              kh_access_name(p->access));
}

static int not_finite(const float *x, size_t n, kh_err *err) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return kh_fail(err, KH_EFORMAT,
                "a hidden state of the model is not a number: are its weights too large?");
    return 0;
}

/* Hidden states of the last layer. Counted as queries: the model has read the rows. */
int kh_plm_hidden(kh_plm *p, const kh_batch *b, float *out, kh_err *err) {
    kh_engine *e;
    kh_question q = { .batch = b, .inject = KH_INJECT_NONE };
    double start = kh_clock();
    int rc = kh_plm_trainable(p, &e, err);
    if (rc == 0)
        rc = kh_engine_hidden(e, &q, kh_engine_model(e)->config.layers, out, err);
    if (rc != 0)
        return rc;
    p->meter.calls++;
    count(p, &q, kh_clock() - start);
    return not_finite(out, b->start[b->n_seq] * (size_t)kh_engine_model(e)->config.hidden, err);
}

/* An adapter's keys and values stand in front of those of every layer; only the engine can do that.
 */
int kh_plm_score_prefixed(kh_plm *p, const kh_question *q, const kh_adapter *g, float *logprob,
    float *energy, kh_err *err) {
    kh_engine *e;
    double start = kh_clock();
    int n_row = q->batch->n_row, n_label = q->words->n_label, rc = kh_plm_trainable(p, &e, err);
    if (rc == 0)
        rc = kh_engine_score_prefixed(e, q, g, logprob, err);
    if (rc != 0)
        return rc;
    p->meter.calls++;
    count(p, q, kh_clock() - start);
    size_t pairs = kh_question_pairs(q);
    rc = check_finite(logprob, pairs * (size_t)n_label, n_row, n_label, false, err);
    if (rc == 0)
        normalise(logprob, pairs, n_label, energy);
    return rc;
}

void kh_plm_count_passes(kh_plm *p, int rows, long long tokens, bool gradients, double seconds) {
    p->meter.forward += rows;
    p->meter.backward += gradients ? rows : 0;
    p->meter.tokens += tokens;
    p->meter.seconds += seconds;
}

/* ----------------------------------------------------------------------------- early rejection */

/* A view: nothing is copied, and the part lives as long as the batch. */
kh_batch kh_batch_part(const kh_batch *b, int first, int n) {
    kh_batch part = *b;
    int seq = first * b->n_variant;
    part.n_row = n;
    part.n_seq = n * b->n_variant;
    part.start += seq;
    part.mask += seq;
    part.slot += seq;
    part.label += first;
    part.row += first;
    return part;
}

int kh_batch_reorder(kh_batch *out, const kh_batch *b, const int *order, kh_err *err) {
    size_t n_seq = (size_t)b->n_seq, tokens = b->start[n_seq] - b->start[0];
    *out = *b;
    out->memory = kh_malloc(
        (n_seq + 1) * sizeof(size_t) + 3 * n_seq * sizeof(int) + tokens * sizeof(int32_t));
    if (!out->memory)
        return kh_fail_memory(err);
    size_t *start = out->memory, at = 0;
    int *mask = (int *)(start + n_seq + 1), *slot = mask + n_seq, *row = slot + n_seq;
    int32_t *id = row + n_seq;
    for (int i = 0; i < b->n_row; i++)
        row[i] = b->row[order[i]];
    for (size_t s = 0; s < n_seq; s++) {
        size_t variants = (size_t)b->n_variant,
               from = (size_t)order[s / variants] * variants + s % variants;
        size_t n = b->start[from + 1] - b->start[from];
        start[s] = at;
        mask[s] = b->mask[from];
        slot[s] = b->slot[from];
        memcpy(id + at, b->id + b->start[from], n * sizeof *id);
        at += n;
    }
    start[n_seq] = at;
    out->start = start;
    out->mask = mask;
    out->slot = slot;
    out->row = row;
    out->id = id;
    return 0;
}

/* A prompt still in the running. Those that are stand in front, in their first order. */
typedef struct running {
    int *prompt; /* [n] their indices */
    float *rows; /* [n, n_slot, hidden] their prompts, if some have dropped out */
    int n;
} running;

/* Prompts that made more errors than they are allowed leave; the others are packed together, since
 * the engine wants them without gaps. */
static void drop_out(
    running *r, const kh_question *q, size_t size, const int *allowance, const int *errors) {
    int kept = 0;
    for (int i = 0; i < r->n; i++)
        if (errors[r->prompt[i]] <= allowance[r->prompt[i]])
            r->prompt[kept++] = r->prompt[i];
    for (int i = 0; i < kept && kept < r->n && q->prompt; i++)
        memcpy(r->rows + (size_t)i * size, q->prompt + (size_t)r->prompt[i] * size,
            size * sizeof *r->rows);
    r->n = kept;
}

/* A chunk of eight rows drops a hopeless prompt early and still fills the engine for a population
 * of twenty. */
enum { DEFAULT_CHUNK = 8 };

/* Rows to the next look. Below 0: before as many rows as the least patient prompt has errors left,
 * and one, nobody can leave, so that these are asked at once; -chunk at least. */
static int next_chunk(
    const running *r, int chunk, int n_row, const int *allowance, const int *errors) {
    int least = n_row;
    if (chunk >= 0)
        return chunk > 0 ? chunk : DEFAULT_CHUNK;
    for (int i = 0; i < r->n; i++) {
        int left = allowance[r->prompt[i]] - errors[r->prompt[i]];
        least = left < least ? left : least;
    }
    return least < -chunk ? -chunk : least + 1;
}

/* Early rejection (doc/methods.md, "With labels only"): a candidate is asked about a few rows at a
 * time, and about no more once it has made more errors than its allowance. Exact for those within
 * it, and the count of queries is what was asked. `order`: rows that tell most first. */
int kh_plm_answer_within(kh_labeler *l, const kh_question *q, const kh_patience *patience,
    int *errors, int *label, kh_err *err) {
    const kh_batch *b = q->batch;
    const int *order = patience->order;
    int n_prompt = kh_question_prompts(q), rc = 0, n = 0,
        most = patience->chunk < 0 ? b->n_row : next_chunk(NULL, patience->chunk, 0, NULL, NULL);
    size_t size = (size_t)b->n_slot * (size_t)kh_plm_describe((kh_plm *)l).hidden;
    running r = { kh_calloc((size_t)n_prompt, sizeof *r.prompt),
        kh_calloc((size_t)n_prompt * size + 1, sizeof *r.rows), n_prompt };
    int *answer = kh_calloc((size_t)n_prompt * (size_t)most, sizeof *answer);
    kh_batch ordered = *b;
    ordered.memory = NULL;
    if (!r.prompt || !r.rows || !answer)
        rc = kh_fail_memory(err);
    if (rc == 0 && order)
        rc = kh_batch_reorder(&ordered, b, order, err);
    for (int i = 0; rc == 0 && i < n_prompt; i++)
        r.prompt[i] = i, errors[i] = 0;
    for (int i = 0; rc == 0 && label && i < n_prompt * b->n_row; i++)
        label[i] = -1;
    for (int first = 0; rc == 0 && first < b->n_row && r.n > 0; first += n) {
        n = next_chunk(&r, patience->chunk, b->n_row, patience->allowance, errors);
        n = b->n_row - first < n ? b->n_row - first : n;
        kh_batch part = kh_batch_part(&ordered, first, n);
        kh_question some = { &part, q->words, q->inject, r.n < n_prompt ? r.rows : q->prompt, r.n };
        rc = kh_plm_answer(l, &some, answer, err);
        for (int i = 0; rc == 0 && i < r.n * n; i++) {
            int row = order ? order[first + i % n] : first + i % n, prompt = r.prompt[i / n];
            errors[prompt] += answer[i] != b->label[row];
            if (label)
                label[(size_t)prompt * (size_t)b->n_row + (size_t)row] = answer[i];
        }
        if (rc == 0)
            drop_out(&r, q, size, patience->allowance, errors);
    }
    kh_free(r.prompt);
    kh_free(r.rows);
    kh_free(answer);
    kh_free(ordered.memory);
    return rc;
}
