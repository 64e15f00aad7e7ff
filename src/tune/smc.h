/* smc.h - options of sequential Monte Carlo, for the methods that use it: smc on soft prompts,
 * text-smc on texts. */
#ifndef KH_TUNE_SMC_H
#define KH_TUNE_SMC_H

#include "tune/likelihood_free.h"

enum { KH_SMC_HARD, KH_SMC_SOFT };
enum { KH_SMC_NOT_EARLY, KH_SMC_EARLY, KH_SMC_EARLIER };

typedef struct kh_smc_opts {
    kh_labels_opts labels; /* first: likelihood_free.c looks for it there */
    int samples, accept, tolerance, levels, max_moves, first_draws, early;
    bool reuse, learn;
    double survivors, target, unmoved, step, noise, min_rate;
} kh_smc_opts;

/* Queries to the box are dear, so a member moves a few times in a level; on the toy problems it
 * moves until it has forgotten where it was, and what comes out is the posterior itself. */
#define KH_SMC_ROWS(S, m, MOVES, UNMOVED) \
    { "samples", KH_OPT_INT, offsetof(S, m.samples), "0", .min = 0, .max = 1 << 16, .arg = "N", \
        .help = "members of the population; 0: 50, or down to 20 if the query budget is small" }, \
        { "accept", KH_OPT_CHOICE, offsetof(S, m.accept), "hard", .arg = "hard|soft", \
            .help = \
                "by an allowance of errors, or by the likelihood of labels that may be wrong" }, \
        { "tolerance", KH_OPT_INT, offsetof(S, m.tolerance), "0", .min = 0, .max = 1 << 30, \
            .arg = "N", .help = "hard: errors allowed in the last level" }, \
        { "label-noise", KH_OPT_NUMBER, offsetof(S, m.noise), "0.1", .min = 1e-6, .max = 0.49, \
            .arg = "X", .help = "soft: how probable a wrong label is" }, \
        { "budget-levels", KH_OPT_INT, offsetof(S, m.levels), "1000", .min = 1, .max = 1 << 20, \
            .arg = "N", .help = "levels" }, \
        { "first-draws", KH_OPT_INT, offsetof(S, m.first_draws), "20", .min = 1, .max = 1 << 16, \
            .arg = "N", \
            .help = "hard: prior draws, of which a quarter meets the first tolerance" }, \
        { "reuse-draws", KH_OPT_FLAG, offsetof(S, m.reuse), \
            .help = "hard: those of them that meet it are members of the first population" }, \
        { "survivors", KH_OPT_NUMBER, offsetof(S, m.survivors), "0.5", .min = 0.01, .max = 0.99, \
            .arg = "X", \
            .help = \
                "share of the population that meets the next level; soft: its effective size" }, \
        { "max-moves", KH_OPT_INT, offsetof(S, m.max_moves), MOVES, .min = 1, .max = 1 << 16, \
            .arg = "N", .help = "sweeps of moves in a level, at most" }, \
        { "unmoved", KH_OPT_NUMBER, offsetof(S, m.unmoved), UNMOVED, .min = 0, .max = 0.99, \
            .arg = "X", \
            .help = "sweeps are made until a member has stayed where it was with this " \
                    "probability; 0: as many as there may be" }, \
        { "acceptance", KH_OPT_NUMBER, offsetof(S, m.target), "0.3", .min = 0.01, .max = 0.99, \
            .arg = "X", \
            .help = "share of moves to be accepted, which the step size is adapted to" }, \
        { "step", KH_OPT_NUMBER, offsetof(S, m.step), "0.5", .min = 1e-3, .max = 1, .arg = "B", \
            .help = "first step size" }, \
        { "learn-moves", KH_OPT_FLAG, offsetof(S, m.learn), \
            .help = "shorter steps in directions in which the population is narrow" }, \
        { "min-rate", KH_OPT_NUMBER, offsetof(S, m.min_rate), "0.01", .min = 0, .max = 1, \
            .arg = "X", .help = "share of moves accepted in a level below which the run ends" }, \
    { \
        "early-rejection", KH_OPT_CHOICE, offsetof(S, m.early), "on", \
            .arg = "off|on|tight", \
            .help = "stop asking about a candidate that has too many errors, seen after every " \
                    "fourth row, or when it can be; accepts the same" \
    }

/* How many members: as told, or as a budget of queries allows if a z costs so many of them. */
int kh_smc_members(const kh_smc_opts *, long long budget, int cost);
/* For the rows of methods whose options start with kh_smc_opts. */
long long kh_smc_least(const kh_tuning *, const void *opts);
void kh_smc_most(const kh_tuning *, const void *opts, kh_plan *);

#endif
