/* bytelevel.h - GPT-2's view of text: pieces by one regular expression, bytes as printable
 * characters.
 *
 *     for (size_t at = 0, end; at < n; at = end) {
 *         end = kh_gpt2_split(text, n, at);
 *         ... text[at..end) is one piece ...
 *     }
 */
#ifndef KH_TEXT_BYTELEVEL_H
#define KH_TEXT_BYTELEVEL_H

#include <stddef.h>
#include <stdint.h>

/* The end of the piece that starts at text[at], at < n, exactly as the regular expression
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * cuts it; every character belongs to a piece. Text is UTF-8; a broken sequence counts as one
 * U+FFFD. */
size_t kh_gpt2_split(const char *text, size_t n, size_t at);

/* The character that stands for a byte in byte-level vocabularies: itself where that is printable
 * and no space in Latin-1, else the next free one from U+0100 on. All 256 lie below U+0144, so one
 * takes at most two bytes of UTF-8. */
static inline uint32_t kh_byte_char(uint8_t b) {
    if (b <= 0x20)
        return 0x100u + b;
    if (b >= 0x7F && b <= 0xA0)
        return 0x121u + (b - 0x7Fu);
    return b == 0xAD ? 0x143u : b;
}

/* The byte that a character stands for, or -1. */
static inline int kh_char_byte(uint32_t c) {
    if (c > 0x143)
        return -1;
    if (c == 0x143)
        return 0xAD;
    if (c >= 0x121)
        return (int)c - 0x121 + 0x7F;
    if (c >= 0x100)
        return (int)c - 0x100;
    return c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD ? -1 : (int)c;
}

#endif
