/* alloc.c - malloc with a fault switch for tests. */
#include "base/alloc.h"

#include "base/size.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_long calls;   /* since the switch was set */
static atomic_long fail_at; /* 0: never */
static atomic_bool fail_forever;

void kh_alloc_fail_at(long n, bool forever) {
    atomic_store(&calls, 0);
    atomic_store(&fail_forever, forever);
    atomic_store(&fail_at, n);
}

long kh_alloc_count(void) { return atomic_load(&calls); }

static bool must_fail(void) {
    long call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    long at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    return at > 0 &&
        (call == at || (call > at && atomic_load_explicit(&fail_forever, memory_order_relaxed)));
}

void *kh_malloc(size_t bytes) { return must_fail() ? NULL : malloc(bytes ? bytes : 1); }

void *kh_calloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || !kh_mul(n, size, &bytes))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *kh_realloc(void *p, size_t bytes) {
    return must_fail() ? NULL : realloc(p, bytes ? bytes : 1);
}

void *kh_aligned(size_t bytes) {
    size_t rounded;
    if (must_fail() || !kh_add(bytes ? bytes : 1, 63, &rounded))
        return NULL;
    return aligned_alloc(64, rounded & ~(size_t)63);
}

void kh_free(void *p) { free(p); }

char *kh_strndup(const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? kh_malloc(n + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *kh_strdup(const char *s) { return kh_strndup(s, strlen(s)); }

bool kh_grow(void *p, size_t *cap, size_t need, size_t size) {
    if (need <= *cap)
        return true;
    size_t want = *cap < 8 ? 8 : *cap + *cap / 2, bytes;
    if (want < need)
        want = need;
    void *old;
    memcpy(&old, p, sizeof old); /* p points to a pointer of any type */
    if (!kh_mul(want, size, &bytes))
        return false;
    void *fresh = kh_realloc(old, bytes);
    if (!fresh)
        return false;
    memcpy(p, &fresh, sizeof fresh);
    *cap = want;
    return true;
}
