/* terms.c - the terms of a run: everything that decides its result, in words that a person can
 * compare. A run is resumed under the same terms, budgets apart.
 *
 * Terms are compared one by one with those of the journal (kh_run_begin), so a person who changes
 * --lr is told that it was --lr, not that a hash differs. Texts, tasks and models are hashed: what
 * they are called may change, what they say may not. A term marked as a budget may differ when a
 * run is resumed: it decides how far a run goes or how it ends, but not what is asked on the way.
 */
#include "tune/method.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "data/task.h"
#include "tune/fallback.h"

#include <stdio.h>
#include <string.h>

/* More than any method has; one too many ends the run before its first query. */
enum { MAX_TERMS = 128 };

typedef struct terms {
    kh_run_option term[MAX_TERMS];
    int n;
    bool failed;
    kh_arena arena;
} terms;

static void add(terms *t, const char *name, const char *value, bool budget) {
    char *copy = kh_arena_strndup(&t->arena, value, strlen(value));
    if (!copy || t->n == MAX_TERMS)
        t->failed = true;
    else
        t->term[t->n++] = (kh_run_option){ name, copy, budget };
}

/* 17 digits name a double exactly. */
static void add_number(terms *t, const char *name, double value, bool budget) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    add(t, name, text, budget);
}

static void add_hash(terms *t, const char *name, uint64_t hash) {
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    add(t, name, text, false);
}

/* Options that version 0.1 did not have, so that its runs know nothing of them. Off, they are no
 * term; on, they are a part of another one, which then differs from what a run without has. */
static const struct {
    const char *option, *part_of;
} LATER[] = { { "reuse-draws", "first-draws" }, { "race", "pop" },
    { "budget-stall", "budget-generations" }, { "learn-moves", "step" } };
enum { N_LATER = sizeof LATER / sizeof LATER[0] };

static bool is_later(const char *name) {
    for (int i = 0; i < N_LATER; i++)
        if (strcmp(LATER[i].option, name) == 0)
            return true;
    return false;
}

/* " --later VALUE" for those that are on and a part of this one. False: out of memory. */
static bool add_parts(const kh_opt *table, const void *opts, const char *name, kh_buf *value) {
    bool failed = false;
    for (int i = 0; i < N_LATER; i++) {
        kh_buf part = kh_buf_init(256);
        const kh_opt *row = strcmp(LATER[i].part_of, name) == 0
            ? kh_opts_find(table, LATER[i].option, strlen(LATER[i].option))
            : NULL;
        if (row)
            kh_opts_value(row, opts, &part);
        failed |= kh_buf_failed(&part);
        if (row && !failed && strcmp(part.data, "false") != 0 && strcmp(part.data, "0") != 0)
            kh_buf_printf(value, " --%s %s", row->name, part.data);
        kh_buf_free(&part);
    }
    return !failed;
}

/* The method's own options as a user would type them. */
static void add_options(terms *t, const kh_opt *table, const void *opts) {
    for (const kh_opt *row = table; row && row->name; row++) {
        kh_buf value = kh_buf_init(1 << 20), name = kh_buf_init(256);
        if (is_later(row->name))
            continue;
        kh_opts_value(row, opts, &value);
        t->failed |= !add_parts(table, opts, row->name, &value);
        kh_buf_printf(&name, "--%s", row->name);
        char *copy = kh_buf_failed(&name) ? NULL : kh_arena_strndup(&t->arena, name.data, name.len);
        if (!copy || kh_buf_failed(&value))
            t->failed = true;
        else
            add(t, copy, value.data, strncmp(row->name, "budget-", 7) == 0);
        kh_buf_free(&value);
        kh_buf_free(&name);
    }
}

/* The length goes in first: without it "ab" + "c" and "a" + "bc" would be the same rows. */
static uint64_t hash_text(uint64_t h, const char *s, size_t n) {
    h = kh_hash64_more(h, &n, sizeof n);
    return s ? kh_hash64_more(h, s, n) : h;
}

static uint64_t hash_rows(const kh_row *row, int n) {
    uint64_t h = KH_HASH64_START;
    for (int i = 0; i < n; i++) {
        h = hash_text(h, row[i].a, row[i].n_a);
        h = hash_text(h, row[i].b, row[i].b ? row[i].n_b : 0);
        h = kh_hash64_more(h, &row[i].label, sizeof row[i].label);
    }
    return h;
}

static void add_task(terms *t, const kh_task *task) {
    kh_buf json = kh_buf_init(1 << 24);
    kh_task_json(task, &json);
    t->failed |= kh_buf_failed(&json);
    if (!t->failed)
        add_hash(t, "the hash of the task", kh_hash64(json.data, json.len));
    kh_buf_free(&json);
}

static void add_space(terms *t, const kh_space *s) {
    add_number(t, "--dim", s->dim, false);
    add_number(t, "--slots", s->slots, false);
    add(t, "--inject", kh_inject_name(s->inject), false);
    if (s->placement == KH_SLOTS_AFTER)
        add(t, "--placement", "after-text", false);
    add(t, "--projection", kh_projection_name(s->projection), false);
    add_hash(t, "the hash of the prompt at z = 0",
        kh_hash64(s->slot_id, (size_t)s->slots * sizeof *s->slot_id));
}

/* Kernels and precision belong here, because they are part of the bits that answers have. */
static void collect(terms *t, const kh_tuning *u, const kh_method *m, const void *opts) {
    const kh_tune_opts *o = u->o;
    kh_plm_info box = kh_plm_describe(u->plm);
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->seed);
    add(t, "--method", m->name, false);
    add(t, "--seed", seed, false);
    add(t, "the task", u->task->name, false);
    add_task(t, u->task);
    add_hash(t, "the hash of the train rows", hash_rows(u->train_row, u->n_train));
    add_hash(t, "the hash of the dev rows", hash_rows(u->dev_row, u->n_dev));
    add_hash(t, "the model's fingerprint", box.fingerprint);
    add(t, "--precision", box.precision, false);
    add(t, "the kernel", box.kernels, false);
    add(t, "--access", kh_access_name(box.access), false);
    add(t, "--paper-exact", o->paper_exact ? "true" : "false", false);
    if (m->soft)
        add_space(t, &u->space);
    if (o->prior_inside)
        add(t, "--label-prior inside", "true", false);
    if (u->search_row)
        add_number(t, "--search-rows", u->n_search, false);
    add_options(t, m->opts, opts);
    add_number(t, "--budget-queries", (double)o->max_queries, true);
    if (o->max_tokens > 0) /* runs of before have none */
        add_number(t, "--budget-tokens", (double)o->max_tokens, true);
    add_number(t, "--budget-time", o->max_seconds, true);
    add(t, "--label-prior", kh_label_prior_name(o->label_prior),
        true); /* as a budget: it decides only how a run ends */
    add(t, "--class-prior", o->class_prior ? o->class_prior : "none", true);
    add(t, KH_RUN_FINISH, kh_run_finishes(o->run) ? "true" : "false", true);
    add(t, "--calibrate", kh_tuning_calibrates(u) ? "auto" : "none", true); /* likewise */
    add(t, "--fallback", kh_tuning_guards(u) ? "template" : "none", true);
    add(t, "--features-model", o->features_model ? o->features_model : "none", true);
    add_number(t, "--groups", o->groups > 1 ? o->groups : 1,
        true); /* as a budget: it decides only in which order questions come */
}

int kh_tuning_begin_run(kh_tuning *u, const kh_method *m, const void *opts, kh_err *err) {
    const kh_tune_opts *o = u->o;
    terms t = { .n = 0 };
    collect(&t, u, m, opts);
    kh_run_card card = { .method = m->name,
        .task = u->task->name,
        .model = kh_tuning_model(u),
        .data = o->data,
        .access = kh_access_name(m->access),
        .metric = kh_metric_name(u->task->metric),
        .seed = o->seed };
    int rc = t.failed ? kh_fail_memory(err) : kh_run_begin(o->run, &card, t.term, t.n, err);
    kh_arena_free(&t.arena);
    return rc;
}
