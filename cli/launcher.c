/* launcher.c - see launcher.h.
 *
 * mpirun (Open MPI), mpiexec (MPICH, Intel) and srun each say in the environment how many they
 * started. If that is more than one, MPI's part of keyhole is loaded: keyhole-mpi.so beside the
 * program or in ../lib/keyhole. Every rank but the first only serves; it does not even read the
 * command line. */
#include "launcher.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/portable.h"
#include "monitor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kh_ranks *cli_ranks;

/* srun sets SLURM_NTASKS for a batch script too, which is not a rank; this one it sets for ranks
 * only. */
static const char *const SIZES[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS" };
static const char *const RANKS[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID" };

/* The first of the variables that is set; -1: none. */
static int find(const char *const *names, int n) {
    for (int i = 0; i < n; i++) {
        const char *value = getenv(names[i]);
        if (value)
            return atoi(value);
    }
    return -1;
}

bool cli_ranks_first(void) { return find(RANKS, 3) <= 0; }

/* When a rank is lost, Open MPI's launcher sends the others SIGCONT, a second later SIGTERM and at
 * once SIGKILL: too late for a sentence. So SIGCONT counts as a warning, for two seconds. */
static volatile sig_atomic_t warned;

static void on_warning(int number) {
    (void)number;
    warned = 1;
}

static int stop(void *user) {
    static double since;
    (void)user;
    if (cli_monitor_signal())
        return 1;
    if (!warned)
        return 0;
    if (warned == 1) {
        since = kh_clock();
        warned = 2;
    }
    if (kh_clock() - since > 2)
        warned = 0;
    return -1;
}

/* Fresh; NULL: out of memory. */
static char *find_plugin(void) {
    static const char *const PLACES[] = { "keyhole-mpi.so", "../lib/keyhole/keyhole-mpi.so" };
    char self[4096];
    char *slash = kh_own_program(self, sizeof self) > 0 ? strrchr(self, '/') : NULL;
    if (getenv("KEYHOLE_MPI"))
        return kh_strdup(getenv("KEYHOLE_MPI"));
    if (slash)
        *slash = '\0';
    for (int i = 0; i < 2; i++) {
        char *path = kh_path_join(slash ? self : ".", PLACES[i]);
        if (!path || access(path, R_OK) == 0)
            return path;
        kh_free(path);
    }
    return kh_strdup("");
}

/* The launcher said `size`. */
static int join(int size, kh_err *err) {
    char *plugin = find_plugin();
    int rc;
    if (!plugin)
        rc = kh_fail_memory(err);
    else if (!*plugin)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "started as one of %d ranks, but this keyhole was built without MPI (keyhole-mpi.so "
            "is not beside it): "
            "install libopenmpi-dev and make again, or set KEYHOLE_MPI=off to run alone",
            size);
    else
        rc = kh_ranks_open(&cli_ranks, plugin, &(kh_ranks_opts){ .stop = stop }, err);
    kh_free(plugin);
    if (rc == 0 && kh_ranks_size(cli_ranks) != size) {
        rc = kh_fail(err, KH_EMISMATCH,
            "the launcher started %d ranks, but MPI knows of %d: is mpirun of the MPI that "
            "keyhole-mpi.so was built with? With "
            "Slurm, use srun --mpi=pmix; KEYHOLE_MPI=off runs every rank alone",
            size, kh_ranks_size(cli_ranks));
        kh_ranks_close(cli_ranks, 0);
        cli_ranks = NULL;
    }
    return rc;
}

/* srun started tasks that cannot find each other. Open MPI would end the process inside MPI_Init,
 * with advice about building it. */
static bool are_strangers(void) {
    return find(SIZES, 2) < 0 && !getenv("PMIX_RANK") && !getenv("PMI_FD");
}

int cli_ranks_start(kh_err *err) {
    int size = find(SIZES, 3);
    const char *setting = getenv("KEYHOLE_MPI");
    if (size <= 1 || (setting && strcmp(setting, "off") == 0))
        return 0;
    int rc = are_strangers()
        ? kh_fail(err, KH_EMISMATCH,
              "srun started %d tasks, but they cannot find each other: use srun --mpi=pmix, as "
              "\"srun --mpi=list\" has it; KEYHOLE_MPI=off runs every task alone",
              size)
        : join(size, err);
    if (rc != 0)
        return rc;
    if (kh_ranks_rank(cli_ranks) == 0) {
        sigaction(SIGCONT,
            &(struct sigaction){ .sa_handler = on_warning, .sa_flags = (int)SA_RESTART }, NULL);
        return 0;
    }
    signal(SIGINT, SIG_IGN); /* rank 0 decides how the job ends */
    rc = kh_ranks_serve(cli_ranks, err);
    kh_ranks_close(cli_ranks, rc == 0 ? 0 : -1);
    return rc == 0 ? 1 : rc;
}

/* Seconds that the other ranks get to say their last word: after success whoever is slow is still
 * working; after a failure only a little; a signal's sender (128 and above) does not wait. */
static double parting_seconds(int status) {
    if (status == 0)
        return 60;
    return status < 128 ? 5 : 0.3;
}

void cli_ranks_stop(int status) {
    if (cli_ranks && status == 0 && kh_ranks_idle(cli_ranks))
        fprintf(stderr,
            "keyhole: the other %d ranks had nothing to do: they answer for tune, predict, eval, "
            "reproduce and serve\n",
            kh_ranks_size(cli_ranks) - 1);
    kh_ranks_close(cli_ranks, parting_seconds(status));
    cli_ranks = NULL;
}
