/* cmd_tune.c - keyhole tune: from a frozen model and a few labelled rows to a posterior in a
 * folder. */
#include "cli.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "data/chat.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "data/task.h"
#include "posterior/posterior.h"
#include "run/run.h"
#include "plm/http.h"
#include "tune/method.h"
#include "tune/effort.h"
#include "judged.h"
#include "launcher.h"
#include "monitor.h"
#include "runs.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tune_opts {
    const char *method, *model, *task, *data, *out, *features, *class_prior;
    cli_chosen method_opts;
    kh_space_opts space;
    kh_http_opts http;
    uint64_t seed;
    int shots, precision, access, max_queries, max_tokens, groups, label_prior, calibrate;
    int word_score, effort, search_rows, fallback;
    double max_seconds, price, cache;
    bool chat, paper_exact, force, resume, finish, dry, json, json_progress, skip, eval;
} tune_opts;

static const kh_opt tune_table[] = {
    { "method", KH_OPT_TEXT, offsetof(tune_opts, method), .arg = "NAME",
        .help = "how; see below; without it, the one that serves most people" },
    { "model", KH_OPT_TEXT, offsetof(tune_opts, model), .arg = "DIR|URL|builtin",
        .help =
            "a model folder with its tokenizer, a service, or the model that comes with keyhole" },
    { "task", KH_OPT_TEXT, offsetof(tune_opts, task), .arg = "NAME|FILE",
        .help = "a built-in task or a task file; without it, one is made from the labels" },
    { "data", KH_OPT_TEXT, offsetof(tune_opts, data), .arg = "DIR|FILE",
        .help = "a data folder (train.tsv, or ready-made splits), or one file; the argument DATA" },
    { "out", KH_OPT_TEXT, offsetof(tune_opts, out), .arg = "RUN",
        .help = "the folder for the result; without it, named after the data" },
    { "shots", KH_OPT_INT, offsetof(tune_opts, shots), "-1", .min = -1, .max = 1000000, .arg = "K",
        .help =
            "rows of each class, for train and for dev; 0: all (16 of a folder, all of a file)" },
    { "seed", KH_OPT_SEED, offsetof(tune_opts, seed), "13", .arg = "N",
        .help = "of the few-shot split and of all random numbers" },
    { "effort", KH_OPT_CHOICE, offsetof(tune_opts, effort), "normal", .arg = KH_EFFORT_NAMES,
        .help = "budget, size of the prompt, samples and settings together: 3,000, 20,000, 120,000 "
                "queries, or as in the paper; options given beside it win" },
    { "search-rows", KH_OPT_INT, offsetof(tune_opts, search_rows), "0", .min = -1, .max = 1 << 30,
        .arg = "N",
        .help = "train rows that a search asks each candidate about; 0: as --effort says; -1: "
                "all" },
    { "budget-queries", KH_OPT_INT, offsetof(tune_opts, max_queries), .min = 1, .max = 2147483647,
        .arg = "N",
        .help = "stop before asking the model more than N questions (one prompt, one row)" },
    { "budget-tokens", KH_OPT_INT, offsetof(tune_opts, max_tokens), .min = 1, .max = 2147483647,
        .arg = "N",
        .help = "likewise, as many questions as have N tokens, at the mean length of the rows" },
    { "budget-time", KH_OPT_NUMBER, offsetof(tune_opts, max_seconds), .min = 1e-3, .max = 1e9,
        .arg = "S", .help = "stop after S seconds" },
    { "groups", KH_OPT_INT, offsetof(tune_opts, groups), "1", .min = 1, .max = 1 << 16, .arg = "G",
        .help =
            "members of an ensemble that go side by side, for many ranks; the result is the same" },
    KH_SPACE_ROWS(tune_opts, space),
    { "precision", KH_OPT_CHOICE, offsetof(tune_opts, precision), "f32",
        .arg = "f32|bf16|int8|auto", .help = "of the model; bf16 is faster where the CPU has it" },
    { "word-score", KH_OPT_CHOICE, offsetof(tune_opts, word_score), "sum", .arg = "sum|mean",
        .help = "how a decoder scores label words of several tokens" },
    { "chat", KH_OPT_FLAG, offsetof(tune_opts, chat),
        .help = "wrap the template as the decoder's own chat format says" },
    { "cache-memory", KH_OPT_NUMBER, offsetof(tune_opts, cache), .min = 0, .max = 1e9, .arg = "MB",
        .help = "for keys and values of texts that a decoder keeps; 0: a quarter of the memory" },
    { "access", KH_OPT_CHOICE, offsetof(tune_opts, access), "logprobs",
        .arg = "labels|logprobs|weights",
        .help = "what the model may let out; methods with gradients raise it to weights" },
    KH_HTTP_ROWS(tune_opts, http),
    { "label-prior", KH_OPT_CHOICE, offsetof(tune_opts, label_prior), "none",
        .arg = KH_LABEL_PRIOR_NAMES "|inside",
        .help = "correct for label words that the model says whatever the text is; inside: batch, "
                "and inside the search" },
    { "class-prior", KH_OPT_TEXT, offsetof(tune_opts, class_prior), .arg = "P1,P2,...|train",
        .help = "how frequent the classes are among texts to come, in the order of the labels" },
    { "calibrate", KH_OPT_CHOICE, offsetof(tune_opts, calibrate), "auto", .arg = "auto|none",
        .help = "turn answers into probabilities that mean what they say, by rows not learned "
                "from" },
    { "fallback", KH_OPT_CHOICE, offsetof(tune_opts, fallback), "auto", .arg = "auto|template|none",
        .help = "return the template, or mix it in, where the result is not surely better; auto: "
                "so, except with "
                "--effort paper and --paper-exact" },
    { "features-model", KH_OPT_TEXT, offsetof(tune_opts, features), "builtin", .arg = "DIR|none",
        .help = "a local model whose features tell out-of-distribution texts by their distance to "
                "the train rows" },
    { "paper-exact", KH_OPT_FLAG, offsetof(tune_opts, paper_exact),
        .help = "do as the paper's published code does where it differs" },
    { "skip-bad-rows", KH_OPT_FLAG, offsetof(tune_opts, skip), .help = "leave malformed rows out" },
    { "resume", KH_OPT_FLAG, offsetof(tune_opts, resume),
        .help = "go on with the run in RUN, if there is one; budgets may have changed" },
    { "finish", KH_OPT_FLAG, offsetof(tune_opts, finish),
        .help = "make a classifier of what an interrupted run in RUN has found so far" },
    { "force", KH_OPT_FLAG, offsetof(tune_opts, force),
        .help = "write over a run or a result that is there" },
    { "dry-run", KH_OPT_FLAG, offsetof(tune_opts, dry),
        .help = "stop after the forecast of what the run would cost" },
    { "price-per-1k-tokens", KH_OPT_NUMBER, offsetof(tune_opts, price), .min = 0, .max = 1e6,
        .arg = "X", .help = "what the model's owner takes, for forecast and progress" },
    { "eval", KH_OPT_FLAG, offsetof(tune_opts, eval), "true",
        .help = "without --task: judge on the held-out rows at the end" },
    { "json", KH_OPT_FLAG, offsetof(tune_opts, json), .help = "print the summary as JSON" },
    { "json-progress", KH_OPT_FLAG, offsetof(tune_opts, json_progress),
        .help = "progress as JSON lines on standard error" },
    { 0 },
};

static bool method_at(int i, cli_variant *out) {
    const kh_method *m = kh_method_at(i);
    if (m)
        *out = (cli_variant){ m->name, m->summary, m->opts, m->opts_size, m->exact };
    return m != NULL;
}

/* What serves most people: seconds on any model, and better than the template. */
#define DEFAULT_METHOD "auto"

static const cli_variants methods = { "method", "paper-exact", offsetof(tune_opts, method_opts),
    method_at, DEFAULT_METHOD };

/* Everything that is opened on the way. */
typedef struct tune {
    tune_opts *o;
    char *model, *data, *out; /* from the root; the run's name */
    char *system;             /* what the model's chat format says first */
    bool made;                /* the task was made from the labels */
    cli_judged judged;
    const kh_task *opened; /* the task as it was read or made, */
    kh_task task;          /* and as it is asked */
    kh_split split;
    kh_plm *plm;
    kh_posterior *posterior;
    kh_run *run;
    cli_monitor watch;
} tune;

/* ---------------------------------------------------------------------------- progress, Ctrl-C */

/* Before each piece of a question: draws the bar, and stops when a signal has come. */
static int between_pieces(void *user) {
    cli_monitor_tick(&((tune *)user)->watch);
    return cli_monitor_signal();
}

static int on_forecast(void *user, const kh_forecast *f) {
    tune *u = user;
    cli_monitor_expect(&u->watch, f);
    if (u->o->dry)
        cli_monitor_forecast(f, u->o->price, u->o->json, stdout);
    if (u->o->dry && !u->o->json)
        cli_monitor_efforts(f, stdout);
    if (!u->o->dry && !u->o->json_progress)
        cli_monitor_forecast(f, u->o->price, false, stderr);
    return u->o->dry;
}

static int say_interrupted(const tune *u, kh_err *err) {
    kh_meter m = kh_plm_meter(u->plm);
    char at[64] = "";
    if (u->watch.total > 0)
        snprintf(at, sizeof at, "at %ld of %ld, ", u->watch.done, u->watch.total);
    return kh_fail(err, CLI_SIGNAL - cli_monitor_signal(),
        "interrupted %safter %lld queries; every answer is kept in %s: the same command with "
        "--resume goes on, with --finish it makes a classifier of what is there",
        at, m.queries, u->o->out);
}

/* ------------------------------------------------------------------------------------- summary */

/* The table of what auto has tried. */
static void put_tried(const char *tried, kh_buf *out) {
    json_t *list = NULL, *row;
    size_t i;
    kh_buf text = kh_buf_init(1 << 20);
    if (tried)
        kh_buf_printf(&text, "[%s]", tried);
    if (tried && !kh_buf_failed(&text))
        list = json_loadb(text.data, text.len, 0, NULL);
    json_array_foreach(list, i, row)
        kh_buf_printf(out, "tried     %-16s score %.4f  dev %.4f  queries %lld\n",
            json_string_value(json_object_get(row, "method")),
            json_number_value(json_object_get(row, "score")),
            json_number_value(json_object_get(row, "dev")),
            (long long)json_integer_value(json_object_get(row, "queries")));
    json_decref(list);
    kh_buf_free(&text);
}

static int print_json(const tune *u, const kh_posterior_info *i, const kh_meter *m, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 20);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "method", i->method);
    kh_json_put_int(&j, "samples", i->samples);
    kh_json_put_string(&j, "metric", kh_metric_name(i->task->metric));
    kh_json_put_number(&j, "dev", i->dev, 17);
    kh_json_put_int(&j, "queries", i->train_queries + i->dev_queries);
    kh_json_put_int(&j, "train_queries", i->train_queries);
    kh_json_put_int(&j, "dev_queries", i->dev_queries);
    kh_json_put_int(&j, "forward", i->forward);
    kh_json_put_int(&j, "backward", i->backward);
    kh_json_put_int(&j, "replayed", m->replayed);
    kh_json_put_int(&j, "tokens", m->tokens);
    kh_json_put_fixed(&j, "seconds", m->seconds, 3);
    kh_json_put_string(&j, "stopped", i->stopped);
    kh_json_put_string(&j, "out", u->o->out);
    if (u->judged.eval.o) {
        kh_json_put_number(&j, "test", u->judged.eval.m.accuracy, 17);
        kh_json_put_int(&j, "test_rows", u->judged.eval.rows.n);
    }
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int print_summary(const tune *u, kh_err *err) {
    const tune_opts *o = u->o;
    kh_meter m = kh_plm_meter(u->plm);
    kh_posterior_info i = kh_posterior_describe(u->posterior);
    long long queries = i.train_queries + i.dev_queries;
    const char *metric = kh_metric_name(i.task->metric);
    if (o->json)
        return print_json(u, &i, &m, err);
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_printf(
        &b, "method    %s, %d sample%s\n", i.method, i.samples, i.samples == 1 ? "" : "s");
    kh_buf_printf(&b, "dev       %s %.4f\n", metric, i.dev);
    if (isfinite(i.score))
        kh_buf_printf(&b, "score     %.4f, the mean of -log p, cross-validated\n", i.score);
    put_tried(u->posterior->tried, &b);
    kh_buf_printf(&b, "queries   %lld: %lld on train, %lld on dev\n", queries, i.train_queries,
        i.dev_queries);
    if (i.forward > 0)
        kh_buf_printf(&b,
            "passes    %lld rows through the weights, %lld of them back for gradients\n", i.forward,
            i.backward);
    if ((o->resume || o->finish) && m.replayed > 0)
        kh_buf_printf(&b, "resumed   %lld of them were answered before\n", m.replayed);
    if (o->price > 0)
        kh_buf_printf(&b, "cost      %.4g\n", o->price * (double)m.tokens / 1000);
    kh_buf_printf(&b, "seconds   %.1f\n", m.seconds);
    kh_buf_printf(&b, "stopped   %s\n", i.stopped);
    kh_buf_printf(&b, "saved     %s\n", o->out);
    if (u->judged.eval.o)
        cli_put_summary(&u->judged.eval, o->out, &b);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        cli_print(stdout, b.data);
    kh_buf_free(&b);
    return rc;
}

/* --------------------------------------------------------------------------------- the command */

/* The least of the levels above labels that the method can do with; labels, if asked for, stays
 * labels. auto takes all that a model on this machine lets out. */
static kh_access access_for(const tune_opts *o, const kh_method *m) {
    bool open = m->access == KH_ACCESS_WEIGHTS || (m->chooses && !kh_is_url(o->model));
    return o->access == KH_ACCESS_LOGPROBS && open ? KH_ACCESS_WEIGHTS : (kh_access)o->access;
}

/* Tokens of the searches of a run that was given a file and nothing else: a minute on two cores
 * with the built-in model. Not questions: these are as long as the texts are. */
enum { FILE_TOKENS = 120000 };

/* What was left out is filled in. */
static int settle(tune *u, int n_args, char **args, kh_err *err) {
    tune_opts *o = u->o;
    if (n_args > 0 && o->data && strcmp(o->data, args[0]) != 0)
        return kh_fail(
            err, CLI_USAGE, "\"%s\" and --data %s: give the data once", args[0], o->data);
    if (n_args > 0)
        o->data = args[0];
    if (!o->data)
        return kh_fail(err, CLI_USAGE,
            "data is needed: a file of labelled texts (.csv, .tsv, .jsonl; columns text and label) "
            "or a folder with train.tsv, as in \"keyhole tune tickets.csv\"; --model (builtin), "
            "--method (" DEFAULT_METHOD "), --task (made from the labels) and --out (named after "
            "the data) may follow");
    bool budget = o->max_queries > 0 || o->max_tokens > 0 || o->max_seconds > 0;
    if (!o->task && !budget && !o->method && o->effort == KH_EFFORT_NORMAL)
        o->max_tokens = FILE_TOKENS;
    if (o->shots < 0)
        o->shots = kh_file_exists(o->data) ? 0 : 16;
    if (!o->model)
        o->model = "builtin";
    if (!o->method)
        o->method =
            kh_is_url(o->model) || o->access == KH_ACCESS_LABELS ? "manual" : DEFAULT_METHOD;
    u->model = cli_absolute(o->model);
    u->data = cli_absolute(o->data);
    u->out = cli_run_name(o->data);
    if (!u->model || !u->data || !u->out)
        return kh_fail_memory(err);
    if (!o->out)
        o->out = u->out;
    return 0;
}

/* The chat format of the model's folder. */
static int find_chat(tune *u, kh_err *err) {
    const kh_chat *chat;
    if (kh_is_url(u->o->model))
        return kh_fail(err, CLI_USAGE, "--chat needs the folder of the model, not a service");
    int rc = kh_chat_find(&chat, &u->system, u->o->model, err);
    if (rc == 0) {
        u->task.chat = chat->name;
        u->task.chat_system = u->system;
    }
    return rc;
}

/* The task as it was opened, with what options say of it. */
static int take_task(tune *u, kh_err *err) {
    u->task = *u->opened;
    u->task.mean = u->task.mean || u->o->word_score;
    return u->o->chat ? find_chat(u, err) : 0;
}

static int check_options(const tune_opts *o, const kh_method *m, kh_err *err) {
    if ((o->resume || o->finish) && o->force)
        return kh_fail(err, CLI_USAGE,
            "%s goes on with a run and --force writes over it; give one of them",
            o->finish ? "--finish" : "--resume");
    if (o->finish && !cli_is_run(o->out))
        return kh_fail(err, CLI_USAGE,
            "--finish: there is no run in %s to make a classifier of; without it, one begins",
            o->out);
    if (o->paper_exact && o->effort != KH_EFFORT_NORMAL && o->effort != KH_EFFORT_PAPER)
        return kh_fail(err, CLI_USAGE,
            "--paper-exact takes the paper's settings; leave --effort %s out, or give single "
            "options",
            kh_effort_name((kh_effort)o->effort));
    if (o->groups > 1 && m != &kh_method_ensemble)
        return kh_fail(err, CLI_USAGE,
            "--groups lets members of an ensemble go side by side; --method %s has none", m->name);
    if (cli_ranks && m->access == KH_ACCESS_WEIGHTS)
        kh_log(&cli_hooks, KH_WARN, "--method %s computes gradients, which rank 0 does alone",
            m->name);
    return 0;
}

/* The task that is named, or that a run being resumed has made; none: one is to be made. */
static int open_task(tune *u, kh_err *err) {
    const tune_opts *o = u->o;
    if (o->task)
        return kh_task_open(&u->opened, o->task, err);
    u->made = true;
    char *path = kh_path_join(o->out, "task.json");
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && (o->resume || o->finish) && kh_file_exists(path))
        rc = kh_task_open(&u->opened, path, err);
    kh_free(path);
    return rc;
}

enum { SHOWN_CLASSES = 8 };

/* What was found in the data, at once: the rest takes a while. */
static void say_rows(const tune *u) {
    const tune_opts *o = u->o;
    kh_dataset *test;
    kh_dataset_opts read = {
        .task = u->opened ? &u->task : NULL, .skip_bad_rows = o->skip, .label_names = !u->opened
    };
    int n_test = 0;
    if (kh_test_open(&test, o->data, o->shots, o->seed, &read, NULL) == 0)
        n_test = kh_dataset_size(test);
    kh_dataset_close(test);
    kh_buf names = kh_buf_init(1 << 16);
    for (int k = 0; k < kh_dataset_labels(u->split.train) && k <= SHOWN_CLASSES; k++) {
        const char *name = kh_dataset_label(u->split.train, k);
        if (k == SHOWN_CLASSES)
            name = "...";
        kh_buf_printf(&names, "%s%s", k ? ", " : "", name ? name : "?");
    }
    cli_say(stderr, 2,
        "keyhole: %s: %d classes (%s); %d rows to learn from, %d to choose on, %d held out to "
        "judge (--seed %llu)",
        o->data, kh_dataset_labels(u->split.train), names.len > 0 ? names.data : "",
        kh_dataset_size(u->split.train), kh_dataset_size(u->split.dev), n_test,
        (unsigned long long)o->seed);
    kh_buf_free(&names);
}

static int write_task(const tune *u, kh_err *err) {
    char *path = kh_path_join(u->o->out, "task.json");
    int rc = path ? kh_task_save(u->opened, path, err) : kh_fail_memory(err);
    kh_free(path);
    return rc;
}

/* Made from the labels, and improved by asking a model on this machine: services cost. */
static int make_task(tune *u, kh_err *err) {
    const tune_opts *o = u->o;
    char *name = cli_stem(o->data);
    kh_task_search s = { .name = name,
        .ask = !kh_is_url(o->model) && o->access != KH_ACCESS_LABELS && !o->dry,
        .hooks = &cli_hooks };
    int rc = name ? kh_task_make(&u->opened, u->plm, u->split.train, &s, err) : kh_fail_memory(err);
    kh_free(name);
    if (rc == KH_STOPPED && cli_monitor_signal())
        return kh_fail(err, CLI_SIGNAL - cli_monitor_signal(),
            "interrupted while it chose words for the labels; the same command begins again");
    if (rc == 0)
        rc = take_task(u, err);
    if (rc != 0)
        return rc;
    kh_buf words = kh_buf_init(1 << 16);
    for (int k = 0; k < u->task.n_label && k <= SHOWN_CLASSES; k++)
        kh_buf_printf(
            &words, "%s %s", k ? "," : "", k == SHOWN_CLASSES ? "..." : u->task.label[k].word[0]);
    cli_say(stderr, 2, "keyhole: task: %s;%s", u->task.plain, words.len > 0 ? words.data : "");
    kh_buf_free(&words);
    return o->dry ? 0 : write_task(u, err);
}

static int open_all(tune *u, const kh_method *m, kh_err *err) {
    const tune_opts *o = u->o;
    kh_run_opts run = {
        .resume = o->resume || o->finish, .overwrite = o->force, .stop = between_pieces, .user = u
    };
    int rc = check_options(o, m, err);
    if (rc == 0)
        rc = cli_check_model(o->model, err);
    if (rc == 0)
        rc = open_task(u, err);
    if (rc == 0 && u->opened)
        rc = take_task(u, err);
    kh_dataset_opts read = { .task = u->opened ? &u->task : NULL,
        .skip_bad_rows = o->skip,
        .label_names = !u->opened,
        .hooks = &cli_hooks };
    if (rc == 0 && u->made) /* before a folder is made: most mistakes are in the data */
        rc = kh_split_open(&u->split, o->data, o->shots, o->seed, &read, err);
    if (rc == 0 && u->made)
        say_rows(u);
    if (rc == 0 && !o->dry)
        rc = cli_make_parents(o->out, err);
    if (rc == 0 && !o->dry)
        rc = kh_run_open(&u->run, o->out, &run, err);
    if (rc == 0 && o->finish && !o->dry)
        kh_run_ask_finish(u->run);
    if (rc == 0 && !u->made)
        rc = kh_split_open(&u->split, o->data, o->shots, o->seed, &read, err);
    kh_plm_opts box = { .access = access_for(o, m),
        .precision = (kh_precision)o->precision,
        .hooks = &cli_hooks,
        .http = &o->http,
        .ranks = cli_ranks,
        .cache = (size_t)(o->cache * 1e6) };
    if (rc == 0)
        rc = kh_plm_open(&u->plm, o->model, &box, err);
    if (rc == 0 && u->made && !u->opened)
        rc = make_task(u, err);
    if (rc == 0)
        kh_plm_has_seen(u->plm, &u->task, &cli_hooks);
    if (rc == 0 && o->chat && !kh_plm_describe(u->plm).next)
        rc = kh_fail(err, CLI_USAGE, "--chat is for decoders; %s fills masks", o->model);
    return rc;
}

static int run_method(tune *u, kh_err *err) {
    const tune_opts *o = u->o;
    bool inside = o->label_prior > KH_LABEL_PRIOR_CONTEXTUAL; /* the word after those of the enum */
    u->watch = (cli_monitor){ .plm = u->plm, .price = o->price, .json = o->json_progress };
    kh_hooks hooks = { .progress = cli_monitor_progress, .log = cli_hooks.log, .user = &u->watch };
    kh_tune_opts t = { .space = o->space,
        .effort = (kh_effort)o->effort,
        .search_rows = o->search_rows,
        .label_prior = inside ? KH_LABEL_PRIOR_BATCH : (kh_label_prior)o->label_prior,
        .prior_inside = inside,
        .class_prior = o->class_prior,
        .seed = o->seed,
        .paper_exact = o->paper_exact,
        .fallback = (kh_fallback)o->fallback,
        .uncalibrated = o->calibrate != 0,
        .features_model = strcmp(o->features, "none") == 0 ? NULL : o->features,
        .max_queries = o->max_queries,
        .max_tokens = o->max_tokens,
        .max_seconds = o->max_seconds,
        .groups = o->groups,
        .hooks = &hooks,
        .user = u,
        .model = u->model,
        .data = u->data,
        .folder = o->out,
        .shots = o->shots,
        .run = u->run,
        .forecast = on_forecast };
    int rc = kh_tune(&u->posterior, o->method, o->method_opts.set, u->plm, &u->task, u->split.train,
        u->split.dev, &t, err);
    if (rc == KH_STOPPED)
        return o->dry ? rc : say_interrupted(u, err);
    if (rc == 0)
        rc = kh_posterior_save(u->posterior, o->out, err);
    if (rc == 0)
        rc = kh_run_finish(u->run, err);
    if (rc == 0 && u->made && o->eval)
        rc = kh_crossfit_save(
            u->posterior, u->plm, u->split.train, u->split.dev, &t, &cli_hooks, o->out, err);
    return rc;
}

/* The held-out rows, if there are any. */
enum { JUDGED_MOST = 2000 };

static int judge(tune *u, kh_err *err) {
    kh_err own = { 0 };
    if (!u->made || !u->o->eval)
        return 0;
    int rc = cli_judge(&u->judged, u->posterior, u->plm, u->o->out, JUDGED_MOST, &own);
    if (rc == KH_STOPPED && cli_monitor_signal())
        return kh_fail(err, CLI_SIGNAL - cli_monitor_signal(),
            "interrupted while it was judged; the classifier is in %s: \"keyhole eval %s\" judges "
            "it",
            u->o->out, u->o->out);
    if (rc == KH_EMISSING) {
        kh_log(&cli_hooks, KH_WARN, "not judged: %s", own.msg);
        kh_eval_clear(&u->judged.eval);
        u->judged.eval.o = NULL;
        return 0;
    }
    return rc == 0 ? 0 : kh_fail(err, rc, "%s", own.msg);
}

static int run_tune(void *opts, int n_args, char **args, kh_err *err) {
    tune u = { .o = opts };
    const kh_method *m;
    int rc = settle(&u, n_args, args, err);
    cli_monitor_signals();
    if (rc == 0)
        rc = kh_method_find(&m, u.o->method, err);
    if (rc == 0)
        rc = open_all(&u, m, err);
    if (rc == 0)
        rc = run_method(&u, err);
    if (rc == 0)
        rc = judge(&u, err);
    if (rc == 0)
        rc = print_summary(&u, err);
    cli_judged_free(&u.judged);
    kh_free(u.model);
    kh_free(u.system);
    kh_free(u.data);
    kh_free(u.out);
    kh_run_close(u.run);
    kh_posterior_free(u.posterior);
    kh_plm_close(u.plm);
    kh_split_close(&u.split);
    kh_task_close(u.opened);
    return rc;
}

const cli_command cmd_tune = {
    .name = "tune",
    .args = "[DATA]",
    .max_args = 1,
    .summary = "Make a classifier of a frozen model and a few labelled rows",
    .text =
        "One file of labelled texts (CSV, TSV or JSONL with the columns text and label) is\n"
        "enough: a task is made from its labels, some rows are held out, and what comes out is\n"
        "judged on them. All else has a default.\n\n"
        "  keyhole tune tickets.csv                       makes the folder tickets-run\n\n"
        "The model is asked, never opened: no gradients, except by prompt-tuning,\n"
        "p-tuning-v2, model-tuning and the feature- methods, which show what the closed box\n"
        "costs. What comes out is a posterior, one or many soft prompts with\n"
        "weights or what was put on the model instead, in the folder RUN: posterior.json,\n"
        "posterior.safetensors, run.sqlite, log.txt with a line a generation. \"keyhole\n"
        "predict RUN\" uses it. The same seed gives the same posterior, bit for bit, with any "
        "number of\n"
        "threads. Every run ends: after its generations, or when a budget is used up.\n"
        "What a search finds is returned if it is surely better than the plain template;\n"
        "if it is better but not surely, the template answers beside it, by a share that\n"
        "the dev rows tell; otherwise the template is returned. \"stopped\" says which\n"
        "(--fallback).\n\n"
        "Every answer of the model is kept in RUN/run.sqlite before it is used. So a run\n"
        "that was interrupted, by Ctrl-C, SIGTERM, a full disk or a power cut, goes on\n"
        "when the same command is given with --resume, asks nothing twice and ends in the\n"
        "same bits. --resume with a larger budget makes a finished run longer. --finish\n"
        "instead makes a classifier of what is there: the generation at hand is completed,\n"
        "and what was best so far is calibrated and saved. Ctrl-C and SIGTERM exit with 130\n"
        "and 143 after the answers at hand, within seconds; a second one at once.\n\n"
        "  keyhole tune --method auto --model DIR --task sst2 --data DATA --out run\n"
        "  keyhole tune --method bbt --model DIR --task sst2 --data DATA --out run\n"
        "  keyhole tune --method bbt --effort quick ...   3,000 questions instead of 20,000\n"
        "  keyhole tune --method ensemble --members 5 --budget-generations 100 ...\n"
        "  keyhole tune --method elbo --budget-time 600 ...\n"
        "  keyhole tune --method smc --access labels ...  the box gives labels, nothing else\n"
        "  keyhole tune --method prompt-tuning ...        the same prompt, by gradients\n"
        "  keyhole tune ... --dry-run --price-per-1k-tokens 0.002\n"
        "  keyhole tune ... --resume\n"
        "  keyhole tune ... --finish\n"
        "  keyhole tune --method bbt --model http://127.0.0.1:8080 ...   \"keyhole serve\" there\n"
        "  mpirun -n 4 keyhole tune ...                   or srun: more cores, machines; "
        "doc/scale.md\n"
        "  keyhole tune --method elbo --help              the options of one method",
    .opts = tune_table,
    .opts_size = sizeof(tune_opts),
    .run = run_tune,
    .variants = &methods,
};
