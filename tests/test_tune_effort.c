/* test_tune_effort.c - budgets and settings by effort: the table is sound, runs keep to it, and
 * what is set by hand wins. */
#include "tiny_tune.h"

#include "base/alloc.h"
#include "posterior/posterior.h"
#include "tune/effort.h"
#include "tune/search_rows.h"

#include <math.h>

enum { TRAIN = 60, DEV = 10 };
static const long long MOST[KH_EFFORTS] = { 0, 3000, 20000, 120000 };

static int open_all(void **state) {
    return tune_setup(state, "effort", KH_ACCESS_WEIGHTS, TRAIN, DEV, 2);
}

static kh_tune_opts options(kh_effort effort) {
    kh_tune_opts o = kh_tune_defaults();
    o.effort = effort;
    o.space.p0 = KH_P0_RANDOM; /* the tiny vocabulary has no ids 1000, 1001, ... */
    o.uncalibrated = true;
    return o;
}

static void names_are_found(void **state) {
    (void)state;
    kh_effort e;
    for (int i = 0; i < KH_EFFORTS; i++) {
        assert_true(kh_effort_find(&e, kh_effort_name((kh_effort)i)));
        assert_int_equal(e, i);
    }
    assert_false(kh_effort_find(&e, "heroic"));
    assert_int_equal(kh_tune_defaults().effort, KH_EFFORT_NORMAL);
}

/* Every name and value of the table is one that the method's options take. */
static void the_table_fits_every_method(void **state) {
    (void)state;
    const kh_method *m;
    kh_err err;
    for (int i = 0; (m = kh_method_at(i)) != NULL; i++)
        for (int e = 0; e < KH_EFFORTS; e++) {
            void *opts = kh_calloc(1, m->opts_size + 1), *plain = kh_calloc(1, m->opts_size + 1);
            kh_tune_opts o = { .effort = (kh_effort)e };
            kh_opts_init(m->opts, opts);
            kh_opts_init(m->opts, plain);
            if (kh_effort_set((kh_effort)e, m, opts, &err) != 0 ||
                kh_effort_fill(&o, m, opts, 1000, &err) < 0)
                fail_msg("%s: %s", m->name, err.msg);
            assert_true(o.max_queries <= MOST[e] && o.space.dim > 0 && o.space.slots > 0);
            bool searches = (m->soft && !m->whole) || m->text || m->chooses;
            assert_int_equal(o.max_queries > 0, searches && e != KH_EFFORT_PAPER);
            if (e == KH_EFFORT_PAPER) {
                assert_memory_equal(opts, plain, m->opts_size);
                assert_true(o.space.dim == 500 && o.space.slots == 50 && o.search_rows == 0);
            }
            kh_opts_free(m->opts, opts);
            kh_opts_free(m->opts, plain);
            kh_free(opts);
            kh_free(plain);
        }
}

static void what_is_set_wins(void **state) {
    (void)state;
    const kh_method *m = &kh_method_bbt;
    static const struct {
        const char *name, *value;
        kh_tune_opts o;
        long long queries;
        int dim, slots, rows;
    } CASES[] = {
        { NULL, NULL, { .effort = KH_EFFORT_QUICK }, 3000, 25, 5, 32 },
        { "pop", "5", { .effort = KH_EFFORT_QUICK }, 3000, 25, 5, 32 },
        { "budget-generations", "9", { .effort = KH_EFFORT_QUICK }, 0, 25, 5, 32 },
        { NULL, NULL, { .effort = KH_EFFORT_QUICK, .max_seconds = 1 }, 0, 25, 5, 32 },
        { NULL, NULL, { .effort = KH_EFFORT_QUICK, .max_queries = 7 }, 7, 25, 5, 32 },
        { NULL, NULL, { .effort = KH_EFFORT_NORMAL, .space.dim = 3, .search_rows = -1 }, 20000, 3,
            5, -1 },
        { NULL, NULL, { .effort = KH_EFFORT_NORMAL, .space.slots = 2 }, 20000, 16, 2, 64 },
        { NULL, NULL, { .effort = KH_EFFORT_QUICK, .paper_exact = true }, 0, 500, 50, 0 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kh_tune_opts o = CASES[i].o;
        void *opts = kh_calloc(1, m->opts_size + 1);
        kh_opts_init(m->opts, opts);
        assert_int_equal(kh_effort_set(o.effort, m, opts, NULL), 0);
        if (CASES[i].name)
            assert_int_equal(
                kh_opts_set(kh_opts_find(m->opts, CASES[i].name, strlen(CASES[i].name)), opts,
                    CASES[i].value, NULL),
                0);
        int by_effort = kh_effort_fill(&o, m, opts, 8, NULL); /* slots of eight numbers */
        assert_int_equal(o.max_queries, CASES[i].queries);
        assert_int_equal(by_effort, CASES[i].queries >= 3000);
        assert_int_equal(o.space.dim, CASES[i].dim);
        assert_int_equal(o.space.slots, CASES[i].slots);
        assert_int_equal(o.search_rows, CASES[i].rows);
        kh_opts_free(m->opts, opts);
        kh_free(opts);
    }
}

/* Searches with nothing but an effort end by themselves, within its budget and with its sizes. */
static void runs_keep_to_it(void **state) {
    (void)state;
    static const char *const METHODS[] = { "bbt", "ensemble", "elbo", "abc-rejection", "abc-smc",
        "smc", "snpe" };
    for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++) {
        kh_tune_opts o = options(KH_EFFORT_QUICK);
        kh_posterior *p = tune_with(METHODS[i], NULL, &o);
        long long asked = p->train_queries + p->dev_queries;
        if (asked > 3000 || asked < 500)
            fail_msg("%s asked %lld questions", METHODS[i], asked);
        if (p->soft)
            assert_true(p->space.dim == 25 && p->space.slots == 5);
        kh_posterior_free(p);
    }
}

/* A budget that the caller set is refused where it is too small; the effort's is raised. */
static void a_generation_is_always_paid(void **state) {
    (void)state;
    kh_dataset *many = tiny_rows(3500, 5, -1), *few = dev;
    kh_tune_opts o = options(KH_EFFORT_QUICK);
    dev = many;
    kh_posterior *p = tune_with("bbt", SET("dev-every=1000"), &o), *none;
    kh_err err;
    assert_true(p->train_queries > 0);
    kh_posterior_free(p);
    o.max_queries = 3000;
    assert_int_equal(kh_tune(&none, "bbt", NULL, plm, task, train, dev, &o, &err), KH_EARG);
    assert_non_null(strstr(err.msg, "a budget of 3000 queries is too small"));
    dev = few;
    kh_dataset_close(many);
}

/* ----------------------------------------------------------------------------- rows of a search */

static void rows_of_each_class(void **state) {
    (void)state;
    enum { N = 10 };
    static const int LABEL[N] = { 0, 0, 0, 0, 0, 0, 1, 0, 1, 1 };
    static const struct {
        int most, n, row[N];
    } CASES[] = {
        { 4, 4, { 0, 1, 6, 8 } }, { 5, 5, { 0, 1, 2, 6, 8 } },
        { 8, 8, { 0, 1, 2, 3, 4, 6, 8, 9 } }, /* class 1 has no more than three */
        { 0, 0, { 0 } }, { -1, 0, { 0 } }, { N, 0, { 0 } },
        { 1, 0, { 0 } }, /* not one of each class */
    };
    kh_row row[N] = { 0 };
    for (int i = 0; i < N; i++)
        row[i].label = LABEL[i];
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++) {
        kh_tune_opts o = { .search_rows = CASES[c].most };
        kh_tuning t = { .task = task, .train_row = row, .n_train = N, .o = &o };
        kh_row *part;
        assert_int_equal(kh_search_rows(&t, &part, NULL), 0);
        assert_int_equal(part != NULL, CASES[c].n > 0);
        assert_int_equal(t.n_search, CASES[c].n);
        for (int i = 0; i < CASES[c].n; i++) {
            assert_int_equal(t.search_row[i], CASES[c].row[i]);
            assert_int_equal(part[i].label, LABEL[CASES[c].row[i]]);
        }
        kh_free(part);
        kh_free(t.search_row);
    }
}

static void a_search_asks_about_them_alone(void **state) {
    (void)state;
    kh_tune_opts o = options(KH_EFFORT_QUICK);
    o.search_rows = 6;
    kh_posterior *p = tune_with("bbt", SET("budget-generations=2", "pop=4", "race=0"), &o);
    assert_int_equal(p->train_rows, 6);
    assert_int_equal(p->train_queries, 2 * 4 * 6);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------------ ensembles */

static void members_have_equal_shares(void **state) {
    (void)state;
    kh_posterior *side[2];
    for (int i = 0; i < 2; i++) {
        kh_tune_opts o = options(KH_EFFORT_NORMAL);
        o.search_rows = 10;
        o.max_queries = 4 * 3 * (5 * 10 + DEV); /* three generations for each of four */
        o.groups = i == 0 ? 1 : 3;
        side[i] = tune_with("ensemble", SET("members=4", "pop=5", "dev-every=1", "race=0"), &o);
        assert_int_equal(side[i]->n, 4);
        assert_int_equal(side[i]->train_queries, 4 * 3 * 5 * 10);
        assert_non_null(strstr(side[i]->stopped, "4 members have had their share"));
    }
    assert_memory_equal(side[0]->z, side[1]->z,
        (size_t)side[0]->n * (size_t)side[0]->space.dim * sizeof *side[0]->z);
    kh_posterior_free(side[0]);
    kh_posterior_free(side[1]);
    kh_tune_opts o = options(KH_EFFORT_NORMAL); /* two generations for all of them: two members */
    o.search_rows = 10;
    o.max_queries = 2 * (5 * 10 + DEV);
    kh_posterior *p = tune_with("ensemble", SET("members=4", "pop=5"), &o);
    assert_int_equal(p->n, 2);
    kh_posterior_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(the_table_fits_every_method),
        cmocka_unit_test(what_is_set_wins),
        cmocka_unit_test(runs_keep_to_it),
        cmocka_unit_test(a_generation_is_always_paid),
        cmocka_unit_test(rows_of_each_class),
        cmocka_unit_test(a_search_asks_about_them_alone),
        cmocka_unit_test(members_have_equal_shares),
    };
    return cmocka_run_group_tests_name("effort", tests, open_all, tune_teardown);
}
