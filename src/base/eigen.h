/* eigen.h - eigenvalues and eigenvectors of a symmetric matrix, by LAPACK, with the same bits for
 * any number of threads. */
#ifndef KH_BASE_EIGEN_H
#define KH_BASE_EIGEN_H

#include <stdbool.h>
#include <stddef.h>

/* How many doubles of `work` a matrix of n rows needs; n <= 30000. */
size_t kh_eigen_work(int n);

/* a [n, n]: the lower triangle is read; becomes the eigenvectors, row j the j-th, of unit length. d
 * [n]: the eigenvalues, ascending. a, d and work are 64-byte aligned: kernels may add up in another
 * order at another alignment. False if LAPACK fails, which it does for matrices that are not
 * finite; a and d are then undefined. */
bool kh_eigen_symmetric(int n, double *a, double *d, double *work);

#endif
