/* tuning.c - see tuning.h.
 *
 * The books of a run: what was asked and how long it took, counted from where the box's meter and
 * the clock stood when the run began, so that a box that was used before, and a run that was
 * resumed, count right. Everything that decides anything is deterministic but for the clock, which
 * only ends a run (budget of seconds) and never changes what is drawn or asked. */
#include "tune/tuning.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hooks.h"
#include "posterior/predict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- budget */

const char *kh_tuning_model(const kh_tuning *t) {
    return t->o->model ? t->o->model : kh_plm_describe(t->plm).opened;
}

/* A resumed run has spent the time of the processes before it already. */
void kh_tuning_begin(kh_tuning *t) {
    t->start = kh_plm_meter(t->plm);
    t->started = t->kept = kh_clock();
    if (t->o->run)
        t->started -= kh_run_spent(t->o->run);
}

long long kh_tuning_queries(const kh_tuning *t) {
    return kh_plm_meter(t->plm).queries - t->start.queries;
}

double kh_tuning_seconds(const kh_tuning *t) { return kh_clock() - t->started; }

void kh_tuning_stop(kh_tuning *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->stopped, sizeof t->stopped, fmt, args);
    va_end(args);
}

bool kh_tuning_interrupted(const kh_tuning *t) {
    const kh_answer_cache *cache = t->o->run ? kh_run_cache(t->o->run) : NULL;
    return cache && cache->stop(cache->self);
}

/* Seconds that so many queries will take, by what those before them took. Assumes that queries stay
 * as expensive as they were: rows have the same lengths in each generation. */
static double seconds_for(const kh_tuning *t, long long queries) {
    long long asked = kh_tuning_queries(t);
    return asked > 0 ? kh_tuning_seconds(t) / (double)asked * (double)queries : 0;
}

/* A budget is not overdrawn to finish a generation: one that would end too late is not begun. What
 * the end of the run will ask (calibration, the held rows) counts with it. */
static void look_at_clock(kh_tuning *t, long long queries) {
    double limit = t->o->max_seconds, now = kh_tuning_seconds(t);
    if (now >= limit)
        kh_tuning_stop(t, "the budget of %g seconds is used up", limit);
    else if (now + seconds_for(t, queries + t->reserve) > limit)
        kh_tuning_stop(t, "the next generation would exceed the budget of %g seconds", limit);
}

/* Queries are a hard limit, since they may cost money; the clock waits until there is something to
 * return (`have`), and is not looked at while answers come from the journal, whose replay takes no
 * time and must take the same path as the first time. */
bool kh_tuning_may(kh_tuning *t, long long queries, bool have) {
    const kh_tune_opts *o = t->o;
    if (t->stopped[0])
        return false;
    if (o->max_queries > 0 && kh_tuning_queries(t) + queries + t->reserve > o->max_queries)
        kh_tuning_stop(
            t, "the next generation would exceed the budget of %lld queries", o->max_queries);
    else if (have && kh_run_finishes(o->run) && kh_run_at_end(o->run))
        kh_tuning_stop(t, "finished early, as asked, with what had been answered");
    else if (have && o->max_seconds > 0 && !(o->run && kh_run_replaying(o->run)))
        look_at_clock(t, queries);
    return !t->stopped[0];
}

/* ------------------------------------------------------------------------------------ progress */

static void put_dev(char *out, size_t cap, double dev) {
    if (isnan(dev))
        snprintf(out, cap, "-");
    else
        snprintf(out, cap, "%.4f", dev);
}

void kh_loss_facts(char facts[KH_FACTS], double loss, double best) {
    snprintf(facts, KH_FACTS, "loss=%.6f best=%.6f", loss, best);
}

/* One line serves three readers: the journal, the caller's record (log.txt) and, with the time that
 * is left, the terminal. What is late was shown when it happened. */
void kh_tuning_report(kh_tuning *t, const char *phase, const kh_generation *g) {
    char dev[32], member[32] = "", line[KH_FACTS + 128], note[KH_FACTS + 192];
    put_dev(dev, sizeof dev, g->dev);
    if (g->member >= 0)
        snprintf(member, sizeof member, "member=%d ", g->member);
    long long queries = g->queries > 0 ? g->queries : kh_tuning_queries(t);
    snprintf(line, sizeof line, "%sgen=%d queries=%lld %s dev=%s", member, g->gen, queries,
        g->facts, dev);
    if (t->o->run)
        kh_run_generation(t->o->run, phase, g->done, g->total, line);
    if (t->o->record)
        t->o->record(t->o->user, line);
    if (g->late)
        return;
    double spent = kh_tuning_seconds(t),
           left = g->done > 0 ? spent / (double)g->done * (double)(g->total - g->done) : 0;
    if (g->total > 0)
        snprintf(note, sizeof note, "%s left=%.0fs", line, left);
    else
        snprintf(note, sizeof note, "%s", line);
    if (kh_report_progress(t->o->hooks, phase, g->done, g->total, note) != 0)
        kh_tuning_stop(t, "stopped on request");
}

/* -------------------------------------------------------------------------------------- states */

/* States are an optimisation of resuming and no part of the result: they are kept every so many
 * seconds, whenever that is, because a run that finds none computes the same from its recorded
 * answers. */
bool kh_tuning_due(const kh_tuning *t) {
    kh_run *run = t->o->run;
    return run && kh_run_caught_up(run) && kh_clock() - t->kept >= kh_run_keep_seconds(run);
}

/* The meter is kept as a difference from the start of the run, so that the books of a resumed run,
 * whose box has a meter of its own, can be set to what they were. */
int kh_tuning_keep(
    kh_tuning *t, const char *name, int number, const void *bytes, size_t n, kh_err *err) {
    if (!t->o->run || !kh_run_caught_up(t->o->run))
        return 0;
    kh_meter now = kh_plm_meter(t->plm);
    kh_run_books books = { .meter = { .prompts = now.prompts - t->start.prompts,
                               .queries = now.queries - t->start.queries,
                               .tokens = now.tokens - t->start.tokens,
                               .seconds = now.seconds - t->start.seconds },
        .dev_queries = t->dev_queries };
    t->kept = kh_clock();
    return kh_run_keep(t->o->run, name, number, &books, bytes, n, err);
}

int kh_tuning_forget(kh_tuning *t, const char *name, int number, kh_err *err) {
    return t->o->run && kh_run_caught_up(t->o->run) ? kh_run_forget(t->o->run, name, number, err)
                                                    : 0;
}

/* Advances the box's meter to where it stood when the state was kept: the queries before it were
 * paid for by an earlier process, and are reported, but not asked again. */
int kh_tuning_recall(kh_tuning *t, const char *name, int number, kh_buf *bytes, kh_err *err) {
    kh_run_books books;
    if (!t->o->run)
        return 0;
    int rc = kh_run_recall(t->o->run, name, number, &books, bytes, t->o->record, t->o->user, err);
    if (rc != 1)
        return rc;
    kh_meter now = kh_plm_meter(t->plm);
    books.meter.prompts -= now.prompts - t->start.prompts; /* what has been counted already */
    books.meter.queries -= now.queries - t->start.queries;
    books.meter.tokens -= now.tokens - t->start.tokens;
    books.meter.seconds -= now.seconds - t->start.seconds;
    kh_plm_count_replayed(t->plm, &books.meter);
    t->dev_queries = books.dev_queries;
    return 1;
}

/* -------------------------------------------------------------------------------------- asking */

/* Scorer and labeler both: which of them is asked follows from what is wanted, and the one that the
 * method may not have is NULL. */
static kh_target target_of(const kh_tuning *t, const kh_subspace *space, const kh_batch *batch) {
    return (kh_target){ t->scorer, t->labeler, space, batch, t->words };
}

kh_train_loss kh_tuning_loss(const kh_tuning *t, const kh_subspace *space, kh_loss loss) {
    return (
        kh_train_loss){ target_of(t, space, t->train), loss, t->task->metric, 1, t->train_share };
}

/* A sample's own prior over labels goes, by its answers to these rows (doc/methods.md, T20). share
 * NULL: it stays. */
static int remove_prior(const double *share, float *logprob, int n_row, int n_label, kh_err *err) {
    double *prior = share ? kh_malloc((size_t)n_label * sizeof *prior) : NULL;
    if (!share)
        return 0;
    int rc = prior
        ? kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, logprob, n_row, n_label, share, prior, err)
        : kh_fail_memory(err);
    if (rc == 0)
        kh_label_prior_correct(prior, logprob, n_row, n_label);
    kh_free(prior);
    return rc;
}

/* All candidates of all subspaces go into one question, so that a box that batches (the engine, a
 * service, ranks) sees as many prompts as there are; the losses are taken apart here. */
int kh_train_losses(const kh_train_loss *l, int n_loss, const float *const *z, int n,
    double *const *f, kh_err *err) {
    int n_row = l->target.batch->n_row, n_label = l->target.words->n_label;
    size_t size = (size_t)n_row * (size_t)n_label;
    float *logprob = kh_malloc((size_t)n_loss * (size_t)n * size * sizeof *logprob);
    kh_target *target = kh_malloc((size_t)n_loss * sizeof *target);
    int rc = logprob && target ? 0 : kh_fail_memory(err);
    for (int k = 0; k < n_loss && rc == 0; k++)
        target[k] = l[k].target;
    if (rc == 0)
        rc = kh_targets_score(target, n_loss, z, n, logprob, err);
    for (int i = 0; i < n_loss * n && rc == 0; i++)
        rc = remove_prior(l->share, logprob + (size_t)i * size, n_row, n_label, err);
    for (int i = 0; i < n_loss * n && rc == 0; i++)
        f[i / n][i % n] = l->scale *
            kh_loss_value(l->loss, l->metric, logprob + (size_t)i * size, l->target.batch->label,
                n_row, n_label);
    kh_free(logprob);
    kh_free(target);
    return rc;
}

static int train_loss(void *self, const float *z, int n, double *f, kh_err *err) {
    return kh_train_losses(self, 1, &z, n, &f, err);
}

kh_objective kh_objective_of(kh_train_loss *l) {
    return (kh_objective){ kh_subspace_space(l->target.space)->dim, train_loss, l };
}

size_t kh_dev_size(const kh_tuning *t) { return (size_t)t->dev->n_row * (size_t)t->words->n_label; }

/* The predictive distribution (T1) of the dev rows: the average of the samples' distributions, not
 * of their log-probabilities; kh_mixture_add sums in double, in the order of the samples. */
int kh_tuning_dev(
    kh_tuning *t, const kh_subspace *space, const float *z, int n, double *p, kh_err *err) {
    float *logprob = kh_malloc((size_t)n * kh_dev_size(t) * sizeof *logprob),
          *weight = kh_malloc((size_t)n * sizeof *weight);
    int rc = logprob && weight ? 0 : kh_fail_memory(err);
    kh_target target = target_of(t, space, t->dev);
    if (rc == 0)
        rc = kh_target_score(&target, z, n, logprob, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = remove_prior(t->dev_share, logprob + (size_t)i * kh_dev_size(t), t->dev->n_row,
            t->words->n_label, err);
    if (rc == 0) {
        t->dev_queries += (long long)n * t->dev->n_row;
        for (int i = 0; i < n; i++)
            weight[i] = (float)(1.0 / n);
        for (size_t i = 0; i < kh_dev_size(t); i++)
            p[i] = 0;
        kh_mixture_add(p, logprob, weight, n, t->dev->n_row, t->words->n_label);
        kh_mixture_finish(p, t->dev->n_row, t->words->n_label);
    }
    kh_free(logprob);
    kh_free(weight);
    return rc;
}

/* Each candidate judged by itself, in one question. */
int kh_tuning_dev_each(kh_tuning *t, const kh_subspace *const *space, const float *const *z, int n,
    double *const *p, kh_err *err) {
    size_t size = kh_dev_size(t);
    float *logprob = kh_malloc((size_t)n * size * sizeof *logprob);
    kh_target *target = kh_malloc((size_t)n * sizeof *target);
    int rc = logprob && target ? 0 : kh_fail_memory(err);
    for (int k = 0; k < n && rc == 0; k++)
        target[k] = target_of(t, space[k], t->dev);
    if (rc == 0)
        rc = kh_targets_score(target, n, z, 1, logprob, err);
    t->dev_queries += rc == 0 ? (long long)n * t->dev->n_row : 0;
    for (int k = 0; k < n && rc == 0; k++)
        rc = remove_prior(
            t->dev_share, logprob + (size_t)k * size, t->dev->n_row, t->words->n_label, err);
    for (int k = 0; k < n && rc == 0; k++) {
        memset(p[k], 0, size * sizeof *p[k]);
        kh_mixture_add(
            p[k], logprob + (size_t)k * size, &(float){ 1 }, 1, t->dev->n_row, t->words->n_label);
        kh_mixture_finish(p[k], t->dev->n_row, t->words->n_label);
    }
    kh_free(logprob);
    kh_free(target);
    return rc;
}

double kh_dev_metric(const kh_tuning *t, const double *p) {
    return kh_metric_of_p(t->task->metric, p, t->dev->label, t->dev->n_row, t->words->n_label);
}

double kh_dev_ce(const kh_tuning *t, const double *p) {
    double sum = 0;
    for (int i = 0; i < t->dev->n_row; i++)
        sum -= log(p[(size_t)i * (size_t)t->words->n_label + (size_t)t->dev->label[i]]);
    return sum / t->dev->n_row;
}

/* The rows go the way that test rows will go later (kh_predictor), so that what is measured here is
 * what a user gets. Answers are held for calibration before the predictor is gone: asking twice
 * would cost twice. */
static int judge_rows(kh_tuning *t, kh_posterior *p, kh_plm *plm, bool with_train, kh_err *err) {
    kh_predictor *predictor = NULL;
    int n_label = t->task->n_label, n = t->n_dev + (with_train ? t->n_train : 0);
    long long before = kh_tuning_queries(t);
    double *answer = kh_calloc((size_t)n * (size_t)n_label, sizeof *answer);
    int *label = kh_calloc((size_t)n, sizeof *label);
    int rc =
        answer && label ? kh_predictor_new(&predictor, p, plm, t->task, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_predictor_run(predictor, t->dev_row, t->n_dev, answer, err);
    t->dev_queries += kh_tuning_queries(t) - before;
    if (rc == 0 && with_train)
        rc = kh_predictor_run(
            predictor, t->train_row, t->n_train, answer + (size_t)t->n_dev * (size_t)n_label, err);
    for (int i = 0; i < n && rc == 0; i++)
        label[i] = i < t->n_dev ? t->dev_row[i].label : t->train_row[i - t->n_dev].label;
    if (rc == 0)
        rc = kh_tuning_hold(t, answer, label, NULL, n, err);
    if (rc == 0)
        p->dev = kh_tuning_held_metric(t);
    kh_predictor_free(predictor);
    kh_free(answer);
    kh_free(label);
    return rc;
}

int kh_tuning_judge(kh_tuning *t, kh_posterior *p, kh_plm *plm, kh_err *err) {
    return judge_rows(t, p, plm, false, err);
}

int kh_tuning_judge_all(kh_tuning *t, kh_posterior *p, kh_plm *plm, kh_err *err) {
    return judge_rows(t, p, plm, true, err);
}
