/* blas.h - OpenBLAS held to one thread, for results whose bits do not depend on the number of
 * threads.
 *
 * OpenBLAS cuts products into as many parts as it has threads, and sums come out differently for
 * another number of parts. Its number of threads is a setting of the whole process: it becomes one
 * with the first kh_blas_hold and what it was with the last kh_blas_release, whichever thread calls
 * them. Code that wants several threads starts its own and lets each of them call BLAS. */
#ifndef KH_BASE_BLAS_H
#define KH_BASE_BLAS_H

void kh_blas_hold(void);
void kh_blas_release(void);

#endif
