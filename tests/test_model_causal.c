/* test_model_causal.c - the engine on decoders: against PyTorch's numbers and the plain pass, and
 * the same bits however a question is cut, ordered, cached or spread. */
#include "model_vectors.h"

#include "model/engine.h"
#include "model/kv_cache.h"
#include "model/packed.h"
#include "model/reference.h"

#define DECODERS "tests/vectors/decoders/"
static const char *const NAMES[] = { "gpt2", "gpt2-no-prefix", "llama", "llama-linear", "llama3",
    "mistral", "qwen2", "qwen3", "gemma3" };
enum { N_NAMES = sizeof NAMES / sizeof *NAMES, ROWS = 5, SLOTS = 3, PROMPTS = 4, MOST = 24 };

static kh_engine *open_engine(const char *name, kh_precision precision) {
    char path[256];
    kh_engine *e;
    kh_err err;
    snprintf(path, sizeof path, DECODERS "%s", name);
    if (kh_engine_new(&e, open_model(path), precision, &err) != 0)
        fail_msg("%s", err.msg);
    return e;
}

static void hidden_states_are_pytorchs(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++) {
        char path[256];
        vector_case c;
        kh_engine *e = open_engine(NAMES[i], KH_F32);
        size_t H = (size_t)kh_engine_model(e)->config.hidden;
        snprintf(path, sizeof path, DECODERS "%s/expected.txt", NAMES[i]);
        FILE *f = fopen(path, "r");
        assert_true(f && vector_next(f, &c));
        float *out = malloc((size_t)c.n_id * H * sizeof *out), logits[64];
        double hidden = 0, logit = 0;
        kh_single one;
        kh_err err;
        kh_single_init(&one, c.id, c.n_id);
        for (int l = 0; l < c.layers; l++) {
            size_t n = (size_t)c.n_id * H;
            assert_int_equal(
                kh_engine_hidden(e, &(kh_question){ .batch = &one.batch }, l, out, &err), 0);
            double worst = vector_difference(out, c.hidden + (size_t)l * n, n);
            if (!(worst < 2e-5))
                fail_msg("%s: layer %d is off by %g", NAMES[i], l, worst);
            hidden = fmax(hidden, worst);
        }
        for (int a = 0; a < c.n_at; a++) { /* log-probabilities are logits but for a constant */
            assert_int_equal(kh_engine_vocabulary(e, &(kh_question){ .batch = &one.batch },
                                 &c.at[a], 1, logits, &err),
                0);
            double shift = (double)logits[0] - c.logits[a][0];
            for (int v = 0; v < 64; v++) {
                double off = fabs((double)logits[v] - c.logits[a][v] - shift);
                assert_true(off < 2e-5);
                logit = fmax(logit, off);
            }
        }
        print_message(
            "# %s: off by %.1e (hidden states), %.1e (logits)\n", NAMES[i], hidden, logit);
        free(out);
        vector_free(&c);
        fclose(f);
        kh_engine_free(e);
    }
}

/* Five rows of different lengths with slots, before their texts or behind them; and words. */
typedef struct sample {
    int32_t id[ROWS * MOST], plain[PROMPTS][ROWS][MOST];
    int length[ROWS], slot[ROWS], mask[ROWS], n_mask, label[ROWS], row[ROWS];
    size_t start[ROWS + 1];
    float *prompt;
    int32_t prompt_id[PROMPTS][SLOTS];
    kh_batch batch;
} sample;

static const int32_t WORD_ID[5][3] = { { 7 }, { 9, 11 }, { 9, 12, 30 }, { 9, 12 }, { 31 } };
static const kh_word MULTIPLE[] = { { .id = WORD_ID[0], .n_id = 1, .label = 0 },
    { .id = WORD_ID[1], .n_id = 2, .label = 0 }, { .id = WORD_ID[2], .n_id = 3, .label = 1 },
    { .id = WORD_ID[3], .n_id = 2, .label = 2 } };
static const kh_word SINGLE[] = { { .id = WORD_ID[0], .n_id = 1, .label = 0 },
    { .id = WORD_ID[4], .n_id = 1, .label = 1 } };
static const int ONE = 1;
static const kh_words MULTIPLE_WORDS = {
    .word = MULTIPLE, .n_word = 4, .n_label = 3, .n_mask = &ONE, .n_variant = 1
};
static const kh_words SINGLE_WORDS = {
    .word = SINGLE, .n_word = 2, .n_label = 2, .n_mask = &ONE, .n_variant = 1
};

/* The soft prompts are word embeddings, so that every pair is also a plain sequence. */
static void make_sample(sample *s, const kh_model *m, bool after) {
    size_t H = (size_t)m->config.hidden, at = 0;
    *s = (sample){ .n_mask = 1 };
    s->prompt = malloc(PROMPTS * SLOTS * H * sizeof *s->prompt);
    for (int p = 0; p < PROMPTS; p++)
        for (int k = 0; k < SLOTS; k++) {
            float *row = s->prompt + ((size_t)p * SLOTS + (size_t)k) * H;
            s->prompt_id[p][k] = (p * 17 + k * 5 + 3) % 64;
            kh_tensor_row(&m->w.word, s->prompt_id[p][k], row);
            for (size_t i = 0; i < H; i++)
                row[i] *= kh_config_word_scale(&m->config);
        }
    for (int r = 0; r < ROWS; r++) {
        int text = 3 + (r * 7) % 9, n = 0;
        s->start[r] = at;
        s->slot[r] = after ? 1 + text : 1;
        s->id[at + (size_t)n++] = 1; /* BOS */
        for (int k = 0; k < SLOTS && !after; k++)
            s->id[at + (size_t)n++] = 0;
        if (!after)
            s->id[at + (size_t)n++] = 6; /* the same in all rows */
        for (int k = 0; k < text; k++)
            s->id[at + (size_t)n++] = 3 + (r * 31 + k * 13) % 60;
        for (int k = 0; k < SLOTS && after; k++)
            s->id[at + (size_t)n++] = 0;
        s->id[at + (size_t)n++] = 5;
        s->id[at + (size_t)n++] = 8;
        s->length[r] = n;
        s->row[r] = r;
        for (int p = 0; p < PROMPTS; p++)
            for (int k = 0; k < n; k++) {
                bool soft = k >= s->slot[r] && k < s->slot[r] + SLOTS;
                s->plain[p][r][k] = soft ? s->prompt_id[p][k - s->slot[r]] : s->id[at + (size_t)k];
            }
        at += (size_t)n;
        s->batch.max_len = n > s->batch.max_len ? n : s->batch.max_len;
    }
    s->start[ROWS] = at;
    s->batch.n_row = s->batch.n_seq = ROWS;
    s->batch.n_variant = 1;
    s->batch.n_slot = SLOTS;
    s->batch.id = s->id, s->batch.start = s->start, s->batch.n_mask = &s->n_mask;
    s->batch.mask = s->mask, s->batch.slot = s->slot, s->batch.label = s->label;
    s->batch.row = s->row;
}

/* The sum of the log-probabilities of a word's tokens after a sequence, by the plain pass. */
static double reference_score(const kh_model *m, const int32_t *id, int n, const kh_word *w) {
    int32_t all[MOST + 4];
    float logits[64];
    double sum = 0;
    memcpy(all, id, (size_t)n * sizeof *id);
    for (int t = 0; t < w->n_id; t++) {
        int at = n + t - 1;
        double total = 0;
        kh_input in = { .id = all, .n_id = n + t };
        assert_int_equal(
            kh_reference_run(m, &in, &(kh_output){ .at = &at, .n_at = 1, .logits = logits }, NULL),
            0);
        for (int v = 0; v < 64; v++)
            total += exp((double)logits[v]);
        sum += (double)logits[w->id[t]] - log(total);
        all[n + t] = w->id[t];
    }
    return sum;
}

static void ask(kh_engine *e, const sample *s, const kh_batch *b, const kh_words *w, int p0, int n,
    float *out) {
    kh_err err;
    size_t size = SLOTS * (size_t)kh_engine_model(e)->config.hidden;
    kh_question q = { b, w, KH_INJECT_EMBED_INPLACE, s->prompt + (size_t)p0 * size, n };
    if (kh_engine_score(e, &q, out, &err) != 0)
        fail_msg("%s", err.msg);
}

static void words_are_scored_as_the_plain_pass_does(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++)
        for (int after = 0; after < 2; after++) {
            char path[256];
            sample s;
            snprintf(path, sizeof path, DECODERS "%s", NAMES[i]);
            kh_model *m = open_model(path);
            kh_engine *e = open_engine(NAMES[i], KH_F32);
            float out[PROMPTS * ROWS * 3];
            make_sample(&s, m, after);
            ask(e, &s, &s.batch, &MULTIPLE_WORDS, 0, PROMPTS, out);
            for (int p = 0; p < PROMPTS; p++)
                for (int r = 0; r < ROWS; r++) {
                    double w[4];
                    for (int k = 0; k < 4; k++)
                        w[k] = reference_score(m, s.plain[p][r], s.length[r], &MULTIPLE[k]);
                    const float *have = out + (p * ROWS + r) * 3;
                    double want[3] = { log(exp(w[0]) + exp(w[1])), w[2], w[3] };
                    for (int k = 0; k < 3; k++)
                        if (!(fabs((double)have[k] - want[k]) < 2e-5))
                            fail_msg("%s: prompt %d, row %d, label %d: %g, expected %g", NAMES[i],
                                p, r, k, (double)have[k], want[k]);
                }
            free(s.prompt);
            kh_engine_free(e);
            kh_model_close(m);
        }
}

/* Rows backwards, in memory of their own. */
static void reverse(const sample *s, sample *out) {
    *out = *s;
    size_t at = 0;
    for (int r = 0; r < ROWS; r++) {
        int from = ROWS - 1 - r;
        out->start[r] = at;
        out->slot[r] = s->slot[from];
        memcpy(out->id + at, s->id + s->start[from], (size_t)s->length[from] * sizeof *s->id);
        at += (size_t)s->length[from];
    }
    out->start[ROWS] = at;
    out->batch.id = out->id, out->batch.start = out->start, out->batch.slot = out->slot;
}

static void bits_depend_on_nothing_else(void **state) {
    (void)state;
    static const kh_precision PRECISION[] = { KH_F32, KH_BF16, KH_INT8 };
    for (int i = 0; i < N_NAMES; i++)
        for (int v = 0; v < 12; v++) {
            bool after = v & 1, single = v & 2;
            const kh_words *words = single ? &SINGLE_WORDS : &MULTIPLE_WORDS;
            kh_engine *e = open_engine(NAMES[i], PRECISION[v / 4]);
            size_t n_label = (size_t)words->n_label, row = n_label * sizeof(float);
            float want[PROMPTS * ROWS * 3], have[PROMPTS * ROWS * 3];
            sample s, back;
            make_sample(&s, kh_engine_model(e), after);
            reverse(&s, &back);
            kh_threads_set(1);
            ask(e, &s, &s.batch, words, 0, PROMPTS, want);
            for (int threads = 1; threads <= 5; threads += 1 + threads) { /* 1, 3 */
                kh_threads_set(threads == 3 ? 5 : threads);
                ask(e, &s, &s.batch, words, 0, PROMPTS, have); /* texts are cached by now */
                assert_memory_equal(want, have, PROMPTS * ROWS * row);
            }
            kh_threads_set(2);
            kh_engine_cache(e, 1); /* nothing fits */
            ask(e, &s, &s.batch, words, 0, PROMPTS, have);
            assert_memory_equal(want, have, PROMPTS * ROWS * row);
            kh_engine_cache(e, 0);
            for (int p = PROMPTS - 1; p >= 0; p--) { /* one prompt at a time, rows backwards */
                ask(e, &s, &back.batch, words, p, 1, have);
                for (size_t r = 0; r < ROWS; r++)
                    assert_memory_equal(want + ((size_t)p * ROWS + r) * n_label,
                        have + (ROWS - 1 - r) * n_label, row);
            }
            for (size_t r = 0; r < ROWS; r++) { /* one row at a time */
                kh_batch one = s.batch;
                one.n_row = one.n_seq = 1;
                one.start += r, one.slot += r, one.mask += r, one.label += r, one.row += r;
                ask(e, &s, &one, words, 1, 1, have);
                assert_memory_equal(want + (ROWS + r) * n_label, have, row);
            }
            free(s.prompt);
            kh_engine_free(e);
        }
    kh_threads_set(0);
}

/* Rounded precisions stay near f32. */
static void precisions_agree(void **state) {
    (void)state;
    for (int i = 0; i < N_NAMES; i++)
        for (int v = 0; v < 2; v++) {
            float exact[PROMPTS * ROWS * 2], rounded[PROMPTS * ROWS * 2], worst = 0;
            kh_engine *f32 = open_engine(NAMES[i], KH_F32),
                      *other = open_engine(NAMES[i], v ? KH_INT8 : KH_BF16);
            sample s;
            make_sample(&s, kh_engine_model(f32), true);
            ask(f32, &s, &s.batch, &SINGLE_WORDS, 0, PROMPTS, exact);
            ask(other, &s, &s.batch, &SINGLE_WORDS, 0, PROMPTS, rounded);
            for (int k = 0; k < PROMPTS * ROWS * 2; k++)
                worst = fmaxf(worst, fabsf(exact[k] - rounded[k]));
            if (!(worst < 0.3f))
                fail_msg("%s: %g away from f32", NAMES[i], (double)worst);
            free(s.prompt);
            kh_engine_free(f32);
            kh_engine_free(other);
        }
}

static void questions_that_are_refused(void **state) {
    (void)state;
    kh_engine *e = open_engine("llama", KH_F32);
    sample s;
    float out[PROMPTS * ROWS * 3];
    kh_err err = { 0 };
    make_sample(&s, kh_engine_model(e), false);
    kh_question q = { &s.batch, &SINGLE_WORDS, KH_INJECT_POST_LN_ADD, s.prompt, 1 };
    assert_int_equal(kh_engine_score(e, &q, out, &err), KH_EUNSUPPORTED);
    assert_says(&err, "post-ln-add has no place in it; take embed-inplace");
    int32_t id[64] = { 1 };
    kh_single one;
    kh_single_init(&one, id, 49);
    q = (kh_question){ .batch = &one.batch, .words = &SINGLE_WORDS };
    assert_int_equal(kh_engine_score(e, &q, out, &err), KH_ELIMIT);
    assert_says(&err, "a sequence of 49 tokens is longer than the 48 that the model can take");
    kh_single_init(&one, id, 48);
    q.words = &MULTIPLE_WORDS;
    assert_int_equal(kh_engine_score(e, &q, out, &err), KH_ELIMIT);
    assert_says(&err, "a sequence of 50 tokens, label word included");
    free(s.prompt);
    kh_engine_free(e);
}

/* First come stays, what nobody asks for makes way, and what was not computed is forgotten. */
static void texts_that_are_kept(void **state) {
    (void)state;
    kh_kv_cache *c = kh_kv_cache_new(256);
    const int32_t a[] = { 1, 2 }, b[] = { 1, 3 }, d[] = { 1, 4 };
    bool known;
    kh_kv_cache_begin(c);
    float *first = kh_kv_cache_get(c, a, 0, 2, 128, &known);
    assert_true(first && !known);
    assert_ptr_equal(kh_kv_cache_get(c, a, 0, 2, 128, &known), first); /* twice in one question */
    assert_true(known);
    assert_non_null(kh_kv_cache_get(c, b, 0, 2, 128, &known));
    assert_null(kh_kv_cache_get(c, d, 0, 2, 128, &known)); /* full */
    kh_kv_cache_settle(c, true);
    for (int i = 0; i < 65; i++) {
        kh_kv_cache_begin(c);
        assert_ptr_equal(kh_kv_cache_get(c, a, 0, 2, 128, &known), first);
    }
    assert_non_null(kh_kv_cache_get(c, d, 0, 2, 128, &known)); /* in the place of b */
    assert_false(known);
    kh_kv_cache_settle(c, false);
    assert_int_equal(kh_kv_cache_held(c), 128);
    assert_ptr_equal(kh_kv_cache_get(c, a, 0, 2, 128, &known), first);
    kh_kv_cache_free(c);
}

/* A prompt of `head` ids before each row, which ends in two ids that all have; no slots. */
typedef struct prompted {
    int32_t id[ROWS * 40];
    size_t start[ROWS + 1];
    int slot[ROWS], mask[ROWS], label[ROWS], row[ROWS];
    kh_batch batch;
} prompted;

static void make_prompted(prompted *p, int head, int salt) {
    size_t at = 0;
    *p = (prompted){ .slot = { -1, -1, -1, -1, -1 } };
    for (int r = 0; r < ROWS; r++) {
        int text = 2 + (r * 7) % 9, n = 0;
        p->start[r] = at;
        p->id[at + (size_t)n++] = 1;
        for (int k = 0; k < head; k++) /* salt: another prompt, from the twelfth id on */
            p->id[at + (size_t)n++] = 3 + (k * 11 + (k > 10 ? salt : 0)) % 60;
        for (int k = 0; k < text; k++)
            p->id[at + (size_t)n++] = 3 + (r * 31 + k * 13 + 1) % 60;
        p->id[at + (size_t)n++] = 5;
        p->id[at + (size_t)n++] = 8;
        p->batch.max_len = n > p->batch.max_len ? n : p->batch.max_len;
        p->row[r] = r;
        at += (size_t)n;
    }
    p->start[ROWS] = at;
    p->batch.n_row = p->batch.n_seq = ROWS;
    p->batch.n_variant = 1;
    p->batch.id = p->id, p->batch.start = p->start, p->batch.n_mask = &ONE;
    p->batch.mask = p->mask, p->batch.slot = p->slot, p->batch.label = p->label;
    p->batch.row = p->row;
}

static kh_batch row_of(const prompted *p, int r) {
    kh_batch one = p->batch;
    one.n_row = one.n_seq = 1;
    one.start += r, one.slot += r, one.mask += r, one.label += r, one.row += r;
    return one;
}

static void ask_plain(kh_engine *e, const kh_batch *b, const kh_words *w, float *out) {
    kh_err err;
    if (kh_engine_score(e, &(kh_question){ .batch = b, .words = w, .n_prompt = 1 }, out, &err) != 0)
        fail_msg("%s", err.msg);
}

/* The rows of each prompt one by one, then together, by an engine that remembers the questions
 * before; beside one that does not. */
static void same_as_forgetful(
    kh_engine *e, kh_engine *forgetful, const prompted *p, int n, const kh_words *w) {
    float want[ROWS * 3], have[ROWS * 3];
    size_t n_label = (size_t)w->n_label;
    for (int i = 0; i < n; i++) {
        kh_engine_cache(forgetful, 1);
        ask_plain(forgetful, &p[i].batch, w, want);
        for (int r = 0; r < ROWS; r++) {
            kh_batch one = row_of(&p[i], r);
            ask_plain(e, &one, w, have);
            assert_memory_equal(want + (size_t)r * n_label, have, n_label * sizeof *have);
        }
        ask_plain(e, &p[i].batch, w, have);
        assert_memory_equal(want, have, ROWS * n_label * sizeof *have);
    }
}

static void beginnings_are_kept_with_the_same_bits(void **state) {
    (void)state;
    static const kh_precision PRECISION[] = { KH_F32, KH_BF16, KH_INT8 };
    for (int i = 0; i < N_NAMES; i++)
        for (int v = 0; v < 6; v++) {
            const kh_words *words = v & 1 ? &SINGLE_WORDS : &MULTIPLE_WORDS;
            kh_engine *e = open_engine(NAMES[i], PRECISION[v / 2]),
                      *forgetful = open_engine(NAMES[i], PRECISION[v / 2]);
            prompted p[3];
            make_prompted(&p[0], 20, 0);
            make_prompted(&p[1], 20, 7);
            make_prompted(&p[2], 14, 0);
            for (int again = 0; again < 2; again++)
                same_as_forgetful(e, forgetful, p, 3, words);
            assert_true(e->heads->n > 0);
            assert_int_equal(forgetful->heads->n, 0);
            kh_engine_free(e);
            kh_engine_free(forgetful);
        }
}

/* Texts that stand first, with several endings: each text once, whatever comes after it. Endings of
 * one batch are alike; rows come in two orders and in parts. */
static void texts_that_stand_first_are_kept_with_the_same_bits(void **state) {
    (void)state;
    static const kh_precision PRECISION[] = { KH_F32, KH_BF16, KH_INT8 };
    for (int i = 0; i < N_NAMES; i++)
        for (int v = 0; v < 6; v++) {
            const kh_words *words = v & 1 ? &SINGLE_WORDS : &MULTIPLE_WORDS;
            size_t n_label = (size_t)words->n_label, all = ROWS * n_label * sizeof(float);
            kh_engine *e = open_engine(NAMES[i], PRECISION[v / 2]);
            float want[ROWS * 3], have[ROWS * 3];
            for (int round = 0; round < 2; round++) {
                kh_engine_keep_texts(e, true);
                kh_engine_keep_texts(e, true);
                size_t held = 0;
                for (int ending = 0; ending < 3; ending++) {
                    prompted p;
                    make_prompted(&p, 0, 0);
                    for (int r = 0; r < ROWS; r++)
                        p.id[p.start[r + 1] - 2] = 5 + ending;
                    kh_engine_keep_texts(e, false);
                    int keepers = e->keepers;
                    kh_kv_cache *texts = e->texts;
                    e->keepers = 0, e->texts = NULL; /* as if they were not kept */
                    ask_plain(e, &p.batch, words, want);
                    e->keepers = keepers, e->texts = texts;
                    kh_engine_keep_texts(e, true);
                    ask_plain(e, &p.batch, words, have);
                    assert_memory_equal(want, have, all);
                    kh_batch part = p.batch; /* the last three rows */
                    part.n_row = part.n_seq = 3;
                    part.start += 2, part.slot += 2, part.mask += 2, part.label += 2, part.row += 2;
                    ask_plain(e, &part, words, have);
                    assert_memory_equal(want + 2 * n_label, have, 3 * n_label * sizeof *have);
                    size_t now = kh_kv_cache_held(e->texts);
                    assert_true(now > 0 && (ending == 0 || now == held)); /* nothing is new */
                    held = now;
                }
                kh_engine_keep_texts(e, false);
                assert_non_null(e->texts);
                kh_engine_keep_texts(e, false);
                assert_null(e->texts);
            }
            kh_engine_free(e);
        }
}

/* Asked row by row, the second row tells what a prompt is; then nothing more has to be kept. */
static void a_prompt_is_computed_once(void **state) {
    (void)state;
    kh_engine *e = open_engine("llama", KH_F32);
    prompted p;
    float out[3];
    make_prompted(&p, 20, 0);
    for (int r = 0; r < ROWS; r++) {
        kh_batch one = row_of(&p, r);
        ask_plain(e, &one, &SINGLE_WORDS, out);
        assert_int_equal(e->heads->n, r == 0 ? 1 : 2);
    }
    assert_int_equal(e->heads->head[1].n, 21);
    kh_engine_free(e);
}

/* The longest shared beginning counts, short ones do not, and what was used longest ago makes way.
 */
static void heads_that_are_kept(void **state) {
    (void)state;
    enum { N = 10, LAYERS = 2, WIDTH = 3 };
    int32_t a[N], b[N], d[N];
    float kv[LAYERS * N * WIDTH];
    size_t each = N * (LAYERS * WIDTH * sizeof *kv + sizeof *a);
    int shared;
    for (int i = 0; i < N; i++)
        a[i] = i, b[i] = i < 8 ? i : 40 + i, d[i] = i < 7 ? i : 80 + i;
    for (int i = 0; i < LAYERS * N * WIDTH; i++)
        kv[i] = (float)i;
    kh_kv_heads *h = kh_kv_heads_new(2 * each, LAYERS, WIDTH);
    assert_null(kh_kv_heads_find(h, a, N, &shared));
    kh_kv_heads_keep(h, NULL, 0, a, 7, kv); /* too short */
    assert_int_equal(h->n, 0);
    kh_kv_heads_keep(h, NULL, 0, a, N, kv);
    const kh_kv_head *head = kh_kv_heads_find(h, a, N, &shared);
    assert_true(head && shared == N && head->n == N);
    assert_memory_equal(head->kv, kv, sizeof kv);
    assert_null(kh_kv_heads_find(h, d, N, &shared));
    head = kh_kv_heads_find(h, b, N, &shared);
    assert_true(head && shared == 8);
    kh_kv_heads_keep(
        h, head, 8, b, N, (float[]){ -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12 });
    head = kh_kv_heads_find(h, b, N, &shared);
    assert_true(head && shared == N);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < N * WIDTH; i++) {
            float want =
                i < 8 * WIDTH ? kv[l * N * WIDTH + i] : (float)-(l * 6 + i - 8 * WIDTH + 1);
            assert_true(head->kv[l * N * WIDTH + i] == want);
        }
    kh_kv_heads_keep(h, NULL, 0, d, N, kv); /* in the place of a */
    assert_int_equal(h->n, 2);
    assert_true(h->held == 2 * each);
    assert_non_null(kh_kv_heads_find(h, b, N, &shared));
    assert_true(kh_kv_heads_find(h, a, N, &shared) && shared == 8);
    assert_true(kh_kv_heads_find(h, d, N, &shared) && shared == N);
    kh_kv_heads_free(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states_are_pytorchs),
        cmocka_unit_test(words_are_scored_as_the_plain_pass_does),
        cmocka_unit_test(bits_depend_on_nothing_else),
        cmocka_unit_test(precisions_agree),
        cmocka_unit_test(questions_that_are_refused),
        cmocka_unit_test(texts_that_are_kept),
        cmocka_unit_test(beginnings_are_kept_with_the_same_bits),
        cmocka_unit_test(texts_that_stand_first_are_kept_with_the_same_bits),
        cmocka_unit_test(a_prompt_is_computed_once),
        cmocka_unit_test(heads_that_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
