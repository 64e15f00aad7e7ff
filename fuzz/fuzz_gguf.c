/* fuzz_gguf.c - any bytes as a GGUF file: opened or refused, and if opened every value can be asked
 * for as anything, every tensor be read and expanded, and its vocabulary be used. */
#include "base/alloc.h"
#include "base/gguf.h"
#include "model/tensor.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static size_t walk_value(const kh_gguf *f, const char *key) {
    kh_gguf_list list;
    const char *s = "";
    size_t n, sum = 0;
    long long i;
    double d = 0;
    int small = 0;
    bool b = false;
    kh_gguf_int(f, key, -5, 5, &small, NULL);
    kh_gguf_number(f, key, &d, NULL);
    kh_gguf_bool(f, key, &b, NULL);
    if (kh_gguf_text(f, key, &s, NULL) == 0)
        sum += strlen(s);
    if (kh_gguf_texts(f, key, &list, NULL) == 0)
        while (kh_gguf_next_text(&list, &s, &n))
            sum += n + (n ? (unsigned char)s[n - 1] : 0);
    if (kh_gguf_ints(f, key, &list, NULL) == 0)
        while (kh_gguf_next_int(&list, &i))
            sum += (size_t)i;
    if (kh_gguf_numbers(f, key, &list, NULL) == 0)
        while (kh_gguf_next_number(&list, &d))
            sum += d > 0;
    return sum;
}

/* Any text must come back as ids of the vocabulary, or be refused. */
static void use_vocabulary(const uint8_t *bytes, size_t n) {
    kh_tokenizer_files files = { 0 };
    files.file[KH_FILE_MAIN] = (kh_tokenizer_file){
        .path = "fuzz.gguf", .bytes = { .data = (char *)bytes, .len = n }, .there = true
    }; /* only read */
    kh_tokenizer *t;
    kh_err err;
    if (kh_tokenizer_from_files(&t, &files, &err) != 0)
        return;
    static const char text[] = "It's <s> a 12 \xC3\xA4\xE2\x96\x81\xF0\x9F\x98\x80\n  b[MASK]";
    kh_ids ids = { 0 };
    if (kh_tokenizer_encode(t, text, sizeof text - 1, KH_ENCODE_FRAME, &ids, &err) == 0)
        for (int i = 0; i < ids.n; i++)
            if (ids.id[i] < 0 || ids.id[i] >= kh_tokenizer_size(t))
                abort();
    char *back = NULL;
    size_t len;
    kh_tokenizer_decode(t, ids.id, ids.n, false, &back, &len, &err);
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    kh_gguf *f;
    kh_err err;
    if (kh_gguf_parse(&f, bytes, n, "fuzz", &err) != 0)
        return 0;
    int count;
    size_t total = 0;
    const kh_gguf_tensor *t = kh_gguf_tensors(f, &count);
    for (int i = 0; kh_gguf_key(f, i); i++)
        walk_value(f, kh_gguf_key(f, i));
    for (int i = 0; i < count; i++) {
        void *into = kh_malloc(t[i].bytes);
        if (!into || kh_gguf_read(f, &t[i], 0, t[i].bytes, into, &err) != 0)
            abort();
        if (t[i].type->dtype != KH_DTYPE_ANY)
            kh_numbers_nonfinite(into, t[i].type->dtype,
                t[i].bytes / (size_t)t[i].type->bytes * (size_t)t[i].type->count);
        total += t[i].bytes;
        kh_free(into);
    }
    if (total > n)
        abort();
    if (kh_gguf_has(f, "tokenizer.ggml.model"))
        use_vocabulary(bytes, n);
    kh_gguf_close(f);
    return 0;
}
