/* help.c - everything that is printed from the table of commands: the overview, --help, the man
 * page, bash completion. */
#include "cli.h"
#include "completion.h"

#include "base/err.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- 80 columns */

/* A terminal's usual width; where the help of options, and of commands, starts. */
enum { COLUMNS = 80, HELP_AT = 28, NAME_AT = 19 };

/* Words of a text from `column` on, in lines that start at `indent`; returns where the last ends.
 */
static int put_words(FILE *out, const char *text, size_t n, int column, int indent) {
    for (size_t i = 0; i < n;) {
        size_t word = 0;
        while (i + word < n && text[i + word] != ' ' && text[i + word] != '\n')
            word++;
        bool first = column <= indent;
        if (!first && column + 1 + (int)word > COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)word, text + i);
        column += (int)word + !first;
        for (i += word; i < n && (text[i] == ' ' || text[i] == '\n');)
            i++;
    }
    return column;
}

/* A line of an example that is too long goes on in the next one, as a shell reads it; a remark
 * behind it stands on a line of its own. */
static void put_example(FILE *out, const char *line, size_t n) {
    size_t remark = 0;
    for (size_t i = 4; n > COLUMNS && i + 2 < n && !remark; i++)
        if (line[i] != ' ' && memcmp(line + i + 1, "  ", 2) == 0)
            remark = i + 1;
    if (remark) {
        size_t at = remark;
        while (at < n && line[at] == ' ')
            at++;
        put_example(out, line, remark);
        fputs("      ", out);
        put_words(out, line + at, n - at, 6, 6);
        fputc('\n', out);
        return;
    }
    for (size_t cut = COLUMNS - 2; n > COLUMNS; cut = COLUMNS - 8) {
        while (cut > 8 && line[cut] != ' ')
            cut--;
        if (cut <= 8)
            break;
        fprintf(out, "%.*s \\\n      ", (int)cut, line);
        line += cut + 1;
        n -= cut + 1;
    }
    fprintf(out, "%.*s\n", (int)n, line);
}

/* The text of a command: paragraphs are filled; lines that start with a space are examples and
 * stay lines. */
static void put_text(FILE *out, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n == 0 || *text == ' ') {
            put_example(out, text, n);
            text += n + (text[n] == '\n');
            continue;
        }
        while (text[n] == '\n' && text[n + 1] && text[n + 1] != '\n' && text[n + 1] != ' ')
            n += 1 + strcspn(text + n + 1, "\n");
        put_words(out, text, n, 0, 0);
        fputc('\n', out);
        text += n + (text[n] == '\n');
    }
}

/* ------------------------------------------------------------------------------------ the help */

static void put_summary(FILE *out, const cli_command *c) {
    fprintf(out, "  %-16s ", c->name);
    put_words(out, c->summary, strlen(c->summary), NAME_AT, NAME_AT);
    fputc('\n', out);
}

static size_t first_word(const char *name) { return strcspn(name, " "); }

void cli_print_overview(FILE *out) {
    put_text(out,
        "keyhole: a trustworthy text classifier from a frozen language model that is only asked, "
        "never opened.\n\n"
        "usage: keyhole COMMAND [options]\n\n");
    for (const cli_command *const *c = cli_commands; *c; c++)
        put_summary(out, *c);
    put_text(out,
        "\n\"keyhole demo\" shows all of it in a minute or two, with the model that comes with "
        "keyhole: --model builtin.\n"
        "\"keyhole COMMAND --help\" explains a command. \"keyhole --version\" prints the "
        "version,\nwith --json how it was built.\n"
        "Results go to standard output, progress and complaints to standard error; exit 0 done, 1 "
        "failed, 2 wrong usage.\n");
}

void cli_print_family(FILE *out, const char *word) {
    size_t n = strlen(word);
    fprintf(out, "usage: keyhole %s COMMAND [options]\n\n", word);
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (first_word((*c)->name) == n && memcmp((*c)->name, word, n) == 0)
            put_summary(out, *c);
    fprintf(out, "\n\"keyhole %s COMMAND --help\" explains one.\n", word);
}

/* A choice among many is called KIND where it is named; what there is to choose from follows the
 * help. */
static bool many_choices(const kh_opt *row) {
    return row->type == KH_OPT_CHOICE && strlen(row->arg) > 80;
}

/* "--name ARG" of a row; a flag that is on unless told otherwise is "--[no-]name". */
static int option_words(const kh_opt *row, char *out, size_t cap) {
    bool value = row->type != KH_OPT_FLAG,
         on = !value && row->value && strcmp(row->value, "true") == 0;
    const char *more = row->type == KH_OPT_LIST ? "..." : "",
               *arg = many_choices(row) ? "KIND" : row->arg;
    return snprintf(out, cap, "--%s%s%s%s%s", on ? "[no-]" : "", row->name, value ? " " : "",
        value ? arg : "", more);
}

/* The choices, separated by commas, in lines that fit behind an indent of 28. */
static void print_choices(FILE *out, const char *choices) {
    int column = COLUMNS; /* force a new line at once */
    for (const char *at = choices; *at; at += *at == '|') {
        size_t n = strcspn(at, "|");
        column += (int)n + 2;
        if (column > COLUMNS) {
            fprintf(out, "\n%28s", "");
            column = 28 + (int)n + 2;
        }
        fprintf(out, "%.*s%s", (int)n, at, at[n] ? ", " : "");
        at += n;
    }
}

/* The words of an option, and the space up to its help. */
static void print_words(FILE *out, const kh_opt *row) {
    char words[256];
    if (option_words(row, words, sizeof words) > 24)
        fprintf(out, "  %s\n  %-24s  ", words, "");
    else
        fprintf(out, "  %-24s  ", words);
}

/* A default that is worth printing; -1 stands for one that the help puts in words. */
static bool has_default(const kh_opt *row) {
    return row->value && *row->value && row->type != KH_OPT_FLAG && strcmp(row->value, "-1") != 0;
}

static void print_option(FILE *out, const kh_opt *row) {
    print_words(out, row);
    int column = put_words(out, row->help, strlen(row->help), HELP_AT, HELP_AT);
    char value[256] = "";
    if (row->required)
        snprintf(value, sizeof value, "(needed)");
    else if (has_default(row))
        snprintf(value, sizeof value, "(%s)", row->value);
    put_words(out, value, strlen(value), column, HELP_AT);
    if (many_choices(row))
        print_choices(out, row->arg);
    fputc('\n', out);
}

/* Whether a variant before number i has the option too. */
static bool seen_before(const cli_variants *v, int i, const char *option) {
    cli_variant each;
    for (int j = 0; j < i && v->at(j, &each); j++)
        if (kh_opts_find(each.opts, option, strlen(option)))
            return true;
    return false;
}

/* An option of variants, with the names of those that have it; their defaults may differ. */
static void print_shared_option(FILE *out, const cli_variants *v, const kh_opt *row) {
    cli_variant each;
    print_words(out, row);
    int column = put_words(out, row->help, strlen(row->help), HELP_AT, HELP_AT), n = 0;
    char names[512] = "";
    size_t len = 0;
    for (int j = 0; v->at(j, &each) && len < sizeof names; j++)
        if (kh_opts_find(each.opts, row->name, strlen(row->name))) {
            snprintf(names + len, sizeof names - len, "%s%s", n++ ? ", " : "[", each.name);
            len = strlen(names);
        }
    snprintf(names + len, sizeof names - len, "]");
    put_words(out, names, strlen(names), column, HELP_AT);
    fputc('\n', out);
}

/* The list of variants and all their options, or the options of the chosen one. */
static void print_variants(FILE *out, const cli_command *cmd, const cli_variant *chosen) {
    const cli_variants *v = cmd->variants;
    cli_variant each;
    if (chosen) {
        char head[512];
        snprintf(head, sizeof head, "\noptions of --%s %s (%s):\n", v->option, chosen->name,
            chosen->summary);
        put_text(out, head);
        for (const kh_opt *row = chosen->opts; row && row->name; row++)
            print_option(out, row);
        return;
    }
    fprintf(out, "\nvalues of --%s:\n", v->option);
    for (int i = 0; v->at(i, &each); i++) {
        fprintf(out, "  %-24s  ", each.name);
        put_words(out, each.summary, strlen(each.summary), HELP_AT, HELP_AT);
        fputc('\n', out);
    }
    fprintf(out, "\noptions of some of them; \"keyhole %s --%s NAME --help\" has defaults:\n",
        cmd->name, v->option);
    for (int i = 0; v->at(i, &each); i++)
        for (const kh_opt *row = each.opts; row && row->name; row++)
            if (!seen_before(v, i, row->name))
                print_shared_option(out, v, row);
}

void cli_print_help(FILE *out, const cli_command *cmd, const cli_variant *chosen) {
    char head[512];
    snprintf(head, sizeof head, "usage: keyhole %s%s%s [options]\n\n%s.\n\n", cmd->name,
        *cmd->args ? " " : "", cmd->args, cmd->summary);
    put_text(out, head);
    put_text(out, cmd->text);
    fputs("\noptions:\n", out);
    for (const kh_opt *row = cmd->opts; row && row->name; row++)
        print_option(out, row);
    fputs("  --threads N               threads to use; 0 means one for each core (0)\n"
          "  --help                    explain this command\n",
        out);
    if (cmd->variants)
        print_variants(out, cmd, chosen);
}

/* ------------------------------------------------------------------------------------ man page */

/* The first n bytes of s for roff: backslashes doubled, dashes as typed, a line that starts with a
 * dot or quote protected. */
static void roff_part(FILE *out, const char *s, size_t n) {
    bool start = true;
    for (; n; s++, n--) {
        if (start && (*s == '.' || *s == '\''))
            fputs("\\&", out);
        start = *s == '\n';
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else
            fputc(*s, out);
    }
}

static void roff(FILE *out, const char *s) { roff_part(out, s, strlen(s)); }

static void man_options(FILE *out, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++) {
        char words[256];
        option_words(row, words, sizeof words);
        fputs(".TP\n.B ", out);
        roff(out, words);
        fputc('\n', out);
        roff(out, row->help);
        if (row->required)
            fputs(" (needed)", out);
        else if (has_default(row)) {
            fputs(" (default: ", out);
            roff(out, row->value);
            fputs(")", out);
        }
        if (many_choices(row))
            for (const char *at = row->arg; *at; at += *at == '|') {
                size_t n = strcspn(at, "|");
                fprintf(out, "%s%.*s", at == row->arg ? "\n.br\none of " : ",\n", (int)n, at);
                at += n;
            }
        fputc('\n', out);
    }
}

/* Sentences are filled to the reader's width; lines that begin with a space are examples and stay
 * as they are. */
static void man_text(FILE *out, const char *text) {
    bool literal = false;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (literal != (*line == ' ')) {
            literal = !literal;
            fputs(literal ? ".nf\n" : ".fi\n", out);
        }
        if (n)
            roff_part(out, line, n);
        else
            fputs(".PP", out);
        fputc('\n', out);
        line += n + (line[n] == '\n');
    }
    if (literal)
        fputs(".fi\n", out);
}

static void man_command(FILE *out, const cli_command *cmd) {
    fputs(".SS \"keyhole ", out);
    roff(out, cmd->name);
    fprintf(out, "%s", *cmd->args ? " " : "");
    roff(out, cmd->args);
    fputs(" [options]\"\n", out);
    roff(out, cmd->summary);
    fputs(".\n.PP\n", out);
    man_text(out, cmd->text);
    man_options(out, cmd->opts);
    cli_variant v;
    for (int i = 0; cmd->variants && cmd->variants->at(i, &v); i++) {
        fprintf(out, ".PP\n\\-\\-%s ", cmd->variants->option);
        roff(out, v.name);
        fputs(": ", out);
        roff(out, v.summary);
        fputs("\n.RS\n", out);
        man_options(out, v.opts);
        fputs(".RE\n", out);
    }
}

static void print_man(FILE *out) {
    fprintf(out, ".TH KEYHOLE 1 \"\" \"keyhole %s\" \"User Commands\"\n", kh_version());
    fputs(".SH NAME\nkeyhole \\- a trustworthy text classifier from a frozen language model that "
          "is only asked, never opened\n"
          ".SH SYNOPSIS\n.B keyhole\nCOMMAND [options]\n"
          ".SH DESCRIPTION\nkeyhole learns a distribution over soft prompts for a frozen language "
          "model without gradients,\n"
          "and if need be without probabilities, from a handful of labelled examples.\n"
          "Results go to standard output, progress and complaints to standard error.\n"
          ".SH COMMANDS\n",
        out);
    for (const cli_command *const *c = cli_commands; *c; c++)
        man_command(out, *c);
    fputs(".SS \"Every command also takes\"\n.TP\n.B \\-\\-threads N\nthreads to use; 0 means one "
          "for each core\n"
          ".TP\n.B \\-\\-help\nexplain the command\n"
          ".SH MODELS\nA model is a folder in Hugging Face layout, or where a URL is allowed a "
          "service. The word\n.B builtin\n"
          "is the small model that comes with keyhole, for trying things.\n"
          ".SH ENVIRONMENT\n.TP\n.B KEYHOLE_MODELS\nthe folder in which builtin is looked for, "
          "instead of the source tree or\n"
          "PREFIX/share/keyhole/models\n"
          ".SH EXIT STATUS\n0 done, 1 failed (one sentence on standard error says why), 2 wrong "
          "usage.\n",
        out);
}

/* ---------------------------------------------------------------------------------- completion */

static void completion_options(FILE *out, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++)
        fprintf(out, " --%s%s", row->type == KH_OPT_FLAG && row->value ? "no-" : "", row->name);
}

/* The values of choices, by option; of an option that several commands have, those of all. */
static void completion_values(FILE *out, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++) {
        if (row->type != KH_OPT_CHOICE)
            continue;
        fprintf(out, "        --%s) values=\"$values ", row->name);
        for (const char *at = row->arg; *at; at++)
            fputc(*at == '|' ? ' ' : *at, out);
        fputs("\" ;;&\n", out);
    }
}

static void completion_choices(FILE *out) {
    cli_variant v;
    fputs("    local values= before=${COMP_WORDS[COMP_CWORD-1]}\n    case \"$before\" in\n", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        completion_values(out, (*c)->opts);
        if (!(*c)->variants)
            continue;
        fprintf(out, "        --%s) values=\"$values", (*c)->variants->option);
        for (int i = 0; (*c)->variants->at(i, &v); i++)
            fprintf(out, " %s", v.name);
        fputs("\" ;;&\n", out);
        for (int i = 0; (*c)->variants->at(i, &v); i++)
            completion_values(out, v.opts);
    }
    fputs("    esac\n    if [ -n \"$values\" ]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n        return\n    fi\n",
        out);
}

static void completion_case(FILE *out, const cli_command *cmd) {
    cli_variant v;
    fprintf(out, "        \"%s\") opts=\"--help --threads", cmd->name);
    completion_options(out, cmd->opts);
    for (int i = 0; cmd->variants && cmd->variants->at(i, &v); i++)
        completion_options(out, v.opts);
    fputs("\" ;;\n", out);
}

static void print_completion(FILE *out) {
    fputs("# bash completion for keyhole\n_keyhole() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[1]} second=${COMP_WORDS[2]} "
          "opts= words=\n"
          "    case \"$first\" in\n",
        out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        size_t n = first_word((*c)->name);
        if (!(*c)->name[n])
            continue;
        bool again = c != cli_commands && strncmp(c[-1]->name, (*c)->name, n + 1) == 0;
        if (!again)
            fprintf(out, "        %.*s) words=\"", (int)n, (*c)->name);
        fprintf(out, "%s%s", again ? " " : "", (*c)->name + n + 1);
        if (!c[1] || strncmp(c[1]->name, (*c)->name, n + 1) != 0)
            fputs("\" ;;\n", out);
    }
    fputs("    esac\n    local name=$first\n    [ -n \"$words\" ] && name=\"$first $second\"\n    "
          "case \"$name\" in\n",
        out);
    for (const cli_command *const *c = cli_commands; *c; c++)
        completion_case(out, *c);
    fputs("    esac\n", out);
    completion_choices(out);
    fputs("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        size_t n = first_word((*c)->name);
        if (c == cli_commands || strncmp(c[-1]->name, (*c)->name, n) != 0 ||
            (c[-1]->name[n] != ' ' && c[-1]->name[n]))
            fprintf(out, "%.*s ", (int)n, (*c)->name);
    }
    fputs("\"\n    elif [ \"$COMP_CWORD\" -gt 2 ] || [ -z \"$words\" ]; then\n        words=\n    "
          "fi\n"
          "    case \"$cur\" in\n        -*) COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\")) ;;\n"
          "        *) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "           [ -n \"$words\" ] || COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
          "    esac\n}\ncomplete -o filenames -F _keyhole keyhole\n",
        out);
}

typedef struct help_opts {
    bool man, completion, zsh, fish;
} help_opts;

static const kh_opt help_table[] = {
    { "man", KH_OPT_FLAG, offsetof(help_opts, man), .help = "print the man page (roff)" },
    { "bash-completion", KH_OPT_FLAG, offsetof(help_opts, completion),
        .help = "print the completion script for bash" },
    { "zsh-completion", KH_OPT_FLAG, offsetof(help_opts, zsh), .help = "the one for zsh" },
    { "fish-completion", KH_OPT_FLAG, offsetof(help_opts, fish), .help = "the one for fish" },
    { 0 },
};

/* The help of the command, or of the family, that the arguments name. */
static int help_of(int n_args, char **args, kh_err *err) {
    char name[64];
    snprintf(
        name, sizeof name, "%s%s%s", args[0], n_args > 1 ? " " : "", n_args > 1 ? args[1] : "");
    size_t n = strlen(name);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        if (strcmp((*c)->name, name) == 0) {
            cli_print_help(stdout, *c, NULL);
            return 0;
        }
        if (strncmp((*c)->name, name, n) == 0 && (*c)->name[n] == ' ') {
            cli_print_family(stdout, name);
            return 0;
        }
    }
    return kh_fail(err, CLI_USAGE, "unknown command \"%s\"", name);
}

static int run_help(void *opts, int n_args, char **args, kh_err *err) {
    const help_opts *o = opts;
    if (o->man)
        print_man(stdout);
    else if (o->completion)
        print_completion(stdout);
    else if (o->zsh)
        cli_print_zsh(stdout);
    else if (o->fish)
        cli_print_fish(stdout);
    else if (n_args == 0)
        cli_print_overview(stdout);
    else
        return help_of(n_args, args, err);
    return 0;
}

const cli_command cmd_help = {
    .name = "help",
    .args = "[COMMAND]",
    .max_args = 2,
    .summary = "Print the list of commands, the help of one, the man page or shell completion",
    .text = "  keyhole help\n  keyhole help tokenize\n  keyhole help --man | man -l -\n  source "
            "<(keyhole help --bash-completion)\n  keyhole help --fish-completion > "
            "~/.config/fish/completions/keyhole.fish",
    .opts = help_table,
    .opts_size = sizeof(help_opts),
    .run = run_help,
};
