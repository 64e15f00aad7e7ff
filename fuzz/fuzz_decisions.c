/* fuzz_decisions.c - any bytes as decisions.json and as results.json; decisions that are accepted
 * must decide. */
#include "judge/decisions.h"
#include "report/results.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kh_err err = { 0 };
    uint64_t stamp;
    kh_decisions d;
    if (kh_decisions_parse(&d, (const char *)data, n, "fuzz", &stamp, &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    else {
        double *p = calloc((size_t)d.n_label, sizeof *p);
        bool *in = calloc((size_t)d.n_label, sizeof *in);
        p[d.n_label - 1] = 1;
        kh_decision one = kh_decide(&d, &(kh_row){ .a = "text", .n_a = 4 }, p, 0.5, in);
        assert(one.set_size <= d.n_label && isfinite(one.score));
        free(p);
        free(in);
    }
    kh_decisions_free(&d);
    kh_result r;
    err = (kh_err){ 0 };
    if (kh_result_parse(&r, (const char *)data, n, "fuzz", &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    kh_result_free(&r);
    return 0;
}
