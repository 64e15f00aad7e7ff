/* wordpiece.c - see wordpiece.h. All tokens stand in one trie; continuations are those below the
 * node of the prefix. */
#include "text/wordpiece.h"

#include "base/err.h"
#include "text/pieces.h"

#include <string.h>

int kh_wordpiece_ready(kh_wordpiece *m, kh_err *err) {
    if (!kh_lexicon_reserve(&m->words, m->vocab->ids.n))
        return kh_fail_memory(err);
    for (int32_t id = 0; id < m->vocab->size; id++) {
        const char *token = m->vocab->token[id];
        size_t n = m->vocab->len[id];
        if (token && !kh_trie_add(&m->trie, token, n, id))
            return kh_fail_memory(err);
        if (token && n > 0 && n <= KH_LEXICON_MAX && (int)n <= m->max_chars)
            kh_lexicon_add(&m->words, token, n, id);
    }
    m->middle = kh_trie_walk(&m->trie, 0, m->prefix, strlen(m->prefix));
    m->unk = kh_vocab_id(m->vocab, m->unk_token, strlen(m->unk_token));
    return 0;
}

void kh_wordpiece_free(kh_wordpiece *m) {
    kh_trie_free(&m->trie);
    kh_lexicon_free(&m->words);
}

/* Whether s has more than max characters. */
static bool is_longer(const char *s, size_t n, int max) {
    size_t chars = 0;
    if (n <= (size_t)max)
        return false;
    for (size_t i = 0; i < n && chars <= (size_t)max; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars > (size_t)max;
}

static int put_unknown(const kh_wordpiece *m, kh_ids *out, kh_err *err) {
    if (m->unk < 0)
        return kh_fail(err, KH_EMISMATCH,
            "a word is not in the tokenizer's vocabulary, and neither is its unk_token \"%.100s\"",
            m->unk_token);
    return kh_ids_push(out, m->unk, err);
}

int kh_wordpiece_encode(
    const kh_wordpiece *m, const char *word, size_t n, kh_ids *out, kh_err *err) {
    int32_t whole = kh_lexicon_find(&m->words, word, n);
    if (whole >= 0)
        return kh_ids_push(out, whole, err);
    int from = out->n, rc = 0;
    if (is_longer(word, n, m->max_chars))
        return put_unknown(m, out, err);
    for (size_t at = 0, len = 0; at < n && rc == 0; at += len) {
        int32_t start = at == 0 ? 0 : m->middle;
        int32_t id = start < 0 ? -1 : kh_trie_longest(&m->trie, start, word + at, n - at, &len);
        if (id < 0) {
            out->n = from;
            return put_unknown(m, out, err);
        }
        rc = kh_ids_push(out, id, err);
    }
    return rc;
}
