/* thread.c - one number: how many threads the library may use. OpenMP does the rest. */
#include "keyhole.h"

#include <omp.h>
#include <stdatomic.h>

static atomic_int wanted; /* 0: one for each core */

void kh_threads_set(int n) { atomic_store(&wanted, n > 0 ? n : 0); }

int kh_threads(void) {
    int n = atomic_load(&wanted);
    return n > 0 ? n : omp_get_num_procs();
}

const char *kh_version(void) { return KH_VERSION; }
