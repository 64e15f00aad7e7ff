/* test.h - what every test program includes: cmocka, and a few lines of our own.
 *
 * One program a room or topic, tests/test_*.c, linked with the static library. A test that needs
 * something outside the clone calls test_skip("reason"). Paths of files in the tree are relative to
 * its top, where the tests run. */
#ifndef KH_TEST_H
#define KH_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "keyhole.h"

/* Ends the running test as skipped; tests/run.sh prints the reason. */
#define test_skip(...) \
    do { \
        printf("# skipped: %s: ", __func__); \
        printf(__VA_ARGS__); \
        printf("\n"); \
        fflush(stdout); \
        skip(); \
    } while (0)

/* Skips unless ../shared holds the file. */
#define test_needs_shared(path) \
    do { \
        if (access("../shared/" path, R_OK) != 0) \
            test_skip("../shared/%s is not there", path); \
    } while (0)

/* The error's sentence must hold this text. */
#define assert_says(err, text) \
    do { \
        if (!strstr((err)->msg, text)) \
            fail_msg("the message is \"%s\", expected in it: \"%s\"", (err)->msg, text); \
    } while (0)

/* A file of the given bytes under the build folder's scratch space; the name lives until the next
 * call but one. */
static inline const char *test_file(const char *name, const void *bytes, size_t n) {
    static char path[2][256];
    static int turn;
    char *p = path[turn ^= 1];
    snprintf(p, sizeof path[0], "/tmp/keyhole-test-%ld-%s", (long)getpid(), name);
    FILE *f = fopen(p, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return p;
}

#endif
