/* template.c - see template.h. */
#include "data/template.h"

#include "base/err.h"

#include <string.h>

static const struct {
    const char *name;
    kh_segment_kind kind;
} placeholders[] = {
    { "text", KH_SEGMENT_A },
    { "text_a", KH_SEGMENT_A },
    { "text_b", KH_SEGMENT_B },
    { "mask", KH_SEGMENT_MASK },
    { "prompt", KH_SEGMENT_PROMPT },
};

enum { N_PLACEHOLDERS = sizeof placeholders / sizeof placeholders[0] };

/* s stands at "{name}"; the placeholder's number, or -1. *n gets the bytes of "{name}", braces
 * included. */
static int read_placeholder(const char *s, size_t *n) {
    size_t len = strcspn(s + 1, "{}");
    *n = len + 2;
    for (int i = 0; i < N_PLACEHOLDERS && s[len + 1] == '}'; i++)
        if (strlen(placeholders[i].name) == len && memcmp(s + 1, placeholders[i].name, len) == 0)
            return i;
    return -1;
}

static void add_part(kh_template *t, kh_segment_kind kind, const char *s, size_t n) {
    if (kind != KH_SEGMENT_LITERAL || n > 0)
        t->part[t->n++] = (kh_template_part){ kind, s, n };
}

/* The bytes of literal at s; 0 where a placeholder or the end is, (size_t)-1 at a single closing
 * brace. */
static size_t literal_length(const char *s) {
    size_t n = 0;
    for (;;) {
        n += strcspn(s + n, "{}");
        if (!s[n] || (s[n] == '{' && s[n + 1] != '{'))
            return n;
        if (s[n] != s[n + 1])
            return (size_t)-1;
        n += 2;
    }
}

static int check_whole(const bool *seen, const char *s, const char *place, kh_err *err) {
    bool one = seen[0], a = seen[1], b = seen[2];
    if (one && (a || b))
        return kh_fail(err, KH_EFORMAT,
            "%s: \"%s\" mixes {text}, for one text, with {text_a} and {text_b}, for two", place, s);
    if (a != b)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" holds {text_%c} but not {text_%c}", place, s,
            a ? 'a' : 'b', a ? 'b' : 'a');
    if (!one && !a)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"%s\" holds no text; write {text}, or {text_a} and {text_b}", place, s);
    if (!seen[3])
        return kh_fail(
            err, KH_EFORMAT, "%s: \"%s\" holds no {mask}, the place of the answer", place, s);
    return 0;
}

int kh_template_parse(kh_template *t, const char *s, const char *place, kh_err *err) {
    bool seen[N_PLACEHOLDERS] = { false };
    *t = (kh_template){ 0 };
    for (const char *at = s; *at;) {
        size_t n = literal_length(at);
        if (n == (size_t)-1)
            return kh_fail(err, KH_EFORMAT,
                "%s: \"%s\" has a closing brace alone; a brace as such is written }}", place, s);
        add_part(t, KH_SEGMENT_LITERAL, at, n);
        at += n;
        if (!*at)
            break;
        int which = read_placeholder(at, &n);
        if (which < 0)
            return kh_fail(err, KH_EFORMAT,
                "%s: \"%s\" has an unknown placeholder at \"%.24s\"; known are {text}, {text_a}, "
                "{text_b}, {mask} and "
                "{prompt}, and a brace as such is written {{",
                place, s, at);
        if (seen[which])
            return kh_fail(err, KH_EFORMAT, "%s: \"%s\" holds {%s} twice; once is allowed", place,
                s, placeholders[which].name);
        seen[which] = true;
        add_part(t, placeholders[which].kind, at, n);
        at += n;
    }
    t->pair = seen[1];
    t->prompt = seen[4];
    return check_whole(seen, s, place, err);
}

void kh_template_literal(kh_buf *out, const kh_template_part *literal) {
    for (size_t i = 0; i < literal->n; i++) {
        kh_buf_char(out, literal->s[i]);
        if (literal->s[i] == '{' || literal->s[i] == '}')
            i++; /* the second of two */
    }
}

void kh_template_plain(kh_buf *out, const kh_template *t) {
    for (int i = 0; i < t->n; i++) {
        const kh_template_part *p = &t->part[i];
        bool after = i > 0 && t->part[i - 1].kind == KH_SEGMENT_PROMPT &&
            p->kind == KH_SEGMENT_LITERAL && p->s[0] == ' ';
        if (p->kind != KH_SEGMENT_PROMPT)
            kh_buf_bytes(out, p->s + after, p->n - after);
    }
}
