/* main.c - finds the subcommand, parses its options by table, runs it, prints its one error
 * sentence. */
#include "cli.h"
#include "launcher.h"
#include "monitor.h"
#include "suggest.h"
#include "version.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_out.h"
#include "plm/hub.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const cli_command *const cli_commands[] = {
    &cmd_demo,
    &cmd_tokenize,
    &cmd_tokenizer_train,
    &cmd_data_check,
    &cmd_data_stats,
    &cmd_data_split,
    &cmd_task_list,
    &cmd_task_show,
    &cmd_task_check,
    &cmd_fill_mask,
    &cmd_next,
    &cmd_features,
    &cmd_inspect,
    &cmd_model_random,
    &cmd_model_prune,
    &cmd_model_convert,
    &cmd_pull,
    &cmd_pretrain,
    &cmd_tune,
    &cmd_eval,
    &cmd_predict,
    &cmd_compare,
    &cmd_reproduce,
    &cmd_runs,
    &cmd_log,
    &cmd_serve,
    &cmd_export,
    &cmd_metrics,
    &cmd_calibrate,
    &cmd_bench_tokenize,
    &cmd_bench_engine,
    &cmd_bench_train,
    &cmd_bench_cmaes,
    &cmd_bench_sbi,
    &cmd_help,
    NULL,
};

/* ------------------------------------------------------------------------------------ progress */

static bool bar_open; /* a bar stands on the terminal's last line */

static void close_bar(void) {
    if (bar_open)
        fputc('\n', stderr);
    bar_open = false;
}

/* At most one line a second where lines are kept; the last one of a phase always. */
static bool is_due(const kh_progress *p) {
    static double shown = -1;
    double now = kh_clock();
    if (p->done != p->total && shown >= 0 && now - shown < 1)
        return false;
    shown = now;
    return true;
}

/* One line that fits: phase, bar and percent first, then the parts of the note that there is room
 * for, each whole; a narrow terminal gets a shorter bar. The last column stays free, or terminals
 * would wrap. */
static void draw_line(const kh_progress *p, const char *note, int columns) {
    static const char HASHES[] = "####################", DOTS[] = "....................";
    char line[128];
    int bar = columns >= 40 ? 10 : 0, n;
    if (columns >= 60)
        bar = 20;
    double share = p->total > 0 ? (double)p->done / (double)p->total : 0;
    int filled = share < 1 ? (int)(share * bar) : bar;
    if (p->total > 0 && bar > 0)
        n = snprintf(line, sizeof line, "%s [%.*s%.*s] %3.0f%% ", p->phase, filled, HASHES,
            bar - filled, DOTS, share * 100);
    else if (p->total > 0)
        n = snprintf(line, sizeof line, "%s %3.0f%% ", p->phase, share * 100);
    else
        n = snprintf(line, sizeof line, "%s %ld ", p->phase, p->done);
    n = n < columns ? n : columns - 1;
    fprintf(stderr, "\r\033[K%.*s%.*s", n, line, (int)cli_fitting(note, columns - 1 - n), note);
}

/* The time that is left of a phase at the speed so far, for phases that say nothing of it. */
static void put_left(const kh_progress *p, char *out, size_t cap) {
    static char phase[64];
    static double started;
    char time[32];
    double now = kh_clock();
    if (strncmp(phase, p->phase, sizeof phase - 1) != 0) {
        snprintf(phase, sizeof phase, "%s", p->phase);
        started = now;
    }
    double spent = now - started;
    out[0] = '\0';
    if (p->done > 0 && p->total > p->done && spent > 1)
        snprintf(out, cap, "%s left",
            kh_duration(spent / (double)p->done * (double)(p->total - p->done), time, sizeof time));
}

static int show_progress(void *user, const kh_progress *p) {
    (void)user;
    char left[64];
    put_left(p, left, sizeof left);
    const char *note = p->note && *p->note ? p->note : left;
    if (!isatty(STDERR_FILENO)) {
        if (is_due(p))
            fprintf(stderr, "%s done=%ld total=%ld%s%s\n", p->phase, p->done, p->total,
                *note ? " " : "", note);
        return cli_monitor_signal();
    }
    draw_line(p, note, cli_width(stderr));
    bar_open = true;
    if (p->done == p->total)
        close_bar();
    fflush(stderr);
    return cli_monitor_signal();
}

static void show_log(void *user, kh_level level, const char *line) {
    (void)user;
    if (level < KH_INFO)
        return;
    close_bar();
    cli_say(stderr, 2, "keyhole: %s%s", level == KH_WARN ? "warning: " : "", line);
}

/* A signal that "keyhole tune" and its like have caught ends waiting, too. */
static int must_stop(void *user) {
    (void)user;
    return cli_monitor_signal();
}

const kh_hooks cli_hooks = { .progress = show_progress, .log = show_log, .stop = must_stop };

int cli_print_json(kh_json_out *j, FILE *to, kh_err *err) {
    int rc = kh_json_out_done(j) ? 0 : kh_fail_memory(err);
    kh_buf_char(j->out, '\n');
    if (rc == 0 && !kh_buf_failed(j->out))
        fwrite(j->out->data, 1, j->out->len, to);
    kh_buf_free(j->out);
    return rc;
}

int cli_read_line(FILE *in, kh_buf *line, kh_err *err) {
    if (line->max == 0)
        *line = kh_buf_init((size_t)64 << 20);
    kh_buf_reset(line);
    int c;
    while ((c = getc_unlocked(in)) != EOF && c != '\n')
        kh_buf_char(line, (char)c);
    if (ferror(in))
        return kh_fail_errno(err, "standard input", "cannot read");
    if (c == EOF && line->len == 0)
        return 0;
    kh_buf_bytes(line, "", 0); /* an empty line is an empty string, not NULL */
    if (kh_buf_failed(line))
        return kh_fail(err, KH_ELIMIT, "standard input: a line of more than 64 MB");
    if (line->len > 0 && line->data[line->len - 1] == '\r')
        line->data[--line->len] = '\0';
    return 1;
}

/* ------------------------------------------------------------------------------------- parsing */

/* The options that every command takes. */
typedef struct common_opts {
    bool help;
    int threads;
} common_opts;

static const kh_opt common_table[] = {
    { "help", KH_OPT_FLAG, offsetof(common_opts, help), .help = "explain this command" },
    { "threads", KH_OPT_INT, offsetof(common_opts, threads), "0", .min = 0, .max = 1024, .arg = "N",
        .help = "threads to use; 0 means one for each core" },
    { 0 },
};

typedef struct parsed {
    const cli_command *cmd;
    void *opts;
    cli_variant variant; /* name NULL: none */
    void *variant_opts;
    kh_strings set; /* its options as they were given, in memory of their own; then NULL */
    bool named;     /* the variant was named, not the standard one */
    common_opts common;
    char **args; /* positional ones, moved to the front of argv */
    int n_args;
} parsed;

static bool is_option(const char *word) { return word[0] == '-' && word[1] != '\0'; }

/* The value of --name among the words, before they are parsed, or NULL; that of a flag is "". The
 * last one counts. */
static const char *peek(const char *name, bool flag, char **argv, int argc) {
    size_t n = strlen(name);
    const char *value = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, n) != 0)
            continue;
        const char *rest = argv[i] + 2 + n;
        if (*rest == '=')
            value = rest + 1;
        else if (!*rest && (flag || i + 1 < argc))
            value = flag ? "" : argv[i + 1];
    }
    return value;
}

static int unknown_variant(const cli_variants *v, const char *name, kh_err *err) {
    kh_buf all = kh_buf_init(1 << 12);
    cli_variant each;
    for (int i = 0; v->at(i, &each); i++)
        kh_buf_printf(&all, "%s%s", i ? ", " : "", each.name);
    cli_suggestion s = cli_suggest(name, strlen(name));
    for (int i = 0; v->at(i, &each); i++)
        cli_suggest_offer(&s, each.name);
    int rc = kh_fail(err, CLI_USAGE, "--%s takes one of %s; got \"%s\"%s%s%s", v->option,
        all.data ? all.data : "a few", name, cli_suggested(&s) ? "; did you mean " : "",
        cli_suggested(&s) ? cli_suggested(&s) : "", cli_suggested(&s) ? "?" : "");
    kh_buf_free(&all);
    return rc;
}

/* Finds the variant that the words ask for and readies its options. */
static int choose_variant(parsed *p, char **argv, int argc, kh_err *err) {
    const cli_variants *v = p->cmd->variants;
    const char *name = v ? peek(v->option, false, argv, argc) : NULL;
    p->named = name != NULL;
    if (!name && v)
        name = v->standard;
    if (!name)
        return 0;
    int i = 0;
    while (v->at(i, &p->variant) && strcmp(p->variant.name, name) != 0)
        i++;
    if (!v->at(i, &p->variant))
        return unknown_variant(v, name, err);
    p->variant_opts = kh_calloc(1, p->variant.opts_size + 1);
    if (!p->variant_opts)
        return kh_fail_memory(err);
    kh_opts_init(p->variant.opts, p->variant_opts);
    if (v->preset && p->variant.preset && peek(v->preset, true, argv, argc))
        p->variant.preset(p->variant_opts);
    return 0;
}

/* Tells the command what was found for its variant. */
static int hand_over_variant(parsed *p, kh_err *err) {
    if (!p->variant_opts)
        return 0;
    if (!kh_strings_add(&p->set, NULL))
        return kh_fail_memory(err);
    cli_chosen chosen = { p->variant_opts, p->set.item };
    memcpy((char *)p->opts + p->cmd->variants->offset, &chosen, sizeof chosen);
    return 0;
}

/* Sets an option; one of the variant is also noted as "name=value". */
static int set_option(parsed *p, const kh_opt *row, void *into, const char *value, kh_err *err) {
    int rc = kh_opts_set(row, into, value, err);
    if (rc != 0 || into != p->variant_opts)
        return rc;
    size_t n = strlen(row->name) + strlen(value) + 2;
    char *word = kh_malloc(n);
    if (!word || !kh_strings_add(&p->set, word)) {
        kh_free(word);
        return kh_fail_memory(err);
    }
    snprintf(word, n, "%s=%s", row->name, value);
    return 0;
}

/* The row called `name` and the struct that it fills: of the command, of its variant, or of every
 * command. */
static const kh_opt *find_row(parsed *p, const char *name, size_t n, void **into) {
    const kh_opt *row = kh_opts_find(p->cmd->opts, name, n);
    *into = p->opts;
    if (!row && p->variant_opts && (row = kh_opts_find(p->variant.opts, name, n)) != NULL)
        *into = p->variant_opts;
    if (!row && (row = kh_opts_find(common_table, name, n)) != NULL)
        *into = &p->common;
    return row;
}

static void offer_options(cli_suggestion *s, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++)
        cli_suggest_offer(s, row->name);
}

static int unknown_option(const parsed *p, const char *word, size_t n, kh_err *err) {
    char hint[128] = "";
    cli_suggestion s = cli_suggest(word, n);
    offer_options(&s, p->cmd->opts);
    if (p->variant_opts)
        offer_options(&s, p->variant.opts);
    offer_options(&s, common_table);
    if (cli_suggested(&s))
        snprintf(hint, sizeof hint, "; did you mean --%s?", cli_suggested(&s));
    if (p->named)
        return kh_fail(err, CLI_USAGE, "unknown option --%.*s for \"keyhole %s --%s %s\"%s", (int)n,
            word, p->cmd->name, p->cmd->variants->option, p->variant.name, hint);
    return kh_fail(err, CLI_USAGE, "unknown option --%.*s for \"keyhole %s\"%s", (int)n, word,
        p->cmd->name, hint);
}

/* The option in argv[*i]: "--name value", "--name=value", "--flag", "--no-flag"; a list takes every
 * value up to the next option. Leaves *i at the last word used. */
static int parse_option(parsed *p, char **argv, int argc, int *i, kh_err *err) {
    const char *word = argv[*i] + 2, *equals = strchr(word, '=');
    if (strcmp(argv[*i], "-h") == 0) {
        p->common.help = true;
        return 0;
    }
    if (argv[*i][1] != '-')
        return kh_fail(err, CLI_USAGE,
            "unknown option \"%s\": options are long and start with two dashes", argv[*i]);
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    void *into;
    const char *value = equals ? equals + 1 : NULL;
    const kh_opt *row = find_row(p, word, n, &into);
    if (!row && n > 3 && !equals && memcmp(word, "no-", 3) == 0 &&
        (row = find_row(p, word + 3, n - 3, &into)) != NULL) {
        if (row->type != KH_OPT_FLAG)
            row = NULL;
        value = "false";
    }
    if (!row)
        return unknown_option(p, word, n, err);
    if (row->type == KH_OPT_FLAG && !value)
        value = "true";
    if (!value) {
        if (*i + 1 >= argc)
            return kh_fail(err, CLI_USAGE, "--%s needs a value: %s", row->name, row->arg);
        value = argv[++*i];
    }
    int rc = set_option(p, row, into, value, err);
    while (
        rc == 0 && row->type == KH_OPT_LIST && !equals && *i + 1 < argc && !is_option(argv[*i + 1]))
        rc = set_option(p, row, into, argv[++*i], err);
    if (rc == KH_EARG && err)
        err->code = rc = CLI_USAGE;
    return rc;
}

static int parse(parsed *p, char **argv, int argc, kh_err *err) {
    bool only_args = false;
    p->args = argv;
    for (int i = 0; i < argc; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0)
            only_args = true;
        else if (!only_args && is_option(argv[i])) {
            int rc = parse_option(p, argv, argc, &i, err);
            if (rc != 0)
                return rc;
        } else
            p->args[p->n_args++] = argv[i];
    }
    return 0;
}

/* Whether a required option was given: only texts and lists can be required, and both start as
 * nothing. */
static int check_complete(const parsed *p, kh_err *err) {
    char missing[1024];
    size_t used = 0;
    for (const kh_opt *row = p->cmd->opts; row && row->name; row++) {
        const void *at = (const char *)p->opts + row->offset;
        bool empty = (row->type == KH_OPT_LIST && ((const kh_strings *)at)->n == 0) ||
            (row->type == KH_OPT_TEXT && !*(const char *const *)at);
        if (row->required && empty)
            used += (size_t)snprintf(missing + used, sizeof missing - used,
                "%s--%s %s is needed: %s", used ? "; " : "", row->name, row->arg, row->help);
        used = used < sizeof missing ? used : sizeof missing - 1;
    }
    if (p->n_args < p->cmd->min_args && used == 0)
        return kh_fail(
            err, CLI_USAGE, "%s is needed after \"keyhole %s\"", p->cmd->args, p->cmd->name);
    if (p->n_args < p->cmd->min_args)
        return kh_fail(err, CLI_USAGE, "%s is needed after \"keyhole %s\"; %s", p->cmd->args,
            p->cmd->name, missing);
    if (used > 0)
        return kh_fail(err, CLI_USAGE, "%s", missing);
    if (p->cmd->max_args >= 0 && p->n_args > p->cmd->max_args)
        return kh_fail(err, CLI_USAGE, "unexpected argument \"%s\" for \"keyhole %s\"",
            p->args[p->cmd->max_args], p->cmd->name);
    return 0;
}

/* Models of a hub that the command names are fetched before it runs. Arguments are models for some
 * commands, and texts, files or runs for the others: a text that begins with "hf:" asks nobody. */
static int ensure_models(const parsed *p, kh_err *err) {
    const kh_hub_opts o = { .hooks = &cli_hooks };
    int rc = 0;
    if (p->cmd == &cmd_pull)
        return 0;
    for (const kh_opt *row = p->cmd->opts; row && row->name && rc == 0; row++) {
        const char *const *value = (const char *const *)((const char *)p->opts + row->offset);
        if (row->type == KH_OPT_TEXT && strcmp(row->name, "model") == 0 && *value)
            rc = kh_hub_ensure(*value, &o, err);
    }
    bool models = p->cmd->args && strncmp(p->cmd->args, "MODEL", 5) == 0;
    for (int i = 0; i < p->n_args && rc == 0 && models; i++)
        rc = kh_hub_ensure(p->args[i], &o, err);
    return rc;
}

/* The folder in which a result is to stand is made, as far as it is not there. */
static int make_room(const parsed *p, kh_err *err) {
    int rc = 0;
    for (const kh_opt *o = p->cmd->opts; o && o->name; o++)
        if (strcmp(o->name, "dry-run") == 0 && *(const bool *)((const char *)p->opts + o->offset))
            return 0;
    for (const kh_opt *o = p->cmd->opts; o && o->name && rc == 0; o++) {
        bool place = strcmp(o->name, "out") == 0 || strcmp(o->name, "rows-out") == 0;
        const char *path = place && o->type == KH_OPT_TEXT
            ? *(const char *const *)((const char *)p->opts + o->offset)
            : NULL;
        if (path)
            rc = cli_make_parents(path, err);
    }
    return rc;
}

int cli_run_command(const cli_command *cmd, char **argv, int argc, kh_err *err) {
    parsed p = { .cmd = cmd, .opts = kh_calloc(1, cmd->opts_size + 1) };
    if (!p.opts)
        return kh_fail_memory(err);
    kh_opts_init(cmd->opts, p.opts);
    int rc = choose_variant(&p, argv, argc, err);
    if (rc == 0)
        rc = parse(&p, argv, argc, err);
    if (rc == 0 && p.common.help) {
        cli_print_help(stdout, cmd, p.named ? &p.variant : NULL);
        goto done;
    }
    if (rc == 0)
        rc = check_complete(&p, err);
    if (rc == 0)
        rc = hand_over_variant(&p, err);
    if (rc != 0)
        goto done;
    kh_threads_set(p.common.threads);
    if (cli_ranks)
        kh_ranks_set_threads(cli_ranks, p.common.threads);
    rc = ensure_models(&p, err);
    if (rc == 0)
        rc = make_room(&p, err);
    if (rc == 0)
        rc = cmd->run(p.opts, p.n_args, p.args, err);
done:
    if (p.variant_opts)
        kh_opts_free(p.variant.opts, p.variant_opts);
    kh_opts_free(cmd->opts, p.opts);
    for (int i = 0; i < p.set.n; i++)
        kh_free((void *)p.set.item[i]);
    kh_free(p.set.item);
    kh_free(p.variant_opts);
    kh_free(p.opts);
    return rc;
}

/* ---------------------------------------------------------------------------------------- main */

/* The command that the first one or two words name; *used becomes how many. A word that starts a
 * family is *family. */
static const cli_command *find_command(int argc, char **argv, int *used, bool *family) {
    *family = false;
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const char *space = strchr((*c)->name, ' ');
        size_t n = space ? (size_t)(space - (*c)->name) : strlen((*c)->name);
        if (strlen(argv[0]) != n || memcmp(argv[0], (*c)->name, n) != 0)
            continue;
        if (!space) {
            *used = 1;
            return *c;
        }
        *family = true;
        if (argc > 1 && strcmp(argv[1], space + 1) == 0) {
            *used = 2;
            return *c;
        }
    }
    return NULL;
}

/* A file of rows where a command is expected is the first thing that people try. */
static void unknown_command(const char *first, const char *second, kh_err *err) {
    char typed[128], hint[160] = "";
    snprintf(typed, sizeof typed, "%s%s%s", first, second ? " " : "", second ? second : "");
    cli_suggestion s = cli_suggest(typed, strlen(typed));
    for (const cli_command *const *c = cli_commands; *c; c++)
        cli_suggest_offer(&s, (*c)->name);
    if (cli_suggested(&s))
        snprintf(hint, sizeof hint, "; did you mean \"keyhole %s\"?", cli_suggested(&s));
    else if (access(first, R_OK) == 0)
        snprintf(hint, sizeof hint, "; \"keyhole tune %.80s\" makes a classifier of labelled texts",
            first);
    kh_fail(err, CLI_USAGE, "unknown command \"%s\"%s", typed, hint);
}

static int finish(int rc, const kh_err *err, const cli_command *cmd) {
    close_bar();
    if (rc >= 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "keyhole: cannot write to standard output\n");
        return 1;
    }
    if (rc >= 0)
        return 0;
    cli_say(stderr, 2, "keyhole: %s", err->msg);
    if (rc <= CLI_SIGNAL)
        return 128 + CLI_SIGNAL - rc;
    if (rc != CLI_USAGE)
        return 1;
    fprintf(stderr, "Try \"keyhole %s%s--help\".\n", cmd ? cmd->name : "", cmd ? " " : "");
    return 2;
}

static int start(int argc, char **argv) {
    kh_err err = { 0 };
    if (argc < 2) {
        cli_print_overview(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_print_overview(stdout);
        return finish(0, &err, NULL);
    }
    if (strcmp(argv[1], "--version") == 0) {
        bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
        int rc = argc == 2 + json
            ? cli_print_version(stdout, json, &err)
            : kh_fail(&err, CLI_USAGE, "--version takes nothing but --json; got \"%s\"",
                  argv[2 + json]);
        return finish(rc, &err, NULL);
    }
    int used = 0;
    bool family;
    const cli_command *cmd = find_command(argc - 1, argv + 1, &used, &family);
    if (!cmd && family &&
        (argc == 2 || strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
        cli_print_family(argc == 2 ? stderr : stdout, argv[1]);
        return argc == 2 ? 2 : finish(0, &err, NULL);
    }
    if (!cmd) {
        unknown_command(argv[1], family ? argv[2] : NULL, &err);
        return finish(CLI_USAGE, &err, NULL);
    }
    return finish(cli_run_command(cmd, argv + 1 + used, argc - 1 - used, &err), &err, cmd);
}

int main(int argc, char **argv) {
    kh_err err = { 0 };
    int rc = cli_ranks_start(&err);
    if (rc > 0)
        return 0; /* this rank has served, and rank 0 says the rest */
    if (rc < 0)
        return cli_ranks_first() ? finish(rc, &err, NULL) : 1;
    int status = start(argc, argv);
    cli_ranks_stop(status);
    return status;
}
