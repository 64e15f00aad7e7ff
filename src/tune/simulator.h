/* simulator.h - what likelihood-free methods ask, and what they give back.
 *
 * Such a method knows a prior, N(0, v I), and can try any z: it learns how many errors z makes
 * against what was observed (methods that accept and reject), or what z would have made us observe
 * (methods that learn a density). The same code runs on the box, where the errors are wrong labels
 * on the train rows (likelihood_free.c), and on toy problems whose posterior is known (toys.c).
 *
 *     kh_population out = { 0 };
 *     kh_monitor watch = { 0 };
 *     sampler->run(&out, simulator, opts, seed, &watch, err);      watch.stopped says why it ended
 *     kh_population_free(&out);
 */
#ifndef KH_TUNE_SIMULATOR_H
#define KH_TUNE_SIMULATOR_H

#include "base/buf.h"
#include "base/opts.h"
#include "base/rng.h"
#include "keyhole.h"

/* Some z to try. A simulator that is random draws the noise of z number i from a stream named by
 * (round, first + i), so what a candidate gives does not depend on how candidates are grouped. No
 * two candidates of a run share both numbers. */
typedef struct kh_candidates {
    const float *z; /* [n, dim] */
    int n;
    uint32_t round, first;
} kh_candidates;

typedef struct kh_simulator kh_simulator;
struct kh_simulator {
    int dim;          /* of z */
    double prior_var; /* the prior is N(0, prior_var I); */
    /* or, if above 0, N(0, prior_var exp(2 prior_spread u) I) with u ~ N(0, 1): its width is not
     * known, either. Only methods that move z and u together may be given that. */
    double prior_spread;
    /* Or, if these are given, a prior of its own, as for points that are not numbers: a draw, and a
     * step that is reversible under that prior, the farther the larger b is (0 < b <= 1). */
    void (*draw)(const kh_simulator *, kh_rng *, float *z);
    void (*move)(const kh_simulator *, kh_rng *, double b, const float *from, float *z);

    int n_error;  /* the largest count of errors */
    int n_class;  /* what an answer may be: an error is one of n_class - 1; 0: two */
    int n_answer; /* answers that come with a count, e.g. a label for each row; 0: none */
    /* errors [n]: exact if not more than the candidate's allowance [n], otherwise any number above
     * it: that is where asking may stop. answer [n, n_answer] holds what was answered by those
     * within their allowance. */
    int (*errors)(kh_simulator *, const kh_candidates *, const int *allowance, int *errors,
        int *answer, kh_err *err);

    int n_obs;             /* numbers in an observation; 0: this simulator only counts errors */
    const float *observed; /* [n_obs] */
    int (*observe)(kh_simulator *, const kh_candidates *, float *x, kh_err *err); /* x [n, n_obs] */

    bool tight; /* set by the sampler: look as often as pays whether a candidate is still within its
                   allowance */
    int cost;   /* queries that a whole answer to one z takes */
    long long asked, saved; /* queries so far: made, and spared by stopping early */
    void *self;
};

/* ------------------------------------------------------------------------------ what comes out */

/* Members are draws from the prior given at most `tolerance` errors; or, if rate > 0, from the
 * prior times exp(-rate * errors). Errors that are not known are -1. */
typedef struct kh_population {
    int n, dim, n_answer;
    int tolerance;
    double rate;
    float *z;       /* [n, dim] */
    double *weight; /* [n] they add up to one */
    int *errors;    /* [n] */
    int *answer;    /* [n, n_answer] */
    int *ancestor;  /* [n] the member of the first population that it comes from */
    int *moves;     /* [n] how many accepted moves ago */
    double *width;  /* [n] u of its prior; 0 if that is known */
} kh_population;

/* Room for n; all of it zero, weights 1 / n. Free it also on failure. */
int kh_population_new(kh_population *, int n, const kh_simulator *, kh_err *err);
void kh_population_free(kh_population *);
/* Member `to` becomes what member `from` of another population (or the same) is, weight apart. */
void kh_population_put(kh_population *, int to, const kh_population *other, int from);
void kh_population_copy(kh_population *, const kh_population *from); /* made for at least as many */
double kh_population_ess(const kh_population *);                     /* (sum w)^2 / sum w^2 */
int kh_population_ancestors(const kh_population *);                  /* how many different ones */

/* A draw from the prior; returns its u. */
double kh_prior_draw(const kh_simulator *, kh_rng *, float *z);

/* -------------------------------------------------------------------------------- who looks on */

/* What a generation, level or round tells: `facts` are the method's own "key=value ..." pairs. */
typedef struct kh_level_done {
    int gen;
    long done, total; /* of the whole run, for progress; total 0: not known */
    const char *facts;
} kh_level_done;

/* Budgets, the record, the choice by dev and what survives the process are the caller's business.
 * Each call may be NULL. */
typedef struct kh_monitor kh_monitor;
struct kh_monitor {
    /* Whether so many queries more are within the budgets, and after them a look at as many members
     * as the population may have by then; members 0: none but the population that was done last.
     * `have`: there is something to return. Fills stopped if not. */
    bool (*may)(kh_monitor *, long long queries, int members, bool have);
    /* How many members may be looked at after so many queries more, `most` at most. */
    int (*room)(const kh_monitor *, long long queries, int most);
    /* A whole population is done; it may be copied. `last`: no other will follow, as far as is
     * known. */
    int (*done)(kh_monitor *, const kh_population *, const kh_level_done *, bool last, kh_err *err);
    /* Now and then while something is computed that takes long and asks nothing; `what` says how
     * far it is. 0: it may go on; 1: it is to end with what is there, which can only be if there is
     * something (`have`), and stopped says why. */
    int (*tick)(kh_monitor *, const char *what, bool have, kh_err *err);
    /* What took long, under a number, for the same run when it is taken up again. recall: 1 and the
     * bytes, or 0. */
    int (*keep)(kh_monitor *, int number, const void *bytes, size_t n, kh_err *err);
    int (*recall)(kh_monitor *, int number, kh_buf *bytes, kh_err *err);
    void *self;
    char stopped[256]; /* why the run ends; empty while it goes on */
};

bool kh_monitor_may(kh_monitor *, long long queries, int members, bool have);
int kh_monitor_room(const kh_monitor *, long long queries, int most);
int kh_monitor_done(
    kh_monitor *, const kh_population *, const kh_level_done *, bool last, kh_err *err);
int kh_monitor_tick(kh_monitor *, const char *what, bool have, kh_err *err);
int kh_monitor_keep(kh_monitor *, int number, const void *bytes, size_t n, kh_err *err);
int kh_monitor_recall(kh_monitor *, int number, kh_buf *bytes, kh_err *err);
void kh_monitor_stop(kh_monitor *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* the first reason stays */

/* --------------------------------------------------------------------------------- the methods */

/* A likelihood-free method is a row; "keyhole bench sbi" runs it on toys, a kh_method that names it
 * on the box. */
typedef struct kh_sampler {
    const char *name, *summary;
    const kh_opt *opts; /* "samples", which every row must have, says how many come out */
    size_t opts_size;
    void (*exact)(void *opts); /* the published code's settings; NULL: the defaults */
    /* Fits the options to a budget of so many queries (0: none), `cost` for a candidate; NULL: they
     * stay as they are. */
    void (*fit)(void *opts, long long budget, int cost);
    bool steps; /* moves z by steps that it adapts, and so needs the same answer to the same z */
    /* Fills *out, which the caller frees also on failure. What can be returned is returned when a
     * budget ends the run. */
    int (*run)(kh_population *out, kh_simulator *, const void *opts, uint64_t seed, kh_monitor *,
        kh_err *err);
} kh_sampler;

/* NULL: there is none of that name. */
const kh_sampler *kh_sampler_find(const char *name);

extern const kh_sampler kh_sampler_abc_rejection, kh_sampler_abc_smc, kh_sampler_smc,
    kh_sampler_snpe;

#endif
