/* regex.c - see regex.h. A pattern is rewritten from Oniguruma's reading to PCRE2's, compiled with
 * its just-in-time compiler, and run under a match limit, so that a pattern that explodes ends in a
 * sentence and not in a hang. */
#include "text/regex.h"

#include "base/buf.h"
#include "base/err.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MATCH_LIMIT = 10000000, HEAP_LIMIT_KB = 256 << 10, MAX_SOURCE = 1 << 16 };

/* Characters that came with Unicode 15 and 16: Oniguruma knows them, PCRE2 (10.42: Unicode 14) may
 * not. */
#define NEW_L \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-" \
    "\\x{10d65}" \
    "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{" \
    "1138b}\\x{1138e}" \
    "\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}" \
    "-\\x{11f10}" \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{" \
    "1611d}\\x{16d40}-\\x{16d6c}" \
    "\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{" \
    "1e4eb}\\x{1e5d0}-\\x{1e5ed}" \
    "\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_M \
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{" \
    "113c0}\\x{113c2}\\x{113c5}" \
    "\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{" \
    "11f01}\\x{11f03}" \
    "\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{" \
    "1611e}-\\x{1612f}\\x{1e08f}" \
    "\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"
#define NEW_ND \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{" \
    "16130}-\\x{16139}" \
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define NEW_P \
    "\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}\\x{11b00}-" \
    "\\x{11b09}\\x{11be1}" \
    "\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"
#define NEW_S \
    "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}\\x{" \
    "1cc00}-\\x{1ccef}" \
    "\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{" \
    "1f8b2}-\\x{1f8bb}" \
    "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{" \
    "1faaf}\\x{1fabb}-\\x{1fabf}" \
    "\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{" \
    "1faf7}-\\x{1faf8}" \
    "\\x{1fbcb}-\\x{1fbef}"
#define NEW_LU "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"
#define NEW_LL "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"
#define NEW_HAN "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_N NEW_ND "\\x{1d2c0}-\\x{1d2d3}"

/* Oniguruma's \s is the White_Space property. Its \w is Alphabetic, marks, \p{Nd} and \p{Pc}, but
 * up to U+00FF all numbers. */
#define SPACE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define WORD \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}" NEW_L NEW_M NEW_ND
#define DIGIT "\\p{Nd}" NEW_ND
#define HEX "0-9a-fA-F"

/* Escapes that are rewritten, outside a class and inside one; NULL: left as they are. */
static const struct {
    char letter;
    const char *outside, *inside;
} rewrites[] = {
    { 's', "[" SPACE "]", SPACE },
    { 'S', "[^" SPACE "]", NULL },
    { 'w', "[" WORD "]", WORD },
    { 'W', "[^" WORD "]", NULL },
    { 'd', "[" DIGIT "]", DIGIT },
    { 'D', "[^" DIGIT "]", NULL },
    { 'h', "[" HEX "]", HEX },
    { 'H', "[^" HEX "]", NULL },
    { 'b', "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))", NULL },
    { 'B', "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))", NULL },
};

/* \p{...}: what stands in a class for it. For scripts PCRE2 would take characters that several
 * scripts share as well. */
static const struct {
    const char *name, *members;
} properties[] = {
    { "L", "\\p{L}" NEW_L },
    { "M", "\\p{M}" NEW_M },
    { "N", "\\p{N}" NEW_N },
    { "P", "\\p{P}" NEW_P },
    { "S", "\\p{S}" NEW_S },
    { "Lu", "\\p{Lu}" NEW_LU },
    { "Ll", "\\p{Ll}" NEW_LL },
    { "Nd", "\\p{Nd}" NEW_ND },
    { "Han", "\\p{sc:Han}" NEW_HAN },
    { "Hiragana", "\\p{sc:Hiragana}" },
    { "Katakana", "\\p{sc:Katakana}" },
    { "Hangul", "\\p{sc:Hangul}" },
    { "Latin", "\\p{sc:Latin}" },
    { "Greek", "\\p{sc:Greek}" },
    { "Cyrillic", "\\p{sc:Cyrillic}" },
    { "Arabic", "\\p{sc:Arabic}" },
    { "Hebrew", "\\p{sc:Hebrew}" },
    { "Devanagari", "\\p{sc:Devanagari}" },
    { "Thai", "\\p{sc:Thai}" },
};

/* \p{name}, \p{^name} or \P{name} at s; the bytes used, 0 if it is left as it is. */
static size_t rewrite_property(const char *s, size_t n, bool in_class, kh_buf *out) {
    if (n < 4 || (s[1] != 'p' && s[1] != 'P') || s[2] != '{')
        return 0;
    const char *close = memchr(s, '}', n), *name = s + 3 + (s[3] == '^');
    bool negated = (s[1] == 'P') != (s[3] == '^');
    if (!close || close < name || (negated && in_class))
        return 0;
    size_t len = (size_t)(close - name);
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (strlen(properties[i].name) == len && memcmp(properties[i].name, name, len) == 0) {
            kh_buf_printf(
                out, in_class ? "%s%s" : "[%s%s]", negated ? "^" : "", properties[i].members);
            return (size_t)(close - s) + 1;
        }
    return 0;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The escape at s[0..n), s[0] a backslash; returns how many bytes of it were used. */
static size_t rewrite_escape(const char *s, size_t n, bool in_class, kh_buf *out) {
    if (n >= 2)
        for (size_t i = 0; i < sizeof rewrites / sizeof *rewrites; i++) {
            const char *to = in_class ? rewrites[i].inside : rewrites[i].outside;
            if (rewrites[i].letter == s[1] && to) {
                kh_buf_text(out, to);
                return 2;
            }
        }
    if (n >= 6 && s[1] == 'u' && is_hex(s[2]) && is_hex(s[3]) && is_hex(s[4]) && is_hex(s[5])) {
        kh_buf_printf(out, "\\x{%.4s}", s + 2);
        return 6;
    }
    size_t used = rewrite_property(s, n, in_class, out);
    if (used == 0)
        kh_buf_bytes(out, s, used = n < 2 ? n : 2);
    return used;
}

/* "(?imx-imx" at s: Ruby's m is what PCRE2 calls s. Returns the bytes used; 0 if s starts no such
 * group. */
static size_t rewrite_flags(const char *s, size_t n, kh_buf *out) {
    size_t i = 2;
    while (i < n && (s[i] == 'i' || s[i] == 'm' || s[i] == 'x' || s[i] == '-'))
        i++;
    if (n < 3 || s[1] != '?' || i == 2 || i >= n || (s[i] != ':' && s[i] != ')'))
        return 0;
    for (size_t k = 0; k < i; k++)
        kh_buf_char(out, s[k] == 'm' ? 's' : s[k]);
    return i;
}

/* Whether s starts with a quantifier {n}, {n,}, {,m} or {n,m} that is followed by a plus; *len gets
 * its length. */
static bool is_possessive_interval(const char *s, size_t n) {
    size_t i = 1, digits = 0;
    for (; i < n && ((s[i] >= '0' && s[i] <= '9') || s[i] == ','); i++)
        digits += s[i] != ',';
    return digits > 0 && i + 1 < n && s[i] == '}' && s[i + 1] == '+';
}

static int rewrite(const char *s, size_t n, kh_buf *out, const char *place, kh_err *err) {
    bool in_class = false;
    size_t class_start = 0;
    for (size_t i = 0; i < n;) {
        size_t used = 0;
        if (s[i] == '\\') {
            used = rewrite_escape(s + i, n - i, in_class, out);
        } else if (in_class) {
            if (s[i] == '[' && i + 1 < n && s[i + 1] == ':') {
                const char *close = memmem(s + i, n - i, ":]", 2);
                used = close ? (size_t)(close - (s + i)) + 2 : 1;
                kh_buf_bytes(out, s + i, used);
            } else if (s[i] == '[' || (s[i] == '&' && i + 1 < n && s[i + 1] == '&'))
                return kh_fail(err, KH_EUNSUPPORTED,
                    "%s: the regular expression has \"%s\" inside [...], which is not supported",
                    place, s[i] == '[' ? "[" : "&&");
            else if (s[i] == ']' && i > class_start)
                in_class = false;
        } else if (s[i] == '[') {
            in_class = true;
            class_start = i + 1 < n && s[i + 1] == '^' ? i + 2 : i + 1;
        } else if (s[i] == '(') {
            used = rewrite_flags(s + i, n - i, out);
        } else if (s[i] == '{' && is_possessive_interval(s + i, n - i)) {
            return kh_fail(err, KH_EUNSUPPORTED,
                "%s: the regular expression has \"+\" after {...}, which is not supported", place);
        }
        if (used == 0) {
            kh_buf_char(out, s[i]);
            used = 1;
        }
        i += used;
    }
    return kh_buf_failed(out) ? kh_fail_memory(err) : 0;
}

int kh_pattern_regex(kh_pattern *p, const char *source, size_t n, const char *place, kh_err *err) {
    if (n > MAX_SOURCE)
        return kh_fail(err, KH_ELIMIT,
            "%s: a regular expression of %zu bytes, at most %d are allowed", place, n, MAX_SOURCE);
    kh_buf text = kh_buf_init(KH_BUF_MAX);
    int rc = rewrite(source, n, &text, place, err), why = 0;
    pcre2_compile_context *options = NULL;
    if (rc != 0)
        goto done;
    options = pcre2_compile_context_create(NULL);
    if (!options) {
        rc = kh_fail_memory(err);
        goto done;
    }
    pcre2_set_newline(options, PCRE2_NEWLINE_LF);
    PCRE2_SIZE at = 0;
    p->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &why, &at, options);
    if (!p->code) {
        PCRE2_UCHAR says[200] = "";
        pcre2_get_error_message(why, says, sizeof says);
        rc = kh_fail(err, KH_EFORMAT, "%s: the regular expression \"%.*s\" is not valid: %s", place,
            n < 100 ? (int)n : 100, source, (char *)says);
        goto done;
    }
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it, PCRE2 interprets */
done:
    pcre2_compile_context_free(options);
    kh_buf_free(&text);
    return rc;
}

int kh_pattern_load(kh_pattern *p, const json_t *obj, const char *key, kh_arena *arena,
    const char *place, kh_err *err) {
    const json_t *v = json_object_get(obj, key), *text = v;
    bool is_regex = false;
    if (json_is_object(v) && json_object_size(v) == 1) {
        text = json_object_get(v, "Regex");
        is_regex = text != NULL;
        if (!text)
            text = json_object_get(v, "String");
    }
    if (!json_is_string(text))
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be {\"String\": ...} or {\"Regex\": ...}",
            place, key);
    size_t n = json_string_length(text);
    if (is_regex || n == 0) /* the empty string is found everywhere */
        return kh_pattern_regex(p, json_string_value(text), n, place, err);
    p->literal = kh_arena_strndup(arena, json_string_value(text), n);
    p->literal_len = n;
    return p->literal ? 0 : kh_fail_memory(err);
}

void kh_pattern_free(kh_pattern *p) {
    pcre2_code_free(p->code);
    p->code = NULL;
}

int kh_scan_start(kh_scan *scan, const kh_pattern *p, kh_err *err) {
    *scan = (kh_scan){ .pattern = p };
    if (p->literal)
        return 0;
    scan->found = pcre2_match_data_create(1, NULL);
    scan->limits = pcre2_match_context_create(NULL);
    if (!scan->found || !scan->limits)
        return kh_fail_memory(err);
    pcre2_set_match_limit(scan->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(scan->limits, HEAP_LIMIT_KB);
    return 0;
}

void kh_scan_text(kh_scan *scan, const char *text, size_t n) {
    scan->text = text;
    scan->n = n;
    scan->at = 0;
    scan->last_end = SIZE_MAX;
}

void kh_scan_end(kh_scan *scan) {
    pcre2_match_data_free(scan->found);
    pcre2_match_context_free(scan->limits);
}

static int next_literal(kh_scan *scan, size_t *start, size_t *end) {
    const kh_pattern *p = scan->pattern;
    const char *at = memmem(scan->text + scan->at, scan->n - scan->at, p->literal, p->literal_len);
    if (!at)
        return 0;
    *start = (size_t)(at - scan->text);
    *end = scan->at = *start + p->literal_len;
    return 1;
}

static size_t char_length(const char *s) {
    unsigned char c = (unsigned char)*s;
    return 1 + (size_t)(c >= 0x80) + (size_t)(c >= 0xE0) + (size_t)(c >= 0xF0);
}

int kh_scan_next(kh_scan *scan, size_t *start, size_t *end, kh_err *err) {
    if (scan->n == 0)
        return 0;
    if (scan->pattern->literal)
        return next_literal(scan, start, end);
    while (scan->at <= scan->n) {
        int rc = pcre2_match(scan->pattern->code, (PCRE2_SPTR)scan->text, scan->n, scan->at,
            PCRE2_NO_UTF_CHECK, scan->found, scan->limits);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(scan->pattern->code, (PCRE2_SPTR)scan->text, scan->n, scan->at,
                PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scan->found, scan->limits);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0) {
            PCRE2_UCHAR says[200] = "";
            pcre2_get_error_message(rc, says, sizeof says);
            return kh_fail(err, KH_ELIMIT,
                "the tokenizer's regular expression gave up at byte %zu of a text: %s", scan->at,
                (char *)says);
        }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(scan->found);
        if (span[0] == span[1] && span[1] == scan->last_end) {
            scan->at += scan->at < scan->n ? char_length(scan->text + scan->at) : 1;
            continue;
        }
        *start = span[0] > scan->at ? span[0] : scan->at; /* \K may move it about */
        *end = scan->at = scan->last_end = span[1] > *start ? span[1] : *start;
        return 1;
    }
    return 0;
}
