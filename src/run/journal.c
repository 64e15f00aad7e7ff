/* journal.c - SQLite, opened for a process that may be killed at any moment.
 *
 * Write-ahead log: a commit is one append, and a reader never waits. With synchronous = NORMAL a
 * commit survives the end of the process; the end of the machine may take the last ones, never the
 * consistency of the rest. */
#include "run/journal.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPLICATION = 0x6b657968 }; /* "keyh" */

/* Step k brings a database of version k to version k + 1. Steps are never changed, only added. */
static const char *const STEPS[] = {
    "CREATE TABLE run (id INTEGER PRIMARY KEY CHECK (id = 1), method TEXT, task TEXT, model TEXT, "
    "data TEXT, seed TEXT,"
    "  access TEXT, version TEXT, state TEXT, started REAL, ended REAL, metric TEXT, dev REAL, "
    "samples INTEGER, queries INTEGER,"
    "  train_queries INTEGER, dev_queries INTEGER, seconds REAL, stopped TEXT);"
    "CREATE TABLE options (name TEXT PRIMARY KEY, value TEXT, budget INTEGER);"
    "CREATE TABLE sessions (id INTEGER PRIMARY KEY, epoch INTEGER, version TEXT, pid INTEGER, "
    "started REAL, ended REAL, how TEXT);"
    "CREATE TABLE answers (id INTEGER PRIMARY KEY, session INTEGER, question BLOB, kind TEXT, rows "
    "INTEGER, tokens INTEGER,"
    "  at REAL, seconds REAL, answer BLOB);"
    "CREATE TABLE generations (n INTEGER PRIMARY KEY, at REAL, phase TEXT, done INTEGER, total "
    "INTEGER, line TEXT, facts TEXT);"
    "CREATE TABLE kept (name TEXT, number INTEGER, at REAL, answers INTEGER, generations INTEGER, "
    "prompts INTEGER,"
    "  queries INTEGER, dev_queries INTEGER, tokens INTEGER, seconds REAL, bytes BLOB, PRIMARY KEY "
    "(name, number));"
    "CREATE TABLE events (id INTEGER PRIMARY KEY, at REAL, session INTEGER, what TEXT, text TEXT);",
    "ALTER TABLE answers ADD COLUMN sum INTEGER;", /* NULL for answers of before */
};

/* READABLE: the oldest that has all that is read without resuming. */
enum { VERSION = sizeof STEPS / sizeof STEPS[0], READABLE = 1 };

/* ------------------------------------------------------------------------------------ failures */

int kh_journal_fail(const kh_journal *j, kh_err *err) {
    int code = j->db ? sqlite3_extended_errcode(j->db) : SQLITE_NOMEM;
    int os = j->db ? sqlite3_system_errno(j->db) : 0;
    switch (code & 0xff) {
    case SQLITE_NOMEM: return kh_fail_memory(err);
    case SQLITE_FULL:
        return kh_fail(err, KH_EIO,
            "%s: the disk is full; what was recorded is safe: make room, then go on with --resume",
            j->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return kh_fail(err, KH_EFORMAT,
            "%s: damaged, or not a database (%s); \"sqlite3 %s .recover\" saves what can be read, "
            "--force starts the run again",
            j->path, sqlite3_errmsg(j->db), j->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return kh_fail(
            err, KH_EIO, "%s: another program has locked it; close that one, then go on", j->path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
        return kh_fail(err, KH_EIO, "%s: cannot open or write (%s); is the folder write-protected?",
            j->path, sqlite3_errmsg(j->db));
    default:
        if (os == ENOSPC || os == EDQUOT)
            return kh_fail(err, KH_EIO,
                "%s: the disk is full; what was recorded is safe: make room, then go on with "
                "--resume",
                j->path);
        return kh_fail(err, KH_EIO, "%s: cannot read or write: %s%s%s", j->path,
            sqlite3_errmsg(j->db), os ? ": " : "", os ? strerror(os) : "");
    }
}

int kh_journal_exec(const kh_journal *j, const char *sql, kh_err *err) {
    return sqlite3_exec(j->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : kh_journal_fail(j, err);
}

int kh_journal_prepare(const kh_journal *j, sqlite3_stmt **out, const char *sql, kh_err *err) {
    return sqlite3_prepare_v3(j->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK
        ? 0
        : kh_journal_fail(j, err);
}

int kh_journal_step(const kh_journal *j, sqlite3_stmt *s, kh_err *err) {
    int got = sqlite3_step(s);
    if (got == SQLITE_ROW)
        return 1;
    int rc = got == SQLITE_DONE ? 0 : kh_journal_fail(j, err);
    sqlite3_reset(s);
    return rc;
}

int kh_journal_bind(const kh_journal *j, sqlite3_stmt *s, kh_err *err, const char *kinds, ...) {
    va_list args;
    int got = SQLITE_OK;
    va_start(args, kinds);
    for (int i = 1; *kinds && got == SQLITE_OK; kinds++, i++) {
        if (*kinds == 'i')
            got = sqlite3_bind_int64(s, i, va_arg(args, long long));
        else if (*kinds == 't')
            got = sqlite3_bind_text(s, i, va_arg(args, const char *), -1, SQLITE_STATIC);
        else if (*kinds == 'd') {
            double x = va_arg(args, double);
            got = isnan(x) ? sqlite3_bind_null(s, i) : sqlite3_bind_double(s, i, x);
        } else {
            const void *bytes = va_arg(args, const void *);
            got = sqlite3_bind_blob64(s, i, bytes, va_arg(args, size_t), SQLITE_STATIC);
        }
    }
    va_end(args);
    return got == SQLITE_OK ? 0 : kh_journal_fail(j, err);
}

/* ------------------------------------------------------------------------------ open and close */

static int pragma(const kh_journal *j, const char *name, int *out, kh_err *err) {
    sqlite3_stmt *s = NULL;
    char sql[64];
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA %s", name);
    int rc = kh_journal_prepare(j, &s, sql, err);
    if (rc == 0)
        rc = kh_journal_step(j, s, err);
    *out = rc == 1 ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    return rc < 0 ? rc : 0;
}

/* A run that someone else has made is only data. SQLite, asked for a table, would run the
 * statements of a view or a trigger of that name, which may never end. Ours have but the view
 * "log", for people; nothing here reads it. */
static int check_schema(const kh_journal *j, kh_err *err) {
    sqlite3_stmt *s = NULL;
    int rc = kh_journal_prepare(j, &s,
        "SELECT name FROM sqlite_schema WHERE NOT (type IN ('table', 'index') OR type = 'view' AND "
        "name = 'log')"
        "  OR sql LIKE 'create virtual%'",
        err);
    if (rc == 0)
        rc = kh_journal_step(j, s, err);
    if (rc == 1)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: holds \"%.60s\", a view, trigger or virtual table, which no run has", j->path,
            sqlite3_column_text(s, 0) ? (const char *)sqlite3_column_text(s, 0) : "");
    sqlite3_finalize(s);
    return rc;
}

/* Nor may its definitions call functions that reach beyond the database. */
static void be_careful(const kh_journal *j) {
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(j->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
}

/* Whether the file is ours, and of which version: 0 if it is empty. */
static int identify(const kh_journal *j, int *version, kh_err *err) {
    int application, schema;
    be_careful(j);
    int rc = pragma(j, "application_id", &application, err);
    if (rc == 0)
        rc = pragma(j, "user_version", version, err);
    if (rc == 0)
        rc = pragma(j, "schema_version", &schema, err);
    if (rc != 0)
        return rc;
    if ((application != APPLICATION && (application != 0 || schema != 0)) || *version < 0)
        return kh_fail(err, KH_EFORMAT, "%s: a database of another program, not of a run", j->path);
    if (*version > VERSION)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: written by a newer keyhole (schema %d, this one knows %d); use that one", j->path,
            *version, VERSION);
    return check_schema(j, err);
}

/* All missing steps in one transaction: the file has the old schema or the new. */
static int migrate(const kh_journal *j, int version, kh_err *err) {
    char done[96];
    if (version == VERSION)
        return 0;
    sqlite3_snprintf(sizeof done, done,
        "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", APPLICATION, VERSION);
    int rc = kh_journal_exec(j, "BEGIN IMMEDIATE", err);
    for (; rc == 0 && version < VERSION; version++)
        rc = kh_journal_exec(j, STEPS[version], err);
    if (rc == 0)
        rc = kh_journal_exec(j, done, err);
    if (rc != 0)
        sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int open_to_write(kh_journal *j, kh_err *err) {
    int version;
    if (sqlite3_open_v2(j->path, &j->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
        SQLITE_OK)
        return kh_journal_fail(j, err);
    int rc = identify(j, &version, err);
    if (rc == 0) /* a reader in the middle of its work is waited for */
        rc = kh_journal_exec(j,
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
            err);
    return rc == 0 ? migrate(j, version, err) : rc;
}

/* The file as it is, whatever is beside it. Only as a URI can that be said, in which ?, # and %
 * mean something else than in a path; the two slashes keep a path that begins with them from being
 * taken for a host. */
static int open_alone(kh_journal *j, kh_err *err) {
    kh_buf uri = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&uri, j->path[0] == '/' ? "file://" : "file:");
    for (const char *c = j->path; *c; c++)
        strchr("?#%", *c) ? kh_buf_printf(&uri, "%%%02X", (unsigned)*c) : kh_buf_char(&uri, *c);
    kh_buf_text(&uri, "?immutable=1");
    sqlite3_close(j->db);
    j->db = NULL;
    int got = kh_buf_failed(&uri)
        ? SQLITE_NOMEM
        : sqlite3_open_v2(uri.data, &j->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
    kh_buf_free(&uri);
    return got == SQLITE_OK ? 0 : kh_journal_fail(j, err);
}

/* A log beside the file, left by a process that was killed, needs a shared-memory file; where none
 * can be made, the file is read as it is. */
static int open_to_read(kh_journal *j, kh_err *err) {
    int version = 0, rc;
    if (sqlite3_open_v2(j->path, &j->db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        return kh_journal_fail(j, err);
    sqlite3_busy_timeout(j->db, 5000);
    rc = identify(j, &version, err);
    if (rc != 0 && sqlite3_errcode(j->db) == SQLITE_CANTOPEN) {
        rc = open_alone(j, err);
        if (rc == 0)
            rc = identify(j, &version, err);
    }
    if (rc == 0 && version < READABLE)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: of an older keyhole (schema %d, now %d); resuming the run brings it up to date",
            j->path, version, VERSION);
    return rc;
}

/* SQLite follows a link in the file's place, and would write, or make a database, wherever it
 * leads. (Files beside it, such as the log, it opens with O_NOFOLLOW.) */
static int check_link(const kh_journal *j, kh_err *err) {
    struct stat st;
    if (lstat(j->path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_nlink > 1))
        return kh_fail(err, KH_EFORMAT,
            "%s: is a link, or no regular file, which no run has; remove it first", j->path);
    return 0;
}

/* SQLite's mark for a name at the end of a rollback journal; the same as at its beginning. */
static const unsigned char MARK[8] = { 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7 };

/* A transaction that was cut off lies beside the file, and SQLite takes it back when it opens the
 * file. If it says that other databases took part, by the name of a file that lists them, SQLite
 * then removes that file, whatever it is. In ours no others take part. */
static int check_cut_off(const char *dir, kh_err *err) {
    unsigned char tail[sizeof MARK];
    char *path = kh_path_join(dir, KH_JOURNAL_FILE "-journal");
    struct stat st;
    int fd = -1, rc = path ? 0 : kh_fail_memory(err);
    bool there = rc == 0 && lstat(path, &st) == 0;
    if (there)
        rc = kh_file_open_data(path, &fd, &st, err);
    size_t size = there && rc == 0 ? (size_t)st.st_size : 0;
    if (size >= sizeof tail)
        rc = kh_file_read_at(fd, path, size - sizeof tail, tail, sizeof tail, err);
    if (rc == 0 && size >= sizeof tail && memcmp(tail, MARK, sizeof tail) == 0)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: names another file, which SQLite would remove; no run has such a journal: remove "
            "it first",
            path);
    if (fd >= 0)
        close(fd);
    kh_free(path);
    return rc;
}

int kh_journal_open(kh_journal *j, const char *dir, bool write, kh_err *err) {
    *j = (kh_journal){ .path = kh_path_join(dir, KH_JOURNAL_FILE) };
    if (!j->path)
        return kh_fail_memory(err);
    if (!write && !kh_file_exists(j->path))
        return kh_fail(
            err, KH_EMISSING, "%s: holds no run: there is no " KH_JOURNAL_FILE " in it", dir);
    int rc = check_link(j, err);
    if (rc == 0)
        rc = check_cut_off(dir, err);
    if (rc != 0)
        return rc;
    return write ? open_to_write(j, err) : open_to_read(j, err);
}

void kh_journal_close(kh_journal *j) {
    sqlite3_close(j->db);
    kh_free(j->path);
    *j = (kh_journal){ 0 };
}
