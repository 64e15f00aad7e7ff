/* runs.h - what keyhole inspect shows of a run. */
#ifndef KH_CLI_RUNS_H
#define KH_CLI_RUNS_H

#include "keyhole.h"

bool cli_is_run(const char *dir); /* there is a journal in it */
int cli_inspect_run(const char *dir, bool json, kh_err *err);

#endif
