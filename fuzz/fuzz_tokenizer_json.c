/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json. What is accepted must encode and decode a
 * fixed text, or say why not, with ids inside the vocabulary. */
#include "text/tokenizer.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void encode(const kh_tokenizer *t, unsigned flags) {
    static const char text[] =
        "Hello world's <mask> caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 ABC123  [SEP]\t\xF0\x9F\x98\x80 "
        "e\xCC\x81\xCC\xA7 \xFF low lower\n";
    kh_ids ids = { 0 }, types = { 0 };
    kh_err err = { 0 };
    char *back;
    size_t n;
    if (kh_tokenizer_encode_pair(t, text, sizeof text - 1, "aab", 3, flags, &ids, &types, &err) ==
        0) {
        assert(ids.n == types.n);
        for (int i = 0; i < ids.n; i++)
            assert(ids.id[i] >= 0 && ids.id[i] < kh_tokenizer_size(t));
    } else {
        assert(err.code < 0 && err.msg[0] && ids.n == 0);
    }
    for (int skip = 0; skip < 2; skip++)
        if (kh_tokenizer_decode(t, ids.id, ids.n, skip, &back, &n, &err) == 0) {
            assert(strlen(back) <= n);
            kh_text_free(back);
        }
    kh_ids_free(&ids);
    kh_ids_free(&types);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kh_tokenizer *t;
    kh_err err = { 0 };
    if (kh_tokenizer_from_json(&t, (const char *)data, n, "fuzz", &err) != 0) {
        assert(err.code < 0 && err.msg[0] && !t);
        return 0;
    }
    encode(t, KH_ENCODE_FRAME);
    encode(t, KH_ENCODE_PLAIN);
    kh_tokenizer_close(t);
    return 0;
}
