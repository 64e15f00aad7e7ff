/* pretokenize.c - see pretokenize.h.
 *
 * Cutting is told in two parts, as the library that we follow does: what matches, and what a match
 * does to its neighbours (five behaviours). The frequent pre-tokenizers (ByteLevel, Bert,
 * Whitespace) are written out as one loop instead. */
#include "text/pretokenize.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/pieces.h"
#include "text/regex.h"
#include "text/unicode.h"

#include <string.h>

/* ------------------------------------------------------------------------- the five behaviours */

typedef enum behavior {
    REMOVED,
    ISOLATED,
    MERGED_WITH_PREVIOUS,
    MERGED_WITH_NEXT,
    CONTIGUOUS
} behavior;
static const char *const behavior_names[] = { "Removed", "Isolated", "MergedWithPrevious",
    "MergedWithNext", "Contiguous" };

static int load_behavior(const json_t *obj, behavior *out, const kh_source *from, kh_err *err) {
    const char *name = NULL;
    int rc = kh_json_string_opt(obj, "behavior", &name, from->place, err);
    if (rc != 0 || !name)
        return rc;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, behavior_names[i]) == 0) {
            *out = (behavior)i;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "%s: \"behavior\" is \"%.50s\", expected Removed, Isolated, MergedWithPrevious, "
        "MergedWithNext or Contiguous",
        from->place, name);
}

/* Cuts one piece from left to right: every stretch of it is given to cut_stretch, matching or not,
 * and comes out alone, joined to the open cut, or not at all. The open cut is what has not been
 * written yet. */
typedef struct cutter {
    kh_pieces *p;
    const kh_piece *from;
    behavior how;
    bool invert;
    size_t start, end; /* the open cut, empty at first */
    bool any;          /* a stretch was seen */
    bool matched;      /* the last stretch was a match */
} cutter;

static int close_cut(cutter *c, size_t next, kh_err *err) {
    int rc = kh_pieces_cut(c->p, c->from, c->start, c->end, err);
    c->start = next;
    return rc;
}

static int cut_stretch(cutter *c, size_t start, size_t end, bool match, kh_err *err) {
    bool joins = false;
    int rc = 0;
    match ^= c->invert;
    switch (c->how) {
    case REMOVED:
    case ISOLATED: break;
    case CONTIGUOUS: joins = match == c->matched; break;
    case MERGED_WITH_PREVIOUS: joins = match && !c->matched; break;
    /* Seen from the right: a match joins what follows unless that is a match too. */
    case MERGED_WITH_NEXT: joins = c->matched && !match; break;
    }
    if (!joins || !c->any)
        rc = close_cut(c, start, err);
    c->end = end;
    if (c->how == REMOVED && match)
        c->start = end;
    c->matched = match;
    c->any = true;
    return rc;
}

/* The end of a piece, for all behaviours. */
static int cut_rest(cutter *c, size_t done, kh_err *err) {
    int rc = done < c->from->len ? cut_stretch(c, done, c->from->len, false, err) : 0;
    return rc ? rc : close_cut(c, c->end, err);
}

/* One stretch per character that matches. */
static int cut_by_class(
    kh_pieces *p, const kh_piece *from, unsigned classes, behavior how, kh_err *err) {
    cutter c = { .p = p, .from = from, .how = how };
    const char *s = p->text + from->at;
    size_t done = 0;
    int rc = 0, len;
    for (size_t i = 0; i < from->len && rc == 0; i += (size_t)len)
        if (kh_char_class(kh_utf8_next(s + i, from->len - i, &len, NULL)) & classes) {
            if (done < i)
                rc = cut_stretch(&c, done, i, false, err);
            if (rc == 0)
                rc = cut_stretch(&c, i, i + (size_t)len, true, err);
            done = i + (size_t)len;
        }
    return rc ? rc : cut_rest(&c, done, err);
}

static int cut_by_pattern(
    kh_pieces *p, const kh_piece *from, kh_scan *scan, behavior how, bool invert, kh_err *err) {
    cutter c = { .p = p, .from = from, .how = how, .invert = invert };
    size_t done = 0, start, end;
    int rc;
    kh_scan_text(scan, p->text + from->at, from->len);
    while ((rc = kh_scan_next(scan, &start, &end, err)) > 0) {
        if (done < start && (rc = cut_stretch(&c, done, start, false, err)) != 0)
            return rc;
        if ((rc = cut_stretch(&c, start, end, true, err)) != 0)
            return rc;
        done = end;
    }
    return rc ? rc : cut_rest(&c, done, err);
}

/* Runs `cut` on every piece that is not a token. */
static int for_pieces(kh_pieces *p, const void *self,
    int (*cut)(const void *self, kh_pieces *, const kh_piece *, kh_err *), kh_err *err) {
    int rc = 0;
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = p->list[i].id >= 0 ? kh_pieces_keep(p, &p->list[i], err)
                                : cut(self, p, &p->list[i], err);
    kh_pieces_swap(p);
    return rc;
}

/* ----------------------------------------------------------------------------------- ByteLevel */

static int load_byte_level(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    kh_byte_level *b = self;
    bool trim = true; /* moves offsets only */
    b->use_regex = true;
    int rc = kh_json_bool(obj, "add_prefix_space", &b->add_prefix_space, from->place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "trim_offsets", &trim, from->place, err);
    return rc ? rc : kh_json_bool_opt(obj, "use_regex", &b->use_regex, from->place, err);
}

/* Puts `mark` before the pieces that shall have one; all pieces are copied to a new text, their
 * characters through `put`. */
typedef struct rewriter {
    kh_pieces *p;
    kh_buf *out;
} rewriter;

static int rewrite_piece(rewriter *r, const kh_piece *from, const char *mark, size_t mark_len,
    void (*put)(kh_buf *, const char *, size_t, const void *), const void *self, kh_err *err) {
    kh_piece to = *from;
    const char *s = r->p->text + from->at;
    to.at = (uint32_t)r->out->len;
    if (from->id < 0) {
        size_t first = from->first;
        kh_buf_bytes(r->out, mark, mark_len);
        put(r->out, s, first, self);
        to.first = first ? (uint32_t)r->out->len - to.at : 0;
        put(r->out, s + first, from->len - first, self);
    }
    to.len = (uint32_t)r->out->len - to.at;
    return kh_pieces_keep(r->p, &to, err);
}

static void put_same(kh_buf *out, const char *s, size_t n, const void *self) {
    (void)self;
    kh_buf_bytes(out, s, n);
}

static void put_byte_chars(kh_buf *out, const char *s, size_t n, const void *self) {
    (void)self;
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        kh_buf_bytes(out, utf8, (size_t)kh_utf8_put(kh_byte_char((uint8_t)s[i]), utf8));
    }
}

/* A space in front of pieces that have none. */
static int add_prefix_spaces(kh_pieces *p, kh_err *err) {
    bool needed = false;
    for (int i = 0; i < p->n; i++)
        needed |= p->list[i].id < 0 && p->text[p->list[i].at] != ' ';
    if (!needed)
        return 0;
    rewriter r = { p, kh_pieces_begin_text(p) };
    int rc = 0;
    for (int i = 0; i < p->n && rc == 0; i++)
        rc =
            rewrite_piece(&r, &p->list[i], " ", p->text[p->list[i].at] != ' ', put_same, NULL, err);
    kh_pieces_swap(p);
    return rc ? rc : kh_pieces_end_text(p, err);
}

static int cut_gpt2(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    (void)self;
    const char *s = p->text + from->at;
    int rc = 0;
    for (size_t at = 0, end; at < from->len && rc == 0; at = end) {
        end = kh_gpt2_split(s, from->len, at);
        rc = kh_pieces_cut(p, from, at, end, err);
    }
    return rc;
}

static int run_byte_level(const void *self, void *state, kh_err *err) {
    const kh_byte_level *b = self;
    kh_pieces *p = state;
    int rc = b->add_prefix_space ? add_prefix_spaces(p, err) : 0;
    if (rc == 0 && b->use_regex)
        rc = for_pieces(p, self, cut_gpt2, err);
    if (rc != 0 || b->raw)
        return rc;
    rewriter r = { p, kh_pieces_begin_text(p) };
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = rewrite_piece(&r, &p->list[i], "", 0, put_byte_chars, NULL, err);
    kh_pieces_swap(p);
    return rc ? rc : kh_pieces_end_text(p, err);
}

/* ----------------------------------------------------- by classes of characters: one loop each */

/* Words by white space; with `alone`, each character of that class is a word of its own. */
static int cut_words(kh_pieces *p, const kh_piece *from, unsigned alone, kh_err *err) {
    const char *s = p->text + from->at;
    size_t start = 0;
    int rc = 0, len;
    for (size_t i = 0; i < from->len && rc == 0; i += (size_t)len) {
        unsigned k = kh_char_class(kh_utf8_next(s + i, from->len - i, &len, NULL));
        if (!(k & (KH_CHAR_SPACE | alone)))
            continue;
        rc = kh_pieces_cut(p, from, start, i, err);
        start = i + (size_t)len;
        if (rc == 0 && !(k & KH_CHAR_SPACE))
            rc = kh_pieces_cut(p, from, i, start, err);
    }
    return rc ? rc : kh_pieces_cut(p, from, start, from->len, err);
}

static int cut_bert(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    return (void)self, cut_words(p, from, KH_CHAR_BERT_PUNCT, err);
}
static int cut_white_space(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    return (void)self, cut_words(p, from, 0, err);
}

/* \w+|[^\w\s]+ */
static int cut_word_chars(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    (void)self;
    const char *s = p->text + from->at;
    size_t start = 0;
    unsigned last = KH_CHAR_SPACE;
    int rc = 0, len;
    for (size_t i = 0; i < from->len && rc == 0; i += (size_t)len) {
        unsigned k = kh_char_class(kh_utf8_next(s + i, from->len - i, &len, NULL)) &
            (KH_CHAR_SPACE | KH_CHAR_WORD);
        if (k == last)
            continue;
        if (last != KH_CHAR_SPACE)
            rc = kh_pieces_cut(p, from, start, i, err);
        start = i;
        last = k;
    }
    return rc || last == KH_CHAR_SPACE ? rc : kh_pieces_cut(p, from, start, from->len, err);
}

static int run_bert(const void *self, void *p, kh_err *err) {
    return for_pieces(p, self, cut_bert, err);
}
static int run_whitespace(const void *self, void *p, kh_err *err) {
    return for_pieces(p, self, cut_word_chars, err);
}
static int run_whitespace_split(const void *self, void *p, kh_err *err) {
    return for_pieces(p, self, cut_white_space, err);
}

static int load_punctuation(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    behavior *how = self;
    *how = ISOLATED;
    return load_behavior(obj, how, from, err);
}

static int cut_punctuation(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    return cut_by_class(p, from, KH_CHAR_BERT_PUNCT, *(const behavior *)self, err);
}

static int run_punctuation(const void *self, void *p, kh_err *err) {
    return for_pieces(p, self, cut_punctuation, err);
}

static int load_digits(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    return kh_json_bool(obj, "individual_digits", self, from->place, err);
}

static int cut_digits(const void *self, kh_pieces *p, const kh_piece *from, kh_err *err) {
    return cut_by_class(p, from, KH_CHAR_NUMERIC, *(const bool *)self ? ISOLATED : CONTIGUOUS, err);
}

static int run_digits(const void *self, void *p, kh_err *err) {
    return for_pieces(p, self, cut_digits, err);
}

/* --------------------------------------------------------------------------------------- Split */

typedef struct split {
    kh_pattern pattern;
    behavior how;
    bool invert;
} split;

static int load_split(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    split *s = self;
    const char *how;
    int rc = kh_json_string(obj, "behavior", &how, from->place, err);
    if (rc == 0)
        rc = load_behavior(obj, &s->how, from, err);
    if (rc == 0)
        rc = kh_json_bool(obj, "invert", &s->invert, from->place, err);
    return rc ? rc : kh_pattern_load(&s->pattern, obj, "pattern", from->arena, from->place, err);
}

static int run_split(const void *self, void *state, kh_err *err) {
    const split *s = self;
    kh_pieces *p = state;
    kh_scan scan;
    int rc = kh_scan_start(&scan, &s->pattern, err);
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = p->list[i].id >= 0 ? kh_pieces_keep(p, &p->list[i], err)
                                : cut_by_pattern(p, &p->list[i], &scan, s->how, s->invert, err);
    kh_scan_end(&scan);
    kh_pieces_swap(p);
    return rc;
}

static void drop_split(void *self) { kh_pattern_free(&((split *)self)->pattern); }

/* ----------------------------------------------------------------------------------- Metaspace */

int kh_metaspace_load(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    kh_metaspace *m = self;
    const char *mark, *scheme = "always";
    bool prefix = true;
    m->split = true;
    int rc = kh_json_string(obj, "replacement", &mark, from->place, err), len = 0;
    if (rc != 0)
        return rc;
    if (*mark)
        kh_utf8_next(mark, strlen(mark), &len, NULL);
    if (!*mark || mark[len])
        return kh_fail(err, KH_EFORMAT, "%s: \"replacement\" must be one character", from->place);
    memcpy(m->mark, mark, (size_t)len);
    m->mark_len = len;
    rc = kh_json_string_opt(obj, "prepend_scheme", &scheme, from->place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "add_prefix_space", &prefix, from->place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "split", &m->split, from->place, err);
    if (rc != 0)
        return rc;
    if (strcmp(scheme, "always") == 0)
        m->prepend = KH_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        m->prepend = KH_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        m->prepend = KH_PREPEND_NEVER;
    else
        return kh_fail(err, KH_EFORMAT,
            "%s: \"prepend_scheme\" is \"%.50s\", expected always, first or never", from->place,
            scheme);
    if (!prefix && m->prepend != KH_PREPEND_NEVER)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"add_prefix_space\" is false but \"prepend_scheme\" is not \"never\"",
            from->place);
    return 0;
}

static void put_marks(kh_buf *out, const char *s, size_t n, const void *self) {
    const kh_metaspace *m = self;
    for (size_t i = 0; i < n; i++)
        if (s[i] == ' ')
            kh_buf_bytes(out, m->mark, (size_t)m->mark_len);
        else
            kh_buf_char(out, s[i]);
}

static int run_metaspace(const void *self, void *state, kh_err *err) {
    const kh_metaspace *m = self;
    kh_pieces *p = state;
    rewriter r = { p, kh_pieces_begin_text(p) };
    size_t mark_len = (size_t)m->mark_len;
    int rc = 0;
    for (int i = 0; i < p->n && rc == 0; i++) {
        const kh_piece *from = &p->list[i];
        const char *s = p->text + from->at;
        bool marked = s[0] == ' ' || (from->len >= mark_len && memcmp(s, m->mark, mark_len) == 0);
        bool wants =
            m->prepend == KH_PREPEND_ALWAYS || (m->prepend == KH_PREPEND_FIRST && from->starts);
        rc = rewrite_piece(&r, from, m->mark, wants && !marked ? mark_len : 0, put_marks, m, err);
    }
    kh_pieces_swap(p);
    if (rc == 0)
        rc = kh_pieces_end_text(p, err);
    if (rc != 0 || !m->split)
        return rc;
    kh_pattern mark = { .literal = m->mark, .literal_len = mark_len };
    kh_scan scan;
    rc = kh_scan_start(&scan, &mark, err);
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = p->list[i].id >= 0
            ? kh_pieces_keep(p, &p->list[i], err)
            : cut_by_pattern(p, &p->list[i], &scan, MERGED_WITH_NEXT, false, err);
    kh_scan_end(&scan);
    kh_pieces_swap(p);
    return rc;
}

const kh_kind kh_pretokenizers[] = {
    { "ByteLevel", sizeof(kh_byte_level), load_byte_level, run_byte_level, NULL },
    { "BertPreTokenizer", 0, NULL, run_bert, NULL },
    { "Whitespace", 0, NULL, run_whitespace, NULL },
    { "WhitespaceSplit", 0, NULL, run_whitespace_split, NULL },
    { "Punctuation", sizeof(behavior), load_punctuation, run_punctuation, NULL },
    { "Digits", sizeof(bool), load_digits, run_digits, NULL },
    { "Split", sizeof(split), load_split, run_split, drop_split },
    { "Metaspace", sizeof(kh_metaspace), kh_metaspace_load, run_metaspace, NULL },
    { 0 },
};
