/* monitor.c - see monitor.h. */
#include "monitor.h"

#include "cli.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_out.h"
#include "tune/effort.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- signals */

static volatile sig_atomic_t caught;

static void on_signal(int number) { caught = number; }

void cli_monitor_signals(void) {
    struct sigaction on = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART };
    sigaction(SIGINT, &on, NULL);
    sigaction(SIGTERM, &on, NULL);
}

int cli_monitor_signal(void) { return caught; }

/* ----------------------------------------------------------------------------------- estimates */

/* Queries a second that the box itself answers; 0: not known yet. */
static double rate(cli_monitor *w, kh_meter m) {
    long long asked = m.queries - m.replayed;
    double spent = kh_clock() - w->started;
    if (w->started == 0 && asked > 0) {
        w->started = kh_clock();
        w->before = asked;
    }
    return w->started > 0 && spent > 0 && asked > w->before ? (double)(asked - w->before) / spent
                                                            : 0;
}

static double cost(double price, long long tokens) { return price * (double)tokens / 1000; }

/* What is left of the forecast at this speed; < 0: cannot be told. */
static double seconds_left(const cli_monitor *w, kh_meter m, double speed) {
    if (!w->known || w->forecast.queries <= 0 || !(speed > 0))
        return -1;
    long long left = w->forecast.queries + w->forecast.warm_up - m.queries;
    return left > 0 ? (double)left / speed : 0;
}

/* ------------------------------------------------------------------------------------- showing */

/* The two numbers that matter of a line of facts: the best loss so far, and dev. */
static void put_numbers(const char *facts, char *out, size_t cap) {
    static const char *const KEYS[] = { "dev=", "best=", "score=", "eps=" };
    size_t used = 0;
    int put = 0;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS && put < 2; i++) {
        const char *at = strstr(facts, KEYS[i]);
        if (!at || (at > facts && at[-1] != ' '))
            continue;
        int n = (int)strcspn(at, " ");
        used += (size_t)snprintf(out + used, cap - used, "%s%.*s", put++ ? " " : "", n, at);
    }
    if (put == 0)
        snprintf(out, cap, "%s", facts);
}

static void draw_bar(cli_monitor *w) {
    char note[768], left[32];
    kh_meter m = kh_plm_meter(w->plm);
    double speed = rate(w, m), remain = seconds_left(w, m, speed);
    /* What matters first: the line is cut at the terminal's width. */
    int n = 0;
    note[0] = '\0';
    bool done = w->total > 0 && w->done >= w->total; /* a part that is done has nothing left */
    if (remain >= 0 && !done)
        n += snprintf(note, sizeof note, "%s left, ", kh_duration(remain, left, sizeof left));
    put_numbers(w->note, note + n, sizeof note - (size_t)n);
    n = (int)strlen(note);
    if (speed > 0)
        n += snprintf(note + n, sizeof note - (size_t)n, ", %.0f queries/s", speed);
    if (w->price > 0)
        snprintf(note + n, sizeof note - (size_t)n, ", cost %.4g", cost(w->price, m.tokens));
    cli_hooks.progress(NULL, &(kh_progress){ w->phase, w->done, w->total, note });
    w->drawn = kh_clock();
}

static void json_line(cli_monitor *w) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_meter m = kh_plm_meter(w->plm);
    double speed = rate(w, m), left = seconds_left(w, m, speed);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "phase", w->phase);
    kh_json_put_int(&j, "done", w->done);
    kh_json_put_int(&j, "total", w->total);
    kh_json_put_int(&j, "queries", m.queries);
    kh_json_put_int(&j, "replayed", m.replayed);
    kh_json_put_int(&j, "tokens", m.tokens);
    if (speed > 0)
        kh_json_put_number(&j, "queries_per_second", speed, 6);
    if (left >= 0)
        kh_json_put_number(&j, "seconds_left", left, 6);
    if (w->price > 0)
        kh_json_put_number(&j, "cost", cost(w->price, m.tokens), 9);
    kh_json_put_string(&j, "line", w->note);
    kh_json_close(&j);
    cli_print_json(&j, stderr, NULL);
}

int cli_monitor_progress(void *watch, const kh_progress *p) {
    cli_monitor *w = watch;
    const char *note = p->note ? p->note : "", *left = strstr(note, " left=");
    bool terminal = isatty(STDERR_FILENO);
    snprintf(w->phase, sizeof w->phase, "%s", p->phase);
    /* The library's guess of the time left counts generations; ours counts queries. */
    snprintf(w->note, sizeof w->note, "%.*s",
        (int)(left && (terminal || w->json) ? left - note : (long)strlen(note)), note);
    w->done = p->done;
    w->total = p->total;
    if (w->json)
        json_line(w);
    else if (terminal)
        draw_bar(w);
    else
        fprintf(stderr, "%s done=%ld total=%ld%s%s\n", w->phase, w->done, w->total,
            *note ? " " : "", w->note);
    return 0;
}

void cli_monitor_tick(cli_monitor *w) {
    if (!w->json && w->plm && isatty(STDERR_FILENO) && w->phase[0] && kh_clock() - w->drawn > 0.2)
        draw_bar(w);
}

static void put_efforts(const kh_forecast *f, kh_json_out *j) {
    kh_json_open_object(j, "efforts");
    for (int e = 0; e < KH_EFFORTS; e++) {
        kh_json_open_object(j, kh_effort_name((kh_effort)e));
        kh_json_put_int(j, "queries", f->effort[e].queries);
        if (f->effort[e].seconds > 0)
            kh_json_put_number(j, "seconds", f->effort[e].seconds, 6);
        kh_json_close(j);
    }
    kh_json_close(j);
}

void cli_monitor_efforts(const kh_forecast *f, FILE *out) {
    char time[32];
    for (int e = 0; e < KH_EFFORTS; e++) {
        if (f->effort[e].queries == 0)
            continue;
        fprintf(out, "--effort %-9s at most %lld queries", kh_effort_name((kh_effort)e),
            f->effort[e].queries);
        if (f->effort[e].seconds > 0)
            fprintf(out, ", about %s", kh_duration(f->effort[e].seconds, time, sizeof time));
        fprintf(out, "\n");
    }
}

/* Whoever has to wait longer than a minute is told what is faster. */
static void put_faster(const kh_forecast *f, double seconds, FILE *out) {
    enum { MINUTE = 60, ROUND = 100 };
    char time[32];
    if (!(f->query_seconds > 0) || seconds <= MINUTE)
        return;
    double quick = f->effort[KH_EFFORT_QUICK].seconds;
    long long queries = (long long)(MINUTE / f->query_seconds) / ROUND * ROUND;
    if (quick > 0 && quick < seconds)
        fprintf(out, "faster: --effort quick, about %s\n", kh_duration(quick, time, sizeof time));
    else if (queries >= ROUND && queries >= f->least && queries < f->queries)
        fprintf(out, "faster: --budget-queries %lld takes about a minute\n", queries);
}

void cli_monitor_forecast(const kh_forecast *f, double price, bool json, FILE *out) {
    char time[32];
    double seconds = f->query_seconds * (double)f->queries;
    if (json) {
        kh_buf b = kh_buf_init(1 << 16);
        kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_int(&j, "candidates", f->candidates);
        kh_json_put_int(&j, "queries", f->queries);
        kh_json_put_int(&j, "tokens", f->tokens);
        kh_json_put_int(&j, "train_rows", f->train_rows);
        kh_json_put_int(&j, "dev_rows", f->dev_rows);
        kh_json_put_int(&j, "warm_up_queries", f->warm_up);
        if (f->query_seconds > 0)
            kh_json_put_number(&j, "seconds", seconds, 6);
        if (price > 0)
            kh_json_put_number(&j, "cost", cost(price, f->tokens), 9);
        put_efforts(f, &j);
        kh_json_close(&j);
        cli_print_json(&j, out, NULL);
        return;
    }
    if (f->queries == 0) {
        fprintf(out,
            "forecast: %d train and %d dev rows; how many queries this method asks cannot be told "
            "before\n",
            f->train_rows, f->dev_rows);
        return;
    }
    fprintf(out, "forecast: at most ");
    if (f->candidates > 0)
        fprintf(out, "%lld candidates, ", f->candidates);
    fprintf(
        out, "%lld queries on %d train and %d dev rows", f->queries, f->train_rows, f->dev_rows);
    if (f->tokens > 0)
        fprintf(out, ", %lld tokens", f->tokens);
    if (f->query_seconds > 0)
        fprintf(out, ", about %s", kh_duration(seconds, time, sizeof time));
    if (price > 0)
        fprintf(out, ", cost %.4g", cost(price, f->tokens));
    fprintf(out, "\n");
    put_faster(f, seconds, out);
}
