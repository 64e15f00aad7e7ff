/* normalize.c - see normalize.h. A normalizer reads kh_norm.s and either leaves it, moves its ends,
 * or writes the new text into the free buffer and turns the buffers round. */
#include "text/normalize.h"

#include "base/err.h"
#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/forms.h"
#include "text/pieces.h"
#include "text/regex.h"
#include "text/unicode.h"

#include <string.h>

/* `first`: how many bytes at the front come from the first character of the original, which some
 * pre-tokenizers treat apart; every step keeps it true. */
void kh_norm_start(kh_norm *t, const char *s, size_t n, size_t first) {
    t->s = s;
    t->n = n;
    t->first = first;
    for (int i = 0; i < 2; i++)
        if (t->buf[i].max == 0)
            t->buf[i] = kh_buf_init(KH_TEXT_MAX);
}

void kh_norm_free(kh_norm *t) {
    kh_buf_free(&t->buf[0]);
    kh_buf_free(&t->buf[1]);
}

/* Two buffers take turns: a step reads one and writes the other. */
kh_buf *kh_norm_begin(kh_norm *t) {
    kh_buf *out = &t->buf[t->turn];
    kh_buf_reset(out);
    kh_buf_bytes(out, "", 0);
    return out;
}

int kh_norm_finish(kh_norm *t, size_t first, kh_err *err) {
    kh_buf *out = &t->buf[t->turn];
    if (kh_buf_failed(out))
        return kh_fail_memory(err);
    t->s = out->data;
    t->n = out->len;
    t->first = first;
    t->turn ^= 1;
    return 0;
}

/* Rewrites the text one character at a time. */
static int map_chars(kh_norm *t, void (*put)(uint32_t c, kh_buf *out), kh_err *err) {
    kh_buf *out = kh_norm_begin(t);
    size_t first = 0;
    kh_buf_reserve(out, t->n);
    for (size_t i = 0; i < t->n;) {
        int len;
        put(kh_utf8_next(t->s + i, t->n - i, &len, NULL), out);
        if (i < t->first)
            first = out->len;
        i += (size_t)len;
    }
    return kh_norm_finish(t, first, err);
}

static void put_char(uint32_t c, kh_buf *out) {
    char utf8[4];
    if (c < 0x80)
        kh_buf_char(out, (char)c);
    else
        kh_buf_bytes(out, utf8, (size_t)kh_utf8_put(c, utf8));
}

static void put_lower(uint32_t c, kh_buf *out) {
    if (c < 0x80)
        kh_buf_char(out, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    else
        kh_lower_char(c, out);
}

static void put_unmarked(uint32_t c, kh_buf *out) {
    if (!kh_is_mark(c))
        put_char(c, out);
}

static void put_without_mn(uint32_t c, kh_buf *out) {
    if (!kh_is_bert_mn(c))
        put_char(c, out);
}

static void put_clean(uint32_t c, kh_buf *out) {
    unsigned k = kh_char_class(c);
    if (!(k & KH_CHAR_BERT_DROP))
        put_char(k & KH_CHAR_SPACE ? ' ' : c, out);
}

static void put_spaced(uint32_t c, kh_buf *out) {
    if (!kh_is_bert_cjk(c)) {
        put_char(c, out);
        return;
    }
    kh_buf_char(out, ' ');
    put_char(c, out);
    kh_buf_char(out, ' ');
}

/* ASCII is in all four normal forms already. */
static int run_form(kh_norm *t, enum kh_form form, kh_err *err) {
    if (kh_ascii_prefix(t->s, t->n) == t->n)
        return 0;
    size_t first = t->first;
    kh_buf *out = kh_norm_begin(t);
    if (!kh_form_text(form, t->s, t->n, out, &first))
        return kh_fail_memory(err);
    return kh_norm_finish(t, first, err);
}

static int run_nfc(const void *self, void *t, kh_err *err) {
    return (void)self, run_form(t, KH_NFC, err);
}
static int run_nfd(const void *self, void *t, kh_err *err) {
    return (void)self, run_form(t, KH_NFD, err);
}
static int run_nfkc(const void *self, void *t, kh_err *err) {
    return (void)self, run_form(t, KH_NFKC, err);
}
static int run_nfkd(const void *self, void *t, kh_err *err) {
    return (void)self, run_form(t, KH_NFKD, err);
}

/* Through a table, for text that is all ASCII: to[c] is what becomes of c, -1 if it goes. Most text
 * is ASCII, and for it a whole chain of steps is one table; map_chars, step by step, must give the
 * same. */
static int map_ascii(kh_norm *t, const int8_t to[128], kh_err *err) {
    kh_buf *out = kh_norm_begin(t);
    size_t first = 0;
    if (!kh_buf_reserve(out, t->n))
        return kh_fail_memory(err);
    char *put = out->data;
    for (size_t i = 0; i < t->n; i++) {
        int8_t c = to[(unsigned char)t->s[i]];
        *put = (char)c;
        put += c >= 0;
        if (i + 1 == t->first)
            first = (size_t)(put - out->data);
    }
    *put = '\0';
    out->len = (size_t)(put - out->data);
    return kh_norm_finish(t, first, err);
}

static int run_lowercase(const void *self, void *state, kh_err *err) {
    (void)self;
    kh_norm *t = state;
    if (kh_ascii_prefix(t->s, t->n) < t->n)
        return map_chars(t, put_lower, err);
    int8_t to[128];
    for (int c = 0; c < 128; c++)
        to[c] = (int8_t)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return map_ascii(t, to, err);
}

static int run_strip_accents(const void *self, void *t, kh_err *err) {
    return (void)self, map_chars(t, put_unmarked, err);
}

/* ------------------------------------------------------------------------------ BertNormalizer */

/* clean_text, lowercase and the rest as one table for ASCII, in the order in which run_bert takes
 * them. */
void kh_bert_normalizer_ready(kh_bert_normalizer *b) {
    for (unsigned c = 0; c < 128; c++) {
        unsigned k = kh_char_class(c), to = c;
        if (b->clean_text && (k & KH_CHAR_SPACE))
            to = ' ';
        if (b->lowercase && to >= 'A' && to <= 'Z')
            to += 32;
        b->ascii[c] = b->clean_text && (k & KH_CHAR_BERT_DROP) ? -1 : (int8_t)to;
    }
}

static int load_bert(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    kh_bert_normalizer *b = self;
    int rc = kh_json_bool(obj, "clean_text", &b->clean_text, from->place, err);
    if (rc == 0)
        rc = kh_json_bool(obj, "handle_chinese_chars", &b->handle_chinese_chars, from->place, err);
    if (rc == 0)
        rc = kh_json_bool(obj, "lowercase", &b->lowercase, from->place, err);
    b->strip_accents = b->lowercase; /* null means so */
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "strip_accents", &b->strip_accents, from->place, err);
    kh_bert_normalizer_ready(b);
    return rc;
}

static int run_bert(const void *self, void *state, kh_err *err) {
    const kh_bert_normalizer *b = self;
    kh_norm *t = state;
    if (kh_ascii_prefix(t->s, t->n) == t->n)
        return map_ascii(t, b->ascii, err); /* all four steps at once */
    int rc = 0;
    if (b->clean_text)
        rc = map_chars(t, put_clean, err);
    if (rc == 0 && b->handle_chinese_chars)
        rc = map_chars(t, put_spaced, err);
    if (rc == 0 && b->strip_accents)
        rc = run_form(t, KH_NFD, err);
    if (rc == 0 && b->strip_accents)
        rc = map_chars(t, put_without_mn, err);
    if (rc == 0 && b->lowercase)
        rc = map_chars(t, put_lower, err);
    return rc;
}

/* ------------------------------------------------------------------------------ Strip, Prepend */

typedef struct strip {
    bool left, right;
} strip;

static int load_strip(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    strip *s = self;
    int rc = kh_json_bool(obj, "strip_left", &s->left, from->place, err);
    return rc ? rc : kh_json_bool(obj, "strip_right", &s->right, from->place, err);
}

static int run_strip(const void *self, void *state, kh_err *err) {
    const strip *s = self;
    kh_norm *t = state;
    (void)err;
    size_t start = s->left ? kh_spaces_at_start(t->s, t->n) : 0;
    size_t end =
        s->right && start < t->n ? t->n - kh_spaces_at_end(t->s + start, t->n - start) : t->n;
    t->s += start;
    t->n = end - start;
    t->first = t->first > start ? t->first - start : 0;
    if (t->first > t->n)
        t->first = t->n;
    return 0;
}

typedef struct prepend {
    const char *text;
    size_t n;
} prepend;

static int load_prepend(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    prepend *p = self;
    const char *text;
    int rc = kh_json_string(obj, "prepend", &text, from->place, err);
    if (rc != 0)
        return rc;
    p->n = strlen(text);
    p->text = kh_arena_strndup(from->arena, text, p->n);
    return p->text ? 0 : kh_fail_memory(err);
}

static int run_prepend(const void *self, void *state, kh_err *err) {
    const prepend *p = self;
    kh_norm *t = state;
    if (t->n == 0)
        return 0;
    kh_buf *out = kh_norm_begin(t);
    kh_buf_bytes(out, p->text, p->n);
    kh_buf_bytes(out, t->s, t->n);
    return kh_norm_finish(t, t->first ? t->first + p->n : 0, err);
}

/* ------------------------------------------------------------------------------------- Replace */

typedef struct replace {
    kh_pattern pattern;
    const char *content;
    size_t n;
} replace;

static int load_replace(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    replace *r = self;
    const char *content;
    int rc = kh_json_string(obj, "content", &content, from->place, err);
    if (rc == 0)
        rc = kh_pattern_load(&r->pattern, obj, "pattern", from->arena, from->place, err);
    if (rc != 0)
        return rc;
    r->n = strlen(content);
    r->content = kh_arena_strndup(from->arena, content, r->n);
    return r->content ? 0 : kh_fail_memory(err);
}

/* What a stranger's file may make of a text: some characters become words, none a library. */
enum { REPLACED_BYTES = 1 << 20, REPLACED_TIMES = 64 };

static int run_replace(const void *self, void *state, kh_err *err) {
    const replace *r = self;
    kh_norm *t = state;
    kh_scan scan;
    size_t start, end, done = 0, first = 0;
    kh_buf *out = kh_norm_begin(t);
    int rc = kh_scan_start(&scan, &r->pattern, err);
    kh_scan_text(&scan, t->s, t->n);
    while (rc == 0 && (rc = kh_scan_next(&scan, &start, &end, err)) > 0) {
        kh_buf_bytes(out, t->s + done, start - done);
        if (done < t->first)
            first = out->len - (start > t->first ? start - t->first : 0);
        kh_buf_bytes(out, r->content, r->n);
        if (out->len > REPLACED_BYTES && out->len / REPLACED_TIMES > t->n) {
            kh_scan_end(&scan);
            return kh_fail(err, KH_ELIMIT,
                "the tokenizer's Replace makes more than %d bytes of a text of %zu, which no "
                "normalizer should",
                (int)REPLACED_BYTES, t->n);
        }
        if (end == 0 ||
            end <= t->first) /* what is put in belongs to the last character that it replaces */
            first = out->len;
        done = end;
        rc = 0;
    }
    kh_scan_end(&scan);
    if (rc != 0)
        return rc;
    size_t before = out->len;
    kh_buf_bytes(out, t->s + done, t->n - done);
    if (done < t->first)
        first = before + (t->first < t->n ? t->first : t->n) - done;
    return kh_norm_finish(t, first, err);
}

static void drop_replace(void *self) { kh_pattern_free(&((replace *)self)->pattern); }

const kh_kind kh_normalizers[] = {
    { "BertNormalizer", sizeof(kh_bert_normalizer), load_bert, run_bert, NULL },
    { "NFC", 0, NULL, run_nfc, NULL },
    { "NFD", 0, NULL, run_nfd, NULL },
    { "NFKC", 0, NULL, run_nfkc, NULL },
    { "NFKD", 0, NULL, run_nfkd, NULL },
    { "Lowercase", 0, NULL, run_lowercase, NULL },
    { "StripAccents", 0, NULL, run_strip_accents, NULL },
    { "Strip", sizeof(strip), load_strip, run_strip, NULL },
    { "Prepend", sizeof(prepend), load_prepend, run_prepend, NULL },
    { "Replace", sizeof(replace), load_replace, run_replace, drop_replace },
    { "Precompiled", sizeof(kh_charsmap), kh_charsmap_load, kh_charsmap_run, NULL },
    { 0 },
};
