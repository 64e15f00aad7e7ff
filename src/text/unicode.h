/* unicode.h - what kind of character a code point is, as the tokenizers ask it.
 *
 *     unsigned k = kh_char_class(c);
 *     if (k & (KH_CHAR_LETTER | KH_CHAR_NUMBER)) ...
 *
 * The answers are those of Hugging Face's Rust library, because token ids depend on them; it mixes
 * Unicode versions (16 for regular expressions, 17 for Rust's own functions, 8 for BERT's rules),
 * and so do we. ASCII is answered by one look-up, the rest by a search in 2,400 runs. Any value may
 * be asked; what is no character has no class. */
#ifndef KH_TEXT_UNICODE_H
#define KH_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

enum kh_char_class {
    KH_CHAR_LETTER = 1, /* \p{L} */
    KH_CHAR_NUMBER = 2, /* \p{N} */
    KH_CHAR_SPACE =
        4, /* the White_Space property: \s of regular expressions, char::is_whitespace of Rust */
    KH_CHAR_PUNCT = 8,    /* \p{P} */
    KH_CHAR_WORD = 16,    /* \w of Rust's regex (Whitespace, single_word): letters, marks, digits,
                             \p{Pc}, joiners */
    KH_CHAR_NUMERIC = 32, /* char::is_numeric of Rust (Digits pre-tokenizer): KH_CHAR_NUMBER and a
                             dozen newer characters */
    KH_CHAR_MARK = 64,    /* what the StripAccents normalizer removes: \p{M}, tables of Unicode 9 */
    KH_CHAR_BERT_PUNCT = 128, /* what BERT's and the Punctuation pre-tokenizer make a word of its
                                 own: ASCII symbols and \p{P} */
    KH_CHAR_BERT_DROP = 256, /* what BERT's clean_text removes: NUL, U+FFFD, \p{Cc}, \p{Cf}, \p{Co};
                                not tab, LF, CR */
    KH_CHAR_BERT_CJK = 512,  /* what BERT's handle_chinese_chars puts spaces around */
    KH_CHAR_BERT_MN = 1024,  /* what BERT's strip_accents removes after NFD: \p{Mn} */
};

extern const uint16_t kh_char_ascii[128];
unsigned kh_char_class_wide(uint32_t c); /* any c; meant for c >= 128 */

/* All classes of c, or-ed. */
static inline unsigned kh_char_class(uint32_t c) {
    return c < 128 ? kh_char_ascii[c] : kh_char_class_wide(c);
}

static inline bool kh_is_letter(uint32_t c) { return kh_char_class(c) & KH_CHAR_LETTER; }
static inline bool kh_is_number(uint32_t c) { return kh_char_class(c) & KH_CHAR_NUMBER; }
static inline bool kh_is_space(uint32_t c) { return kh_char_class(c) & KH_CHAR_SPACE; }
static inline bool kh_is_word(uint32_t c) { return kh_char_class(c) & KH_CHAR_WORD; }
static inline bool kh_is_numeric(uint32_t c) { return kh_char_class(c) & KH_CHAR_NUMERIC; }
static inline bool kh_is_mark(uint32_t c) { return kh_char_class(c) & KH_CHAR_MARK; }
static inline bool kh_is_bert_punct(uint32_t c) { return kh_char_class(c) & KH_CHAR_BERT_PUNCT; }
static inline bool kh_is_bert_drop(uint32_t c) { return kh_char_class(c) & KH_CHAR_BERT_DROP; }
static inline bool kh_is_bert_cjk(uint32_t c) { return kh_char_class(c) & KH_CHAR_BERT_CJK; }
static inline bool kh_is_bert_mn(uint32_t c) { return kh_char_class(c) & KH_CHAR_BERT_MN; }

#endif
