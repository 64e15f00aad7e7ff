/* forecast.c - what a run will cost at most, told before the first query.
 *
 * The forecast is an upper bound made of three factors: how many candidates and questions the
 * method's plan has at most, how many tokens a row has on average, and how long a query takes,
 * measured on a few rows before the run or taken from the journal of the run that is resumed. What
 * a run really takes is less where it stops early. The other efforts are forecast as well, so that
 * a person who is told "40 minutes" sees what "quick" would take. */
#include "tune/method.h"

#include "base/alloc.h"
#include "base/err.h"
#include "plm/backend.h"
#include "tune/effort.h"
#include "tune/fallback.h"

#include <stdio.h>
#include <time.h>

/* As many as early rejection asks at a time: enough to fill the engine, cheap enough to ask twice.
 */
enum { WARM_ROWS = 8 };

/* Mean tokens of a row, as the box counts them. */
static double tokens_of(const kh_tuning *t, const kh_batch *b) {
    return b && b->n_row > 0 ? (double)kh_plm_tokens(t->plm, b) / b->n_row : 0;
}

/* Methods without a soft prompt encode rows when they ask. A demonstration is as long as a row, and
 * no sequence is longer than the model reads. */
int kh_tuning_row_tokens(const kh_tuning *t, int shown, double *tokens, kh_err *err) {
    kh_plm_info info = kh_plm_describe(t->plm);
    kh_batch_opts o = {
        .max_len = info.max_len, .paper_exact = t->o->paper_exact, .next = info.next
    };
    kh_batch *b;
    int rc = kh_batch_encode(
        &b, kh_plm_tokenizer(t->plm), t->task, t->words, t->dev_row, t->n_dev, &o, err);
    if (rc == 0)
        *tokens = tokens_of(t, b) * (1 + shown);
    if (rc == 0 && *tokens > (double)info.max_len * t->words->n_variant)
        *tokens = (double)info.max_len * t->words->n_variant;
    kh_batch_free(b);
    return rc;
}

/* Two questions of a few rows, with no prompt but P0; the second is timed. */
static int warm_up(const kh_tuning *t, kh_forecast *f, kh_err *err) {
    int n = t->train->n_row < WARM_ROWS ? t->train->n_row : WARM_ROWS, label[WARM_ROWS];
    kh_batch rows = kh_batch_part(t->train, 0, n);
    float *prompt = kh_calloc((size_t)t->space.slots * (size_t)t->space.hidden, sizeof *prompt);
    kh_question q = { &rows, t->words, t->space.inject, prompt, 1 };
    int rc = prompt ? kh_plm_answer(t->labeler, &q, label, err) : kh_fail_memory(err);
    double before = kh_plm_meter(t->plm).seconds;
    if (rc == 0)
        rc = kh_plm_answer(t->labeler, &q, label, err);
    f->query_seconds = (kh_plm_meter(t->plm).seconds - before) / n;
    f->warm_up = 2LL * n;
    kh_free(prompt);
    return rc;
}

/* The same without a soft prompt, on rows as they are; in seconds for a row of the forecast's
 * length. */
static int warm_up_plain(const kh_tuning *t, kh_forecast *f, kh_err *err) {
    kh_plm_info info = kh_plm_describe(t->plm);
    kh_batch_opts o = {
        .max_len = info.max_len, .paper_exact = t->o->paper_exact, .next = info.next
    };
    int n = t->n_train < WARM_ROWS ? t->n_train : WARM_ROWS, label[WARM_ROWS];
    kh_batch *rows;
    int rc = kh_batch_encode(
        &rows, kh_plm_tokenizer(t->plm), t->task, t->words, t->train_row, n, &o, err);
    if (rc != 0)
        return rc;
    kh_question q = { .batch = rows, .words = t->words, .n_prompt = 1 };
    rc = kh_plm_answer(t->labeler, &q, label, err);
    kh_meter before = kh_plm_meter(t->plm);
    if (rc == 0)
        rc = kh_plm_answer(t->labeler, &q, label, err);
    kh_meter m = kh_plm_meter(t->plm);
    if (m.tokens > before.tokens)
        f->query_seconds =
            (m.seconds - before.seconds) / (double)(m.tokens - before.tokens) * f->row_tokens;
    f->warm_up = 2LL * n;
    kh_batch_free(rows);
    return rc;
}

/* What the method would take at another effort, by that effort's own settings. A row is as long as
 * now, but for the slots. */
static int at_effort(
    const kh_tuning *t, const kh_method *m, kh_effort e, kh_forecast *f, kh_err *err) {
    kh_tuning like = *t;
    kh_batch rows = t->train ? *t->train : (kh_batch){ 0 };
    kh_plan most = { 0 };
    void *opts = kh_calloc(1, m->opts_size + 1);
    if (!opts)
        return kh_fail_memory(err);
    kh_opts_init(m->opts, opts);
    int rc = kh_effort_set(e, m, opts, err);
    like.filled = (kh_tune_opts){ .effort = e, .label_prior = t->o->label_prior };
    like.o = &like.filled;
    if (rc == 0)
        rc = kh_effort_fill(&like.filled, m, opts, t->space.hidden, err);
    if (t->train) {
        int part = like.filled.search_rows;
        rows.n_row = part > 0 && part < t->n_train ? part : t->n_train;
        like.train = &rows;
    }
    if (rc >= 0 && m->most)
        m->most(&like, opts, &most);
    like.reserve += kh_tuning_net_cost(&like, m) - kh_tuning_net_cost(t, m);
    long long queries = most.train + most.dev + (most.candidates > 0 ? like.reserve : 0);
    long long least = rc >= 0 && t->train ? kh_tuning_least(&like, m, opts) : 0;
    if (rc > 0 && like.filled.max_queries < least) /* as a run of it does */
        like.filled.max_queries = least;
    if (like.filled.max_queries > 0 && (queries == 0 || queries > like.filled.max_queries))
        queries = like.filled.max_queries;
    double longer = t->train ? like.filled.space.slots - t->space.slots : 0,
           tokens = f->row_tokens > 0 ? (f->row_tokens + longer) / f->row_tokens : 1;
    f->effort[e].queries = queries;
    f->effort[e].seconds = f->query_seconds * tokens * (double)queries;
    kh_opts_free(m->opts, opts);
    kh_free(opts);
    return rc < 0 ? rc : 0;
}

/* Asked for by a callback only; without one no warm-up questions are paid for. The callback may end
 * the run before its first query. */
int kh_tuning_forecast(kh_tuning *t, const kh_method *m, const void *opts, kh_err *err) {
    const kh_tune_opts *o = t->o;
    if (!o->forecast)
        return 0;
    kh_plan most = { 0 };
    kh_forecast f = { .train_rows = t->train ? t->train->n_row : t->n_train,
        .dev_rows = t->dev ? t->dev->n_row : t->n_dev };
    int rc = 0;
    if (m->most)
        m->most(t, opts, &most);
    f.candidates = most.candidates;
    f.least = kh_tuning_least(t, m, opts);
    f.queries = most.train + most.dev + (most.candidates > 0 ? t->reserve : 0);
    f.row_tokens =
        (tokens_of(t, t->train) * (double)most.train + tokens_of(t, t->dev) * (double)most.dev) /
        (double)(f.queries ? f.queries : 1);
    if (o->max_queries > 0 && (f.queries == 0 || f.queries > o->max_queries))
        f.queries = o->max_queries;
    if (f.row_tokens == 0)
        f.row_tokens = tokens_of(t, t->train);
    if (f.row_tokens == 0 && t->words && t->n_dev > 0)
        rc = kh_tuning_row_tokens(t, most.shown, &f.row_tokens, err);
    f.tokens = (long long)(f.row_tokens * (double)f.queries + 0.5);
    if (o->run && kh_run_resumed(o->run) && kh_run_rate(o->run) > 0)
        f.query_seconds = 1 / kh_run_rate(o->run);
    else if (rc == 0 && ((t->train && m->soft) || (m->chooses && t->words))) {
        rc = t->train && m->soft ? warm_up(t, &f, err) : warm_up_plain(t, &f, err);
        char text[64];
        snprintf(text, sizeof text, "queries=%lld seconds=%.6f", f.warm_up,
            f.query_seconds * (double)f.warm_up / 2);
        if (rc == 0 && o->run)
            kh_run_event(o->run, "warm-up", text);
    }
    for (int e = 0; e < KH_EFFORTS && rc == 0; e++)
        rc = at_effort(t, m, (kh_effort)e, &f, err);
    if (rc != 0)
        return rc;
    return o->forecast(o->user, &f) != 0 ? kh_fail(err, KH_STOPPED, "stopped after the forecast")
                                         : 0;
}
