/* eigen.c - LAPACK's divide and conquer (dsyevd), held to one thread (blas.h), which costs nothing
 * here: at n = 1000 two threads were slower. */
#include "base/eigen.h"

#include "base/blas.h"

#include <lapack.h>

static size_t n_real(int n) { return 1 + 6 * (size_t)n + 2 * (size_t)n * (size_t)n; }
static size_t n_int(int n) { return 3 + 5 * (size_t)n; }

/* The integers stand behind the reals. */
size_t kh_eigen_work(int n) { return n_real(n) + n_int(n); }

bool kh_eigen_symmetric(int n, double *a, double *d, double *work) {
    lapack_int size = n, lwork = (lapack_int)n_real(n), liwork = (lapack_int)n_int(n), info = 0;
    kh_blas_hold();
    /* By columns, as Fortran sees it, our lower triangle is the upper one and our rows are columns.
     */
    LAPACK_dsyevd("V", "U", &size, a, &size, d, work, &lwork,
        (lapack_int *)(void *)(work + n_real(n)), &liwork, &info);
    kh_blas_release();
    return info == 0;
}
