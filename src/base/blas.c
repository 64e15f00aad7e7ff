/* blas.c - see blas.h. The variant of OpenBLAS that is built on OpenMP passes its number on to
 * OpenMP, so that is put back as well. */
#include "base/blas.h"

#include <omp.h>
#include <pthread.h>

/* OpenBLAS's own interface; its header is not found at one place on all systems. */
extern void openblas_set_num_threads(int);
extern int openblas_get_num_threads(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int holders, before;

void kh_blas_hold(void) {
    pthread_mutex_lock(&lock);
    int omp = omp_get_max_threads();
    if (holders++ == 0) {
        before = openblas_get_num_threads();
        openblas_set_num_threads(1);
    }
    omp_set_num_threads(omp);
    pthread_mutex_unlock(&lock);
}

void kh_blas_release(void) {
    pthread_mutex_lock(&lock);
    int omp = omp_get_max_threads();
    if (--holders == 0)
        openblas_set_num_threads(before);
    omp_set_num_threads(omp);
    pthread_mutex_unlock(&lock);
}
