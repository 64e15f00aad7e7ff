/* tiny_tune.h - a tiny box, rows to train on and to judge by, and a folder for what is made: for
 * tests of methods of tuning. */
#ifndef KH_TEST_TINY_TUNE_H
#define KH_TEST_TINY_TUNE_H

#include "tiny.h"

#define SET(...) ((const char *const[]){ __VA_ARGS__, NULL })

static kh_plm *plm;
static const kh_task *task;
static kh_dataset *train, *dev;
static char run_dir[80]; /* is not made here */

/* Group fixtures. dev_seed 1: the dev rows are the first of the train rows. */
static inline int tune_setup(
    void **state, const char *name, kh_access access, int n_train, int n_dev, uint64_t dev_seed) {
    tiny_setup(state);
    plm = tiny_open(access);
    task = tiny_task();
    train = tiny_rows(n_train, 1, -1);
    dev = tiny_rows(n_dev, dev_seed, -1);
    snprintf(run_dir, sizeof run_dir, "/tmp/keyhole-test-%s-%ld", name, (long)getpid());
    return 0;
}

static inline int tune_teardown(void **state) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors", NULL };
    tiny_remove(run_dir, FILES);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    kh_plm_close(plm);
    return tiny_teardown(state);
}

/* The methods' own defaults, and answers as the searches leave them; test_tune_effort.c and
 * test_tune_finish.c have what is done before and afterwards. */
static inline kh_tune_opts tune_options(void) {
    kh_tune_opts o = kh_tune_defaults();
    o.effort = KH_EFFORT_PAPER;
    o.uncalibrated = true;
    o.space = tiny_space();
    o.seed = 13;
    return o;
}

static inline kh_posterior *tune_with(
    const char *method, const char *const *set, const kh_tune_opts *o) {
    kh_posterior *p;
    kh_err err;
    if (kh_tune(&p, method, set, plm, task, train, dev, o, &err) != 0)
        fail_msg("%s: %s", method, err.msg);
    return p;
}

#endif
