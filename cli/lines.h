/* lines.h - lines that fit: what a person reads on a terminal is broken between words at its width;
 * what a program reads stays one line a sentence. */
#ifndef KH_CLI_LINES_H
#define KH_CLI_LINES_H

#include "base/buf.h"

#include <stdio.h>

/* Columns of the terminal that out is, or 0: it is none. */
int cli_width(FILE *out);
/* Columns for paragraphs on out: those of its terminal, at most 100, or 80 where lines are kept. */
int cli_paragraph_width(FILE *out);

/* Words in lines of less than width columns, the lines after the first indented by hang; each
 * line ends in a newline. What stands in double quotes, a command to copy, is not broken if it fits
 * a line. width 0: one line. */
void cli_wrap(kh_buf *out, int width, int hang, const char *text);
/* Columns that a text takes, one for each character. */
int cli_columns(const char *text, size_t n);

/* A sentence with a newline, wrapped if out is a terminal. */
void cli_say(FILE *out, int hang, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whole text of several lines, as it is; on a terminal each line is wrapped, and what comes after
 * its first column of a table stays below itself. */
void cli_print(FILE *out, const char *text);

/* The parts of a list, "a, b, c", that fit into so many columns, from the first on. Returns their
 * length in bytes. */
size_t cli_fitting(const char *list, int columns);

#endif
