/* fuzz_task.c - any bytes as a task file; what is accepted must come out of kh_task_json as it went
 * in. */
#include "data/task.h"
#include "data/template.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    kh_err err = { 0 };
    const kh_task *task, *again;
    if (kh_task_parse(&task, (const char *)data, n, "fuzz", &err) != 0) {
        assert(err.code < 0 && err.msg[0]);
        return 0;
    }
    kh_template plain, soft;
    assert(kh_template_parse(&plain, task->plain, "plain", NULL) == 0 && !plain.prompt &&
        plain.pair == task->pair);
    assert(kh_template_parse(&soft, task->soft, "soft", NULL) == 0 && soft.prompt &&
        soft.pair == task->pair);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_task_json(task, &b);
    if (kh_task_parse(&again, b.data, b.len, "again", &err) != 0)
        abort();
    assert(strcmp(task->plain, again->plain) == 0 && strcmp(task->soft, again->soft) == 0 &&
        task->n_label == again->n_label);
    kh_task_close(again);
    kh_task_close(task);
    kh_buf_free(&b);
    return 0;
}
