/* manual_icl.c - the methods without a soft prompt: the template alone, and demonstrations in front
 * of it. Nothing is tuned; the dev rows are asked once, to say what the result is worth. */
#include "tune/method.h"

/* With a prior of labels the dev rows are asked when that is learned. */
static int judge_on_dev(kh_tuning *t, kh_posterior *p, kh_err *err) {
    kh_tuning_stop(t, "there is nothing to tune");
    return t->o->label_prior ? 0 : kh_tuning_judge(t, p, t->plm, err);
}

static long long dev_once(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->o->label_prior ? 0 : t->n_dev;
}

/* The template has learned from no row, so that all of them tell what its answers mean; the paper's
 * effort asks about the dev rows alone. */
static bool all_rows(const kh_tuning *t) {
    return t->o->effort != KH_EFFORT_PAPER && kh_tuning_calibrates(t);
}

static long long rows_once(const kh_tuning *t, const void *opts) {
    return dev_once(t, opts) + (all_rows(t) && !t->o->label_prior ? t->n_train : 0);
}

static void all_of_manual(const kh_tuning *t, const void *opts, kh_plan *most) {
    most->candidates = 1;
    most->dev = dev_once(t, opts);
    most->train = rows_once(t, opts) - most->dev;
}

static int run_manual(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    (void)opts;
    int rc = kh_posterior_add(p, NULL, 0, err);
    if (t->votes)
        p->access = KH_ACCESS_LABELS;
    t->unlearned = all_rows(t);
    if (rc == 0 && all_rows(t) && !t->o->label_prior) {
        kh_tuning_stop(t, "there is nothing to tune");
        return kh_tuning_judge_all(t, p, t->plm, err);
    }
    return rc == 0 ? judge_on_dev(t, p, err) : rc;
}

const kh_method kh_method_manual = {
    .name = "manual",
    .summary = "the template alone, nothing tuned",
    .access = KH_ACCESS_LABELS,
    .holds = true,
    .least = rows_once,
    .most = all_of_manual,
    .run = run_manual,
};

/* ------------------------------------------------------------------------- in-context learning */

typedef struct icl_opts {
    int demos, orders;
    bool balanced;
} icl_opts;

static const kh_opt icl_table[] = {
    { "demos", KH_OPT_INT, offsetof(icl_opts, demos), "32", .min = 1, .max = 1 << 16, .arg = "N",
        .help = "demonstrations in front of a row; fewer if fewer fit" },
    { "orders", KH_OPT_INT, offsetof(icl_opts, orders), "1", .min = 1, .max = 1 << 12, .arg = "N",
        .help = "orders of demonstrations to average over" },
    { "balanced", KH_OPT_FLAG, offsetof(icl_opts, balanced), "true",
        .help = "classes take turns in an order" },
    { 0 },
};

static int orders_of(const void *opts) { return ((const icl_opts *)opts)->orders; }

/* A plain shuffle, in which classes do not take turns. */
static void icl_exact(void *opts) { ((icl_opts *)opts)->balanced = false; }

static long long dev_for_each_order(const kh_tuning *t, const void *opts) {
    return t->o->label_prior ? 0 : (long long)t->n_dev * ((const icl_opts *)opts)->orders;
}

static void all_of_icl(const kh_tuning *t, const void *opts, kh_plan *most) {
    most->candidates = ((const icl_opts *)opts)->orders;
    most->shown = ((const icl_opts *)opts)->demos;
    most->dev = dev_for_each_order(t, opts);
}

/* Each order of demonstrations is a sample: averaging over orders is this method's posterior. */
static int run_icl(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const icl_opts *o = opts;
    int rc = kh_demos_draw(&p->demos, &p->arena, t->train_row, t->n_train, o->demos, o->orders,
        o->balanced, t->o->seed, err);
    for (int i = 0; i < o->orders && rc == 0; i++)
        rc = kh_posterior_add(p, NULL, 0, err);
    return rc == 0 ? judge_on_dev(t, p, err) : rc;
}

const kh_method kh_method_icl = {
    .name = "icl",
    .summary = "in-context learning: few-shot rows shown in front of the row in question",
    .access = KH_ACCESS_LABELS,
    .holds = true,
    .opts = icl_table,
    .opts_size = sizeof(icl_opts),
    .exact = icl_exact,
    .samples = orders_of,
    .least = dev_for_each_order,
    .most = all_of_icl,
    .run = run_icl,
};
