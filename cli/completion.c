/* completion.c - completion scripts for zsh and fish, from the same table as bash's (help.c).
 *
 * Both shells have a language for options with descriptions, so that these scripts are lists, where
 * bash's is a program. */
#include "completion.h"

#include <string.h>

/* The words of a choice, or of the option that names a variant, with spaces between them. */
static bool put_words(FILE *out, const cli_command *cmd, const kh_opt *row) {
    cli_variant v;
    bool variants = cmd->variants && strcmp(cmd->variants->option, row->name) == 0;
    for (int i = 0; variants && cmd->variants->at(i, &v); i++)
        fprintf(out, "%s%s", i ? " " : "", v.name);
    for (const char *at = row->arg; !variants && row->type == KH_OPT_CHOICE && *at; at++)
        fputc(*at == '|' ? ' ' : *at, out);
    return variants || row->type == KH_OPT_CHOICE;
}

static bool has_words(const cli_command *cmd, const kh_opt *row) {
    bool variants = cmd->variants && strcmp(cmd->variants->option, row->name) == 0;
    return variants || row->type == KH_OPT_CHOICE;
}

/* A description within quotes: characters that mean something to either shell become others. */
static void put_plain(FILE *out, const char *s) {
    static const char special[] = "'\"\\[]:`$";
    static const char *const instead[] = { "\u2019", "", "/", "(", ")", ",", "", "" };
    for (; s && *s; s++) {
        const char *at = strchr(special, *s);
        if (at)
            fputs(instead[at - special], out);
        else
            fputc(*s, out);
    }
}

static const char *no_of(const kh_opt *row) {
    return row->type == KH_OPT_FLAG && row->value ? "no-" : "";
}

/* Whether a command's first word is that of the one before it in the list. */
static bool same_family(const cli_command *const *c) {
    size_t n = strcspn((*c)->name, " ");
    return c != cli_commands && strncmp(c[-1]->name, (*c)->name, n) == 0 &&
        (c[-1]->name[n] == ' ' || !c[-1]->name[n]);
}

/* ------------------------------------------------------------------------------------------ zsh */

static void zsh_options(FILE *out, const cli_command *cmd, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++) {
        fprintf(out, " \\\n            '--%s%s[", no_of(row), row->name);
        put_plain(out, row->help);
        fputc(']', out);
        if (row->type != KH_OPT_FLAG) {
            fputs(":value:", out);
            fputs(has_words(cmd, row) ? "(" : "_files", out);
            if (put_words(out, cmd, row))
                fputc(')', out);
        }
        fputc('\'', out);
    }
}

static void zsh_first_words(FILE *out) {
    fputs("    local -a first\n    first=(", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        size_t n = strcspn((*c)->name, " ");
        if (same_family(c))
            continue;
        fprintf(out, "\n        '%.*s:", (int)n, (*c)->name);
        put_plain(out, (*c)->name[n] ? "several commands" : (*c)->summary);
        fputc('\'', out);
    }
    fputs(")\n    if (( CURRENT == 2 )); then _describe command first; return; fi\n", out);
}

static void zsh_second_words(FILE *out) {
    fputs("    local name=$words[2]\n    local -a second\n    case $words[2] in\n", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        size_t n = strcspn((*c)->name, " ");
        if (!(*c)->name[n])
            continue;
        if (!same_family(c))
            fprintf(out, "        %.*s) second=(", (int)n, (*c)->name);
        fprintf(out, " '%s:", (*c)->name + n + 1);
        put_plain(out, (*c)->summary);
        fputc('\'', out);
        if (!c[1] || !same_family(c + 1))
            fputs(") ;;\n", out);
    }
    fputs("    esac\n    if (( $#second )); then\n"
          "        if (( CURRENT == 3 )); then _describe command second; return; fi\n"
          "        name=\"$words[2] $words[3]\"\n        shift words\n        (( CURRENT-- ))\n"
          "    fi\n    shift words\n    (( CURRENT-- ))\n",
        out);
}

void cli_print_zsh(FILE *out) {
    cli_variant v;
    fputs("#compdef keyhole\n# zsh completion for keyhole\n_keyhole() {\n", out);
    zsh_first_words(out);
    zsh_second_words(out);
    fputs("    case $name in\n", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        fprintf(out,
            "        '%s')\n            _arguments '--help[explain the command]' "
            "'--threads[how many]:n:'",
            (*c)->name);
        zsh_options(out, *c, (*c)->opts);
        for (int i = 0; (*c)->variants && (*c)->variants->at(i, &v); i++)
            zsh_options(out, *c, v.opts);
        fputs(" '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\nif [ \"$funcstack[1]\" = _keyhole ]; then _keyhole \"$@\"; else compdef "
          "_keyhole keyhole; fi\n",
        out);
}

/* ----------------------------------------------------------------------------------------- fish */

/* The condition under which what follows belongs to a command. */
static void fish_when(FILE *out, const char *name) {
    size_t n = strcspn(name, " ");
    fprintf(out, "complete -c keyhole -n '__fish_seen_subcommand_from %.*s", (int)n, name);
    if (name[n])
        fprintf(out, "; and __fish_seen_subcommand_from %s", name + n + 1);
    fputc('\'', out);
}

static void fish_options(FILE *out, const cli_command *cmd, const kh_opt *rows) {
    for (const kh_opt *row = rows; row && row->name; row++) {
        fish_when(out, cmd->name);
        fprintf(out, " -l %s%s -d '", no_of(row), row->name);
        put_plain(out, row->help);
        fputc('\'', out);
        if (has_words(cmd, row)) {
            fputs(" -x -a '", out);
            put_words(out, cmd, row);
            fputc('\'', out);
        } else if (row->type != KH_OPT_FLAG)
            fputs(" -r", out);
        fputc('\n', out);
    }
}

static void fish_words(FILE *out, const cli_command *const *c) {
    size_t n = strcspn((*c)->name, " ");
    if (!same_family(c)) {
        fprintf(out, "complete -c keyhole -n __fish_use_subcommand -f -a %.*s -d '", (int)n,
            (*c)->name);
        put_plain(out, (*c)->name[n] ? "several commands" : (*c)->summary);
        fputs("'\n", out);
    }
    if ((*c)->name[n]) {
        fprintf(out,
            "complete -c keyhole -n '__fish_seen_subcommand_from %.*s; and test (count "
            "(commandline "
            "-opc)) -eq 2' -f -a %s -d '",
            (int)n, (*c)->name, (*c)->name + n + 1);
        put_plain(out, (*c)->summary);
        fputs("'\n", out);
    }
}

void cli_print_fish(FILE *out) {
    cli_variant v;
    fputs("# fish completion for keyhole\n", out);
    for (const cli_command *const *c = cli_commands; *c; c++) {
        fish_words(out, c);
        fish_options(out, *c, (*c)->opts);
        for (int i = 0; (*c)->variants && (*c)->variants->at(i, &v); i++)
            fish_options(out, *c, v.opts);
    }
}
