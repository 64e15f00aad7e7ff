/* fuzz_cmaes.c - any bytes as a saved state of CMA-ES. The checksum is made right first, or nothing
 * would get past it; what is accepted must run, keep its bounds, and come out of kh_cmaes_save
 * again. */
#include "base/alloc.h"
#include "base/map.h"
#include "tune/cmaes.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void run(kh_cmaes *c) {
    int dim = kh_cmaes_dim(c), pop = kh_cmaes_pop(c);
    double *x = kh_calloc((size_t)dim * (size_t)pop, sizeof *x),
           *f = kh_calloc((size_t)pop, sizeof *f);
    for (int g = 0; g < 2; g++) {
        kh_cmaes_ask(c, x);
        for (int k = 0; k < pop; k++)
            f[k] = x[(size_t)k * (size_t)dim] - k;
        for (int i = 0; i < dim * pop; i++)
            assert(!isnan(x[i]));
        kh_cmaes_tell(c, f);
    }
    kh_free(x);
    kh_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kh_err err = { 0 };
    kh_cmaes *c;
    uint8_t *bytes = kh_malloc(n + 1);
    if (n > 0)
        memcpy(bytes, data, n);
    if (n >= 8) {
        uint64_t sum = htole64(kh_hash64(bytes, n - 8));
        memcpy(bytes + n - 8, &sum, 8);
    }
    if (kh_cmaes_load(&c, bytes, n, "fuzz", &err) != 0) {
        assert(err.code < 0 && err.msg[0]);
    } else {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        assert(kh_cmaes_save(c, &b, NULL) == 0 && b.len == n && memcmp(b.data, bytes, n) == 0);
        kh_buf_free(&b);
        if (kh_cmaes_pop(c) <= 1000)
            run(c);
        kh_cmaes_free(c);
    }
    kh_free(bytes);
    return 0;
}
