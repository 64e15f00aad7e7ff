/* launcher.h - keyhole under mpirun or srun: no option, the launcher's environment tells. */
#ifndef KH_CLI_LAUNCHER_H
#define KH_CLI_LAUNCHER_H

#include "keyhole.h"

extern kh_ranks *cli_ranks; /* NULL: this process is alone */

/* 0: alone, or rank 0 of several; > 0: another rank, which has served and is done; < 0: failed. */
int cli_ranks_start(kh_err *err);
bool cli_ranks_first(void); /* whether this is the process that may speak, by the launcher's word */
/* Ends the other ranks: at once when the command has failed or was ended by a signal. */
void cli_ranks_stop(int status);

#endif
