/* fuzz_vocab.c - any bytes as the files of a tokenizer from before tokenizer.json. The first byte
 * says what the main file is (vocab.json, vocab.txt or tokenizer.json); lines of "%%" part it from
 * merges.txt, tokenizer_config.json, special_tokens_map.json and added_tokens.json. What is
 * accepted must encode and decode, with ids inside the vocabulary. */
#include "base/alloc.h"
#include "text/tokenizer.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char SEPARATOR[] = "\n%%\n";

/* The next part in *f; what is left in *text. An empty part is a file that is not there. */
static void take_part(kh_tokenizer_file *f, const char *name, const char **text, size_t *n) {
    const char *end = *n > 0 ? memmem(*text, *n, SEPARATOR, sizeof SEPARATOR - 1) : NULL;
    size_t size = end ? (size_t)(end - *text) : *n, used = end ? size + sizeof SEPARATOR - 1 : size;
    f->path = kh_strdup(name);
    f->bytes = kh_buf_init(KH_TOKENIZER_FILE_MAX);
    kh_buf_bytes(&f->bytes, *text, size);
    f->there = size > 0;
    *text += used;
    *n -= used;
}

static void use(const kh_tokenizer *t) {
    static const char TEXT[] =
        "Hello world's <mask> caf\xC3\xA9 \xE4\xB8\xAD ABC123 [MASK]\t\xFF low lower\n";
    kh_ids ids = { 0 };
    kh_err err = { 0 };
    char *back = NULL;
    size_t n;
    if (kh_tokenizer_encode(t, TEXT, sizeof TEXT - 1, KH_ENCODE_FRAME, &ids, &err) != 0)
        assert(err.code < 0 && err.msg[0] && ids.n == 0);
    for (int i = 0; i < ids.n; i++)
        assert(ids.id[i] >= 0 && ids.id[i] < kh_tokenizer_size(t));
    for (int r = KH_TOKEN_MASK; r <= KH_TOKEN_EOS; r++)
        assert(kh_tokenizer_special(t, (kh_special)r) < kh_tokenizer_size(t));
    if (kh_tokenizer_decode(t, ids.id, ids.n, true, &back, &n, &err) == 0)
        assert(strlen(back) <= n);
    kh_text_free(back);
    kh_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const MAIN[] = { "vocab.json", "vocab.txt", "tokenizer.json" };
    static const char *const NAMES[KH_N_TOKENIZER_FILE] = { [KH_FILE_MERGES] = "merges.txt",
        [KH_FILE_CONFIG] = "tokenizer_config.json",
        [KH_FILE_MAP] = "special_tokens_map.json",
        [KH_FILE_ADDED] = "added_tokens.json" };
    kh_tokenizer_files f = { 0 };
    kh_tokenizer *t = NULL;
    kh_err err = { 0 };
    if (n == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t left = n - 1;
    for (int i = 0; i < KH_N_TOKENIZER_FILE; i++)
        take_part(&f.file[i], i == KH_FILE_MAIN ? MAIN[data[0] % 3] : NAMES[i], &text, &left);
    if (!f.file[KH_FILE_MAIN].there) /* readers of folders have looked for it */
        assert(!t);
    else if (kh_tokenizer_from_files(&t, &f, &err) != 0)
        assert(err.code < 0 && err.msg[0] && !t);
    else
        use(t);
    kh_tokenizer_close(t);
    kh_tokenizer_files_free(&f);
    return 0;
}
