/* monitor.h - what a person sees of a run while it goes on: forecast, bar, lines; and how a signal
 * ends it.
 *
 * On a terminal a bar with rate, cost and time left, which moves inside a generation, too;
 * otherwise one line a generation; or JSON lines for machines. All of it on standard error. */
#ifndef KH_CLI_MONITOR_H
#define KH_CLI_MONITOR_H

#include "keyhole.h"

#include <stdio.h>

typedef struct cli_monitor {
    const kh_plm *plm;
    double price; /* of a thousand tokens; 0: none */
    bool json;    /* JSON lines */
    kh_forecast forecast;
    bool known;    /* the forecast has been told, */
    kh_meter told; /* and what had been asked by then */

    double drawn;     /* when the bar was last drawn */
    double started;   /* when the first answer that the box itself gave was seen, */
    long long before; /* and what it had been asked by then */
    char phase[64], note[512];
    long done, total;
} cli_monitor;

/* The forecast is known from now on. */
void cli_monitor_expect(cli_monitor *, const kh_forecast *);
/* Progress of a kh_hooks; user is a cli_monitor. */
int cli_monitor_progress(void *watch, const kh_progress *);
/* Between two pieces of a question: draws the bar again. */
void cli_monitor_tick(cli_monitor *);
/* The forecast as one sentence (json: as an object), with a newline. */
void cli_monitor_forecast(const kh_forecast *, double price, bool json, FILE *out);
/* What each effort would take: a line each. */
void cli_monitor_efforts(const kh_forecast *, FILE *out);

/* From now on SIGINT and SIGTERM are noticed; a second one ends the program at once. */
void cli_monitor_signals(void);
/* The signal that came, or 0. */
int cli_monitor_signal(void);

#endif
