/* info.c - what is known of a run, read from its folder. */
#include "run/run.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "run/journal.h"
#include "run/lock.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* All that is read here is for people and programs to look at, in a folder that may come from
 * anybody: what could command a terminal is replaced as it is read. */

enum { N_TEXT = 10 };

static const char SELECT_RUN[] = "SELECT method, task, model, data, seed, access, version, state, "
                                 "stopped, metric, dev, started FROM run WHERE id = 1";

/* The numbers that grow while a run goes on. The dev metric of the last generation that has one. */
static const char SELECT_REST[] =
    /* rows of a question that failed ("part:") are counted with the question once it is whole */
    "SELECT (SELECT coalesce(sum(rows), 0) FROM answers WHERE kind NOT LIKE 'part:%'),"
    " (SELECT count(*) FROM answers WHERE kind NOT LIKE 'part:%'),"
    "  (SELECT done FROM generations ORDER BY n DESC LIMIT 1), (SELECT total FROM generations "
    "ORDER BY n DESC LIMIT 1),"
    "  (SELECT json_extract(facts, '$.dev') FROM generations WHERE json_extract(facts, '$.dev') IS "
    "NOT NULL ORDER BY n DESC LIMIT "
    "1),"
    "  (SELECT count(*) FROM sessions), (SELECT sum(max(coalesce(ended, last, started) - started, "
    "0)) FROM sessions"
    "    LEFT JOIN (SELECT session, max(at) AS last FROM answers GROUP BY session) ON session = "
    "id)";

/* Copies the texts of the row into one block of memory. */
static int take_texts(kh_run_info *i, sqlite3_stmt *s, kh_err *err) {
    const char **field[N_TEXT] = { &i->method, &i->task, &i->model, &i->data, &i->seed, &i->access,
        &i->version, &i->state, &i->stopped, &i->metric };
    size_t at[N_TEXT];
    kh_buf all = kh_buf_init(1 << 24);
    for (int k = 0; k < N_TEXT; k++) {
        const char *text = (const char *)sqlite3_column_text(s, k);
        at[k] = text ? all.len : SIZE_MAX;
        if (text)
            kh_buf_bytes(&all, text, strlen(text) + 1);
    }
    kh_buf_char(&all, '\0');
    i->memory = kh_buf_take(&all, NULL);
    for (int k = 0; k < N_TEXT && i->memory; k++) {
        if (at[k] != SIZE_MAX)
            kh_hide_controls(i->memory + at[k]);
        *field[k] = at[k] == SIZE_MAX ? NULL : i->memory + at[k];
    }
    return i->memory ? 0 : kh_fail_memory(err);
}

static int read_run(kh_run_info *i, const kh_journal *j, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(j, &s, SELECT_RUN, err);
    if (rc == 0)
        rc = kh_journal_step(j, s, err);
    if (rc == 0)
        rc = kh_fail(err, KH_EMISSING, "%s: no run has begun in it", j->path);
    else if (rc == 1) {
        rc = take_texts(i, s, err);
        i->dev = sqlite3_column_type(s, 10) == SQLITE_NULL ? NAN : sqlite3_column_double(s, 10);
        i->started = sqlite3_column_double(s, 11);
    }
    sqlite3_finalize(s);
    if (rc == 0 && (!i->method || !i->state || !i->task))
        rc = kh_fail(
            err, KH_EFORMAT, "%s: damaged: its table \"run\" lacks method, task or state", j->path);
    return rc;
}

static int read_rest(kh_run_info *i, const kh_journal *j, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(j, &s, SELECT_REST, err);
    if (rc == 0)
        rc = kh_journal_step(j, s, err);
    if (rc == 1) {
        i->queries = sqlite3_column_int64(s, 0);
        i->answers = sqlite3_column_int64(s, 1);
        i->done = (long)sqlite3_column_int64(s, 2);
        i->total = (long)sqlite3_column_int64(s, 3);
        if (isnan(i->dev) && sqlite3_column_type(s, 4) != SQLITE_NULL)
            i->dev = sqlite3_column_double(s, 4);
        i->sessions = sqlite3_column_int(s, 5);
        i->seconds = sqlite3_column_double(s, 6);
    }
    sqlite3_finalize(s);
    return rc < 0 ? rc : 0;
}

int kh_run_info_read(kh_run_info *out, const char *dir, kh_err *err) {
    kh_journal j = { 0 };
    *out = (kh_run_info){ .dev = NAN };
    int rc = kh_journal_open(&j, dir, false, err);
    if (rc == 0)
        rc = read_run(out, &j, err);
    if (rc == 0)
        rc = read_rest(out, &j, err);
    if (rc == 0 && strcmp(out->state, "running") == 0 && !kh_lock_held(dir))
        out->state = "interrupted"; /* by something that left no time to say so */
    kh_journal_close(&j);
    if (rc != 0)
        kh_run_info_free(out);
    return rc;
}

void kh_run_info_free(kh_run_info *i) {
    kh_free(i->memory);
    *i = (kh_run_info){ 0 };
}

/* A text of the row at hand, in fresh memory; NULL: there is none. */
static char *shown(sqlite3_stmt *s, int column, const char *otherwise) {
    const char *text = (const char *)sqlite3_column_text(s, column);
    char *copy = kh_strdup(text ? text : otherwise);
    if (copy)
        kh_hide_controls(copy);
    return copy;
}

int kh_run_read_options(
    const char *dir, void (*each)(void *, const kh_run_option *), void *user, kh_err *err) {
    kh_journal j = { 0 };
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_open(&j, dir, false, err);
    if (rc == 0)
        rc = kh_journal_prepare(
            &j, &s, "SELECT name, value, budget FROM options ORDER BY rowid", err);
    while (rc == 0 && (rc = kh_journal_step(&j, s, err)) == 1) {
        char *name = shown(s, 0, ""), *value = shown(s, 1, "");
        rc = name && value ? 0 : kh_fail_memory(err);
        if (rc == 0)
            each(user, &(kh_run_option){ name, value, sqlite3_column_int(s, 2) != 0 });
        kh_free(name);
        kh_free(value);
    }
    sqlite3_finalize(s);
    kh_journal_close(&j);
    return rc;
}

int kh_run_read_lines(const char *dir, int first, void (*each)(void *, const char *, const char *),
    void *user, int *next, kh_err *err) {
    kh_journal j = { 0 };
    sqlite3_stmt *s = NULL;
    *next = first;
    int rc = kh_journal_open(&j, dir, false, err);
    if (rc == 0)
        rc = kh_journal_prepare(
            &j, &s, "SELECT n, line, facts FROM generations WHERE n >= ? ORDER BY n", err);
    if (rc == 0)
        rc = kh_journal_bind(&j, s, err, "i", (long long)first);
    while (rc == 0 && (rc = kh_journal_step(&j, s, err)) == 1) {
        char *line = shown(s, 1, ""), *facts = shown(s, 2, "{}");
        rc = line && facts ? 0 : kh_fail_memory(err);
        if (rc == 0)
            each(user, line, facts);
        kh_free(line);
        kh_free(facts);
        int n = sqlite3_column_int(s, 0);
        *next = n < INT_MAX ? n + 1 : n;
    }
    sqlite3_finalize(s);
    kh_journal_close(&j);
    return rc;
}
