/* arena.h - memory freed together: allocate many, free once.
 *
 *     kh_arena a = {0};
 *     char *name = kh_arena_strndup(&a, s, n);
 *     kh_arena_free(&a);
 */
#ifndef KH_BASE_ARENA_H
#define KH_BASE_ARENA_H

#include <stddef.h>

typedef struct kh_arena {
    struct kh_arena_block *blocks; /* newest first */
} kh_arena;

void *kh_arena_alloc(
    kh_arena *, size_t bytes); /* 16-byte aligned, zeroed; NULL when out of memory */
void *kh_arena_array(kh_arena *, size_t n, size_t size); /* NULL also when n * size overflows */
char *kh_arena_strndup(kh_arena *, const char *s, size_t n);
void kh_arena_free(kh_arena *); /* all of it; the arena is empty and usable again */

#endif
