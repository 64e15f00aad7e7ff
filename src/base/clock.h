/* clock.h - the one clock of the program, and durations as people read them.
 *
 * No result depends on time; budgets, progress, timeouts and benchmarks do. */
#ifndef KH_BASE_CLOCK_H
#define KH_BASE_CLOCK_H

#include <stddef.h>

/* Seconds of a clock that only goes forward and knows no calendar: for differences. */
double kh_clock(void);
/* Seconds of CPU that this thread, or all threads of the process, have used: measures work while
 * other programs run beside it. */
double kh_clock_thread(void);
double kh_clock_process(void);

/* "0.4s", "12s", "3m12s", "2h05m", "1d03h" in out [cap], which is returned. Negative and absurdly
 * long times (an estimate that divides by nearly nothing) read as "0.0s". */
enum { KH_DURATION = 32 };
const char *kh_duration(double seconds, char *out, size_t cap);

#endif
