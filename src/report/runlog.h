/* runlog.h - what a run wrote while it went on: log.txt, one line of key=value pairs for each
 * generation. */
#ifndef KH_REPORT_RUNLOG_H
#define KH_REPORT_RUNLOG_H

#include "base/buf.h"
#include "keyhole.h"

enum { KH_RUNLOG_KEYS = 32 };

typedef struct kh_runlog {
    char key[KH_RUNLOG_KEYS][24];
    int n_key;
    double *value; /* [n, KH_RUNLOG_KEYS]; NaN: not in this line, or no number */
    int n;
    size_t cap;
} kh_runlog;

/* Lines that are not of this form, and keys beyond the first 32, are passed over. Free it, failed
 * ones too. */
int kh_runlog_parse(kh_runlog *out, const char *text, size_t n, kh_err *err);
/* DIR/log.txt; without one the log is empty. */
int kh_runlog_open(kh_runlog *out, const char *dir, kh_err *err);
void kh_runlog_free(kh_runlog *);

/* The column of a key, or -1; of a column, how many lines have it. */
int kh_runlog_find(const kh_runlog *, const char *key);
int kh_runlog_count(const kh_runlog *, int column);
double kh_runlog_at(const kh_runlog *, int line, int column);

#endif
