/* journal.h - the database of a run: one SQLite file, its schema, and every failure as a sentence.
 * doc/run-schema.md has the tables. */
#ifndef KH_RUN_JOURNAL_H
#define KH_RUN_JOURNAL_H

#include "keyhole.h"

#include <sqlite3.h>

#define KH_JOURNAL_FILE "run.sqlite"

typedef struct kh_journal {
    sqlite3 *db;
    char *path;
} kh_journal; /* start as {0}; close it also after a failed open */

/* Opens dir/run.sqlite. To write: makes it if it is not there and brings an older schema up to
 * date. To read: leaves it as it is; other processes may write meanwhile. A newer schema, and a
 * file that is something else, are refused. */
int kh_journal_open(kh_journal *, const char *dir, bool write, kh_err *err);
void kh_journal_close(kh_journal *);

/* What SQLite just complained of, in our words. */
int kh_journal_fail(const kh_journal *, kh_err *err);
int kh_journal_exec(const kh_journal *, const char *sql, kh_err *err);
int kh_journal_prepare(const kh_journal *, sqlite3_stmt **out, const char *sql, kh_err *err);
/* 1: a row is there; 0: done. A statement that is done, or has failed, is ready to be used again.
 */
int kh_journal_step(const kh_journal *, sqlite3_stmt *, kh_err *err);

/* Binds the arguments of a statement from the first on. kinds: i int64, d double (NaN: NULL), t
 * text (NULL: NULL), b bytes and their number. Texts and bytes must live until the statement is
 * stepped. */
int kh_journal_bind(const kh_journal *, sqlite3_stmt *, kh_err *err, const char *kinds, ...);
/* Binds, and steps to the end. */
#define kh_journal_do(j, stmt, err, ...) \
    (kh_journal_bind(j, stmt, err, __VA_ARGS__) == 0 ? kh_journal_step(j, stmt, err) : KH_EIO)

#endif
