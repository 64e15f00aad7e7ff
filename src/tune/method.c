/* method.c - the table of methods, and the way from two data sets to a posterior.
 *
 * prepare() refuses whatever can be refused before the first query is paid for, and encodes the
 * rows once. run_method() stands between the first line of the journal and the last. find_result()
 * is what every method has in common: its own search, the prior over labels, calibration, and the
 * net that falls back to the template (doc/methods.md, "Never worse than the template").
 *
 * A method is a row of a table (method.h): name, options, what access it needs, what its samples
 * are, and one function. Nothing here branches on a name. */
#include "tune/method.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/place.h"
#include "data/dataset.h"
#include "judge/class_prior.h"
#include "plm/http.h"
#include "posterior/distance.h"
#include "tune/effort.h"
#include "tune/fallback.h"
#include "tune/likelihood_free.h"
#include "tune/search_rows.h"

#include <math.h>
#include <string.h>

static const kh_method *const METHODS[] = {
    &kh_method_auto,
    &kh_method_manual,
    &kh_method_icl,
    &kh_method_bbt,
    &kh_method_ensemble,
    &kh_method_elbo,
    &kh_method_abc_rejection,
    &kh_method_abc_smc,
    &kh_method_smc,
    &kh_method_snpe,
    &kh_method_text_search,
    &kh_method_text_ensemble,
    &kh_method_text_smc,
    &kh_method_prompt_tuning,
    &kh_method_p_tuning_v2,
    &kh_method_model_tuning,
    &kh_method_feature_mlp,
    &kh_method_feature_bilstm,
    &kh_method_feature_logistic,
};

enum { N_METHOD = sizeof METHODS / sizeof METHODS[0] };

const kh_method *kh_method_at(int i) { return i >= 0 && i < N_METHOD ? METHODS[i] : NULL; }

const char *kh_method_name(int i) { return i >= 0 && i < N_METHOD ? METHODS[i]->name : NULL; }

int kh_method_find(const kh_method **out, const char *name, kh_err *err) {
    for (int i = 0; i < N_METHOD; i++)
        if (strcmp(METHODS[i]->name, name) == 0) {
            *out = METHODS[i];
            return 0;
        }
    *out = NULL;
    kh_buf all = kh_buf_init(1 << 12);
    for (int i = 0; i < N_METHOD; i++)
        kh_buf_printf(&all, "%s%s", i ? ", " : "", METHODS[i]->name);
    int rc = kh_fail(
        err, KH_EARG, "unknown method \"%s\"; there are %s", name, all.data ? all.data : "others");
    kh_buf_free(&all);
    return rc;
}

/* ---------------------------------------------------------------------- before the first query */

static int check_access(const kh_method *m, const kh_plm *plm, kh_err *err) {
    kh_access have = kh_plm_describe(plm).access;
    if (have >= m->access)
        return 0;
    return kh_fail(err, KH_EUNSUPPORTED,
        "method %s needs a box that lets out %s; this one was opened at access level %s%s", m->name,
        kh_access_name(m->access), kh_access_name(have),
        have == KH_ACCESS_LABELS ? "; smc, abc-smc, snpe and manual do with labels" : "");
}

/* Methods whose samples vote see nothing that could be corrected; those with gradients have it
 * learned already. */
static int check_label_prior(const kh_method *m, const kh_tuning *t, kh_err *err) {
    bool votes = kh_plm_describe(t->plm).access == KH_ACCESS_LABELS || m->votes || m->sampler;
    if (t->o->label_prior == KH_LABEL_PRIOR_NONE || (!votes && m->access < KH_ACCESS_WEIGHTS))
        return 0;
    return kh_fail(err, KH_EUNSUPPORTED,
        votes ? "label-prior %s needs log-probabilities of the label words; method %s sees labels "
                "only here"
              : "label-prior %s is for methods that ask the box; method %s learns by gradients, "
                "that prior too",
        kh_label_prior_name(t->o->label_prior), m->name);
}

/* Before the first query, not after the last. */
static int check_class_prior(const kh_tuning *t, kh_err *err) {
    const char *prior = t->o->class_prior;
    if (!prior || strcmp(prior, "train") == 0)
        return 0;
    double *x = kh_malloc((size_t)t->task->n_label * sizeof *x);
    int rc = x ? kh_class_prior_parse(x, prior, t->task->n_label, err) : kh_fail_memory(err);
    kh_free(x);
    return rc;
}

/* Every class must be seen, both to learn it and to choose by it. */
static int check_classes(
    const kh_row *row, int n, const kh_task *task, const char *part, kh_err *err) {
    for (int k = 0; k < task->n_label; k++) {
        bool there = false;
        for (int i = 0; i < n && !there; i++)
            there = row[i].label == k;
        if (!there)
            return kh_fail(err, KH_EFORMAT,
                "the %s rows hold none of class %d (\"%s\"); every class of task \"%s\" must be "
                "there",
                part, k, task->label[k].name, task->name);
    }
    for (int i = 0; i < n; i++)
        if (row[i].label < 0)
            return kh_fail(err, KH_EFORMAT, "row %d of the %s rows has no label", i, part);
    return 0;
}

long long kh_tuning_least(const kh_tuning *t, const kh_method *m, const void *opts) {
    return (m->least ? m->least(t, opts) : 0) + t->reserve;
}

/* What a person asks for is kept or refused; a budget that an effort chose grows to what one
 * generation needs. */
static int check_budget(kh_tuning *t, const kh_method *m, const void *opts, kh_err *err) {
    const kh_tune_opts *o = t->o;
    if (o->max_queries < 0 || o->max_seconds < 0 || o->max_tokens < 0)
        return kh_fail(err, KH_EARG, "a budget cannot be negative");
    long long least = kh_tuning_least(t, m, opts);
    if (t->effort_budget && t->filled.max_queries < least)
        t->filled.max_queries = least;
    return o->max_queries == 0 || o->max_queries >= least
        ? 0
        : kh_fail(err, KH_EARG,
              "a budget of %lld queries is too small: one generation of %s and its check on dev "
              "take %lld",
              o->max_queries, m->name, least);
}

/* How frequent the classes are in the rows that a search sees. A class without a row, which a
 * dropped row may leave, gets half of one: a share must be positive. */
static void shares_of(const kh_batch *b, int n_label, double *share) {
    double sum = 0;
    for (int i = 0; i < b->n_row; i++)
        share[b->label[i]]++;
    for (int k = 0; k < n_label; k++)
        sum += share[k] = share[k] > 0 ? share[k] : 0.5;
    for (int k = 0; k < n_label; k++)
        share[k] /= sum;
}

static int find_shares(kh_tuning *t, kh_err *err) {
    size_t n = (size_t)t->task->n_label;
    t->train_share = kh_calloc(2 * n, sizeof *t->train_share);
    if (!t->train_share)
        return kh_fail_memory(err);
    t->dev_share = t->train_share + n;
    shares_of(t->train, (int)n, t->train_share);
    shares_of(t->dev, (int)n, t->dev_share);
    return 0;
}

/* Text prompts are encoded when they are asked; what is needed of the rows before is the plain
 * template's, and all of them. */
static int encode(kh_tuning *t, const kh_method *m, kh_err *err) {
    kh_plm_info box = kh_plm_describe(t->plm);
    kh_batch_opts o = m->soft ? kh_space_batch(&t->space, t->plm, t->o->paper_exact)
                              : (kh_batch_opts){ .max_len = box.max_len, .next = box.next };
    const kh_tokenizer *tok = kh_plm_tokenizer(t->plm);
    kh_row *part = NULL; /* of the train rows, if the search does not ask about all */
    int rc = m->soft ? kh_search_rows(t, &part, err) : 0;
    if (rc == 0)
        rc = kh_batch_encode(&t->train, tok, t->task, t->words, part ? part : t->train_row,
            part ? t->n_search : t->n_train, &o, err);
    kh_free(part);
    if (rc == 0)
        rc = kh_batch_encode(&t->dev, tok, t->task, t->words, t->dev_row, t->n_dev, &o, err);
    if (rc == 0 && (t->train->n_row == 0 || t->dev->n_row == 0))
        rc = kh_fail(err, KH_EFORMAT, "no %s row is short enough for the model",
            t->train->n_row == 0 ? "train" : "dev");
    if (rc == 0 && t->o->prior_inside)
        rc = find_shares(t, err);
    return rc;
}

/* A budget of tokens as one of questions. A method that tries others divides it among them. */
static int count_tokens(kh_tuning *t, const kh_method *m, const void *opts, kh_err *err) {
    kh_plan most = { 0 };
    double tokens = 0;
    if (t->o->max_tokens <= 0 || m->chooses)
        return 0;
    if (m->most)
        m->most(t, opts, &most);
    int rc = kh_tuning_row_tokens(t, most.shown, &tokens, err);
    if (m->soft)
        tokens += t->space.slots;
    long long fit = tokens > 0 ? (long long)((double)t->o->max_tokens / tokens) : 0;
    if (rc == 0 && fit < 1)
        rc = kh_fail(err, KH_EARG, "a budget of %lld tokens is too small: a question has %.0f",
            t->o->max_tokens, tokens);
    if (rc == 0 && (t->filled.max_queries == 0 || fit < t->filled.max_queries))
        t->filled.max_queries = fit;
    return rc;
}

/* Fills t; what it holds is freed by tuning_free, also on failure. */
static int prepare(
    kh_tuning *t, const kh_method *m, const void *opts, const kh_tune_opts *o, kh_err *err) {
    t->filled = *o;
    t->o = &t->filled;
    if (o->prior_inside) /* what the search takes out must be taken out of its result, too */
        t->filled.label_prior = KH_LABEL_PRIOR_BATCH;
    int rc = check_access(m, t->plm, err);
    if (rc == 0)
        rc = kh_effort_fill(&t->filled, m, opts, kh_plm_describe(t->plm).hidden, err);
    t->effort_budget = rc == 1;
    rc = rc == 1 ? 0 : rc;
    if (rc == 0)
        rc = check_label_prior(m, t, err);
    if (rc == 0)
        rc = check_class_prior(t, err);
    if (rc == 0)
        rc = check_classes(t->train_row, t->n_train, t->task, "train", err);
    if (rc == 0)
        rc = check_classes(t->dev_row, t->n_dev, t->task, "dev", err);
    if (rc == 0)
        rc = kh_words_new(&t->words, t->task, kh_plm_tokenizer(t->plm), t->o->paper_exact, err);
    if (rc == 0 && kh_plm_describe(t->plm).next)
        kh_words_continue(t->words);
    kh_space_opts space = t->o->space;
    if (m->whole)
        space.projection = KH_PROJECTION_IDENTITY;
    if (rc == 0 && m->soft)
        rc = kh_space_init(&t->space, &space, t->plm, t->o->seed, err);
    if (rc == 0 && (m->soft || m->text))
        rc = encode(t, m, err);
    int samples = m->samples ? m->samples(opts) : 1;
    t->reserve = t->o->label_prior ? kh_tuning_prior_cost(t, samples)
                                   : kh_tuning_calibrate_cost(t, samples, m->holds);
    t->reserve += kh_tuning_net_cost(t, m);
    if (rc == 0)
        rc = count_tokens(t, m, opts, err);
    if (rc == 0)
        rc = check_budget(t, m, opts, err);
    t->scorer = rc == 0 && m->access >= KH_ACCESS_LOGPROBS ? kh_plm_scorer(t->plm, err) : NULL;
    t->labeler = rc == 0 ? kh_plm_labeler(t->plm, err) : NULL;
    return rc;
}

static void tuning_free(kh_tuning *t) {
    kh_words_free(t->words);
    kh_batch_free(t->train);
    kh_batch_free(t->dev);
    kh_space_free(&t->space);
    kh_free(t->search_row);
    kh_free(t->train_share);
    kh_held_rows_free(&t->held);
    kh_row_scores_free(&t->scores);
}

/* -------------------------------------------------------------------------------------- tuning */

/* The shares of the classes among all labelled rows, where they are not even, and among texts to
 * come. Even shares are not written down: they are what a file without any means (T21). */
static int set_classes(kh_posterior *p, const kh_tuning *t, kh_err *err) {
    int n_label = t->task->n_label, n = t->n_train + t->n_dev;
    bool even = true;
    double *share = kh_arena_array(&p->arena, (size_t)n_label, sizeof *share);
    if (!share)
        return kh_fail_memory(err);
    for (int k = 0; k < n_label; k++)
        share[k] = 0;
    for (int i = 0; i < n; i++)
        share[i < t->n_train ? t->train_row[i].label : t->dev_row[i - t->n_train].label] += 1.0 / n;
    for (int k = 0; k < n_label; k++)
        even = even && fabs(share[k] - 1.0 / n_label) < 1e-9;
    p->class_share = even ? NULL : share;
    const char *prior = t->o->class_prior;
    int rc = prior && strcmp(prior, "train") != 0 ? kh_posterior_set_class_prior(p, prior, err) : 0;
    if (rc == 0 && p->class_prior) /* as every later answer */
        kh_class_prior_apply(p->class_prior, p->class_share, p->fresh.p, p->fresh.n, n_label);
    return rc;
}

/* What the posterior says of the run, apart from its samples. */
static int sign(
    kh_posterior *p, const kh_tuning *t, const kh_method *m, const void *opts, kh_err *err) {
    const kh_tune_opts *o = t->o;
    kh_buf json = kh_buf_init(1 << 20);
    kh_opts_json(m->opts, opts, &json);
    p->options = kh_buf_failed(&json) ? NULL : kh_posterior_keep(p, json.data);
    kh_buf_free(&json);
    const char *served = kh_plm_describe(t->plm).model,
               *model = served ? served : kh_tuning_model(t);
    if (!p->model) /* a method may have made a model of its own */
        p->model = kh_posterior_keep(p, model);
    p->data = kh_posterior_keep(p, o->data);
    p->stopped = kh_posterior_keep(p, t->stopped);
    if (!p->options || (model && !p->model) || (o->data && !p->data) || !p->stopped)
        return kh_fail_memory(err);
    int rc = set_classes(p, t, err);
    if (rc != 0)
        return rc;
    p->seed = o->seed;
    p->paper_exact = o->paper_exact;
    p->shots = o->shots;
    p->train_rows = t->train ? t->train->n_row : t->n_train;
    p->dev_rows = t->dev ? t->dev->n_row : t->n_dev;
    p->dev_queries = t->dev_queries;
    p->train_queries = kh_tuning_queries(t) - t->dev_queries;
    p->forward = kh_plm_meter(t->plm).forward - t->start.forward;
    p->backward = kh_plm_meter(t->plm).backward - t->start.backward;
    return 0;
}

/* The method's own work, and what is done to every result. `chooses`: auto runs other methods
 * through kh_method_try, and each of them was finished there. */
static int find_result(
    kh_tuning *t, const kh_method *m, const void *opts, kh_posterior *p, kh_err *err) {
    int rc = m->sampler ? kh_labels_run(t, m->sampler, opts, p, err) : m->run(t, opts, p, err);
    if (rc == 0 && m->chooses) /* done to it already */
        return 0;
    if (rc == 0 && t->o->label_prior)
        rc = kh_tuning_learn_prior(t, p, err);
    if (rc == 0)
        rc = kh_tuning_calibrate(t, p, err);
    return rc == 0 && kh_tuning_has_net(t, m) ? kh_tuning_fall_back(t, m, p, err) : rc;
}

/* What later texts are compared with, by an encoder on this machine. Without the built-in model
 * there are no distances, and that is no failure. */
static int keep_features(kh_tuning *t, kh_posterior *p, kh_err *err) {
    kh_encoder *e = NULL;
    const char *name = t->o->features_model;
    kh_err why = { 0 };
    int rc = kh_is_url(name)
        ? kh_fail(err, KH_EUNSUPPORTED,
              "--features-model %s: features need a model on this machine", name)
        : kh_encoder_open(&e, name, &why);
    if (rc == KH_EMISSING && strcmp(name, KH_BUILTIN) == 0) {
        kh_log(t->o->hooks, KH_WARN, "no distances for out-of-distribution texts: %s", why.msg);
        return 0;
    }
    if (rc != 0)
        return why.code ? kh_fail(err, rc, "%s", why.msg) : rc;
    p->features_size = kh_encoder_size(e) + 1;
    p->features_cuts = true;
    p->features_fingerprint = kh_encoder_fingerprint(e);
    p->features_model = kh_posterior_keep(p, name);
    p->n_features = t->n_train;
    p->features = kh_malloc((size_t)t->n_train * (size_t)p->features_size * sizeof *p->features);
    rc = p->features && p->features_model
        ? kh_encoder_features(e, t->train_row, t->n_train, true, p->features, err)
        : kh_fail_memory(err);
    kh_encoder_close(e);
    return rc;
}

/* Between the first line of the journal and the last. Errors go to a record of its own first: the
 * journal's last line tells why the run ended, and closing it must not replace the reason. The
 * cache of answers is taken off before anything else is asked of the box. */
static int run_method(
    kh_tuning *t, const kh_method *m, const void *opts, kh_posterior *p, kh_err *err) {
    kh_run *run = t->o->run;
    kh_err why = { 0 };
    int rc = run ? kh_tuning_begin_run(t, m, opts, &why) : 0;
    bool begun = run && rc == 0;
    if (rc == 0)
        rc = kh_tuning_forecast(t, m, opts, &why);
    kh_tuning_begin(t);
    if (begun)
        kh_plm_set_cache(t->plm, kh_run_cache(run));
    if (rc == 0)
        rc = find_result(t, m, opts, p, &why);
    kh_plm_set_cache(t->plm, NULL);
    if (rc == 0 && t->o->features_model)
        rc = keep_features(t, p, &why);
    if (rc == 0)
        rc = sign(p, t, m, opts, &why);
    if (begun) {
        kh_meter used = kh_plm_meter(t->plm);
        kh_run_result result = { p->dev, p->n, p->train_queries, p->dev_queries,
            used.seconds - t->start.seconds, t->stopped };
        kh_err late = { 0 };
        int ended = kh_run_end(run, rc == 0 ? &result : NULL, &why, &late);
        if (rc == 0 && ended != 0) {
            rc = ended;
            why = late;
        }
    }
    return rc == 0 ? 0 : kh_fail(err, rc, "%s", why.msg);
}

int kh_method_run(kh_posterior **out, const kh_method *m, const void *opts, kh_plm *plm,
    const kh_task *task, const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *o,
    kh_err *err) {
    *out = NULL;
    kh_posterior *p = NULL;
    kh_tuning t = { .plm = plm,
        .task = task,
        .train_row = kh_dataset_rows(train),
        .n_train = kh_dataset_size(train),
        .dev_row = kh_dataset_rows(dev),
        .n_dev = kh_dataset_size(dev) };
    int rc = prepare(&t, m, opts, o, err);
    if (rc == 0)
        rc = kh_posterior_new(&p, m->name, plm, task, err);
    if (rc == 0 && m->soft)
        rc = kh_posterior_set_space(p, &t.space, err);
    if (rc == 0) {
        p->paper_exact = o->paper_exact;
        rc = run_method(&t, m, opts, p, err);
    }
    tuning_free(&t);
    if (rc != 0)
        kh_posterior_free(p);
    else
        *out = p;
    return rc;
}

/* "name=value", as in the public API. */
static int set_options(const kh_method *m, void *opts, const char *const *set, kh_err *err) {
    int rc = 0;
    for (; set && *set && rc == 0; set++) {
        size_t n = strcspn(*set, "=");
        const kh_opt *row = kh_opts_find(m->opts, *set, n);
        rc = !row || (*set)[n] != '='
            ? kh_fail(err, KH_EARG,
                  "method %s has no option \"%s\"; options are written name=value", m->name, *set)
            : kh_opts_set(row, opts, *set + n + 1, err);
    }
    return rc;
}

/* A method within another one's run (auto, the net): same rows, same journal, own options and own
 * books; the clock and the queries of dev are the parent's. */
int kh_method_try(
    kh_tuning *parent, const kh_method *m, const kh_trial *how, kh_posterior **out, kh_err *err) {
    kh_posterior *p = NULL;
    kh_tuning t = { .plm = parent->plm,
        .task = parent->task,
        .train_row = parent->train_row,
        .n_train = parent->n_train,
        .dev_row = parent->dev_row,
        .n_dev = parent->n_dev,
        .votes = how->votes };
    void *opts = kh_calloc(1, m->opts_size + 1);
    *out = NULL;
    if (!opts)
        return kh_fail_memory(err);
    kh_opts_init(m->opts, opts);
    int rc = set_options(m, opts, how->set, err);
    if (rc == 0)
        rc = prepare(&t, m, opts, how->o, err);
    if (rc == 0)
        rc = kh_posterior_new(&p, m->name, t.plm, t.task, err);
    if (rc == 0 && m->soft)
        rc = kh_posterior_set_space(p, &t.space, err);
    kh_tuning_begin(&t);
    t.started = parent->started; /* budgets of time are those of the whole run */
    if (rc == 0)
        rc = find_result(&t, m, opts, p, err);
    if (rc == 0 && how->beside)
        rc = kh_tuning_pool(&t, p, how->beside, how->beside_answers, err);
    parent->dev_queries += t.dev_queries;
    if (rc == 0 && how->scores) {
        *how->scores = t.scores;
        t.scores = (kh_row_scores){ 0 };
    }
    if (rc == 0 && how->answers) {
        *how->answers = t.held;
        t.held = (kh_held_rows){ 0 };
    }
    kh_opts_free(m->opts, opts);
    kh_free(opts);
    tuning_free(&t);
    if (rc != 0)
        kh_posterior_free(p);
    else
        *out = p;
    return rc;
}

/* 0: the effort chooses dimension and slots by the model (effort.c). */
kh_tune_opts kh_tune_defaults(void) {
    kh_tune_opts o = { .space = kh_space_defaults(), .effort = KH_EFFORT_NORMAL };
    o.space.dim = o.space.slots = 0;
    return o;
}

int kh_tune(kh_posterior **out, const char *method, const char *const *set, kh_plm *plm,
    const kh_task *task, const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *o,
    kh_err *err) {
    const kh_method *m;
    *out = NULL;
    int rc = kh_method_find(&m, method, err);
    if (rc != 0)
        return rc;
    void *opts = kh_calloc(1, m->opts_size + 1);
    if (!opts)
        return kh_fail_memory(err);
    kh_opts_init(m->opts, opts);
    if (o->paper_exact && m->exact)
        m->exact(opts);
    if (!o->paper_exact)
        rc = kh_effort_set(o->effort, m, opts, err);
    if (rc == 0)
        rc = set_options(m, opts, set, err);
    if (rc == 0)
        rc = kh_method_run(out, m, opts, plm, task, train, dev, o, err);
    kh_opts_free(m->opts, opts);
    kh_free(opts);
    return rc;
}
