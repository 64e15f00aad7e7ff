/* trie.h - a set of byte strings that finds its members inside a text in one pass.
 *
 *     kh_trie t = {0};
 *     kh_trie_add(&t, "<mask>", 6, 50264);
 *     kh_trie_link(&t);                                   only for kh_trie_find
 *     while (kh_trie_find(&t, text, n, at, &m)) at = m.end;
 *
 * kh_trie_longest needs no links: it reads members that start at one place, for WordPiece. */
#ifndef KH_TEXT_TRIE_H
#define KH_TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kh_trie_edge {
    uint32_t from_byte; /* parent << 8 | byte, and one: 0 is a free slot */
    int32_t to;
} kh_trie_edge;

typedef struct kh_trie_node {
    int32_t value; /* of the member that ends here, or -1 */
    int32_t depth; /* bytes from the root */
    int32_t fail;  /* where a failed step continues; -1: nowhere, the match found so far is final */
    int32_t match; /* the member that ends at this place of the text and starts first, as a node;
                      -1: none */
} kh_trie_node;

typedef struct kh_trie {
    kh_trie_node *node; /* node[0] is the root */
    int n;
    size_t cap;
    kh_trie_edge *edge; /* open addressing, a power of two of them */
    size_t n_edge, cap_edge;
    uint64_t key;    /* of their hash, random */
    bool first[256]; /* bytes that members start with */
} kh_trie;           /* start as {0} */

/* Adds a member; one that is there keeps its value. Empty members are ignored. False when out of
 * memory or too large. */
bool kh_trie_add(kh_trie *, const char *s, size_t n, int32_t value);
void kh_trie_free(kh_trie *);

/* The node reached from `node` by the bytes, or -1. */
int32_t kh_trie_walk(const kh_trie *, int32_t node, const char *s, size_t n);

/* The longest member that begins at s, read from `node` on; its value, or -1, and its length in
 * *len. */
int32_t kh_trie_longest(const kh_trie *, int32_t node, const char *s, size_t n, size_t *len);

/* Prepares for kh_trie_find; to be called once, after the last member. False when out of memory. */
bool kh_trie_link(kh_trie *);

typedef struct kh_trie_match {
    size_t start, end;
    int32_t value;
} kh_trie_match;

/* The leftmost member in text[at..n), and of those that start there the longest. Time is linear in
 * what is passed. */
bool kh_trie_find(const kh_trie *, const char *text, size_t n, size_t at, kh_trie_match *);

#endif
