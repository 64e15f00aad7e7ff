/* test_reproduce.c - the plan of the paper's experiments, what is published, receipts,
 * and the tables made of them. */
#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "reproduce/claims.h"
#include "reproduce/findings.h"
#include "reproduce/reproduction.h"
#include "run/journal.h"
#include "tune/effort.h"

#include <math.h>
#include <sys/stat.h>

static char root[96];

static int setup(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/keyhole-test-repro-%ld", (long)getpid());
    static const char *const DIRS[] = { "", "/data", "/data/sst2", "/data/agnews", "/data/rte",
        "/data/imdb", "/runs" };
    for (size_t i = 0; i < sizeof DIRS / sizeof DIRS[0]; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s%s", root, DIRS[i]);
        mkdir(path, 0755);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static const char *data_dir(void) {
    static char path[128];
    snprintf(path, sizeof path, "%s/data", root);
    return path;
}

static const char *runs_dir(void) {
    static char path[128];
    snprintf(path, sizeof path, "%s/runs", root);
    return path;
}

static kh_repro_plan make(kh_repro_plan_opts o) {
    kh_repro_plan a;
    kh_err err;
    o.data = data_dir();
    if (kh_repro_plan_make(&a, &o, &err) != 0)
        fail_msg("%s", err.msg);
    return a;
}

static int count(const kh_repro_plan *a, const char *variant, const char *task) {
    int n = 0;
    for (int i = 0; i < a->n; i++)
        n += (!variant || strcmp(a->run[i].variant->name, variant) == 0) &&
            (!task || strcmp(a->run[i].on->task, task) == 0);
    return n;
}

/* ---------------------------------------------------------------------------------------- plan */

static void every_variant_has_options_that_fit(void **state) {
    (void)state;
    for (int i = 0; kh_variant_at(i); i++)
        for (int preset = 0; preset < 3; preset++) {
            const kh_method *m;
            void *opts;
            kh_err err = { 0 };
            if (kh_method_find(&m, kh_variant_at(i)->method, NULL) != 0)
                continue;
            if (kh_repro_plan_options(&opts, &m, kh_variant_at(i), (kh_preset)preset, 0, &err) != 0)
                fail_msg("%s: %s", kh_variant_at(i)->name, err.msg);
            kh_repro_plan_options_free(opts, m);
        }
}

static void names_of_variants_differ(void **state) {
    (void)state;
    for (int i = 0; kh_variant_at(i); i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(kh_variant_at(i)->name, kh_variant_at(k)->name);
}

static void runs_are_shared_between_tables(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1, .shots = -1 });
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(a.run[i].name, a.run[k].name);
    assert_int_equal(count(&a, "smc", "sst2"), 3);
    assert_int_equal(count(&a, "smc-300", "agnews"), 3);
    assert_true(a.tables == KH_TABLE_ALL);
    kh_repro_plan_free(&a);
}

static void the_paper_judges_on_all_rows_and_both_pairs(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){
        .rows = -1, .shots = -1, .tasks = "sst2", .methods = "bbt", .seeds = "7" });
    assert_int_equal(a.n, 1);
    assert_string_equal(a.run[0].name, "sst2-bbt-7");
    assert_int_equal(a.run[0].rows, 0);
    assert_int_equal(a.run[0].n_ood, 2);
    assert_non_null(strstr(a.run[0].ood[1], "imdb="));
    kh_repro_plan_free(&a);
}

static void fast_is_smaller(void **state) {
    (void)state;
    kh_repro_plan a =
        make((kh_repro_plan_opts){ .rows = -1, .shots = -1, .preset = KH_PRESET_FAST });
    assert_int_equal(count(&a, "smc-300", NULL), 0);
    assert_int_equal(count(&a, "smc-soft", "sst2"), 3);
    assert_int_equal(count(&a, "smc-soft", "agnews"), 0);
    assert_int_equal(count(&a, "abc-smc-importance", "agnews"), 3);
    assert_int_equal(a.run[0].rows, 48);
    assert_int_equal(a.run[0].n_ood, 1);
    kh_repro_plan_free(&a);
}

static void standard_lies_between(void **state) {
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s/yelp", data_dir());
    mkdir(path, 0755);
    kh_repro_plan a =
        make((kh_repro_plan_opts){ .rows = -1, .shots = -1, .preset = KH_PRESET_STANDARD });
    assert_int_equal(count(&a, "smc-300", NULL), 0);
    assert_int_equal(count(&a, "smc-100", "sst2"), 3);
    assert_int_equal(count(&a, "smc", "yelp"), 3);
    assert_int_equal(count(&a, "smc-100", "yelp"), 0); /* long rows */
    assert_int_equal(count(&a, "smc-100", "agnews"), 3);
    assert_int_equal(count(&a, "smc-100", "rte"), 0);
    assert_int_equal(count(&a, "abc-smc-importance", "agnews"), 3);
    for (int i = 0; i < a.n; i++) {
        const kh_planned *r = &a.run[i];
        bool film = strcmp(r->on->task, "sst2") == 0 || strcmp(r->on->task, "yelp") == 0;
        assert_int_equal(r->rows, 300);
        assert_int_equal(r->n_ood, film && (r->tables & KH_TABLE_OOD) ? 2 : 0);
        assert_true(kh_variant_queries(r->variant, KH_PRESET_STANDARD, 64) <= 20000);
        if (r->variant->family == KH_METHODS_LOGITS && !r->variant->own)
            assert_true(kh_variant_queries(r->variant, KH_PRESET_STANDARD, 64) == 20000);
    }
    rmdir(path);
    kh_repro_plan_free(&a);
}

/* Rows that show what tune does have tune's options, space and net, and no budget of the plan. */
static void rows_of_tune_are_as_tune_has_them(void **state) {
    (void)state;
    static const kh_effort EFFORT[] = { KH_EFFORT_NORMAL, KH_EFFORT_QUICK, KH_EFFORT_NORMAL };
    int checked = 0;
    for (int i = 0; kh_variant_at(i); i++)
        for (int preset = 0; preset < 3; preset++) {
            const kh_variant *v = kh_variant_at(i);
            assert_int_equal(
                kh_variant_effort(v, (kh_preset)preset), v->own ? EFFORT[preset] : KH_EFFORT_PAPER);
            if (!v->own)
                continue;
            const kh_method *m;
            void *opts;
            assert_int_equal(kh_repro_plan_options(&opts, &m, v, (kh_preset)preset, 64, NULL), 0);
            void *like = kh_calloc(1, m->opts_size + 1);
            kh_opts_init(m->opts, like);
            assert_int_equal(kh_effort_set(EFFORT[preset], m, like, NULL), 0);
            kh_buf a = kh_buf_init(1 << 12), b = kh_buf_init(1 << 12);
            for (const kh_opt *o = m->opts; o && o->name; o++) {
                kh_opts_value(o, opts, &a);
                kh_opts_value(o, like, &b);
            }
            assert_int_equal(a.len, b.len);
            if (a.len > 0)
                assert_memory_equal(a.data, b.data, a.len);
            assert_true(kh_variant_queries(v, (kh_preset)preset, 64) == 0);
            kh_buf_free(&a);
            kh_buf_free(&b);
            kh_opts_free(m->opts, like);
            kh_free(like);
            kh_repro_plan_options_free(opts, m);
            checked++;
        }
    assert_true(checked >= 12);
}

static void rows_of_tune_are_on_all_tasks(void **state) {
    (void)state;
    static const int AGNEWS[] = { 3, 0, 3 };
    for (int preset = 0; preset < 3; preset++) {
        kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
            .shots = -1,
            .preset = (kh_preset)preset,
            .tables = "defaults",
            .methods = "bbt,tune-bbt" });
        assert_int_equal(count(&a, "tune-bbt", "sst2"), 3);
        assert_int_equal(count(&a, "tune-bbt", "agnews"), AGNEWS[preset]);
        assert_int_equal(count(&a, "bbt", "sst2"), 3); /* beside them */
        kh_buf terms = kh_buf_init(1 << 12);
        kh_planned_terms(&a.run[1], a.o.preset, "model=m", &terms);
        assert_non_null(strstr(terms.data, preset == 1 ? " effort=quick" : " effort=normal"));
        kh_buf_free(&terms);
        kh_repro_plan_free(&a);
    }
}

/* What a stopped grid has: the main tables of the first seed on all tasks, then the rest of it. */
static void the_first_seed_comes_first(void **state) {
    (void)state;
    for (int preset = 0; preset < 3; preset++) {
        kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
            .shots = -1,
            .preset = (kh_preset)preset,
            .seeds = "7,5",
            .methods = "smc-10,manual,smc" });
        static const char *const ORDER[] = { "sst2-manual-7", "sst2-smc-7", "agnews-manual-7",
            "agnews-smc-7", "rte-manual-7", "rte-smc-7", "sst2-smc-10-7" };
        for (int i = 0; i < 7; i++)
            assert_string_equal(a.run[i].name, ORDER[i]);
        assert_true(a.n % 2 == 0);
        assert_string_equal(a.run[a.n / 2].name, "sst2-manual-5");
        kh_repro_plan_free(&a);
    }
}

static int option_of(const char *variant, const char *name, int train_rows) {
    const kh_method *m;
    void *opts;
    int i = 0;
    while (strcmp(kh_variant_at(i)->name, variant) != 0)
        i++;
    assert_int_equal(
        kh_repro_plan_options(&opts, &m, kh_variant_at(i), KH_PRESET_STANDARD, train_rows, NULL),
        0);
    const kh_opt *row = kh_opts_find(m->opts, name, strlen(name));
    int value = *(const int *)(const void *)((const char *)opts + row->offset);
    kh_repro_plan_options_free(opts, m);
    return value;
}

/* members x generations x population x rows, and what is asked about dev, must fit the budget, or
 * the last members would be left out. */
static void standard_budgets_fit_every_number_of_rows(void **state) {
    (void)state;
    static const int ROWS[] = { 28, 32, 48, 56, 64 };
    for (size_t i = 0; i < 5; i++) {
        int rows = ROWS[i];
        int generations = option_of("ensemble", "budget-generations", rows),
            members = option_of("ensemble", "members", rows);
        int looks = generations / option_of("ensemble", "dev-every", rows) + 1;
        assert_true(
            members * (generations * option_of("ensemble", "pop", rows) + looks) * rows <= 20000);
        assert_true(generations >= 3);
        assert_true(
            option_of("bbt", "budget-generations", rows) * option_of("bbt", "pop", rows) * rows <=
            20000);
        assert_true(option_of("elbo", "budget-generations", rows) * option_of("elbo", "pop", rows) *
                option_of("elbo", "draws", rows) * rows <=
            20000);
        assert_true(option_of("snpe", "budget-rounds", rows) *
                option_of("snpe", "simulations", rows) * rows <=
            20000);
    }
}

static void fast_takes_fewer_rows_of_many_classes(void **state) {
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s/dbpedia", data_dir());
    mkdir(path, 0755);
    static const int AGNEWS[] = { 16, 8, 16 }, DBPEDIA[] = { 16, 2, 4 };
    for (int preset = 0; preset < 3; preset++) {
        kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
            .shots = -1,
            .preset = (kh_preset)preset,
            .tasks = "agnews,dbpedia",
            .methods = "bbt" });
        assert_int_equal(a.run[0].shots, AGNEWS[preset]);
        assert_int_equal(a.run[a.n - 1].shots, DBPEDIA[preset]);
        kh_repro_plan_free(&a);
        a = make((kh_repro_plan_opts){ .rows = -1,
            .shots = 8,
            .preset = (kh_preset)preset,
            .tasks = "dbpedia",
            .methods = "bbt" });
        assert_int_equal(a.run[0].shots, 8);
        kh_repro_plan_free(&a);
    }
    rmdir(path);
}

static void without_table_4_nothing_is_judged_against(void **state) {
    (void)state;
    kh_repro_plan a =
        make((kh_repro_plan_opts){ .rows = -1, .shots = -1, .tables = "1,2", .tasks = "sst2" });
    assert_int_equal(a.run[0].n_ood, 0);
    assert_int_equal(count(&a, "smc-soft", NULL), 0);
    kh_repro_plan_free(&a);
}

static void what_is_missing_is_said_once(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1, .shots = -1 });
    int yelp = 0;
    for (int i = 0; i < a.n_missing; i++)
        yelp += strncmp(a.missing[i], "yelp: there is no folder ", 25) == 0;
    assert_int_equal(yelp, 1);
    kh_repro_plan_free(&a);
}

static void every_allocation_of_a_plan_may_fail(void **state) {
    (void)state;
    kh_repro_plan a;
    kh_repro_plan_opts o = {
        .data = data_dir(), .rows = -1, .shots = -1, .tasks = "sst2,yelp", .seeds = "1,2"
    };
    int rc = -1;
    for (long n = 1; rc != 0; n++) {
        assert_true(n < 100000);
        kh_alloc_fail_at(n, false);
        rc = kh_repro_plan_make(&a, &o, NULL);
        kh_alloc_fail_at(0, false);
        kh_repro_plan_free(&a);
    }
}

/* ---------------------------------------------------------------------------- receipts, tables */

static const char RESULTS[] = "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{\"method\":"
                              "\"bbt\",\"seed\":1,\"options\":{}},\"model\":{\"path\":"
                              "\"m\"},"
                              "\"task\":{\"name\":\"sst2\"},\"eval\":{\"rows\":4},\"metrics\":{"
                              "\"accuracy\":{\"value\":%g},\"f1\":{\"value\":0.1},"
                              "\"ece\":{\"value\":%g}},\"ood\":[]}";

static void leave_run(const kh_repro_plan *a, int i, double accuracy, double ece) {
    char dir[256], text[1024];
    kh_buf terms = kh_buf_init(1 << 16);
    snprintf(dir, sizeof dir, "%s/%s", runs_dir(), a->run[i].name);
    mkdir(dir, 0755);
    char *results = kh_path_join(dir, "results.json"),
         *answers = kh_path_join(dir, "answers.jsonl");
    int n = snprintf(text, sizeof text, RESULTS, accuracy, ece);
    assert_int_equal(kh_file_write(results, text, (size_t)n, NULL), 0);
    /* Rows that have this accuracy and this ECE: the confidence is as far from the accuracy. */
    kh_buf rows = kh_buf_init(1 << 16);
    for (int row = 0; row < 200; row++) {
        int label = row % 2, said = row < 200 * accuracy ? label : 1 - label;
        double p = said ? accuracy + ece : 1 - accuracy - ece;
        kh_buf_printf(&rows, "{\"probs\":[%g,%g],\"label\":%d}\n", 1 - p, p, label);
    }
    assert_int_equal(kh_file_write(answers, rows.data, rows.len, NULL), 0);
    kh_buf_free(&rows);
    kh_planned_terms(&a->run[i], a->o.preset, "model=m", &terms);
    kh_manifest r = { .terms = terms.data,
        .queries = 100,
        .tokens = 1000,
        .eval_queries = 10,
        .seconds = 2,
        .eval_seconds = 1 };
    assert_int_equal(kh_manifest_write(&r, dir, NULL), 0);
    kh_buf_free(&terms);
    kh_free(results);
    kh_free(answers);
}

static kh_repro_plan small_plan(void) {
    return make((kh_repro_plan_opts){ .rows = -1,
        .shots = -1,
        .tasks = "sst2",
        .methods = "bbt,ensemble",
        .seeds = "1,2",
        .tables = "1,2" });
}

static void manifests_come_back(void **state) {
    (void)state;
    kh_repro_plan a = small_plan();
    kh_manifest r;
    assert_true(
        kh_planned_state(&a.run[0], a.o.preset, "model=m", runs_dir(), &r) == KH_STATE_OPEN);
    kh_manifest_free(&r);
    leave_run(&a, 0, 0.8, 0.1);
    assert_true(
        kh_planned_state(&a.run[0], a.o.preset, "model=m", runs_dir(), &r) == KH_STATE_DONE);
    assert_int_equal(r.tokens, 1000);
    kh_manifest_free(&r);
    assert_true(
        kh_planned_state(&a.run[0], a.o.preset, "model=n", runs_dir(), &r) == KH_STATE_OPEN);
    kh_manifest_free(&r);
    a.run[0].rows = 5;
    assert_true(
        kh_planned_state(&a.run[0], a.o.preset, "model=m", runs_dir(), &r) == KH_STATE_TUNED);
    kh_manifest_free(&r);
    kh_repro_plan_free(&a);
}

static void a_receipt_that_is_none_is_refused(void **state) {
    (void)state;
    kh_manifest r;
    kh_err err;
    char *path = kh_path_join(root, KH_MANIFEST_NAME);
    assert_int_equal(kh_manifest_read(&r, root, &err), KH_EMISSING);
    assert_says(&err, "not there: the run is not done");
    static const char WRONG[] = "{\"terms\":\"x\",\"queries\":-1}";
    assert_int_equal(kh_file_write(path, WRONG, sizeof WRONG - 1, NULL), 0);
    assert_int_equal(kh_manifest_read(&r, root, &err), KH_EFORMAT);
    assert_says(&err, "\"queries\" is -1, expected a count");
    kh_manifest_free(&r);
    unlink(path);
    kh_free(path);
}

static int run_at(const kh_repro_plan *a, const char *variant, uint64_t seed) {
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->run[i].variant->name, variant) == 0 && (!seed || a->run[i].seed == seed))
            return i;
    fail_msg("no run of %s", variant);
    return -1;
}

static void put_page(const kh_repro_plan *a, kh_grid_format format, kh_buf *page) {
    kh_published p;
    kh_reproduction r;
    kh_err err = { 0 };
    assert_int_equal(kh_published_init(&p, NULL), 0);
    if (kh_reproduction_open(&r, a, &p, runs_dir(), "m", "model=m", &err) != 0 ||
        kh_reproduction_put(&r, format, page, &err) != 0)
        fail_msg("%s", err.msg);
    kh_reproduction_free(&r);
    kh_published_free(&p);
}

static void tables_hold_means_and_deviations(void **state) {
    (void)state;
    kh_repro_plan a = small_plan();
    leave_run(&a, run_at(&a, "bbt", 1), 0.8, 0.1);
    leave_run(&a, run_at(&a, "bbt", 2), 0.9, 0.3);
    leave_run(&a, run_at(&a, "ensemble", 1), 0.7, 0.05);
    kh_buf page = kh_buf_init(KH_BUF_MAX);
    put_page(&a, KH_GRID_MARKDOWN, &page);
    assert_non_null(strstr(page.data, "| BBT | **85.0 ± 7.1 (86.9 · 74.8)** | **85.0 (72.9)** |"));
    assert_non_null(strstr(page.data, "| Ensembles | 70.0 (88.6 · 80.0) | 70.0 (74.4) |"));
    assert_non_null(
        strstr(page.data, "| Ensembles | **0.050 (0.058 · 0.045)** | **0.050 (0.067)** |"));
    assert_non_null(strstr(page.data, "| ensemble - bbt | sst2 |"));
    assert_non_null(strstr(page.data, "| sst2-ensemble-2 | not done yet"));
    assert_non_null(strstr(page.data, "| BBT | 2 | 100 | 1000 | 2.0 | 10 | 1.0 |"));
    assert_non_null(strstr(page.data, "3 of 4 runs are done"));
    kh_buf_free(&page);
    page = kh_buf_init(KH_BUF_MAX);
    put_page(&a, KH_GRID_HTML, &page);
    assert_non_null(strstr(page.data, "<strong>85.0 ± 7.1</strong><small>86.9 · 74.8</small>"));
    kh_buf_free(&page);
    kh_repro_plan_free(&a);
}

static int place_of(const kh_buf *page, const char *text) {
    const char *at = strstr(page->data, text);
    if (!at)
        fail_msg("the page lacks \"%s\"", text);
    return (int)(at - page->data);
}

static void what_disagrees_comes_first(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
        .shots = -1,
        .tasks = "sst2",
        .methods = "bbt,ensemble,elbo,abc-smc,abc-smc-importance",
        .seeds = "5" });
    static const double SCORE[] = { 0.8, 0.7, 0.75, 0.6, 0.55 },
                        ECE[] = { 0.1, 0.2, 0.05, 0.3, 0.3 };
    assert_int_equal(a.n, 5);
    for (int i = 0; i < 5; i++)
        leave_run(&a, i, SCORE[i], ECE[i]);
    kh_buf page = kh_buf_init(KH_BUF_MAX);
    put_page(&a, KH_GRID_MARKDOWN, &page);
    assert_true(place_of(&page, "## The six questions") <
        place_of(&page, "## What the paper found and we do not"));
    place_of(&page,
        "| 1. Do ensembles beat BBT in accuracy, and does ELBO improve ECE? (the paper: both, in "
        "Tables 1 and 2) | no |");
    place_of(&page, "(the paper: they are, and are recommended) | cannot tell |");
    int first = place_of(&page, "## What the paper found and we do not"),
        others = place_of(&page, "## The other questions");
    assert_true(first < place_of(&page, "### 1. Do ensembles beat BBT") &&
        place_of(&page, "### 1. Do ensembles") < others);
    assert_true(others < place_of(&page, "### 3. Are uniform weights"));
    assert_true(others < place_of(&page, "### 5. Does smc with early rejection need") &&
        others < place_of(&page, "## Table 1"));
    place_of(&page,
        "Not so here. Over 1 task: accuracy of Ensembles 70.0 against 80.0 of BBT; ECE of "
        "ELBO 0.050 against 0.100 of BBT");
    place_of(&page,
        "Here it cannot be told. Over 1 task: uniform weights accuracy 60.0 and ECE 0.300, "
        "importance weights 55.0 and 0.300.");
    place_of(&page,
        "The paper does not ask this. No task has runs of both with a record of dev accuracy.");
    place_of(&page, "Here it cannot be told. There are no runs of it.");
    kh_buf_free(&page);
    kh_repro_plan_free(&a);
    a = make((kh_repro_plan_opts){
        .rows = -1, .shots = -1, .tasks = "sst2", .methods = "bbt,ensemble,elbo", .seeds = "6" });
    for (int i = 0; i < 3; i++)
        leave_run(&a, i, 0.5 + 0.1 * i, 0.3 - 0.1 * i);
    page = kh_buf_init(KH_BUF_MAX);
    put_page(&a, KH_GRID_HTML, &page);
    place_of(&page, "None of the questions below was answered otherwise than in the paper.");
    kh_buf_free(&page);
    kh_repro_plan_free(&a);
}

static int run_of(const kh_repro_plan *a, const char *variant) { return run_at(a, variant, 0); }

/* A run that was judged against mrpc, too, with the same AUROC but for a hundredth by entropy. */
static void leave_judged_run(
    const kh_repro_plan *a, int i, double accuracy, double ece, double auroc) {
    char path[300], text[1024];
    leave_run(a, i, accuracy, ece);
    int n = snprintf(text, sizeof text,
        "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{\"method\":\"m\",\"seed\":1,"
        "\"options\":{}},"
        "\"model\":{\"path\":\"m\"},\"task\":{\"name\":\"snli\"},\"eval\":{\"rows\":4},\"metrics\":"
        "{\"accuracy\":{\"value\":%g},"
        "\"f1\":{\"value\":0.1},\"ece\":{\"value\":%g},\"nll\":{\"value\":%g}},\"ood\":[{\"name\":"
        "\"mrpc\","
        "\"maxp\":{\"auroc\":{\"value\":%g}},\"entropy\":{\"auroc\":{\"value\":%g}}}]}",
        accuracy, ece, 2 * ece, auroc, auroc + 0.01);
    snprintf(path, sizeof path, "%s/%s/results.json", runs_dir(), a->run[i].name);
    assert_int_equal(kh_file_write(path, text, (size_t)n, NULL), 0);
}

/* Its journal, with these lines about dev accuracy. */
static void leave_lines(const kh_repro_plan *a, int i, const char *const *line) {
    char path[300], sql[256];
    kh_journal j;
    snprintf(path, sizeof path, "%s/%s", runs_dir(), a->run[i].name);
    assert_int_equal(kh_journal_open(&j, path, true, NULL), 0);
    for (int n = 0; line[n]; n++) {
        snprintf(sql, sizeof sql,
            "INSERT INTO generations (n, line, facts) VALUES (%d, '%s', '{}')", n, line[n]);
        assert_int_equal(kh_journal_exec(&j, sql, NULL), 0);
    }
    kh_journal_close(&j);
}

static void every_question_is_answered(void **state) {
    (void)state;
    char folder[2][160];
    static const char *const TASKS[] = { "snli", "mrpc" };
    for (int i = 0; i < 2; i++) {
        snprintf(folder[i], sizeof folder[i], "%s/%s", data_dir(), TASKS[i]);
        assert_int_equal(mkdir(folder[i], 0755), 0);
    }
    static const struct {
        const char *variant;
        double accuracy, ece;
    } ALL[] = { { "bbt", 0.7, 0.2 }, { "ensemble", 0.8, 0.1 }, { "elbo", 0.75, 0.05 },
        { "abc-smc", 0.5, 0.3 }, { "snpe", 0.6, 0.25 }, { "smc", 0.65, 0.15 },
        { "abc-smc-importance", 0.55, 0.3 }, { "abc-smc-votes", 0.5, 0.2 },
        { "smc-raw", 0.65, 0.22 }, { "smc-soft", 0.66, 0.12 }, { "smc-10", 0.6, 0.3 },
        { "smc-30", 0.6, 0.25 }, { "smc-100", 0.6, 0.2 }, { "smc-watched", 0.6, 0.2 } };
    kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
        .shots = -1,
        .tasks = "snli",
        .methods = "bbt,ensemble,elbo,abc-smc,snpe,smc,abc-smc-importance,abc-smc-votes,smc-raw,"
                   "smc-soft,smc-10,smc-30,smc-100,"
                   "smc-watched",
        .seeds = "7" });
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++)
        leave_judged_run(
            &a, run_of(&a, ALL[i].variant), ALL[i].accuracy, ALL[i].ece, 0.5 + 0.01 * (double)i);
    static const char *const SLOW[] = { "gen=1 queries=100 dev=0.25", "gen=2 queries=300 dev=0.5",
        "gen=3 queries=900 dev=-", NULL };
    static const char *const QUICK[] = { "gen=1 queries=150 dev=0.75", "gen=2", NULL };
    leave_lines(&a, run_of(&a, "abc-smc"), SLOW);
    leave_lines(&a, run_of(&a, "smc-watched"), QUICK);
    kh_buf page = kh_buf_init(KH_BUF_MAX);
    put_page(&a, KH_GRID_MARKDOWN, &page);
    place_of(&page,
        "Here it cannot be told. Over 1 task: uniform weights accuracy 50.0 and ECE 0.300, "
        "importance weights 55.0 and 0.300. 0 of 1 run "
        "with importance weights came to a second generation, the first that has any.");
    kh_buf_reset(&page);
    leave_lines(&a, run_of(&a, "abc-smc-importance"), SLOW);
    put_page(&a, KH_GRID_MARKDOWN, &page);
    place_of(&page,
        "So it is here. Over 1 task: accuracy of Ensembles 80.0 against 70.0 of BBT; ECE of ELBO "
        "0.050 against 0.200 of BBT and 0.100 of Ensembles. Ensembles - BBT (accuracy +10.0, ");
    place_of(&page,
        "So it is here. Over 1 task the best with logits has accuracy 80.0 (ensemble) and ECE "
        "0.050 (elbo), the paper's best with "
        "labels only 60.0 (snpe) and 0.250 (snpe), smc 65.0 and 0.150.");
    place_of(&page,
        " What wins it back, on 1 task, accuracy and ECE: abc-smc 50.0 and 0.300, with calibrated "
        "votes 50.0 and 0.200, smc with "
        "plain votes 65.0 and 0.220, smc with calibrated votes 65.0 and 0.150, smc with soft "
        "acceptance 66.0 and 0.120.");
    place_of(&page,
        "Not so here. Over 1 task: uniform weights accuracy 50.0 and ECE 0.300, importance weights "
        "55.0 and 0.300. 1 of 1 run");
    place_of(&page,
        "10 samples: ECE 0.300, NLL 0.600; 30 samples: ECE 0.250, NLL 0.500; 100 samples: ECE "
        "0.200, NLL 0.400. The most against the fewest (accuracy +0.0, +0.0 to +0.0; ECE -0.100");
    place_of(&page,
        "In 1 pair of runs, to the best dev accuracy that both reach (0.500 on average): smc, "
        "which asks dev after every level, 150 queries on "
        "average, abc-smc 300 (2.00 times as many); smc is first in 1.");
    place_of(&page, "(the paper: does not ask this) | cannot tell |"); /* one pair is no interval */
    place_of(&page, "(the paper: both, in Tables 1 and 2) | yes |");
    place_of(&page,
        "AUROC by entropy less that by MaxP, on pairs of tasks with more than two classes: bbt "
        "+0.010 (one run), ensemble +0.010 (one run)");
    place_of(&page, "Entropy is better for 0 of 14 and worse for 0."); /* one run tells nothing */
    place_of(&page, "(the paper: it does) | cannot tell |");
    kh_buf_free(&page);
    kh_repro_plan_free(&a);
    rmdir(folder[0]);
    rmdir(folder[1]);
}

/* smc asks dev at its end only: that it was not first by then says nothing about before. */
static void what_was_not_watched_cannot_be_late(void **state) {
    (void)state;
    static const char *const EARLY[] = { "gen=1 queries=100 dev=0.5", NULL },
                             *const LATE[] = { "gen=1 queries=900 dev=0.5", NULL };
    static const char *const SMC[] = { "smc", "smc-watched" },
                             *const ANSWER[] = { "| cannot tell |", "| no |" };
    for (int w = 0; w < 2; w++) { /* by other seeds, whose journals are empty */
        char methods[32];
        snprintf(methods, sizeof methods, "abc-smc,%s", SMC[w]);
        kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
            .shots = -1,
            .tasks = "sst2",
            .methods = methods,
            .seeds = w ? "74,75,76" : "71,72,73" });
        for (int i = 0; i < a.n; i++) {
            leave_run(&a, i, 0.6, 0.1);
            leave_lines(&a, i, strcmp(a.run[i].variant->name, "abc-smc") == 0 ? EARLY : LATE);
        }
        kh_buf page = kh_buf_init(KH_BUF_MAX);
        put_page(&a, KH_GRID_MARKDOWN, &page);
        char row[96];
        snprintf(row, sizeof row, "(the paper: does not ask this) %s", ANSWER[w]);
        place_of(&page, row);
        if (w == 0)
            place_of(&page, "But smc may have been there long before it asked.");
        kh_buf_free(&page);
        kh_repro_plan_free(&a);
    }
}

static void every_allocation_of_the_tables_may_fail(void **state) {
    (void)state;
    kh_repro_plan a = small_plan();
    for (int i = 0; i < 4; i++)
        leave_run(&a, i, 0.5 + 0.1 * i, 0.1);
    int rc = -1;
    for (long n = 1; rc != 0; n += 1 + n / 40) {
        kh_published p = { 0 };
        kh_reproduction r = { 0 };
        kh_buf page = kh_buf_init(KH_BUF_MAX);
        assert_true(n < 1000000);
        kh_alloc_fail_at(n, false);
        rc = kh_published_init(&p, NULL);
        if (rc == 0) {
            rc = kh_reproduction_open(&r, &a, &p, runs_dir(), "m", "model=m", NULL);
            r.n_resample = 3;
            if (rc == 0)
                rc = kh_reproduction_put(&r, KH_GRID_MARKDOWN, &page, NULL);
            kh_reproduction_free(&r);
        }
        if (rc == 0 && kh_alloc_count() >= n)
            rc = -1; /* the failure was survived: a run counted as not done */
        kh_alloc_fail_at(0, false);
        kh_published_free(&p);
        kh_buf_free(&page);
    }
    kh_repro_plan_free(&a);
}

/* Another model by the same plan: its numbers in the cells, its answers beside. */
static void backbones_stand_in_one_cell(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){ .rows = -1,
        .shots = -1,
        .tasks = "sst2",
        .methods = "bbt,ensemble,elbo",
        .seeds = "8",
        .tables = "1,2" });
    kh_published p;
    kh_reproduction r, other;
    kh_backbone b;
    kh_err err = { 0 };
    for (int i = 0; i < 3; i++)
        leave_run(&a, i, 0.5 + 0.1 * i, 0.3 - 0.1 * i);
    assert_int_equal(kh_backbone_read(&b, root, &err), KH_EMISSING);
    assert_says(&err, "--beside takes the --out of another");
    assert_int_equal(kh_backbone_write(root, "there/minilm", "model=m", NULL), 0);
    assert_int_equal(kh_backbone_read(&b, root, NULL), 0);
    assert_string_equal(b.common, "model=m");
    assert_int_equal(kh_published_init(&p, NULL), 0);
    assert_int_equal(
        kh_reproduction_open(&r, &a, &p, runs_dir(), "here/ours", "model=other", NULL), 0);
    assert_int_equal(kh_reproduction_open(&other, &a, &p, runs_dir(), b.model, b.common, NULL), 0);
    const kh_reproduction *beside[] = { &other };
    r.beside = beside;
    r.n_beside = 1;
    kh_buf page = kh_buf_init(KH_BUF_MAX);
    assert_int_equal(kh_reproduction_put(&r, KH_GRID_MARKDOWN, &page, NULL), 0);
    place_of(&page, "| BBT | – (50.0; 86.9 · 74.8) | – (50.0; 72.9) |");
    place_of(&page, "| question | ours | minilm |");
    place_of(&page, "(the paper: both, in Tables 1 and 2) | cannot tell | yes |");
    place_of(&page, "minilm: So it is here. Over 1 task: accuracy of Ensembles 60.0");
    place_of(&page, "Line 2 of a cell is minilm: 3 of 3 runs are done.");
    kh_buf_reset(&page);
    assert_int_equal(kh_reproduction_put(&r, KH_GRID_HTML, &page, NULL), 0);
    place_of(&page, "–<small>50.0</small><small>86.9 · 74.8</small>");
    place_of(&page, "<td class=\"n yes\">yes</td>");
    kh_buf_free(&page);
    kh_reproduction_free(&r);
    kh_reproduction_free(&other);
    kh_published_free(&p);
    kh_backbone_free(&b);
    kh_repro_plan_free(&a);
}

/* One seed, 200 rows, of which 20 are right with the first method only: the difference has mean 0.1
 * and the standard error of a share. */
static void intervals_are_those_of_theory(void **state) {
    (void)state;
    kh_repro_plan a = make((kh_repro_plan_opts){
        .rows = -1, .shots = -1, .tasks = "sst2", .methods = "bbt,ensemble", .seeds = "9" });
    kh_published p;
    kh_reproduction r;
    kh_claim c;
    double d[400], error = sqrt(0.1 * 0.9 / 200);
    leave_run(&a, run_of(&a, "bbt"), 0.7, 0.1);
    leave_run(&a, run_of(&a, "ensemble"), 0.8, 0.1);
    assert_int_equal(kh_published_init(&p, NULL), 0);
    assert_int_equal(kh_reproduction_open(&r, &a, &p, runs_dir(), "m", "model=m", NULL), 0);
    r.n_resample = 4000;
    assert_int_equal(kh_claim_compare(&r, "ensemble", "bbt", NULL, &c, NULL), 0);
    assert_true(c.tasks == 1 && c.pairs == 1 && fabs(c.score.mean - 0.1) < 1e-12);
    assert_true(fabs(c.score.low - (0.1 - 1.96 * error)) < 0.1 * error);
    assert_true(fabs(c.score.high - (0.1 + 1.96 * error)) < 0.15 * error);
    assert_true(kh_claim_sign(&c.score) == 1 && kh_claim_sign(&c.ece) == 0);
    assert_int_equal(kh_claim_compare(&r, "elbo", "bbt", NULL, &c, NULL), 0);
    assert_true(c.pairs == 0 && isnan(c.score.mean) && kh_claim_sign(&c.score) == 0);
    for (int i = 0; i < 400; i++)
        d[i] = (i % 2) - 0.55; /* mean -0.05, deviation 0.5 */
    assert_int_equal(kh_claim_units(d, 400, 4000, &c.score, NULL), 0);
    assert_true(fabs(c.score.low + 0.05 + 1.96 * 0.025) < 0.0025);
    assert_true(fabs(c.score.high + 0.05 - 1.96 * 0.025) < 0.0025);
    assert_int_equal(kh_claim_sign(&c.score), -1);
    assert_int_equal(kh_claim_units(d, 1, 4000, &c.score, NULL), 0);
    assert_true(c.score.mean == d[0] && isnan(c.score.low) && kh_claim_sign(&c.score) == 0);
    kh_reproduction_free(&r);
    kh_published_free(&p);
    kh_repro_plan_free(&a);
}

static void published_numbers_are_found(void **state) {
    (void)state;
    kh_published p;
    const char *large = KH_PAPER_MODEL;
    assert_int_equal(kh_published_init(&p, NULL), 0);
    assert_int_equal(p.n, 460);
    assert_true(
        kh_published_find(&p, large, "1", "prompt-tuning", "sst2", NULL, NULL)->value == 68.23);
    assert_true(kh_published_find(&p, large, "1", "prompt-tuning", "sst2", NULL, NULL)->sd == 3.78);
    const kh_published_value *far =
        kh_published_find(&p, large, "4", "ensemble", "mrpc", "rte", "entropy");
    assert_true(far->value == 0.35 && far->sd == 0.038);
    assert_non_null(kh_published_find(&p, KH_PAPER_MODEL_2, "2", "elbo", "snli", NULL, NULL));
    assert_true(
        kh_published_find(&p, large, "4", "lower-bound", "sst2", "rte", NULL)->value == 0.072);
    assert_null(kh_published_find(&p, large, "1", "smc", "sst2", NULL, NULL));
    kh_published_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_has_options_that_fit),
        cmocka_unit_test(names_of_variants_differ),
        cmocka_unit_test(runs_are_shared_between_tables),
        cmocka_unit_test(the_paper_judges_on_all_rows_and_both_pairs),
        cmocka_unit_test(fast_is_smaller),
        cmocka_unit_test(standard_lies_between),
        cmocka_unit_test(rows_of_tune_are_as_tune_has_them),
        cmocka_unit_test(rows_of_tune_are_on_all_tasks),
        cmocka_unit_test(the_first_seed_comes_first),
        cmocka_unit_test(standard_budgets_fit_every_number_of_rows),
        cmocka_unit_test(fast_takes_fewer_rows_of_many_classes),
        cmocka_unit_test(without_table_4_nothing_is_judged_against),
        cmocka_unit_test(what_is_missing_is_said_once),
        cmocka_unit_test(every_allocation_of_a_plan_may_fail),
        cmocka_unit_test(manifests_come_back),
        cmocka_unit_test(a_receipt_that_is_none_is_refused),
        cmocka_unit_test(tables_hold_means_and_deviations),
        cmocka_unit_test(what_disagrees_comes_first),
        cmocka_unit_test(every_question_is_answered),
        cmocka_unit_test(what_was_not_watched_cannot_be_late),
        cmocka_unit_test(every_allocation_of_the_tables_may_fail),
        cmocka_unit_test(backbones_stand_in_one_cell),
        cmocka_unit_test(intervals_are_those_of_theory),
        cmocka_unit_test(published_numbers_are_found),
    };
    return cmocka_run_group_tests_name("report: reproduction", tests, setup, teardown);
}
