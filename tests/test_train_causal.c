/* test_train_causal.c - gradients of a decoder with respect to its soft prompt: in double against
 * differences of losses, in f32 against double, and losses against the engine. */
#include "model_vectors.h"

#include "model/engine.h"
#include "train/backward.h"

#define DECODERS "tests/vectors/decoders/"
static const char *const NAMES[] = { "gpt2", "llama", "llama-linear", "llama3", "mistral", "qwen2",
    "qwen3", "gemma3" };
enum { N_NAMES = sizeof NAMES / sizeof *NAMES, SLOTS = 3, ROWS = 2 };

static const int32_t TOKEN[] = { 7, 31, 12 };
static const int LABEL[] = { 0, 1, 1 }, START[] = { 0, 9, 20 }, AT[] = { 8, 19 },
                 FIRST_AT[] = { 0, 1, 2 };
static const int32_t TARGET[] = { 1, 0 };

/* Two rows; the prompt stands after the first token of one, and near the end of the other. */
static void make_slots(kh_slot *slot) {
    for (int s = 0; s < ROWS; s++)
        for (int t = START[s]; t < START[s + 1]; t++) {
            int place = t - START[s], row = place - (s == 0 ? 1 : 6);
            bool soft = row >= 0 && row < SLOTS;
            slot[t] = (kh_slot){
                .id = 3 + (t * 13) % 60, .embedded = soft ? row : -1, .added = -1, .position = place
            };
        }
}

static void gradients_are_slopes(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char path[256];
        kh_params params;
        kh_slot slot[20];
        kh_err err;
        double loss, up, down, worst = 0;
        snprintf(path, sizeof path, DECODERS "%s", NAMES[i]);
        kh_model *m = open_model(path);
        assert_int_equal(kh_params_init(&params, &m->config, &err), 0);
        size_t n = SLOTS * (size_t)m->config.hidden;
        float *w = malloc(params.size * sizeof *w), prompt[200], slope[200] = { 0 };
        double *w64 = malloc(params.size * sizeof *w64), prompt64[200], slope64[200] = { 0 };
        kh_params_take(&params, m, 0, w);
        for (size_t k = 0; k < params.size; k++)
            w64[k] = (double)w[k];
        for (size_t k = 0; k < n; k++)
            prompt64[k] = (double)(prompt[k] = (float)sin(0.7 * (double)k));
        make_slots(slot);
        kh_packed text = { ROWS, START, slot, AT, FIRST_AT };
        kh_lm_loss how = { .target = TARGET,
            .token = TOKEN,
            .label = LABEL,
            .n_token = 3,
            .n_label = 2,
            .scale = 0.5 };
        kh_tape_f64 tape64 = { 0 };
        kh_tape_f32 tape = { 0 };
        kh_pass_f64 pass64 = {
            .w = w64, .text = &text, .loss = &how, .prompt = prompt64, .n_prompt = SLOTS
        };
        kh_pass_f32 pass = { .w = w,
            .text = &text,
            .loss = &how,
            .prompt = prompt,
            .n_prompt = SLOTS,
            .d_prompt = slope };
        pass64.d_prompt = slope64;
        assert_int_equal(kh_backward_f64(&tape64, &params, &pass64, &loss, &err), 0);
        pass64.d_prompt = NULL;
        for (size_t k = 0; k < n; k++) {
            const double step = 1e-6;
            double old = prompt64[k];
            prompt64[k] = old + step;
            kh_backward_f64(&tape64, &params, &pass64, &up, &err);
            prompt64[k] = old - step;
            kh_backward_f64(&tape64, &params, &pass64, &down, &err);
            prompt64[k] = old;
            worst = fmax(worst, fabs((up - down) / (2 * step) - slope64[k]));
        }
        if (!(worst < 1e-7))
            fail_msg("%s: a slope is off by %g", NAMES[i], worst);
        double f32;
        assert_int_equal(kh_backward_f32(&tape, &params, &pass, &f32, &err), 0);
        assert_true(fabs(f32 - loss) < 1e-5);
        for (size_t k = 0; k < n; k++)
            assert_true(fabs((double)slope[k] - slope64[k]) < 1e-4);
        kh_tape_f64_free(&tape64);
        kh_tape_f32_free(&tape);
        free(w);
        free(w64);
        kh_params_free(&params);
        kh_model_close(m);
    }
}

/* The log-probabilities are those of the engine. */
static void losses_are_the_engines(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char path[256];
        kh_params params;
        kh_engine *e;
        kh_slot slot[20];
        kh_err err;
        double loss;
        snprintf(path, sizeof path, DECODERS "%s", NAMES[i]);
        kh_model *m = open_model(path);
        assert_int_equal(kh_params_init(&params, &m->config, &err), 0);
        float *w = malloc(params.size * sizeof *w), prompt[200], logprob[4], logits[4];
        kh_params_take(&params, m, 0, w);
        for (int k = 0; k < 200; k++)
            prompt[k] = (float)cos(0.3 * k);
        make_slots(slot);
        int32_t id[20];
        for (int t = 0; t < 20; t++)
            id[t] = slot[t].id;
        kh_packed text = { ROWS, START, slot, AT, FIRST_AT };
        kh_lm_loss how = { .target = TARGET,
            .token = TOKEN,
            .label = LABEL,
            .n_token = 3,
            .n_label = 2,
            .scale = 0.5 };
        kh_tape_f32 tape = { 0 };
        kh_pass_f32 pass = { .w = w,
            .text = &text,
            .loss = &how,
            .prompt = prompt,
            .n_prompt = SLOTS,
            .logprob = logprob };
        assert_int_equal(kh_backward_f32(&tape, &params, &pass, &loss, &err), 0);
        const kh_word word[] = { { .id = &TOKEN[0], .n_id = 1, .label = 0 },
            { .id = &TOKEN[1], .n_id = 1, .label = 1 },
            { .id = &TOKEN[2], .n_id = 1, .label = 1 } };
        const int one = 1, where[] = { 1, 6 }, none[] = { 0, 0 };
        const size_t start[] = { 0, 9, 20 };
        kh_words words = {
            .word = word, .n_word = 3, .n_label = 2, .n_mask = &one, .n_variant = 1
        };
        kh_batch b = { .n_row = 2,
            .n_variant = 1,
            .n_seq = 2,
            .n_slot = SLOTS,
            .max_len = 11,
            .id = id,
            .start = start,
            .n_mask = &one,
            .mask = none,
            .slot = where,
            .label = none,
            .row = none };
        assert_int_equal(kh_engine_new(&e, m, KH_F32, &err), 0);
        kh_question q = { &b, &words, KH_INJECT_EMBED_INPLACE, prompt, 1 };
        assert_int_equal(kh_engine_score(e, &q, logits, &err), 0);
        for (int r = 0; r < ROWS; r++) {
            double a = (double)logits[2 * r], c = (double)logits[2 * r + 1],
                   all = log(exp(a) + exp(c));
            assert_true(fabs(a - all - (double)logprob[2 * r]) < 2e-5);
            assert_true(fabs(c - all - (double)logprob[2 * r + 1]) < 2e-5);
        }
        kh_tape_f32_free(&tape);
        free(w);
        kh_params_free(&params);
        kh_engine_free(e);
    }
}

static void other_gradients_are_refused(void **state) {
    (void)state;
    kh_model *m = open_model(DECODERS "llama");
    kh_params params;
    kh_slot slot[20];
    kh_tape_f32 tape = { 0 };
    kh_err err = { 0 };
    double loss;
    assert_int_equal(kh_params_init(&params, &m->config, NULL), 0);
    float *w = calloc(params.size, sizeof *w);
    make_slots(slot);
    kh_packed text = { ROWS, START, slot, AT, FIRST_AT };
    kh_lm_loss how = {
        .target = TARGET, .token = TOKEN, .label = LABEL, .n_token = 3, .n_label = 2, .scale = 0.5
    };
    kh_pass_f32 pass = { .w = w, .text = &text, .loss = &how, .dw = w };
    assert_int_equal(kh_backward_f32(&tape, &params, &pass, &loss, &err), KH_EUNSUPPORTED);
    assert_says(&err, "gradients are computed for soft prompts only");
    free(w);
    kh_params_free(&params);
    kh_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(losses_are_the_engines),
        cmocka_unit_test(other_gradients_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
