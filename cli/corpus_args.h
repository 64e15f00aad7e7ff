/* corpus_args.h - "--corpus FILE[:WEIGHT] ..." and "--rows TASK=DIR[:WEIGHT] ..." taken apart. */
#ifndef KH_CLI_CORPUS_ARGS_H
#define KH_CLI_CORPUS_ARGS_H

#include "cli.h"

typedef struct cli_corpus {
    char **task; /* of rows; otherwise NULL each */
    char **path;
    double *weight;
    int n;
} cli_corpus; /* start as {0} */

int cli_corpus_parse(cli_corpus *, const kh_strings *spec, kh_err *err);
int cli_rows_parse(cli_corpus *, const kh_strings *spec, kh_err *err);
void cli_corpus_free(cli_corpus *);

#endif
