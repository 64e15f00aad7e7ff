/* hooks.c - calls of the caller's callbacks. */
#include "base/hooks.h"

#include "base/controls.h"
#include "base/secrets.h"

#include <stdarg.h>
#include <stdio.h>

int kh_report_progress(
    const kh_hooks *h, const char *phase, long done, long total, const char *note) {
    if (!h || !h->progress)
        return 0;
    kh_progress p = { phase, done, total, note };
    return h->progress(h->user, &p) ? KH_STOPPED : 0;
}

bool kh_must_stop(const kh_hooks *h) { return h && h->stop && h->stop(h->user) != 0; }

void kh_log(const kh_hooks *h, kh_level level, const char *fmt, ...) {
    if (!h || !h->log)
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    kh_hide_secrets(line);
    kh_hide_controls(line);
    h->log(h->user, level, line);
}
