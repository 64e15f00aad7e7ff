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
        .help =
            "holds reviews, topics and foreign; without it, the examples that come with keyhole" },
    { "out", KH_OPT_TEXT, offsetof(demo_opts, out), "keyhole-demo", .arg = "DIR",
        .help = "for runs and reports" },
    { "rows", KH_OPT_INT, offsetof(demo_opts, rows), "120", .min = 0, .max = 1e9, .arg = "N",
        .help = "judge on N rows of each set; 0: on all, which takes longer" },
    { "open", KH_OPT_FLAG, offsetof(demo_opts, open),
        .help = "show a report in the browser (xdg-open) at the end" },
    { "json", KH_OPT_FLAG, offsetof(demo_opts, json),
        .help = "print the table as JSON, and nothing else" },
    { 0 },
};

/* --------------------------------------------------------------------------------- what is run */

/* Few rows of each class, so that every question to the model counts: 32 rows to learn from in
 * either example. */
static const struct example {
    const char *name, *shots;
} EXAMPLES[] = { { "reviews", "16" }, { "topics", "8" } };

/* Small prompts and few dimensions: the questions are cheap and a short search gets somewhere, if
 * it begins with steps as wide as the prior. The paper's sizes are the defaults of "keyhole tune".
 */
static const struct method {
    const char *name, *sees, *words;
} METHODS[] = {
    { "manual", "log-probabilities", "--method manual" },
    { "bbt", "log-probabilities",
        "--method bbt --slots 5 --p0 random --dim 50 --sigma 6 --pop 10 --budget-generations 10 "
        "--dev-every 2" },
    { "ensemble", "log-probabilities",
        "--method ensemble --members 3 --slots 5 --p0 random --dim 50 --sigma 6 --pop 8 "
        "--budget-generations 5 --dev-every 3" },
    { "smc", "labels only",
        "--method smc --access labels --slots 5 --p0 random --dim 50 --samples 8 --first-draws 12 "
        "--max-moves 3 "
        "--budget-queries 3000" },
};

enum {
    N_EXAMPLE = sizeof EXAMPLES / sizeof *EXAMPLES,
    N_METHOD = sizeof METHODS / sizeof *METHODS,
    N_RUN = N_EXAMPLE * N_METHOD,
    MAX_WORD = 64
};
#define FOREIGN "foreign"

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
    int n = w->n, kept = -1, rc = w->failed ? kh_fail_memory(err) : 0;
    if (rc == 0 && !d->o->json)
        show(stdout, c, w);
    if (rc == 0)
        show(d->log, c, w);
    snprintf(threads, sizeof threads, "%d", kh_threads());
    add_option(w, "--threads", threads);
    n = w->n;
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

static const struct column {
    const char *title, *key[2], *text; /* the second key where the first has no value */
    int better;                        /* 1: more */
} COLUMNS[] = {
    { "accuracy", { "accuracy" }, "share of right answers, on rows that were not learned from", 1 },
    { "ECE", { "ece" }, "how far its confidence is from the share of right answers; less is better",
        -1 },
    { "surest half", { NULL },
        "share of wrong answers if it abstains from all but the half of the rows that it is surest "
        "of",
        -1 },
    { FOREIGN, { "ood." FOREIGN ".energy.auroc", "ood." FOREIGN ".entropy.auroc" },
        "how well it tells recipes, code, weather, ... from its own kind of text, by energy if it "
        "sees logits, else by entropy: "
        "0.5 is a guess, 1 perfect (AUROC)",
        1 },
};
enum { N_COLUMN = sizeof COLUMNS / sizeof *COLUMNS };

static double value(const demo *d, int run, int column) {
    const char *const *key = COLUMNS[column].key;
    double x = key[0] ? kh_result_value(&d->result[run], key[0]) : d->result[run].half;
    return isnan(x) && key[1] ? kh_result_value(&d->result[run], key[1]) : x;
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
            kh_grid_add(&t, "%.3f", value(d, i, c));
            if (is_best(d, i, c))
                kh_grid_strong(&t);
        }
    }
    kh_grid_put(&t, KH_GRID_TEXT, out);
    kh_grid_free(&t);
    kh_buf_char(out, '\n');
    for (int c = 0; c < N_COLUMN; c++)
        kh_buf_printf(out, "  %-12s %s\n", COLUMNS[c].title, COLUMNS[c].text);
}

static void put_json(const demo *d, kh_buf *out) {
    static const char *const NAMES[N_COLUMN] = { "accuracy", "ece", "risk_of_surest_half",
        "foreign_auroc" };
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
            kh_json_put_number(&j, NAMES[c], value(d, i, c), 12);
        kh_json_put_string(&j, "run", d->run[i]);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_put_fixed(&j, "seconds", kh_clock() - d->started, 1);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* What it was, where it is, what to do next. */
static void put_text(const demo *d, kh_buf *out) {
    const char *last = d->run[N_METHOD - 1];
    kh_buf_text(out,
        "\nOne frozen model, asked and never opened: \"manual\" is the template that a person "
        "wrote, the others put soft\n"
        "prompts in front of it, learned from 32 labelled rows. \"bbt\" finds one prompt by the "
        "probabilities of the label\n"
        "words, \"ensemble\" averages several such, and \"smc\" sees nothing but the label that "
        "comes out: its prompts vote.\n"
        "What is best of its example by its column is marked; these are small budgets, \"keyhole "
        "tune\" has larger ones.\n\n");
    put_table(d, out);
    kh_buf_printf(out,
        "\nThese took %.0f seconds. Reports, one a run, with plots and the rows to look at:\n",
        kh_clock() - d->started);
    for (int i = 0; i < N_RUN; i++)
        kh_buf_printf(out, "  %s/" KH_PAGE_NAME "\n", d->run[i]);
    kh_buf_printf(out, "What the commands said is in %s/log.txt.\n\nNext:\n", d->o->out);
    kh_buf_printf(out, "  echo \"Not bad at all.\" | keyhole predict %s\n", last);
    kh_buf_printf(out,
        "  keyhole serve --run %s                        # and a page at http://127.0.0.1:8080\n",
        last);
    kh_buf_printf(out,
        "  keyhole tune --method smc --access labels --model %s --task mine.json --data mine --out "
        "run\n",
        d->o->model);
}

/* ------------------------------------------------------------------------------------ the demo */

/* A browser is welcome to fail: the paths are on the screen. */
static void open_report(const demo *d) {
    char *page = kh_path_join(d->run[N_METHOD - 1], KH_PAGE_NAME),
         *argv[] = { "xdg-open", page, NULL };
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
    .text = "Two examples come with keyhole: opinions on films and things (reviews), and news\n"
            "in four sections (topics); a third set is neither (foreign). On each example a\n"
            "template alone, a soft prompt found by probabilities, several such, and prompts\n"
            "found by labels alone are judged, with small budgets and in int8; the commands are\n"
            "shown, so that they can be given again and changed.\n"
            "It ends in a table, reports, and what to try next. The numbers are the same on\n"
            "every run with the same model on the same kind of CPU.\n\n"
            "  keyhole demo\n"
            "  keyhole demo --out demo --open\n"
            "  keyhole demo --model DIR --rows 0",
    .opts = demo_table,
    .opts_size = sizeof(demo_opts),
    .run = run_demo,
};
