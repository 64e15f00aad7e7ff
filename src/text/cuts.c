/* cuts.c - see cuts.h. */
#include "text/cuts.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/pieces.h"
#include "text/unicode.h"

/* The bytes of the letters that s[0..n) starts with, and how many letters; marks stand with theirs.
 */
static size_t word_at(const char *s, size_t n, int *letters) {
    size_t at = 0;
    int len;
    for (*letters = 0; at < n; at += (size_t)len, ++*letters)
        if (!(kh_char_class(kh_utf8_next(s + at, n - at, &len, NULL)) &
                (KH_CHAR_LETTER | KH_CHAR_MARK)))
            break;
    return at;
}

/* After a space, as words mostly stand: to tokenizers of bytes, "word" and " word" are two words.
 */
static int cut_word(kh_cuts *c, const kh_tokenizer *t, const char *word, size_t n, int letters,
    kh_buf *spaced, kh_ids *ids, kh_err *err) {
    kh_buf_reset(spaced);
    kh_buf_char(spaced, ' ');
    kh_buf_bytes(spaced, word, n);
    ids->n = 0;
    int rc = kh_buf_failed(spaced)
        ? kh_fail_memory(err)
        : kh_tokenizer_encode(t, spaced->data, spaced->len, KH_ENCODE_PLAIN, ids, err);
    int cuts = ids->n - 1, unknown = kh_tokenizer_special(t, KH_TOKEN_UNK);
    for (int i = 0; i < ids->n; i++)
        if (ids->id[i] == unknown)
            cuts = letters - 1;
    if (cuts > letters - 1) /* letters of several bytes */
        cuts = letters - 1;
    c->cuts += cuts > 0 ? cuts : 0;
    c->places += letters - 1;
    return rc;
}

int kh_cuts_count(kh_cuts *c, const kh_tokenizer *t, const char *text, size_t n, kh_err *err) {
    kh_buf spaced = kh_buf_init(KH_TEXT_MAX + 1);
    kh_ids ids = { 0 };
    int rc = 0, letters, len;
    for (size_t at = 0, word; at < n && rc == 0; at += word) {
        word = word_at(text + at, n - at, &letters);
        if (letters > 1)
            rc = cut_word(c, t, text + at, word, letters, &spaced, &ids, err);
        if (letters == 0) {
            kh_utf8_next(text + at, n - at, &len, NULL);
            word = (size_t)len;
        }
    }
    kh_ids_free(&ids);
    kh_buf_free(&spaced);
    return rc;
}

double kh_cuts_rate(const kh_cuts *c) { return (double)c->cuts / (double)(c->places + 1); }
