/* html.c - see html.h. */
#include "report/html.h"

#include "base/utf8.h"

/* Invisible, but not without effect: C0 and C1 controls, marks and overrides of direction,
 * zero-width characters, the byte order mark, tags, and what Unicode says is no character. */
static bool is_hidden(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = { { 0x00, 0x1F }, { 0x7F, 0x9F }, { 0xAD, 0xAD }, { 0x61C, 0x61C },
        { 0x180E, 0x180E }, { 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F },
        { 0xFDD0, 0xFDEF }, { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE007F } };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return (c & 0xFFFE) == 0xFFFE;
}

static void put_character(kh_buf *out, uint32_t c) {
    char bytes[4];
    switch (c) {
    case '&': kh_buf_text(out, "&amp;"); return;
    case '<': kh_buf_text(out, "&lt;"); return;
    case '>': kh_buf_text(out, "&gt;"); return;
    case '"': kh_buf_text(out, "&quot;"); return;
    case '\'': kh_buf_text(out, "&#39;"); return;
    case '\t':
    case '\n':
    case '\r': kh_buf_char(out, ' '); return;
    }
    if (is_hidden(c))
        kh_buf_printf(out, "[U+%04X]", (unsigned)c);
    else
        kh_buf_bytes(out, bytes, (size_t)kh_utf8_put(c, bytes));
}

static void put_some(kh_buf *out, const char *s, size_t n, int max) {
    int count = 0;
    for (int len; n > 0 && (max == 0 || count < max); s += len, n -= (size_t)len, count++)
        put_character(out, kh_utf8_next(s, n, &len, NULL));
    if (n > 0)
        kh_buf_text(out, "…");
}

void kh_html_text(kh_buf *out, const char *s, size_t n) { put_some(out, s, n, 0); }

void kh_html_foreign(kh_buf *out, const char *s, size_t n, int max) {
    kh_buf_text(out, "<bdi>");
    put_some(out, s, n, max);
    kh_buf_text(out, "</bdi>");
}
