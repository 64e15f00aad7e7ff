/* slow_journal.c - what journalling costs: the time spent inside the journal as a share of the run,
 * on the smallest model there is. Processor time of one thread, so that other work on the machine
 * hardly counts. */
#include "tiny.h"

#include "posterior/posterior.h"
#include "run/run.h"

#include <time.h>

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A tape that looks at the clock on the way to the journal's. */
typedef struct timed {
    const kh_answer_cache *tape;
    double spent;
} timed;

static bool timed_stop(void *self) {
    return ((timed *)self)->tape->stop(((timed *)self)->tape->self);
}

static bool timed_known(void *self, const kh_answer_key *key) {
    timed *t = self;
    double start = cpu();
    bool known = t->tape->known(t->tape->self, key);
    t->spent += cpu() - start;
    return known;
}

static int timed_recall(
    void *self, const kh_answer_key *key, void *bytes, size_t n, double *seconds, kh_err *err) {
    timed *t = self;
    double start = cpu();
    int rc = t->tape->recall(t->tape->self, key, bytes, n, seconds, err);
    t->spent += cpu() - start;
    return rc;
}

static int timed_record(void *self, const kh_answer_unit *u, int n, kh_err *err) {
    timed *t = self;
    double start = cpu();
    int rc = t->tape->record(t->tape->self, u, n, err);
    t->spent += cpu() - start;
    return rc;
}

static kh_run *run;
static double lines; /* time for lines of generations */
static void record_line(void *user, const char *line) {
    (void)user;
    double start = cpu();
    kh_run_generation(run, "bbt", 1, 60, line);
    lines += cpu() - start;
}

static void journalling_costs_little(void **state) {
    (void)state;
    static const char *const SET[] = { "budget-generations=60", NULL };
    static const char *const FILES[] = { "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", NULL };
    kh_plm *plm = tiny_open(KH_ACCESS_LOGPROBS);
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(32, 1, -1), *dev = tiny_rows(32, 2, -1);
    kh_posterior *p;
    kh_err err;
    char dir[64];
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-journal-%ld", (long)getpid());
    kh_threads_set(1);
    kh_tune_opts o = kh_tune_defaults();
    o.space = tiny_space();
    o.record = record_line;
    double start = cpu();
    if (kh_run_open(&run, dir, &(kh_run_opts){ 0 }, &err) != 0 ||
        kh_run_begin(run, &(kh_run_card){ .method = "bbt" }, NULL, 0, &err) != 0)
        fail_msg("%s", err.msg);
    timed t = { .tape = kh_run_cache(run) };
    double opened = cpu() - start;
    kh_answer_cache tape = { timed_stop, timed_known, timed_recall, timed_record, &t, NULL };
    kh_plm_set_cache(plm, &tape);
    if (kh_tune(&p, "bbt", SET, plm, task, train, dev, &o, &err) != 0)
        fail_msg("%s", err.msg);
    kh_plm_set_cache(plm, NULL);
    double closing = cpu();
    assert_int_equal(kh_run_finish(run, NULL), 0);
    kh_run_close(run);
    closing = cpu() - closing;
    double whole = cpu() - start, all = t.spent + lines;
    printf("# 60 generations in %.0f ms: answers %.2f %%, lines %.2f %%; opening and closing %.1f "
           "ms\n",
        1e3 * whole, 100 * t.spent / whole, 100 * lines / whole, 1e3 * (opened + closing));
    assert_true(all < 0.02 * whole);
    kh_threads_set(0);
    kh_posterior_free(p);
    tiny_remove(dir, FILES);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    kh_plm_close(plm);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(journalling_costs_little) };
    return cmocka_run_group_tests_name("journal", tests, tiny_setup, tiny_teardown);
}
