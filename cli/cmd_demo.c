/* cmd_demo.c - keyhole demo: the whole of it on the examples, in a minute or two.
 *
 * Nothing here tunes or judges. The demo gives the commands that a person would give, shows them,
 * keeps what they say in a file, and makes one table of the results; in int8, for it has a minute
 * and a half. What is run stands in two tables, examples and methods. Budgets are counted in
 * questions, never in seconds, so that the numbers are the same on every run. */
#include "cli.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/place.h"
#include "report/grid.h"
#include "report/page.h"
#include "report/results.h"
#include "report/text_plot.h"
#include "monitor.h"

#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct demo_opts {
    const char *model, *data, *out;
    int rows;
    bool open, json;
} demo_opts;

static const kh_opt demo_table[] = {
    { "model", KH_OPT_TEXT, offsetof(demo_opts, model), KH_BUILTIN, .arg = "DIR|builtin",
        .help = "a model folder with its tokenizer" },
    { "data", KH_OPT_TEXT, offsetof(demo_opts, data), .arg = "DIR",
        .help = "holds reviews, topics, tickets and foreign; without it, the examples of keyhole" },
    { "out", KH_OPT_TEXT, offsetof(demo_opts, out), "keyhole-demo", .arg = "DIR",
        .help = "for runs and reports" },
    { "rows", KH_OPT_INT, offsetof(demo_opts, rows), "150", .min = 0, .max = 1e9, .arg = "N",
        .help = "judge on N rows of each set; 0: on all, which takes longer" },
    { "open", KH_OPT_FLAG, offsetof(demo_opts, open),
        .help = "show a report in the browser (xdg-open) at the end" },
    { "json", KH_OPT_FLAG, offsetof(demo_opts, json),
        .help = "print the table as JSON, and nothing else" },
    { 0 },
};

/* --------------------------------------------------------------------------------- what is run */

/* Few rows of each class, so that every question to the model counts, and as many as few-shot
 * papers take: 16 of each of two classes, 8 of each of four. */
static const struct example {
    const char *name, *shots;
    char mark;           /* of its curve */
    const char *text[3]; /* to classify at the end: an easy one, a hard one, one of another kind */
} EXAMPLES[] = {
    { "reviews", "16", 'r',
        { "A wonderful film, and the cast is superb.", "The plot is thin, but I laughed twice.",
            "Preheat the oven and grease a baking tin." } },
    { "topics", "8", 't',
        { "The striker scored twice in the last ten minutes.",
            "The minister opened a plant that makes batteries.", "asdf qwer zxcv" } },
    { "tickets", "8", 'k',
        { "I was charged twice for the same invoice.", "I cannot sign in since I paid.",
            "Der Zug nach Hamburg fährt um acht Uhr ab." } },
};

/* The template as a person wrote it, the default of "keyhole tune", and the paper's case: a box
 * that tells nothing but labels. Searches at the smallest effort, for the demo has a minute and a
 * half. */
static const struct method {
    const char *name, *sees, *words;
} METHODS[] = {
    { "manual", "log-probabilities", "--method manual" },
    { "auto", "log-probabilities", "--method auto --effort quick --budget-queries 500" },
    { "smc", "labels only",
        "--method smc --access labels --effort quick --p0 random "
        "--budget-queries 1600" },
};

enum {
    N_EXAMPLE = sizeof EXAMPLES / sizeof *EXAMPLES,
    N_METHOD = sizeof METHODS / sizeof *METHODS,
    N_RUN = N_EXAMPLE * N_METHOD,
    AUTO = 1, /* of METHODS: the one that is shown at work */
    MAX_WORD = 64
};
#define FOREIGN "foreign"
/* How predictions are shown: the default on a terminal, wherever this one writes to. */
#define SHOWN_AS "--output text"

typedef struct demo {
    const demo_opts *o;
    char *data;       /* the folder of examples */
    char *run[N_RUN]; /* folders */
    kh_result result[N_RUN];
    FILE *log; /* what the commands say */
    double started;
} demo;

/* ------------------------------------------------------------------------------------ commands */

/* The words of a command line, each in memory of its own. */
typedef struct words {
    char *word[MAX_WORD];
    int n;
    bool failed;
} words;

static void add(words *w, const char *word, size_t n) {
    if (w->n < MAX_WORD && (w->word[w->n] = kh_strndup(word, n)) != NULL)
        w->n++;
    else
        w->failed = true;
}

static void add_all(words *w, const char *text) {
    for (size_t n; *(text += strspn(text, " ")); text += n)
        add(w, text, n = strcspn(text, " "));
}

static void add_option(words *w, const char *option, const char *value) {
    add(w, option, strlen(option));
    add(w, value, strlen(value));
}

/* "DIR/A/B" as the value of an option; b may be NULL. */
static void add_path(words *w, const char *option, const char *dir, const char *a, const char *b) {
    char *path = kh_path_join(dir, a), *whole = path && b ? kh_path_join(path, b) : NULL;
    const char *value = b ? whole : path;
    if (value)
        add_option(w, option, value);
    else
        w->failed = true;
    kh_free(whole);
    kh_free(path);
}

static void words_free(words *w, char *const *owned, int n) {
    for (int i = 0; i < n; i++)
        kh_free(owned[i]);
    *w = (words){ 0 };
}

/* As it would be typed. */
static void show(FILE *out, const cli_command *c, const words *w) {
    fprintf(out, "$ keyhole %s", c->name);
    for (int i = 0; i < w->n; i++)
        fprintf(out, strpbrk(w->word[i], " '\"$&;|<>()*?\\") ? " '%s'" : " %s", w->word[i]);
    fputc('\n', out);
    fflush(out);
}

/* Runs the command with its standard output in the log. The words are freed. */
static int give(demo *d, const cli_command *c, words *w, kh_err *err) {
    char threads[16], *owned[MAX_WORD + 2];
    int kept = -1, rc = w->failed ? kh_fail_memory(err) : 0;
    if (rc == 0 && !d->o->json)
        show(stdout, c, w);
    if (rc == 0)
        show(d->log, c, w);
    snprintf(threads, sizeof threads, "%d", kh_threads());
    add_option(w, "--threads", threads);
    int n = w->n;
    memcpy(owned, w->word, sizeof w->word); /* parsing sorts them */
    if (rc == 0 && w->failed)
        rc = kh_fail_memory(err);
    if (rc == 0 &&
        (fflush(stdout) != 0 || (kept = dup(STDOUT_FILENO)) < 0 ||
            dup2(fileno(d->log), STDOUT_FILENO) < 0))
        rc = kh_fail_errno(err, "standard output", "cannot be set aside");
    if (rc == 0)
        rc = cli_run_command(c, w->word, w->n, err);
    fflush(stdout);
    if (kept >= 0) {
        dup2(kept, STDOUT_FILENO);
        close(kept);
    }
    words_free(w, owned, n);
    return rc;
}

static int tune(
    demo *d, const struct example *e, const struct method *m, const char *run, kh_err *err) {
    words w = { 0 };
    add_all(&w, m->words);
    add_option(&w, "--model", d->o->model);
    add_path(&w, "--task", d->data, e->name, "task.json");
    add_path(&w, "--data", d->data, e->name, NULL);
    add_option(&w, "--shots", e->shots);
    add_option(&w, "--precision", "int8");
    add_option(&w, "--out", run);
    add_all(&w, "--force");
    int rc = give(d, &cmd_tune, &w, err);
    signal(SIGINT, SIG_DFL); /* judging has nothing to put in order */
    signal(SIGTERM, SIG_DFL);
    return rc == 0 && cli_monitor_signal()
        ? kh_fail(err, CLI_SIGNAL - cli_monitor_signal(), "interrupted")
        : rc;
}

static int judge(demo *d, const char *run, kh_err *err) {
    words w = { 0 };
    char rows[16];
    add(&w, run, strlen(run));
    add_path(&w, "--ood", d->data, FOREIGN, NULL);
    snprintf(rows, sizeof rows, "%d", d->o->rows);
    if (d->o->rows > 0)
        add_option(&w, "--rows", rows);
    return give(d, &cmd_eval, &w, err);
}

static int run_all(demo *d, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < N_RUN && rc == 0; i++) {
        char name[64];
        const struct example *e = &EXAMPLES[i / N_METHOD];
        const struct method *m = &METHODS[i % N_METHOD];
        snprintf(name, sizeof name, "%s-%s", e->name, m->name);
        if (!d->o->json)
            printf("\n%s, %s: %d of %d\n", e->name, m->name, i + 1, N_RUN);
        d->run[i] = kh_path_join(d->o->out, name);
        rc = d->run[i] ? tune(d, e, m, d->run[i], err) : kh_fail_memory(err);
        if (rc == 0)
            rc = judge(d, d->run[i], err);
        if (rc == 0)
            rc = kh_result_open(&d->result[i], d->run[i], err);
    }
    return rc;
}

/* ----------------------------------------------------------------------------------- the table */

/* A column is a metric of results.json by name, or a field of the result. */
static const struct column {
    const char *title, *json;
    const char *key[4]; /* a later one where those before it have no value */
    size_t field;       /* of kh_result, where there is no key */
    const char *text;
    int better; /* 1: more */
} COLUMNS[] = {
    { "accuracy", "accuracy", { "accuracy" }, 0,
        "share of right answers, on rows that were not learned from", 1 },
    { "NLL", "nll", { "nll" }, 0, "negative log-likelihood of the true class", -1 },
    { "ECE", "ece", { "ece" }, 0, "expected calibration error: confidence against accuracy", -1 },
    { "answered", "answered", { NULL }, offsetof(kh_result, answered),
        "share of rows that it does not abstain from", 1 },
    { "wrong", "risk", { NULL }, offsetof(kh_result, risk),
        "share of wrong ones among the answers it gives", -1 },
    { "OOD", "ood_auroc",
        { "ood." FOREIGN ".both.auroc", "ood." FOREIGN ".distance.auroc",
            "ood." FOREIGN ".energy.auroc", "ood." FOREIGN ".entropy.auroc" },
        0, "out-of-distribution texts told from its own (AUROC; 0.5 is a guess)", 1 },
};
enum { N_COLUMN = sizeof COLUMNS / sizeof *COLUMNS };

static double value(const demo *d, int run, int column) {
    const struct column *c = &COLUMNS[column];
    const kh_result *r = &d->result[run];
    if (!c->key[0])
        return *(const double *)((const char *)r + c->field);
    double x = NAN;
    for (size_t i = 0; i < sizeof c->key / sizeof *c->key && isnan(x) && c->key[i]; i++)
        x = kh_result_value(r, c->key[i]);
    return x;
}

static bool is_best(const demo *d, int run, int column) {
    int first = run / N_METHOD * N_METHOD, sign = COLUMNS[column].better;
    double own = value(d, run, column);
    for (int i = first; i < first + N_METHOD; i++)
        if (sign * value(d, i, column) > sign * own)
            return false;
    return !isnan(own);
}

static void put_table(const demo *d, kh_buf *out) {
    kh_grid t = { .n_col = 3 + N_COLUMN, .n_left = 3, .colour = isatty(STDOUT_FILENO) };
    kh_grid_add(&t, "example");
    kh_grid_add(&t, "method");
    kh_grid_add(&t, "sees");
    for (int c = 0; c < N_COLUMN; c++)
        kh_grid_add(&t, "%s", COLUMNS[c].title);
    for (int i = 0; i < N_RUN; i++) {
        kh_grid_add(&t, "%s", EXAMPLES[i / N_METHOD].name);
        kh_grid_add(&t, "%s", METHODS[i % N_METHOD].name);
        kh_grid_add(&t, "%s", METHODS[i % N_METHOD].sees);
        for (int c = 0; c < N_COLUMN; c++) {
            if (isnan(value(d, i, c)))
                kh_grid_add(&t, "-");
            else
                kh_grid_add(&t, "%.3f", value(d, i, c));
            if (is_best(d, i, c))
                kh_grid_strong(&t);
        }
    }
    kh_grid_put(&t, KH_GRID_TEXT, out);
    kh_grid_free(&t);
    kh_buf_char(out, '\n');
    for (int c = 0; c < N_COLUMN; c++)
        kh_buf_printf(out, "  %-9s %s\n", COLUMNS[c].title, COLUMNS[c].text);
}

/* Error against coverage of what "keyhole tune" gives, one curve an example. */
static void put_plot(const demo *d, kh_buf *out) {
    kh_text_curve curve[N_EXAMPLE];
    for (int i = 0; i < N_EXAMPLE; i++) {
        const kh_result *r = &d->result[i * N_METHOD + AUTO];
        curve[i] = (kh_text_curve){ EXAMPLES[i].mark, EXAMPLES[i].name, r->curve, r->n_curve };
    }
    kh_buf_text(
        out, "\nThe less it answers, the fewer of its answers are wrong (method auto):\n\n");
    kh_text_plot(curve, N_EXAMPLE, "error", "answered", out);
}

static void put_json(const demo *d, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "model", d->o->model);
    kh_json_open_array(&j, "runs");
    for (int i = 0; i < N_RUN; i++) {
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "example", EXAMPLES[i / N_METHOD].name);
        kh_json_put_string(&j, "method", METHODS[i % N_METHOD].name);
        kh_json_put_int(&j, "rows", d->result[i].rows);
        for (int c = 0; c < N_COLUMN; c++)
            kh_json_put_number(&j, COLUMNS[c].json, value(d, i, c), 12);
        kh_json_put_string(&j, "run", d->run[i]);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_put_fixed(&j, "seconds", kh_clock() - d->started, 1);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* What it was, and what came of it. */
static void put_text(const demo *d, kh_buf *out) {
    kh_buf_text(out,
        "\nOne frozen model, queried and never opened, 32 labelled rows of each example. "
        "\"manual\" is the\n"
        "template that a person wrote, \"auto\" what \"keyhole tune\" does by default; \"smc\" "
        "sees predicted\n"
        "labels only: its prompts vote. The best of an example by a column is marked.\n\n");
    put_table(d, out);
    put_plot(d, out);
    kh_buf_printf(out, "\nThese took %.0f seconds. Reports, with plots and the rows to look at:\n",
        kh_clock() - d->started);
    for (int i = 0; i < N_RUN; i++)
        kh_buf_printf(out, "  %s/" KH_PAGE_NAME "\n", d->run[i]);
    kh_buf_printf(out, "The output of the commands is in %s/log.txt.\n", d->o->out);
}

static void put_next(const demo *d, kh_buf *out) {
    const char *run = d->run[AUTO];
    kh_buf_printf(out, "\nNext:\n  keyhole predict %s \"Not bad at all.\"\n", run);
    kh_buf_printf(out, "  keyhole serve --run %s    # and a page at http://127.0.0.1:8080\n", run);
    kh_buf_text(out, "  keyhole tune my.csv           # texts and labels of your own\n");
}

/* The classifiers at work. Their answers go where they would go: to standard output. */
static int classify(const demo *d, kh_err *err) {
    int rc = 0;
    puts("\nThe classifiers of \"auto\" on three texts each: an easy one, a hard one, one of "
         "another kind.");
    for (int i = 0; i < N_EXAMPLE && rc == 0; i++) {
        words w = { 0 };
        const char *run = d->run[i * N_METHOD + AUTO];
        add(&w, run, strlen(run));
        add_all(&w, SHOWN_AS);
        for (int k = 0; k < 3; k++)
            add(&w, EXAMPLES[i].text[k], strlen(EXAMPLES[i].text[k]));
        char *owned[MAX_WORD];
        int n = w.n;
        memcpy(owned, w.word, sizeof w.word);
        putchar('\n');
        rc = w.failed ? kh_fail_memory(err) : 0;
        if (rc == 0) {
            show(stdout, &cmd_predict, &w);
            rc = cli_run_command(&cmd_predict, w.word, w.n, err);
        }
        words_free(&w, owned, n);
    }
    return rc;
}

/* ------------------------------------------------------------------------------------ the demo */

/* A browser is welcome to fail: the paths are on the screen. */
static void open_report(const demo *d) {
    char *page = kh_path_join(d->run[AUTO], KH_PAGE_NAME), *argv[] = { "xdg-open", page, NULL };
    pid_t child;
    int status = 0;
    if (page &&
        (posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) != 0 ||
            waitpid(child, &status, 0) < 0 || status != 0))
        fprintf(stderr, "keyhole: xdg-open could not show %s\n", page);
    kh_free(page);
}

static int open_all(demo *d, kh_err *err) {
    char *model = NULL;
    int rc = kh_place_model(&model, d->o->model, err); /* before anything is written */
    kh_free(model);
    if (rc == 0 && d->o->data)
        rc = (d->data = kh_strdup(d->o->data)) ? 0 : kh_fail_memory(err);
    else if (rc == 0)
        rc = kh_place_examples(&d->data, err);
    if (rc == 0)
        rc = kh_dir_make(d->o->out, err);
    char *path = rc == 0 ? kh_path_join(d->o->out, "log.txt") : NULL;
    if (rc == 0 && !path)
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_file_open_log(path, &d->log, err);
    kh_free(path);
    return rc;
}

static int run_demo(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    demo d = { .o = opts, .started = kh_clock() };
    kh_buf text = kh_buf_init(KH_BUF_MAX);
    int rc = open_all(&d, err);
    if (rc == 0)
        rc = run_all(&d, err);
    if (rc == 0) {
        (d.o->json ? put_json : put_text)(&d, &text);
        rc = kh_buf_failed(&text) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0)
        fwrite(text.data, 1, text.len, stdout);
    if (rc == 0 && !d.o->json)
        rc = classify(&d, err);
    if (rc == 0 && !d.o->json) {
        kh_buf_reset(&text);
        put_next(&d, &text);
        fwrite(text.data, 1, text.len, stdout);
    }
    if (rc == 0 && d.o->open)
        open_report(&d);
    kh_buf_free(&text);
    if (d.log)
        fclose(d.log);
    for (int i = 0; i < N_RUN; i++) {
        kh_free(d.run[i]);
        kh_result_free(&d.result[i]);
    }
    kh_free(d.data);
    return rc;
}

const cli_command cmd_demo = {
    .name = "demo",
    .args = "",
    .summary = "All of it on the examples, from a frozen model to reports, in a minute or two",
    .text = "Three examples come with keyhole: opinions on films (reviews), news in four\n"
            "sections (topics) and messages to a help desk (tickets); a fourth set is none of\n"
            "them (foreign). On each example a template alone, \"auto\", which is the default of\n"
            "\"keyhole tune\", and prompts found by labels alone are judged, with small budgets\n"
            "and in int8; the commands are shown, so that they can be given again and changed.\n"
            "It ends in a table, a plot, reports, and the classifiers on a few texts. The\n"
            "numbers are the same on every run with the same model on the same kind of CPU.\n\n"
            "  keyhole demo\n"
            "  keyhole demo --out demo --open\n"
            "  keyhole demo --model DIR --rows 0",
    .opts = demo_table,
    .opts_size = sizeof(demo_opts),
    .run = run_demo,
};
