/* fuzz_request_answer.c - any bytes as a service's answer to a question. */
#include "plm/wire.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    float p[2 * 3 * 2], energy[2 * 3];
    int label[2 * 3];
    kh_err err = { 0 };
    if (kh_wire_answer_parse((const char *)data, n, &(kh_wire_wanted){ 2, 3, 2, NULL, p, NULL },
            "service", &err) == 0)
        for (int i = 0; i < 12; i++)
            assert(p[i] <= 0);
    else
        assert(err.code < 0 && err.msg[0]);
    if (kh_wire_answer_parse((const char *)data, n, &(kh_wire_wanted){ 2, 3, 2, NULL, p, energy },
            "service", NULL) == 0)
        for (int i = 0; i < 6; i++)
            assert(isfinite(energy[i]));
    if (kh_wire_answer_parse((const char *)data, n, &(kh_wire_wanted){ 2, 3, 2, label, NULL, NULL },
            "service", NULL) == 0)
        for (int i = 0; i < 6; i++)
            assert(label[i] == 0 || label[i] == 1);
    return 0;
}
