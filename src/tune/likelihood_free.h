/* likelihood_free.h - likelihood-free methods on the box: what comes before a sampler and after it.
 *
 * The box becomes a kh_simulator whose errors are wrong labels on the train rows, a kh_monitor
 * keeps budgets and record and scores populations on dev by their votes, and in the end the votes
 * are calibrated and the posterior is filled. */
#ifndef KH_TUNE_LIKELIHOOD_FREE_H
#define KH_TUNE_LIKELIHOOD_FREE_H

#include "tune/method.h"
#include "tune/simulator.h"

/* What all of these methods have in common on the box. */
typedef struct kh_labels_opts {
    double prior, prior_spread;
    int dev_every;
} kh_labels_opts;

#define KH_LABELS_ROWS_EVERY(S, m, every) \
    { "prior-variance", KH_OPT_NUMBER, offsetof(S, m.prior), "50", .min = 1e-9, .max = 1e9, \
        .arg = "X", .help = "of each coordinate of z" }, \
    { \
        "dev-every", KH_OPT_INT, offsetof(S, m.dev_every), every, \
            .min = 0, .max = 1 << 30, .arg = "N", \
            .help = "generations between two looks at the dev rows; 0: the last one only" \
    }
#define KH_LABELS_ROWS(S, m) KH_LABELS_ROWS_EVERY(S, m, "1")

/* Runs the sampler that a method names on the box and fills the posterior. opts: the sampler's,
 * which start with a kh_labels_opts. */
int kh_labels_run(kh_tuning *, const kh_sampler *, const void *opts, kh_posterior *, kh_err *err);

/* Points of another space than that of soft prompts, and how the box is asked about them. */
typedef struct kh_label_source {
    int dim;
    /* The train rows and the dev rows, as kh_target_answer_within and kh_target_answer. */
    int (*within)(void *self, const float *z, int n, const kh_patience *, int *errors, int *label,
        kh_err *err);
    int (*dev)(void *self, const float *z, int n, int *label, kh_err *err);
    void (*draw)(const kh_simulator *, kh_rng *, float *z); /* simulator.h; `self` of the box is */
    void (*move)(const kh_simulator *, kh_rng *, double b, const float *from,
        float *z); /* kh_label_source_of */
    /* The population becomes the posterior's samples, with their weights. */
    int (*fill)(void *self, const kh_population *, kh_posterior *, kh_err *err);
    void *self;
} kh_label_source;
int kh_labels_run_from(kh_tuning *, const kh_label_source *, const kh_sampler *, const void *opts,
    kh_posterior *, kh_err *err);
const kh_label_source *kh_label_source_of(const kh_simulator *);
/* L17, L18: the votes [n_label] on train row i of the members that would be here whatever they had
 * said to it; truth [n_answer]. False: they are too few. */
bool kh_votes_without(const kh_population *, const int *truth, int i, int n_label, double *votes);
/* For kh_method.least: one batch of candidates and a look at those that may come of it. */
long long kh_labels_least(const kh_tuning *, int samples);
/* For kh_method.most: so many candidates, each asked about all train rows, in so many populations.
 */
void kh_labels_most(const kh_tuning *, const kh_labels_opts *, double candidates, int populations,
    int samples, kh_plan *);

#endif
