/* tuning.h - what a method is given: the box, the rows, the space to search, a seed and a budget.
 *
 * kh_tune (method.c) makes one and checks all that can be checked before the first query. A method
 * asks through kh_objective_of and kh_tuning_dev, and calls kh_tuning_may before each generation
 * and kh_tuning_report after it. */
#ifndef KH_TUNE_TUNING_H
#define KH_TUNE_TUNING_H

#include "posterior/posterior.h"
#include "prompt/target.h"
#include "run/run.h"
#include "tune/loss.h"

/* -log p of the true labels of rows that a result was not learned from, each calibrated by others.
 * Rows have numbers: the dev rows from 0, the train rows after them. */
typedef struct kh_row_scores {
    double *nll; /* [n] */
    int *row;    /* [n] */
    int n;
    int looks; /* at such rows, of which the best has chosen the result */
} kh_row_scores;
void kh_row_scores_free(kh_row_scores *);

/* What a result answers to these rows before calibration, distributions or shares of votes. */
typedef struct kh_held_rows {
    double *p;  /* [n, n_label] */
    int *label; /* [n] */
    int *row;   /* [n] */
    int n;
} kh_held_rows;
void kh_held_rows_free(kh_held_rows *);

typedef struct kh_tuning {
    /* The question. */
    kh_plm *plm;
    kh_scorer *scorer; /* NULL if the method is to see labels only */
    kh_labeler *labeler;
    const kh_task *task;
    kh_words *words;
    const kh_row *train_row, *dev_row;
    int n_train, n_dev;
    kh_space space;        /* methods with a soft prompt: where to search, */
    kh_batch *train, *dev; /* and the rows encoded for it: of train those in search_row, */
    double *train_share, *dev_share; /* of the classes among these, if priors are removed inside */
    int *search_row;                 /* [n_search] which of train_row they are; NULL: all */
    int n_search;
    const kh_tune_opts *o; /* filled in where the caller left it to the effort */
    kh_tune_opts filled;
    bool effort_budget; /* the budget of queries is the effort's, and yields to what is least */

    /* Rows that the result was not learned from, by their numbers (kh_row_scores), dev first, and
     * what it answers there before calibration; p NULL: not asked yet. */
    kh_held_rows held;
    kh_row_scores scores; /* and how it did there, once it is calibrated */
    bool crossfitted;     /* the held rows are all of them, by fits that had not seen the row */
    int looks;      /* at dev, of which the best has chosen the result; 0: it was not chosen */
    bool unlearned; /* it has learned from no row at all: the train rows are held, too */
    bool votes;     /* the result may see labels only, whatever the box lets out */

    /* The books. */
    kh_meter start;
    double started; /* by kh_clock */
    long long dev_queries;
    long long reserve; /* queries that the end of the run will take, kept back from the budget */
    double kept;       /* when a state was last kept, by the same clock */
    char stopped[256]; /* why the run ends; empty while it goes on */
} kh_tuning;

/* Mean tokens of a row of dev as the box counts them, in the plain template behind `shown`
 * demonstrations; no more than the model reads. */
int kh_tuning_row_tokens(const kh_tuning *, int shown, double *tokens, kh_err *err);
/* What the record calls the model: the caller's word, or what the box was opened with. */
const char *kh_tuning_model(const kh_tuning *);
void kh_tuning_begin(kh_tuning *);              /* opens the books */
long long kh_tuning_queries(const kh_tuning *); /* asked since the start, dev included */
double kh_tuning_seconds(
    const kh_tuning *); /* worked since the start, by this process and those before it */

/* Whether `queries` more, of the next generation, are within the budget; if not, t->stopped says
 * so. The clock is looked at only when something is there to return (`have`); they take as long as
 * those before them did, and so does what the end of the run will ask. */
bool kh_tuning_may(kh_tuning *, long long queries, bool have);
/* Whether the caller wants the run to be left as it is, to be resumed: for methods that compute
 * long without asking. */
bool kh_tuning_interrupted(const kh_tuning *);
void kh_tuning_stop(kh_tuning *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One generation is done: a line for the record and progress. done of total counts generations of
 * the whole run. dev NaN: not known yet. member < 0: there are none. facts: what else there is to
 * say, "key=value key=value ...". If the caller of kh_tune wants to stop, t->stopped is filled. */
typedef struct kh_generation {
    int member, gen;
    long done, total;
    double dev;
    const char *facts;
    long long queries; /* asked when it was done; 0: all that have been asked so far */
    bool late;         /* it was done a while ago: for the record only */
} kh_generation;
void kh_tuning_report(kh_tuning *, const char *phase, const kh_generation *);

enum { KH_FACTS = 256 }; /* bytes that will do for facts */
void kh_loss_facts(char facts[KH_FACTS], double loss,
    double best); /* of methods that minimise: this generation's, and so far */

/* For methods whose own computing takes long: states to go on from when a run is resumed, instead
 * of computing all again.
 *
 *     if (kh_tuning_due(t))                  now and then, where it costs little
 *         rc = kh_tuning_keep(t, "search", member, bytes, n, err);
 *     ...
 *     rc = kh_tuning_recall(t, "search", member, &bytes, err);
 *                                            1: these, and the books are as they were then; 0: none
 *
 * A state serves a run with the same options, budgets included; when a budget changes, states are
 * forgotten, and all is computed again from the recorded answers. Without a run nothing is kept,
 * and nothing while a resumed run has not come to where it was. */
bool kh_tuning_due(const kh_tuning *);
int kh_tuning_keep(
    kh_tuning *, const char *name, int number, const void *bytes, size_t n, kh_err *err);
int kh_tuning_forget(kh_tuning *, const char *name, int number, kh_err *err);
int kh_tuning_recall(kh_tuning *, const char *name, int number, kh_buf *bytes, kh_err *err);

/* A function of many z at once. */
typedef struct kh_objective {
    int dim;
    int (*value)(
        void *self, const float *z, int n, double *f, kh_err *err); /* z [n, dim] -> f [n] */
    void *self;
} kh_objective;

/* The loss of each z [n, d] on the train rows; scale multiplies it. */
typedef struct kh_train_loss {
    kh_target target;
    kh_loss loss;
    kh_metric metric;
    double scale;
    const double *share; /* of the classes among the rows: a candidate's own prior over labels is
                            removed before its loss is taken; NULL: it is not */
} kh_train_loss;
kh_train_loss kh_tuning_loss(const kh_tuning *, const kh_subspace *, kh_loss);
kh_objective kh_objective_of(kh_train_loss *);
/* Several that differ in nothing but their subspace, in one question: z [n_loss] of [n, d] -> f
 * [n_loss] of [n]. */
int kh_train_losses(
    const kh_train_loss *, int n_loss, const float *const *z, int n, double *const *f, kh_err *err);

/* The dev rows by the mixture of n equally weighted z: p [dev->n_row, n_label]. */
int kh_tuning_dev(kh_tuning *, const kh_subspace *, const float *z, int n, double *p, kh_err *err);
/* The dev rows by each of several single z, in one question: space, z, p [n]. */
int kh_tuning_dev_each(kh_tuning *, const kh_subspace *const *space, const float *const *z, int n,
    double *const *p, kh_err *err);
/* What such answers are worth: the task's metric, and the mean cross-entropy. */
double kh_dev_metric(const kh_tuning *, const double *p);
double kh_dev_ce(const kh_tuning *, const double *p);
size_t kh_dev_size(const kh_tuning *); /* n_row * n_label */
/* The dev rows by a finished posterior and the box that answers for it: fills p->dev. */
int kh_tuning_judge(kh_tuning *, kh_posterior *, kh_plm *, kh_err *err);
/* The same, and the train rows: for results that have learned from none of them. */
int kh_tuning_judge_all(kh_tuning *, kh_posterior *, kh_plm *, kh_err *err);

/* For methods that know them when they end: the result's answers to n rows that it was not learned
 * from, p [n, n_label] up to a factor for each row; row [n]: their numbers (kh_row_scores), dev
 * rows first; NULL: 0, 1, 2, ... Copies; replaces what was there. Rows of NaN, which a service
 * refused, are left out. */
int kh_tuning_hold(
    kh_tuning *, const double *p, const int *label, const int *row, int n, kh_err *err);
double kh_tuning_held_metric(const kh_tuning *); /* the task's metric on the dev rows of these */
/* The last step of a run (finish.c): answers become probabilities that mean what they say. Asks the
 * posterior about the dev rows if nobody has. */
int kh_tuning_calibrate(kh_tuning *, kh_posterior *, kh_err *err);
bool kh_tuning_calibrates(const kh_tuning *);
/* How many queries that takes of so many samples. */
long long kh_tuning_calibrate_cost(const kh_tuning *, int samples, bool holds);

/* The prior of labels of a finished posterior (learn_prior.c): asks its samples about some rows,
 * and about the dev rows, and fills what the posterior says of it, p->dev included. */
int kh_tuning_learn_prior(kh_tuning *, kh_posterior *, kh_err *err);
/* How many queries that takes of so many samples; 0 if it is not wanted. */
long long kh_tuning_prior_cost(const kh_tuning *, int samples);

#endif
