/* prediction_file.c - see prediction_file.h. */
#include "prediction_file.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <string.h>

static const size_t MAX_BYTES = (size_t)4 << 30;

static int read_input(kh_buf *out, kh_err *err) {
    char block[65536];
    size_t n;
    *out = kh_buf_init(MAX_BYTES);
    while ((n = fread(block, 1, sizeof block, stdin)) > 0)
        kh_buf_bytes(out, block, n);
    if (ferror(stdin))
        return kh_fail_errno(err, "standard input", "cannot read");
    if (kh_buf_failed(out))
        return kh_fail(err, KH_ELIMIT, "standard input: more than 4 GB, or out of memory");
    return 0;
}

/* The labelled rows side by side; if all are, the array itself. */
static int keep_known(cli_predictions *o, kh_err *err) {
    const kh_predictions *r = &o->rows;
    size_t k = (size_t)r->n_label;
    o->known = (kh_answers){ o->p, r->label, r->n, r->n_label };
    if (r->n_known == r->n)
        return 0;
    double *p = kh_malloc((size_t)r->n_known * (k * sizeof *p + sizeof(int)));
    o->kept = p;
    if (!p)
        return kh_fail_memory(err);
    int *label = (void *)(p + (size_t)r->n_known * k), m = 0;
    for (int i = 0; i < r->n; i++)
        if (r->label[i] >= 0) {
            memcpy(p + (size_t)m * k, o->p + (size_t)i * k, k * sizeof *p);
            label[m++] = r->label[i];
        }
    o->known = (kh_answers){ p, label, m, r->n_label };
    return 0;
}

int cli_predictions_read(
    cli_predictions *out, const char *path, const kh_evidence *order, int n_order, kh_err *err) {
    bool input = strcmp(path, "-") == 0;
    *out = (cli_predictions){ .name = input ? "standard input" : path };
    int rc = input ? read_input(&out->bytes, err) : kh_file_read(path, MAX_BYTES, &out->bytes, err);
    if (rc == 0)
        rc = kh_predictions_parse(
            &out->rows, out->bytes.data, out->bytes.len, out->name, order, n_order, err);
    if (rc != 0)
        return rc;
    out->p = kh_malloc((size_t)out->rows.n * (size_t)out->rows.n_label * sizeof *out->p);
    if (!out->p)
        return kh_fail_memory(err);
    kh_predictions_probs(&out->rows, out->p);
    return keep_known(out, err);
}

void cli_predictions_free(cli_predictions *o) {
    kh_buf_free(&o->bytes);
    kh_predictions_free(&o->rows);
    kh_free(o->p);
    kh_free(o->kept);
    *o = (cli_predictions){ 0 };
}

int cli_predictions_need_labels(const cli_predictions *o, kh_err *err) {
    for (int i = 0; i < o->rows.n; i++)
        if (o->rows.label[i] < 0)
            return kh_fail_at(err, KH_EFORMAT, o->name, o->rows.line[i],
                "no \"label\" (the true class, from 0) in this line");
    return 0;
}
