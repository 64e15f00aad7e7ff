/* plan.h - the paper's experiments as a list of runs: which method with which options, on which
 * task, with which seed, judged against which out-of-distribution rows, and in which tables it
 * appears.
 *
 *     kh_repro_plan a;
 *     kh_repro_plan_opts o = { .data = "data", .preset = KH_PRESET_FAST };
 *     kh_repro_plan_make(&a, &o, err);
 *     for (int i = 0; i < a.n; i++) ... a.run[i]
 *     kh_repro_plan_free(&a);
 *
 * A run that several tables need is there once. Tasks, methods and out-of-distribution sets that
 * cannot be had are left out, and a.missing says why. */
#ifndef KH_REPRODUCE_PLAN_H
#define KH_REPRODUCE_PLAN_H

#include "base/arena.h"
#include "keyhole.h"
#include "tune/method.h"

#define KH_PRESETS "paper|fast|standard"
typedef enum kh_preset { KH_PRESET_PAPER, KH_PRESET_FAST, KH_PRESET_STANDARD } kh_preset;

/* What a preset has, where the command line does not say otherwise. */
typedef struct kh_preset_info {
    const char *name;
    int dim, slots;   /* of z and of the soft prompt */
    int rows;         /* to judge on, of each set; 0: all */
    int train_rows;   /* of all classes together, at most; 0: as many as the shots are */
    int queries;      /* to tune, at most; 0: as the methods have it */
    int n_outside;    /* out-of-distribution sets that a task is judged against */
    int n_tried;      /* tasks on which samples and ablations are tried; 0: all */
    bool int8;        /* except where gradients are taken */
    const char *note; /* for the page: what its numbers are worth; NULL: nothing to say */
} kh_preset_info;

const kh_preset_info *kh_preset_describe(kh_preset);

/* Tables, as bits. */
enum {
    KH_TABLE_SCORE = 1,     /* 1: accuracy, or F1 */
    KH_TABLE_ECE = 2,       /* 2 */
    KH_TABLE_SELECTIVE = 4, /* 3 */
    KH_TABLE_OOD = 8,       /* 4 */
    KH_TABLE_WEIGHTS = 16,  /* the appendix: uniform against importance weights */
    KH_TABLE_SAMPLES = 32,  /* how many samples */
    KH_TABLE_ABLATIONS = 64,
    KH_TABLE_DEFAULTS =
        128, /* what "tune" does unless told otherwise, beside the paper's methods */
    KH_TABLE_MAIN = 15,
    KH_TABLE_ALL = 255,
};

/* What the box lets out. */
typedef enum kh_method_family {
    KH_METHODS_UNTUNED,
    KH_METHODS_GRADIENTS,
    KH_METHODS_LOGITS,
    KH_METHODS_LABELS
} kh_method_family;

/* A row of the tables: a method with certain options. */
typedef struct kh_variant {
    const char *name;   /* "abc-smc-importance": of --methods and of folders */
    const char *title;  /* as tables call it */
    const char *method; /* of "keyhole tune" */
    unsigned tables;
    kh_method_family family;
    bool paper; /* the paper has it */
    bool code;  /* the method's options are those of the published code */
    bool exact; /* everything is as in the published code, label words included: --paper-exact */
    bool calibrated;      /* as keyhole does by default; the paper's methods are not */
    bool own;             /* all is as "tune" has it: space, budget, the net under a search */
    bool slow;            /* of the paper preset only */
    const char *set;      /* options, "name=value name=value" */
    const char *fast;     /* more of them for the fast preset */
    const char *standard; /* and for the standard one, with STANDARD_ROWS train rows */
    const char *fit;      /* standard: the option that shrinks where there are more; NULL: none */
    int candidates; /* fast: stop before asking more than so many prompts about the train rows; 0:
                       the options decide */
    int weight;     /* rough cost, for the time left */
} kh_variant;

const kh_variant *kh_variant_at(int i); /* NULL after the last */
/* The most queries that tuning may take with so many train rows; 0: no limit. */
long long kh_variant_queries(const kh_variant *, kh_preset, int train_rows);
/* The paper's effort adds nothing and has no net under a search: the plan says what each method
 * gets, and what it found is judged. tune's own rows have tune's. */
kh_effort kh_variant_effort(const kh_variant *, kh_preset);

typedef struct kh_foreign_set {
    const char *task; /* whose rows */
    bool near;        /* of a kindred task */
} kh_foreign_set;

/* A task of the tables. */
typedef struct kh_experiment {
    const char *task;
    kh_foreign_set outside[2]; /* task NULL: none */
    bool long_rows;            /* too dear for what is tried besides */
} kh_experiment;

const kh_experiment *kh_experiment_at(int i); /* NULL after the last */

typedef struct kh_planned {
    const kh_variant *variant;
    const kh_experiment *on;
    uint64_t seed;
    const char *name; /* "sst2-bbt-13": of its folder */
    const char *data; /* folder of the task */
    const char **ood; /* [n_ood] "rte=data/rte" */
    int n_ood;
    int rows;  /* to judge on, of each set; 0: all */
    int shots; /* rows of each class, for train and for dev; 0: all */
    unsigned tables;
    double weight; /* rough cost */
} kh_planned;

typedef struct kh_repro_plan_opts {
    const char *data; /* a folder with a folder for each task */
    const char *tables, *tasks, *methods,
        *seeds; /* lists with commas; NULL: all, all, all, 13,21,42 */
    kh_preset preset;
    int rows;  /* to judge on; < 0: the preset's, 0: all */
    int shots; /* < 0: the preset's */
} kh_repro_plan_opts;

typedef struct kh_repro_plan {
    kh_repro_plan_opts o;
    unsigned tables;
    kh_planned *run; /* seed after seed; first the main tables, task after task, then the rest: a
                        grid that is stopped has whole tables of its first seeds */
    int n;
    size_t cap;
    const char **missing; /* [n_missing] a sentence each */
    int n_missing;
    size_t cap_missing;
    uint64_t *seed;
    int n_seed;
    size_t cap_seed;
    kh_arena arena;
} kh_repro_plan;

/* Opens no file and asks nothing; looks which folders are there. Free it, failed ones too. */
int kh_repro_plan_make(kh_repro_plan *out, const kh_repro_plan_opts *, kh_err *err);
void kh_repro_plan_free(kh_repro_plan *);

/* The method's options for so many train rows (0: the fewest): a fresh struct
 * (kh_repro_plan_options_free). */
int kh_repro_plan_options(void **opts, const kh_method **method, const kh_variant *, kh_preset,
    int train_rows, kh_err *err);
void kh_repro_plan_options_free(void *opts, const kh_method *);

#endif
