/* cmd_tune.c - keyhole tune: from a frozen model and a few labelled rows to a posterior in a folder. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "data/task.h"
#include "judge/posterior.h"
#include "plm/http.h"
#include "tune/method.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tune_opts {
    const char *method, *model, *task, *data, *out;
    void *method_opts;
    kh_space_opts space;
    kh_http_opts http;
    uint64_t seed;
    int shots, precision, access, max_queries;
    double max_seconds;
    bool paper_exact, force, json, skip;
} tune_opts;

static const kh_opt tune_table[] = {
    { "method", KH_OPT_TEXT, offsetof(tune_opts, method), .arg = "NAME", .help = "how; see below", .required = true },
    { "model", KH_OPT_TEXT, offsetof(tune_opts, model), .arg = "DIR|URL", .help = "a model folder with its tokenizer, or a service",
        .required = true },
    { "task", KH_OPT_TEXT, offsetof(tune_opts, task), .arg = "NAME|FILE", .help = "a built-in task or a task file",
        .required = true },
    { "data", KH_OPT_TEXT, offsetof(tune_opts, data), .arg = "DIR", .help = "a data folder: train.tsv, or ready-made splits",
        .required = true },
    { "out", KH_OPT_TEXT, offsetof(tune_opts, out), .arg = "RUN", .help = "the folder for the result", .required = true },
    { "shots", KH_OPT_INT, offsetof(tune_opts, shots), "16", .min = 0, .max = 1000000, .arg = "K",
        .help = "rows of each class, for train and for dev; 0: the files train and dev whole" },
    { "seed", KH_OPT_SEED, offsetof(tune_opts, seed), "13", .arg = "N", .help = "of the few-shot split and of all random numbers" },
    { "budget-queries", KH_OPT_INT, offsetof(tune_opts, max_queries), .min = 1, .max = 2147483647, .arg = "N",
        .help = "stop before asking the model more than N questions (one prompt, one row)" },
    { "budget-time", KH_OPT_NUMBER, offsetof(tune_opts, max_seconds), .min = 1e-3, .max = 1e9, .arg = "S",
        .help = "stop after S seconds" },
    KH_SPACE_ROWS(tune_opts, space),
    { "precision", KH_OPT_CHOICE, offsetof(tune_opts, precision), "f32", .arg = "f32|bf16|int8|auto",
        .help = "of the model; bf16 is faster where the CPU has it" },
    { "access", KH_OPT_CHOICE, offsetof(tune_opts, access), "logprobs", .arg = "labels|logprobs",
        .help = "what the model may let out" },
    KH_HTTP_ROWS(tune_opts, http),
    { "paper-exact", KH_OPT_FLAG, offsetof(tune_opts, paper_exact),
        .help = "do as the paper's published code does where it differs" },
    { "skip-bad-rows", KH_OPT_FLAG, offsetof(tune_opts, skip), .help = "leave malformed rows out" },
    { "force", KH_OPT_FLAG, offsetof(tune_opts, force), .help = "write over a result that is there" },
    { "json", KH_OPT_FLAG, offsetof(tune_opts, json), .help = "print the summary as JSON" },
    { 0 },
};

static bool method_at(int i, cli_variant *out) {
    const kh_method *m = kh_method_at(i);
    if (m)
        *out = (cli_variant){ m->name, m->summary, m->opts, m->opts_size, m->exact };
    return m != NULL;
}

static const cli_variants methods = { "method", "paper-exact", offsetof(tune_opts, method_opts), method_at };

/* ---------------------------------------------------------------------------------------- log, progress, Ctrl-C */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

/* Ctrl-C ends the run after the generation and keeps what was found; a second one ends the program. */
static int on_progress(void *user, const kh_progress *p) {
    cli_hooks.progress(user, p);
    return interrupted;
}

typedef struct run_log {
    FILE *file;
    bool failed;
} run_log;

static void record(void *user, const char *line) {
    run_log *log = user;
    log->failed |= fprintf(log->file, "%s\n", line) < 0 || fflush(log->file) != 0;
}

static int log_open(run_log *log, const char *dir, kh_err *err) {
    char *path = kh_path_join(dir, "log.txt");
    *log = (run_log){ .file = path ? fopen(path, "w") : NULL };
    int rc = log->file ? 0 : path ? kh_fail_errno(err, path, "cannot write") : kh_fail_memory(err);
    kh_free(path);
    return rc;
}

static int log_close(run_log *log, const char *dir, kh_err *err) {
    bool bad = log->file && (fclose(log->file) != 0 || log->failed);
    log->file = NULL;
    return bad ? kh_fail(err, KH_EIO, "%s/log.txt: cannot write; is the disk full?", dir) : 0;
}

/* ------------------------------------------------------------------------------------------------------ summary */

static int print_summary(const tune_opts *o, const kh_posterior *p, double seconds, kh_err *err) {
    kh_posterior_info i = kh_posterior_describe(p);
    long long queries = i.train_queries + i.dev_queries;
    const char *metric = kh_metric_name(i.task->metric);
    if (!o->json) {
        printf("method    %s, %d sample%s\n", i.method, i.samples, i.samples == 1 ? "" : "s");
        printf("dev       %s %.4f\n", metric, i.dev);
        printf("queries   %lld: %lld on train, %lld on dev\n", queries, i.train_queries, i.dev_queries);
        printf("seconds   %.1f\n", seconds);
        printf("stopped   %s\n", i.stopped);
        printf("saved     %s\n", o->out);
        return 0;
    }
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_printf(&b,
        "{\"method\":\"%s\",\"samples\":%d,\"metric\":\"%s\",\"dev\":%.17g,\"queries\":%lld,\"train_queries\":%lld,\"dev_queries\":"
        "%lld,\"seconds\":%.3f,\"stopped\":",
        i.method, i.samples, metric, i.dev, queries, i.train_queries, i.dev_queries, seconds);
    kh_json_quote(&b, i.stopped, strlen(i.stopped));
    kh_buf_text(&b, ",\"out\":");
    kh_json_quote(&b, o->out, strlen(o->out));
    kh_buf_text(&b, "}\n");
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        fputs(b.data, stdout);
    kh_buf_free(&b);
    return rc;
}

/* ---------------------------------------------------------------------------------------------------- the command */

/* Everything that is opened on the way. */
typedef struct tune {
    const tune_opts *o;
    const kh_task *task;
    kh_split split;
    kh_plm *plm;
    kh_posterior *posterior;
} tune;

static int open_all(tune *u, kh_err *err) {
    const tune_opts *o = u->o;
    if (kh_posterior_exists(o->out) && !o->force)
        return kh_fail(err, KH_EARG, "%s: holds a posterior already; --force writes over it", o->out);
    int rc = kh_task_open(&u->task, o->task, err);
    if (rc != 0)
        return rc;
    kh_dataset_opts read = { .task = u->task, .skip_bad_rows = o->skip, .hooks = &cli_hooks };
    rc = kh_split_open(&u->split, o->data, o->shots, o->seed, &read, err);
    kh_plm_opts box = { .access = (kh_access)o->access,
        .precision = (kh_precision)o->precision,
        .hooks = &cli_hooks,
        .http = &o->http };
    return rc == 0 ? kh_plm_open(&u->plm, o->model, &box, err) : rc;
}

static int run_method(tune *u, const kh_method *m, kh_err *err) {
    const tune_opts *o = u->o;
    kh_hooks hooks = { on_progress, cli_hooks.log, NULL };
    run_log log;
    kh_tune_opts t = { .space = o->space,
        .seed = o->seed,
        .paper_exact = o->paper_exact,
        .max_queries = o->max_queries,
        .max_seconds = o->max_seconds,
        .hooks = &hooks,
        .record = record,
        .user = &log,
        .model = o->model,
        .data = o->data,
        .shots = o->shots };
    bool made = !kh_dir_exists(o->out);
    int rc = kh_dir_make(o->out, err);
    if (rc == 0)
        rc = log_open(&log, o->out, err);
    if (rc == 0) {
        struct sigaction on = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART };
        sigaction(SIGINT, &on, NULL);
        rc = kh_method_run(&u->posterior, m, o->method_opts, u->plm, u->task, u->split.train, u->split.dev, &t, err);
        int closed = log_close(&log, o->out, rc == 0 ? err : NULL);
        rc = rc ? rc : closed;
    }
    if (rc == 0)
        rc = kh_posterior_save(u->posterior, o->out, err);
    if (rc != 0 && made) { /* a refused run leaves no folder behind */
        char *path = kh_path_join(o->out, "log.txt");
        if (path)
            unlink(path);
        kh_free(path);
        rmdir(o->out);
    }
    return rc;
}

static int run_tune(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    tune u = { .o = opts };
    const kh_method *m;
    int rc = kh_method_find(&m, u.o->method, err);
    if (rc == 0)
        rc = open_all(&u, err);
    if (rc == 0)
        rc = run_method(&u, m, err);
    if (rc == 0)
        rc = print_summary(u.o, u.posterior, kh_plm_meter(u.plm).seconds, err);
    kh_posterior_free(u.posterior);
    kh_plm_close(u.plm);
    kh_split_close(&u.split);
    kh_task_close(u.task);
    return rc;
}

const cli_command cmd_tune = {
    .name = "tune",
    .args = "",
    .summary = "Make a classifier of a frozen model and a few labelled rows",
    .text = "The model is asked, never opened: no gradients. What comes out is a posterior, one\n"
            "or many soft prompts with weights, in the folder RUN: posterior.safetensors,\n"
            "posterior.json and log.txt with one line a generation. \"keyhole predict RUN\" uses\n"
            "it. The same seed gives the same posterior, bit for bit, with any number of\n"
            "threads. Every run ends: after its generations, or when a budget is used up;\n"
            "Ctrl-C ends it early and keeps what was found.\n\n"
            "  keyhole tune --method bbt --model DIR --task sst2 --data DATA --out run\n"
            "  keyhole tune --method ensemble --members 5 --budget-generations 100 ...\n"
            "  keyhole tune --method elbo --budget-time 600 ...\n"
            "  keyhole tune --method bbt --model http://127.0.0.1:8080 ...   \"keyhole serve\" there\n"
            "  keyhole tune --method elbo --help              the options of one method",
    .opts = tune_table,
    .opts_size = sizeof(tune_opts),
    .run = run_tune,
    .variants = &methods,
};
