/* template.h - a template taken apart: "{text} . It was {mask} ." is text, literal, mask, literal.
 */
#ifndef KH_DATA_TEMPLATE_H
#define KH_DATA_TEMPLATE_H

#include "base/buf.h"
#include "keyhole.h"

typedef enum kh_segment_kind {
    KH_SEGMENT_LITERAL,
    KH_SEGMENT_A,
    KH_SEGMENT_B,
    KH_SEGMENT_MASK,
    KH_SEGMENT_PROMPT
} kh_segment_kind;

typedef struct kh_template_part {
    kh_segment_kind kind;
    const char *s; /* literals: bytes of the template, braces still doubled */
    size_t n;
} kh_template_part;

enum {
    KH_SEGMENTS_MAX = 11
}; /* five placeholders at most once each, literals between and around them */

typedef struct kh_template {
    kh_template_part part[KH_SEGMENTS_MAX];
    int n;
    bool pair, prompt; /* holds {text_a} and {text_b}; holds {prompt} */
} kh_template;

/* Borrows s. place is what messages call the template: file and key. */
int kh_template_parse(kh_template *out, const char *s, const char *place, kh_err *err);

/* Appends a literal with its doubled braces made single. */
void kh_template_literal(kh_buf *out, const kh_template_part *literal);

/* Appends the template as it is written, without {prompt} and the space after it. */
void kh_template_plain(kh_buf *out, const kh_template *);

#endif
