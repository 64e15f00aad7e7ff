/* test_base.c - the room that knows nothing of language. */
#include "test.h"

#include "base/alloc.h"

static void grow_is_geometric_and_survives_failure(void **state) {
    (void)state;
    int *p = NULL;
    size_t cap = 0;
    assert_true(kh_grow(&p, &cap, 1, sizeof *p));
    p[0] = 7;
    size_t before = cap;
    kh_alloc_fail_at(1, false);
    assert_false(kh_grow(&p, &cap, 1000, sizeof *p));
    kh_alloc_fail_at(0, false);
    assert_int_equal(cap, before);
    assert_int_equal(p[0], 7);
    assert_false(kh_grow(&p, &cap, SIZE_MAX / 2, sizeof *p));
    kh_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grow_is_geometric_and_survives_failure),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
