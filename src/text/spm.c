/* spm.c - see spm.h.
 *
 * The text starts as a list of characters. A heap holds every pair of neighbours whose joined text
 * is a piece, the best score on top, of equal ones the leftmost. A join takes one pair away and
 * offers at most two new ones, so that n characters cost O(n log n). A pair on the heap whose parts
 * have changed since is known by its length, which joins only make larger. */
#include "text/spm.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/pieces.h"

#include <math.h>
#include <stdio.h>

typedef struct kh_spm_symbol {
    const char *s;
    size_t n; /* 0: joined to the one before */
    int prev, next;
} symbol;

typedef struct kh_spm_join {
    float score;
    int left, right;
    size_t n; /* bytes of both */
} join;

void kh_spm_ready(kh_spm *m) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        m->byte_id[b] = kh_vocab_id(m->vocab, name, 6);
    }
    for (int i = 0; i < m->vocab->size; i++)
        if (!isnan(m->score[i]) && m->vocab->len[i] > m->longest)
            m->longest = m->vocab->len[i];
}

void kh_spm_free(kh_spm *m) { kh_free(m->score); }

void kh_spm_scratch_free(kh_spm_scratch *w) {
    kh_free(w->symbol);
    kh_free(w->heap);
}

/* The piece that has this text, or -1. */
static int32_t find_piece(const kh_spm *m, const char *s, size_t n) {
    int32_t id = n <= m->longest ? kh_vocab_id(m->vocab, s, n) : -1;
    return id >= 0 && !isnan(m->score[id]) ? id : -1;
}

static bool better(const join *a, const join *b) {
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static void heap_push(join *heap, size_t *n, join x) {
    size_t i = (*n)++;
    for (; i > 0 && better(&x, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static join heap_pop(join *heap, size_t *n) {
    join top = heap[0], x = heap[--*n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *n) {
        if (child + 1 < *n && better(&heap[child + 1], &heap[child]))
            child++;
        if (!better(&heap[child], &x))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
    return top;
}

static void offer(const kh_spm *m, const symbol *all, int left, int right, join *heap, size_t *n) {
    if (left < 0 || right < 0)
        return;
    size_t bytes = all[left].n + all[right].n;
    int32_t id = find_piece(m, all[left].s, bytes);
    if (id >= 0)
        heap_push(heap, n, (join){ m->score[id], left, right, bytes });
}

static int put_symbol(const kh_spm *m, const symbol *s, kh_ids *out, kh_err *err) {
    int32_t id = find_piece(m, s->s, s->n);
    if (id >= 0)
        return kh_ids_push(out, id, err);
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        id = m->byte_id[(unsigned char)s->s[i]];
        if (id < 0) { /* a vocabulary without bytes: one unknown token for the character */
            if (m->unk < 0)
                return kh_fail(err, KH_EMISMATCH,
                    "a character is not in the tokenizer's "
                    "vocabulary, which has neither bytes nor an unknown token");
            return kh_ids_push(out, m->unk, err);
        }
        rc = kh_ids_push(out, id, err);
    }
    return rc;
}

int kh_spm_encode(
    const kh_spm *m, const char *text, size_t n, kh_spm_scratch *w, kh_ids *out, kh_err *err) {
    int count = 0, rc = 0;
    /* At most n symbols; each join frees one entry of the heap and adds two. */
    if (!kh_grow(&w->symbol, &w->cap_symbol, n + 1, sizeof *w->symbol) ||
        !kh_grow(&w->heap, &w->cap_heap, 3 * n + 1, sizeof *w->heap))
        return kh_fail_memory(err);
    symbol *s = w->symbol;
    for (size_t i = 0; i < n;) {
        int len;
        kh_utf8_next(text + i, n - i, &len, NULL);
        s[count] = (symbol){ text + i, (size_t)len, count - 1, count + 1 };
        count++;
        i += (size_t)len;
    }
    if (count > 0)
        s[count - 1].next = -1;
    size_t n_heap = 0;
    for (int i = 0; i + 1 < count; i++)
        offer(m, s, i, i + 1, w->heap, &n_heap);
    while (n_heap > 0) {
        join j = heap_pop(w->heap, &n_heap);
        if (s[j.left].n == 0 || s[j.right].n == 0 || s[j.left].n + s[j.right].n != j.n)
            continue;
        s[j.left].n = j.n;
        s[j.right].n = 0;
        int next = s[j.left].next = s[j.right].next;
        if (next >= 0)
            s[next].prev = j.left;
        offer(m, s, s[j.left].prev, j.left, w->heap, &n_heap);
        offer(m, s, j.left, next, w->heap, &n_heap);
    }
    for (int i = 0; i >= 0 && count > 0 && rc == 0; i = s[i].next)
        rc = put_symbol(m, &s[i], out, err);
    return rc;
}
