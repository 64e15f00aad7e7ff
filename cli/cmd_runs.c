/* cmd_runs.c - keyhole runs, keyhole log, and the part of keyhole inspect that is about runs: they
 * read journals, also those of runs that are going on. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/json_out.h"
#include "run/journal.h"
#include "run/run.h"
#include "runs.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 4 }; /* folders within folders that are looked into */

bool cli_is_run(const char *dir) {
    char *path = kh_path_join(dir, KH_JOURNAL_FILE);
    bool there = path && kh_file_exists(path);
    kh_free(path);
    return there;
}

/* ------------------------------------------------------------------------------ one run's card */

/* Its object is left open. */
static void put_json(kh_json_out *j, const char *dir, const kh_run_info *i) {
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "run", dir);
    kh_json_put_string(j, "method", i->method);
    kh_json_put_string(j, "task", i->task);
    kh_json_put_string(j, "model", i->model);
    kh_json_put_string(j, "data", i->data);
    kh_json_put_string(j, "seed", i->seed);
    kh_json_put_string(j, "access", i->access);
    kh_json_put_string(j, "version", i->version);
    kh_json_put_string(j, "state", i->state);
    kh_json_put_string(j, "stopped", i->stopped);
    kh_json_put_string(j, "metric", i->metric);
    kh_json_put_number(j, "dev", i->dev, 17);
    kh_json_put_int(j, "done", i->done);
    kh_json_put_int(j, "total", i->total);
    kh_json_put_int(j, "queries", i->queries);
    kh_json_put_int(j, "answers", i->answers);
    kh_json_put_int(j, "sessions", i->sessions);
    kh_json_put_fixed(j, "started", i->started, 3);
    kh_json_put_fixed(j, "seconds", i->seconds, 3);
}

static int print(kh_buf *b, kh_err *err) {
    if (kh_buf_failed(b))
        return kh_fail_memory(err);
    if (b->len)
        fwrite(b->data, 1, b->len, stdout);
    return 0;
}

static const char *dev_text(double dev, char *out, size_t cap) {
    if (isnan(dev))
        return "-";
    snprintf(out, cap, "%.4f", dev);
    return out;
}

/* -------------------------------------------------------------------------------- keyhole runs */

typedef struct runs_opts {
    bool json;
} runs_opts;

static const kh_opt runs_table[] = {
    { "json", KH_OPT_FLAG, offsetof(runs_opts, json), .help = "print one JSON object a line" },
    { 0 },
};

typedef struct listing {
    kh_buf out;
    bool json;
    int n;
} listing;

static void list_run(listing *l, const char *dir) {
    kh_run_info i;
    kh_err why;
    char dev[32];
    if (kh_run_info_read(&i, dir, &why) != 0) {
        kh_log(&cli_hooks, KH_WARN, "%s", why.msg);
        return;
    }
    if (l->json) {
        kh_json_out j = kh_json_out_init(&l->out, KH_JSON_COMPACT);
        put_json(&j, dir, &i);
        kh_json_close(&j);
        kh_buf_char(&l->out, '\n');
    } else {
        if (l->n == 0)
            kh_buf_printf(&l->out, "%-10s %-10s %6s %-12s %8s %10s %9s  %s\n", "method", "task",
                "seed", "state", "dev", "queries", "seconds", "run");
        kh_buf_printf(&l->out, "%-10s %-10s %6s %-12s %8s %10lld %9.1f  %s\n", i.method, i.task,
            i.seed ? i.seed : "-", i.state, dev_text(i.dev, dev, sizeof dev), i.queries, i.seconds,
            dir);
    }
    l->n++;
    kh_run_info_free(&i);
}

/* Names in alphabetical order; what cannot be read is passed over. */
static int walk(listing *l, const char *dir, int depth, kh_err *err) {
    struct dirent **entry = NULL;
    if (cli_is_run(dir)) {
        list_run(l, dir);
        return 0;
    }
    int n = depth < DEPTH ? scandir(dir, &entry, NULL, alphasort) : 0, rc = 0;
    for (int i = 0; i < n; i++) {
        char *path =
            entry[i]->d_name[0] == '.' || rc != 0 ? NULL : kh_path_join(dir, entry[i]->d_name);
        if (path && kh_dir_exists(path))
            rc = walk(l, path, depth + 1, err);
        kh_free(path);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

static int run_runs(void *opts, int n_args, char **args, kh_err *err) {
    listing l = { .out = kh_buf_init(KH_BUF_MAX), .json = ((const runs_opts *)opts)->json };
    int rc = 0;
    for (int i = 0; i < n_args && rc == 0; i++)
        rc = kh_dir_exists(args[i])
            ? walk(&l, args[i], 0, err)
            : kh_fail(err, KH_EMISSING, "%s: there is no such folder", args[i]);
    if (rc == 0)
        rc = print(&l.out, err);
    if (rc == 0 && l.n == 0)
        kh_log(&cli_hooks, KH_INFO, "no runs in %s", args[0]);
    kh_buf_free(&l.out);
    return rc;
}

const cli_command cmd_runs = {
    .name = "runs",
    .args = "DIR...",
    .min_args = 1,
    .max_args = -1,
    .summary = "List the runs in a folder",
    .text = "Looks for runs in DIR and the folders inside it, four levels deep, and prints\n"
            "where each stands: running; interrupted, which \"keyhole tune ... --resume\" goes\n"
            "on with and --finish ends; failed; finished. dev is the metric on the dev rows as of "
            "now, queries\n"
            "counts the answers that are in the journal.\n"
            "\n"
            "  keyhole runs results\n"
            "  keyhole runs results --json",
    .opts = runs_table,
    .opts_size = sizeof(runs_opts),
    .run = run_runs,
};

/* --------------------------------------------------------------------------------- keyhole log */

typedef struct log_opts {
    bool follow, json;
} log_opts;

static const kh_opt log_table[] = {
    { "follow", KH_OPT_FLAG, offsetof(log_opts, follow),
        .help = "wait for more until the run ends" },
    { "json", KH_OPT_FLAG, offsetof(log_opts, json), .help = "print one JSON object a line" },
    { 0 },
};

static void print_line(void *user, const char *line, const char *facts) {
    puts(*(const bool *)user ? facts : line);
}

static int is_running(const char *dir, bool *running, kh_err *err) {
    kh_run_info i;
    int rc = kh_run_info_read(&i, dir, err);
    *running = rc == 0 && strcmp(i.state, "running") == 0;
    if (rc == 0)
        kh_run_info_free(&i);
    return rc;
}

static int run_log(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    log_opts *o = opts;
    int next = 0, rc = 0;
    for (bool more = true; more && rc == 0;) {
        more = false;
        if (o->follow) /* looked at before the lines are read, so that the last ones are not missed
                        */
            rc = is_running(args[0], &more, err);
        if (rc == 0)
            rc = kh_run_read_lines(args[0], next, print_line, &o->json, &next, err);
        fflush(stdout);
        if (more && rc == 0)
            nanosleep(&(struct timespec){ 0, 300000000 }, NULL);
    }
    return rc;
}

const cli_command cmd_log = {
    .name = "log",
    .args = "RUN",
    .min_args = 1,
    .max_args = 1,
    .summary = "Print what a run has reported, one line a generation",
    .text = "The lines are those of RUN/log.txt. They come from the journal, so they are also\n"
            "there for a run that is going on, or was killed.\n"
            "\n"
            "  keyhole log RUN --follow\n"
            "  keyhole log RUN --json | jq .loss",
    .opts = log_table,
    .opts_size = sizeof(log_opts),
    .run = run_log,
};

/* ----------------------------------------------------------------------------- keyhole inspect */

typedef struct card {
    kh_buf out;
    kh_json_out json;
} card;

static void text_option(void *user, const kh_run_option *o) {
    kh_buf_printf(&((card *)user)->out, "%-12s %s %s%s\n", "", o->name, o->value,
        o->budget ? "   (may change)" : "");
}

static void json_option(void *user, const kh_run_option *o) {
    kh_json_put_string(
        &((card *)user)->json, strncmp(o->name, "--", 2) == 0 ? o->name + 2 : o->name, o->value);
}

static void put_text(kh_buf *out, const char *dir, const kh_run_info *i) {
    char dev[32], when[64] = "";
    time_t started = (time_t)i->started;
    struct tm tm;
    if (localtime_r(&started, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    kh_buf_printf(out, "run          %s\n", dir);
    kh_buf_printf(out, "method       %s, seed %s\n", i->method, i->seed ? i->seed : "-");
    kh_buf_printf(out, "task         %s, data %s\n", i->task, i->data ? i->data : "-");
    kh_buf_printf(out, "model        %s\n", i->model ? i->model : "-");
    kh_buf_printf(out, "state        %s%s%s\n", i->state, i->stopped ? ": " : "",
        i->stopped ? i->stopped : "");
    kh_buf_printf(out, "generations  %ld of %ld\n", i->done, i->total);
    kh_buf_printf(
        out, "dev          %s %s\n", i->metric ? i->metric : "", dev_text(i->dev, dev, sizeof dev));
    kh_buf_printf(out, "queries      %lld in %lld answers\n", i->queries, i->answers);
    kh_buf_printf(out, "started      %s\n", when);
    kh_buf_printf(out, "worked       %.1f s in %d session%s\n", i->seconds, i->sessions,
        i->sessions == 1 ? "" : "s");
    kh_buf_text(out, "terms\n");
}

int cli_inspect_run(const char *dir, bool json, kh_err *err) {
    kh_run_info i;
    card l = { .out = kh_buf_init(KH_BUF_MAX) };
    l.json = kh_json_out_init(&l.out, KH_JSON_COMPACT);
    int rc = kh_run_info_read(&i, dir, err);
    if (rc != 0)
        return rc;
    if (json) {
        put_json(&l.json, dir, &i);
        kh_json_open_object(&l.json, "terms");
    } else
        put_text(&l.out, dir, &i);
    rc = kh_run_read_options(dir, json ? json_option : text_option, &l, err);
    if (json) {
        kh_json_close(&l.json);
        kh_json_close(&l.json);
        kh_buf_char(&l.out, '\n');
    }
    if (rc == 0)
        rc = print(&l.out, err);
    kh_buf_free(&l.out);
    kh_run_info_free(&i);
    return rc;
}
