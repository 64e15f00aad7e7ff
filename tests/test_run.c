/* test_run.c - runs that survive: whatever ends a run, and wherever, going on with it gives the
 * same bytes and asks nothing twice. */
#include "faulty.h"
#include "tiny.h"

#include "posterior/posterior.h"
#include "run/journal.h"
#include "run/run.h"
#include "tune/method.h"

#include <math.h>
#include <sys/stat.h>

enum { TRAIN = 8, DEV = 6 };

static kh_plm *plm, *labels;
static const kh_task *task;
static kh_dataset *train, *dev;
static char dir[80];

static int open_all(void **state) {
    tiny_setup(state);
    faulty_install();
    plm = tiny_open(KH_ACCESS_LOGPROBS);
    labels = tiny_open(KH_ACCESS_LABELS);
    task = tiny_task();
    train = tiny_rows(TRAIN, 1, -1);
    dev = tiny_rows(DEV, 2, -1);
    /* Where there is memory to write to, waiting for a disk shows nothing. */
    snprintf(dir, sizeof dir, "%s/keyhole-test-run-%ld",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    return 0;
}

static void clear(void) {
    static const char *const FILES[] = { "run.sqlite", "run.sqlite-wal", "run.sqlite-shm",
        "run.sqlite-journal", "run.lock", "log.txt", "posterior.json", "posterior.safetensors",
        NULL };
    tiny_remove(dir, FILES);
}

static int close_all(void **state) {
    clear();
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    kh_plm_close(plm);
    kh_plm_close(labels);
    return tiny_teardown(state);
}

/* -------------------------------------------------------------------------- a run, as a caller */

#define SET(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Options that make a method short, and the same with a larger budget. Methods with soft prompts
 * come in by a row here. */
typedef struct short_method {
    const char *name;
    const char *less[8], *more[8];
} short_method;

static const short_method SHORT[] = {
    { "bbt", { "budget-generations=6", "pop=4", "dev-every=4" },
        { "budget-generations=9", "pop=4", "dev-every=4" } },
    { "ensemble", { "budget-generations=3", "pop=3", "dev-every=2", "members=3" },
        { "budget-generations=5", "pop=3", "dev-every=2", "members=3" } },
    { "elbo", { "budget-generations=4", "pop=3", "draws=2", "samples=3", "dev-every=3" },
        { "budget-generations=7", "pop=3", "draws=2", "samples=3", "dev-every=3" } },
    { "bbt", { "budget-generations=12", "pop=4", "dev-every=1", "budget-stall=1" },
        { "budget-generations=12", "pop=4", "dev-every=1", "budget-stall=3" } },
    { "elbo",
        { "budget-generations=12", "pop=3", "draws=2", "samples=3", "dev-every=1",
            "budget-stall=1" },
        { "budget-generations=12", "pop=3", "draws=2", "samples=3", "dev-every=1",
            "budget-stall=3" } },
    { "abc-rejection", { "samples=5", "tolerance=4", "max-misses=3" },
        { "samples=5", "tolerance=4", "max-misses=3" } },
    { "abc-smc", { "budget-generations=2", "samples=6", "max-misses=3", "first-draws=3" },
        { "budget-generations=4", "samples=6", "max-misses=3", "first-draws=3" } },
    { "smc", { "budget-levels=1", "samples=6", "first-draws=4", "max-moves=2" },
        { "budget-levels=3", "samples=6", "first-draws=4", "max-moves=2" } },
    { "smc", { "budget-levels=1", "samples=6", "accept=soft", "max-moves=2", "dev-every=1" },
        { "budget-levels=3", "samples=6", "accept=soft", "max-moves=2", "dev-every=1" } },
    { "snpe",
        { "budget-rounds=2", "simulations=12", "samples=4", "transforms=2", "hidden=4",
            "max-epochs=2", "batch=6" },
        { "budget-rounds=3", "simulations=12", "samples=4", "transforms=2", "hidden=4",
            "max-epochs=2", "batch=6" } },
    { "text-smc", { "budget-levels=2", "samples=6", "first-draws=4", "max-moves=2" },
        { "budget-levels=4", "samples=6", "first-draws=4", "max-moves=2" } },
};
enum { N_SHORT = sizeof SHORT / sizeof SHORT[0] };

static const char *const *small(const char *method) {
    for (int i = 0; i < N_SHORT; i++)
        if (strcmp(SHORT[i].name, method) == 0)
            return SHORT[i].less;
    return NULL;
}

typedef struct attempt {
    const char *method, *const *set;
    kh_tune_opts o;
    kh_run_opts run;
    kh_plm *box;
    int pieces;    /* stop after so many; < 0: never */
    bool finish;   /* end where the answers end */
    kh_buf lines;  /* what was recorded */
    kh_meter used; /* by the attempt */
    kh_err err;
} attempt;

static int count_down(void *user) {
    attempt *a = user;
    return a->pieces >= 0 && a->pieces-- == 0;
}

static void take_line(void *user, const char *line) {
    attempt *a = user;
    kh_buf_text(&a->lines, line);
    kh_buf_char(&a->lines, '\n');
}

static attempt attempt_of(const char *method) {
    attempt a = {
        .method = method, .set = small(method), .o = kh_tune_defaults(), .box = plm, .pieces = -1
    };
    a.o.space = tiny_space();
    a.o.effort = KH_EFFORT_PAPER; /* the methods' own settings, and what they find as it is */
    a.o.seed = 13;
    a.o.max_queries = strcmp(method, "auto") == 0 ? 400 : 0; /* it has no other budget */
    a.lines = kh_buf_init(KH_BUF_MAX);
    a.run.resume = true;
    return a;
}

/* Opens, tunes, saves, finishes. */
static int go(attempt *a) {
    kh_posterior *p = NULL;
    kh_run *run;
    kh_meter before = kh_plm_meter(a->box);
    a->run.stop = count_down;
    a->run.user = a->o.user = a;
    a->o.record = take_line;
    kh_buf_reset(&a->lines);
    a->err = (kh_err){ 0 };
    int rc = kh_run_open(&run, dir, &a->run, &a->err);
    a->o.run = run;
    if (rc == 0 && a->finish)
        kh_run_ask_finish(run);
    if (rc == 0)
        rc = kh_tune(&p, a->method, a->set, a->box, task, train, dev, &a->o, &a->err);
    if (rc == 0)
        rc = kh_posterior_save(p, dir, &a->err);
    if (rc == 0)
        rc = kh_run_finish(run, &a->err);
    kh_posterior_free(p);
    kh_run_close(run);
    kh_meter after = kh_plm_meter(a->box);
    a->used = (kh_meter){ .queries = after.queries - before.queries,
        .replayed = after.replayed - before.replayed };
    return rc;
}

static void go_well(attempt *a) {
    if (go(a) != 0)
        fail_msg("%s: %s", a->method, a->err.msg);
}

/* What a run leaves: two files, its lines, and what it asked. */
typedef struct result {
    kh_buf json, samples, lines;
    long long queries, asked; /* asked: without those that the journal answered */
} result;

/* log.txt has the lines that the caller was told, however often the run was interrupted. */
static void check_log(const attempt *a) {
    kh_buf log;
    char *path = kh_path_join(dir, "log.txt");
    assert_int_equal(kh_file_read(path, 1 << 20, &log, NULL), 0);
    assert_int_equal(log.len, a->lines.len);
    assert_memory_equal(log.data, a->lines.data, log.len);
    kh_buf_free(&log);
    kh_free(path);
}

static result result_of(attempt *a) {
    result r = { .lines = kh_buf_init(KH_BUF_MAX),
        .queries = a->used.queries,
        .asked = a->used.queries - a->used.replayed };
    char *json = kh_path_join(dir, "posterior.json"),
         *samples = kh_path_join(dir, "posterior.safetensors");
    assert_int_equal(kh_file_read(json, 1 << 20, &r.json, NULL), 0);
    assert_int_equal(kh_file_read(samples, 1 << 20, &r.samples, NULL), 0);
    kh_buf_bytes(&r.lines, a->lines.data, a->lines.len);
    check_log(a);
    kh_free(json);
    kh_free(samples);
    return r;
}

static void result_free(result *r) {
    kh_buf_free(&r->json);
    kh_buf_free(&r->samples);
    kh_buf_free(&r->lines);
}

static void same_bytes(const kh_buf *a, const kh_buf *b) {
    assert_int_equal(a->len, b->len);
    if (a->len)
        assert_memory_equal(a->data, b->data, a->len);
}

static kh_run_info info(void) {
    kh_run_info i;
    kh_err err;
    if (kh_run_info_read(&i, dir, &err) != 0)
        fail_msg("%s", err.msg);
    return i;
}

/* The folder holds exactly this result, and its journal as many answers as were ever needed. */
static void check_result(attempt *a, const result *want) {
    result got = result_of(a);
    same_bytes(&got.json, &want->json);
    same_bytes(&got.samples, &want->samples);
    same_bytes(&got.lines, &want->lines);
    assert_int_equal(got.queries, want->queries);
    result_free(&got);
}

static result reference(attempt *a) {
    clear();
    go_well(a);
    return result_of(a);
}

/* As people ask, who may use the view "log". */
static long long ask_journal(const char *sql) {
    char *path = kh_path_join(dir, "run.sqlite");
    sqlite3 *db;
    sqlite3_stmt *s = NULL;
    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) > SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    long long n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    kh_free(path);
    return n;
}

static void do_journal(const char *sql) {
    kh_journal j;
    kh_err err;
    if (kh_journal_open(&j, dir, true, &err) != 0 || kh_journal_exec(&j, sql, &err) != 0)
        fail_msg("%s: %s", sql, err.msg);
    kh_journal_close(&j);
}

/* ------------------------------------------------------------------------------ stop and go on */

static void interrupt_everywhere(const char *method, const char *const *set, double keep) {
    attempt a = attempt_of(method);
    kh_run_info i;
    a.set = set;
    a.run.keep_seconds = keep;
    result want = reference(&a);
    i = info();
    long long answered = i.queries;
    kh_run_info_free(&i);
    int stops = 0;
    for (int pieces = 0;;
         pieces += pieces < 12 ? 1 : 7) { /* after every piece, and then go on to the end */
        clear();
        a.pieces = pieces;
        int rc = go(&a);
        if (rc == 0)
            break;
        assert_int_equal(rc, KH_STOPPED);
        assert_string_equal(a.err.msg, "stopped on request");
        i = info();
        assert_string_equal(i.state, "interrupted");
        long long have = i.queries;
        kh_run_info_free(&i);
        a.pieces = -1;
        go_well(&a);
        check_result(&a, &want);
        assert_int_equal(a.used.queries - a.used.replayed, answered - have); /* nothing twice */
        stops++;
    }
    assert_true(stops > 0);
    clear(); /* and stopping again and again gets there, too */
    for (int tries = 0;; tries++) {
        a.pieces = 3 + 2 * tries;
        if (go(&a) == 0)
            break;
        assert_true(tries < 1000);
    }
    check_result(&a, &want);
    i = info();
    assert_string_equal(i.state, "finished");
    assert_int_equal(i.queries, answered);
    kh_run_info_free(&i);
    kh_buf_free(&a.lines);
    result_free(&want);
}

static void every_method_goes_on_to_the_same_bytes(void **state) {
    (void)state;
    const char *name;
    for (int m = 0; (name = kh_method_name(m)) != NULL; m++) {
        if (kh_method_at(m)->access >= KH_ACCESS_WEIGHTS)
            continue;
        if (!kh_method_at(m)->soft && !small(name)) /* short by itself */
            interrupt_everywhere(name, NULL, 0);
        else if (!small(name))
            fail_msg("%s: give it a row in SHORT", name);
    }
    for (int k = 0; k < N_SHORT; k++)
        interrupt_everywhere(SHORT[k].name, SHORT[k].less, 0);
}

/* Gradients go on from the last kept epoch: nothing of it shows but the time. */
static void descents_go_on_to_the_same_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        const char *set[6];
    } OPEN[] = {
        { "prompt-tuning", { "epochs=4", "batch=3", "patience=9", "dropout=0.1" } },
        { "p-tuning-v2", { "epochs=4", "batch=3", "patience=9", "dev-epochs=2" } },
        { "feature-mlp", { "epochs=4", "batch=3", "inner=4" } },
    };
    kh_plm *box = tiny_open(KH_ACCESS_WEIGHTS);
    for (int k = 0; k < 3; k++)
        for (double keep = -1; keep <= 0; keep++) { /* kept after every epoch, and never */
            attempt a = attempt_of(OPEN[k].name);
            a.set = OPEN[k].set;
            a.box = box;
            a.o.model = tiny_dir;
            a.run.keep_seconds = keep;
            result want = reference(&a);
            for (int pieces = 0, rc = 1; rc != 0; pieces += 2) {
                clear();
                a.pieces = pieces;
                rc = go(&a);
                assert_true(rc == 0 || rc == KH_STOPPED);
                a.pieces = -1;
                go_well(&a);
                check_result(&a, &want);
            }
            assert_int_equal(
                ask_journal("SELECT count(*) FROM kept WHERE name = 'descent'"), keep < 0);
            if (keep < 0) {
                do_journal("UPDATE kept SET bytes = x'00'");
                assert_int_equal(go(&a), KH_EFORMAT);
                assert_says(&a.err, "the kept state of a descent is damaged: 1 bytes");
            }
            kh_buf_free(&a.lines);
            result_free(&want);
        }
    kh_plm_close(box);
}

static void states_change_nothing(void **state) {
    (void)state;
    for (int k = 0; k < N_SHORT; k++)
        interrupt_everywhere(SHORT[k].name, SHORT[k].less, -1);
}

/* A fit is computed once: whoever takes the run up again looks its outcome up, also if it was
 * computed after being resumed. */
static void no_flow_is_taught_twice(void **state) {
    (void)state;
    attempt a = attempt_of("snpe");
    a.run.keep_seconds = -1;
    result want = reference(&a);
    assert_int_equal(ask_journal("SELECT count(*) FROM kept WHERE name = 'snpe'"), 2);
    long long at = ask_journal("SELECT answers FROM kept WHERE number = 1");
    clear();
    int n = 1; /* inside the first fit: all its questions are answered */
    while ((a.pieces = n, go(&a)) == KH_STOPPED && ask_journal("SELECT max(id) FROM answers") < at)
        assert_true(n++ < 1000);
    assert_int_equal(ask_journal("SELECT count(*) FROM kept"), 0);
    while ((a.pieces = n, go(&a)) == KH_STOPPED &&
        ask_journal("SELECT max(id) FROM answers") == at) /* a little further */
        assert_true(n++ < 1000);
    assert_int_equal(ask_journal("SELECT count(*) FROM kept"), 1);
    a.pieces = -1;
    go_well(&a);
    check_result(&a, &want);
    do_journal("UPDATE kept SET bytes = zeroblob(length(bytes))"); /* and it is this that is used */
    int rc = go(&a);
    assert_true(rc == KH_EMISMATCH || rc == 0);
    result got = { 0 };
    if (rc == 0) {
        got = result_of(&a);
        assert_true(got.samples.len != want.samples.len ||
            memcmp(got.samples.data, want.samples.data, want.samples.len) != 0);
        result_free(&got);
    }
    kh_buf_free(&a.lines);
    result_free(&want);
}

/* Members side by side: the same result and lines as one after another; also when a run is resumed
 * with another number of groups. */
static void members_may_go_in_step(void **state) {
    (void)state;
    for (int budget = 0; budget < 2; budget++)
        for (int keep = 0; keep < 2; keep++) {
            attempt a = attempt_of("ensemble");
            a.set = SET("budget-generations=5", "pop=3", "dev-every=2", "members=5");
            a.o.max_queries = budget ? (5 * 3 * TRAIN + 3 * DEV) * 7 / 2
                                     : 0; /* ends the fourth member; three may go in step */
            a.run.keep_seconds = keep ? -1 : 1e9;
            result want = reference(&a);
            assert_true(budget == (strstr(want.json.data, "would exceed the budget") != NULL));
            for (int groups = 2; groups < 8; groups += 2) {
                clear();
                a.o.groups = groups;
                a.pieces = -1;
                go_well(&a);
                check_result(&a, &want);
                for (int pieces = 1; pieces < 40; pieces += 6) {
                    clear();
                    a.o.groups = groups;
                    a.pieces = pieces;
                    int rc = go(&a);
                    assert_true(rc == KH_STOPPED || rc == 0);
                    a.o.groups = pieces % 4 == 1 ? groups : pieces % 5;
                    a.pieces = -1;
                    go_well(&a);
                    check_result(&a, &want);
                }
            }
            kh_buf_free(&a.lines);
            result_free(&want);
        }
}

static void without_a_run_the_result_is_the_same(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    result want = reference(&a);
    kh_posterior *p;
    a.o.run = NULL;
    kh_buf_reset(&a.lines);
    assert_int_equal(kh_tune(&p, "bbt", a.set, plm, task, train, dev, &a.o, NULL), 0);
    assert_int_equal(kh_posterior_save(p, dir, NULL), 0);
    kh_posterior_free(p);
    check_result(&a, &want);
    kh_buf_free(&a.lines);
    result_free(&want);
}

static void threads_may_change_on_the_way(void **state) {
    (void)state;
    attempt a = attempt_of("elbo");
    kh_threads_set(1);
    result want = reference(&a);
    clear();
    a.pieces = 4;
    assert_int_equal(go(&a), KH_STOPPED);
    kh_threads_set(2);
    a.pieces = -1;
    go_well(&a);
    check_result(&a, &want);
    kh_threads_set(0);
    kh_buf_free(&a.lines);
    result_free(&want);
}

static void budgets_may_grow(void **state) {
    (void)state;
    for (int k = 0; k < N_SHORT; k++)
        for (int keep = -1; keep <= 0; keep++) {
            attempt a = attempt_of(SHORT[k].name);
            a.run.keep_seconds = keep;
            a.set = SHORT[k].more;
            result want = reference(&a);
            clear();
            a.set = SHORT[k].less;
            go_well(&a);
            long long asked = a.used.queries;
            a.set = SHORT[k].more;
            a.pieces = 9; /* interrupted once more on the way */
            (void)go(&a);
            a.pieces = -1;
            go_well(&a);
            check_result(&a, &want);
            kh_run_info i = info();
            assert_true(i.queries >= want.asked && i.queries <= asked + want.asked);
            kh_run_info_free(&i);
            a.set = SHORT[k].less; /* and back again: everything is known */
            go_well(&a);
            assert_int_equal(a.used.queries, asked);
            assert_int_equal(a.used.replayed, asked);
            kh_buf_free(&a.lines);
            result_free(&want);
        }
}

static void query_and_time_budgets_may_grow(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    a.set = SET("budget-generations=9", "pop=4", "dev-every=4");
    result want = reference(&a);
    clear();
    a.o.max_seconds = 1e-6; /* one generation */
    go_well(&a);
    assert_int_equal(a.used.queries, 4 * TRAIN + DEV);
    a.o.max_seconds = 0;
    a.o.max_queries = 5 * 4 * TRAIN + DEV + DEV;
    go_well(&a);
    assert_int_equal(a.used.queries, 5 * 4 * TRAIN + DEV + DEV);
    assert_int_equal(a.used.replayed, 4 * TRAIN);
    a.o.max_queries = 0;
    go_well(&a);
    check_result(&a, &want);
    kh_buf_free(&a.lines);
    result_free(&want);
}

static void a_time_budget_counts_all_sessions_and_no_replay(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    a.set = SET("budget-generations=9", "pop=4", "dev-every=4");
    clear();
    a.o.max_seconds = 1e9;
    a.pieces = 6;
    assert_int_equal(go(&a), KH_STOPPED);
    long long asked = a.used.queries;
    a.pieces = -1;
    a.o.max_seconds =
        1e-6; /* used up already: what is known is replayed, one more generation asked */
    go_well(&a);
    assert_true(a.used.replayed >= asked);
    assert_true(a.used.queries - a.used.replayed <= 2 * 4 * TRAIN + DEV);
    kh_buf_free(&a.lines);
}

/* ----------------------------------------------------------------------------- what is written */

static void of_labels_nothing_but_labels_is_written(void **state) {
    (void)state;
    attempt a = attempt_of("manual");
    a.box = labels;
    clear();
    go_well(&a);
    assert_int_equal(
        ask_journal(
            "SELECT count(*) FROM answers WHERE kind <> 'labels' OR length(answer) <> 2 * rows"),
        0);
    assert_int_equal(ask_journal("SELECT sum(rows) FROM answers"), DEV);
    a.box = plm;
    a.method = "bbt";
    a.set = small("bbt");
    clear();
    go_well(&a);
    assert_int_equal(ask_journal("SELECT count(*) FROM answers WHERE kind <> 'logprobs' OR "
                                 "length(answer) <> 2 * 4 * rows"),
        0);
    kh_buf_free(&a.lines);
}

static void the_journal_answers_in_sql(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    clear();
    go_well(&a);
    assert_int_equal(ask_journal("SELECT sum(rows) FROM answers"), a.used.queries);
    assert_int_equal(ask_journal("SELECT count(DISTINCT question) = count(*) FROM answers"), 1);
    assert_int_equal(ask_journal("SELECT count(*) FROM generations"), 6);
    assert_int_equal(
        ask_journal("SELECT max(queries) FROM log WHERE gen = 6"), 6 * 4 * TRAIN + DEV);
    assert_int_equal(ask_journal("SELECT count(*) FROM log WHERE loss >= best AND dev IS NULL"), 3);
    assert_int_equal(
        ask_journal(
            "SELECT count(*) FROM run WHERE method = 'bbt' AND state = 'finished' AND seed = '13'"),
        1);
    assert_int_equal(ask_journal("SELECT count(*) FROM options WHERE budget"),
        10); /* budgets, --finish, --label-prior, --class-prior, --calibrate, --fallback,
                --features-model */
    assert_int_equal(ask_journal("SELECT group_concat(what) = 'started,finished' FROM events"), 1);
    kh_buf_free(&a.lines);
}

static void add_line(void *user, const char *line, const char *facts) {
    assert_int_equal(facts[0], '{');
    take_line(user, line);
}

static void count_option(void *user, const kh_run_option *o) {
    *(int *)user += o->budget ? 100 : 1;
}

static void readers_see_what_was_written(void **state) {
    (void)state;
    attempt a = attempt_of("bbt"), read = attempt_of("bbt");
    int next, n = 0;
    clear();
    go_well(&a);
    assert_int_equal(kh_run_read_lines(dir, 0, add_line, &read, &next, NULL), 0);
    same_bytes(&read.lines, &a.lines);
    assert_int_equal(next, 6);
    assert_int_equal(kh_run_read_lines(dir, next, add_line, &read, &next, NULL), 0);
    assert_int_equal(next, 6);
    assert_int_equal(kh_run_read_options(dir, count_option, &n, NULL), 0);
    assert_true(n > 300 && n % 100 > 15);
    kh_run_info i = info();
    assert_string_equal(i.method, "bbt");
    assert_string_equal(i.task, "toy");
    assert_string_equal(i.stopped, "all 6 generations are done");
    assert_int_equal(i.done, 6);
    assert_true(i.dev >= 0 && i.dev <= 1 && i.seconds > 0 && i.sessions == 1);
    kh_run_info_free(&i);
    kh_buf_free(&a.lines);
    kh_buf_free(&read.lines);
}

/* As a URI, which reading needs where no shared-memory file can be made, a name may mean something
 * else than as a path. */
static void a_folder_may_have_any_name(void **state) {
    (void)state;
    char usual[sizeof dir], file[sizeof dir + 16], beside[sizeof dir + 16];
    kh_journal j;
    kh_err err = { 0 };
    memcpy(usual, dir, sizeof dir);
    strncat(dir, "-a?b#c%41", sizeof dir - strlen(dir) - 1);
    clear();
    attempt a = attempt_of("bbt");
    go_well(&a);
    snprintf(file, sizeof file, "%s/run.sqlite", dir);
    snprintf(beside, sizeof beside, "%s/run.sqlite-shm", dir);
    assert_int_equal(symlink("nowhere", beside), 0);
    for (int slashes = 1; slashes <= 2; slashes++) {
        char name[sizeof dir + 1];
        snprintf(name, sizeof name, "%s%s", slashes == 2 ? "/" : "", dir);
        if (kh_journal_open(&j, name, false, &err) != 0)
            fail_msg("%s", err.msg);
        assert_string_equal(sqlite3_db_filename(j.db, "main"), file);
        kh_journal_close(&j);
    }
    clear();
    memcpy(dir, usual, sizeof dir);
    kh_buf_free(&a.lines);
}

/* --------------------------------------------------------------------------------- what breaks */

static void refuse(attempt *a, int code, const char *says) {
    int rc = go(a);
    if (rc != code)
        fail_msg("code %d, expected %d: %s", rc, code, a->err.msg);
    assert_says(&a->err, says);
}

/* Every write of a run in turn finds the disk full; what was committed stays, and the run goes on
 * from there. */
static void a_full_disk_costs_nothing_but_time(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *says;
    } faults[] = {
        { SQLITE_FULL,
            "the disk is full; what was recorded is safe: make room, then go on with --resume" },
        { SQLITE_IOERR_WRITE, "run.sqlite: cannot read or write: disk I/O error" },
    };
    attempt a = attempt_of("bbt");
    a.set = SET("budget-generations=2", "pop=2", "dev-every=2");
    a.run.keep_seconds = -1;
    faulty_fail(0, 0);
    result want = reference(&a);
    long writes = faulty_writes;
    assert_true(writes > 20);
    for (long n = 1; n <= writes; n++) {
        clear();
        faulty_fail(n, faults[n % 2].code);
        int rc = go(&a);
        bool failed = faulty_writes >= n;
        faulty_fail(0, 0);
        if (rc == 0 && failed) /* a write that may fail: moving the log into the file */
            rc = KH_EIO;
        else if (rc != 0)
            assert_says(&a.err, faults[n % 2].says);
        assert_int_equal(rc, failed ? KH_EIO : 0);
        go_well(&a);
        check_result(&a, &want);
    }
    kh_buf_free(&a.lines);
    result_free(&want);
}

static void other_failures_have_sentences_of_their_own(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *says;
    } faults[] = {
        { SQLITE_READONLY,
            "run.sqlite: cannot open or write (attempt to write a readonly database); is the "
            "folder write-protected?" },
        { SQLITE_BUSY, "run.sqlite: another program has locked it; close that one, then go on" },
        { SQLITE_CORRUPT,
            "run.sqlite: damaged, or not a database (database disk image is malformed)" },
    };
    for (int i = 0; i < 3; i++) {
        attempt a = attempt_of("bbt");
        clear();
        faulty_fail(20, faults[i].code);
        int rc = go(&a);
        faulty_fail(0, 0);
        assert_true(rc == KH_EIO || rc == KH_EFORMAT);
        assert_says(&a.err, faults[i].says);
        go_well(&a);
        kh_buf_free(&a.lines);
    }
}

static void a_damaged_state_is_told(void **state) {
    (void)state;
    static const struct {
        const char *method, *says;
    } kept[] = { { "bbt", "the kept state of a search is damaged" },
        { "elbo", "the kept state of a fit is damaged" },
        { "snpe", "the kept state of a flow is damaged: 3 bytes, expected " } };
    for (int k = 0; k < 3; k++) {
        attempt a = attempt_of(kept[k].method);
        a.run.keep_seconds = -1;
        clear();
        for (int n = 4;
             (a.pieces = n, go(&a)) == KH_STOPPED && ask_journal("SELECT count(*) FROM kept") == 0;
             n++)
            assert_true(n < 1000);
        assert_true(ask_journal("SELECT count(*) FROM kept") > 0);
        a.pieces = -1;
        do_journal("UPDATE kept SET bytes = x'010203'");
        refuse(&a, KH_EFORMAT, kept[k].says);
        kh_buf_free(&a.lines);
    }
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    attempt a = attempt_of("ensemble");
    a.set = SET("budget-generations=1", "pop=2", "members=3");
    a.o.groups = 2;
    a.run.keep_seconds = -1;
    kh_threads_set(1);
    result want = reference(&a);
    long n = 1;
    for (bool done = false; !done; n++) {
        clear();
        kh_alloc_fail_at(n, false);
        int rc = go(&a);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        if (rc != (done ? 0 : KH_ENOMEM) &&
            !(rc == 0 && !done)) /* the caller's own buffer of lines may be hit, too */
            fail_msg("allocation %ld: %d, %s", n, rc, a.err.msg);
        if (n % 5 == 0) {
            go_well(&a);
            check_result(&a, &want);
        }
    }
    assert_true(n > 100);
    clear();
    go_well(&a);
    for (n = 1;; n++) { /* resuming */
        kh_alloc_fail_at(n, false);
        int rc = go(&a);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_true(rc == 0 || rc == KH_ENOMEM);
        if (done)
            break;
    }
    for (n = 1;; n++) { /* looking */
        kh_run_info i;
        kh_alloc_fail_at(n, false);
        int rc = kh_run_info_read(&i, dir, NULL);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        kh_run_info_free(&i);
        if (done)
            break;
    }
    kh_threads_set(0);
    kh_buf_free(&a.lines);
    result_free(&want);
}

/* The folder as it is now into another place, or back. */
static void copy_folder(const char *from, const char *to) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}

/* A run that was cut off, cut off again while a classifier is made of what is there, and again,
 * ends in what one try makes of it. */
static void finishing_may_be_interrupted(void **state) {
    (void)state;
    static const char *const METHOD[] = { "bbt", "smc", "text-smc", "abc-smc" };
    char cut[100];
    snprintf(cut, sizeof cut, "%s-cut", dir);
    for (int m = 0; m < 4; m++) {
        attempt a = attempt_of(METHOD[m]);
        clear();
        a.pieces = 3;
        assert_int_equal(go(&a), KH_STOPPED);
        copy_folder(dir, cut);
        a.finish = true;
        a.pieces = -1;
        go_well(&a);
        result want = result_of(&a);
        int stops = 0, rc;
        copy_folder(cut, dir);
        for (int k = 1; (a.pieces = k, rc = go(&a)) != 0; k++, stops++)
            if (rc != KH_STOPPED)
                fail_msg("%s, try %d: %s", METHOD[m], k, a.err.msg);
        result got = result_of(&a);
        same_bytes(&got.samples, &want.samples);
        same_bytes(&got.lines, &want.lines);
        assert_true(stops > 1);
        result_free(&got);
        a.pieces = -1; /* and once more, after all was done */
        go_well(&a);
        got = result_of(&a);
        same_bytes(&got.samples, &want.samples);
        same_bytes(&got.json, &want.json);
        result_free(&got);
        result_free(&want);
        kh_buf_free(&a.lines);
    }
    copy_folder("/dev/null", cut);
    unlink(cut);
}

static void other_questions_are_noticed(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    clear();
    a.pieces = 5;
    assert_int_equal(go(&a), KH_STOPPED);
    long long before = ask_journal("SELECT count(*) FROM answers");
    do_journal("UPDATE answers SET question = zeroblob(16) WHERE id = 3");
    a.pieces = -1;
    refuse(&a, KH_EMISMATCH, "recorded answers belong to other questions than are asked now");
    assert_int_equal(a.used.queries - a.used.replayed, 0); /* before anything is paid */
    assert_int_equal(ask_journal("SELECT count(*) FROM answers"), before);
    kh_buf_free(&a.lines);
}

static void damage_is_told(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    clear();
    a.pieces = 5;
    assert_int_equal(go(&a), KH_STOPPED);
    a.pieces = -1;
    do_journal("UPDATE answers SET answer = x'00' WHERE id = 2");
    refuse(&a, KH_EFORMAT, "run.sqlite: answer 2 is damaged; --force starts the run again");
    do_journal("UPDATE answers SET question = x'00' WHERE id = 2");
    refuse(&a, KH_EFORMAT, "run.sqlite: answer 2 is damaged");
    do_journal("UPDATE run SET state = NULL, method = NULL");
    kh_run_info i;
    kh_err err;
    assert_int_equal(kh_run_info_read(&i, dir, &err), KH_EFORMAT);
    assert_says(&err, "its table \"run\" lacks method, task or state");
    do_journal("DELETE FROM run");
    assert_int_equal(kh_run_info_read(&i, dir, &err), KH_EMISSING);
    assert_says(&err, "no run has begun in it");
    kh_buf_free(&a.lines);
}

static void what_is_not_a_journal_is_refused(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    char *path = kh_path_join(dir, "run.sqlite");
    clear();
    mkdir(dir, 0777);
    char junk[4096];
    memset(junk, 'x', sizeof junk);
    assert_int_equal(kh_file_write(path, junk, sizeof junk, NULL), 0);
    refuse(&a, KH_EFORMAT,
        "run.sqlite: damaged, or not a database (file is not a database); \"sqlite3 ");
    unlink(path);
    do_journal("PRAGMA user_version = 99");
    refuse(&a, KH_EUNSUPPORTED,
        "run.sqlite: written by a newer keyhole (schema 99, this one knows 2); use that one");
    unlink(path);
    do_journal("PRAGMA user_version = 0");
    kh_run_info i;
    kh_err err;
    assert_int_equal(kh_run_info_read(&i, dir, &err), KH_EUNSUPPORTED);
    assert_says(&err,
        "run.sqlite: of an older keyhole (schema 0, now 2); resuming the run brings it up to date");
    unlink(path);
    do_journal("PRAGMA application_id = 7");
    refuse(&a, KH_EFORMAT, "run.sqlite: a database of another program, not of a run");
    unlink(path);
    do_journal("PRAGMA user_version = -3");
    refuse(&a, KH_EFORMAT, "run.sqlite: a database of another program, not of a run");
    unlink(path);
    assert_int_equal(
        kh_file_write(path, "", 0, NULL), 0); /* an empty file is a journal of version 0 */
    go_well(&a);
    kh_free(path);
    kh_buf_free(&a.lines);
}

/* A run from a stranger: what SQLite would execute for him is refused. */
static void a_journal_brings_no_statements_of_its_own(void **state) {
    (void)state;
    static const char *const EVIL[] = {
        "ALTER TABLE run RENAME TO was;"
        "CREATE VIEW run AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT x "
        "FROM c",
        "CREATE TRIGGER evil AFTER INSERT ON sessions BEGIN DELETE FROM answers; END",
        "CREATE VIRTUAL TABLE evil USING rtree(a, b, c)",
    };
    for (int i = 0; i < 3; i++) {
        attempt a = attempt_of("bbt");
        kh_run_info info;
        kh_err err = { 0 };
        clear();
        a.pieces = 5;
        assert_int_equal(go(&a), KH_STOPPED);
        a.pieces = -1;
        do_journal(EVIL[i]);
        refuse(&a, KH_EFORMAT, "a view, trigger or virtual table, which no run has");
        assert_int_equal(kh_run_info_read(&info, dir, &err), KH_EFORMAT);
        assert_says(&err,
            i == 0 ? "run.sqlite: holds \"run\", a view" : "run.sqlite: holds \"evil\", a view");
        kh_buf_free(&a.lines);
    }
}

static void pass_over(void *user, const char *line, const char *facts) {
    (void)user, (void)line, (void)facts;
}

static void put_big(kh_buf *b, unsigned x) {
    for (int shift = 24; shift >= 0; shift -= 8)
        kh_buf_char(b, (char)(x >> shift));
}

static void numbers_that_cannot_be_are_damage(void **state) {
    (void)state;
    static const char *const EVIL[] = { "UPDATE sessions SET id = 9223372036854775807",
        "UPDATE sessions SET epoch = 2147483647", "UPDATE sessions SET epoch = -5" };
    for (int i = 0; i < 3; i++) {
        attempt a = attempt_of("bbt");
        clear();
        a.pieces = 5;
        assert_int_equal(go(&a), KH_STOPPED);
        a.pieces = -1;
        do_journal(EVIL[i]);
        refuse(&a, KH_EFORMAT, "run.sqlite: damaged: session ");
        kh_buf_free(&a.lines);
    }
}

/* Counts of a state that was kept; each would overflow when the run goes on from it. */
static void counts_that_cannot_be_are_damage(void **state) {
    (void)state;
    static const char *const COLUMN[] = { "generations", "prompts", "queries", "dev_queries",
        "tokens" };
    static const char *const VALUE[] = { "9223372036854775807", "2147483647000000000", "-1" };
    for (int i = 0; i < 5 * 3; i++) {
        attempt a = attempt_of("bbt");
        char sql[120];
        a.run.keep_seconds = -1;
        clear();
        for (int n = 4;
             (a.pieces = n, go(&a)) == KH_STOPPED && ask_journal("SELECT count(*) FROM kept") == 0;
             n++)
            assert_true(n < 1000);
        a.pieces = -1;
        snprintf(sql, sizeof sql, "UPDATE kept SET %s = %s", COLUMN[i / 3], VALUE[i % 3]);
        do_journal(sql);
        refuse(&a, KH_EFORMAT, "run.sqlite: damaged: a state that was kept has impossible counts");
        kh_buf_free(&a.lines);
    }
}

/* Where reading goes on after the last number that there is. */
static void the_last_line_has_none_after_it(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    int next;
    clear();
    go_well(&a);
    do_journal("UPDATE generations SET n = 2147483647 WHERE n = (SELECT max(n) FROM generations)");
    assert_int_equal(kh_run_read_lines(dir, 0, pass_over, NULL, &next, NULL), 0);
    assert_int_equal(next, 2147483647);
    kh_buf_free(&a.lines);
}

/* What SQLite finds beside a database it takes for a transaction that was cut off. If that names
 * a journal of several databases, which ours never have, SQLite removes the file of that name. */
static void put_cut_off(const char *victim) {
    static const char MAGIC[] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
    enum { SECTOR = 512 };
    char *db = kh_path_join(dir, "run.sqlite"), *path = kh_path_join(dir, "run.sqlite-journal");
    kh_buf head, b = kh_buf_init(1 << 16);
    unsigned sum = 0;
    assert_int_equal(kh_file_read(db, 1 << 24, &head, NULL), 0);
    unsigned page = (unsigned)(unsigned char)head.data[16] << 8 | (unsigned char)head.data[17];
    unsigned n = (unsigned)strlen(victim), pages = (unsigned)(head.len / page);
    for (unsigned i = 0; i < n; i++)
        sum += (unsigned char)victim[i];
    const unsigned number[] = { 0, 7, pages, SECTOR, page }, tail[] = { n, sum };
    kh_buf_bytes(&b, MAGIC, 8);
    for (int i = 0; i < 5; i++)
        put_big(&b, number[i]);
    while (b.len < SECTOR)
        kh_buf_char(&b, '\0');
    put_big(&b, (1u << 30) / page + 1);
    kh_buf_bytes(&b, victim, n);
    for (int i = 0; i < 2; i++)
        put_big(&b, tail[i]);
    kh_buf_bytes(&b, MAGIC, 8);
    assert_int_equal(kh_file_write(path, b.data, b.len, NULL), 0);
    kh_buf_free(&head);
    kh_buf_free(&b);
    kh_free(db);
    kh_free(path);
}

static void a_journal_removes_no_other_file(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    char victim[120];
    kh_run_info info;
    snprintf(victim, sizeof victim, "%s-victim", dir);
    clear();
    a.pieces = 5;
    assert_int_equal(go(&a), KH_STOPPED);
    a.pieces = -1;
    assert_int_equal(kh_file_write(victim, "precious", 8, NULL), 0);
    put_cut_off(victim);
    int rc = go(&a);
    assert_true(kh_file_exists(victim));
    assert_int_equal(rc, KH_EFORMAT);
    assert_says(&a.err, "run.sqlite-journal: names another file, which SQLite would remove");
    assert_int_not_equal(kh_run_info_read(&info, dir, NULL), 0);
    assert_true(kh_file_exists(victim));
    a.run.overwrite = true; /* and there is a way out */
    go_well(&a);
    assert_true(kh_file_exists(victim));
    unlink(victim);
    kh_buf_free(&a.lines);
}

static void changed_terms_are_named(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    clear();
    a.pieces = 4;
    assert_int_equal(go(&a), KH_STOPPED);
    a.pieces = -1;
    a.set = SET("budget-generations=6", "pop=5", "dev-every=4", "loss=hinge");
    refuse(&a, KH_EMISMATCH,
        "holds another run: --pop was 4 and is 5 now, --loss was \"ce\" and is \"hinge\" now; give "
        "what was given");
    a.set = small("bbt");
    a.o.seed = 14;
    refuse(&a, KH_EMISMATCH, "--seed was 13 and is 14 now");
    a.o.seed = 13;
    a.o.space.dim = 13;
    refuse(&a, KH_EMISMATCH, "--dim was 12 and is 13 now");
    a.o.space.dim = 12;
    kh_dataset *rows = train;
    train = dev;
    refuse(&a, KH_EMISMATCH, "the hash of the train rows was ");
    train = rows;
    char *mine = kh_strdup(tiny_dir);
    memcpy(tiny_dir, tiny_other, sizeof tiny_dir);
    a.box = tiny_open(KH_ACCESS_LOGPROBS);
    refuse(&a, KH_EMISMATCH, "the model's fingerprint was ");
    kh_plm_close(a.box);
    memcpy(tiny_dir, mine, strlen(mine) + 1);
    kh_free(mine);
    a.box = plm;
    go_well(&a);
    kh_buf_free(&a.lines);
}

static void a_folder_that_is_taken_is_refused(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    kh_run *run;
    kh_err err;
    clear();
    assert_int_equal(kh_run_open(&run, dir, &a.run, NULL), 0);
    refuse(&a, KH_EIO, "is at work on this run; wait for it, or end it first");
    assert_int_equal(kh_run_finish(run, &err), KH_EARG);
    assert_says(&err, "the run has not begun");
    kh_run_close(run);
    assert_false(kh_dir_exists(dir)); /* it never began */
    a.pieces = 4;
    assert_int_equal(go(&a), KH_STOPPED);
    a.pieces = -1;
    a.run.resume = false;
    refuse(&a, KH_EARG, "holds an unfinished run of bbt (");
    assert_says(&a.err,
        "--resume goes on with it, --finish makes a classifier of what is there, --force "
        "starts again");
    a.run.resume = true;
    go_well(&a);
    a.run.resume = false;
    refuse(&a, KH_EARG,
        "holds a posterior already, of a finished run of bbt; --force writes over it, --resume "
        "with a larger budget goes on");
    a.run.overwrite = true;
    go_well(&a);
    assert_int_equal(a.used.replayed, 0);
    a.run.overwrite = false;
    char *path = kh_path_join(dir, "run.sqlite");
    unlink(path);
    kh_free(path);
    refuse(&a, KH_EARG,
        "holds a posterior already, but not the run that made it; --force writes over it");
    kh_buf_free(&a.lines);
}

static void a_refused_run_leaves_nothing(void **state) {
    (void)state;
    attempt a = attempt_of("bbt");
    clear();
    a.o.max_queries = 1;
    refuse(&a, KH_EARG, "a budget of 1 queries is too small");
    assert_false(kh_dir_exists(dir));
    kh_run_info i;
    kh_err err;
    mkdir(dir, 0777);
    assert_int_equal(kh_run_info_read(&i, dir, &err), KH_EMISSING);
    assert_says(&err, "holds no run: there is no run.sqlite in it");
    kh_buf_free(&a.lines);
}

/* ----------------------------------------------------------------------------------- forecasts */

static kh_forecast told;
static int told_rc;
static int take_forecast(void *user, const kh_forecast *f) {
    (void)user;
    told = *f;
    return told_rc;
}

/* Methods that reject: how often is not known before. Nor is what auto leaves of its budget. */
static bool may_ask_less(const char *method) {
    return strncmp(method, "abc-", 4) == 0 || strcmp(method, "smc") == 0 ||
        strncmp(method, "text-", 5) == 0 || strcmp(method, "auto") == 0;
}

static void forecasts_hold(void **state) {
    (void)state;
    const char *name;
    for (int m = 0; (name = kh_method_name(m)) != NULL; m++) {
        if (!kh_method_at(m)->most || kh_method_at(m)->access == KH_ACCESS_WEIGHTS ||
            (kh_method_at(m)->soft && !small(name)))
            continue;
        attempt a = attempt_of(name);
        clear();
        told_rc = 0;
        a.o.forecast = take_forecast;
        go_well(&a);
        if (may_ask_less(name))
            assert_true(told.queries + told.warm_up >= a.used.queries);
        else
            assert_int_equal(told.queries + told.warm_up, a.used.queries);
        assert_true(told.candidates > 0 && told.train_rows == TRAIN && told.dev_rows == DEV);
        assert_true(!kh_method_at(m)->soft ||
            (told.tokens > 0 && told.query_seconds > 0 && told.warm_up == 2 * TRAIN));
        told_rc = 1; /* a dry run, of a run that is there */
        refuse(&a, KH_STOPPED, "stopped after the forecast");
        assert_int_equal(a.used.queries, 0);
        assert_int_equal(told.warm_up, 0); /* the journal knows the speed */
        a.o.max_queries = 300;             /* what the least generation of any method takes */
        refuse(&a, KH_STOPPED, "stopped after the forecast");
        assert_true(told.queries <= 300);
        kh_buf_free(&a.lines);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_goes_on_to_the_same_bytes),
        cmocka_unit_test(states_change_nothing),
        cmocka_unit_test(descents_go_on_to_the_same_bytes),
        cmocka_unit_test(no_flow_is_taught_twice),
        cmocka_unit_test(members_may_go_in_step),
        cmocka_unit_test(without_a_run_the_result_is_the_same),
        cmocka_unit_test(threads_may_change_on_the_way),
        cmocka_unit_test(budgets_may_grow),
        cmocka_unit_test(query_and_time_budgets_may_grow),
        cmocka_unit_test(a_time_budget_counts_all_sessions_and_no_replay),
        cmocka_unit_test(of_labels_nothing_but_labels_is_written),
        cmocka_unit_test(the_journal_answers_in_sql),
        cmocka_unit_test(readers_see_what_was_written),
        cmocka_unit_test(a_folder_may_have_any_name),
        cmocka_unit_test(a_full_disk_costs_nothing_but_time),
        cmocka_unit_test(other_failures_have_sentences_of_their_own),
        cmocka_unit_test(a_damaged_state_is_told),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(finishing_may_be_interrupted),
        cmocka_unit_test(other_questions_are_noticed),
        cmocka_unit_test(damage_is_told),
        cmocka_unit_test(what_is_not_a_journal_is_refused),
        cmocka_unit_test(a_journal_brings_no_statements_of_its_own),
        cmocka_unit_test(numbers_that_cannot_be_are_damage),
        cmocka_unit_test(counts_that_cannot_be_are_damage),
        cmocka_unit_test(the_last_line_has_none_after_it),
        cmocka_unit_test(a_journal_removes_no_other_file),
        cmocka_unit_test(changed_terms_are_named),
        cmocka_unit_test(a_folder_that_is_taken_is_refused),
        cmocka_unit_test(a_refused_run_leaves_nothing),
        cmocka_unit_test(forecasts_hold),
    };
    return cmocka_run_group_tests_name("run", tests, open_all, close_all);
}
