/* method.h - a method of tuning is a row in a table: name, access level, options, and the function
 * that runs it.
 *
 * To add one: write src/tune/NAME.c with a `const kh_method`, name it here and in the table of
 * method.c. The command line takes its options and its help from the row. */
#ifndef KH_TUNE_METHOD_H
#define KH_TUNE_METHOD_H

#include "base/opts.h"
#include "tune/tuning.h"

typedef struct kh_plan {
    long long candidates;
    long long train, dev; /* queries on these rows */
    int shown;            /* demonstrations in front of a row, at most */
} kh_plan;

/* Options whose names start with "budget-" may change when a run is resumed: all that they may
 * decide is when it ends. */
typedef struct kh_method {
    const char *name;
    const char *summary; /* one line, no full stop */
    kh_access access;    /* the least that the box must let out */
    bool soft;           /* searches soft prompts */
    bool text;           /* searches text prompts */
    bool votes;          /* its samples vote, whatever the box lets out; so do those of a sampler */
    bool whole;          /* and all of them: z is the prompt itself, the projection the identity */
    bool chooses;        /* its result is that of another method, finished by it */
    bool holds;          /* knows in the end what its result answers on dev (kh_tuning_hold) */
    const kh_opt *opts;  /* its own options; NULL: none */
    size_t opts_size;
    void (*exact)(void *opts); /* the published code's settings where they differ from the defaults;
                                  NULL: nowhere */
    int (*samples)(const void *opts); /* how many the posterior may get at most; NULL: one */
    /* Queries that the least useful run takes, one generation and its dev rows; NULL: no matter. */
    long long (*least)(const kh_tuning *, const void *opts);
    /* What the longest run takes, budgets of queries and time apart; NULL: cannot be told. */
    void (*most)(const kh_tuning *, const void *opts, kh_plan *);
    /* A likelihood-free method names its sampler, whose options it shares, and has no `run` of its
     * own (likelihood_free.c). */
    const struct kh_sampler *sampler;
    /* Fills the posterior with samples and the dev metric; t->stopped becomes the reason for the
     * end. */
    int (*run)(kh_tuning *, const void *opts, kh_posterior *, kh_err *err);
} kh_method;

extern const kh_method kh_method_auto;
extern const kh_method kh_method_manual, kh_method_icl, kh_method_bbt, kh_method_ensemble,
    kh_method_elbo;
extern const kh_method kh_method_abc_rejection, kh_method_abc_smc, kh_method_smc, kh_method_snpe;
extern const kh_method kh_method_text_search, kh_method_text_ensemble, kh_method_text_smc;
extern const kh_method kh_method_prompt_tuning, kh_method_p_tuning_v2, kh_method_model_tuning;
extern const kh_method kh_method_feature_mlp, kh_method_feature_bilstm, kh_method_feature_logistic;

const kh_method *kh_method_at(int i); /* NULL after the last */
int kh_method_find(const kh_method **out, const char *name, kh_err *err);

/* Tells the caller of kh_tune what the run will cost (forecast.c); KH_STOPPED if that is enough. */
int kh_tuning_forecast(kh_tuning *, const kh_method *, const void *opts, kh_err *err);
/* The fewest queries with which it has a result, what ends the run included. */
long long kh_tuning_least(const kh_tuning *, const kh_method *, const void *opts);
/* Begins the run in its folder, or takes it up again if all that decides its result is the same
 * (terms.c). */
int kh_tuning_begin_run(kh_tuning *, const kh_method *, const void *opts, kh_err *err);

/* For a method that tries others: runs m on the rows and the box of t, to a finished posterior. Its
 * questions and its time count as t's. */
typedef struct kh_trial {
    const char *const *set; /* options "name=value" beside its defaults, or NULL */
    const kh_tune_opts *o;
    bool votes;            /* labels only, whatever the box lets out */
    kh_row_scores *scores; /* how it did on rows that it was not learned from, to be freed; NULL:
                              not wanted */
    kh_held_rows *answers; /* and what it answered there, likewise */
    /* The template as it was tried before and what it answered, to be pooled with; NULL: alone. */
    const kh_posterior *beside;
    const kh_held_rows *beside_answers;
} kh_trial;
int kh_method_try(
    kh_tuning *t, const kh_method *m, const kh_trial *, kh_posterior **out, kh_err *err);

/* kh_tune with options that are already in the method's own struct. */
int kh_method_run(kh_posterior **out, const kh_method *, const void *opts, kh_plm *,
    const kh_task *, const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *,
    kh_err *err);

#endif
