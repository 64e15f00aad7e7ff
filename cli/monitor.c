/* monitor.c - see monitor.h. */
#include "monitor.h"

#include "cli.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_out.h"
#include "tune/effort.h"

#include <signal.h>
#include <stdarg.h>
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

void cli_monitor_expect(cli_monitor *w, const kh_forecast *f) {
    w->forecast = *f;
    w->known = true;
    w->told = kh_plm_meter(w->plm);
}

/* How much of the forecast has been asked, 0 to 1; < 0: cannot be told. Tokens before queries, as
 * they are what takes the time. */
static double share_asked(const cli_monitor *w, kh_meter m) {
    const kh_forecast *f = &w->forecast;
    if (!w->known || f->queries <= 0)
        return -1;
    double share = f->tokens > 0 ? (double)(m.tokens - w->told.tokens) / (double)f->tokens
                                 : (double)(m.queries - w->told.queries) / (double)f->queries;
    return share < 1 ? share : 1;
}

/* What is left of the forecast at this speed; < 0: cannot be told. */
static double seconds_left(const cli_monitor *w, kh_meter m, double speed) {
    double share = share_asked(w, m);
    return share < 0 || !(speed > 0) ? -1 : (1 - share) * (double)w->forecast.queries / speed;
}

/* ------------------------------------------------------------------------------------- showing */

/* The two numbers that matter of a line of facts, by names that say what they are: how the dev rows
 * fare, and the best loss so far. */
static void put_numbers(const char *facts, char *out, size_t cap) {
    static const struct {
        const char *key, *name;
    } NUMBERS[] = { { "dev=", "dev" }, { "best=", "loss" }, { "score=", "score" },
        { "eps=", "errors allowed" } };
    size_t used = 0;
    int put = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS && put < 2; i++) {
        const char *at = strstr(facts, NUMBERS[i].key);
        double value;
        if (!at || (at > facts && at[-1] != ' ') ||
            sscanf(at + strlen(NUMBERS[i].key), "%lf", &value) != 1)
            continue;
        used += (size_t)snprintf(
            out + used, cap - used, "%s%s %.4g", put++ ? ", " : "", NUMBERS[i].name, value);
    }
}

/* One part more of a list. */
__attribute__((format(printf, 3, 4))) static void add_part(
    char *list, size_t cap, const char *format, ...) {
    size_t n = strlen(list);
    va_list args;
    if (n > 0 && n + 2 < cap)
        n += (size_t)snprintf(list + n, cap - n, ", ");
    va_start(args, format);
    vsnprintf(list + n, cap - n, format, args);
    va_end(args);
}

/* A search may end by its budget long before its last generation: the bar shows whichever of the
 * two is further. */
static void draw_bar(cli_monitor *w) {
    enum { FINE = 1000 };
    char note[768] = "", numbers[256], left[32];
    kh_meter m = kh_plm_meter(w->plm);
    double speed = rate(w, m), remain = seconds_left(w, m, speed), share = share_asked(w, m);
    bool done = w->total > 0 && w->done >= w->total; /* a part that is done has nothing left */
    long at = w->done, of = w->total;
    if (!done && of > 0 && share > (double)at / (double)of) {
        at = (long)(share * (FINE - 1));
        of = FINE;
    }
    /* What matters first: parts that do not fit the terminal's width are left out. */
    if (remain >= 0 && !done)
        add_part(note, sizeof note, "%s left", kh_duration(remain, left, sizeof left));
    put_numbers(w->note, numbers, sizeof numbers);
    if (numbers[0])
        add_part(note, sizeof note, "%s", numbers);
    if (w->price > 0)
        add_part(note, sizeof note, "cost %.4g", cost(w->price, m.tokens));
    if (speed > 0)
        add_part(note, sizeof note, "%.0f queries/s", speed);
    cli_hooks.progress(NULL, &(kh_progress){ w->phase, at, of, note });
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
        cli_say(out, 2, "faster: --effort quick, about %s", kh_duration(quick, time, sizeof time));
    else if (queries >= ROUND && queries >= f->least && queries < f->queries)
        cli_say(out, 2, "faster: --budget-queries %lld takes about a minute", queries);
}

static void put_forecast(const kh_forecast *f, double price, double seconds, FILE *out) {
    char text[256] = "", time[32];
    if (f->queries == 0) {
        cli_say(out, 2,
            "forecast: %d train and %d dev rows; how many queries this method asks cannot be told "
            "before",
            f->train_rows, f->dev_rows);
        return;
    }
    if (f->candidates > 1)
        add_part(text, sizeof text, "%lld candidates", f->candidates);
    add_part(text, sizeof text, "%lld queries on %d train and %d dev rows", f->queries,
        f->train_rows, f->dev_rows);
    if (f->tokens > 0)
        add_part(text, sizeof text, "%lld tokens", f->tokens);
    if (f->query_seconds > 0)
        add_part(text, sizeof text, "about %s", kh_duration(seconds, time, sizeof time));
    if (price > 0)
        add_part(text, sizeof text, "cost %.4g", cost(price, f->tokens));
    cli_say(out, 2, "forecast: at most %s", text);
}

void cli_monitor_forecast(const kh_forecast *f, double price, bool json, FILE *out) {
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
    put_forecast(f, price, seconds, out);
    put_faster(f, seconds, out);
}
