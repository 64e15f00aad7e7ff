/* trie.c - see trie.h.
 *
 * Edges live in one hash table keyed by (parent, byte). Finding is the automaton of Aho and
 * Corasick (1975), changed so that it yields leftmost-longest matches: a node below or at the end
 * of a member has no failure link, because whatever starts later than that member can no longer
 * win. */
#include "text/trie.h"

#include "base/alloc.h"
#include "base/map.h"

#include <string.h>

enum { MAX_NODES = 1 << 24 }; /* so that parent << 8 | byte, and one, fits 32 bits */

static size_t edge_slot(const kh_trie *t, uint32_t key) {
    return (size_t)(key * t->key >> 32) & (t->cap_edge - 1);
}

static kh_trie_edge *find_edge(const kh_trie *t, uint32_t key) {
    for (size_t i = edge_slot(t, key);; i = (i + 1) & (t->cap_edge - 1))
        if (t->edge[i].from_byte == key || t->edge[i].from_byte == 0)
            return &t->edge[i];
}

static uint32_t edge_key(int32_t node, unsigned char byte) {
    return ((uint32_t)node << 8 | byte) + 1;
}

static int32_t step(const kh_trie *t, int32_t node, unsigned char byte) {
    const kh_trie_edge *e = find_edge(t, edge_key(node, byte));
    return e->from_byte ? e->to : -1;
}

static bool grow_edges(kh_trie *t) {
    if ((t->n_edge + 1) * 2 <= t->cap_edge)
        return true;
    t->key = kh_hash_seed() | 1; /* members may be a stranger's added tokens */
    kh_trie bigger = { .cap_edge = t->cap_edge ? t->cap_edge * 2 : 64, .key = t->key };
    bigger.edge = kh_calloc(bigger.cap_edge, sizeof *bigger.edge);
    if (!bigger.edge)
        return false;
    for (size_t i = 0; i < t->cap_edge; i++)
        if (t->edge[i].from_byte)
            *find_edge(&bigger, t->edge[i].from_byte) = t->edge[i];
    kh_free(t->edge);
    t->edge = bigger.edge;
    t->cap_edge = bigger.cap_edge;
    return true;
}

/* A new node, or -1. */
static int32_t add_node(kh_trie *t, int32_t depth) {
    if (t->n >= MAX_NODES - 1 || !kh_grow(&t->node, &t->cap, (size_t)t->n + 1, sizeof *t->node))
        return -1;
    t->node[t->n] = (kh_trie_node){ .value = -1, .depth = depth, .fail = -1, .match = -1 };
    return t->n++;
}

bool kh_trie_add(kh_trie *t, const char *s, size_t n, int32_t value) {
    if (n == 0)
        return true;
    if (t->n == 0 && add_node(t, 0) < 0)
        return false;
    int32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!grow_edges(t))
            return false;
        kh_trie_edge *e = find_edge(t, edge_key(at, (unsigned char)s[i]));
        if (!e->from_byte) {
            int32_t to = add_node(t, (int32_t)i + 1);
            if (to < 0)
                return false;
            *e = (kh_trie_edge){ edge_key(at, (unsigned char)s[i]), to };
            t->n_edge++;
        }
        at = e->to;
    }
    t->first[(unsigned char)s[0]] = true;
    if (t->node[at].value < 0)
        t->node[at].value = value;
    return true;
}

void kh_trie_free(kh_trie *t) {
    kh_free(t->node);
    kh_free(t->edge);
    *t = (kh_trie){ 0 };
}

int32_t kh_trie_walk(const kh_trie *t, int32_t node, const char *s, size_t n) {
    if (t->n_edge == 0)
        return n == 0 ? node : -1;
    for (size_t i = 0; i < n && node >= 0; i++)
        node = step(t, node, (unsigned char)s[i]);
    return node;
}

int32_t kh_trie_longest(const kh_trie *t, int32_t node, const char *s, size_t n, size_t *len) {
    int32_t best = -1;
    if (t->n_edge == 0)
        return -1;
    for (size_t i = 0; i < n && (node = step(t, node, (unsigned char)s[i])) >= 0; i++)
        if (t->node[node].value >= 0) {
            best = t->node[node].value;
            *len = i + 1;
        }
    return best;
}

/* Fills link and match of one node whose parent is done. `ended`: a member ends at the parent or
 * above it. */
static void link_node(kh_trie *t, int32_t node, int32_t parent, unsigned char byte, bool *ended) {
    kh_trie_node *v = &t->node[node];
    ended[node] = ended[parent] || v->value >= 0;
    if (v->value >= 0)
        v->match = node;
    if (ended[node])
        return;
    v->fail = parent == 0 ? 0 : -1;
    int32_t from = parent == 0 ? -1 : t->node[parent].fail;
    while (from >= 0) {
        int32_t to = step(t, from, byte);
        if (to >= 0) {
            v->fail = to;
            break;
        }
        if (from == 0)
            v->fail = 0;
        from = from == 0 ? -1 : t->node[from].fail;
    }
    if (v->fail >= 0)
        v->match = t->node[v->fail].match;
}

bool kh_trie_link(kh_trie *t) {
    if (t->n == 0)
        return true;
    bool *ended = kh_calloc((size_t)t->n, sizeof *ended);
    uint32_t *in = kh_calloc((size_t)t->n, sizeof *in);      /* the edge into each node */
    int32_t *order = kh_calloc((size_t)t->n, sizeof *order); /* nodes by depth */
    int32_t *count = kh_calloc((size_t)t->n + 1, sizeof *count);
    bool ok = ended && in && order && count;
    if (ok) {
        for (size_t i = 0; i < t->cap_edge; i++)
            if (t->edge[i].from_byte)
                in[t->edge[i].to] = t->edge[i].from_byte - 1;
        for (int i = 0; i < t->n; i++)
            count[t->node[i].depth + 1]++;
        for (int i = 0; i < t->n; i++)
            count[i + 1] += count[i];
        for (int i = 0; i < t->n; i++)
            order[count[t->node[i].depth]++] = i;
        for (int i = 1; i < t->n; i++)
            link_node(t, order[i], (int32_t)(in[order[i]] >> 8),
                (unsigned char)(in[order[i]] & 0xFF), ended);
    }
    kh_free(ended);
    kh_free(in);
    kh_free(order);
    kh_free(count);
    return ok;
}

bool kh_trie_find(const kh_trie *t, const char *text, size_t n, size_t at, kh_trie_match *m) {
    int32_t state = 0;
    bool found = false;
    if (t->n_edge == 0)
        return false;
    for (size_t i = at; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (state == 0 && !t->first[byte]) {
            if (found)
                return true;
            continue;
        }
        int32_t to;
        while ((to = step(t, state, byte)) < 0 && state > 0)
            if ((state = t->node[state].fail) < 0)
                return found;
        if (to < 0) {
            if (found)
                return true;
            continue; /* at the root, which this byte does not leave */
        }
        state = to;
        if (t->node[state].match >= 0) {
            const kh_trie_node *v = &t->node[t->node[state].match];
            *m = (kh_trie_match){ i + 1 - (size_t)v->depth, i + 1, v->value };
            found = true;
        }
    }
    return found;
}
