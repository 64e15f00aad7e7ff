/* slow_next.c - next-token log-probabilities of a decoder in a GGUF file against llama.cpp's.
 *
 *     slow_next MODEL.gguf ANSWERS       run by slow_gguf.sh
 *
 * ANSWERS is what slow_gguf.mjs wrote. Prints one line of figures; fails if the first token differs
 * on more than 5 % of the texts, or if the mean difference over the ten best is 0.1 or more. */
#include "base/clock.h"
#include "base/json.h"
#include "model/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *sentence) {
    printf("# %s\nnot ok 1 - the same answers as llama.cpp\n1..1\n", sentence);
    return 1;
}

typedef struct totals {
    int texts, first, numbers;
    double difference;
} totals;

/* One line of ANSWERS; false if it cannot be computed. */
static bool compare(kh_engine *e, json_t *line, totals *t, kh_err *err) {
    const json_t *ids = json_object_get(line, "ids"), *top = json_object_get(line, "top");
    int n = (int)json_array_size(ids), V = kh_engine_model(e)->config.vocab;
    int32_t *id = malloc((size_t)n * sizeof *id);
    float *out = malloc((size_t)V * sizeof *out);
    for (int i = 0; i < n; i++)
        id[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    kh_single one;
    kh_single_init(&one, id, n);
    int at = n - 1, best = 0;
    bool ok = kh_engine_vocabulary(e, &(kh_question){ .batch = &one.batch }, &at, 1, out, err) == 0;
    for (int i = 1; ok && i < V; i++)
        best = out[i] > out[best] ? i : best;
    for (size_t k = 0; ok && k < json_array_size(top); k++) {
        const json_t *pair = json_array_get(top, k);
        int token = (int)json_integer_value(json_array_get(pair, 0));
        t->first += k == 0 && token == best;
        t->difference += fabs(json_number_value(json_array_get(pair, 1)) - (double)out[token]);
        t->numbers++;
    }
    t->texts++;
    free(id);
    free(out);
    return ok;
}

int main(int argc, char **argv) {
    kh_err err = { 0 };
    kh_model *m;
    kh_engine *e;
    totals t = { 0 };
    FILE *f = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (!f)
        return fail("usage: slow_next MODEL.gguf ANSWERS");
    double start = kh_clock();
    if (kh_model_open(&m, argv[1], NULL, &err) != 0 ||
        kh_engine_new(&e, m, KH_PRECISION_AUTO, &err) != 0)
        return fail(err.msg);
    double loaded = kh_clock();
    static char line[1 << 20];
    while (fgets(line, sizeof line, f)) {
        json_t *root;
        if (kh_json_parse(line, strlen(line), argv[2], &root, &err) != 0 ||
            !compare(e, root, &t, &err))
            return fail(err.msg);
        json_decref(root);
    }
    fclose(f);
    double mean = t.difference / t.numbers;
    bool ok = t.texts > 0 && t.first >= 0.95 * t.texts && mean < 0.1;
    printf("# %d texts, %s: the same first token on %d, mean difference of the ten best %.4f; "
           "loaded in %.1f s, answered in %.1f s\n",
        t.texts, kh_precision_name(kh_engine_precision(e)), t.first, mean, loaded - start,
        kh_clock() - loaded);
    printf("%sok 1 - the same answers as llama.cpp\n1..1\n", ok ? "" : "not ");
    kh_engine_free(e);
    return !ok;
}
