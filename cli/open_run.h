/* open_run.h - a folder that "keyhole tune" made, with the model that it belongs to. */
#ifndef KH_CLI_OPEN_RUN_H
#define KH_CLI_OPEN_RUN_H

#include "cli.h"

/* The words of --precision. */
#define CLI_RUN_PRECISIONS "as-tuned|f32|bf16|int8|auto"

/* The row of an option whose value is for kh_posterior_set_class_prior. */
#define CLI_CLASS_PRIOR_ROW(S) \
    { \
        "class-prior", KH_OPT_TEXT, offsetof(S, class_prior), \
            .arg = "P1,P2,...", \
            .help = "how frequent the classes are here, in the order of the labels, if not as " \
                    "when tuning" \
    }

typedef struct cli_run {
    const char *dir;
    kh_posterior *posterior;
    kh_posterior_info info;
    kh_plm *plm;
    kh_plm *shared;           /* another run's box to use; NULL: one of its own is opened */
    const kh_http_opts *http; /* the caller's, for a model behind a URL; NULL: the defaults */
} cli_run;                    /* start as {0} */

/* model NULL: where it was when tuning. precision: which of the words above. Free it, failed ones
 * too. */
int cli_run_open(cli_run *, const char *dir, const char *model, int precision, kh_err *err);
/* The same in two steps: the folder, then the model. */
int cli_run_read(cli_run *, const char *dir, kh_err *err);
int cli_run_box(cli_run *, const char *model, int precision, kh_err *err);
void cli_run_free(cli_run *);

#endif
