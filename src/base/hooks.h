/* hooks.h - how library code speaks to its caller: through kh_hooks, never to a terminal. */
#ifndef KH_BASE_HOOKS_H
#define KH_BASE_HOOKS_H

#include "keyhole.h"

/* Reports progress; hooks may be NULL. Returns 0, or KH_STOPPED when the caller wants the work to
 * end. */
int kh_report_progress(
    const kh_hooks *, const char *phase, long done, long total, const char *note);
/* Whether the caller wants waiting to end. */
bool kh_must_stop(const kh_hooks *);
void kh_log(const kh_hooks *, kh_level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
