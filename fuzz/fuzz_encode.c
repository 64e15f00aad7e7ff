/* fuzz_encode.c - any bytes as a text for the small tokenizers of tests/vectors, and for real ones
 * where ../shared holds them; the first byte chooses one. Ids must be inside the vocabulary; a
 * byte-level tokenizer must give the text back; and reading bytes must equal reading printable
 * characters. */
#include "text/pretokenize.h"
#include "text/tokenizer.h"

#include <assert.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const names[] = { "tiny-bpe", "tiny-wordpiece", "norm-sequence",
    "added-normalized-bert", "added-strip", "added-with-spaces",
    "model-bpe-byte-fallback-partial-fuse", "model-bpe-prefix-suffix", "pre-split-regex-words",
    "pre-metaspace-first-added", "norm-nfkc", "dec-sequence", "pre-punctuation-merged-with-next",
    "post-template-odd", "model-wordpiece", "model-unigram", "model-unigram-albert",
    "model-unigram-bytes", "model-unigram-some-bytes" };
enum { N_NAMES = sizeof names / sizeof *names, MOST_REAL = 8 };

static kh_tokenizer *real[MOST_REAL];
static int n_real;

static void open_real(void) {
    glob_t found;
    if (glob("../shared/tokenizers/*/tokenizer.json", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && n_real < MOST_REAL; i++)
            n_real += kh_tokenizer_open(&real[n_real], found.gl_pathv[i], NULL) == 0;
    globfree(&found);
}

static kh_tokenizer *open_small(const char *name) {
    char path[256];
    kh_tokenizer *t;
    kh_err err;
    snprintf(path, sizeof path, "tests/vectors/tokenizers/%s.json", name);
    if (kh_tokenizer_open(&t, path, &err) != 0)
        abort(); /* the fuzzer runs from the top of the tree */
    return t;
}

/* The tokenizer made to write bytes as printable characters, as it would if something followed its
 * ByteLevel step. */
static kh_tokenizer *open_slow(const char *name) {
    kh_tokenizer *t = open_small(name);
    assert(t->raw_bytes);
    t->raw_bytes = false;
    ((kh_byte_level *)t->pretokenizers.step[t->pretokenizers.n - 1].self)->raw = false;
    return t;
}

static void check_bytes(
    const kh_tokenizer *t, const kh_tokenizer *slow, const char *text, size_t n) {
    kh_ids ids = { 0 }, same = { 0 }, again = { 0 };
    char *back, *back2;
    size_t n_back, n_back2;
    assert(kh_tokenizer_encode(t, text, n, KH_ENCODE_PLAIN, &ids, NULL) == 0);
    assert(kh_tokenizer_encode(slow, text, n, KH_ENCODE_PLAIN, &same, NULL) == 0);
    assert(ids.n == same.n &&
        (ids.n == 0 || memcmp(ids.id, same.id, (size_t)ids.n * sizeof *ids.id) == 0));
    assert(kh_tokenizer_decode(t, ids.id, ids.n, false, &back, &n_back, NULL) == 0);
    /* What comes back is the text with broken bytes replaced: the same ids, and the same text from
     * then on. */
    assert(kh_tokenizer_encode(t, back, n_back, KH_ENCODE_PLAIN, &again, NULL) == 0);
    assert(again.n == ids.n &&
        (ids.n == 0 || memcmp(ids.id, again.id, (size_t)ids.n * sizeof *ids.id) == 0));
    assert(kh_tokenizer_decode(t, again.id, again.n, false, &back2, &n_back2, NULL) == 0);
    assert(n_back == n_back2 && memcmp(back, back2, n_back) == 0);
    kh_text_free(back);
    kh_text_free(back2);
    kh_ids_free(&ids);
    kh_ids_free(&same);
    kh_ids_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static kh_tokenizer *opened[N_NAMES], *slow;
    if (n == 0)
        return 0;
    static bool looked;
    if (!looked)
        open_real();
    looked = true;
    int which = data[0] % (N_NAMES + n_real);
    const char *text = (const char *)data + 1;
    n--;
    if (which < N_NAMES && !opened[which])
        opened[which] = open_small(names[which]);
    if (!slow)
        slow = open_slow("tiny-bpe");
    const kh_tokenizer *t = which < N_NAMES ? opened[which] : real[which - N_NAMES];
    kh_ids ids = { 0 }, types = { 0 };
    kh_err err;
    char *back;
    size_t n_back;
    assert(kh_tokenizer_encode_pair(t, text, n, text, n / 2, KH_ENCODE_FRAME, &ids, &types, &err) ==
        0);
    for (int i = 0; i < ids.n; i++)
        assert(ids.id[i] >= 0 && ids.id[i] < kh_tokenizer_size(t));
    assert(kh_tokenizer_decode(t, ids.id, ids.n, data[0] & 1, &back, &n_back, &err) == 0);
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_ids_free(&types);
    if (which == 0)
        check_bytes(t, slow, text, n);
    return 0;
}
