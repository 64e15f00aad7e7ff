/* vocab.h - tokens and their ids, both ways. Ids need not be dense; every id is in 0 .. size-1. */
#ifndef KH_TEXT_VOCAB_H
#define KH_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/map.h"
#include "keyhole.h"

/* The largest real vocabularies hold about a million ids; the cap keeps a hostile id from asking
 * for gigabytes. */
enum { KH_VOCAB_MAX = 1 << 22 };

typedef struct kh_vocab {
    kh_arena text;       /* the tokens' characters */
    kh_map ids;          /* token -> id */
    const char **token;  /* [size]; NULL where no token has the id */
    uint32_t *len;       /* [size] */
    int size;            /* the highest id and one */
    size_t cap, cap_len; /* of token and len */
} kh_vocab;              /* start as {0} */

/* Adds a token. `place` names the file, for the sentence about a token or an id that is there
 * already, or out of range. */
int kh_vocab_add(
    kh_vocab *, const char *token, size_t n, long long id, const char *place, kh_err *err);

/* Names an id without making its token findable: added tokens have their own table. The id must be
 * free. */
int kh_vocab_name(
    kh_vocab *, const char *token, size_t n, long long id, const char *place, kh_err *err);

/* The id of a token, or -1. */
int32_t kh_vocab_id(const kh_vocab *, const char *token, size_t n);

void kh_vocab_free(kh_vocab *);

#endif
