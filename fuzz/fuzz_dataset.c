/* fuzz_dataset.c - any bytes as a data file; the first byte chooses format, task and options. */
#include "keyhole.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const kh_format formats[] = { KH_FORMAT_TSV, KH_FORMAT_CSV, KH_FORMAT_CSV_NOHEADER,
        KH_FORMAT_JSONL };
    if (n == 0)
        return 0;
    unsigned choice = data[0] - (unsigned)'0';
    kh_dataset_opts o = { .format = formats[choice & 3],
        .skip_bad_rows = choice & 4,
        .unlabelled = choice & 8,
        .newline_escape = choice & 16 };
    if (choice & 32)
        o.task = kh_task_builtin(choice & 64 ? 6 : 0);
    kh_err err = { 0 };
    kh_dataset *d;
    if (kh_dataset_parse(&d, (const char *)data + 1, n - 1, "fuzz", &o, &err) != 0) {
        assert(err.code < 0 && err.msg[0]);
        return 0;
    }
    const kh_row *row = kh_dataset_rows(d);
    size_t total = 0;
    for (int i = 0; i < kh_dataset_size(d);
         i++) { /* every text must be readable memory of the right kind */
        assert(row[i].label >= -1 && row[i].label < kh_dataset_labels(d));
        assert(row[i].n_a > 0 && (row[i].b != NULL) == kh_dataset_pairs(d));
        for (size_t k = 0; k < row[i].n_a; k++)
            total += row[i].a[k] != '\0';
        total += row[i].n_a + row[i].n_b;
    }
    assert(total <= 2 * n + 16 * (size_t)kh_dataset_size(d));
    kh_dataset_close(d);
    return 0;
}
