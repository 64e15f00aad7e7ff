/* texts.h - the texts that a command works on: its arguments, or the lines of standard input. */
#ifndef KH_CLI_TEXTS_H
#define KH_CLI_TEXTS_H

#include "cli.h"

typedef struct cli_texts {
    char **args; /* with n_args > 0: these; otherwise standard input */
    int n_args;
    bool json;   /* each line is a JSON string */
    int next;
    long line; /* of standard input, from 1; 0 for arguments */
    kh_buf buffer, decoded;
} cli_texts;

/* The next text in *text, which lives until the call after. Returns 1, or 0 when there is no more, or < 0. */
int cli_texts_next(cli_texts *, const char **text, size_t *n, kh_err *err);
void cli_texts_free(cli_texts *);
/* Puts "standard input: line N: " in front of a message that is about the current text. Returns the error's code. */
int cli_texts_fail(const cli_texts *, kh_err *err);

#endif
