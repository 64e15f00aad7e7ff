/* charsmap.c - see charsmap.h.
 *
 * A double-array trie holds the texts that a rule is for. A unit of 32 bits says, from the lowest
 * bit on: the byte that leads here (8), whether a text ends here (1), and the way on: 21 bits of
 * offset, which one more bit scales by 256; the next unit is at place XOR offset XOR byte. Where a
 * text ends, the unit at place XOR offset holds the position of what it becomes.
 *
 * Rules are applied as Hugging Face's library does: a grapheme cluster of less than six bytes is
 * looked up whole, and what its shortest rule says replaces all of it; else each of its characters
 * is looked up. The trie comes from a file: every place is checked against its end. */
#include "text/charsmap.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/normalize.h"

#include <string.h>
#include <utf8proc.h>

enum { WHOLE_MAX = 6 }; /* a cluster that is looked up whole has fewer bytes */

int kh_charsmap_parse(
    kh_charsmap *m, const void *bytes, size_t n, const kh_source *from, kh_err *err) {
    const unsigned char *b = bytes;
    size_t trie =
        n < 4 ? 0 : (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    if (n < 4 || trie > n - 4 || trie % 4 != 0 || trie == 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: the table of characters is damaged: a trie of %zu bytes in %zu", from->place, trie,
            n);
    uint32_t *unit = kh_arena_alloc(from->arena, trie);
    char *text = kh_arena_strndup(from->arena, (const char *)b + 4 + trie, n - 4 - trie);
    if (!unit || !text)
        return kh_fail_memory(err);
    memcpy(unit, b + 4, trie); /* little-endian, as the machine is */
    *m = (kh_charsmap){ unit, trie / 4, text, n - 4 - trie };
    if (!kh_utf8_valid(text, m->n_text))
        return kh_fail(err, KH_EFORMAT,
            "%s: the table of characters is damaged: its texts are not UTF-8", from->place);
    return 0;
}

int kh_charsmap_load(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    const char *text;
    int rc = kh_json_string(obj, "precompiled_charsmap", &text, from->place, err);
    if (rc != 0)
        return rc;
    size_t n = kh_base64_size(text, strlen(text));
    if (n == SIZE_MAX)
        return kh_fail(err, KH_EFORMAT, "%s: \"precompiled_charsmap\" is not base64", from->place);
    char *bytes = kh_malloc(n + 1);
    if (!bytes)
        return kh_fail_memory(err);
    if (!kh_base64_get(text, strlen(text), bytes))
        rc = kh_fail(err, KH_EFORMAT, "%s: \"precompiled_charsmap\" is not base64", from->place);
    else
        rc = kh_charsmap_parse(self, bytes, n, from, err);
    kh_free(bytes);
    return rc;
}

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 512) >> 6); }

const char *kh_charsmap_find(const kh_charsmap *m, const char *s, size_t n, size_t *len) {
    size_t at = m->n_unit > 0 ? offset_of(m->unit[0]) : 0;
    for (size_t i = 0; i < n && s[i]; i++) {
        uint32_t byte = (unsigned char)s[i];
        at ^= byte;
        if (at >= m->n_unit || (m->unit[at] & 0x800000FF) != byte)
            return NULL;
        bool ends = m->unit[at] >> 8 & 1;
        at ^= offset_of(m->unit[at]);
        if (!ends)
            continue;
        size_t place = at < m->n_unit ? m->unit[at] & 0x7FFFFFFF : SIZE_MAX;
        if (place >= m->n_text)
            return NULL;
        *len = strnlen(m->text + place, m->n_text - place);
        return kh_utf8_valid(m->text + place, *len) ? m->text + place : NULL;
    }
    return NULL;
}

/* The end of the grapheme cluster that starts at s[at]. */
static size_t cluster_end(const char *s, size_t n, size_t at) {
    utf8proc_int32_t state = 0;
    int len;
    uint32_t last = kh_utf8_next(s + at, n - at, &len, NULL);
    for (at += (size_t)len; at < n; at += (size_t)len) {
        uint32_t c = kh_utf8_next(s + at, n - at, &len, NULL);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)c, &state))
            break;
        last = c;
    }
    return at;
}

static void put_cluster(const kh_charsmap *m, const char *s, size_t n, kh_buf *out) {
    size_t len;
    const char *rule = n < WHOLE_MAX ? kh_charsmap_find(m, s, n, &len) : NULL;
    if (rule) {
        kh_buf_bytes(out, rule, len);
        return;
    }
    int bytes;
    for (size_t i = 0; i < n; i += (size_t)bytes) {
        kh_utf8_next(s + i, n - i, &bytes, NULL);
        rule = kh_charsmap_find(m, s + i, (size_t)bytes, &len);
        kh_buf_bytes(out, rule ? rule : s + i, rule ? len : (size_t)bytes);
    }
}

int kh_charsmap_run(const void *self, void *norm, kh_err *err) {
    kh_norm *t = norm;
    kh_buf *out = kh_norm_begin(t);
    size_t first = 0;
    for (size_t i = 0, end; i < t->n; i = end) {
        end = cluster_end(t->s, t->n, i);
        put_cluster(self, t->s + i, end - i, out);
        if (i < t->first)
            first = out->len;
    }
    return kh_norm_finish(t, first, err);
}
