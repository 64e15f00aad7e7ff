/* fuzz_posterior.c - any bytes as posterior.json; what is accepted must come out of kh_posterior_json and be accepted again. */
#include "base/alloc.h"
#include "judge/posterior.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kh_err err = { 0 };
    uint64_t samples, again;
    kh_posterior *p = kh_calloc(1, sizeof *p), *q = kh_calloc(1, sizeof *q);
    if (kh_posterior_parse(p, (const char *)data, n, "fuzz", &samples, &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    else {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_posterior_json(p, samples, &b);
        if (kh_posterior_parse(q, b.data, b.len, "again", &again, &err) != 0)
            abort();
        assert(samples == again && p->n == q->n && p->soft == q->soft && p->demos.n_order == q->demos.n_order);
        kh_buf_free(&b);
    }
    kh_posterior_free(p);
    kh_posterior_free(q);
    return 0;
}
