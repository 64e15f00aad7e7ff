/* test_tune_methods.c - every method from two data sets to a posterior, on a tiny random model:
 * what it costs, that the same seed gives the same bytes, that budgets hold, and what is refused
 * before the first query. */
#include "tiny_tune.h"

#include "base/json.h"
#include "posterior/posterior.h"
#include "tune/method.h"
#include "tune/tuning.h"

#include <math.h>

enum { TRAIN = 8, DEV = 6 };

static int open_all(void **state) {
    return tune_setup(state, "tune", KH_ACCESS_LOGPROBS, TRAIN, DEV, 2);
}

static kh_posterior *tune(const char *method, const char *const *set) {
    kh_tune_opts o = tune_options();
    return tune_with(method, set, &o);
}

/* ------------------------------------------------------------------------------- what it costs */

static void check_cost(
    const char *method, const char *const *set, int samples, long long on_train, long long on_dev) {
    long long before = kh_plm_meter(plm).queries;
    kh_posterior *p = tune(method, set);
    assert_int_equal(kh_plm_meter(plm).queries - before, on_train + on_dev);
    assert_int_equal(p->train_queries, on_train);
    assert_int_equal(p->dev_queries, on_dev);
    assert_int_equal(p->n, samples);
    assert_true(p->dev >= 0 && p->dev <= 1);
    kh_posterior_free(p);
}

static void every_method_costs_what_it_promises(void **state) {
    (void)state;
    check_cost("manual", NULL, 1, 0, DEV);
    check_cost("icl", SET("orders=3"), 3, 0, 3 * DEV);
    check_cost("bbt", SET("budget-generations=7", "pop=5", "dev-every=3"), 1, 7 * 5 * TRAIN,
        3 * DEV); /* after 3, 6 and the last */
    check_cost(
        "bbt", SET("budget-generations=6", "pop=5", "dev-every=3"), 1, 6 * 5 * TRAIN, 2 * DEV);
    check_cost("ensemble", SET("members=3", "budget-generations=4", "pop=5", "dev-every=4"), 3,
        3 * 4 * 5 * TRAIN, 3 * DEV);
    check_cost("elbo", SET("budget-generations=4", "pop=5", "draws=2", "samples=7", "dev-every=2"),
        7, 4 * 5 * 2 * TRAIN, 2 * 7 * DEV);
    check_cost("elbo", SET("budget-generations=2", "pop=5", "draws=2", "samples=7", "dev-all=true"),
        7, 2 * 5 * 2 * TRAIN, 2 * 5 * 2 * DEV);
}

static void defaults_are_the_paper_s(void **state) {
    (void)state;
    static const struct {
        const char *method, *options;
    } all[] = {
        { "icl", "{\"demos\":32,\"orders\":1,\"balanced\":true}" },
        { "bbt",
            "{\"budget-generations\":300,\"pop\":20,\"sigma\":1,\"bound\":100,\"loss\":\"ce\","
            "\"race\":0,\"dev-every\":20,\"budget-stall\":0,\"variant\":"
            "\"full\",\"active\":true}" },
        { "ensemble",
            "{\"members\":10,\"share-projection\":false,\"budget-generations\":300,\"pop\":20,"
            "\"sigma\":1,\"bound\":0,\"loss\":"
            "\"ce\",\"race\":0,\"dev-every\":20,\"budget-stall\":0,"
            "\"variant\":\"full\",\"active\":true}" },
        { "elbo",
            "{\"budget-generations\":300,\"pop\":20,\"draws\":10,\"samples\":100,\"kl-weight\":1,"
            "\"prior-variance\":50,\"common-"
            "noise\":true,\"sigma\":1,"
            "\"bound\":0,\"dev-every\":20,\"budget-stall\":0,\"dev-all\":false,\"variant\":"
            "\"full\",\"active\":"
            "true}" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const kh_method *m;
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        assert_int_equal(kh_method_find(&m, all[i].method, NULL), 0);
        void *opts = calloc(1, m->opts_size);
        kh_opts_init(m->opts, opts);
        kh_opts_json(m->opts, opts, &b);
        assert_string_equal(b.data, all[i].options);
        kh_buf_free(&b);
        free(opts);
    }
}

static void paper_exact_is_the_published_code(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.paper_exact = true;
    kh_posterior *p =
        tune_with("elbo", SET("budget-generations=1", "pop=5", "draws=2", "samples=3"), &o);
    assert_non_null(strstr(p->options, "\"kl-weight\":0.001"));
    assert_non_null(strstr(p->options, "\"common-noise\":false"));
    assert_non_null(strstr(p->options, "\"dev-all\":true"));
    assert_true(p->paper_exact);
    kh_posterior_free(p);
    p = tune_with("elbo",
        SET("budget-generations=1", "pop=5", "draws=2", "samples=3", "kl-weight=1"),
        &o); /* what is said goes before */
    assert_non_null(strstr(p->options, "\"kl-weight\":1,"));
    kh_posterior_free(p);
    p = tune_with("ensemble", SET("members=2", "budget-generations=1", "pop=5"), &o);
    assert_true(p->projection[0] == p->projection[1]);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------- what it finds */

typedef struct lines {
    char last[256];
    double first_loss, best;
    int n;
} lines;

static void record(void *user, const char *line) {
    lines *l = user;
    const char *loss = strstr(line, " loss="), *best = strstr(line, " best=");
    assert_non_null(loss);
    assert_non_null(best);
    if (l->n++ == 0)
        l->first_loss = atof(loss + 6);
    l->best = atof(best + 6);
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void every_loss_falls(void **state) {
    (void)state;
    static const char *const LOSSES[] = { "loss=ce", "loss=hinge", "loss=brier" };
    for (int i = 0; i < 3; i++) {
        lines l = { 0 };
        kh_tune_opts o = tune_options();
        o.record = record;
        o.user = &l;
        kh_posterior *p = tune_with("bbt", SET("budget-generations=40", LOSSES[i]), &o);
        assert_int_equal(l.n, 40);
        assert_true(l.best < 0.9 * l.first_loss);
        assert_true(strncmp(l.last, "gen=40 queries=", 15) == 0 && strstr(l.last, " dev="));
        kh_posterior_free(p);
    }
    kh_posterior_free(tune("bbt", SET("budget-generations=5", "loss=metric")));
}

/* The z that is returned is one that was asked about on dev: its metric there is the one reported.
 */
static void dev_metric_is_that_of_the_result(void **state) {
    (void)state;
    static const char *const METHODS[] = { "bbt", "ensemble", "elbo", "icl", "manual" };
    for (int m = 0; m < 5; m++) {
        const char *const *set = m == 0 ? SET("budget-generations=9", "dev-every=2")
            : m == 1                    ? SET("budget-generations=5", "members=3", "dev-every=2")
            : m == 2 ? SET("budget-generations=5", "draws=2", "samples=9", "dev-every=2")
                     : NULL;
        kh_posterior *p = tune(METHODS[m], set);
        kh_predictor *predictor;
        double answer[DEV * 2];
        int right = 0;
        assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
        assert_int_equal(kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, NULL), 0);
        for (int i = 0; i < DEV; i++)
            right += (answer[2 * i + 1] > answer[2 * i]) == kh_dataset_rows(dev)[i].label;
        if (p->dev != (double)right / DEV)
            fail_msg("%s: dev %g reported, %g found", METHODS[m], p->dev, (double)right / DEV);
        kh_predictor_free(predictor);
        kh_posterior_free(p);
    }
}

/* A search that brings nothing ends as one of so many generations would have: the same prompt, and
 * no question more. */
static void a_stalled_search_ends(void **state) {
    (void)state;
    static const char *const METHODS[] = { "bbt", "elbo" };
    for (int m = 0; m < 2; m++)
        for (int stall = 1; stall <= 2; stall++) {
            char option[32], generations[40];
            int gen = 0, looks = 0;
            snprintf(option, sizeof option, "budget-stall=%d", stall);
            kh_posterior *p = tune(METHODS[m],
                SET("budget-generations=60", "dev-every=2", option, m ? "samples=9" : "pop=6"));
            assert_int_equal(
                sscanf(p->stopped, "after %d generations: the last %d looks", &gen, &looks), 2);
            assert_true(gen < 60 && gen % 2 == 0 && looks == stall);
            snprintf(generations, sizeof generations, "budget-generations=%d", gen);
            kh_posterior *same =
                tune(METHODS[m], SET(generations, "dev-every=2", m ? "samples=9" : "pop=6"));
            assert_memory_equal(p->z, same->z, 12 * sizeof *p->z);
            assert_true(p->dev == same->dev && p->train_queries == same->train_queries);
            kh_posterior_free(p);
            kh_posterior_free(same);
        }
}

static void an_ensemble_of_one_is_bbt(void **state) {
    (void)state;
    kh_posterior *one = tune("bbt", SET("budget-generations=12"));
    kh_posterior *ensemble = tune("ensemble", SET("budget-generations=12", "members=1"));
    assert_int_equal(ensemble->n, 1);
    assert_true(one->projection[0] == 13 && ensemble->projection[0] == 13);
    assert_memory_equal(one->z, ensemble->z, 12 * sizeof *one->z);
    assert_true(one->dev == ensemble->dev);
    kh_posterior_free(one);
    kh_posterior_free(ensemble);
}

/* Two dev rows that differ in their labels alone: every prompt is right about one of them, so all
 * are equal on dev. */
static void the_later_of_equals_is_kept(void **state) {
    (void)state;
    static const char ROWS[] = "label\ttext\n0\tgreen boats\n1\tgreen boats\n";
    kh_dataset *ties;
    kh_tune_opts o = tune_options();
    kh_posterior *p[3];
    assert_int_equal(kh_dataset_parse(&ties, ROWS, sizeof ROWS - 1, "rows.tsv", NULL, NULL), 0);
    for (int i = 0; i < 3; i++) {
        const char *const *set = i == 0 ? SET("budget-generations=4", "dev-every=4")
            : i == 1                    ? SET("budget-generations=4", "dev-every=1")
                                        : SET("budget-generations=3", "dev-every=1");
        assert_int_equal(kh_tune(&p[i], "bbt", set, plm, task, train, ties, &o, NULL), 0);
        assert_true(p[i]->dev == 0.5);
    }
    assert_memory_equal(p[0]->z, p[1]->z, 12 * sizeof *p[0]->z);
    assert_memory_not_equal(p[1]->z, p[2]->z, 12 * sizeof *p[0]->z);
    for (int i = 0; i < 3; i++)
        kh_posterior_free(p[i]);
    kh_dataset_close(ties);
}

static void members_have_seeds_and_projections_of_their_own(void **state) {
    (void)state;
    kh_posterior *p = tune("ensemble", SET("budget-generations=2", "members=3"));
    kh_posterior *shared =
        tune("ensemble", SET("budget-generations=2", "members=3", "share-projection=true"));
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < a; b++) {
            assert_true(p->projection[a] != p->projection[b]);
            assert_true(shared->projection[a] == 13);
            assert_memory_not_equal(p->z + 12 * a, p->z + 12 * b, 12 * sizeof *p->z);
            assert_memory_not_equal(shared->z + 12 * a, shared->z + 12 * b, 12 * sizeof *p->z);
        }
    kh_posterior_free(p);
    kh_posterior_free(shared);
}

static void read_files(kh_buf out[2]) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors" };
    for (int i = 0; i < 2; i++) {
        char *path = kh_path_join(run_dir, FILES[i]);
        assert_int_equal(kh_file_read(path, 1 << 20, &out[i], NULL), 0);
        kh_free(path);
    }
}

static void same_seed_same_files_with_any_threads(void **state) {
    (void)state;
    static const char *const METHODS[] = { "manual", "icl", "bbt", "ensemble", "elbo" };
    for (int m = 0; m < 5; m++) {
        kh_buf files[3][2];
        for (int i = 0; i < 3; i++) {
            kh_tune_opts o = tune_options();
            o.seed = i < 2 ? 13 : 14;
            kh_threads_set(i + 1);
            kh_posterior *p = tune_with(METHODS[m],
                m < 2        ? NULL
                    : m == 3 ? SET("budget-generations=6", "members=2", "dev-every=2")
                             : SET("budget-generations=6", "dev-every=2"),
                &o);
            assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
            read_files(files[i]);
            kh_posterior_free(p);
        }
        for (int f = 0; f < 2; f++) {
            assert_int_equal(files[0][f].len, files[1][f].len);
            assert_memory_equal(files[0][f].data, files[1][f].data, files[0][f].len);
        }
        assert_true(m < 2 ||
            memcmp(files[0][1].data, files[2][1].data, files[0][1].len) !=
                0); /* and another seed does not */
        for (int i = 0; i < 6; i++)
            kh_buf_free(&files[i / 2][i % 2]);
    }
    kh_threads_set(0);
}

static void every_injection_mode_works(void **state) {
    (void)state;
    for (int inject = KH_INJECT_POST_LN_ADD; inject <= KH_INJECT_EMBED_INPLACE; inject++) {
        kh_tune_opts o = tune_options();
        o.space.inject = inject;
        kh_posterior *p = tune_with("bbt", SET("budget-generations=2"), &o);
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        kh_posterior_free(p);
        assert_int_equal(kh_posterior_open(&p, run_dir, NULL), 0);
        assert_int_equal(p->space.inject, inject);
        kh_posterior_free(p);
    }
}

/* ------------------------------------------------------------------------------------- budgets */

static void a_query_budget_is_never_exceeded(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.max_queries = 5 * TRAIN * 3 + DEV +
        7; /* three generations, one look at dev, and not enough for a fourth */
    kh_posterior *p = tune_with("bbt", SET("pop=5"), &o);
    assert_int_equal(p->train_queries, 5 * TRAIN * 3);
    assert_int_equal(p->dev_queries, DEV);
    assert_string_equal(p->stopped, "the next generation would exceed the budget of 133 queries");
    kh_posterior_free(p);
    o.max_queries = 5 * TRAIN * 5;
    p = tune_with("ensemble", SET("pop=5", "budget-generations=3"), &o);
    assert_int_equal(p->n, 2); /* the second one cut short */
    assert_true(p->train_queries + p->dev_queries <= o.max_queries);
    kh_posterior_free(p);
}

static void a_time_budget_ends_the_run(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.max_seconds = 1e-6;
    kh_posterior *p = tune_with("bbt", SET("pop=5"), &o);
    assert_int_equal(p->train_queries, 5 * TRAIN); /* one generation is always done */
    assert_string_equal(p->stopped, "the budget of 1e-06 seconds is used up");
    kh_posterior_free(p);
}

/* A hundred queries in a hundred seconds: what would end after the limit is not begun, and what the
 * end of the run will ask counts. */
static void a_time_budget_looks_ahead(void **state) {
    (void)state;
    static const struct {
        long long queries, reserve;
        double limit;
        const char *stopped;
    } CASES[] = { { 40, 0, 150, "" }, { 40, 5, 150, "" },
        { 60, 0, 150, "the next generation would exceed the budget of 150 seconds" },
        { 40, 15, 150, "the next generation would exceed the budget of 150 seconds" },
        { 0, 0, 99, "the budget of 99 seconds is used up" }, { 1000, 0, 0, "" } };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        kh_tune_opts o = { .max_seconds = CASES[i].limit };
        kh_tuning t = { .plm = plm, .o = &o, .reserve = CASES[i].reserve };
        kh_tuning_begin(&t);
        t.start.queries -= 100;
        t.started -= 100;
        assert_true(kh_tuning_may(&t, CASES[i].queries, false)); /* nothing to return yet */
        assert_int_equal(kh_tuning_may(&t, CASES[i].queries, true), CASES[i].stopped[0] == '\0');
        assert_string_equal(t.stopped, CASES[i].stopped);
    }
}

static int stop_at_three(void *user, const kh_progress *p) {
    (void)user;
    assert_string_equal(p->phase, "elbo");
    assert_int_equal(p->total, 300);
    assert_non_null(strstr(p->note, "queries="));
    assert_non_null(strstr(p->note, "left="));
    return p->done == 3;
}

static void progress_may_stop_the_run(void **state) {
    (void)state;
    kh_hooks hooks = { .progress = stop_at_three };
    kh_tune_opts o = tune_options();
    o.hooks = &hooks;
    kh_posterior *p = tune_with("elbo", SET("pop=5", "draws=2", "samples=4"), &o);
    assert_int_equal(p->train_queries, 3 * 5 * 2 * TRAIN);
    assert_string_equal(p->stopped, "stopped on request");
    assert_int_equal(p->n, 4);
    kh_posterior_free(p);
}

static void reasons_are_reported(void **state) {
    (void)state;
    kh_posterior *p = tune("bbt", SET("budget-generations=2"));
    assert_string_equal(p->stopped, "all 2 generations are done");
    kh_posterior_free(p);
    p = tune("ensemble", SET("budget-generations=1", "members=2"));
    assert_string_equal(p->stopped, "all 2 members are done");
    kh_posterior_free(p);
    p = tune(
        "bbt", SET("sigma=1e-9")); /* steps too short to change a float: all values are equal */
    assert_non_null(strstr(p->stopped, "CMA-ES stopped after"));
    kh_posterior_free(p);
}

/* ---------------------------------------------------------------------------------- complaints */

typedef struct wrong {
    const char *method, *const *set;
    kh_tune_opts o;
    kh_plm *box;
    const kh_dataset *train, *dev;
} wrong;

static wrong good(void) { return (wrong){ "bbt", NULL, tune_options(), plm, train, dev }; }

static void refuse(const wrong *w, int code, const char *says) {
    kh_posterior *p;
    kh_err err;
    long long before = kh_plm_meter(w->box).queries;
    int rc = kh_tune(&p, w->method, w->set, w->box, task, w->train, w->dev, &w->o, &err);
    assert_null(p);
    if (rc != code)
        fail_msg("code %d, expected %d: %s", rc, code, err.msg);
    assert_says(&err, says);
    assert_int_equal(kh_plm_meter(w->box).queries, before); /* before any query is spent */
}

static void bad_input_is_refused_before_any_query(void **state) {
    (void)state;
    wrong w = good();
    w.o.space.dim = 161;
    refuse(&w, KH_EARG, "dimension 161 is larger than the prompt itself");
    w = good();
    w.o.max_queries = 20 * TRAIN + DEV - 1;
    refuse(&w, KH_EARG,
        "a budget of 165 queries is too small: one generation of bbt and its check on dev take "
        "166");
    w = good();
    w.o.max_queries = -1;
    refuse(&w, KH_EARG, "a budget cannot be negative");
    w = good();
    w.set = SET("budget-generations=0");
    refuse(&w, KH_EARG, "--budget-generations takes a whole number from 1");
    w.set = SET("kl-weight=1");
    refuse(&w, KH_EARG, "method bbt has no option \"kl-weight=1\"");
    w = good();
    w.method = "guess";
    refuse(
        &w, KH_EARG, "unknown method \"guess\"; there are auto, manual, icl, bbt, ensemble, elbo");
    w = good();
    kh_dataset *lopsided = tiny_rows(4, 3, 0);
    w.dev = lopsided;
    refuse(&w, KH_EFORMAT,
        "the dev rows hold none of class 1 (\"good\"); every class of task \"toy\" must be there");
    w = good();
    w.train = lopsided;
    refuse(&w, KH_EFORMAT, "the train rows hold none of class 1");
    kh_dataset_close(lopsided);
}

static void labels_do_not_serve_methods_that_need_more(void **state) {
    (void)state;
    static const char *const METHODS[] = { "bbt", "ensemble", "elbo" };
    wrong w = good();
    w.box = tiny_open(KH_ACCESS_LABELS);
    for (int i = 0; i < 3; i++) {
        char says[128];
        snprintf(says, sizeof says,
            "method %s needs a box that lets out logprobs; this one was opened at access level "
            "labels",
            METHODS[i]);
        w.method = METHODS[i];
        refuse(&w, KH_EUNSUPPORTED, says);
    }
    for (int i = 0; i < 2; i++) { /* these get by with labels */
        kh_posterior *p;
        assert_int_equal(
            kh_tune(&p, i ? "icl" : "manual", NULL, w.box, task, train, dev, &w.o, NULL), 0);
        assert_int_equal(p->access, KH_ACCESS_LABELS);
        kh_posterior_free(p);
    }
    kh_plm_close(w.box);
}

static void rows_without_label_are_refused(void **state) {
    (void)state;
    kh_dataset *d;
    static const char ROWS[] = "label\ttext\n0\tsmall\n1\tgreen\n-\tboats\n";
    assert_int_equal(kh_dataset_parse(&d, ROWS, sizeof ROWS - 1, "rows.tsv",
                         &(kh_dataset_opts){ .unlabelled = true }, NULL),
        0);
    wrong w = good();
    w.train = d;
    refuse(&w, KH_EFORMAT, "row 2 of the train rows has no label");
    kh_dataset_close(d);
}

static void rows_that_never_fit_are_refused(void **state) {
    (void)state;
    char bytes[4096] = "label\ttext\n";
    for (int i = 0; i < 2; i++) {
        strcat(bytes, i ? "1\t" : "0\t");
        for (int k = 0; k < 200; k++)
            strcat(bytes, "green ");
        strcat(bytes, "\n");
    }
    kh_dataset *d;
    assert_int_equal(kh_dataset_parse(&d, bytes, strlen(bytes), "rows.tsv", NULL, NULL), 0);
    wrong w = good();
    w.dev = d;
    w.o.paper_exact = true; /* which drops long rows instead of cutting them */
    refuse(&w, KH_EFORMAT, "no dev row is short enough for the model");
    kh_dataset_close(d);
}

static void methods_are_listed(void **state) {
    (void)state;
    assert_string_equal(kh_method_name(0), "auto");
    int n = 0;
    while (kh_method_name(n))
        n++;
    assert_true(n >= 5);
    assert_null(kh_method_at(n));
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    static const char *const METHODS[] = { "icl", "ensemble", "elbo" };
    kh_threads_set(1);
    for (int m = 0; m < 3; m++) {
        const char *const *set = m == 0 ? NULL
            : m == 1                    ? SET("budget-generations=1", "pop=2", "members=2")
                     : SET("budget-generations=1", "pop=2", "draws=1", "samples=2");
        long n = 1;
        for (bool done = false; !done; n++) {
            kh_posterior *p;
            kh_err err = { 0 };
            kh_tune_opts o = tune_options();
            kh_alloc_fail_at(n, false);
            int rc = kh_tune(&p, METHODS[m], set, plm, task, train, dev, &o, &err);
            done = kh_alloc_count() < n;
            kh_alloc_fail_at(0, false);
            if (rc != (done ? 0 : KH_ENOMEM))
                fail_msg("%s, allocation %ld: %d, %s", METHODS[m], n, rc, err.msg);
            kh_posterior_free(p);
        }
        assert_true(n > 50);
    }
    kh_threads_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_costs_what_it_promises),
        cmocka_unit_test(defaults_are_the_paper_s),
        cmocka_unit_test(paper_exact_is_the_published_code),
        cmocka_unit_test(every_loss_falls),
        cmocka_unit_test(dev_metric_is_that_of_the_result),
        cmocka_unit_test(a_stalled_search_ends),
        cmocka_unit_test(an_ensemble_of_one_is_bbt),
        cmocka_unit_test(the_later_of_equals_is_kept),
        cmocka_unit_test(members_have_seeds_and_projections_of_their_own),
        cmocka_unit_test(same_seed_same_files_with_any_threads),
        cmocka_unit_test(every_injection_mode_works),
        cmocka_unit_test(a_query_budget_is_never_exceeded),
        cmocka_unit_test(a_time_budget_ends_the_run),
        cmocka_unit_test(a_time_budget_looks_ahead),
        cmocka_unit_test(progress_may_stop_the_run),
        cmocka_unit_test(reasons_are_reported),
        cmocka_unit_test(bad_input_is_refused_before_any_query),
        cmocka_unit_test(labels_do_not_serve_methods_that_need_more),
        cmocka_unit_test(rows_without_label_are_refused),
        cmocka_unit_test(rows_that_never_fit_are_refused),
        cmocka_unit_test(methods_are_listed),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("methods", tests, open_all, tune_teardown);
}
