/* cmd_reproduce.c - keyhole reproduce: the paper's experiments from beginning to end, and its
 * tables beside ours.
 *
 * The plan (src/reproduce/plan.h) says what is to be run. Each run is an ordinary run folder: it is
 * tuned with a journal, judged, and gets a manifest; one that has a manifest is passed over, one
 * that was interrupted is resumed. */
#include "cli.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "judge/predictions.h"
#include "posterior/posterior.h"
#include "prompt/subspace.h"
#include "reproduce/reproduction.h"
#include "tune/simulator.h"
#include "launcher.h"
#include "monitor.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BESIDE = 8 };

typedef struct reproduce_opts {
    const char *model, *data, *out, *published, *beside;
    kh_repro_plan_opts plan;
    int preset, precision, groups;
    kh_space_opts space;
    double hours;
    bool dry, json;
} reproduce_opts;

static const kh_opt reproduce_table[] = {
    { "model", KH_OPT_TEXT, offsetof(reproduce_opts, model), .arg = "DIR|URL|builtin",
        .help = "the backbone: a model folder, or a service", .required = true },
    { "data", KH_OPT_TEXT, offsetof(reproduce_opts, data), .arg = "DIR",
        .help = "holds a data folder for each task: sst2, yelp, ...", .required = true },
    { "out", KH_OPT_TEXT, offsetof(reproduce_opts, out), "reproduction", .arg = "DIR",
        .help = "for the runs and the tables" },
    { "tables", KH_OPT_TEXT, offsetof(reproduce_opts, plan.tables), .arg = "LIST",
        .help = "of 1,2,3,4,weights,samples,ablations,defaults; without it all" },
    { "tasks", KH_OPT_TEXT, offsetof(reproduce_opts, plan.tasks), .arg = "LIST",
        .help = "of sst2,yelp,agnews,dbpedia,mrpc,snli,rte; without it all" },
    { "methods", KH_OPT_TEXT, offsetof(reproduce_opts, plan.methods), .arg = "LIST",
        .help = "names of rows, see below; without it all" },
    { "seeds", KH_OPT_TEXT, offsetof(reproduce_opts, plan.seeds), "13,21,42", .arg = "LIST",
        .help = "each run is made with each" },
    { "preset", KH_OPT_CHOICE, offsetof(reproduce_opts, preset), "paper", .arg = KH_PRESETS,
        .help = "the paper's budgets, or some that take an hour or a night with a small model" },
    { "rows", KH_OPT_INT, offsetof(reproduce_opts, plan.rows), "-1", .min = -1, .max = 1e9,
        .arg = "N", .help = "judge on N rows of each set; 0: on all; -1: as the preset has it" },
    { "shots", KH_OPT_INT, offsetof(reproduce_opts, plan.shots), "-1", .min = -1, .max = 1000000,
        .arg = "K",
        .help = "rows of each class, for train and for dev; -1: 16, but of all classes together "
                "at most 32 if fast, 64 if standard" },
    { "budget-time", KH_OPT_NUMBER, offsetof(reproduce_opts, hours), .min = 1e-6, .max = 1e6,
        .arg = "H", .help = "stop after H hours, write what is known; the same command goes on" },
    { "published", KH_OPT_TEXT, offsetof(reproduce_opts, published), .arg = "FILE",
        .help = "published numbers to show beside ours" },
    { "beside", KH_OPT_TEXT, offsetof(reproduce_opts, beside), .arg = "DIR,...",
        .help = "other --out folders, of other models: their numbers stand in the same cells" },
    { "dim", KH_OPT_INT, offsetof(reproduce_opts, space.dim), "0", .min = 0, .max = 1 << 20,
        .arg = "N", .help = "dimension of z; 0: as the preset has it, 500, 50 or 100" },
    { "slots", KH_OPT_INT, offsetof(reproduce_opts, space.slots), "0", .min = 0, .max = 1 << 16,
        .arg = "N", .help = "vectors of the soft prompt; 0: as the preset has it, 50, 5 or 10" },
    KH_SPACE_KIND_ROWS(reproduce_opts, space),
    { "precision", KH_OPT_CHOICE, offsetof(reproduce_opts, precision), "preset",
        .arg = "preset|f32|bf16|int8|auto",
        .help = "of the model; preset: f32 for paper and where gradients are taken, else int8" },
    { "groups", KH_OPT_INT, offsetof(reproduce_opts, groups), "1", .min = 1, .max = 1 << 16,
        .arg = "G",
        .help = "members of an ensemble that go side by side, for many ranks; the results are the "
                "same" },
    { "dry-run", KH_OPT_FLAG, offsetof(reproduce_opts, dry),
        .help = "list the runs with a forecast of their cost, and stop" },
    { "json", KH_OPT_FLAG, offsetof(reproduce_opts, json),
        .help = "print the summary, or the forecast, as JSON" },
    { 0 },
};

typedef struct job {
    const reproduce_opts *o;
    kh_repro_plan plan;
    kh_published published;
    kh_buf common; /* terms of all runs */
    char *runs;
    kh_plm *box[2];   /* opened when needed: log-probabilities, weights */
    const char **why; /* [plan.n] why a run failed */
    kh_arena memory;
    double started, deadline; /* deadline 0: none */
    const char *noted;        /* the last task that the model was said to have seen */
    double weight_done, weight_left;
    int at, n_done, n_new, n_failed;
} job;

static bool time_is_up(const job *j) { return j->deadline > 0 && kh_clock() > j->deadline; }

static int must_stop(void *user) { return cli_monitor_signal() != 0 || time_is_up(user); }

/* ------------------------------------------------------------------------------------ progress */

static void show(const job *j, const char *what) {
    char note[256], left[32] = "?";
    if (j->weight_done > 0)
        kh_duration((kh_clock() - j->started) * j->weight_left / j->weight_done, left, sizeof left);
    snprintf(note, sizeof note, "run=%s %s left=%s", j->plan.run[j->at].name, what, left);
    if (isatty(STDERR_FILENO))
        cli_hooks.progress(NULL, &(kh_progress){ "reproduce", j->n_done, j->plan.n, note });
    else
        fprintf(stderr, "reproduce done=%d total=%d %s\n", j->n_done, j->plan.n, note);
}

/* Of what a run tells of itself, a terminal shows the phase. */
static int on_progress(void *user, const kh_progress *p) {
    char what[96];
    snprintf(what, sizeof what, "%s %ld/%ld", p->phase, p->done, p->total);
    if (isatty(STDERR_FILENO))
        show(user, what);
    return must_stop(user);
}

/* ------------------------------------------------------------------------------------- one run */

static kh_precision precision_of(const job *j, kh_access access) {
    if (j->o->precision > 0)
        return (kh_precision)(j->o->precision - 1);
    bool int8 = kh_preset_describe((kh_preset)j->o->preset)->int8;
    return int8 && access != KH_ACCESS_WEIGHTS ? KH_INT8 : KH_F32;
}

/* What is searched: as it was given, or as the preset has it, or as tune does. */
static kh_space_opts space_of(const job *j, const kh_variant *v) {
    kh_space_opts s = j->o->space;
    const kh_preset_info *p = kh_preset_describe((kh_preset)j->o->preset);
    if (v && v->own)
        return s;
    s.dim = s.dim ? s.dim : p->dim;
    s.slots = s.slots ? s.slots : p->slots;
    return s;
}

/* The box that log-probabilities and labels come from is spread over ranks, if there are any;
 * gradients are rank 0's own. */
static int get_box(job *j, kh_access access, kh_plm **out, kh_err *err) {
    kh_plm **box = &j->box[access == KH_ACCESS_WEIGHTS];
    kh_plm_opts o = { .access = access == KH_ACCESS_WEIGHTS ? access : KH_ACCESS_LOGPROBS,
        .precision = precision_of(j, access),
        .hooks = &cli_hooks,
        .ranks = access == KH_ACCESS_WEIGHTS ? NULL : cli_ranks };
    int rc = *box ? 0 : kh_plm_open(box, j->o->model, &o, err);
    *out = *box;
    return rc;
}

static int tune(job *j, const kh_planned *r, const char *dir,
    int (*forecast)(void *, const kh_forecast *), void *user, kh_manifest *cost, kh_err *err) {
    const kh_task *task = NULL;
    const kh_method *m = NULL;
    void *opts = NULL;
    kh_split split = { 0 };
    kh_plm *plm = NULL;
    kh_run *run = NULL;
    kh_posterior *post = NULL;
    kh_run_opts keep = { .resume = true, .stop = must_stop, .user = j };
    int rc = kh_task_open(&task, r->on->task, err);
    if (rc == 0)
        rc = kh_split_open(&split, r->data, r->shots, r->seed,
            &(kh_dataset_opts){ .task = task, .hooks = &cli_hooks }, err);
    if (rc == 0)
        rc = kh_repro_plan_options(
            &opts, &m, r->variant, (kh_preset)j->o->preset, kh_dataset_size(split.train), err);
    if (rc == 0)
        rc = get_box(j, m->access, &plm, err);
    if (rc == 0 && j->noted != r->on->task && kh_plm_has_seen(plm, task, &cli_hooks))
        j->noted = r->on->task;
    if (rc == 0 && !forecast)
        rc = kh_run_open(&run, dir, &keep, err);
    kh_meter before = plm ? kh_plm_meter(plm) : (kh_meter){ 0 };
    double start = kh_clock();
    if (rc == 0) {
        kh_hooks hooks = { .progress = on_progress, .log = cli_hooks.log, .user = j };
        kh_tune_opts t = { .space = space_of(j, r->variant),
            .effort = kh_variant_effort(r->variant, (kh_preset)j->o->preset),
            .seed = r->seed,
            .paper_exact = r->variant->exact,
            .uncalibrated = !r->variant->calibrated,
            .max_queries = kh_variant_queries(
                r->variant, (kh_preset)j->o->preset, kh_dataset_size(split.train)),
            .hooks = forecast ? NULL : &hooks,
            .user = user,
            .model = j->o->model,
            .data = r->data,
            .folder = dir,
            .shots = r->shots,
            .groups = j->o->groups,
            .run = run,
            .forecast = forecast };
        rc = kh_method_run(&post, m, opts, plm, task, split.train, split.dev, &t, err);
    }
    if (rc == 0 && must_stop(j) &&
        !forecast) /* a method that was told to stop may return what it has; the journal has more */
        rc = kh_fail(err, KH_STOPPED, "stopped on request");
    if (rc == 0 && post)
        rc = kh_posterior_save(post, dir, err);
    if (rc == 0 && run)
        rc = kh_run_finish(run, err);
    if (rc == 0 && post) {
        kh_meter after = kh_plm_meter(plm);
        double asked = after.seconds - before.seconds, clock = kh_clock() - start;
        cost->queries = after.queries - before.queries;
        cost->tokens = after.tokens - before.tokens;
        cost->seconds = after.replayed > before.replayed && asked > clock ? asked : clock;
    }
    kh_run_close(run);
    kh_posterior_free(post);
    kh_split_close(&split);
    kh_task_close(task);
    kh_repro_plan_options_free(opts, m);
    return rc;
}

static int write_file(const char *dir, const char *name, const kh_buf *bytes, kh_err *err) {
    char *path = kh_path_join(dir, name);
    int rc = !path || kh_buf_failed(bytes) ? kh_fail_memory(err)
                                           : kh_file_write(path, bytes->data, bytes->len, err);
    kh_free(path);
    return rc;
}

static void put_answers(const kh_eval *e, kh_buf *out) {
    for (int i = 0; i < e->rows.n; i++)
        kh_predictions_put(
            out, e->rows.p + (size_t)i * (size_t)e->n_label, e->n_label, e->label[i], 0);
}

static int save_eval(const kh_eval *e, const kh_planned *r, const char *dir, kh_err *err) {
    kh_buf results = kh_buf_init(KH_BUF_MAX), answers = kh_buf_init(KH_BUF_MAX),
           options = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&options, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "by", "reproduce");
    kh_json_put_int(&j, "rows", r->rows);
    kh_json_close(&j);
    kh_results_json(e, dir, kh_buf_failed(&options) ? "{}" : options.data, &results);
    put_answers(e, &answers);
    int rc = e->decided ? kh_decisions_save(&e->decisions, dir, err) : 0;
    if (rc == 0)
        rc = write_file(dir, KH_ANSWERS_NAME, &answers, err);
    if (rc == 0)
        rc = write_file(dir, KH_RESULTS_NAME, &results, err);
    kh_buf_free(&results);
    kh_buf_free(&answers);
    kh_buf_free(&options);
    return rc;
}

/* The same rows for all methods, so that they can be compared row by row. */
static int judge(job *j, const kh_planned *r, const char *dir, kh_manifest *cost, kh_err *err) {
    kh_hooks hooks = { .progress = on_progress, .log = cli_hooks.log, .user = j };
    kh_eval_opts o = { .data = r->data,
        .split = KH_EVAL_TEST,
        .rows = r->rows,
        .ood = { r->ood, r->n_ood, 0 },
        .decide = kh_decision_defaults(),
        .hooks = &hooks };
    kh_eval e = { .o = &o };
    kh_posterior *post = NULL;
    kh_plm *plm = NULL, *own = NULL;
    int rc = kh_posterior_open(&post, dir, err);
    const char *model = rc == 0 ? kh_posterior_describe(post).model : NULL;
    if (rc == 0 && model && strstr(model, dir) == model) { /* model tuning has made its own */
        kh_plm_opts box = { .access = KH_ACCESS_LOGPROBS,
            .precision = precision_of(j, KH_ACCESS_WEIGHTS),
            .hooks = &cli_hooks };
        rc = kh_plm_open(&own, model, &box, err);
        plm = own;
    } else if (rc == 0)
        rc = get_box(j, kh_posterior_describe(post).access, &plm, err);
    double start = kh_clock();
    if (rc == 0)
        rc = kh_eval_run(&e, post, plm, &o, err);
    if (rc == 0) {
        cost->eval_queries = e.queries;
        cost->eval_seconds = kh_clock() - start;
        rc = save_eval(&e, r, dir, err);
    }
    kh_eval_clear(&e);
    kh_plm_close(own);
    kh_posterior_free(post);
    return rc;
}

/* Tunes if that is still to be done, and judges. The manifest comes last. */
static int run_one(job *j, const kh_planned *r, kh_state state, kh_manifest *cost, kh_err *err) {
    kh_buf terms = kh_buf_init(1 << 20);
    char *dir = kh_path_join(j->runs, r->name);
    kh_planned_terms(r, (kh_preset)j->o->preset, j->common.data, &terms);
    int rc = !dir || kh_buf_failed(&terms) ? kh_fail_memory(err) : 0;
    if (rc == 0 && state == KH_STATE_OPEN) {
        rc = tune(j, r, dir, NULL, NULL, cost, err);
        if (rc == 0) {
            kh_manifest tuned = *cost;
            char *bar = strrchr(terms.data, '|'), after = bar[1];
            tuned.terms = terms.data;
            bar[1] = '\0';
            rc = kh_manifest_write(&tuned, dir, err);
            bar[1] = after;
        }
    }
    if (rc == 0)
        rc = judge(j, r, dir, cost, err);
    if (rc == 0) {
        kh_manifest done = *cost;
        done.terms = terms.data;
        rc = kh_manifest_write(&done, dir, err);
    }
    kh_buf_free(&terms);
    kh_free(dir);
    return rc;
}

/* ------------------------------------------------------------------------------------ all runs */

/* Failures of one run are written down; those that would befall the next one too end everything. */
static int note_failure(job *j, int rc, kh_err *err) {
    if (rc == KH_ENOMEM || rc == KH_EIO)
        return rc;
    j->why[j->at] = kh_arena_strndup(&j->memory, err->msg, strlen(err->msg));
    j->n_failed++;
    cli_say(stderr, 2, "keyhole: %s: %s", j->plan.run[j->at].name, err->msg);
    return j->why[j->at] ? 0 : kh_fail_memory(err);
}

static int run_all(job *j, kh_err *err) {
    int rc = 0;
    kh_manifest found;
    for (int i = 0; i < j->plan.n; i++) {
        bool done = kh_planned_state(&j->plan.run[i], (kh_preset)j->o->preset, j->common.data,
                        j->runs, &found) == KH_STATE_DONE;
        j->weight_left += done ? 0 : j->plan.run[i].weight;
        j->n_done += done;
        kh_manifest_free(&found);
    }
    for (j->at = 0; j->at < j->plan.n && rc == 0; j->at++) {
        const kh_planned *r = &j->plan.run[j->at];
        kh_state state =
            kh_planned_state(r, (kh_preset)j->o->preset, j->common.data, j->runs, &found);
        if (state != KH_STATE_DONE) {
            rc = must_stop(j) ? kh_fail(err, KH_STOPPED, "stopped on request")
                              : run_one(j, r, state, &found, err);
            if (rc == 0)
                j->n_done++, j->n_new++;
            else if (rc < 0)
                rc = note_failure(j, rc, err);
            j->weight_done += r->weight;
            j->weight_left -= r->weight;
            if (rc == 0)
                show(j, j->why[j->at] ? "failed" : "done");
        }
        kh_manifest_free(&found);
    }
    return rc;
}

/* The grids of other models, by the same plan. */
typedef struct others {
    kh_backbone of[MAX_BESIDE];
    kh_reproduction r[MAX_BESIDE];
    const kh_reproduction *list[MAX_BESIDE];
    char *runs[MAX_BESIDE];
    int n;
} others;

static int open_other(job *j, others *o, const char *dir, kh_err *err) {
    int i = o->n;
    if (i == MAX_BESIDE)
        return kh_fail(err, KH_EARG, "--beside names more than %d folders", MAX_BESIDE);
    o->n++;
    o->list[i] = &o->r[i];
    o->runs[i] = kh_path_join(dir, "runs");
    int rc = o->runs[i] ? kh_backbone_read(&o->of[i], dir, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_reproduction_open(
            &o->r[i], &j->plan, &j->published, o->runs[i], o->of[i].model, o->of[i].common, err);
    return rc;
}

static int open_others(job *j, others *o, kh_err *err) {
    int rc = 0;
    const char *words = j->o->beside ? j->o->beside : "";
    for (size_t n; *words && rc == 0; words += n + (words[n] == ',')) {
        n = strcspn(words, ",");
        char *dir = n > 0 ? kh_arena_strndup(&j->memory, words, n) : NULL;
        if (n > 0)
            rc = dir ? open_other(j, o, dir, err) : kh_fail_memory(err);
    }
    return rc;
}

static void close_others(others *o) {
    for (int i = 0; i < o->n; i++) {
        kh_reproduction_free(&o->r[i]);
        kh_backbone_free(&o->of[i]);
        kh_free(o->runs[i]);
    }
}

static int write_pages(job *j, const kh_reproduction *r, kh_err *err) {
    static const struct {
        kh_grid_format format;
        const char *name;
    } FILES[] = { { KH_GRID_MARKDOWN, "reproduction.md" }, { KH_GRID_HTML, "reproduction.html" } };
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        kh_buf page = kh_buf_init(KH_BUF_MAX);
        rc = kh_reproduction_put(r, FILES[i].format, &page, err);
        if (rc == 0)
            rc = write_file(j->o->out, FILES[i].name, &page, err);
        kh_buf_free(&page);
    }
    return rc;
}

static int write_tables(job *j, kh_err *err) {
    others o = { .n = 0 };
    kh_reproduction r;
    int rc = kh_reproduction_open(
        &r, &j->plan, &j->published, j->runs, j->o->model, j->common.data, err);
    for (int i = 0; i < j->plan.n && rc == 0; i++)
        r.outcome[i].why = j->why[i];
    if (rc == 0 && j->n_done > 0)
        rc = kh_backbone_write(j->o->out, j->o->model, j->common.data, err);
    if (rc == 0)
        rc = open_others(j, &o, err);
    r.beside = o.list;
    r.n_beside = o.n;
    if (rc == 0)
        rc = write_pages(j, &r, err);
    close_others(&o);
    kh_reproduction_free(&r);
    return rc;
}

/* ------------------------------------------------------------------------------------ forecast */

static int take_forecast(void *user, const kh_forecast *f) {
    *(kh_forecast *)user = *f;
    return 1;
}

static int option_value(const kh_method *m, const void *opts, const char *name) {
    const kh_opt *row = kh_opts_find(m->opts, name, strlen(name));
    return row && row->type == KH_OPT_INT
        ? *(const int *)(const void *)((const char *)opts + row->offset)
        : 0;
}

/* How many prompts the posterior will have; a sampler that chooses by itself is asked. */
static int samples_of(const kh_variant *v, kh_preset preset) {
    const kh_method *m;
    void *opts;
    if (kh_repro_plan_options(&opts, &m, v, preset, 0, NULL) != 0)
        return 1;
    if (m->sampler && m->sampler->fit)
        m->sampler->fit(opts, 0, 1);
    int samples = option_value(m, opts, "samples"), members = option_value(m, opts, "members");
    kh_repro_plan_options_free(opts, m);
    if (samples > 0)
        return samples;
    return members > 0 ? members : 1;
}

static long long rows_of(const char *task, const char *dir, int most, int shots, uint64_t seed) {
    const kh_task *t;
    kh_dataset *d = NULL;
    if (kh_task_open(&t, task, NULL) != 0)
        return 0;
    kh_dataset_opts read = { .task = t, .unlabelled = true, .ignore_labels = true };
    long long n = kh_test_open(&d, dir, shots, seed, &read, NULL) == 0 ? kh_dataset_size(d) : 0;
    kh_dataset_close(d);
    kh_task_close(t);
    return most > 0 && n > most ? most : n;
}

typedef struct total {
    long long queries, judged, tokens;
    double seconds;
    int runs, unknown;
} total;

/* One line for the runs that differ by their seed alone; *rate: seconds of a query, kept for
 * methods that try none. */
static int forecast_group(job *j, const kh_planned *r, double *rate, double *length, total *sum,
    kh_grid *t, kh_err *err) {
    kh_forecast f = { 0 };
    kh_manifest cost = { 0 };
    int rc = tune(j, r, j->o->out, take_forecast, &f, &cost, err), n = j->plan.n_seed;
    char time[32], queries[32] = "?", tokens[32] = "?";
    if (rc < 0)
        return note_failure(j, rc, err);
    long long rows = rows_of(r->on->task, r->data, r->rows, r->shots, r->seed) + f.dev_rows;
    for (int i = 0; i < r->n_ood; i++) {
        char task[64];
        size_t len = strcspn(r->ood[i], "=");
        snprintf(task, sizeof task, "%.*s", (int)len, r->ood[i]);
        rows += rows_of(task, r->ood[i] + len + 1, r->rows, r->shots, r->seed);
    }
    *rate = f.query_seconds > 0 ? f.query_seconds : *rate;
    *length = f.row_tokens > 0 ? f.row_tokens : *length;
    total one = { .judged = n * rows * samples_of(r->variant, (kh_preset)j->o->preset),
        .queries = n * f.queries,
        .runs = n };
    one.tokens = (long long)(*length * (double)(one.queries + one.judged));
    one.seconds = *rate * (double)(one.queries + one.judged);
    one.unknown = f.queries == 0 ? n : 0;
    if (f.queries > 0)
        snprintf(queries, sizeof queries, "%lld", one.queries);
    snprintf(tokens, sizeof tokens, "%lld", one.tokens);
    kh_grid_add(t, "%s", r->on->task);
    kh_grid_add(t, "%s", r->variant->name);
    kh_grid_add(t, "%d", n);
    kh_grid_add(t, "%s", queries);
    kh_grid_add(t, "%lld", one.judged);
    kh_grid_add(t, "%s", tokens);
    kh_grid_add(t, "%s", kh_duration(one.seconds, time, sizeof time));
    sum->queries += one.queries;
    sum->judged += one.judged;
    sum->tokens += one.tokens;
    sum->seconds += one.seconds;
    sum->runs += n;
    sum->unknown += one.unknown;
    return 0;
}

static int print_forecast(const total *sum, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_int(&j, "runs", sum->runs);
    kh_json_put_int(&j, "queries", sum->queries);
    kh_json_put_int(&j, "eval_queries", sum->judged);
    kh_json_put_int(&j, "tokens", sum->tokens);
    kh_json_put_number(&j, "seconds", sum->seconds, 6);
    kh_json_put_int(&j, "runs_not_told", sum->unknown);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int dry_run(job *j, kh_err *err) {
    static const char *const HEAD[] = { "task", "method", "runs", "queries", "to judge", "tokens",
        "time" };
    kh_grid t = { .n_col = 7, .n_left = 2 };
    total sum = { 0 };
    double rate = 0, length = 0;
    int rc = 0;
    char time[32];
    for (int i = 0; i < 7; i++)
        kh_grid_add(&t, "%s", HEAD[i]);
    for (j->at = 0; j->at < j->plan.n && rc == 0; j->at++) {
        const kh_planned *r = &j->plan.run[j->at];
        if (r->seed != j->plan.seed[0])
            continue;
        kh_report_progress(&cli_hooks, "forecast", j->at, j->plan.n, r->name);
        rc = forecast_group(j, r, &rate, &length, &sum, &t, err);
    }
    kh_report_progress(&cli_hooks, "forecast", j->plan.n, j->plan.n, NULL);
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    kh_grid_put(&t, KH_GRID_TEXT, &out);
    if (rc == 0)
        rc = kh_buf_failed(&out) ? kh_fail_memory(err) : 0;
    if (rc == 0 && j->o->json)
        rc = print_forecast(&sum, err);
    else if (rc == 0)
        printf("%s\nforecast: %d runs, at most %lld queries to tune and %lld to judge, %lld "
               "tokens, about %s\n",
            out.data, sum.runs, sum.queries, sum.judged, sum.tokens,
            kh_duration(sum.seconds, time, sizeof time));
    if (rc == 0 && !j->o->json && sum.unknown > 0)
        printf("what tuning takes in %d of these runs cannot be told before and is not counted; "
               "neither are gradients\n",
            sum.unknown);
    kh_buf_free(&out);
    kh_grid_free(&t);
    return rc;
}

/* --------------------------------------------------------------------------------- the command */

static int prepare(job *j, kh_err *err) {
    const reproduce_opts *o = j->o;
    kh_repro_plan_opts plan = o->plan;
    plan.data = o->data;
    plan.preset = (kh_preset)o->preset;
    int rc = kh_repro_plan_make(&j->plan, &plan, err);
    if (rc == KH_EARG)
        rc = err->code = CLI_USAGE;
    if (rc == 0)
        rc = kh_published_init(&j->published, err);
    if (rc == 0 && o->published)
        rc = kh_published_read(&j->published, o->published, err);
    kh_space_opts space = space_of(j, NULL);
    kh_buf_printf(&j->common,
        "model=%s precision=%d dim=%d slots=%d inject=%d projection=%d p0=%d/%s", o->model,
        (int)precision_of(j, KH_ACCESS_LOGPROBS), space.dim, space.slots, space.inject,
        space.projection, space.p0, space.p0_text ? space.p0_text : "");
    j->runs = kh_path_join(o->out, "runs");
    j->why = kh_calloc((size_t)j->plan.n + 1, sizeof *j->why);
    if (rc == 0 && (!j->runs || !j->why || kh_buf_failed(&j->common)))
        rc = kh_fail_memory(err);
    for (int i = 0; i < j->plan.n_missing && rc == 0; i++)
        cli_say(stderr, 2, "keyhole: left out: %s", j->plan.missing[i]);
    if (rc == 0 && !o->dry)
        rc = kh_dir_make(o->out, err);
    if (rc == 0 && !o->dry)
        rc = kh_dir_make(j->runs, err);
    return rc;
}

static int print_json(const job *x, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_int(&j, "runs", x->plan.n);
    kh_json_put_int(&j, "done", x->n_done);
    kh_json_put_int(&j, "new", x->n_new);
    kh_json_put_int(&j, "failed", x->n_failed);
    kh_json_put_int(&j, "left_out", x->plan.n_missing);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int print_summary(const job *j, kh_err *err) {
    int n = j->plan.n;
    if (j->o->json)
        return print_json(j, err);
    printf("runs      %d, %d of them done, %d now%s\nsaved     %s/reproduction.html and "
           "reproduction.md\n",
        n, j->n_done, j->n_new,
        time_is_up(j) && j->n_done + j->n_failed < n ? "; the time is up, the same command goes on"
                                                     : "",
        j->o->out);
    return 0;
}

static int run_reproduce(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    job j = { .o = opts, .common = kh_buf_init(1 << 20), .started = kh_clock() };
    j.deadline = j.o->hours > 0 ? j.started + 3600 * j.o->hours : 0;
    cli_monitor_signals();
    int rc = prepare(&j, err);
    if (rc == 0 && j.o->dry)
        rc = dry_run(&j, err);
    else if (rc == 0) {
        rc = run_all(&j, err);
        int signal = cli_monitor_signal();
        if (rc == KH_STOPPED && signal)
            rc = kh_fail(err, CLI_SIGNAL - signal,
                "interrupted with %d of %d runs done; the same command goes on", j.n_done,
                j.plan.n);
        else if (rc == 0 || rc == KH_STOPPED)
            rc = write_tables(&j, err);
        if (rc == 0)
            rc = print_summary(&j, err);
        if (rc == 0 && j.n_failed > 0)
            rc = kh_fail(err, KH_EIO, "%d of %d runs failed; %s/reproduction.md says why",
                j.n_failed, j.plan.n, j.o->out);
    }
    kh_plm_close(j.box[0]);
    kh_plm_close(j.box[1]);
    kh_repro_plan_free(&j.plan);
    kh_published_free(&j.published);
    kh_buf_free(&j.common);
    kh_free(j.runs);
    kh_free(j.why);
    kh_arena_free(&j.memory);
    return rc;
}

const cli_command cmd_reproduce = {
    .name = "reproduce",
    .args = "",
    .summary = "Run the paper's experiments and write its tables, ours beside the published ones",
    .text = "Tunes and judges every method of the paper on its seven tasks, and ours: Table 1\n"
            "accuracy, 2 calibration, 3 selective classification, 4 out-of-distribution; the\n"
            "appendix (weights), more samples, each of our improvements on and off, and the\n"
            "defaults of tune beside the paper's methods. OUT then has reproduction.html and\n"
            "reproduction.md, with the cost of each method and paired tests, and in OUT/runs\n"
            "an ordinary run folder for each run (TASK-METHOD-SEED).\n\n"
            "What is done is not done again: a second call only writes the tables. Ctrl-C, a\n"
            "signal or --budget-time end it in good order; the same command goes on, inside a\n"
            "run, too. Folders of tasks that are not there are left out, and the page says so.\n"
            "Another backbone is another --model with another --out; --beside shows it in the\n"
            "same cells. A grid goes seed by seed, the main tables first, so that one that is\n"
            "stopped has tables to show. doc/reproduce.md has more.\n\n"
            "  keyhole reproduce --model builtin --data data --preset fast\n"
            "  keyhole reproduce --model builtin --data data --preset standard --out out\n"
            "  keyhole reproduce --model DIR --data data --out out2 --beside out\n"
            "  keyhole reproduce --model DIR --data data --out out --dry-run\n"
            "  keyhole reproduce ... --tables 1,2 --tasks sst2,rte --methods bbt,ensemble,smc\n"
            "  keyhole reproduce ... --budget-time 8\n"
            "  mpirun -n 4 keyhole reproduce ...            doc/scale.md\n\n"
            "Methods: manual, icl, prompt-tuning, model-tuning, bbt, ensemble, elbo, abc-smc,\n"
            "snpe, smc; abc-smc-importance (weights); smc-10, smc-30, smc-100, smc-300\n"
            "(samples); abc-smc-votes, smc-raw, smc-soft, smc-patient, smc-watched,\n"
            "ensemble-fresh, elbo-text, manual-exact (ablations); tune-manual, tune-bbt,\n"
            "tune-ensemble, tune-auto, tune-smc (defaults).",
    .opts = reproduce_table,
    .opts_size = sizeof(reproduce_opts),
    .run = run_reproduce,
};
