/* eigen.c - LAPACK's divide and conquer (dsyevd), held to one thread.
 *
 * OpenBLAS cuts products into as many parts as it has threads, and sums come out differently for another number of parts.
 * Its number of threads is a setting of the whole process; it is set to one for the call and put back afterwards, under a
 * lock, because a second optimiser in another thread could otherwise put it back too soon. One thread costs nothing here: at
 * n = 1000 two threads were slower. The variant of OpenBLAS that is built on OpenMP passes the number on to OpenMP, so
 * that is put back as well. */
#include "tune/eigen.h"

#include <lapack.h>
#include <omp.h>
#include <pthread.h>

/* OpenBLAS's own interface; its header is not found at one place on all systems. */
extern void openblas_set_num_threads(int);
extern int openblas_get_num_threads(void);

static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER;

static size_t n_real(int n) { return 1 + 6 * (size_t)n + 2 * (size_t)n * (size_t)n; }
static size_t n_int(int n) { return 3 + 5 * (size_t)n; }

/* The integers stand behind the reals. */
size_t kh_eigen_work(int n) { return n_real(n) + n_int(n); }

bool kh_eigen_symmetric(int n, double *a, double *d, double *work) {
    lapack_int size = n, lwork = (lapack_int)n_real(n), liwork = (lapack_int)n_int(n), info = 0;
    pthread_mutex_lock(&one_thread);
    int blas = openblas_get_num_threads(), omp = omp_get_max_threads();
    openblas_set_num_threads(1);
    /* By columns, as Fortran sees it, our lower triangle is the upper one and our rows are columns. */
    LAPACK_dsyevd("V", "U", &size, a, &size, d, work, &lwork, (lapack_int *)(void *)(work + n_real(n)), &liwork, &info);
    openblas_set_num_threads(blas);
    omp_set_num_threads(omp);
    pthread_mutex_unlock(&one_thread);
    return info == 0;
}
