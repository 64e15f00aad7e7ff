/* decode.c - see decode.h. A decoder reads the current list and writes the other; all of it is
 * linear in the text. */
#include "text/decode.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/pieces.h"
#include "text/pretokenize.h"
#include "text/regex.h"

#include <string.h>

void kh_unfold_init(kh_unfold *u) {
    *u = (kh_unfold){ 0 };
    u->list[0].text = kh_buf_init(KH_TEXT_MAX * 4);
    u->list[1].text = kh_buf_init(KH_TEXT_MAX * 4);
}

void kh_unfold_free(kh_unfold *u) {
    for (int i = 0; i < 2; i++) {
        kh_buf_free(&u->list[i].text);
        kh_free(u->list[i].end);
    }
}

int kh_list_close(kh_list *l, kh_err *err) {
    if (kh_buf_failed(&l->text) || !kh_grow(&l->end, &l->cap, (size_t)l->n + 1, sizeof *l->end))
        return kh_fail_memory(err);
    l->end[l->n++] = l->text.len;
    return 0;
}

/* The i-th string of a list. */
static const char *item(const kh_list *l, int i, size_t *n) {
    size_t start = i ? l->end[i - 1] : 0;
    *n = l->end[i] - start;
    return *n ? l->text.data + start : "";
}

static kh_list *begin(kh_unfold *u, const kh_list **from) {
    *from = &u->list[u->now];
    u->now ^= 1;
    kh_list *to = &u->list[u->now];
    kh_buf_reset(&to->text);
    to->n = 0;
    return to;
}

/* Rewrites every string by itself. */
static int map_items(kh_unfold *u, const void *self,
    void (*put)(const void *self, int i, int n_items, const char *s, size_t n, kh_buf *out),
    kh_err *err) {
    const kh_list *from;
    kh_list *to = begin(u, &from);
    int rc = 0;
    for (int i = 0; i < from->n && rc == 0; i++) {
        size_t n;
        const char *s = item(from, i, &n);
        put(self, i, from->n, s, n, &to->text);
        rc = kh_list_close(to, err);
    }
    return rc;
}

/* s with every `what` replaced by `with`. An empty `what` stands between all characters, and at
 * both ends. */
static void put_replaced(const char *s, size_t n, const char *what, const char *with, kh_buf *out) {
    size_t n_what = strlen(what), at = 0;
    if (n_what == 0) {
        kh_buf_text(out, with);
        for (int len; at < n; at += (size_t)len) {
            kh_utf8_next(s + at, n - at, &len, NULL);
            kh_buf_bytes(out, s + at, (size_t)len);
            kh_buf_text(out, with);
        }
        return;
    }
    const char *found;
    while ((found = memmem(s + at, n - at, what, n_what)) != NULL) {
        kh_buf_bytes(out, s + at, (size_t)(found - s) - at);
        kh_buf_text(out, with);
        at = (size_t)(found - s) + n_what;
    }
    kh_buf_bytes(out, s + at, n - at);
}

static int load_text(
    const json_t *obj, const char *key, const char **out, const kh_source *from, kh_err *err) {
    const char *s;
    int rc = kh_json_string(obj, key, &s, from->place, err);
    if (rc == 0 && (*out = kh_arena_strndup(from->arena, s, strlen(s))) == NULL)
        rc = kh_fail_memory(err);
    return rc;
}

/* ----------------------------------------------------------------------------------- ByteLevel */

/* The bytes of one token; a token with any other character stands for itself. */
static void put_bytes(const char *s, size_t n, kh_buf *out) {
    size_t start = out->len;
    int len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        int b = kh_char_byte(kh_utf8_next(s + i, n - i, &len, NULL));
        if (b < 0) {
            if (!kh_buf_failed(out))
                out->len = start;
            kh_buf_bytes(out, s, n);
            return;
        }
        kh_buf_char(out, (char)b);
    }
}

/* Appends s with broken UTF-8 replaced. */
static void put_valid(const char *s, size_t n, kh_buf *out) {
    for (size_t i = 0; i < n;) {
        int len, ok = 1;
        kh_utf8_next(s + i, n - i, &len, &ok);
        kh_buf_bytes(out, ok ? s + i : "\xEF\xBF\xBD", ok ? (size_t)len : 3);
        i += (size_t)len;
    }
}

static int run_byte_level(const void *self, void *state, kh_err *err) {
    (void)self;
    kh_unfold *u = state;
    const kh_list *from;
    kh_list *to = begin(u, &from);
    kh_buf bytes = kh_buf_init(KH_TEXT_MAX * 4);
    for (int i = 0; i < from->n; i++) {
        size_t n;
        const char *s = item(from, i, &n);
        put_bytes(s, n, &bytes);
    }
    if (bytes.len > 0)
        put_valid(bytes.data, bytes.len, &to->text);
    int rc = kh_buf_failed(&bytes) ? kh_fail_memory(err) : kh_list_close(to, err);
    kh_buf_free(&bytes);
    return rc;
}

/* ----------------------------------------------------------------------------------- WordPiece */

static int load_wordpiece(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    kh_wordpiece_decoder *d = self;
    int rc = load_text(obj, "prefix", &d->prefix, from, err);
    return rc ? rc : kh_json_bool(obj, "cleanup", &d->cleanup, from->place, err);
}

static const struct {
    const char *what, *with;
} cleanups[] = { { " .", "." }, { " ?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" },
    { " n't", "n't" }, { " 'm", "'m" }, { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" },
    { " 're", "'re" } };

static void put_clean(const char *s, size_t n, kh_buf *out) {
    kh_buf turn[2] = { kh_buf_init(KH_TEXT_MAX * 4), kh_buf_init(KH_TEXT_MAX * 4) };
    size_t k = 0;
    for (; k < sizeof cleanups / sizeof *cleanups; k++) {
        kh_buf *to = &turn[k & 1];
        kh_buf_reset(to);
        kh_buf_bytes(to, "", 0);
        put_replaced(s, n, cleanups[k].what, cleanups[k].with, to);
        if (kh_buf_failed(to)) {
            out->failed = true;
            break;
        }
        s = to->data;
        n = to->len;
    }
    kh_buf_bytes(out, s, n);
    kh_buf_free(&turn[0]);
    kh_buf_free(&turn[1]);
}

static void put_wordpiece(
    const void *self, int i, int n_items, const char *s, size_t n, kh_buf *out) {
    (void)n_items;
    const kh_wordpiece_decoder *d = self;
    size_t prefix = strlen(d->prefix), start = out->len;
    if (i > 0 && n >= prefix && memcmp(s, d->prefix, prefix) == 0) {
        s += prefix;
        n -= prefix;
    } else if (i > 0)
        kh_buf_char(out, ' ');
    kh_buf_bytes(out, s, n);
    if (!d->cleanup || kh_buf_failed(out) || out->len == start ||
        !memchr(out->data + start, ' ', out->len - start))
        return; /* all that is cleaned up starts with a space */
    char *word = kh_strndup(out->data + start, out->len - start);
    size_t len = out->len - start;
    if (!word) {
        out->failed = true;
        return;
    }
    out->len = start;
    put_clean(word, len, out);
    kh_free(word);
}

static int run_wordpiece(const void *self, void *u, kh_err *err) {
    return map_items(u, self, put_wordpiece, err);
}

/* ----------------------------------------------------------------- Metaspace, BPEDecoder, Fuse */

static void put_metaspace(
    const void *self, int i, int n_items, const char *s, size_t n, kh_buf *out) {
    (void)n_items;
    const kh_metaspace *m = self;
    size_t mark = (size_t)m->mark_len;
    for (size_t k = 0; k < n;) {
        if (n - k >= mark && memcmp(s + k, m->mark, mark) == 0) {
            if (i > 0 || m->prepend == KH_PREPEND_NEVER)
                kh_buf_char(out, ' ');
            k += mark;
        } else
            kh_buf_char(out, s[k++]);
    }
}

static int run_metaspace(const void *self, void *u, kh_err *err) {
    return map_items(u, self, put_metaspace, err);
}

static int load_bpe(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    return load_text(obj, "suffix", self, from, err);
}

static void put_bpe(const void *self, int i, int n_items, const char *s, size_t n, kh_buf *out) {
    put_replaced(s, n, *(const char *const *)self, i + 1 == n_items ? "" : " ", out);
}

static int run_bpe(const void *self, void *u, kh_err *err) {
    return map_items(u, self, put_bpe, err);
}

static int run_fuse(const void *self, void *state, kh_err *err) {
    (void)self;
    kh_unfold *u = state;
    u->list[u->now].n = 0;
    return kh_list_close(&u->list[u->now], err);
}

/* -------------------------------------------------------------------------------- ByteFallback */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of <0xNN>, or -1. Rust's number parser takes a plus sign for the first digit, and so do
 * we. */
static int fallback_byte(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = s[3] == '+' ? 0 : hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* A run of bytes is one string if it is valid UTF-8, else one U+FFFD each. */
static int close_bytes(kh_buf *bytes, kh_list *to, kh_err *err) {
    int ok = 1, len, rc = 0;
    if (bytes->len == 0)
        return 0;
    for (size_t i = 0; i < bytes->len; i += (size_t)len)
        kh_utf8_next(bytes->data + i, bytes->len - i, &len, &ok);
    if (ok) {
        kh_buf_bytes(&to->text, bytes->data, bytes->len);
        rc = kh_list_close(to, err);
    } else
        for (size_t i = 0; i < bytes->len && rc == 0; i++) {
            kh_buf_text(&to->text, "\xEF\xBF\xBD");
            rc = kh_list_close(to, err);
        }
    kh_buf_reset(bytes);
    return rc;
}

static int run_byte_fallback(const void *self, void *state, kh_err *err) {
    (void)self;
    kh_unfold *u = state;
    const kh_list *from;
    kh_list *to = begin(u, &from);
    kh_buf bytes = kh_buf_init(KH_TEXT_MAX);
    int rc = 0;
    for (int i = 0; i < from->n && rc == 0; i++) {
        size_t n;
        const char *s = item(from, i, &n);
        int b = fallback_byte(s, n);
        if (b >= 0) {
            kh_buf_char(&bytes, (char)b);
            if (kh_buf_failed(&bytes))
                rc = kh_fail_memory(err);
            continue;
        }
        rc = close_bytes(&bytes, to, err);
        kh_buf_bytes(&to->text, s, n);
        if (rc == 0)
            rc = kh_list_close(to, err);
    }
    if (rc == 0)
        rc = close_bytes(&bytes, to, err);
    kh_buf_free(&bytes);
    return rc;
}

/* ------------------------------------------------------------------------------ Strip, Replace */

typedef struct strip {
    const char *content; /* one character */
    int start, stop;     /* at most so many of them go at each end */
} strip;

static int load_strip(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    strip *s = self;
    int rc = load_text(obj, "content", &s->content, from, err), len = 0;
    if (rc == 0)
        rc = kh_json_int(obj, "start", 0, 1 << 30, &s->start, from->place, err);
    if (rc == 0)
        rc = kh_json_int(obj, "stop", 0, 1 << 30, &s->stop, from->place, err);
    if (rc != 0)
        return rc;
    if (*s->content)
        kh_utf8_next(s->content, strlen(s->content), &len, NULL);
    return !*s->content || s->content[len]
        ? kh_fail(err, KH_EFORMAT, "%s: \"content\" must be one character", from->place)
        : 0;
}

static void put_stripped(
    const void *self, int i, int n_items, const char *s, size_t n, kh_buf *out) {
    (void)i, (void)n_items;
    const strip *d = self;
    size_t c = strlen(d->content);
    for (int k = 0; k < d->start && n >= c && memcmp(s, d->content, c) == 0; k++) {
        s += c;
        n -= c;
    }
    for (int k = 0; k < d->stop && n >= c && memcmp(s + n - c, d->content, c) == 0; k++)
        n -= c;
    kh_buf_bytes(out, s, n);
}

static int run_strip(const void *self, void *u, kh_err *err) {
    return map_items(u, self, put_stripped, err);
}

typedef struct replace {
    kh_pattern pattern;
    const char *content;
} replace;

static int load_replace(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    replace *r = self;
    int rc = load_text(obj, "content", &r->content, from, err);
    return rc ? rc : kh_pattern_load(&r->pattern, obj, "pattern", from->arena, from->place, err);
}

static int run_replace(const void *self, void *state, kh_err *err) {
    const replace *r = self;
    kh_unfold *u = state;
    const kh_list *from;
    kh_list *to = begin(u, &from);
    kh_scan scan;
    int rc = kh_scan_start(&scan, &r->pattern, err);
    for (int i = 0; i < from->n && rc == 0; i++) {
        size_t n, start, end, done = 0;
        const char *s = item(from, i, &n);
        kh_scan_text(&scan, s, n);
        while ((rc = kh_scan_next(&scan, &start, &end, err)) > 0) {
            kh_buf_bytes(&to->text, s + done, start - done);
            kh_buf_text(&to->text, r->content);
            done = end;
        }
        kh_buf_bytes(&to->text, s + done, n - done);
        if (rc == 0)
            rc = kh_list_close(to, err);
    }
    kh_scan_end(&scan);
    return rc;
}

static void drop_replace(void *self) { kh_pattern_free(&((replace *)self)->pattern); }

const kh_kind kh_decoders[] = {
    { "ByteLevel", 0, NULL, run_byte_level, NULL },
    { "WordPiece", sizeof(kh_wordpiece_decoder), load_wordpiece, run_wordpiece, NULL },
    { "Metaspace", sizeof(kh_metaspace), kh_metaspace_load, run_metaspace, NULL },
    { "BPEDecoder", sizeof(const char *), load_bpe, run_bpe, NULL },
    { "ByteFallback", 0, NULL, run_byte_fallback, NULL },
    { "Fuse", 0, NULL, run_fuse, NULL },
    { "Strip", sizeof(strip), load_strip, run_strip, NULL },
    { "Replace", sizeof(replace), load_replace, run_replace, drop_replace },
    { 0 },
};
