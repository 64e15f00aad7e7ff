/* vocab.c - see vocab.h. */
#include "text/vocab.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

/* How much of a token a message shows. */
static int shown(size_t n) { return n < 64 ? (int)n : 64; }

int kh_vocab_name(
    kh_vocab *v, const char *token, size_t n, long long id, const char *place, kh_err *err) {
    if (id < 0 || id >= KH_VOCAB_MAX)
        return kh_fail(err, KH_EFORMAT, "%s: token \"%.*s\" has id %lld, ids go from 0 to %d",
            place, shown(n), token, id, KH_VOCAB_MAX - 1);
    assert(n <= INT_MAX); /* files are smaller */
    if (id < v->size && v->token[id])
        return kh_fail(err, KH_EFORMAT, "%s: tokens \"%.*s\" and \"%.*s\" have the same id %lld",
            place, shown(v->len[id]), v->token[id], shown(n), token, id);
    size_t need = (size_t)id + 1;
    if (!kh_grow(&v->token, &v->cap, need, sizeof *v->token) ||
        !kh_grow(&v->len, &v->cap_len, need, sizeof *v->len))
        return kh_fail_memory(err);
    const char *copy = kh_arena_strndup(&v->text, token, n);
    if (!copy)
        return kh_fail_memory(err);
    for (; v->size < (int)need; v->size++) {
        v->token[v->size] = NULL;
        v->len[v->size] = 0;
    }
    v->token[id] = copy;
    v->len[id] = (uint32_t)n;
    return 0;
}

int kh_vocab_add(
    kh_vocab *v, const char *token, size_t n, long long id, const char *place, kh_err *err) {
    int rc = kh_vocab_name(v, token, n, id, place, err);
    if (rc != 0)
        return rc;
    int32_t old;
    switch (kh_map_add(&v->ids, v->token[id], n, (int32_t)id, &old)) {
    case 1: return 0;
    case 0:
        return kh_fail(err, KH_EFORMAT, "%s: token \"%.*s\" has two ids, %d and %lld", place,
            shown(n), token, old, id);
    default: return kh_fail_memory(err);
    }
}

int32_t kh_vocab_id(const kh_vocab *v, const char *token, size_t n) {
    int32_t id;
    return kh_map_get(&v->ids, token, n, &id) ? id : -1;
}

void kh_vocab_free(kh_vocab *v) {
    kh_arena_free(&v->text);
    kh_map_free(&v->ids);
    kh_free(v->token);
    kh_free(v->len);
    *v = (kh_vocab){ 0 };
}
