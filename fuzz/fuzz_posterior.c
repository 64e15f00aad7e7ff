/* fuzz_posterior.c - any bytes as posterior.json; what is accepted must come out of
 * kh_posterior_json and be accepted again. After a line of "%%" follows posterior.safetensors, and
 * both are a folder. */
#include "fuzz/model.h"
#include "base/alloc.h"
#include "posterior/posterior.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_json(const char *text, size_t n) {
    kh_err err = { 0 };
    uint64_t samples, again;
    kh_posterior *p = kh_calloc(1, sizeof *p), *q = kh_calloc(1, sizeof *q);
    if (kh_posterior_parse(p, text, n, "fuzz", &samples, &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    else {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_posterior_json(p, samples, &b);
        if (kh_posterior_parse(q, b.data, b.len, "again", &again, &err) != 0)
            abort();
        assert(samples == again && p->n == q->n && p->soft == q->soft &&
            p->demos.n_order == q->demos.n_order && p->texts.n == q->texts.n &&
            p->texts.n_row == q->texts.n_row);
        kh_buf_free(&b);
    }
    kh_posterior_free(p);
    kh_posterior_free(q);
}

static void end(void) {
    fuzz_drop("posterior.json");
    fuzz_drop("posterior.safetensors");
    rmdir(fuzz_folder);
}

static void read_folder(const char *json, size_t n_json, const char *samples, size_t n_samples) {
    kh_posterior *p;
    kh_err err = { 0 };
    if (!fuzz_folder[0]) {
        fuzz_folder_make("posterior");
        atexit(end);
    }
    fuzz_put("posterior.json", json, n_json);
    fuzz_put("posterior.safetensors", samples, n_samples);
    if (kh_posterior_open(&p, fuzz_folder, &err) != 0)
        assert(err.code < 0 && err.msg[0] && !p);
    else
        for (int i = 0; i < p->n; i++)
            assert(isfinite(p->weight[i]) && p->weight[i] >= 0);
    kh_posterior_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char SEPARATOR[] = "\n%%\n";
    const char *text = (const char *)data,
               *end_json = n > 0 ? memmem(text, n, SEPARATOR, sizeof SEPARATOR - 1) : NULL;
    size_t n_json = end_json ? (size_t)(end_json - text) : n, used = n_json + sizeof SEPARATOR - 1;
    read_json(text, n_json);
    if (end_json)
        read_folder(text, n_json, text + used, n - used);
    return 0;
}
