/* forms.h - Unicode's normal forms and lower case, with the tables that Hugging Face's library has.
 */
#ifndef KH_TEXT_FORMS_H
#define KH_TEXT_FORMS_H

#include "base/buf.h"

#include <stdint.h>

enum kh_form {
    KH_NFD = 0,
    KH_NFC = 1,
    KH_NFKD = 2,
    KH_NFKC = 3
}; /* bit 0: compose, bit 1: compatibility */

/* Appends the normal form of n bytes of valid UTF-8. *first: how many bytes of the input belong to
 * what came first in the original text; becomes how many bytes of the output do. Time is linear.
 * False when out of memory. */
bool kh_form_text(enum kh_form, const char *s, size_t n, kh_buf *out, size_t *first);

/* Appends the lower case of one character, as Rust's char::to_lowercase has it (Unicode 17, no
 * context). */
void kh_lower_char(uint32_t c, kh_buf *out);

#endif
