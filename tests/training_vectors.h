/* training_vectors.h - tests/vectors/training.txt: lists of numbers by name, made by
 * tools/make_training_vectors.py. */
#ifndef KH_TEST_TRAINING_VECTORS_H
#define KH_TEST_TRAINING_VECTORS_H

#include "test.h"

/* The numbers called name, which must be n; free them. */
static inline double *vector_read(const char *name, size_t n) {
    FILE *f = fopen("tests/vectors/training.txt", "r");
    assert_non_null(f);
    char line[512], word[128];
    double *out = calloc(n, sizeof *out);
    size_t count = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%127s %zu", word, &count) == 2 && strcmp(word, name) == 0)
            break;
    if (strcmp(word, name) != 0 || count != n)
        fail_msg("training.txt has no \"%s\" of %zu numbers", name, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fscanf(f, "%lf", &out[i]), 1);
    fclose(f);
    return out;
}

#endif
