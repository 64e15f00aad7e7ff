/* version.c - keyhole --version: one line for people; with --json, how this program was built and
 * what it found on this machine, for whoever has to explain a difference. */
#include "version.h"

#include "base/err.h"
#include "base/portable.h"
#include "model/kernels.h"

#include <string.h>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#define C_LIBRARY gnu_get_libc_version()
#else
#define C_LIBRARY NULL
#endif

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif

/* What was found at build time (Makefile, OPTIONAL). */
#if defined(KH_WITH_CURL)
enum { WITH_CURL = 1 };
#else
enum { WITH_CURL = 0 };
#endif
#if defined(KH_WITH_MHD)
enum { WITH_MHD = 1 };
#else
enum { WITH_MHD = 0 };
#endif

static void put_facts(kh_json_out *j) {
    const kh_kernels *row;
    kh_json_put_string(j, "version", kh_version());
    kh_json_put_string(j, "machine", MACHINE);
    kh_json_put_string(j, "compiler", COMPILER);
    kh_json_put_string(j, "c_library", C_LIBRARY);
#if defined(__SANITIZE_ADDRESS__)
    kh_json_put_bool(j, "sanitizers", true);
#else
    kh_json_put_bool(j, "sanitizers", false);
#endif
    kh_json_put_bool(j, "services", WITH_CURL);
    kh_json_put_bool(j, "server", WITH_MHD);
    kh_json_open_array(j, "kernels");
    for (int i = 0; (row = kh_kernels_at(i)) != NULL; i++)
        kh_json_put_string(j, NULL, row->name);
    kh_json_close(j);
    kh_json_put_string(j, "kernels_in_use", kh_kernels_pick()->name);
    kh_json_put_int(j, "cores", kh_cores_allowed());
}

int cli_print_version(FILE *out, bool json, kh_err *err) {
    if (!json) {
        fprintf(out, "keyhole %s\n", kh_version());
        return 0;
    }
    kh_buf b = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    put_facts(&j);
    kh_json_close(&j);
    int rc = kh_json_out_done(&j) ? 0 : kh_fail_memory(err);
    if (rc == 0)
        fprintf(out, "%s\n", b.data);
    kh_buf_free(&b);
    return rc;
}
