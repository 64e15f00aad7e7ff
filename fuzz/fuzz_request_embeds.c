/* fuzz_request_embeds.c - any bytes as a file of torch.save (zip and pickle). */
#include "base/alloc.h"
#include "plm/torch_file.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    float *x;
    int rows, cols;
    kh_err err = { 0 };
    if (kh_torch_get(data, n, 64, 64, &x, &rows, &cols, &err) != 0)
        assert(err.code < 0 && err.msg[0] && !x);
    else {
        volatile float sum = 0;
        assert(rows >= 1 && rows <= 64 && cols >= 1 && cols <= 64);
        for (int i = 0; i < rows * cols; i++)
            sum = sum + x[i];
    }
    kh_free(x);
    return 0;
}
