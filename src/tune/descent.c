/* descent.c - see descent.h.
 *
 * One loop of AdamW serves every method with gradients: what differs is the vector that moves (a
 * prompt, a prefix of every layer, a head, the whole model) and how its slope is found. Early
 * stopping is by dev, and the best vector, not the last one, is returned. Everything is
 * reproducible: the order of the rows comes from the stream of the epoch, dropout from the step,
 * and sums are sharded by a number in the options, not by threads. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/map.h"
#include "base/rng.h"
#include "model/engine.h"
#include "plm/trainable.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------- the open box */

/* The box that answers and the folder that is opened for gradients could have drifted apart since
 * the box was opened. */
static int check_same(const kh_tuning *t, const kh_model *m, kh_err *err) {
    uint64_t both[2] = { m->fingerprint, kh_tokenizer_fingerprint(kh_plm_tokenizer(t->plm)) };
    uint64_t have = kh_hash64(both, sizeof both), want = kh_plm_describe(t->plm).fingerprint;
    return have == want
        ? 0
        : kh_fail(err, KH_EMISMATCH,
              "%s: is not the model that answers: fingerprint %016" PRIx64 ", expected %016" PRIx64,
              m->dir, have, want);
}

/* Gradients are those of one mask and one token a word; words of several tokens would need a
 * sequence for each length. */
static int take_words(kh_trainable *b, const kh_tuning *t, kh_err *err) {
    const kh_words *w = t->words;
    bool single = w->n_variant == 1 && w->n_mask[0] == 1;
    for (int i = 0; i < w->n_word; i++)
        single = single && w->word[i].n_id == 1;
    if (!single)
        return kh_fail(err, KH_EUNSUPPORTED,
            "a label word of task \"%s\" has several tokens, which methods with gradients do not "
            "take; choose shorter words",
            t->task->name);
    b->token = kh_calloc((size_t)w->n_word, sizeof *b->token);
    b->label = kh_calloc((size_t)w->n_word, sizeof *b->label);
    if (!b->token || !b->label)
        return kh_fail_memory(err);
    b->n_token = w->n_word;
    for (int i = 0; i < w->n_word; i++) {
        b->token[i] = w->word[i].id[0];
        b->label[i] = w->word[i].label;
    }
    return 0;
}

static int encode_rows(kh_trainable *b, const kh_tuning *t, bool soft, kh_err *err) {
    const kh_tokenizer *tok = kh_plm_tokenizer(t->plm);
    kh_plm_info box = kh_plm_describe(t->plm);
    kh_batch_opts o = { .max_len = box.max_len, .next = box.next };
    if (soft)
        o = kh_space_batch(&t->space, t->plm, false);
    int rc = kh_batch_encode(&b->train, tok, t->task, t->words, t->train_row, t->n_train, &o, err);
    return rc ? rc
              : kh_batch_encode(&b->dev, tok, t->task, t->words, t->dev_row, t->n_dev, &o, err);
}

/* The weights are copied into one vector (kh_params) in f32, whatever the file has: gradients are
 * taken with respect to that. The model itself is closed again; memory holds the weights once,
 * beside the engine's packed ones. */
int kh_trainable_init(kh_trainable *b, const kh_tuning *t, unsigned wrt, kh_err *err) {
    const bool soft = wrt == KH_WRT_PROMPT;
    kh_model *m = NULL;
    kh_engine *e;
    *b = (kh_trainable){ .inject = soft ? t->space.inject : KH_INJECT_NONE };
    int rc = kh_plm_trainable(t->plm, &e, err);
    if (rc == 0) {
        b->dir = kh_engine_model(e)->dir;
        rc = kh_model_open(
            &m, b->dir, &(kh_model_opts){ .need_head = "tuning with gradients" }, err);
    }
    if (rc == 0)
        rc = check_same(t, m, err);
    if (rc == 0)
        rc = kh_gradient_check(&m->config, wrt, err);
    if (rc == 0)
        rc = kh_params_init(&b->params, &m->config, err);
    if (rc == 0 && !(b->w = kh_aligned(b->params.size * sizeof *b->w)))
        rc = kh_fail_memory(err);
    if (rc == 0)
        kh_params_take(&b->params, m, 0, b->w);
    kh_model_close(m);
    if (rc == 0)
        rc = take_words(b, t, err);
    return rc ? rc : encode_rows(b, t, soft, err);
}

void kh_trainable_free(kh_trainable *b) {
    kh_params_free(&b->params);
    kh_free(b->w);
    kh_free(b->token);
    kh_free(b->label);
    kh_batch_free(b->train);
    kh_batch_free(b->dev);
    *b = (kh_trainable){ 0 };
}

/* ----------------------------------------------------------------------- rows, packed together */

/* Rows packed one after another without padding, as kh_packed wants them: a pass costs what the
 * tokens cost. */
typedef struct rows {
    kh_slot *slot;
    int *start, *at, *first_at;
    int32_t *target;
    int n;
} rows;

static void rows_free(rows *r) {
    kh_free(r->slot);
    kh_free(r->start);
    kh_free(r->at);
    kh_free(r->first_at);
    kh_free(r->target);
    *r = (rows){ 0 };
}

/* What stands at the places of one sequence, as the engine sees it. The same rule of positions and
 * slots as model/input.c, so that a gradient is that of the very function that the box computes. */
static void lay_out(const kh_trainable *b, const kh_batch *batch, int seq, kh_slot *out) {
    const kh_config *c = &b->params.config;
    const int32_t *id = batch->id + batch->start[seq];
    int n = (int)(batch->start[seq + 1] - batch->start[seq]), next = c->first_position;
    bool added = b->inject == KH_INJECT_POST_LN_ADD,
         embedded = b->inject != KH_INJECT_NONE && !added;
    for (int i = 0; i < n; i++) {
        int row = batch->n_slot > 0 ? i - batch->slot[seq] : -1;
        bool soft = row >= 0 && row < batch->n_slot;
        out[i] = (kh_slot){ .id = id[i],
            .embedded = soft && embedded ? row : -1,
            .added = soft && added ? row : -1,
            .position = kh_config_position(c, id[i], embedded, &next) };
    }
}

/* Rows which[0 .. n-1] of a batch. */
static int rows_make(
    rows *r, const kh_trainable *b, const kh_batch *batch, const int *which, int n, kh_err *err) {
    size_t tokens = 0, many = (size_t)n;
    for (int i = 0; i < n; i++) {
        int seq = which[i];
        tokens += batch->start[seq + 1] - batch->start[seq];
    }
    *r = (rows){ .n = n,
        .slot = kh_calloc(tokens, sizeof *r->slot),
        .start = kh_calloc(many + 1, sizeof *r->start),
        .at = kh_calloc(many, sizeof *r->at),
        .first_at = kh_calloc(many + 1, sizeof *r->first_at),
        .target = kh_calloc(many, sizeof *r->target) };
    if (!r->slot || !r->start || !r->at || !r->first_at || !r->target)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        int seq = which[i];
        lay_out(b, batch, seq, r->slot + r->start[i]);
        r->start[i + 1] = r->start[i] + (int)(batch->start[seq + 1] - batch->start[seq]);
        r->at[i] = r->start[i] + batch->mask[seq];
        if (r->at[i] == r->start[i + 1]) /* a decoder answers at the last token */
            r->at[i]--;
        r->first_at[i + 1] = i + 1;
        r->target[i] = batch->label[seq];
    }
    return 0;
}

/* One batch forward, and backward if asked. A pass through the weights is no query: it is counted
 * apart (kh_plm_count_passes), since a black box could not have given it. */
static int run_passage(void *self, const kh_row_subset *some, bool gradients, float *logprob,
    double *loss, float **slope, kh_err *err) {
    kh_gradient_pass *g = self;
    const kh_trainable *b = g->box;
    double start = kh_clock();
    rows r = { 0 };
    int rc = rows_make(&r, b, some->dev ? b->dev : b->train, some->which, some->n, err);
    kh_packed text = { r.n, r.start, r.slot, r.at, r.first_at };
    kh_lm_loss how = { .target = r.target,
        .token = b->token,
        .label = b->label,
        .n_token = b->n_token,
        .n_label = g->t->task->n_label,
        .scale = 1.0 / some->n };
    kh_pass_f32 pass = { .w = b->w };
    if (rc == 0 && g->pass)
        rc = g->pass(g->self, &pass, err);
    pass.text = &text;
    pass.loss = &how;
    pass.logprob = logprob;
    kh_dropout dropout = { g->o->dropout, g->t->o->seed, (uint32_t)some->step };
    pass.dropout = dropout.rate > 0 ? &dropout : NULL;
    pass.recompute = g->o->recompute;
    if (rc == 0)
        rc = kh_gradient_run(g->gradient, &pass, gradients, loss, err);
    if (rc == 0)
        kh_plm_count_passes(g->t->plm, r.n, r.start[r.n], gradients, kh_clock() - start);
    *slope = gradients ? g->slope(g->gradient) : NULL;
    rows_free(&r);
    return rc;
}

void kh_descent_through(kh_descent *d, kh_gradient_pass *g) {
    d->n_train = g->box->train ? g->box->train->n_row : 0; /* without, an error is on its way */
    d->n_dev = g->box->dev ? g->box->dev->n_row : 0;
    d->dev_label = g->box->dev ? g->box->dev->label : NULL;
    d->run = run_passage;
    d->self = g;
}

/* ------------------------------------------------------------------------------------- descent */

/* The dev rows by x as it is, a few at a time. */
static int look(kh_descent *d, double *metric, double *ce, kh_err *err) {
    /* Enough to fill the products, small enough that activations of a large model fit. */
    enum { AT_ONCE = 64 };
    int n_label = d->t->task->n_label, rc = 0;
    size_t size = (size_t)d->n_dev * (size_t)n_label;
    float *logprob = kh_calloc(size, sizeof *logprob), *slope;
    double *p = kh_calloc(size, sizeof *p), sum = 0, loss;
    if (!logprob || !p)
        rc = kh_fail_memory(err);
    for (int first = 0; first < d->n_dev && rc == 0; first += AT_ONCE) {
        int which[AT_ONCE], n = d->n_dev - first < AT_ONCE ? d->n_dev - first : AT_ONCE;
        for (int i = 0; i < n; i++)
            which[i] = first + i;
        rc = d->run(d->self, &(kh_row_subset){ true, which, n, 0 }, false,
            logprob + (size_t)first * (size_t)n_label, &loss, &slope, err);
        sum += rc == 0 ? loss * n : 0;
    }
    for (size_t i = 0; i < size && rc == 0; i++)
        p[i] = exp((double)logprob[i]);
    if (rc == 0) {
        *metric = kh_metric_of_p(d->t->task->metric, p, d->dev_label, d->n_dev, n_label);
        *ce = sum / d->n_dev;
    }
    kh_free(logprob);
    kh_free(p);
    return rc;
}

/* Asks dev, keeps x if nothing better is known; *better says so. Ties of the metric, which are
 * common on 32 rows, are broken by cross-entropy. NaN: nothing was judged yet. */
static int judge(kh_descent *d, bool *better, kh_err *err) {
    double metric, ce;
    int rc = look(d, &metric, &ce, err);
    if (rc != 0)
        return rc;
    *better =
        isnan(d->best_dev) || metric > d->best_dev || (metric == d->best_dev && ce < d->best_ce);
    if (*better) {
        memcpy(d->best, d->x, d->n * sizeof *d->x);
        d->best_dev = metric;
        d->best_ce = ce;
    }
    return 0;
}

/* One pass over the train rows in an order of its own; *loss becomes the mean. beta and eps are
 * PyTorch's defaults; the rate falls linearly to zero over all epochs, after `warmup` steps. */
static int epoch(
    kh_descent *d, kh_adamw *adamw, int number, int *order, double *loss, kh_err *err) {
    const kh_descent_opts *o = d->o;
    kh_adamw_opts how = { .lr = o->lr,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = o->weight_decay,
        .clip = o->clip,
        .warmup = o->warmup,
        .decay = KH_DECAY_LINEAR };
    long steps = (long)((d->n_train + o->batch - 1) / o->batch) * o->epochs;
    kh_rng rng = kh_rng_stream(d->t->o->seed, KH_RNG_HEADS, 0, (uint32_t)number);
    int rc = 0;
    kh_rng_permutation(&rng, order, d->n_train);
    *loss = 0;
    for (int first = 0; first < d->n_train && rc == 0; first += o->batch) {
        int n = d->n_train - first < o->batch ? d->n_train - first : o->batch;
        double part;
        float *slope;
        if (kh_tuning_interrupted(d->t))
            return kh_fail(err, KH_STOPPED, "stopped on request");
        rc = d->run(d->self, &(kh_row_subset){ false, order + first, n, adamw->step }, true, NULL,
            &part, &slope, err);
        if (rc == 0 && !isfinite(part))
            rc = kh_fail(err, KH_ELIMIT,
                "the loss in epoch %d is not a number; a lower --lr may help", number);
        if (rc == 0) {
            kh_adamw_step(adamw, &how, kh_adamw_rate(&how, adamw->step, steps), d->x, slope, NULL);
            *loss += part * n / d->n_train;
        }
    }
    return rc;
}

/* What the box was asked is one thing, what passed the opened weights another. */
static void facts_of(const kh_descent *d, double loss, double least, char facts[KH_FACTS]) {
    kh_meter now = kh_plm_meter(d->t->plm), start = d->t->start;
    kh_loss_facts(facts, loss, least);
    size_t n = strlen(facts);
    if (now.forward > start.forward)
        snprintf(facts + n, KH_FACTS - n, " forward=%lld backward=%lld",
            now.forward - start.forward, now.backward - start.backward);
}

/* ---- where a descent is, as bytes that the same run reads again: this, then x, the best x and
 * AdamW's moments */

enum {
    STATE_MAX = 1 << 26
}; /* bytes; what is larger, a whole model, is learned from the start again */

typedef struct progress {
    int done, without; /* epochs; looks at dev without anything better */
    long step;
    double least, best_dev, best_ce;
    long long forward, backward; /* rows that passed the weights */
} progress;

/* Four vectors are kept. */
static bool is_small(const kh_descent *d) { return d->n <= STATE_MAX / (4 * sizeof *d->x); }

static int keep_descent(const kh_descent *d, const kh_adamw *adamw, progress *at, kh_err *err) {
    kh_meter now = kh_plm_meter(d->t->plm), start = d->t->start;
    const float *vector[] = { d->x, d->best, adamw->m, adamw->v };
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    at->step = adamw->step;
    at->best_dev = d->best_dev, at->best_ce = d->best_ce;
    at->forward = now.forward - start.forward, at->backward = now.backward - start.backward;
    kh_buf_bytes(&b, at, sizeof *at);
    for (int i = 0; i < 4; i++)
        kh_buf_bytes(&b, vector[i], d->n * sizeof **vector);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err)
                               : kh_tuning_keep(d->t, "descent", 0, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

/* 1: the descent is where it was when it was kept; 0: it is at its start. The bytes are memory as
 * it lay: only the run that kept them reads them again. */
static int recall_descent(kh_descent *d, kh_adamw *adamw, progress *at, kh_err *err) {
    float *vector[] = { d->x, d->best, adamw->m, adamw->v };
    size_t bytes = d->n * sizeof **vector;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = kh_tuning_recall(d->t, "descent", 0, &b, err);
    if (rc == 1 && b.len != sizeof *at + 4 * bytes)
        rc = kh_fail(err, KH_EFORMAT, "the kept state of a descent is damaged: %zu bytes", b.len);
    if (rc == 1) {
        memcpy(at, b.data, sizeof *at);
        for (size_t i = 0; i < 4; i++)
            memcpy(vector[i], b.data + sizeof *at + i * bytes, bytes);
        adamw->step = at->step;
        d->best_dev = at->best_dev, d->best_ce = at->best_ce;
        kh_plm_count_passes(d->t->plm, (int)at->backward, 0, true, 0);
        kh_plm_count_passes(d->t->plm, (int)(at->forward - at->backward), 0, false, 0);
    }
    kh_buf_free(&b);
    return rc;
}

/* ---- the loop */

static void say_why(const kh_descent *d, const progress *at) {
    if (d->t->stopped[0])
        return;
    if (at->without >= d->o->patience)
        kh_tuning_stop(
            d->t, "dev was not better for %d looks, after %d epochs", at->without, at->done);
    else
        kh_tuning_stop(d->t, "all %d epochs are done", at->done);
}

/* The starting point is judged before the first step, so that a descent that never helps returns
 * what it began with. */
static int run_epochs(kh_descent *d, kh_adamw *adamw, int *order, progress *at, kh_err *err) {
    const kh_descent_opts *o = d->o;
    bool better;
    int rc = recall_descent(d, adamw, at, err);
    if (rc == 0)
        rc = judge(d, &better, err);
    else if (rc > 0) /* recalled: it was judged before */
        rc = 0;
    while (rc == 0 && at->done < o->epochs && at->without < o->patience &&
        kh_tuning_may(d->t, 0, at->done > 0)) {
        double loss;
        char facts[KH_FACTS];
        if ((rc = epoch(d, adamw, at->done, order, &loss, err)) != 0)
            break;
        at->least = loss < at->least ? loss : at->least;
        if (++at->done % o->dev_every == 0 && (rc = judge(d, &better, err)) == 0)
            at->without = better ? 0 : at->without + 1;
        facts_of(d, loss, at->least, facts);
        if (rc == 0)
            kh_tuning_report(d->t, d->phase,
                &(kh_generation){
                    -1, at->done, at->done, o->epochs, d->best_dev, facts, 0, false });
        if (rc == 0 && is_small(d) && kh_tuning_due(d->t))
            rc = keep_descent(d, adamw, at, err);
    }
    return rc;
}

int kh_descent_run(kh_descent *d, kh_err *err) {
    kh_adamw adamw = { 0 };
    int *order = kh_calloc((size_t)d->n_train, sizeof *order);
    progress at = { .least = INFINITY };
    d->best = kh_malloc(d->n * sizeof *d->best);
    d->best_dev = d->best_ce = NAN;
    int rc = order && d->best ? kh_adamw_init(&adamw, d->segment, d->n_segment, err)
                              : kh_fail_memory(err);
    if (rc == 0)
        rc = run_epochs(d, &adamw, order, &at, err);
    if (rc == 0) {
        memcpy(d->x, d->best, d->n * sizeof *d->x);
        say_why(d, &at);
        d->t->looks = 1 + at.done / d->o->dev_every;
    }
    kh_adamw_free(&adamw);
    kh_free(d->best);
    kh_free(order);
    return rc;
}

/* Prompt or prefix: the two vectors that a frozen model can be steered by. */
int kh_gradient_pass_learn(kh_gradient_pass *g, unsigned wrt, int slots, const char *phase,
    float *x, size_t n, kh_err *err) {
    bool prompt = wrt == KH_WRT_PROMPT;
    int rc = kh_gradient_new(&g->gradient, &g->box->params, g->o->shards, wrt, prompt ? slots : 0,
        prompt ? 0 : slots, err);
    g->slope = prompt ? kh_gradient_prompt : kh_gradient_prefix;
    kh_descent d = { .t = g->t,
        .o = g->o,
        .phase = phase,
        .x = x,
        .n = n,
        .segment = &(kh_param_group){ n, true },
        .n_segment = 1 };
    kh_descent_through(&d, g);
    if (rc == 0)
        rc = kh_descent_run(&d, err);
    kh_gradient_free(g->gradient);
    g->gradient = NULL;
    return rc;
}

/* Learning asks the box nothing; the result is judged on dev once. */
long long kh_descent_least(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_dev;
}
