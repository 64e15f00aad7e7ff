/* slow_precision.c - what bf16 and int8 cost on a trained model. Not the error of the logits counts
 * for tuning but whether prompts keep their order and rows their labels. The figures are printed.
 */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <math.h>

enum { MOST_PROMPTS = 100 };

typedef struct result {
    float *logprob; /* [prompts, rows, 2] */
    double loss[MOST_PROMPTS];
} result;

typedef struct setup {
    const char *model;
    kh_inject inject;
    kh_placement placement;
    int slots, prompts, rows;
    float *prompt; /* [prompts, slots, hidden] */
    const kh_task *task;
    kh_split split;
} setup;

/* Mean cross-entropy of every prompt on the first train rows of the split. */
static void score(const setup *s, kh_precision precision, result *out) {
    kh_err err = { 0 };
    kh_plm *box = NULL;
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    if (kh_plm_open(&box, s->model,
            &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .precision = precision }, &err) != 0 ||
        kh_words_new(&words, s->task, kh_plm_tokenizer(box), false, &err) != 0)
        fail_msg("%s", err.msg);
    bool next = kh_plm_describe(box).next;
    if (next)
        kh_words_continue(words);
    if (kh_batch_encode(&batch, kh_plm_tokenizer(box), s->task, words,
            kh_dataset_rows(s->split.train), s->rows,
            &(kh_batch_opts){ .max_len = kh_plm_describe(box).max_len,
                .n_slot = s->slots,
                .placement = s->placement,
                .next = next },
            &err) != 0)
        fail_msg("%s", err.msg);
    out->logprob = malloc((size_t)(s->prompts * s->rows * 2) * sizeof *out->logprob);
    kh_question q = { batch, words, s->inject, s->prompt, s->prompts };
    if (kh_plm_score(kh_plm_scorer(box, NULL), &q, out->logprob, &err) != 0)
        fail_msg("%s", err.msg);
    for (int p = 0; p < s->prompts; p++) {
        out->loss[p] = 0;
        for (int r = 0; r < s->rows; r++)
            out->loss[p] -= out->logprob[(p * s->rows + r) * 2 + batch->label[r]] / (double)s->rows;
    }
    kh_batch_free(batch);
    kh_words_free(words);
    kh_plm_close(box);
}

static void ranks(const double *x, int n, double *rank) {
    for (int i = 0; i < n; i++) {
        rank[i] = 0;
        for (int j = 0; j < n; j++)
            rank[i] += 0.5 * (x[j] < x[i]) + 0.5 * (x[j] <= x[i]);
    }
}

static double spearman(const double *a, const double *b, int n) {
    double ra[MOST_PROMPTS], rb[MOST_PROMPTS], ab = 0, aa = 0, bb = 0;
    ranks(a, n, ra);
    ranks(b, n, rb);
    for (int i = 0; i < n; i++) {
        double x = ra[i] - n / 2.0, y = rb[i] - n / 2.0;
        ab += x * y, aa += x * x, bb += y * y;
    }
    return ab / sqrt(aa * bb);
}

/* Prints and checks one precision against f32. */
static void compare(const setup *s, const char *name, kh_precision precision, const result *exact,
    double min_order, double max_flipped) {
    result r;
    score(s, precision, &r);
    int n = s->prompts * s->rows, flipped = 0;
    double off = 0;
    for (int i = 0; i < n; i++) {
        double margin = exact->logprob[2 * i + 1] - exact->logprob[2 * i],
               other = r.logprob[2 * i + 1] - r.logprob[2 * i];
        off += (margin - other) * (margin - other) / n;
        flipped += (margin > 0) != (other > 0);
    }
    double order = spearman(exact->loss, r.loss, s->prompts);
    printf("# %s: rank correlation of %d prompts' losses %.4f, labels flipped %.2f %%, logit "
           "margin off by %.4f (root mean square)\n",
        name, s->prompts, order, 100.0 * flipped / n, sqrt(off));
    free(r.logprob);
    assert_true(order >= min_order);
    assert_true(flipped <= max_flipped * n);
}

/* The task, the rows, and prompts of normal numbers: mean and deviation of each are given. */
static void prepare(setup *s, int most_rows, double mean, double std, int hidden) {
    kh_err err = { 0 };
    if (kh_task_open(&s->task, "sst2", &err) != 0 ||
        kh_split_open(&s->split, "../shared/data/sst2", 16, 13,
            &(kh_dataset_opts){ .task = s->task }, &err) != 0)
        fail_msg("%s", err.msg);
    int rows = kh_dataset_size(s->split.train), n = s->slots * hidden;
    s->rows = rows < most_rows ? rows : most_rows;
    s->prompt = malloc((size_t)s->prompts * (size_t)n * sizeof *s->prompt);
    for (int p = 0; p < s->prompts; p++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, (uint32_t)p, 0);
        for (int i = 0; i < n; i++)
            s->prompt[(size_t)p * (size_t)n + (size_t)i] = (float)(mean + std * kh_rng_normal(&r));
    }
}

static void finish(setup *s, result *exact) {
    free(exact->logprob);
    free(s->prompt);
    kh_split_close(&s->split);
    kh_task_close(s->task);
}

/* The rule: what ranks prompts below 0.95 is a default nowhere. */
static void int8_is_not_chosen(const char *model) {
    kh_plm *box;
    assert_int_equal(
        kh_plm_open(&box, model, &(kh_plm_opts){ .precision = KH_PRECISION_AUTO }, NULL), 0);
    assert_string_not_equal(kh_plm_describe(box).precision, "int8");
    kh_plm_close(box);
}

static void lower_precisions_keep_prompts_in_order(void **state) {
    (void)state;
    test_needs_shared("models/minilm-mlm/model.safetensors");
    test_needs_shared("data/sst2/kshot16/seed13.train.tsv");
    setup s = { .model = "../shared/models/minilm-mlm",
        .inject = KH_INJECT_POST_LN_ADD,
        .placement = KH_SLOTS_TEMPLATE,
        .slots = 50,
        .prompts = 100 };
    result exact;
    /* About the size that prompts have under the paper's prior: A z with z ~ N(0, 50). */
    prepare(&s, 1000, 0, 0.3, 384);
    score(&s, KH_F32, &exact);
    compare(&s, "bf16", KH_BF16, &exact, 0.99, 0.01);
    /* int8 is above 0.95 (0.974 with AVX2), but how a model's weights happen to be rounded moves
     * that (0.967 with a step 1.6 % larger), so the automatic choice is not int8. */
    compare(&s, "int8", KH_INT8, &exact, 0.95, 0.02);
    int8_is_not_chosen(s.model);
    finish(&s, &exact);
}

/* The same for a decoder, KH_DECODER (a folder or a GGUF file), with the prompt after the text, so
 * that a prompt costs little: of about the size of word embeddings. */
static void decoders_too(void **state) {
    (void)state;
    const char *model = getenv("KH_DECODER"), *rows = getenv("KH_ROWS");
    test_needs_shared("data/sst2/kshot16/seed13.train.tsv");
    if (!model) {
        print_message("# skipped: say KH_DECODER=FILE.gguf\n");
        skip();
    }
    setup s = { .model = model,
        .inject = KH_INJECT_EMBED_INPLACE,
        .placement = KH_SLOTS_AFTER,
        .slots = 10,
        .prompts = 40 };
    kh_plm *box;
    double mean, std;
    result exact;
    assert_int_equal(kh_plm_open(&box, model, &(kh_plm_opts){ .precision = KH_INT8 }, NULL), 0);
    assert_int_equal(kh_plm_embedding_stats(box, &mean, &std, NULL), 0);
    prepare(&s, rows ? atoi(rows) : 16, mean, std, kh_plm_describe(box).hidden);
    kh_plm_close(box);
    score(&s, KH_F32, &exact);
    compare(&s, "decoder, bf16", KH_BF16, &exact, 0.99, 0.01);
    compare(&s, "decoder, int8", KH_INT8, &exact, 0.95, 0.02);
    int8_is_not_chosen(model);
    finish(&s, &exact);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(lower_precisions_keep_prompts_in_order),
        cmocka_unit_test(decoders_too) };
    return cmocka_run_group_tests_name("precision", tests, NULL, NULL);
}
