/* pieces.h - a text on its way to the model: cut into pieces, some of which are tokens already.
 *
 * Pre-tokenizers and added tokens read the list of pieces and write the next one. Most only cut;
 * those that change characters (ByteLevel, Metaspace) write a new text. */
#ifndef KH_TEXT_PIECES_H
#define KH_TEXT_PIECES_H

#include "base/buf.h"
#include "keyhole.h"

#define KH_TEXT_MAX \
    ((size_t)1 << 30) /* the longest text, also after normalizing: positions fit 32 bits */

typedef struct kh_piece {
    uint32_t at, len; /* bytes of kh_pieces.text */
    uint32_t
        first;  /* how many of them stem from the first character of the original of this piece */
    int32_t id; /* an added token, whose characters are no longer wanted: len is 0; -1: characters
                   for the model */
    uint32_t plain_from, plain_to; /* bytes of the piece in which special tokens are ordinary
                                      characters; equal: there are none */
    bool starts;                   /* whether the original of this piece is the start of the text */
} kh_piece;

typedef struct kh_pieces {
    const char *text; /* valid UTF-8; the caller's, or in one of the buffers */
    kh_piece *list;
    int n;
    size_t cap;
    kh_piece *next; /* the list being written */
    int n_next;
    size_t cap_next;
    kh_buf buf[2];
    int turn; /* the buffer that text is not in */
} kh_pieces;  /* zero once; memory is kept between texts */

/* Starts with one piece, the whole text (none if it is empty). */
int kh_pieces_start(kh_pieces *, const char *text, size_t n, kh_err *err);
void kh_pieces_free(kh_pieces *);

/* Appends text[from.at + start .. from.at + end) to the next list; nothing if it is empty. */
int kh_pieces_cut(kh_pieces *, const kh_piece *from, size_t start, size_t end, kh_err *err);
/* Appends a piece as it is. */
int kh_pieces_keep(kh_pieces *, const kh_piece *, kh_err *err);
/* The next list becomes the list. */
void kh_pieces_swap(kh_pieces *);

/* For steps that change characters: an empty buffer to write to, and the change to it, after the
 * new list is complete. */
kh_buf *kh_pieces_begin_text(kh_pieces *);
int kh_pieces_end_text(kh_pieces *, kh_err *err);

/* Small readings of text. */
size_t kh_ascii_prefix(const char *s, size_t n);    /* bytes before the first that is not ASCII */
size_t kh_spaces_at_start(const char *s, size_t n); /* bytes of white space */
size_t kh_spaces_at_end(const char *s, size_t n);
size_t kh_char_before(
    const char *s, size_t n); /* where the last character of s[0..n), n > 0, starts */

/* Room for `more` ids; < 0 with a sentence if there cannot be that many. */
int kh_ids_room(kh_ids *, size_t more, kh_err *err);
int kh_ids_push(kh_ids *, int32_t id, kh_err *err);

#endif
