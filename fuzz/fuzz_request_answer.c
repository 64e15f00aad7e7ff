/* fuzz_request_answer.c - any bytes as a service's answer to a question. */
#include "plm/wire.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    float p[2 * 3 * 2];
    int label[2 * 3];
    kh_err err = { 0 };
    if (kh_wire_answer_parse((const char *)data, n, 2, 3, 2, NULL, p, "service", &err) == 0)
        for (int i = 0; i < 12; i++)
            assert(p[i] <= 0);
    else
        assert(err.code < 0 && err.msg[0]);
    if (kh_wire_answer_parse((const char *)data, n, 2, 3, 2, label, NULL, "service", NULL) == 0)
        for (int i = 0; i < 6; i++)
            assert(label[i] == 0 || label[i] == 1);
    return 0;
}
