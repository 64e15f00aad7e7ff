/* regex.h - the patterns of tokenizer.json: a plain string, or a regular expression that Hugging
 * Face's library would give to Oniguruma with Ruby's syntax, run here by PCRE2.
 *
 * Where the two engines read a pattern differently it is rewritten (\s, \w, \d, \b, \h, \p{...},
 * (?m), \uHHHH) or refused with a sentence (&& and [ inside a class, + after {n,m}). What remains
 * of PCRE2 alone: negated escapes inside a class, and rare properties of characters that came after
 * its own Unicode version. */
#ifndef KH_TEXT_REGEX_H
#define KH_TEXT_REGEX_H

#include "base/arena.h"
#include "base/json.h"
#include "keyhole.h"

typedef struct kh_pattern {
    const char *literal; /* a plain string of literal_len bytes; NULL: a regular expression */
    size_t literal_len;
    struct pcre2_real_code_8 *code;
} kh_pattern; /* start as {0} */

/* Reads obj[key], {"String": ...} or {"Regex": ...} or a bare string. `place` names the component.
 */
int kh_pattern_load(
    kh_pattern *, const json_t *obj, const char *key, kh_arena *, const char *place, kh_err *err);
int kh_pattern_regex(kh_pattern *, const char *source, size_t n, const char *place, kh_err *err);
void kh_pattern_free(kh_pattern *);

/* Finds all matches in one text, in order:
 *
 *     kh_scan scan;
 *     int rc = kh_scan_start(&scan, &pattern, err);
 *     kh_scan_text(&scan, text, n);
 *     while (rc == 0 && (rc = kh_scan_next(&scan, &start, &end, err)) > 0) ...
 *     kh_scan_end(&scan);
 *
 * An empty match right after the last one is passed over, and an empty text has no match. Text must
 * be valid UTF-8. */
typedef struct kh_scan {
    const kh_pattern *pattern;
    struct pcre2_real_match_data_8 *found;
    struct pcre2_real_match_context_8 *limits;
    const char *text;
    size_t n, at, last_end; /* last_end: SIZE_MAX before the first match */
} kh_scan;

int kh_scan_start(kh_scan *, const kh_pattern *, kh_err *err);
void kh_scan_text(kh_scan *, const char *text, size_t n);
int kh_scan_next(
    kh_scan *, size_t *start, size_t *end, kh_err *err); /* 1 a match, 0 no more, < 0 failed */
void kh_scan_end(kh_scan *);

#endif
