/* bpe.c - see bpe.h.
 *
 * A word becomes symbols (ids of its characters); then the pair with the lowest rank, the leftmost
 * among equals, is joined until no pair can be. Short words do this by looking over an array of
 * ranks, long ones with a heap of (rank, position), whose entries may be stale and are checked when
 * they come up: n symbols cost O(n log n), and a megabyte without a space is no attack.
 *
 * Most words of a text are one token. For byte-level models the joins of all short tokens are done
 * once on loading, and those that come out as one token are looked up from then on. */
#include "text/bpe.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/map.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/pieces.h"

#include <stdio.h>
#include <string.h>

enum { SHORT_WORD = 48, NO_RANK = INT32_MAX };

/* --------------------------------------------------------------------------------------- pairs */

static size_t pair_slot(const kh_bpe *m, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)((unsigned __int128)key * m->key >> 64) & (m->cap_pair - 1);
}

static kh_bpe_pair *find_pair(const kh_bpe *m, int32_t left, int32_t right) {
    for (size_t i = pair_slot(m, left, right);; i = (i + 1) & (m->cap_pair - 1)) {
        kh_bpe_pair *p = &m->pair[i];
        if ((p->left == left && p->right == right) || p->left < 0)
            return p;
    }
}

static bool grow_pairs(kh_bpe *m) {
    if ((m->n_pair + 1) * 2 <= m->cap_pair)
        return true;
    m->key = kh_hash_seed() | 1;
    kh_bpe bigger = { .cap_pair = m->cap_pair ? m->cap_pair * 2 : 16, .key = m->key };
    bigger.pair = kh_calloc(bigger.cap_pair, sizeof *bigger.pair);
    if (!bigger.pair)
        return false;
    for (size_t i = 0; i < bigger.cap_pair; i++)
        bigger.pair[i].left = -1;
    for (size_t i = 0; i < m->cap_pair; i++)
        if (m->pair[i].left >= 0)
            *find_pair(&bigger, m->pair[i].left, m->pair[i].right) = m->pair[i];
    kh_free(m->pair);
    m->pair = bigger.pair;
    m->cap_pair = bigger.cap_pair;
    return true;
}

static int unknown_part(const char *place, const char *token, size_t n, kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "%s: token \"%.*s\" is not in the vocabulary", place,
        n < 100 ? (int)n : 100, token);
}

int kh_bpe_merge(kh_bpe *m, int rank, const char *left, size_t n_left, const char *right,
    size_t n_right, const char *place, kh_err *err) {
    int32_t a = kh_vocab_id(m->vocab, left, n_left), b = kh_vocab_id(m->vocab, right, n_right);
    if (a < 0)
        return unknown_part(place, left, n_left, err);
    if (b < 0)
        return unknown_part(place, right, n_right, err);
    size_t skip = strlen(m->prefix); /* the right part loses its prefix */
    if (n_right < skip)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"%.*s\" is shorter than the continuing_subword_prefix", place, (int)n_right,
            right);
    kh_buf joined = kh_buf_init(KH_BUF_MAX);
    kh_buf_bytes(&joined, left, n_left);
    kh_buf_bytes(&joined, right + skip, n_right - skip);
    int rc = kh_buf_failed(&joined) || !grow_pairs(m) ? kh_fail_memory(err) : 0;
    int32_t id = rc == 0 ? kh_vocab_id(m->vocab, joined.data, joined.len) : -1;
    if (rc == 0 && id < 0)
        rc = unknown_part(place, joined.data, joined.len, err);
    if (rc == 0) {
        kh_bpe_pair *p = find_pair(m, a, b);
        m->n_pair += p->left < 0;
        *p = (kh_bpe_pair){ a, b, rank, id }; /* of a pair given twice the later rank counts */
    }
    kh_buf_free(&joined);
    return rc;
}

/* The rank of a pair, or NO_RANK. */
static int32_t rank_of(const kh_bpe *m, int32_t left, int32_t right, int32_t *joined) {
    const kh_bpe_pair *p = find_pair(m, left, right);
    *joined = p->joined;
    return p->left < 0 ? NO_RANK : p->rank;
}

/* ------------------------------------------------------------------------------------- joining */

/* Joins s[0..n), n <= SHORT_WORD, in place; returns how many symbols are left. */
static int join_short(const kh_bpe *m, int32_t *s, int n) {
    int32_t rank[SHORT_WORD], joined[SHORT_WORD];
    for (int i = 0; i + 1 < n; i++)
        rank[i] = rank_of(m, s[i], s[i + 1], &joined[i]);
    for (;;) {
        int best = -1;
        int32_t lowest = NO_RANK;
        for (int i = 0; i + 1 < n; i++)
            if (rank[i] < lowest) {
                lowest = rank[i];
                best = i;
            }
        if (best < 0)
            return n;
        s[best] = joined[best];
        n--;
        size_t rest = (size_t)(n - best - 1);
        memmove(s + best + 1, s + best + 2, rest * sizeof *s);
        if (rest > 0) {
            memmove(rank + best + 1, rank + best + 2, (rest - 1) * sizeof *rank);
            memmove(joined + best + 1, joined + best + 2, (rest - 1) * sizeof *joined);
            rank[best] = rank_of(m, s[best], s[best + 1], &joined[best]);
        }
        if (best > 0)
            rank[best - 1] = rank_of(m, s[best - 1], s[best], &joined[best - 1]);
    }
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t x) {
    size_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > x) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = x;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n) {
    uint64_t top = heap[0], x = heap[--*n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *n) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= x)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
    return top;
}

/* Queues the pair that starts at symbol i. */
static void queue_pair(const kh_bpe *m, const int32_t *s, const int32_t *next, int32_t i,
    uint64_t *heap, size_t *n_heap) {
    int32_t joined, rank = next[i] < 0 ? NO_RANK : rank_of(m, s[i], s[next[i]], &joined);
    if (rank != NO_RANK)
        heap_push(heap, n_heap, (uint64_t)(uint32_t)rank << 32 | (uint32_t)i);
}

static int join_long(
    const kh_bpe *m, kh_bpe_scratch *w, int32_t *s, int n, int *left, kh_err *err) {
    /* One entry for each pair at first; each join removes one, takes one pair away and may queue
     * two. */
    if (!kh_grow(&w->link, &w->cap_link, (size_t)n * 2, sizeof *w->link) ||
        !kh_grow(&w->heap, &w->cap_heap, (size_t)n * 2, sizeof *w->heap))
        return kh_fail_memory(err);
    int32_t *prev = w->link, *next = w->link + n;
    size_t n_heap = 0;
    for (int32_t i = 0; i < n; i++) {
        prev[i] = i - 1;
        next[i] = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n; i++)
        queue_pair(m, s, next, i, w->heap, &n_heap);
    while (n_heap > 0) {
        uint64_t top = heap_pop(w->heap, &n_heap);
        int32_t i = (int32_t)(uint32_t)top, joined, right;
        if (s[i] < 0 || (right = next[i]) < 0 ||
            rank_of(m, s[i], s[right], &joined) != (int32_t)(top >> 32))
            continue; /* the pair is no more */
        s[i] = joined;
        s[right] = -1;
        next[i] = next[right];
        if (next[i] >= 0)
            prev[next[i]] = i;
        queue_pair(m, s, next, i, w->heap, &n_heap);
        if (prev[i] >= 0)
            queue_pair(m, s, next, prev[i], w->heap, &n_heap);
    }
    *left = 0;
    for (int32_t i = 0; i >= 0; i = next[i])
        s[(*left)++] = s[i];
    return 0;
}

/* Joins the symbols out->id[from..] in place. */
static int join(const kh_bpe *m, kh_bpe_scratch *w, kh_ids *out, int from, kh_err *err) {
    int n = out->n - from, left = n;
    if (n < 2 || m->n_pair == 0)
        return 0;
    if (n <= SHORT_WORD)
        left = join_short(m, out->id + from, n);
    else {
        int rc = join_long(m, w, out->id + from, n, &left, err);
        if (rc != 0)
            return rc;
    }
    out->n = from + left;
    return 0;
}

/* ------------------------------------------------------------------- words given as characters */

/* What is not in the vocabulary waits: with fuse_unk it may grow, and what byte_fallback yields
 * does not end the wait. */
static int put_symbols(
    const kh_bpe *m, const char *s, size_t n, kh_bpe_scratch *w, kh_ids *out, kh_err *err) {
    int32_t unk = -1;
    int rc = 0, len;
    for (size_t i = 0; i < n && rc == 0; i += (size_t)len) {
        kh_utf8_next(s + i, n - i, &len, NULL);
        const char *c = s + i;
        size_t c_len = (size_t)len;
        bool ends = i + c_len == n;
        if ((i > 0 && *m->prefix) || (ends && *m->suffix)) {
            kh_buf_reset(&w->affixed);
            kh_buf_text(&w->affixed, i > 0 ? m->prefix : "");
            kh_buf_bytes(&w->affixed, s + i, c_len);
            kh_buf_text(&w->affixed, ends ? m->suffix : "");
            if (kh_buf_failed(&w->affixed))
                return kh_fail_memory(err);
            c = w->affixed.data;
            c_len = w->affixed.len;
        }
        int32_t id = kh_vocab_id(m->vocab, c, c_len);
        if (id >= 0) {
            if (unk >= 0)
                rc = kh_ids_push(out, unk, err);
            unk = -1;
            if (rc == 0)
                rc = kh_ids_push(out, id, err);
            continue;
        }
        bool fallback = m->byte_fallback;
        for (size_t k = 0; k < c_len && fallback; k++)
            fallback = m->fallback_id[(unsigned char)c[k]] >= 0;
        for (size_t k = 0; k < c_len && fallback && rc == 0; k++)
            rc = kh_ids_push(out, m->fallback_id[(unsigned char)c[k]], err);
        if (fallback || !m->unk_token)
            continue;
        if (unk >= 0 && !m->fuse_unk)
            rc = kh_ids_push(out, unk, err);
        unk = kh_vocab_id(m->vocab, m->unk_token, strlen(m->unk_token));
        if (unk < 0)
            return kh_fail(err, KH_EMISMATCH,
                "a character is not in the tokenizer's vocabulary, and neither is its unk_token "
                "\"%.100s\"",
                m->unk_token);
    }
    return rc == 0 && unk >= 0 ? kh_ids_push(out, unk, err) : rc;
}

/* ------------------------------------------------------------------------ words given as bytes */

/* The word with its bytes as printable characters, in w->text. */
static int print_bytes(const char *s, size_t n, kh_bpe_scratch *w, kh_err *err) {
    kh_buf_reset(&w->text);
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        kh_buf_bytes(&w->text, utf8, (size_t)kh_utf8_put(kh_byte_char((uint8_t)s[i]), utf8));
    }
    return kh_buf_failed(&w->text) ? kh_fail_memory(err) : 0;
}

/* The ids of the bytes, joined. A byte that the vocabulary lacks sends the word the way of
 * characters. */
static int join_bytes(
    const kh_bpe *m, const char *s, size_t n, kh_bpe_scratch *w, kh_ids *out, kh_err *err) {
    int from = out->n, rc = kh_ids_room(out, n, err);
    if (rc != 0)
        return rc;
    int32_t *id = out->id + from, lacking = 0;
    for (size_t i = 0; i < n; i++)
        lacking |= id[i] = m->byte_id[(unsigned char)s[i]];
    if (lacking >= 0)
        out->n = from + (int)n;
    else if ((rc = print_bytes(s, n, w, err)) == 0)
        rc = put_symbols(m, w->text.data, w->text.len, w, out, err);
    return rc ? rc : join(m, w, out, from, err);
}

static int encode_bytes(
    const kh_bpe *m, const char *s, size_t n, kh_bpe_scratch *w, kh_ids *out, kh_err *err) {
    int32_t id = kh_lexicon_find(&m->words, s, n);
    if (id < 0 && m->ignore_merges && n > KH_LEXICON_MAX) {
        int rc = print_bytes(s, n, w, err);
        if (rc != 0)
            return rc;
        id = kh_vocab_id(m->vocab, w->text.data, w->text.len);
    }
    if (id >= 0)
        return kh_ids_push(out, id, err);
    return join_bytes(m, s, n, w, out, err);
}

/* The bytes that a token of printable characters stands for, at most KH_LEXICON_MAX; their number,
 * or 0 if it cannot be. */
static size_t token_bytes(const char *token, size_t n, char *bytes) {
    size_t made = 0;
    for (size_t i = 0; i < n;) {
        int len, b = kh_char_byte(kh_utf8_next(token + i, n - i, &len, NULL));
        if (b < 0 || made == KH_LEXICON_MAX)
            return 0;
        bytes[made++] = (char)b;
        i += (size_t)len;
    }
    return made;
}

/* Which words are one token: those that the joins lead back to, or with ignore_merges all of the
 * vocabulary. */
static int hash_words(kh_bpe *m, kh_err *err) {
    kh_bpe_scratch scratch = kh_bpe_scratch_init();
    kh_ids ids = { 0 };
    int rc = 0;
    if (!kh_lexicon_reserve(&m->words, m->vocab->ids.n))
        rc = kh_fail_memory(err);
    for (int32_t id = 0; id < m->vocab->size && rc == 0; id++) {
        char bytes[KH_LEXICON_MAX];
        const char *token = m->vocab->token[id];
        size_t n = token ? token_bytes(token, m->vocab->len[id], bytes) : 0;
        bool known = n > 0;
        for (size_t i = 0; i < n; i++)
            known &= m->byte_id[(unsigned char)bytes[i]] >= 0;
        if ((!known && !m->ignore_merges) || n == 0)
            continue;
        ids.n = 0;
        if (m->ignore_merges)
            rc = kh_ids_push(&ids, id, err);
        else
            rc = join_bytes(m, bytes, n, &scratch, &ids, err);
        if (rc == 0 && ids.n == 1)
            kh_lexicon_add(&m->words, bytes, n, ids.id[0]);
    }
    kh_ids_free(&ids);
    kh_bpe_scratch_free(&scratch);
    return rc;
}

int kh_bpe_encode(const kh_bpe *m, const char *word, size_t n, bool bytes, kh_bpe_scratch *w,
    kh_ids *out, kh_err *err) {
    if (bytes)
        return encode_bytes(m, word, n, w, out, err);
    if (m->ignore_merges) {
        int32_t id = kh_vocab_id(m->vocab, word, n);
        if (id >= 0)
            return kh_ids_push(out, id, err);
    }
    int from = out->n, rc = put_symbols(m, word, n, w, out, err);
    return rc ? rc : join(m, w, out, from, err);
}

/* ---------------------------------------------------------------------------------------- life */

int kh_bpe_ready(kh_bpe *m, kh_err *err) {
    m->reads_bytes = !*m->prefix && !*m->suffix;
    for (int b = 0; b < 256; b++) {
        char name[8], utf8[4];
        m->byte_id[b] =
            kh_vocab_id(m->vocab, utf8, (size_t)kh_utf8_put(kh_byte_char((uint8_t)b), utf8));
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        m->fallback_id[b] = kh_vocab_id(m->vocab, name, 6);
    }
    if (!grow_pairs(m)) /* so that looking a pair up needs no check for an empty table */
        return kh_fail_memory(err);
    return m->reads_bytes ? hash_words(m, err) : 0;
}

void kh_bpe_free(kh_bpe *m) {
    kh_free(m->pair);
    kh_lexicon_free(&m->words);
    *m = (kh_bpe){ 0 };
}

kh_bpe_scratch kh_bpe_scratch_init(void) {
    return (kh_bpe_scratch){ .text = kh_buf_init(KH_TEXT_MAX * 2),
        .affixed = kh_buf_init(KH_TEXT_MAX) };
}

void kh_bpe_scratch_free(kh_bpe_scratch *w) {
    kh_free(w->link);
    kh_free(w->heap);
    kh_buf_free(&w->text);
    kh_buf_free(&w->affixed);
}
