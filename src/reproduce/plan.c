/* plan.c - see plan.h. Three tables say it all: the methods, the tasks with their sets from
 * elsewhere, and the names of the paper's tables; the rest picks from them.
 *
 * The paper's methods have the options of its published code, which made its numbers; label words
 * and the treatment of long rows are keyhole's (the variant "manual-exact" shows what the published
 * code's words do). Methods that are ours have our defaults. */
#include "reproduce/plan.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "tune/effort.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOTS = 16, MAX_SEEDS = 1000 };

/* Train rows are limited so that tasks of many classes do not take most of the time. standard: 300
 * rows are three points of standard error for one seed, and 20,000 questions are what "tune" takes
 * for a normal effort; the space is a fifth of the paper's, since 600 candidates find little in 500
 * dimensions and 50 vectors more than double the time. */
static const kh_preset_info PRESETS[] = {
    [KH_PRESET_PAPER] = { "paper", 500, 50, 0, 0, 0, 2, 0, false, NULL },
    [KH_PRESET_FAST] = { "fast", 50, 5, 48, 32, 0, 1, 1, true,
        "The fast preset has far smaller budgets than the paper and judges on fewer rows: it shows "
        "that all works, and its numbers say little about the paper's." },
    [KH_PRESET_STANDARD] = { "standard", 100, 10, 300, 64, 20000, 2, 2, true,
        "The standard preset judges on 300 rows of each set and lets a method ask 20,000 questions "
        "about at most 64 rows; the paper asks 192,000 to 1,920,000 and judges on all." },
};

/* What the options of the standard preset are made for: 16 rows of two classes. */
enum { STANDARD_ROWS = 32 };

/* A tenth of the vectors: ten times the prior's variance pushes the model about as far, and the
 * kernel grows with it. */
#define WIDE_PRIOR "prior-variance=500"
#define SMC_FAST "samples=10 first-draws=8 " WIDE_PRIOR
#define SMC_ONE_LEVEL \
    "first-draws=8 budget-levels=1 max-moves=2 " WIDE_PRIOR /* so that more samples are no worse \
                                                               ones */
#define ABC_FAST "samples=10 first-draws=3 kernel-mean=100 " WIDE_PRIOR
#define ENSEMBLE_FAST "members=3 budget-generations=3 pop=8 sigma=6 dev-every=3"
/* A fifth of the vectors: five times the prior's variance, for searches, too, whose steps grow with
 * its root. Twelve prompts to judge with are 11,000 questions, half of what tuning takes. */
#define STANDARD_PRIOR "prior-variance=250"
#define STANDARD_STEP "sigma=2.2"
#define SMC_STANDARD "samples=12 " STANDARD_PRIOR
#define SMC_ONE_LEVEL_STANDARD "first-draws=8 budget-levels=1 max-moves=2 " STANDARD_PRIOR
#define ABC_STANDARD "samples=12 kernel-mean=50 " STANDARD_PRIOR
#define ENSEMBLE_STANDARD "members=5 budget-generations=6 pop=20 dev-every=3 " STANDARD_STEP
#define ELBO_STANDARD \
    "budget-generations=36 pop=8 draws=2 dev-every=9 samples=12 " STANDARD_STEP " " STANDARD_PRIOR
#define GENERATIONS "budget-generations"
#define ABLATED KH_TABLE_ABLATIONS
#define BESIDE KH_TABLE_DEFAULTS

static const kh_variant VARIANTS[] = {
    { "manual", "Manual Prompt", "manual", KH_TABLE_MAIN | ABLATED | BESIDE, KH_METHODS_UNTUNED,
        .paper = true, .weight = 1 },
    { "icl", "In-Context Learning", "icl", KH_TABLE_MAIN, KH_METHODS_UNTUNED, .paper = true,
        .code = true, .fast = "demos=8", .standard = "demos=8", .weight = 4 },
    { "feature-mlp", "Feature-MLP", "feature-mlp", KH_TABLE_MAIN, KH_METHODS_GRADIENTS,
        .paper = true, .weight = 2 },
    { "feature-bilstm", "Feature-BiLSTM", "feature-bilstm", KH_TABLE_MAIN, KH_METHODS_GRADIENTS,
        .paper = true, .weight = 2 },
    { "prompt-tuning", "Prompt Tuning", "prompt-tuning", KH_TABLE_MAIN, KH_METHODS_GRADIENTS,
        .paper = true, .fast = "epochs=5", .standard = "epochs=30", .weight = 10 },
    { "p-tuning-v2", "P-Tuning v2", "p-tuning-v2", KH_TABLE_MAIN, KH_METHODS_GRADIENTS,
        .paper = true, .fast = "epochs=5", .standard = "epochs=30", .weight = 10 },
    { "model-tuning", "Model Tuning", "model-tuning", KH_TABLE_MAIN, KH_METHODS_GRADIENTS,
        .paper = true, .fast = "epochs=5", .standard = "epochs=30", .weight = 10 },
    { "bbt", "BBT", "bbt", KH_TABLE_MAIN | BESIDE, KH_METHODS_LOGITS, .paper = true, .code = true,
        .fast = "budget-generations=7 pop=8 sigma=6 dev-every=1",
        .standard = "budget-generations=30 pop=20 dev-every=5 " STANDARD_STEP, .fit = GENERATIONS,
        .candidates = 64, .weight = 20 },
    { "ensemble", "Ensembles", "ensemble", KH_TABLE_MAIN | ABLATED | BESIDE, KH_METHODS_LOGITS,
        .paper = true, .code = true, .fast = ENSEMBLE_FAST, .standard = ENSEMBLE_STANDARD,
        .fit = GENERATIONS, .candidates = 80, .weight = 60 },
    { "elbo", "ELBO", "elbo", KH_TABLE_MAIN | ABLATED | BESIDE, KH_METHODS_LOGITS, .paper = true,
        .code = true,
        .fast = "budget-generations=4 pop=8 draws=2 dev-every=4 dev-all=false samples=8",
        .standard = "dev-all=false " ELBO_STANDARD, .fit = GENERATIONS, .candidates = 80,
        .weight = 60 },
    { "abc-smc", "ABC-SMC", "abc-smc", KH_TABLE_MAIN | KH_TABLE_WEIGHTS | ABLATED | BESIDE,
        KH_METHODS_LABELS, .paper = true, .code = true, .fast = ABC_FAST, .standard = ABC_STANDARD,
        .candidates = 120, .weight = 60 },
    { "snpe", "SNPE-C", "snpe", KH_TABLE_MAIN | BESIDE, KH_METHODS_LABELS, .paper = true,
        .code = true,
        .fast = "budget-rounds=2 simulations=32 samples=10 transforms=2 max-epochs=20 " WIDE_PRIOR,
        .standard =
            "budget-rounds=2 simulations=300 samples=12 transforms=4 max-epochs=50 " STANDARD_PRIOR,
        .fit = "simulations", .weight = 60 },
    { "smc", "SMC (ours)", "smc", KH_TABLE_MAIN | ABLATED | BESIDE, KH_METHODS_LABELS,
        .calibrated = true, .fast = SMC_FAST, .standard = SMC_STANDARD, .candidates = 120,
        .weight = 60 },

    { "abc-smc-importance", "ABC-SMC w. Weights", "abc-smc", KH_TABLE_WEIGHTS, KH_METHODS_LABELS,
        .paper = true, .code = true, .set = "weights=importance", .fast = ABC_FAST,
        .standard = ABC_STANDARD, .candidates = 120, .weight = 60 },

    { "smc-10", "SMC, 10 samples", "smc", KH_TABLE_SAMPLES, KH_METHODS_LABELS, .calibrated = true,
        .set = "samples=10", .fast = SMC_ONE_LEVEL, .standard = SMC_ONE_LEVEL_STANDARD,
        .candidates = 80, .weight = 40 },
    { "smc-30", "SMC, 30 samples", "smc", KH_TABLE_SAMPLES, KH_METHODS_LABELS, .calibrated = true,
        .set = "samples=30", .fast = SMC_ONE_LEVEL, .standard = SMC_ONE_LEVEL_STANDARD,
        .candidates = 200, .weight = 60 },
    { "smc-100", "SMC, 100 samples", "smc", KH_TABLE_SAMPLES, KH_METHODS_LABELS, .calibrated = true,
        .set = "samples=100", .fast = SMC_ONE_LEVEL, .standard = SMC_ONE_LEVEL_STANDARD,
        .candidates = 640, .weight = 200 },
    { "smc-300", "SMC, 300 samples", "smc", KH_TABLE_SAMPLES, KH_METHODS_LABELS, .calibrated = true,
        .set = "samples=300", .slow = true, .weight = 300 },

    { "abc-smc-votes", "ABC-SMC, calibrated votes", "abc-smc", ABLATED, KH_METHODS_LABELS,
        .code = true, .calibrated = true, .fast = ABC_FAST, .standard = ABC_STANDARD,
        .candidates = 120, .weight = 60 },
    { "smc-raw", "SMC, votes as they are", "smc", ABLATED, KH_METHODS_LABELS, .fast = SMC_FAST,
        .standard = SMC_STANDARD, .candidates = 120, .weight = 60 },
    { "smc-soft", "SMC, soft acceptance", "smc", ABLATED, KH_METHODS_LABELS, .calibrated = true,
        .set = "accept=soft", .fast = SMC_FAST, .standard = SMC_STANDARD, .candidates = 120,
        .weight = 60 },
    { "smc-patient", "SMC, no early rejection", "smc", ABLATED, KH_METHODS_LABELS,
        .calibrated = true, .set = "early-rejection=off", .fast = SMC_FAST,
        .standard = SMC_STANDARD, .candidates = 120, .weight = 90 },
    { "smc-watched", "SMC, dev asked after every level", "smc", ABLATED, KH_METHODS_LABELS,
        .calibrated = true, .set = "dev-every=1", .fast = SMC_FAST, .standard = SMC_STANDARD,
        .candidates = 120, .weight = 60 },
    { "ensemble-fresh", "Ensembles, a projection each", "ensemble", ABLATED, KH_METHODS_LOGITS,
        .code = true, .set = "share-projection=false", .fast = ENSEMBLE_FAST,
        .standard = ENSEMBLE_STANDARD, .fit = GENERATIONS, .candidates = 80, .weight = 60 },
    { "elbo-text", "ELBO as in the text", "elbo", ABLATED, KH_METHODS_LOGITS,
        .fast = "budget-generations=4 pop=8 draws=2 dev-every=4 samples=8",
        .standard = ELBO_STANDARD, .fit = GENERATIONS, .candidates = 80, .weight = 60 },
    { "manual-exact", "Manual Prompt, the code's words", "manual", ABLATED, KH_METHODS_UNTUNED,
        .exact = true, .weight = 1 },

    { "tune-manual", "Manual Prompt, as tune has it", "manual", BESIDE, KH_METHODS_UNTUNED,
        .calibrated = true, .own = true, .weight = 1 },
    { "tune-bbt", "BBT, as tune has it", "bbt", BESIDE, KH_METHODS_LOGITS, .calibrated = true,
        .own = true, .weight = 10 },
    { "tune-ensemble", "Ensembles, as tune has it", "ensemble", BESIDE, KH_METHODS_LOGITS,
        .calibrated = true, .own = true, .weight = 20 },
    { "tune-auto", "auto, as tune has it", "auto", BESIDE, KH_METHODS_LOGITS, .calibrated = true,
        .own = true, .weight = 15 },
    { "tune-smc", "SMC, as tune has it", "smc", BESIDE, KH_METHODS_LABELS, .calibrated = true,
        .own = true, .weight = 20 },
};

enum { N_VARIANT = sizeof VARIANTS / sizeof VARIANTS[0] };

static const kh_experiment EXPERIMENTS[] = {
    { "sst2", { { "rte", false }, { "imdb", true } }, false },
    { "yelp", { { "rte", false }, { "imdb", true } }, true },
    { "agnews", { { NULL, false } }, false },
    { "dbpedia", { { "agnews", false } }, false },
    { "mrpc", { { "rte", false } }, false },
    { "snli", { { "mrpc", false }, { "mnli", true } }, false },
    { "rte", { { "mrpc", false }, { "mnli", true } }, false },
};

enum { N_EXPERIMENT = sizeof EXPERIMENTS / sizeof EXPERIMENTS[0] };

static const struct {
    const char *name;
    unsigned bit;
} TABLES[] = { { "1", KH_TABLE_SCORE }, { "2", KH_TABLE_ECE }, { "3", KH_TABLE_SELECTIVE },
    { "4", KH_TABLE_OOD }, { "weights", KH_TABLE_WEIGHTS }, { "samples", KH_TABLE_SAMPLES },
    { "ablations", KH_TABLE_ABLATIONS }, { "defaults", KH_TABLE_DEFAULTS },
    { "all", KH_TABLE_ALL } };

enum { N_TABLE = sizeof TABLES / sizeof TABLES[0] };

const kh_variant *kh_variant_at(int i) { return i >= 0 && i < N_VARIANT ? &VARIANTS[i] : NULL; }

const kh_preset_info *kh_preset_describe(kh_preset preset) { return &PRESETS[preset]; }

/* Fast counts by candidates, and so does the table of samples, where more samples get more of them;
 * many classes must not take all the time. */
long long kh_variant_queries(const kh_variant *v, kh_preset preset, int train_rows) {
    const kh_preset_info *p = &PRESETS[preset];
    if (v->own)
        return 0;
    int rows = train_rows < STANDARD_ROWS ? train_rows : STANDARD_ROWS;
    long long by_candidates = (long long)v->candidates * rows;
    if (preset == KH_PRESET_FAST)
        return by_candidates;
    bool asks = v->family == KH_METHODS_LOGITS || v->family == KH_METHODS_LABELS;
    if (v->tables == KH_TABLE_SAMPLES && by_candidates < p->queries)
        return by_candidates;
    return asks ? p->queries : 0;
}

kh_effort kh_variant_effort(const kh_variant *v, kh_preset preset) {
    kh_effort own = preset == KH_PRESET_FAST ? KH_EFFORT_QUICK : KH_EFFORT_NORMAL;
    return v->own ? own : KH_EFFORT_PAPER;
}

const kh_experiment *kh_experiment_at(int i) {
    return i >= 0 && i < N_EXPERIMENT ? &EXPERIMENTS[i] : NULL;
}

/* --------------------------------------------------------------------------------------- lists */

/* A choice by a list of words with commas. */
typedef struct list {
    const char *what;         /* the option */
    const char *(*at)(int i); /* all that can be chosen */
    bool *chosen;             /* [as many as at() knows] */
} list;

static const char *table_at(int i) { return i < N_TABLE ? TABLES[i].name : NULL; }
static const char *task_at(int i) { return i < N_EXPERIMENT ? EXPERIMENTS[i].task : NULL; }
static const char *variant_name(int i) { return i < N_VARIANT ? VARIANTS[i].name : NULL; }

static int unknown_word(const list *l, const char *word, size_t n, kh_err *err) {
    kh_buf all = kh_buf_init(1 << 12);
    for (int i = 0; l->at(i); i++)
        kh_buf_printf(&all, "%s%s", i ? ", " : "", l->at(i));
    int rc = kh_fail(err, KH_EARG, "--%s: there is no \"%.*s\"; there are %s", l->what, (int)n,
        word, all.data ? all.data : "others");
    kh_buf_free(&all);
    return rc;
}

/* words NULL: all. */
static int choose(const list *l, const char *words, kh_err *err) {
    bool any = false;
    for (int i = 0; l->at(i); i++)
        l->chosen[i] = !words;
    for (size_t n; words && *words; words += n + (words[n] == ',')) {
        n = strcspn(words, ",");
        int i = 0;
        while (l->at(i) && (strlen(l->at(i)) != n || memcmp(l->at(i), words, n) != 0))
            i++;
        if (n > 0 && !l->at(i))
            return unknown_word(l, words, n, err);
        if (n > 0)
            any = l->chosen[i] = true;
    }
    return !words || any ? 0 : kh_fail(err, KH_EARG, "--%s names none", l->what);
}

static int read_seeds(kh_repro_plan *a, const char *words, kh_err *err) {
    for (size_t n; *words; words += n + (words[n] == ',')) {
        n = strcspn(words, ",");
        char *end;
        errno = 0;
        uint64_t seed = strtoull(words, &end, 10);
        if (n == 0)
            continue;
        if (end != words + n || *words < '0' || *words > '9' || errno != 0)
            return kh_fail(err, KH_EARG,
                "--seeds takes whole numbers with commas between them; got \"%.*s\"", (int)n,
                words);
        for (int i = 0; i < a->n_seed; i++)
            if (a->seed[i] == seed)
                return kh_fail(err, KH_EARG, "--seeds names %llu twice", (unsigned long long)seed);
        if (a->n_seed == MAX_SEEDS)
            return kh_fail(err, KH_EARG, "--seeds names more than %d", MAX_SEEDS);
        if (!kh_grow(&a->seed, &a->cap_seed, (size_t)a->n_seed + 1, sizeof *a->seed))
            return kh_fail_memory(err);
        a->seed[a->n_seed++] = seed;
    }
    return a->n_seed > 0 ? 0 : kh_fail(err, KH_EARG, "--seeds names none");
}

/* ---------------------------------------------------------------------------------------- runs */

/* In the plan's own memory; NULL when there is none left. */
static const char *print(kh_repro_plan *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static const char *print(kh_repro_plan *a, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = n < 0 ? NULL : kh_arena_alloc(&a->arena, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

static int miss(kh_repro_plan *a, const char *sentence, kh_err *err) {
    for (int i = 0; sentence && i < a->n_missing; i++)
        if (strcmp(a->missing[i], sentence) == 0)
            return 0;
    if (!sentence ||
        !kh_grow(&a->missing, &a->cap_missing, (size_t)a->n_missing + 1, sizeof *a->missing))
        return kh_fail_memory(err);
    a->missing[a->n_missing++] = sentence;
    return 0;
}

/* The folder of a task's rows; NULL, and a sentence among the missing, if it is not there. */
static int find_folder(
    kh_repro_plan *a, const char *task, const char *use, const char **out, kh_err *err) {
    const char *dir = print(a, "%s/%s", a->o.data, task);
    *out = dir && kh_dir_exists(dir) ? dir : NULL;
    if (!dir)
        return kh_fail_memory(err);
    return *out ? 0 : miss(a, print(a, "%s: there is no folder %s, so %s", task, dir, use), err);
}

static int find_outside(
    kh_repro_plan *a, const kh_experiment *x, const char ***ood, int *n, kh_err *err) {
    int most = PRESETS[a->o.preset].n_outside;
    *n = 0;
    *ood = kh_arena_array(&a->arena, 2, sizeof **ood);
    int rc = *ood ? 0 : kh_fail_memory(err);
    for (int i = 0; i < most && rc == 0 && x->outside[i].task && (a->tables & KH_TABLE_OOD); i++) {
        const char *task = x->outside[i].task, *dir;
        rc = find_folder(a, task, "nothing is judged against its rows", &dir, err);
        if (rc == 0 && dir && !((*ood)[(*n)++] = print(a, "%s=%s", task, dir)))
            rc = kh_fail_memory(err);
    }
    return rc;
}

/* Rows that several tables share are there once. nth: of the tasks that are there. Weights are
 * tried on all, because few runs of the fast preset come to a second generation, where there are
 * any; tune's own defaults too, but for the fast preset. */
static unsigned tables_of(
    const kh_repro_plan *a, const kh_variant *v, const kh_experiment *x, int nth) {
    int tried = PRESETS[a->o.preset].n_tried;
    unsigned tables = v->tables & a->tables;
    if (tried > 0 && (nth >= tried || (tried > 1 && x->long_rows)))
        tables &= KH_TABLE_MAIN | KH_TABLE_WEIGHTS | (tried > 1 ? KH_TABLE_DEFAULTS : 0);
    return a->o.preset != KH_PRESET_PAPER && v->slow ? 0 : tables;
}

static int add_run(kh_repro_plan *a, const kh_planned *like, uint64_t seed, kh_err *err) {
    kh_planned r = *like;
    r.seed = seed;
    r.name = print(a, "%s-%s-%llu", r.on->task, r.variant->name, (unsigned long long)seed);
    if (!r.name || !kh_grow(&a->run, &a->cap, (size_t)a->n + 1, sizeof *a->run))
        return kh_fail_memory(err);
    a->run[a->n++] = r;
    return 0;
}

static int shots_of(const kh_repro_plan *a, int classes) {
    int most = PRESETS[a->o.preset].train_rows;
    if (a->o.shots >= 0)
        return a->o.shots;
    return most > 0 && classes * SHOTS > most ? most / classes : SHOTS;
}

/* What a grid is about comes before what it tries besides. */
typedef enum stage { STAGE_MAIN, STAGE_REST, N_STAGE } stage;

typedef struct round {
    uint64_t seed;
    stage stage;
    int nth; /* of the tasks that are there */
} round;

static int add_methods(
    kh_repro_plan *a, const kh_planned *like, const round *at, const bool *chosen, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < N_VARIANT && rc == 0; i++) {
        kh_planned r = *like;
        const kh_method *m;
        r.variant = &VARIANTS[i];
        r.tables = chosen[i] ? tables_of(a, r.variant, r.on, at->nth) : 0;
        r.weight *= r.variant->weight;
        if (!r.tables || ((r.tables & KH_TABLE_MAIN) != 0) != (at->stage == STAGE_MAIN))
            continue;
        /* Prompts that are many, or of no table of out-of-distribution rows, are not asked about
         * them.
         */
        if (a->o.preset == KH_PRESET_STANDARD && !(r.tables & KH_TABLE_OOD))
            r.n_ood = 0;
        if (kh_method_find(&m, r.variant->method, NULL) != 0)
            rc = miss(
                a, print(a, "%s: this keyhole has no method of that name", r.variant->name), err);
        else
            rc = add_run(a, &r, at->seed, err);
    }
    return rc;
}

static int add_task(kh_repro_plan *a, const kh_experiment *x, const round *at, const bool *chosen,
    bool *there, kh_err *err) {
    kh_planned r = { .on = x, .rows = a->o.rows >= 0 ? a->o.rows : PRESETS[a->o.preset].rows };
    int rc = find_folder(a, x->task, "its columns are empty", &r.data, err);
    *there = r.data;
    if (rc != 0 || !r.data)
        return rc;
    rc = find_outside(a, x, &r.ood, &r.n_ood, err);
    const kh_task *task;
    int classes = rc == 0 && kh_task_open(&task, x->task, NULL) == 0 ? task->n_label : 2;
    r.shots = shots_of(a, classes);
    r.weight = classes;
    return rc == 0 ? add_methods(a, &r, at, chosen, err) : rc;
}

static int add_round(
    kh_repro_plan *a, round at, const bool *tasks, const bool *variants, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < N_EXPERIMENT && rc == 0; i++) {
        bool there = false;
        if (tasks[i])
            rc = add_task(a, &EXPERIMENTS[i], &at, variants, &there, err);
        at.nth += there && !(PRESETS[a->o.preset].n_tried > 1 && EXPERIMENTS[i].long_rows);
    }
    return rc;
}

int kh_repro_plan_make(kh_repro_plan *a, const kh_repro_plan_opts *o, kh_err *err) {
    *a = (kh_repro_plan){ .o = *o };
    bool tables[N_TABLE] = { false }, tasks[N_EXPERIMENT] = { false },
         variants[N_VARIANT] = { false };
    int rc = choose(&(list){ "tables", table_at, tables }, o->tables, err);
    if (rc == 0)
        rc = choose(&(list){ "tasks", task_at, tasks }, o->tasks, err);
    if (rc == 0)
        rc = choose(&(list){ "methods", variant_name, variants }, o->methods, err);
    if (rc == 0)
        rc = read_seeds(a, o->seeds ? o->seeds : "13,21,42", err);
    if (rc == 0 && !kh_dir_exists(o->data))
        rc = kh_fail(err, KH_EMISSING,
            "%s: there is no such folder; --data takes one with a folder for each task (sst2, "
            "yelp, ...)",
            o->data);
    for (int i = 0; i < N_TABLE && rc == 0; i++)
        a->tables |= tables[i] ? TABLES[i].bit : 0;
    for (int s = 0; s < a->n_seed && rc == 0; s++)
        for (stage at = STAGE_MAIN; at < N_STAGE && rc == 0; at++)
            rc = add_round(a, (round){ a->seed[s], at, 0 }, tasks, variants, err);
    if (rc == 0 && a->n == 0)
        rc = kh_fail(err, KH_EMISSING, "nothing to run: %s",
            a->n_missing ? a->missing[0]
                         : "the methods that were named are in none of the tables that were");
    return rc;
}

void kh_repro_plan_free(kh_repro_plan *a) {
    kh_free(a->run);
    kh_free(a->missing);
    kh_free(a->seed);
    kh_arena_free(&a->arena);
    *a = (kh_repro_plan){ 0 };
}

/* ------------------------------------------------------------------------------------- options */

/* "name=value name=value"; no method has an option that would keep the text of its value. */
static int set_all(const kh_method *m, void *opts, const char *words, kh_err *err) {
    int rc = 0;
    for (size_t n; rc == 0 && words && *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        size_t name = strcspn(words, "=");
        char value[64];
        snprintf(value, sizeof value, "%.*s", (int)(n - name - 1), words + name + 1);
        const kh_opt *row = kh_opts_find(m->opts, words, name);
        rc = row
            ? kh_opts_set(row, opts, value, err)
            : kh_fail(err, KH_EARG, "method %s has no option \"%.*s\"", m->name, (int)name, words);
    }
    return rc;
}

/* As many candidates fewer as there are more rows, so that all of them fit into the budget. */
static void fit_rows(const kh_method *m, void *opts, const char *name, int train_rows) {
    const kh_opt *row = name ? kh_opts_find(m->opts, name, strlen(name)) : NULL;
    if (!row || row->type != KH_OPT_INT || train_rows <= STANDARD_ROWS)
        return;
    int *value = (int *)(void *)((char *)opts + row->offset);
    int less = *value * STANDARD_ROWS / train_rows;
    *value = less > 1 ? less : 1;
}

int kh_repro_plan_options(void **out, const kh_method **method, const kh_variant *v,
    kh_preset preset, int train_rows, kh_err *err) {
    const char *const more[] = {
        [KH_PRESET_PAPER] = NULL, [KH_PRESET_FAST] = v->fast, [KH_PRESET_STANDARD] = v->standard
    };
    *out = NULL;
    int rc = kh_method_find(method, v->method, err);
    if (rc != 0)
        return rc;
    const kh_method *m = *method;
    void *opts = kh_calloc(1, m->opts_size + 1);
    if (!opts)
        return kh_fail_memory(err);
    kh_opts_init(m->opts, opts);
    if ((v->code || v->exact) && m->exact)
        m->exact(opts);
    if (v->own)
        rc = kh_effort_set(kh_variant_effort(v, preset), m, opts, err);
    if (rc == 0)
        rc = set_all(m, opts, v->set, err);
    if (rc == 0)
        rc = set_all(m, opts, more[preset], err);
    if (rc == 0 && preset == KH_PRESET_STANDARD)
        fit_rows(m, opts, v->fit, train_rows);
    if (rc != 0)
        kh_repro_plan_options_free(opts, m);
    else
        *out = opts;
    return rc;
}

void kh_repro_plan_options_free(void *opts, const kh_method *m) {
    if (opts)
        kh_opts_free(m->opts, opts);
    kh_free(opts);
}
