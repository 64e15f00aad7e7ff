/* fuzz_journal.c - any bytes as run.sqlite: looked at, and taken up again. After a line of "%%J"
 * or "%%W" follows what stands beside it, run.sqlite-journal or run.sqlite-wal. No other file may
 * be removed. */
#include "fuzz/model.h"
#include "run/run.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void see_option(void *user, const kh_run_option *o) {
    *(size_t *)user += strlen(o->name) + strlen(o->value);
}
static void see_line(void *user, const char *line, const char *facts) {
    *(size_t *)user += strlen(line) + strlen(facts);
}
static void see_past(void *user, const char *line) { *(size_t *)user += strlen(line); }

static void clean(void) {
    static const char *const FILES[] = { "run.sqlite", "run.sqlite-wal", "run.sqlite-shm",
        "run.sqlite-journal", "run.lock", "victim" };
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        fuzz_drop(FILES[i]);
}

static void end(void) {
    clean();
    rmdir(fuzz_folder);
}

static void look(void) {
    kh_run_info i;
    kh_err err = { 0 };
    size_t seen = 0;
    int next;
    if (kh_run_info_read(&i, fuzz_folder, &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    else
        assert(i.method && i.state && i.task);
    kh_run_info_free(&i);
    kh_run_read_options(fuzz_folder, see_option, &seen, NULL);
    kh_run_read_lines(fuzz_folder, 0, see_line, &seen, &next, NULL);
}

/* As tuning does: begins, recalls what was kept, records an answer. */
static void go_on(void) {
    static const kh_run_card CARD = {
        .method = "bbt", .task = "toy", .model = "m", .data = "d", .access = "logprobs", .seed = 13
    };
    static const kh_run_option OPTION = { "--seed", "13", false };
    kh_err err = { 0 };
    kh_run *run;
    kh_run_books books;
    size_t seen = 0;
    float answer[2] = { -1, -2 };
    kh_answer_unit unit = {
        .kind = KH_ANSWER_LOGPROBS, .n_row = 1, .bytes = answer, .n = sizeof answer
    };
    kh_buf state = kh_buf_init(KH_BUF_MAX);
    int rc = kh_run_open(&run, fuzz_folder, &(kh_run_opts){ .resume = true }, &err);
    if (rc == 0)
        rc = kh_run_begin(run, &CARD, &OPTION, 1, &err);
    if (rc == 0) {
        const kh_answer_cache *t = kh_run_cache(run);
        double seconds;
        kh_run_recall(run, "search", 0, &books, &state, see_past, &seen, NULL);
        kh_run_generation(run, "bbt", 1, 2, "generation=1 loss=0.5");
        if (t->recall(t->self, &unit.key, answer, sizeof answer, &seconds, NULL) == 0)
            t->record(t->self, &unit, 1, NULL);
        rc = kh_run_end(run, &(kh_run_result){ .dev = 0.5, .stopped = "done" }, NULL, &err);
    }
    assert(rc == 0 || (err.code == rc && err.msg[0]));
    kh_buf_free(&state);
    kh_run_close(run);
}

/* The database in *n bytes; what follows it becomes a file. */
static void put_beside(const uint8_t *data, size_t *n) {
    static const char *const MARK[] = { "\n%%J\n", "\n%%W\n" };
    static const char *const NAME[] = { "run.sqlite-journal", "run.sqlite-wal" };
    for (int i = 0; i < 2; i++) {
        const uint8_t *at = *n > 0 ? memmem(data, *n, MARK[i], 5) : NULL;
        if (at) {
            fuzz_put(NAME[i], at + 5, *n - (size_t)(at - data) - 5);
            *n = (size_t)(at - data);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char victim[128];
    if (!fuzz_folder[0]) {
        fuzz_folder_make("journal");
        atexit(end);
    }
    clean();
    snprintf(victim, sizeof victim, "%s/victim", fuzz_folder);
    fuzz_put("victim", "", 0);
    put_beside(data, &n);
    fuzz_put("run.sqlite", data, n);
    look();
    go_on();
    assert(kh_file_exists(victim));
    return 0;
}
