/* rows.h - rows to classify, from standard input or a file, some at a time: memory does not grow
 * with the file.
 *
 *     cli_rows r = { .path = path, .task = task };
 *     while ((rc = cli_rows_next(&r, &rows, &n, err)) > 0) ...
 *     cli_rows_free(&r);
 */
#ifndef KH_CLI_ROWS_H
#define KH_CLI_ROWS_H

#include "cli.h"

/* The words of --format. text: one text a line, for a task of pairs two with a tab between. */
#define CLI_ROWS_FORMATS "auto|text|tsv|csv|csv-noheader|jsonl"
enum {
    CLI_ROWS_AUTO,
    CLI_ROWS_TEXT,
    CLI_ROWS_TSV,
    CLI_ROWS_CSV,
    CLI_ROWS_CSV_NOHEADER,
    CLI_ROWS_JSONL
};

typedef struct cli_rows {
    char **text_arg; /* [n_text] texts given on the command line; then there is no file */
    int n_text;
    const char *path; /* NULL: standard input */
    int format;       /* auto: by the file's extension; standard input is text */
    const kh_task *task;
    bool labels; /* read them, where rows have them; otherwise they are passed over */
    FILE *in;
    const char *name; /* for messages */
    long line;        /* read so far */
    kh_buf text, header, one;
    kh_dataset *data;
    kh_row *row; /* of text */
    size_t cap;
} cli_rows;

/* Up to a few hundred rows, in *rows; they live until the next call. Returns 1, or 0 at the end, or
 * < 0. */
int cli_rows_next(cli_rows *, const kh_row **rows, int *n, kh_err *err);
void cli_rows_free(cli_rows *);

#endif
