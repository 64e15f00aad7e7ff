/* pieces.c - see pieces.h. */
#include "text/pieces.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/unicode.h"

#include <limits.h>
#include <string.h>

size_t kh_ascii_prefix(const char *s, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        if (word & 0x8080808080808080u)
            break;
    }
    while (i < n && (unsigned char)s[i] < 0x80)
        i++;
    return i;
}

size_t kh_spaces_at_start(const char *s, size_t n) {
    size_t i = 0;
    int len;
    while (i < n && kh_is_space(kh_utf8_next(s + i, n - i, &len, NULL)))
        i += (size_t)len;
    return i;
}

size_t kh_char_before(const char *s, size_t n) {
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80)
        i--;
    return i;
}

size_t kh_spaces_at_end(const char *s, size_t n) {
    size_t end = n;
    while (end > 0) {
        int len;
        size_t at = kh_char_before(s, end);
        if (!kh_is_space(kh_utf8_next(s + at, end - at, &len, NULL)))
            break;
        end = at;
    }
    return n - end;
}

int kh_pieces_keep(kh_pieces *p, const kh_piece *piece, kh_err *err) {
    if (!kh_grow(&p->next, &p->cap_next, (size_t)p->n_next + 1, sizeof *p->next))
        return kh_fail_memory(err);
    p->next[p->n_next++] = *piece;
    return 0;
}

/* A place of a piece, in the part of it from start to end. */
static uint32_t within(uint32_t place, size_t start, size_t end) {
    if (place <= start)
        return 0;
    return (uint32_t)((place < end ? place : end) - start);
}

int kh_pieces_cut(kh_pieces *p, const kh_piece *from, size_t start, size_t end, kh_err *err) {
    if (start >= end)
        return 0;
    kh_piece cut = { .at = from->at + (uint32_t)start, .len = (uint32_t)(end - start), .id = -1 };
    cut.starts = from->starts && start < from->first;
    size_t first = from->first < end ? from->first : end;
    cut.first = first > start ? (uint32_t)(first - start) : 0;
    cut.plain_from = within(from->plain_from, start, end);
    cut.plain_to = within(from->plain_to, start, end);
    return kh_pieces_keep(p, &cut, err);
}

void kh_pieces_swap(kh_pieces *p) {
    kh_piece *list = p->list;
    size_t cap = p->cap;
    p->list = p->next;
    p->cap = p->cap_next;
    p->n = p->n_next;
    p->next = list;
    p->cap_next = cap;
    p->n_next = 0;
}

int kh_pieces_start(kh_pieces *p, const char *text, size_t n, kh_err *err) {
    for (int i = 0; i < 2; i++)
        if (p->buf[i].max == 0)
            p->buf[i] = kh_buf_init(KH_TEXT_MAX);
    p->text = text;
    p->n = p->n_next = 0;
    if (n == 0)
        return 0;
    int len;
    kh_utf8_next(text, n, &len, NULL);
    int rc = kh_pieces_keep(p,
        &(kh_piece){ .len = (uint32_t)n, .first = (uint32_t)len, .id = -1, .starts = true }, err);
    kh_pieces_swap(p);
    return rc;
}

void kh_pieces_free(kh_pieces *p) {
    kh_free(p->list);
    kh_free(p->next);
    kh_buf_free(&p->buf[0]);
    kh_buf_free(&p->buf[1]);
}

kh_buf *kh_pieces_begin_text(kh_pieces *p) {
    kh_buf *out = &p->buf[p->turn];
    kh_buf_reset(out);
    kh_buf_bytes(out, "", 0);
    return out;
}

int kh_pieces_end_text(kh_pieces *p, kh_err *err) {
    kh_buf *out = &p->buf[p->turn];
    if (kh_buf_failed(out))
        return kh_fail_memory(err);
    p->text = out->data;
    p->turn ^= 1;
    return 0;
}

int kh_ids_room(kh_ids *ids, size_t more, kh_err *err) {
    if (more > (size_t)(INT_MAX - ids->n))
        return kh_fail(err, KH_ELIMIT, "a text gives more than %d tokens", INT_MAX);
    return kh_grow(&ids->id, &ids->cap, (size_t)ids->n + more, sizeof *ids->id)
        ? 0
        : kh_fail_memory(err);
}

int kh_ids_push(kh_ids *ids, int32_t id, kh_err *err) {
    int rc = kh_ids_room(ids, 1, err);
    if (rc == 0)
        ids->id[ids->n++] = id;
    return rc;
}
