/* alloc.h - the one way to heap memory.
 * Every allocation of the library passes here, so that a test can make the n-th one fail. */
#ifndef KH_BASE_ALLOC_H
#define KH_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

void *kh_malloc(
    size_t bytes); /* uninitialised; NULL when out of memory; 0 bytes give a unique pointer */
void *kh_calloc(size_t n, size_t size);    /* zeroed; NULL also when n * size overflows */
void *kh_realloc(void *p, size_t bytes);   /* p stays valid when NULL is returned */
void *kh_aligned(size_t bytes);            /* 64-byte aligned, uninitialised; freed by kh_free */
void kh_free(void *p);                     /* NULL is fine */
char *kh_strndup(const char *s, size_t n); /* n bytes and a NUL */
char *kh_strdup(const char *s);

/* Makes room for `need` elements of `size` bytes in the growable array *p of capacity *cap (both
 * may start as zero). Growth is geometric. Returns false, with array and capacity unchanged, when
 * out of memory. */
bool kh_grow(void *p, size_t *cap, size_t need, size_t size);

/* For tests: the n-th allocation from now fails (n = 1 is the next); if `forever`, all after it
 * too. n = 0 ends it. */
void kh_alloc_fail_at(long n, bool forever);
/* Allocations asked for since the last kh_alloc_fail_at. */
long kh_alloc_count(void);

#endif
