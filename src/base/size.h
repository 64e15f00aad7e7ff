/* size.h - size arithmetic that cannot wrap unseen. Each call returns false on overflow. */
#ifndef KH_BASE_SIZE_H
#define KH_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool kh_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool kh_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

#endif
