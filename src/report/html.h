/* html.h - text that came from anywhere, made safe to stand in a page. */
#ifndef KH_REPORT_HTML_H
#define KH_REPORT_HTML_H

#include "base/buf.h"

/* Appends text as text: marks escaped, white space of any kind as a space, broken bytes as U+FFFD.
 * Characters that cannot be seen but change what is (control characters, marks of writing
 * direction, zero-width ones) are shown by their number. */
void kh_html_text(kh_buf *out, const char *s, size_t n);
/* The same in a <bdi>, so that its direction of writing ends with it; at most max characters (0:
 * all), then "…". */
void kh_html_foreign(kh_buf *out, const char *s, size_t n, int max);

#endif
