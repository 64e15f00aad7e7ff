/* test_base_place.c - where the built-in model and the examples are; tests/cli_builtin.sh has the
 * places beside the program. */
#include "test.h"

#include "base/alloc.h"
#include "base/place.h"

#include <sys/stat.h>

static char folder[64]; /* of models, with a "builtin" that holds a config.json */

static int make_models(void **state) {
    char path[128];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/keyhole-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/builtin", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/builtin/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    return fclose(f);
}

static int remove_models(void **state) {
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/builtin/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/builtin", folder);
    rmdir(path);
    return rmdir(folder) | unsetenv("KEYHOLE_MODELS");
}

static void other_names_are_paths(void **state) {
    (void)state;
    static const char *const NAMES[] = { "roberta-base", "./builtin", "builtin/", "", "Builtin" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char *path;
        assert_int_equal(kh_place_model(&path, NAMES[i], NULL), 0);
        assert_string_equal(path, NAMES[i]);
        kh_free(path);
    }
}

static void the_environment_says_where(void **state) {
    (void)state;
    char *path, want[128];
    snprintf(want, sizeof want, "%s/builtin", folder);
    setenv("KEYHOLE_MODELS", folder, 1);
    assert_int_equal(kh_place_model(&path, "builtin", NULL), 0);
    assert_string_equal(path, want);
    kh_free(path);
}

static void a_folder_without_it_is_named(void **state) {
    (void)state;
    char *path = folder;
    kh_err err;
    setenv("KEYHOLE_MODELS", "/nowhere", 1);
    assert_int_equal(kh_place_model(&path, "builtin", &err), KH_EMISSING);
    assert_null(path);
    assert_says(&err,
        "the built-in model is not here: there is none in /nowhere/builtin; set KEYHOLE_MODELS to "
        "the folder that holds "
        "\"builtin\", make it with \"make builtin\" in keyhole's sources, or give the folder of "
        "another model");
    assert_int_equal(kh_place_model(&path, "builtin", NULL), KH_EMISSING);
}

/* This program stands in a folder too deep for a tree, so what is beside it does not count. An
 * empty setting is none. */
static void without_environment_the_program_says(void **state) {
    (void)state;
    char *path;
    kh_err err;
    setenv("KEYHOLE_MODELS", "", 1);
    assert_int_equal(kh_place_model(&path, "builtin", &err), KH_EMISSING);
    assert_says(&err, "/../share/keyhole/models/builtin;");
    assert_int_equal(kh_place_examples(&path, &err), KH_EMISSING);
    assert_says(&err, "the folder of example data is not here: there is none in /");
    assert_says(&err, "/../share/keyhole/examples; --data says where it is");
}

/* A model of this name is opened through the same function. */
static void models_and_tokenizers_go_through_it(void **state) {
    (void)state;
    kh_model *m;
    kh_tokenizer *t;
    kh_err err;
    setenv("KEYHOLE_MODELS", "/nowhere", 1);
    assert_int_equal(kh_model_open(&m, "builtin", NULL, &err), KH_EMISSING);
    assert_says(&err, "there is none in /nowhere/builtin");
    assert_int_equal(kh_tokenizer_open(&t, "builtin", &err), KH_EMISSING);
    assert_says(&err, "there is none in /nowhere/builtin");
}

static void memory_may_end_anywhere(void **state) {
    (void)state;
    for (int found = 0; found < 2; found++) {
        setenv("KEYHOLE_MODELS", found ? folder : "", 1);
        int rc = KH_ENOMEM;
        for (long n = 1; rc == KH_ENOMEM; n++) {
            char *path;
            kh_err err;
            kh_alloc_fail_at(n, true);
            rc = kh_place_model(&path, "builtin", &err);
            kh_alloc_fail_at(0, false);
            assert_true(rc == KH_ENOMEM || rc == (found ? 0 : KH_EMISSING));
            assert_int_equal(path != NULL, rc == 0);
            kh_free(path);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_names_are_paths),
        cmocka_unit_test(the_environment_says_where),
        cmocka_unit_test(a_folder_without_it_is_named),
        cmocka_unit_test(without_environment_the_program_says),
        cmocka_unit_test(models_and_tokenizers_go_through_it),
        cmocka_unit_test(memory_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
