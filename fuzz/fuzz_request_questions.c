/* fuzz_request_questions.c - the body of a request to /v1/decisions or /v1/systemone; the first
 * byte chooses. What is read must be whole: every question has its options, every string is there.
 */
#include "server/questions.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0 || n > 1 << 16)
        return 0;
    kh_asked q = { .systemone = data[0] & 1 };
    size_t sum = 0;
    if (kh_asked_read(&q, (const char *)data + 1, n - 1, NULL) == 0) {
        assert(q.n >= 1 && q.n <= KH_ASKED_MOST);
        sum += strlen(q.a) + strlen(q.all) + (q.b ? strlen(q.b) : 0);
        for (int i = 0; i < q.n; i++) {
            sum += strlen(q.ask[i].text) + (q.ask[i].name ? strlen(q.ask[i].name) : 0);
            assert(q.ask[i].n_option != 1 && q.ask[i].n_option <= KH_OPTIONS_MOST);
            for (int k = 0; k < q.ask[i].n_option; k++)
                sum += strlen(q.ask[i].option[k].name) + strlen(q.ask[i].option[k].description);
        }
    }
    kh_asked_free(&q);
    return sum == (size_t)-1;
}
