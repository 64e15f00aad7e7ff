/* version.h - what --version prints. */
#ifndef KH_CLI_VERSION_H
#define KH_CLI_VERSION_H

#include "cli.h"

int cli_print_version(FILE *out, bool json, kh_err *err);

#endif
