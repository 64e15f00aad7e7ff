/* cli.h - what a subcommand of keyhole is.
 *
 * One file per subcommand (or per family, "data check", "data stats", ...) defines a `const
 * cli_command`; main.c lists them. The row feeds the parser, --help, the man page and shell
 * completion. run() prints results on stdout and returns 0, or fails with *err filled; main prints
 * the sentence and chooses the exit status: 0 done, 1 failed, 2 wrong usage. */
#ifndef KH_CLI_CLI_H
#define KH_CLI_CLI_H

#include "base/json_out.h"
#include "base/opts.h"
#include "keyhole.h"
#include "lines.h"

#include <stdio.h>

/* Options that depend on the value of another one: each method of tuning has its own. */
typedef struct cli_variant {
    const char *name, *summary;
    const kh_opt *opts; /* NULL: none */
    size_t opts_size;
    void (*preset)(
        void *opts); /* changes the defaults if the preset flag is given; NULL: does not */
} cli_variant;

/* What the parser leaves of a variant's options: filled in the variant's own struct, and as the
 * user gave them, "name=value", for those who pass them on by name. */
typedef struct cli_chosen {
    void *opts;
    const char *const *set; /* ends in NULL; the later of two counts */
} cli_chosen;

typedef struct cli_variants {
    const char
        *option; /* whose value is the name of a variant: a text of the command's own options */
    const char *preset; /* a flag of the command that changes the variant's defaults; NULL: none */
    size_t offset;      /* of the cli_chosen in the command's options */
    bool (*at)(int i, cli_variant *out); /* variant number i; false after the last */
    const char *standard; /* the variant if none is named; NULL: there are no options of one then */
} cli_variants;

typedef struct cli_command {
    const char *name; /* "tokenize", or two words: "data stats" */
    const char *args; /* positional arguments as --help shows them, e.g. "DIR|FILE"; "" for none */
    int min_args, max_args; /* how many; max -1: any number */
    const char *summary;    /* one line, no full stop */
    const char *text;   /* the lesson: paragraphs, then examples; lines of at most 78 characters */
    const kh_opt *opts; /* NULL: none */
    size_t opts_size;
    int (*run)(void *opts, int n_args, char **args, kh_err *err);
    const cli_variants *variants; /* NULL: none */
} cli_command;

extern const cli_command *const cli_commands[]; /* ends in NULL */

extern const cli_command cmd_demo;
extern const cli_command cmd_tokenize, cmd_tokenizer_train;
extern const cli_command cmd_data_check, cmd_data_stats, cmd_data_split, cmd_task_list,
    cmd_task_show, cmd_task_check;
extern const cli_command cmd_pull, cmd_fill_mask, cmd_next, cmd_features, cmd_inspect,
    cmd_model_random, cmd_model_prune, cmd_model_convert;
extern const cli_command cmd_tune, cmd_eval, cmd_predict, cmd_compare, cmd_reproduce, cmd_pretrain;
extern const cli_command cmd_runs, cmd_log;
extern const cli_command cmd_serve, cmd_export;
extern const cli_command cmd_metrics, cmd_calibrate;
extern const cli_command cmd_bench_tokenize, cmd_bench_engine, cmd_bench_train, cmd_bench_cmaes,
    cmd_bench_sbi;

/* Rows of option tables that several commands have, for a struct S with fields json and model. */
#define CLI_JSON_OPTION(S) \
    { "json", KH_OPT_FLAG, offsetof(S, json), .help = "print JSON" }
#define CLI_TOKENIZER_OPTION(S, what) \
    { "model", KH_OPT_TEXT, offsetof(S, model), .arg = "DIR|FILE|builtin", .help = what }

/* Runs a command with the words that would follow its name on the command line; their order in argv
 * changes. */
int cli_run_command(const cli_command *, char **argv, int argc, kh_err *err);

/* Fails as wrong usage: exit 2 and a pointer to --help. */
enum { CLI_USAGE = -1000 };
/* CLI_SIGNAL - number: ended by a signal, in good order; exit 128 + number, as a shell would say.
 */
enum { CLI_SIGNAL = -2000 };

/* Progress and log on stderr: a bar that redraws itself on a terminal, plain lines otherwise. */
extern const kh_hooks cli_hooks;

/* The next line of `in` without its newline (a CR before it goes too), in *line, which the caller
 * starts as {0}. Returns 1, or 0 at the end, or < 0. Lines may hold NUL bytes; lines over 64 MB are
 * refused. */
/* A whole document and a newline; frees its buffer. */
int cli_print_json(kh_json_out *, FILE *to, kh_err *err);
int cli_read_line(FILE *in, kh_buf *line, kh_err *err);

/* paths.c. Makes the folders that a path stands in. */
int cli_make_parents(const char *path, kh_err *err);
/* The path from the root, for files and folders that are there; otherwise, and for URLs and names
 * such as builtin, as it stands. In fresh memory (kh_free), NULL: out of memory. */
char *cli_absolute(const char *path);
/* Whether a name can be a model: names that nothing has, files that are parts of a model, and
 * pointers of git-LFS are refused with the remedy. What may be one is left to those who open it. */
int cli_check_model(const char *model, kh_err *err);
/* "dir/tickets.csv" -> "tickets-run", in fresh memory. */
char *cli_run_name(const char *data);
/* "dir/tickets.csv" -> "tickets", in fresh memory. */
char *cli_stem(const char *path);

/* help.c */
void cli_print_overview(FILE *out);
void cli_print_family(FILE *out, const char *word); /* commands that start with this word */
void cli_print_help(
    FILE *out, const cli_command *, const cli_variant *chosen); /* NULL: none was chosen */
extern const cli_command cmd_help;

#endif
