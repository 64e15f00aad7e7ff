/* run.c - a run from begin to end; see run.h for how it resumes.
 *
 * Writes are grouped: a transaction opens with the first write and is committed with each piece of
 * answers, so that lines of generations ride along. Nothing is handed to a method before its
 * commit. */
#include "run/run.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "posterior/posterior.h"
#include "run/journal.h"
#include "run/lock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STATEMENTS(X) \
    X(BEGIN, "BEGIN IMMEDIATE") \
    X(COMMIT, "COMMIT") \
    X(PUT_ANSWER, \
        "INSERT INTO answers (session, question, kind, rows, tokens, at, seconds, answer, sum) " \
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)") \
    X(GET_ANSWER, "SELECT answer, seconds, sum FROM answers WHERE id = ?") \
    X(PUT_GENERATION, \
        "INSERT OR REPLACE INTO generations (n, at, phase, done, total, line, facts) VALUES (?, " \
        "?, ?, ?, ?, ?, ?)") \
    X(GET_LINES, "SELECT line FROM generations WHERE n >= ? AND n < ? ORDER BY n") \
    X(PUT_KEPT, "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") \
    X(GET_KEPT, \
        "SELECT answers, generations, prompts, queries, dev_queries, tokens, seconds, bytes FROM " \
        "kept WHERE name = ? AND number " \
        "= ?") \
    X(DROP_KEPT, "DELETE FROM kept WHERE name = ? AND number = ?") \
    X(PUT_EVENT, "INSERT INTO events (at, session, what, text) VALUES (?, ?, ?, ?)")

enum {
#define STATEMENT_ENUM(name, sql) name,
    STATEMENTS(STATEMENT_ENUM)
#undef STATEMENT_ENUM
        N_STATEMENT
};

enum { MOST_SESSIONS = 1 << 30, MOST_GENERATIONS = 1 << 30 };
static const long long MOST_COUNTED = 1LL << 53; /* prompts, queries, tokens */

/* An answer in the journal. */
typedef struct entry {
    long long id;
    int epoch;
    bool used;
    bool part; /* one row of a question that failed */
} entry;

/* The kind of such an answer in the journal: "part:labels". */
static const char PART[] = "part:";

struct kh_run {
    kh_run_opts o;
    char *dir;
    bool made; /* the folder is ours: a run that never began takes it away again */
    kh_lock lock;
    kh_journal j;
    sqlite3_stmt *stmt[N_STATEMENT];
    bool begun, resumed, writing; /* writing: a transaction is open */
    kh_answer_cache cache;
    kh_err failed; /* of a write that nobody could be told of */

    long long session, last; /* last: the id of the newest answer */
    int epoch;
    entry *entries; /* by their numbers in `index` */
    int n_entry;
    size_t cap_entry;
    kh_map index; /* key -> entry */
    kh_arena keys;
    int n_part; /* entries that are parts */
    int unused; /* answers of this epoch that have not been asked for again, */
    int left;   /* and of all earlier ones */
    bool replaying, finish;
    bool earlier; /* the last answer is of an earlier epoch */
    double spent, rate;
    bool careful; /* commits wait for the disk */

    int n_generation;
    kh_buf columns;  /* of the view "log": names of facts, each with a newline after it */
    FILE *log;       /* log.txt; NULL before the first line */
    kh_err unlogged; /* what went wrong with it first */
};

static double wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------- log.txt */

/* The lines of the journal's generations for people and their tools: what is told here is what the
 * table holds. A resumed run writes the file from its beginning, as it passes all generations
 * again, so that it is the same as if nobody had interrupted it. */

static int log_open(kh_run *r, kh_err *err) {
    char *path = kh_path_join(r->dir, "log.txt");
    int rc = path ? kh_file_open_log(path, &r->log, err) : kh_fail_memory(err);
    kh_free(path);
    return rc;
}

static void log_failed(kh_run *r) {
    kh_fail(&r->unlogged, KH_EIO, "%s/log.txt: cannot write; is the disk full?", r->dir);
}

/* The file is made with the first line, so that a run that is refused leaves none. A failure is
 * told at the end: the journal has the line too. */
static void log_line(kh_run *r, const char *line) {
    if (r->unlogged.code || (!r->log && log_open(r, &r->unlogged) != 0))
        return;
    if (fprintf(r->log, "%s\n", line) < 0 || fflush(r->log) != 0)
        log_failed(r);
}

static void log_close(kh_run *r) {
    if (r->log && fclose(r->log) != 0 && !r->unlogged.code)
        log_failed(r);
    r->log = NULL;
}

/* A run that has come to its end has a log, if only an empty one. */
static int log_finish(kh_run *r, kh_err *err) {
    if (!r->log && !r->unlogged.code)
        log_open(r, &r->unlogged);
    log_close(r);
    return r->unlogged.code ? kh_fail(err, r->unlogged.code, "%s", r->unlogged.msg) : 0;
}

/* --------------------------------------------------------------------------------- open, close */

/* Nothing, or the sentence that tells what to type. */
static int check_folder(const kh_run *r, kh_err *err) {
    kh_run_info i;
    char *path = kh_path_join(r->dir, KH_JOURNAL_FILE);
    bool there = path && kh_file_exists(path);
    kh_free(path);
    if (!path)
        return kh_fail_memory(err);
    if (r->o.overwrite)
        return 0;
    if (!there)
        return kh_posterior_exists(r->dir) ? kh_fail(err, KH_EARG,
                                                 "%s: holds a posterior already, but not the run "
                                                 "that made it; --force writes over it",
                                                 r->dir)
                                           : 0;
    if (r->o.resume)
        return 0; /* kh_run_begin compares */
    int rc = kh_run_info_read(&i, r->dir, err);
    if (rc != 0)
        return rc;
    if (strcmp(i.state, "finished") == 0)
        rc = kh_fail(err, KH_EARG,
            "%s: holds a posterior already, of a finished run of %s; --force writes over it, %s",
            r->dir, i.method,
            strcmp(i.method, "manual") == 0 ? "another --out keeps it"
                                            : "--resume with a larger budget goes on");
    else
        rc = kh_fail(err, KH_EARG,
            "%s: holds an unfinished run of %s (%lld queries so far); --resume goes on with it, "
            "--finish makes a classifier of what is there, --force starts again",
            r->dir, i.method, i.queries);
    kh_run_info_free(&i);
    return rc;
}

int kh_run_open(kh_run **out, const char *dir, const kh_run_opts *opts, kh_err *err) {
    *out = NULL;
    kh_run *r = kh_calloc(1, sizeof *r);
    if (!r)
        return kh_fail_memory(err);
    r->o = *opts;
    r->lock.fd = -1;
    r->columns = kh_buf_init(1 << 16);
    r->dir = kh_strdup(dir);
    r->made = !kh_dir_exists(dir);
    int rc = r->dir ? kh_dir_make(dir, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_lock_take(&r->lock, dir, err);
    if (rc == 0)
        rc = check_folder(r, err);
    if (rc != 0)
        kh_run_close(r);
    else
        *out = r;
    return rc;
}

void kh_run_close(kh_run *r) {
    if (!r)
        return;
    if (r->writing)
        sqlite3_exec(r->j.db, "COMMIT", NULL, NULL, NULL);
    for (int i = 0; i < N_STATEMENT; i++)
        sqlite3_finalize(r->stmt[i]);
    kh_journal_close(&r->j);
    log_close(r);
    kh_lock_release(&r->lock);
    if (r->made && !r->begun && r->dir)
        rmdir(r->dir);
    kh_free(r->entries);
    kh_map_free(&r->index);
    kh_arena_free(&r->keys);
    kh_buf_free(&r->columns);
    kh_free(r->dir);
    kh_free(r);
}

/* -------------------------------------------------------------------------------- transactions */

static int ensure_writing(kh_run *r, kh_err *err) {
    int rc = r->writing ? 0 : kh_journal_step(&r->j, r->stmt[BEGIN], err);
    r->writing |= rc == 0;
    return rc;
}

/* Commits, or takes everything since the last commit back. */
static int settle(kh_run *r, int rc, kh_err *err) {
    if (rc == 0 && r->writing)
        rc = kh_journal_step(&r->j, r->stmt[COMMIT], err);
    if (rc != 0 && r->writing && !sqlite3_get_autocommit(r->j.db))
        sqlite3_exec(r->j.db, "ROLLBACK", NULL, NULL, NULL);
    r->writing = false;
    return rc;
}

/* A piece that took long may as well wait for the disk; so on a slow model even the end of the
 * machine loses nothing. */
static int set_care(kh_run *r, double seconds, kh_err *err) {
    bool careful = seconds > 0.25;
    if (careful == r->careful)
        return 0;
    r->careful = careful;
    int rc = settle(r, 0, err); /* SQLite takes no such change inside a transaction */
    return rc != 0
        ? rc
        : kh_journal_exec(
              &r->j, careful ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", err);
}

/* ----------------------------------------------------------------------------------- the cache */

static int add_entry(kh_run *r, const void *key, const entry *e, kh_err *err) {
    char *copy = kh_arena_strndup(&r->keys, key, sizeof(kh_answer_key));
    if (!copy || !kh_grow(&r->entries, &r->cap_entry, (size_t)r->n_entry + 1, sizeof *r->entries) ||
        kh_map_add(&r->index, copy, sizeof(kh_answer_key), r->n_entry, NULL) < 0)
        return kh_fail_memory(err);
    r->entries[r->n_entry++] = *e;
    r->n_part += e->part;
    r->last = e->id > r->last ? e->id : r->last;
    return 0;
}

static entry *find_entry(const kh_run *r, const kh_answer_key *key) {
    int32_t i;
    return kh_map_get(&r->index, (const char *)key, sizeof *key, &i) ? &r->entries[i] : NULL;
}

static void mark_used(kh_run *r, entry *e) {
    if (!e->used && !e->part) {
        r->unused -= e->epoch == r->epoch;
        r->left -= e->epoch != r->epoch;
    }
    e->used = true;
}

static bool tape_stop(void *self) {
    kh_run *r = self;
    return r->o.stop && r->o.stop(r->o.user) != 0;
}

static bool tape_known(void *self, const kh_answer_key *key) {
    return find_entry(self, key) != NULL;
}

/* A flipped bit is another answer, and nobody would see it. */
static sqlite3_int64 sum_of(const kh_answer_key *key, const void *bytes, size_t n) {
    uint64_t h = kh_hash64_more(kh_hash64(key, sizeof *key), bytes, n);
    sqlite3_int64 sum;
    memcpy(&sum, &h, sizeof sum);
    return sum;
}

static bool tape_has_parts(void *self) { return ((kh_run *)self)->n_part > 0; }

static int tape_recall(
    void *self, const kh_answer_key *key, void *bytes, size_t n, double *seconds, kh_err *err) {
    kh_run *r = self;
    entry *e = find_entry(r, key);
    if (!e && r->unused > 0)
        return kh_fail(err, KH_EMISMATCH,
            "%s: %d recorded answers belong to other questions than are asked now: the program, or "
            "the arithmetic of this machine, "
            "is not "
            "what it was when the run began; resume it there, or start again with --force",
            r->j.path, r->unused);
    r->replaying = e != NULL;
    r->earlier = e && e->epoch != r->epoch;
    if (!e)
        return 0;
    sqlite3_stmt *s = r->stmt[GET_ANSWER];
    int rc = kh_journal_bind(&r->j, s, err, "i", e->id);
    if (rc == 0)
        rc = kh_journal_step(&r->j, s, err);
    const void *blob = rc == 1 ? sqlite3_column_blob(s, 0) : NULL;
    bool fits = blob && (size_t)sqlite3_column_bytes(s, 0) == n &&
        (sqlite3_column_type(s, 2) == SQLITE_NULL ||
            sqlite3_column_int64(s, 2) == sum_of(key, blob, n));
    if (fits) {
        memcpy(bytes, blob, n);
        *seconds = sqlite3_column_double(s, 1);
        mark_used(r, e);
    } else if (rc >= 0)
        rc = kh_fail(err, KH_EFORMAT, "%s: answer %lld is damaged; --force starts the run again",
            r->j.path, e->id);
    sqlite3_reset(s);
    return rc;
}

/* Equal prompts of one piece are one answer. */
static int put_units(kh_run *r, const kh_answer_unit *u, int n, kh_err *err) {
    double at = wall();
    int rc = ensure_writing(r, err);
    for (int i = 0; i < n && rc == 0; i++) {
        if (find_entry(r, &u[i].key))
            continue;
        char kind[32];
        snprintf(kind, sizeof kind, "%s%s", u[i].part ? PART : "", kh_answer_kind_name(u[i].kind));
        rc = kh_journal_do(&r->j, r->stmt[PUT_ANSWER], err, "ibtiiddbi", r->session, &u[i].key,
            sizeof u[i].key, kind, (long long)u[i].n_row, u[i].tokens, at, u[i].seconds, u[i].bytes,
            u[i].n, (long long)sum_of(&u[i].key, u[i].bytes, u[i].n));
        if (rc == 0)
            rc = add_entry(r, &u[i].key,
                &(entry){ sqlite3_last_insert_rowid(r->j.db), r->epoch, true, u[i].part }, err);
    }
    return settle(r, rc, err);
}

static int tape_record(void *self, const kh_answer_unit *u, int n, kh_err *err) {
    kh_run *r = self;
    if (r->failed.code)
        return kh_fail(err, r->failed.code, "%s", r->failed.msg);
    int rc = set_care(r, u->seconds * n, err);
    return rc == 0 ? put_units(r, u, n, err) : rc;
}

const kh_answer_cache *kh_run_cache(kh_run *r) { return &r->cache; }
bool kh_run_resumed(const kh_run *r) { return r->resumed; }
bool kh_run_replaying(const kh_run *r) { return r->replaying; }
bool kh_run_caught_up(const kh_run *r) { return r->unused == 0; }
void kh_run_ask_finish(kh_run *r) { r->finish = true; }
bool kh_run_finishes(const kh_run *r) { return r && r->finish; }
/* What was answered while a run was finished, before that was interrupted, is no part of what is to
 * be finished: the end is where it was then. */
bool kh_run_at_end(const kh_run *r) { return r->left == 0 || !r->earlier; }
/* A state of some megabytes every ten seconds takes a thousandth of the time. */
double kh_run_keep_seconds(const kh_run *r) {
    return r->o.keep_seconds == 0 ? 10 : r->o.keep_seconds;
}
double kh_run_spent(const kh_run *r) { return r->spent; }
double kh_run_rate(const kh_run *r) { return r->rate; }

/* --------------------------------------------------------------------------------------- begin */

/* What has changed since the run was last at work. */
typedef struct changes {
    bool budgets, finish;
} changes;

static void note_change(changes *c, const kh_run_option *o, const char *was) {
    bool finish = strcmp(o->name, KH_RUN_FINISH) == 0;
    c->budgets |= o->budget && !finish;
    c->finish |= finish && (was || strcmp(o->value, "false") != 0);
}

/* An existing run must be the one that is asked for. Tells all differences at once. */
static int compare_options(kh_run *r, const kh_run_option *o, int n, changes *c, kh_err *err) {
    sqlite3_stmt *s = NULL;
    kh_buf diff = kh_buf_init(700);
    int found = 0,
        rc = kh_journal_prepare(&r->j, &s, "SELECT value FROM options WHERE name = ?", err);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = kh_journal_bind(&r->j, s, err, "t", o[i].name);
        if (rc == 0)
            rc = kh_journal_step(&r->j, s, err);
        const char *was = rc == 1 ? (const char *)sqlite3_column_text(s, 0) : NULL;
        rc = rc > 0 ? 0 : rc;
        if (rc == 0 && (!was || strcmp(was, o[i].value) != 0)) {
            note_change(c, &o[i], was);
            if (!o[i].budget)
                kh_buf_printf(&diff, "%s%s was %.80s and is %.80s now", found++ ? ", " : "",
                    o[i].name, was ? was : "not there", o[i].value);
        }
        sqlite3_reset(s);
    }
    sqlite3_finalize(s);
    if (rc == 0 && found)
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: holds another run: %s; give what was given then, or start again with --force",
            r->dir, diff.data ? diff.data : "options differ");
    kh_buf_free(&diff);
    return rc;
}

static int write_options(kh_run *r, const kh_run_option *o, int n, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s,
        "INSERT INTO options VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET value = "
        "excluded.value",
        err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = kh_journal_do(&r->j, s, err, "tti", o[i].name, o[i].value, (long long)o[i].budget);
    sqlite3_finalize(s);
    return rc;
}

static int write_card(kh_run *r, const kh_run_card *c, kh_err *err) {
    sqlite3_stmt *s = NULL;
    char seed[32];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);
    int rc = kh_journal_prepare(&r->j, &s,
        "INSERT INTO run (id, method, task, model, data, seed, access, metric, version, started) "
        "VALUES (1, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?)",
        err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, s, err, "ttttttttd", c->method, c->task, c->model, c->data, seed,
            c->access, c->metric, kh_version(), wall());
    sqlite3_finalize(s);
    return rc;
}

/* Answers, with the epoch they were given in, and how fast they came. */
static int load_answers(kh_run *r, kh_err *err) {
    sqlite3_stmt *s = NULL;
    double queries = 0, seconds = 0;
    int rc = kh_journal_prepare(&r->j, &s,
        "SELECT a.id, a.question, s.epoch, a.rows, a.seconds, a.kind FROM answers a JOIN sessions "
        "s ON "
        "s.id = a.session ORDER BY a.id",
        err);
    int got = rc;
    while (rc == 0 && (got = kh_journal_step(&r->j, s, err)) == 1) {
        const void *question = sqlite3_column_blob(s, 1);
        const char *kind = (const char *)sqlite3_column_text(s, 5);
        bool part = kind && strncmp(kind, PART, sizeof PART - 1) == 0;
        if (!question || sqlite3_column_bytes(s, 1) != (int)sizeof(kh_answer_key))
            rc =
                kh_fail(err, KH_EFORMAT, "%s: answer %lld is damaged; --force starts the run again",
                    r->j.path, (long long)sqlite3_column_int64(s, 0));
        else
            rc = add_entry(r, question,
                &(entry){ sqlite3_column_int64(s, 0), sqlite3_column_int(s, 2), false, part }, err);
        queries += sqlite3_column_double(s, 3);
        seconds += sqlite3_column_double(s, 4);
    }
    sqlite3_finalize(s);
    r->rate = seconds > 0 ? queries / seconds : 0;
    return rc == 0 ? got : rc;
}

/* The last session: its epoch, and whether it came to an end of its own; and the time of all of
 * them. */
static int load_sessions(kh_run *r, bool *ended, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s,
        "SELECT id, epoch, how, max(coalesce(ended, last, started) - started, 0) FROM sessions"
        "  LEFT JOIN (SELECT session, max(at) AS last FROM answers GROUP BY session) ON session = "
        "id ORDER BY id",
        err);
    int got = rc;
    while (rc == 0 && (got = kh_journal_step(&r->j, s, err)) == 1) {
        const char *how = (const char *)sqlite3_column_text(s, 2);
        r->session = sqlite3_column_int64(s, 0);
        r->epoch = sqlite3_column_int(s, 1);
        *ended = how && strcmp(how, "finished") == 0;
        r->spent +=
            sqlite3_column_double(s, 3); /* one that was killed worked until its last answer */
    }
    sqlite3_finalize(s);
    if (got == 0 &&
        (r->session < 0 || r->session >= MOST_SESSIONS || r->epoch < 0 ||
            r->epoch >= MOST_SESSIONS))
        return kh_fail(err, KH_EFORMAT,
            "%s: damaged: session %lld of epoch %d; --force starts the run again", r->j.path,
            (long long)r->session, r->epoch);
    return got;
}

static int start_session(kh_run *r, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s,
        "INSERT INTO sessions (id, epoch, version, pid, started) VALUES (?, ?, ?, ?, ?)", err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, s, err, "iitid", r->session, (long long)r->epoch, kh_version(),
            (long long)getpid(), wall());
    sqlite3_finalize(s);
    if (rc == 0)
        rc = kh_journal_exec(&r->j,
            "UPDATE run SET state = 'running', ended = NULL, stopped = NULL, dev = NULL", err);
    return rc;
}

static int count_rows(kh_run *r, const char *sql, int *out, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s, sql, err);
    if (rc == 0)
        rc = kh_journal_step(&r->j, s, err);
    *out = rc == 1 ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    return rc < 0 ? rc : 0;
}

/* What is there, compared and loaded, or a new run; then a session of ours. In one transaction. */
static int write_begin(
    kh_run *r, const kh_run_card *card, const kh_run_option *o, int n, kh_err *err) {
    int there;
    changes c = { 0 };
    bool ended = false;
    int rc = count_rows(r, "SELECT count(*) FROM run", &there, err);
    r->resumed = there > 0;
    if (rc == 0 && there) {
        rc = compare_options(r, o, n, &c, err);
        if (rc == 0)
            rc = load_sessions(r, &ended, err);
        if (rc == 0)
            rc = load_answers(r, err);
    } else if (rc == 0)
        rc = write_card(r, card, err);
    if (rc != 0)
        return rc;
    r->session++;
    /* What has been finished where its answers end, and is finished once more, ends there again. */
    r->epoch += !there || c.budgets || c.finish || (ended && !r->finish);
    for (int i = 0; i < r->n_entry; i++) {
        r->unused += r->entries[i].epoch == r->epoch && !r->entries[i].part;
        r->left += r->entries[i].epoch != r->epoch && !r->entries[i].part;
    }
    rc = write_options(r, o, n, err);
    if (rc == 0 && there && c.budgets) /* a state may lie beyond a smaller budget */
        rc = kh_journal_exec(&r->j, "DELETE FROM kept", err);
    if (rc == 0)
        rc = start_session(r, err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, r->stmt[PUT_EVENT], err, "ditt", wall(), r->session,
            there ? "resumed" : "started", kh_version());
    return rc;
}

static void remove_old(const kh_run *r) {
    static const char *const FILES[] = { KH_JOURNAL_FILE, KH_JOURNAL_FILE "-wal",
        KH_JOURNAL_FILE "-shm", KH_JOURNAL_FILE "-journal", "posterior.json",
        "posterior.safetensors", "log.txt" };
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        char *path = kh_path_join(r->dir, FILES[i]);
        if (path)
            unlink(path);
        kh_free(path);
    }
}

int kh_run_begin(kh_run *r, const kh_run_card *card, const kh_run_option *o, int n, kh_err *err) {
    static const char *const SQL[] = {
#define STATEMENT_SQL(name, sql) (sql),
        STATEMENTS(STATEMENT_SQL)
#undef STATEMENT_SQL
    };
    if (r->o.overwrite)
        remove_old(r);
    int rc = kh_journal_open(&r->j, r->dir, true, err);
    for (int i = 0; i < N_STATEMENT && rc == 0; i++)
        rc = kh_journal_prepare(&r->j, &r->stmt[i], SQL[i], err);
    if (rc == 0)
        rc = ensure_writing(r, err);
    if (rc == 0)
        rc = settle(r, write_begin(r, card, o, n, err), err);
    if (rc == 0) {
        r->begun = true;
        r->cache =
            (kh_answer_cache){ tape_stop, tape_known, tape_recall, tape_record, r, tape_has_parts };
    }
    return rc;
}

/* --------------------------------------------------------------------------------- generations */

/* A number that JSON knows too. */
static bool is_number(const char *s, size_t n) {
    size_t i = n > 0 && s[0] == '-';
    if (i == n || s[i] < '0' || s[i] > '9' ||
        (s[i] == '0' && i + 1 < n && s[i + 1] >= '0' && s[i + 1] <= '9'))
        return false;
    double x;
    char text[64];
    int used = 0;
    if (n >= sizeof text || strspn(s, "-+.0123456789eE") < n)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    return text[n - 1] != '.' && sscanf(text, "%lf%n", &x, &used) == 1 && (size_t)used == n &&
        isfinite(x);
}

/* Adds the name of a fact to the columns of the view "log"; true if it was not there. */
static bool add_column(kh_run *r, const char *name, size_t n) {
    for (const char *at = r->columns.data; at && *at; at += strcspn(at, "\n") + 1)
        if (strcspn(at, "\n") == n && memcmp(at, name, n) == 0)
            return false;
    if (kh_buf_reserve(
            &r->columns, n + 1)) { /* both or neither: every name that is there ends in a newline */
        kh_buf_bytes(&r->columns, name, n);
        kh_buf_char(&r->columns, '\n');
    }
    return true;
}

/* "key=value key=value" as a JSON object; "-" is null. */
static bool facts_of(kh_run *r, const char *line, kh_buf *out) {
    bool fresh = false;
    for (const char *at = line; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " "), key = strcspn(at, "= ");
        if (key < word) {
            const char *value = at + key + 1;
            size_t n = word - key - 1;
            kh_buf_char(out, out->len ? ',' : '{');
            kh_json_quote(out, at, key);
            kh_buf_char(out, ':');
            if (is_number(value, n))
                kh_buf_bytes(out, value, n);
            else if (n == 1 && *value == '-')
                kh_buf_text(out, "null");
            else
                kh_json_quote(out, value, n);
            fresh |= add_column(r, at, key);
        }
        at += word;
    }
    kh_buf_text(out, out->len ? "}" : "{}");
    return fresh;
}

/* One column for each fact, so that "SELECT queries, loss FROM log" works. */
static int make_view(kh_run *r, kh_err *err) {
    kh_buf sql = kh_buf_init(1 << 18);
    kh_buf_text(&sql, "DROP VIEW IF EXISTS log; CREATE VIEW log AS SELECT n, at");
    for (const char *at = r->columns.data; at && *at; at += strcspn(at, "\n") + 1) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\n"), at);
        char *column = sqlite3_mprintf(", json_extract(facts, '$.\"%q\"') AS \"%w\"", name, name);
        kh_buf_text(&sql, column ? column : "");
        sqlite3_free(column);
    }
    kh_buf_text(&sql, " FROM generations");
    int rc = kh_buf_failed(&sql) ? kh_fail_memory(err) : kh_journal_exec(&r->j, sql.data, err);
    kh_buf_free(&sql);
    return rc;
}

void kh_run_generation(kh_run *r, const char *phase, long done, long total, const char *line) {
    kh_buf facts = kh_buf_init(1 << 16);
    bool fresh = facts_of(r, line, &facts);
    int rc = kh_buf_failed(&facts) || kh_buf_failed(&r->columns) ? kh_fail_memory(&r->failed)
                                                                 : ensure_writing(r, &r->failed);
    if (rc == 0)
        rc = kh_journal_do(&r->j, r->stmt[PUT_GENERATION], &r->failed, "idtiitt",
            (long long)r->n_generation, wall(), phase, (long long)done, (long long)total, line,
            facts.data);
    if (rc == 0 && fresh)
        rc = make_view(r, &r->failed);
    log_line(r, line);
    r->n_generation++;
    kh_buf_free(&facts);
}

void kh_run_event(kh_run *r, const char *what, const char *text) {
    if (ensure_writing(r, &r->failed) == 0)
        kh_journal_do(
            &r->j, r->stmt[PUT_EVENT], &r->failed, "ditt", wall(), r->session, what, text);
}

/* -------------------------------------------------------------------------------------- states */

int kh_run_keep(kh_run *r, const char *name, int number, const kh_run_books *b, const void *bytes,
    size_t n, kh_err *err) {
    int rc =
        r->failed.code ? kh_fail(err, r->failed.code, "%s", r->failed.msg) : ensure_writing(r, err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, r->stmt[PUT_KEPT], err, "tidiiiiiidb", name, (long long)number,
            wall(), r->last, (long long)r->n_generation, b->meter.prompts, b->meter.queries,
            b->dev_queries, b->meter.tokens, b->meter.seconds, bytes, n);
    return settle(r, rc, err);
}

/* Rides along with the next commit. */
int kh_run_forget(kh_run *r, const char *name, int number, kh_err *err) {
    int rc = ensure_writing(r, err);
    return rc == 0 ? kh_journal_do(&r->j, r->stmt[DROP_KEPT], err, "ti", name, (long long)number)
                   : rc;
}

static int report_lines(
    kh_run *r, int upto, void (*line)(void *, const char *), void *user, kh_err *err) {
    sqlite3_stmt *s = r->stmt[GET_LINES];
    int rc = kh_journal_bind(&r->j, s, err, "ii", (long long)r->n_generation, (long long)upto);
    while (rc == 0 && (rc = kh_journal_step(&r->j, s, err)) == 1) {
        const char *text = (const char *)sqlite3_column_text(s, 0);
        kh_buf facts = kh_buf_init(1 << 16);
        facts_of(r, text ? text : "", &facts); /* the view has columns for these already */
        kh_buf_free(&facts);
        if (text)
            log_line(r, text);
        if (line && text)
            line(user, text);
        rc = 0;
    }
    sqlite3_reset(s);
    r->n_generation = upto > r->n_generation ? upto : r->n_generation;
    return rc;
}

/* Numbers that go on to be counted with. */
static bool can_be(const kh_run_books *b, long long generations) {
    const long long n[] = { b->meter.prompts, b->meter.queries, b->meter.tokens, b->dev_queries };
    bool good = generations >= 0 && generations <= MOST_GENERATIONS;
    for (int i = 0; i < 4; i++)
        good = good && n[i] >= 0 && n[i] <= MOST_COUNTED;
    return good;
}

int kh_run_recall(kh_run *r, const char *name, int number, kh_run_books *b, kh_buf *out,
    void (*line)(void *, const char *), void *user, kh_err *err) {
    sqlite3_stmt *s = r->stmt[GET_KEPT];
    int rc = kh_journal_bind(&r->j, s, err, "ti", name, (long long)number);
    if (rc == 0)
        rc = kh_journal_step(&r->j, s, err);
    if (rc != 1)
        return rc;
    long long answers = sqlite3_column_int64(s, 0);
    long long generations = sqlite3_column_int64(s, 1);
    *b = (kh_run_books){ .meter = { .prompts = sqlite3_column_int64(s, 2),
                             .queries = sqlite3_column_int64(s, 3),
                             .tokens = sqlite3_column_int64(s, 5),
                             .seconds = sqlite3_column_double(s, 6) },
        .dev_queries = sqlite3_column_int64(s, 4) };
    const void *bytes = sqlite3_column_blob(s, 7);
    kh_buf_bytes(out, bytes, bytes ? (size_t)sqlite3_column_bytes(s, 7) : 0);
    sqlite3_reset(s);
    rc = kh_buf_failed(out) ? kh_fail_memory(err) : 0;
    if (rc == 0 && !can_be(b, generations))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: damaged: a state that was kept has impossible counts; --force starts the run "
            "again",
            r->j.path);
    if (rc == 0)
        rc = report_lines(r, (int)generations, line, user, err);
    for (int i = 0; i < r->n_entry && rc == 0; i++)
        if (r->entries[i].id <= answers)
            mark_used(r, &r->entries[i]);
    r->replaying = r->earlier = true;
    return rc == 0 ? 1 : rc;
}

/* ----------------------------------------------------------------------------------------- end */

static int write_result(kh_run *r, const kh_run_result *x, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s,
        "UPDATE run SET dev = ?, samples = ?, queries = ?, train_queries = ?, dev_queries = ?, "
        "seconds = ?, stopped = ?",
        err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, s, err, "diiiidt", x->dev, (long long)x->samples,
            x->train_queries + x->dev_queries, x->train_queries, x->dev_queries, x->seconds,
            x->stopped);
    sqlite3_finalize(s);
    if (rc == 0 &&
        kh_journal_prepare(&r->j, &s, "DELETE FROM generations WHERE n >= ?", err) == 0) {
        rc = kh_journal_do(&r->j, s, err, "i", (long long)r->n_generation);
        sqlite3_finalize(s);
    }
    return rc;
}

static int write_end(kh_run *r, const char *state, const char *text, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(&r->j, &s, "UPDATE run SET state = ?, ended = ?", err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, s, err, "td", state, wall());
    sqlite3_finalize(s);
    s = NULL;
    if (rc == 0)
        rc = kh_journal_prepare(
            &r->j, &s, "UPDATE sessions SET ended = ?, how = ? WHERE id = ?", err);
    if (rc == 0)
        rc = kh_journal_do(&r->j, s, err, "dti", wall(), state, r->session);
    sqlite3_finalize(s);
    if (rc == 0)
        rc = kh_journal_do(&r->j, r->stmt[PUT_EVENT], err, "ditt", wall(), r->session, state, text);
    return rc;
}

int kh_run_end(kh_run *r, const kh_run_result *result, const kh_err *why, kh_err *err) {
    int rc = ensure_writing(r, err);
    if (rc == 0 && result) {
        rc = r->failed.code ? kh_fail(err, r->failed.code, "%s", r->failed.msg)
                            : write_result(r, result, err);
    } else if (rc == 0)
        rc = write_end(r, why->code == KH_STOPPED ? "interrupted" : "failed", why->msg, err);
    rc = settle(r, rc, err);
    return rc == 0 && result ? log_finish(r, err) : rc;
}

int kh_run_finish(kh_run *r, kh_err *err) {
    if (!r->begun)
        return kh_fail(err, KH_EARG, "%s: the run has not begun", r->dir);
    int rc = ensure_writing(r, err);
    if (rc == 0)
        rc = settle(r, write_end(r, "finished", NULL, err), err);
    return rc;
}
