/* test_oom.c - memory may end anywhere: whole jobs are done again and again, and each time another
 * allocation fails.
 *
 * A scene is one job from its beginning to its end: a model loaded, a text encoded, a generation of
 * every method with its journal, a judgement with its report, a request to the server. It is played
 * once to count its allocations; then the k-th fails (for even k, all after it too), for every k
 * with KEYHOLE_OOM=whole ("make test-oom"), otherwise for every early k and some of the later ones.
 * Each time the scene must end in KH_ENOMEM with its sentence, or in the very result that it has
 * with memory; no descriptor may be left open. AddressSanitizer ("make test-oom MODE=asan") sees
 * what is leaked or touched after free.
 *
 * SQLite gets its memory from kh_malloc here, so its allocations fail in turn, too. jansson's do
 * not: 2.14 writes beyond a block when its own buffer cannot grow, and base/json.c makes sure that
 * it can (doc/reliability.md). */
#include "site.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/map.h"
#include "posterior/posterior.h"
#include "plm/torch_file.h"
#include "report/page.h"
#include "report/results.h"
#include "run/journal.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <sys/stat.h>

enum {
    TRAIN = 8,
    DEV = 6,
    WRONG = -1000
}; /* WRONG: a scene that says it went well, with another result */

static kh_plm *plm;
static const kh_task *task;
static kh_dataset *train, *dev;
static char run_dir[80], data_dir[80];

/* ----------------------------------------------------------------------------------- the sweep */

/* Plays the scene. *digest gets a hash of what came out. */
typedef int (*scene)(const void *which, uint64_t *digest, kh_err *err);

static int open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (; d && readdir(d); n++)
        continue;
    closedir(d);
    return n;
}

/* A server's side of a connection is closed a moment after the client's. */
static bool are_open(int files) {
    for (int i = 0; i < 200 && open_files() > files; i++)
        usleep(5000);
    return open_files() > files;
}

static long next_fault(long k) {
    const char *how = getenv("KEYHOLE_OOM");
    bool whole = how && strcmp(how, "whole") == 0;
    return k + 1 + (whole || k < 40 ? 0 : k / 12);
}

static void sweep(const char *name, scene play, const void *which) {
    uint64_t want = 0;
    kh_err err = { 0 };
    kh_alloc_fail_at(0, false);
    if (play(which, &want, &err) != 0)
        fail_msg("%s, with memory: %s", name, err.msg);
    long total = kh_alloc_count();
    usleep(20000);
    int files = open_files();
    long played = 0;
    for (long k = 1;; k = next_fault(k), played++) {
        uint64_t got = want;
        err = (kh_err){ 0 };
        kh_alloc_fail_at(k, k % 2 == 0);
        int rc = play(which, &got, &err);
        bool all = kh_alloc_count() < k;
        kh_alloc_fail_at(0, false);
        if (rc == 0 && got != want)
            fail_msg("%s, allocation %ld: it went well, with another result", name, k);
        if (rc != 0 && (all || rc != KH_ENOMEM))
            fail_msg("%s, allocation %ld: %d, %s", name, k, rc, err.msg);
        if (rc != 0 && (err.code != rc || err.msg[0] == '\0'))
            fail_msg("%s, allocation %ld: a failure without a sentence", name, k);
        if (are_open(files))
            fail_msg(
                "%s, allocation %ld: %d open files before, %d after", name, k, files, open_files());
        if (all) {
            printf("# %s: %ld allocations, %ld of them failed in turn\n", name, total, played);
            return;
        }
    }
}

/* ------------------------------------------------------------------------ loading and encoding */

static int load(const void *which, uint64_t *digest, kh_err *err) {
    kh_plm *box;
    int rc = kh_plm_open(&box, tiny_dir,
        &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .precision = *(const kh_precision *)which },
        err);
    if (rc == 0)
        *digest = kh_plm_describe(box).fingerprint;
    kh_plm_close(box);
    return rc;
}

static void a_model_is_loaded(void **state) {
    (void)state;
    static const kh_precision ALL[] = { KH_F32, KH_BF16, KH_INT8 };
    static const char *const NAMES[] = { "model, f32", "model, bf16", "model, int8" };
    for (int i = 0; i < 3; i++)
        sweep(NAMES[i], load, &ALL[i]);
}

static int encode(const void *which, uint64_t *digest, kh_err *err) {
    static const char TEXT[] = "Hello world's <mask> caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 ABC123  "
                               "[SEP]\t\xF0\x9F\x98\x80 low lower\n";
    kh_tokenizer *t;
    kh_ids ids = { 0 }, types = { 0 };
    char *back = NULL;
    size_t n = 0;
    int rc = kh_tokenizer_open(&t, which, err);
    if (rc == 0)
        rc = kh_tokenizer_encode_pair(
            t, TEXT, sizeof TEXT - 1, "aab", 3, KH_ENCODE_FRAME, &ids, &types, err);
    if (rc == 0)
        rc = kh_tokenizer_decode(t, ids.id, ids.n, false, &back, &n, err);
    if (rc == 0)
        *digest = kh_hash64_more(kh_hash64(ids.id, (size_t)ids.n * sizeof *ids.id), back, n);
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_ids_free(&types);
    kh_tokenizer_close(t);
    return rc;
}

static void texts_are_encoded(void **state) {
    (void)state;
    static const char *const FILES[] = { "tiny-bpe", "tiny-wordpiece", "norm-sequence",
        "added-normalized-bert", "dec-sequence", "post-template-odd", "pre-split-regex-words",
        "model-bpe-byte-fallback-partial-fuse" };
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/vectors/tokenizers/%s.json", FILES[i]);
        sweep(FILES[i], encode, path);
    }
}

static int read_rows(const void *which, uint64_t *digest, kh_err *err) {
    const char *name = which;
    const kh_task *t = NULL;
    kh_split split = { 0 };
    kh_dataset *test = NULL;
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    int rc = kh_task_parse(&t, TINY_TASK, sizeof TINY_TASK - 1, name, err);
    kh_dataset_opts o = { .task = t };
    if (rc == 0)
        rc = kh_split_open(&split, data_dir, 4, 1, &o, err);
    if (rc == 0)
        rc = kh_test_open(&test, data_dir, 4, 1, &o, err);
    if (rc == 0)
        rc = kh_words_new(&words, t, kh_plm_tokenizer(plm), false, err);
    if (rc == 0)
        rc = kh_batch_encode(&batch, kh_plm_tokenizer(plm), t, words, kh_dataset_rows(test),
            kh_dataset_size(test), &(kh_batch_opts){ .max_len = kh_plm_describe(plm).max_len },
            err);
    if (rc == 0)
        *digest = kh_hash64(batch->id, batch->start[batch->n_seq] * sizeof *batch->id) +
            (uint64_t)kh_dataset_size(split.train);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_dataset_close(test);
    kh_split_close(&split);
    kh_task_close(t);
    return rc;
}

static void rows_become_a_batch(void **state) {
    (void)state;
    sweep("task, split, batch", read_rows, "toy.json");
}

/* --------------------------------------------------------------- one generation of each method */

typedef struct short_method {
    const char *name, *set[10];
    kh_access access;
} short_method;

static const short_method SHORT[] = {
    { "auto", { 0 }, KH_ACCESS_LABELS },
    { "manual", { 0 }, KH_ACCESS_LOGPROBS },
    { "icl", { "demos=2" }, KH_ACCESS_LOGPROBS },
    { "bbt", { "budget-generations=1", "pop=2", "dev-every=1" }, KH_ACCESS_LOGPROBS },
    { "ensemble", { "budget-generations=1", "pop=2", "members=2", "race=0.2" },
        KH_ACCESS_LOGPROBS },
    { "elbo", { "budget-generations=1", "pop=2", "draws=1", "samples=2" }, KH_ACCESS_LOGPROBS },
    { "abc-rejection", { "samples=2", "tolerance=7", "max-misses=2" }, KH_ACCESS_LABELS },
    { "abc-smc", { "budget-generations=1", "samples=3", "max-misses=2", "first-draws=2" },
        KH_ACCESS_LABELS },
    { "smc", { "budget-levels=1", "samples=3", "first-draws=2", "max-moves=1" }, KH_ACCESS_LABELS },
    { "snpe",
        { "budget-rounds=1", "simulations=10", "samples=2", "transforms=1", "hidden=2",
            "max-epochs=1", "batch=5" },
        KH_ACCESS_LABELS },
    { "text-search", { "candidates=2", "demos=1" }, KH_ACCESS_LOGPROBS },
    { "text-ensemble", { "prompts=2", "demos=1" }, KH_ACCESS_LOGPROBS },
    { "text-smc", { "budget-levels=1", "samples=3", "first-draws=2", "max-moves=1", "demos=1" },
        KH_ACCESS_LABELS },
    { "prompt-tuning", { "epochs=1" }, KH_ACCESS_WEIGHTS },
    { "p-tuning-v2", { "epochs=1" }, KH_ACCESS_WEIGHTS },
    { "model-tuning", { "epochs=1" }, KH_ACCESS_WEIGHTS },
    { "feature-mlp", { "epochs=1", "inner=4" }, KH_ACCESS_WEIGHTS },
    { "feature-bilstm", { "epochs=1", "inner=4" }, KH_ACCESS_WEIGHTS },
    { "feature-logistic", { 0 }, KH_ACCESS_WEIGHTS },
};
enum { N_SHORT = sizeof SHORT / sizeof SHORT[0] };

static void remove_folder(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strncmp(e->d_name, ".", 1) != 0 && unlink(path) != 0)
            remove_folder(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

static kh_plm *boxes[KH_ACCESS_WEIGHTS + 1];

/* A run as "keyhole tune" makes it: a folder, its journal, the posterior saved in it. */
static int tune(const void *which, uint64_t *digest, kh_err *err) {
    const short_method *m = which;
    kh_tune_opts o = kh_tune_defaults();
    kh_posterior *p = NULL;
    kh_run *run;
    o.space = tiny_space();
    o.seed = 13;
    o.max_queries = 1000; /* for auto: the others end before */
    o.model = tiny_dir;
    o.folder = run_dir;
    remove_folder(run_dir);
    int rc = kh_run_open(&run, run_dir, &(kh_run_opts){ .keep_seconds = -1 }, err);
    o.run = run;
    if (rc == 0)
        rc = kh_tune(&p, m->name, m->set, boxes[m->access], task, train, dev, &o, err);
    if (rc == 0)
        rc = kh_posterior_save(p, run_dir, err);
    if (rc == 0)
        rc = kh_run_finish(run, err);
    if (rc == 0)
        *digest = kh_hash64(p->z, (size_t)p->n * (size_t)p->space.dim * sizeof *p->z);
    kh_posterior_free(p);
    kh_run_close(run);
    return rc;
}

static void every_method_tunes(void **state) {
    (void)state;
    for (int i = 0; kh_method_name(i); i++) {
        assert_true(i < N_SHORT);
        assert_string_equal(kh_method_name(i), SHORT[i].name); /* a new method comes in by a row */
        sweep(SHORT[i].name, tune, &SHORT[i]);
    }
    remove_folder(run_dir);
}

/* ------------------------------------------------------------------------- judging and looking */

static int judge(const void *which, uint64_t *digest, kh_err *err) {
    kh_eval e = { 0 };
    kh_posterior *p;
    kh_buf results = kh_buf_init(KH_BUF_MAX), rows = kh_buf_init(KH_BUF_MAX),
           page = kh_buf_init(KH_BUF_MAX);
    kh_runlog log = { 0 };
    kh_page g = { .eval = &e,
        .log = &log,
        .run = "r",
        .options = "{}",
        .plotter = { .program = "none", .missing = true } };
    kh_eval_opts o = {
        .data = data_dir, .decide = kh_decision_defaults(), .bootstrap = { 5, 0.95, 0 }
    };
    int rc = kh_posterior_open(&p, which, err);
    if (rc == 0)
        rc = kh_eval_run(&e, p, plm, &o, err);
    if (rc == 0)
        rc = kh_page_write(&g, &page, err);
    if (rc == 0) {
        kh_results_json(&e, "r", "{}", &results);
        kh_eval_rows_json(&e, &rows);
        if (kh_buf_failed(&results) ||
            kh_buf_failed(&rows)) { /* whoever asked for them would see */
            rc = KH_ENOMEM;
            *err = (kh_err){ KH_ENOMEM, 0, "out of memory" };
        } else
            *digest = kh_hash64(rows.data, rows.len) + page.len;
    }
    kh_eval_clear(&e);
    kh_posterior_free(p);
    kh_buf_free(&results);
    kh_buf_free(&rows);
    kh_buf_free(&page);
    return rc;
}

static int look(const void *which, uint64_t *digest, kh_err *err) {
    kh_run_info i;
    int rc = kh_run_info_read(&i, which, err);
    if (rc == 0)
        *digest = kh_hash64(i.method, strlen(i.method)) + (uint64_t)i.answers;
    kh_run_info_free(&i);
    return rc;
}

static int predict(const void *which, uint64_t *digest, kh_err *err) {
    kh_posterior *p;
    kh_predictor *predictor = NULL;
    double q[DEV * 2];
    int rc = kh_posterior_open(&p, which, err);
    if (rc == 0)
        rc = kh_predictor_new(&predictor, p, plm, NULL, err);
    if (rc == 0)
        rc = kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, q, err);
    if (rc == 0)
        *digest = kh_hash64(q, sizeof q);
    kh_predictor_free(predictor);
    kh_posterior_free(p);
    return rc;
}

static void make_run(void) {
    uint64_t digest;
    kh_err err;
    if (tune(&SHORT[4], &digest, &err) != 0)
        fail_msg("%s", err.msg);
}

static void a_run_is_judged_and_looked_at(void **state) {
    (void)state;
    make_run();
    sweep("eval with report", judge, run_dir);
    sweep("run info", look, run_dir);
    sweep("predict", predict, run_dir);
    remove_folder(run_dir);
}

/* ---------------------------------------------------------------------------------- the server */

#ifdef KH_WITH_MHD

typedef struct request {
    const site *s;
    const char *method, *path, *body;
} request;

/* 200 with the right body, 503, or nothing at all if the connection itself has found no memory. */
static int ask_server(const void *which, uint64_t *digest, kh_err *err) {
    const request *r = which;
    int status = ask(r->s, r->method, r->path, "", r->body, answer, sizeof answer);
    char *body = strstr(answer, "\r\n\r\n"), *created = body ? strstr(body, "\"created\":") : NULL;
    if (created)
        memset(created, ' ', strspn(created, "\"created:0123456789"));
    if (status == 200 && body)
        *digest = kh_hash64(body, strlen(body));
    if (status == 200)
        return 0;
    *err = (kh_err){ status == 503 || status == 0 ? KH_ENOMEM : WRONG, 0, "" };
    snprintf(err->msg, sizeof err->msg, "%d, %.600s", status, body ? body : "no answer");
    return err->code;
}

static void ask_all(const site *s, const request *all, int n) {
    for (int i = 0; i < n; i++) {
        request r = all[i];
        r.s = s;
        sweep(r.path, ask_server, &r);
    }
}

static void the_server_answers(void **state) {
    (void)state;
    static char embeds[32768];
    static const char TASK[] = "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
                               ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                               "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    static char score[1024];
    snprintf(score, sizeof score,
        "{\"want\":\"logprobs\",\"encoding\":\"json\",\"task\":%s,\"texts\":[\"the boats\",\"were "
        "small\"]}",
        TASK);
    const request ALL[] = {
        { NULL, "GET", "/health", "" },
        { NULL, "GET", "/v1/models", "" },
        { NULL, "GET", "/v1/model", "" },
        { NULL, "GET", "/v1/tokenizer", "" },
        { NULL, "GET", "/v1/embedding?id=7", "" },
        { NULL, "POST", "/v1/score", score },
        { NULL, "POST", "/v1/score",
            "{\"want\":\"labels\",\"ids\":[[0,30,31,4,2]],\"mask\":[3],\"labels\":[[[40]],[[41]]]"
            "}" },
        { NULL, "POST", "/v1/completions",
            "{\"prompt\":[\"the <mask> boats\",\"a <mask>\"],\"max_tokens\":1,\"logprobs\":5}" },
        { NULL, "POST", "/v1/completions", embeds },
        { NULL, "POST", "/v1/embeddings", "{\"input\":[\"the boats\",\"were green\"]}" },
    };
    (void)embeds;
    kh_server_opts o = kh_server_defaults();
    site s = { .plm = tiny_open(KH_ACCESS_LOGPROBS) };
    kh_err err;
    o.port = 0;
    if (kh_server_start(&s.server,
            &(kh_served){ .plm = s.plm, .name = "tiny", .dir = tiny_dir, .embeddings = true }, &o,
            &err) != 0)
        fail_msg("%s", err.msg);
    /* Word embeddings in place of words: the mask's own row, as a file of torch.save. */
    kh_buf file = kh_buf_init(1 << 20), text = kh_buf_init(1 << 20);
    float row[2 * 32];
    int32_t mask = kh_tokenizer_special(kh_plm_tokenizer(s.plm), KH_TOKEN_MASK);
    assert_int_equal(kh_plm_embedding_row(s.plm, 30, row, NULL), 0);
    assert_int_equal(kh_plm_embedding_row(s.plm, mask, row + 32, NULL), 0);
    kh_torch_put(&file, row, 2, 32);
    kh_base64_put(&text, file.data, file.len);
    snprintf(embeds, sizeof embeds, "{\"prompt_embeds\":\"%s\",\"max_tokens\":1}", text.data);
    kh_buf_free(&file);
    kh_buf_free(&text);
    ask_all(&s, ALL, (int)(sizeof ALL / sizeof ALL[0]));
    site_close(&s);
}

static void a_classifier_answers(void **state) {
    (void)state;
    static const request ALL[] = {
        { NULL, "GET", "/", "" },
        { NULL, "GET", "/v1/run", "" },
        { NULL, "POST", "/v1/classify", "{\"text\":\"the boats were green\"}" },
        { NULL, "POST", "/v1/classify", "{\"texts\":[\"the boats were green\",\"small\"]}" },
    };
    make_run();
    kh_server_opts o = kh_server_defaults();
    kh_posterior *p;
    site s = { .plm = tiny_open(KH_ACCESS_LOGPROBS) };
    kh_err err;
    o.port = 0;
    if (kh_posterior_open(&p, run_dir, &err) != 0 ||
        kh_server_start(&s.server,
            &(kh_served){ .plm = s.plm, .name = "desk", .posterior = p, .run = run_dir }, &o,
            &err) != 0)
        fail_msg("%s", err.msg);
    ask_all(&s, ALL, (int)(sizeof ALL / sizeof ALL[0]));
    site_close(&s);
    kh_posterior_free(p);
    remove_folder(run_dir);
}

static int serve(const void *which, uint64_t *digest, kh_err *err) {
    kh_server_opts o = kh_server_defaults();
    kh_server *s;
    o.port = 0;
    int rc =
        kh_server_start(&s, &(kh_served){ .plm = plm, .name = which, .dir = tiny_dir }, &o, err);
    kh_server_stop(s);
    *digest = 0;
    return rc;
}

static void a_server_starts(void **state) {
    (void)state;
    sweep("server start", serve, "tiny");
}

/* Both sides in one process: memory ends on one of them, and the client must not wait for what will
 * not come. */
static int ask_through(const void *which, uint64_t *digest, kh_err *err) {
    kh_http_opts http = kh_http_defaults();
    kh_plm *box;
    http.retries = 0;
    http.timeout = 20;
    int rc = kh_plm_open(
        &box, which, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .http = &http }, err);
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    float out[DEV * 2];
    if (rc == 0)
        rc = kh_words_new(&words, task, kh_plm_tokenizer(box), false, err);
    if (rc == 0)
        rc = kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, kh_dataset_rows(dev), DEV,
            &(kh_batch_opts){ .max_len = kh_plm_describe(box).max_len }, err);
    if (rc == 0)
        rc = kh_plm_score(kh_plm_scorer(box, NULL),
            &(kh_question){ .batch = batch, .words = words, .n_prompt = 1 }, out, err);
    if (rc == 0)
        *digest = kh_hash64(out, sizeof out);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_plm_close(box);
    if (rc == KH_EIO &&
        (strstr(err->msg, "503") ||
            strstr(err->msg, "mpty reply"))) /* it was the server's memory */
        rc = err->code = KH_ENOMEM;
    return rc;
}

static void a_client_asks(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_plm *warm;
    assert_int_equal(
        kh_plm_open(&warm, s.url, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, NULL),
        0); /* what libcurl keeps */
    kh_plm_close(warm);
    sweep("client and server", ask_through, s.url);
    site_close(&s);
}

#endif

/* ---------------------------------------------------------------------------------- all scenes */

static int usable_size(void *p) { return (int)malloc_usable_size(p); }
static int round_up(int n) { return (n + 7) & ~7; }
static int start_memory(void *user) { return user ? SQLITE_ERROR : SQLITE_OK; }
static void end_memory(void *user) { (void)user; }
static void *sqlite_malloc(int n) { return kh_malloc((size_t)n); }
static void *sqlite_realloc(void *p, int n) { return kh_realloc(p, (size_t)n); }

/* From here on SQLite asks kh_malloc. */
static void route_memory(void) {
    static const sqlite3_mem_methods METHODS = { .xMalloc = sqlite_malloc,
        .xFree = kh_free,
        .xRealloc = sqlite_realloc,
        .xSize = usable_size,
        .xRoundup = round_up,
        .xInit = start_memory,
        .xShutdown = end_memory };
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &METHODS), SQLITE_OK);
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
    assert_int_equal(sqlite3_initialize(), SQLITE_OK);
}

static void write_rows(const char *name, int n) {
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_text(&b, "label\ttext\n");
    for (int i = 0; i < n; i++)
        kh_buf_printf(&b, "%s\tthe boats were green %d\n", i % 2 ? "good" : "bad", i);
    char *path = kh_path_join(data_dir, name);
    assert_int_equal(kh_file_write(path, b.data, b.len, NULL), 0);
    kh_free(path);
    kh_buf_free(&b);
}

static int open_all(void **state) {
    route_memory();
    tiny_setup(state);
    kh_threads_set(1);
    for (int a = KH_ACCESS_LABELS; a <= KH_ACCESS_WEIGHTS; a++)
        boxes[a] = tiny_open((kh_access)a);
    plm = boxes[KH_ACCESS_LOGPROBS];
    task = tiny_task();
    train = tiny_rows(TRAIN, 1, -1);
    dev = tiny_rows(DEV, 2, -1);
    const char *root =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* waiting for a disk shows nothing */
    snprintf(run_dir, sizeof run_dir, "%s/keyhole-test-oom-%ld", root, (long)getpid());
    snprintf(data_dir, sizeof data_dir, "%s/keyhole-test-oom-data-%ld", root, (long)getpid());
    mkdir(data_dir, 0700);
    write_rows("train.tsv", 24);
    write_rows("test.tsv", 10);
    return 0;
}

static int close_all(void **state) {
    remove_folder(data_dir);
    remove_folder(run_dir);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    for (int a = KH_ACCESS_LABELS; a <= KH_ACCESS_WEIGHTS; a++)
        kh_plm_close(boxes[a]);
    return tiny_teardown(state);
}

int main(int argc, char **argv) {
    if (argc > 1) /* some scenes only: a pattern of names */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_loaded),
        cmocka_unit_test(texts_are_encoded),
        cmocka_unit_test(rows_become_a_batch),
        cmocka_unit_test(every_method_tunes),
        cmocka_unit_test(a_run_is_judged_and_looked_at),
#ifdef KH_WITH_MHD
        cmocka_unit_test(the_server_answers),
        cmocka_unit_test(a_classifier_answers),
        cmocka_unit_test(a_server_starts),
        cmocka_unit_test(a_client_asks),
#endif
    };
    return cmocka_run_group_tests_name("oom", tests, open_all, close_all);
}
