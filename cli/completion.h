/* completion.h - completion scripts for zsh and fish; bash's is in help.c. */
#ifndef KH_CLI_COMPLETION_H
#define KH_CLI_COMPLETION_H

#include "cli.h"

void cli_print_zsh(FILE *out);
void cli_print_fish(FILE *out);

#endif
