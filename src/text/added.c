/* added.c - see added.h. */
#include "text/added.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

/* Real ones are below a hundred bytes. A long one makes a text of near misses slow: each may cost
 * its length. */
enum { MAX_CONTENT = 1024 };

int kh_added_add(
    kh_added *a, const kh_added_token *token, kh_arena *arena, const char *place, kh_err *err) {
    kh_added_token t = *token;
    if (t.n > MAX_CONTENT)
        return kh_fail(err, KH_ELIMIT, "%s: an added token of %zu bytes, at most %d are allowed",
            place, t.n, MAX_CONTENT);
    t.content = t.decoded = kh_arena_strndup(arena, token->content, t.n);
    t.n_decoded = t.n;
    if (!t.content || !kh_grow(&a->token, &a->cap, (size_t)a->n + 1, sizeof *a->token))
        return kh_fail_memory(err);
    switch (kh_map_add(&a->index, t.content, t.n, a->n, NULL)) {
    case 1: break;
    case 0:
        return kh_fail(
            err, KH_EFORMAT, "%s: added token \"%.100s\" is given twice", place, t.content);
    default: return kh_fail_memory(err);
    }
    a->token[a->n++] = t;
    return 0;
}

static int normalize_content(
    kh_added_token *t, const kh_chain *normalizers, kh_norm *norm, kh_arena *arena, kh_err *err) {
    kh_norm_start(norm, t->content, t->n, 0);
    int rc = kh_chain_run(normalizers, norm, err);
    if (rc != 0)
        return rc;
    t->decoded = kh_arena_strndup(arena, norm->s, norm->n);
    t->n_decoded = norm->n;
    return t->decoded ? 0 : kh_fail_memory(err);
}

int kh_added_ready(kh_added *a, const kh_chain *normalizers, kh_arena *arena, kh_err *err) {
    kh_norm norm = { 0 };
    int rc = 0;
    /* Where two contents are normalized to one, the first counts: special tokens, then the order of
     * the file. */
    for (int special = 1; special >= 0 && rc == 0; special--)
        for (int i = 0; i < a->n && rc == 0; i++) {
            kh_added_token *t = &a->token[i];
            if (t->special != (special == 1))
                continue;
            if (t->normalized)
                rc = normalize_content(t, normalizers, &norm, arena, err);
            if (rc == 0 &&
                !kh_trie_add(t->normalized ? &a->normalized : &a->raw, t->decoded, t->n_decoded, i))
                rc = kh_fail_memory(err);
        }
    kh_norm_free(&norm);
    if (rc == 0 && (!kh_trie_link(&a->raw) || !kh_trie_link(&a->normalized)))
        rc = kh_fail_memory(err);
    return rc;
}

void kh_added_free(kh_added *a) {
    kh_free(a->token);
    kh_map_free(&a->index);
    kh_trie_free(&a->raw);
    kh_trie_free(&a->normalized);
    *a = (kh_added){ 0 };
}

const kh_added_token *kh_added_find(const kh_added *a, const char *content, size_t n) {
    int32_t i;
    return kh_map_get(&a->index, content, n, &i) ? &a->token[i] : NULL;
}

const kh_added_token *kh_added_by_id(const kh_added *a, int32_t id) {
    for (int i = 0; i < a->n; i++)
        if (a->token[i].id == id)
            return &a->token[i];
    return NULL;
}

static bool is_word_at(const char *s, size_t n) {
    int len;
    return n > 0 && kh_is_word(kh_utf8_next(s, n, &len, NULL));
}

/* White space that starts at s[at]; the last run is remembered, because tokens that match inside it
 * ask again. */
typedef struct space_run {
    size_t start, end;
} space_run;

static size_t after_spaces(space_run *run, const char *s, size_t n, size_t at) {
    if (at < run->start || at > run->end)
        *run = (space_run){ at, at + kh_spaces_at_start(s + at, n - at) };
    return run->end;
}

/* Cuts one piece at the members of the trie. What a token took by rstrip is still searched for the
 * next token, as in the library that we follow; a token found there goes back behind it. */
static int split_piece(
    const kh_added *a, const kh_trie *trie, kh_pieces *p, const kh_piece *from, kh_err *err) {
    const char *s = p->text + from->at;
    size_t n = from->len, done = 0, at = 0;
    space_run run = { 1, 0 };
    kh_trie_match m;
    int rc = 0;
    while (rc == 0 && kh_trie_find(trie, s, n, at, &m)) {
        const kh_added_token *t = &a->token[m.value];
        size_t start = m.start, end = m.end;
        at = m.end;
        if (t->special && start < from->plain_to && end > from->plain_from) {
            if (end > from->plain_to) /* what follows the plain part may hold a token of its own */
                at = from->plain_to;
            continue;
        }
        if (t->single_word) {
            size_t before = start > 0 ? kh_char_before(s, start) : 0;
            if (is_word_at(s + before, start - before) || is_word_at(s + end, n - end))
                continue;
        }
        if (t->lstrip)
            start = start > done ? start - kh_spaces_at_end(s + done, start - done) : done;
        if (t->rstrip)
            end = after_spaces(&run, s, n, end);
        rc = kh_pieces_cut(p, from, done, start, err);
        if (rc == 0 && start < end)
            rc = kh_pieces_keep(
                p, &(kh_piece){ .at = from->at + (uint32_t)start, .id = t->id }, err);
        done = end;
    }
    return rc ? rc : kh_pieces_cut(p, from, done, n, err);
}

static int split_pieces(const kh_added *a, const kh_trie *trie, kh_pieces *p, kh_err *err) {
    int rc = 0;
    if (trie->n_edge == 0)
        return 0;
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = p->list[i].id >= 0 ? kh_pieces_keep(p, &p->list[i], err)
                                : split_piece(a, trie, p, &p->list[i], err);
    kh_pieces_swap(p);
    return rc;
}

/* Where the plain part of a piece stands in the normalized one: behind all that comes of what is in
 * front of it, and before all that comes of what is behind it. */
static int normalize_plain(const kh_chain *normalizers, const char *s, const kh_piece *from,
    kh_norm *norm, size_t *before, size_t *behind, kh_err *err) {
    int rc = 0;
    *before = *behind = 0;
    if (from->plain_from > 0) {
        kh_norm_start(norm, s, from->plain_from, from->first);
        rc = kh_chain_run(normalizers, norm, err);
        *before = norm->n;
    }
    if (rc == 0 && from->plain_to < from->len) {
        kh_norm_start(norm, s + from->plain_to, from->len - from->plain_to, 0);
        rc = kh_chain_run(normalizers, norm, err);
        *behind = norm->n;
    }
    return rc;
}

/* Each piece through the normalizers, into a new text. */
static int normalize_pieces(const kh_chain *normalizers, kh_pieces *p, kh_norm *norm, kh_err *err) {
    kh_buf *out = kh_pieces_begin_text(p);
    int rc = 0;
    for (int i = 0; i < p->n && rc == 0; i++) {
        kh_piece to = p->list[i];
        size_t before = 0, behind = 0;
        if (to.plain_from < to.plain_to)
            rc = normalize_plain(normalizers, p->text + to.at, &to, norm, &before, &behind, err);
        kh_norm_start(norm, p->text + to.at, to.len, to.first);
        if (to.id < 0 && rc == 0)
            rc = kh_chain_run(normalizers, norm, err);
        if (to.plain_from < to.plain_to) {
            to.plain_from = (uint32_t)(before < norm->n ? before : norm->n);
            to.plain_to = (uint32_t)(behind < norm->n ? norm->n - behind : 0);
        }
        to.at = (uint32_t)out->len;
        to.len = (uint32_t)norm->n;
        to.first = (uint32_t)norm->first;
        kh_buf_bytes(out, norm->s, norm->n);
        /* The piece is a new cut of its original, even where it is all of it. */
        to.starts = to.starts && to.first > 0;
        if (rc == 0 && (to.len > 0 || to.id >= 0))
            rc = kh_pieces_keep(p, &to, err);
    }
    kh_pieces_swap(p);
    return rc ? rc : kh_pieces_end_text(p, err);
}

int kh_added_split(
    const kh_added *a, const kh_chain *normalizers, kh_pieces *p, kh_norm *norm, kh_err *err) {
    int rc = split_pieces(a, &a->raw, p, err);
    if (rc == 0 && normalizers->n > 0)
        rc = normalize_pieces(normalizers, p, norm, err);
    return rc ? rc : split_pieces(a, &a->normalized, p, err);
}
