/* clock.c - see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static double read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double kh_clock(void) { return read_clock(CLOCK_MONOTONIC); }
double kh_clock_thread(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
double kh_clock_process(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

const char *kh_duration(double seconds, char *out, size_t cap) {
    double s = seconds > 0 && seconds < 1e9 ? seconds : 0;
    long t = (long)(s + 0.5);
    if (t >= 86400)
        snprintf(out, cap, "%ldd%02ldh", t / 86400, t / 3600 % 24);
    else if (t >= 3600)
        snprintf(out, cap, "%ldh%02ldm", t / 3600, t / 60 % 60);
    else if (t >= 60)
        snprintf(out, cap, "%ldm%02lds", t / 60, t % 60);
    else if (s < 10)
        snprintf(out, cap, "%.1fs", s);
    else
        snprintf(out, cap, "%.0fs", s);
    return out;
}
