/* arena.c - a list of blocks, each filled from its front; a request larger than a block gets one of
 * its own. */
#include "base/arena.h"

#include "base/alloc.h"
#include "base/size.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

struct kh_arena_block {
    struct kh_arena_block *next;
    size_t used, cap;
    alignas(ALIGN) unsigned char data[];
};

static struct kh_arena_block *add_block(kh_arena *a, size_t bytes) {
    size_t cap = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES, total;
    if (!kh_add(cap, sizeof(struct kh_arena_block), &total))
        return NULL;
    struct kh_arena_block *b = kh_malloc(total);
    if (!b)
        return NULL;
    b->used = 0;
    b->cap = cap;
    b->next = a->blocks;
    a->blocks = b;
    return b;
}

void *kh_arena_alloc(kh_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct kh_arena_block *b = a->blocks;
    if (!b || b->cap - b->used < rounded)
        b = add_block(a, rounded);
    if (!b)
        return NULL;
    void *p = b->data + b->used;
    b->used += rounded;
    return memset(p, 0, rounded);
}

void *kh_arena_array(kh_arena *a, size_t n, size_t size) {
    size_t bytes;
    return kh_mul(n, size, &bytes) ? kh_arena_alloc(a, bytes) : NULL;
}

char *kh_arena_strndup(kh_arena *a, const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? kh_arena_alloc(a, n + 1) : NULL;
    return copy ? memcpy(copy, s, n) : NULL;
}

void kh_arena_free(kh_arena *a) {
    while (a->blocks) {
        struct kh_arena_block *next = a->blocks->next;
        kh_free(a->blocks);
        a->blocks = next;
    }
}
