/* decisions_file.c - decisions.json beside the posterior that it belongs to.
 *
 * The file carries a hash of posterior.json: thresholds of one classifier are never used with
 * another. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "judge/decisions.h"

static const size_t JSON_MAX = (size_t)1 << 30; /* conformal scores of 2^24 rows, and room */

int kh_decisions_save(const kh_decisions *d, const char *run, kh_err *err) {
    char *path = kh_path_join(run, KH_DECISIONS_NAME);
    kh_buf b = kh_buf_init(JSON_MAX);
    uint64_t stamp = 0;
    int rc = path ? kh_posterior_stamp(run, &stamp, err) : kh_fail_memory(err);
    if (rc == 0) {
        kh_decisions_file(d, stamp, &b);
        rc = kh_buf_failed(&b) ? kh_fail_memory(err) : kh_file_write(path, b.data, b.len, err);
    }
    kh_buf_free(&b);
    kh_free(path);
    return rc;
}

int kh_decisions_open(kh_decisions *out, const char *run, kh_err *err) {
    *out = (kh_decisions){ 0 };
    char *path = kh_path_join(run, KH_DECISIONS_NAME);
    kh_buf text = kh_buf_init(0);
    uint64_t stamp = 0, posterior = 0;
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && !kh_file_exists(path))
        rc = kh_fail(err, KH_EMISSING,
            "%s: no " KH_DECISIONS_NAME " in it; \"keyhole eval %s\" makes one", run, run);
    if (rc == 0)
        rc = kh_file_read(path, JSON_MAX, &text, err);
    if (rc == 0)
        rc = kh_decisions_parse(out, text.data, text.len, path, &stamp, err);
    if (rc == 0)
        rc = kh_posterior_stamp(run, &posterior, err);
    if (rc == 0 && stamp != posterior)
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: was made for another posterior; \"keyhole eval %s\" makes it anew", path, run);
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}
