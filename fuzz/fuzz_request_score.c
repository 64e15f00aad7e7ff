/* fuzz_request_score.c - any bytes as the body of POST /v1/score; what is accepted is within the
 * limits. */
#include "plm/wire.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const kh_wire_limits LIMITS = {
        .hidden = 2, .max_len = 16, .vocab = 100, .prompts = 8, .rows = 8, .tokens = 1000
    };
    kh_wire_question q;
    kh_err err = { 0 };
    if (kh_wire_question_parse(&q, (const char *)data, n, &LIMITS, &err) != 0)
        assert(err.code < 0 && err.msg[0]);
    else {
        assert(q.n_prompt >= 1 && q.n_prompt <= LIMITS.prompts && q.n_slot <= LIMITS.max_len);
        for (int i = 0; i < q.n_prompt * q.n_slot * LIMITS.hidden; i++)
            assert(isfinite(q.prompt[i]));
        for (int s = 0; !q.task && s < q.batch.n_seq; s++) {
            int length = (int)(q.batch.start[s + 1] - q.batch.start[s]);
            assert(length >= 1 && length <= LIMITS.max_len &&
                q.batch.mask[s] + q.batch.n_mask[s % q.batch.n_variant] <= length);
            assert(q.n_slot == 0 || (q.batch.slot[s] >= 0 && q.batch.slot[s] + q.n_slot <= length));
            for (int t = 0; t < length; t++)
                assert(q.batch.id[q.batch.start[s] + (size_t)t] >= 0 &&
                    q.batch.id[q.batch.start[s] + (size_t)t] < LIMITS.vocab);
        }
    }
    kh_wire_question_free(&q);
    return 0;
}
