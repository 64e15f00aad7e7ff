/* unigram.c - see unigram.h.
 *
 * Viterbi's algorithm over the bytes of the word: best[e] is the best cut of the first e bytes, and
 * every piece that starts at a character's first byte is a step from there. Where no piece is
 * exactly the one character, a step over it as unknown is offered too. Of equal sums the one found
 * first stays, so that cuts are those of Hugging Face's library. Unknown characters side by side
 * become one token. */
#include "text/unigram.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/pieces.h"

#include <stdio.h>
#include <string.h>

enum { UNKNOWN_PENALTY = 10 }; /* SentencePiece's */

typedef struct kh_unigram_end {
    double score;
    size_t start; /* where the last piece starts */
    int32_t id;   /* of it; -1: nothing ends here yet */
} end_of;

int kh_unigram_ready(kh_unigram *m, kh_err *err) {
    double worst = 0;
    bool first = true;
    for (int32_t id = 0; id < m->vocab->size; id++) {
        const char *token = m->vocab->token[id];
        if (token && !kh_trie_add(&m->trie, token, m->vocab->len[id], id))
            return kh_fail_memory(err);
        if (token && (first || m->score[id] < worst))
            worst = m->score[id];
        first = first && !token;
    }
    m->unk_score = worst - UNKNOWN_PENALTY;
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        m->byte_id[b] = kh_vocab_id(m->vocab, name, 6);
    }
    return 0;
}

void kh_unigram_free(kh_unigram *m) {
    kh_trie_free(&m->trie);
    kh_free(m->score);
}

void kh_unigram_scratch_free(kh_unigram_scratch *w) { kh_free(w->end); }

static void step(end_of *best, size_t from, size_t to, int32_t id, double score) {
    if (best[to].id < 0 || best[from].score + score > best[to].score)
        best[to] = (end_of){ best[from].score + score, from, id };
}

/* All steps from one character on. */
static int steps(const kh_unigram *m, const char *word, size_t n, size_t from, size_t char_len,
    end_of *best, kh_err *err) {
    bool single = false;
    int32_t node = 0;
    for (size_t to = from; to < n && (node = kh_trie_walk(&m->trie, node, word + to, 1)) >= 0;) {
        int32_t id = m->trie.node[node].value;
        to++;
        if (id < 0)
            continue;
        step(best, from, to, id, m->score[id]);
        single = single || to - from == char_len;
    }
    if (single)
        return 0;
    if (m->unk < 0)
        return kh_fail(err, KH_EMISMATCH,
            "a character is not in the tokenizer's vocabulary, which has no unknown token");
    step(best, from, from + char_len, m->unk, m->unk_score);
    return 0;
}

/* A stretch that became unknown. */
static int put_unknown(const kh_unigram *m, const char *s, size_t n, kh_ids *out, kh_err *err) {
    int32_t id = kh_vocab_id(m->vocab, s, n);
    if (id >= 0)
        return kh_ids_push(out, id, err);
    bool bytes = m->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++)
        bytes = m->byte_id[(unsigned char)s[i]] >= 0;
    if (!bytes)
        return kh_ids_push(out, m->unk, err);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = kh_ids_push(out, m->byte_id[(unsigned char)s[i]], err);
    return rc;
}

/* Turns the steps round, so that best[start].start is where the piece ends. */
static void reverse(end_of *best, size_t n) {
    size_t to = n;
    int32_t id = best[n].id;
    for (size_t at = best[n].start;;) {
        size_t before = best[at].start;
        int32_t id_before = best[at].id;
        best[at].start = to;
        best[at].id = id;
        if (at == 0)
            return;
        to = at;
        id = id_before;
        at = before;
    }
}

int kh_unigram_encode(const kh_unigram *m, const char *word, size_t n, kh_unigram_scratch *w,
    kh_ids *out, kh_err *err) {
    if (n == 0)
        return 0;
    if (!kh_grow(&w->end, &w->cap, n + 1, sizeof *w->end))
        return kh_fail_memory(err);
    end_of *best = w->end;
    for (size_t i = 0; i <= n; i++)
        best[i].id = -1;
    best[0] = (end_of){ 0, 0, 0 };
    int rc = 0, len;
    for (size_t i = 0; i < n && rc == 0; i += (size_t)len) {
        kh_utf8_next(word + i, n - i, &len, NULL);
        rc = steps(m, word, n, i, (size_t)len, best, err);
    }
    if (rc != 0)
        return rc;
    reverse(best, n);
    for (size_t i = 0, end; i < n && rc == 0; i = end) {
        end = best[i].start;
        if (best[i].id != m->unk) {
            rc = kh_ids_push(out, best[i].id, err);
            continue;
        }
        while (end < n && best[end].id == m->unk)
            end = best[end].start;
        rc = put_unknown(m, word + i, end - i, out, err);
    }
    return rc;
}
