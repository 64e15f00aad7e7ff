/* judged.h - the evaluation of a run, for the commands that make one, and what it says to people.
 */
#ifndef KH_CLI_JUDGED_H
#define KH_CLI_JUDGED_H

#include "cli.h"

#include "posterior/eval.h"

typedef struct cli_judged {
    void *opts; /* of "keyhole eval" */
    kh_eval eval;
} cli_judged; /* start as {0} */

/* Judges as "keyhole eval RUN" does by default, and writes the same files. At most `rows` rows. */
int cli_judge(cli_judged *, const kh_posterior *, kh_plm *, const char *run, int rows, kh_err *err);
void cli_judged_free(cli_judged *);

/* When it answers, in one or two sentences without a line break: what is promised, or estimated,
 * and what would make it better. */
void cli_put_promise(const kh_eval *, kh_buf *out);
/* All that a person needs to know at the end of "keyhole tune FILE". */
void cli_put_summary(const kh_eval *, const char *run, kh_buf *out);

#endif
