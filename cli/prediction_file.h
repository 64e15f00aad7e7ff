/* prediction_file.h - a file of predictions, or standard input, for the commands that judge them.
 */
#ifndef KH_CLI_PREDICTION_FILE_H
#define KH_CLI_PREDICTION_FILE_H

#include "cli.h"

#include "judge/predictions.h"

typedef struct cli_predictions {
    const char *name; /* for messages */
    kh_buf bytes;     /* the file as it stands */
    kh_predictions rows;
    double *p;        /* [n, n_label] as probabilities */
    kh_answers known; /* rows with a label; borrowed from p, or from kept */
    void *kept;
} cli_predictions;

/* "-" is standard input. order as for kh_predictions_parse. Free it, failed ones too. */
int cli_predictions_read(
    cli_predictions *out, const char *path, const kh_evidence *order, int n_order, kh_err *err);
void cli_predictions_free(cli_predictions *);
/* Fails unless every row has a label. */
int cli_predictions_need_labels(const cli_predictions *, kh_err *err);

#endif
