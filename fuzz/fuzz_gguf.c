/* fuzz_gguf.c - any bytes as a GGUF file: opened or refused, and if opened every value can be asked
 * for as anything and every tensor be read and expanded. */
#include "base/alloc.h"
#include "base/gguf.h"
#include "model/tensor.h"

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
    kh_gguf_close(f);
    return 0;
}
