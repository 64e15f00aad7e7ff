/* masks.c - masked sequences for the loss of a masked language model (Devlin et al. 2019); see
 * corpus.h. */
#include "train/corpus.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

/* "##ing" goes on with a word of WordPiece; in a byte-level vocabulary words start with the sign
 * for a space. */
static void find_starts(kh_masker *m, const kh_tokenizer *t) {
    bool pieces = false;
    for (int id = 0; id < kh_tokenizer_size(t) && !pieces; id++) {
        const char *token = kh_tokenizer_token(t, id);
        pieces = token && strncmp(token, "##", 2) == 0 && token[2];
    }
    for (int id = 0; id < kh_tokenizer_size(t); id++) {
        const char *token = kh_tokenizer_token(t, id);
        m->starts[id] =
            !token || (pieces ? strncmp(token, "##", 2) != 0 : strncmp(token, "\xC4\xA0", 2) == 0);
    }
}

int kh_masker_init(kh_masker *m, const kh_tokenizer *t, const kh_config *c, double rate,
    bool whole_word, kh_err *err) {
    *m = (kh_masker){ .rate = rate,
        .whole_word = whole_word,
        .mask = kh_tokenizer_special(t, KH_TOKEN_MASK),
        .bos = kh_tokenizer_special(t, KH_TOKEN_BOS),
        .eos = kh_tokenizer_special(t, KH_TOKEN_EOS),
        .vocab = kh_tokenizer_size(t),
        .first_position = c->first_position };
    const char *missing = m->eos < 0 ? "end-of-sequence ([SEP], </s>)" : NULL;
    if (m->bos < 0)
        missing = "beginning-of-sequence ([CLS], <s>)";
    if (m->mask < 0)
        missing = "mask";
    if (missing)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the tokenizer has no %s token, which pre-training needs", missing);
    if (m->vocab > c->vocab)
        return kh_fail(err, KH_EMISMATCH,
            "the tokenizer has %d tokens, but the model has room for %d", m->vocab, c->vocab);
    m->special = kh_calloc((size_t)m->vocab, sizeof *m->special);
    m->starts = kh_calloc((size_t)m->vocab, sizeof *m->starts);
    if (!m->special || !m->starts)
        return kh_fail_memory(err);
    for (int part = KH_TOKEN_MASK; part <= KH_TOKEN_EOS; part++) {
        int32_t id = kh_tokenizer_special(t, (kh_special)part);
        if (id >= 0 && part != KH_TOKEN_UNK)
            m->special[id] = true;
    }
    find_starts(m, t);
    return 0;
}

void kh_masker_free(kh_masker *m) {
    kh_free(m->special);
    kh_free(m->starts);
    kh_free(m->word);
    *m = (kh_masker){ 0 };
}

/* ----------------------------------------------------------------------------------- sequences */

int kh_masked_tokens(const kh_masked *b) { return b->n_seq ? b->start[b->n_seq] : 0; }
int kh_masked_targets(const kh_masked *b) { return b->n_seq ? b->first_at[b->n_seq] : 0; }
kh_packed kh_masked_text(const kh_masked *b) {
    return (kh_packed){ b->n_seq, b->start, b->slot, b->at, b->first_at };
}
void kh_masked_clear(kh_masked *b) { b->n_seq = 0; }

void kh_masked_free(kh_masked *b) {
    kh_free(b->slot);
    kh_free(b->start);
    kh_free(b->first_at);
    kh_free(b->at);
    kh_free(b->target);
    *b = (kh_masked){ 0 };
}

static bool make_room(kh_masked *b, size_t n) {
    size_t slots = (size_t)kh_masked_tokens(b) + n + 2, targets = (size_t)kh_masked_targets(b) + n,
           seqs = (size_t)b->n_seq + 2;
    return kh_grow(&b->slot, &b->slot_cap, slots, sizeof *b->slot) &&
        kh_grow(&b->start, &b->start_cap, seqs, sizeof *b->start) &&
        kh_grow(&b->first_at, &b->first_cap, seqs, sizeof *b->first_at) &&
        kh_grow(&b->at, &b->at_cap, targets, sizeof *b->at) &&
        kh_grow(&b->target, &b->target_cap, targets, sizeof *b->target);
}

/* The words (or tokens) that may be masked: m->word[i] is where one starts; returns how many. */
static int find_words(kh_masker *m, const int32_t *id, int n) {
    int words = 0;
    bool open = false; /* the token before belongs to a word */
    for (int i = 0; i < n; i++) {
        if (!m->special[id[i]] && (!m->whole_word || !open || m->starts[id[i]]))
            m->word[words++] = i;
        open = !m->special[id[i]];
    }
    return words;
}

static bool is_word_end(const kh_masker *m, const int32_t *id, int n, int i) {
    return i == n || !m->whole_word || m->special[id[i]] || m->starts[id[i]];
}

static int32_t replace(const kh_masker *m, int32_t id, kh_rng *rng) {
    double u = kh_rng_uniform(rng);
    if (u < 0.8)
        return m->mask;
    if (u >= 0.9)
        return id;
    int32_t other = (int32_t)kh_rng_below(rng, (uint32_t)m->vocab);
    return m->special[other] ? m->mask : other;
}

/* Draws words until a share of all tokens is covered, at least one. slot[i].embedded marks what was
 * chosen until the targets are written down. */
static void choose(kh_masker *m, const int32_t *id, int n, kh_slot *slot, kh_rng *rng) {
    int words = find_words(m, id, n), wanted = (int)lrint(m->rate * n), chosen = 0;
    for (int left = words; left > 0 && (chosen == 0 || chosen < wanted); left--) {
        int pick = (int)kh_rng_below(rng, (uint32_t)left), i = m->word[pick];
        m->word[pick] = m->word[left - 1];
        do {
            slot[i].embedded = 0;
            chosen++;
        } while (!is_word_end(m, id, n, ++i));
    }
}

/* The sequence that has been written ends here. */
static void end_sequence(kh_masked *b, int tokens, int targets) {
    b->start[b->n_seq] = kh_masked_tokens(b);
    b->first_at[b->n_seq] = kh_masked_targets(b);
    b->n_seq++;
    b->start[b->n_seq] = tokens;
    b->first_at[b->n_seq] = targets;
}

int kh_masked_add(kh_masked *b, kh_masker *m, const int32_t *id, int n, kh_rng *rng, kh_err *err) {
    if (!make_room(b, (size_t)n) ||
        !kh_grow(&m->word, &m->word_cap, 2 * (size_t)n + 1, sizeof *m->word))
        return kh_fail_memory(err);
    int at = kh_masked_tokens(b), targets = kh_masked_targets(b);
    kh_slot *slot = b->slot + at;
    for (int i = 0; i < n + 2; i++)
        slot[i] = (kh_slot){ .id = i > 0 && i <= n ? id[i - 1] : m->bos,
            .embedded = -1,
            .added = -1,
            .position = m->first_position + i };
    slot[n + 1].id = m->eos;
    choose(m, id, n, slot + 1, rng);
    for (int i = 1; i <= n; i++) {
        if (slot[i].embedded < 0)
            continue;
        b->at[targets] = at + i;
        b->target[targets++] = slot[i].id;
        slot[i].id = replace(m, slot[i].id, rng);
        slot[i].embedded = -1;
    }
    end_sequence(b, at + n + 2, targets);
    return 0;
}

int kh_masked_add_asked(kh_masked *b, const kh_masker *m, const int32_t *id, int n, int at,
    int32_t target, kh_err *err) {
    if (!make_room(b, (size_t)n))
        return kh_fail_memory(err);
    int first = kh_masked_tokens(b), targets = kh_masked_targets(b);
    for (int i = 0; i < n; i++)
        b->slot[first + i] = (kh_slot){
            .id = id[i], .embedded = -1, .added = -1, .position = m->first_position + i
        };
    b->at[targets] = first + at;
    b->target[targets] = target;
    end_sequence(b, first + n, targets + 1);
    return 0;
}
