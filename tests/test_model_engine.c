/* test_model_engine.c - the fast forward pass against PyTorch's numbers and against the plain one,
 * and its promise: a sequence's bits depend on nothing but the sequence, its prompt and the
 * weights. */
#include "model_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "model/engine.h"
#include "model/random_model.h"
#include "model/reference.h"

#include <math.h>

#define VECTORS "tests/vectors/models/"

static kh_engine *open_engine(const char *dir, kh_precision precision) {
    kh_engine *e;
    kh_err err;
    if (kh_engine_new(&e, open_model(dir), precision, &err) != 0)
        fail_msg("%s", err.msg);
    return e;
}

/* ------------------------------------------------------------------------------ golden vectors */

/* A case as a batch of one sequence: rows that are embedded stand there as ids too, which must not
 * matter. */
typedef struct one {
    int32_t id[256];
    size_t start[2];
    int mask, slot, n_mask;
    kh_batch batch;
} one;

static void one_init(one *o, const vector_case *c, int at) {
    bool embedded = c->inject == KH_INJECT_EMBED_PREFIX || c->inject == KH_INJECT_EMBED_INPLACE;
    int n_slot = c->inject == KH_INJECT_NONE ? 0 : c->n_prompt, n = 0;
    *o = (one){ .mask = at,
        .n_mask = 1,
        .slot = n_slot == 0                       ? -1
            : c->inject == KH_INJECT_EMBED_PREFIX ? 0
                                                  : 1 };
    for (int i = 0; i <= c->n_id; i++) {
        for (int s = 0; embedded && i == o->slot && s < n_slot; s++)
            o->id[n++] = 7;
        if (i < c->n_id)
            o->id[n++] = c->id[i];
    }
    o->start[1] = (size_t)n;
    o->batch = (kh_batch){ .n_row = 1,
        .n_variant = 1,
        .n_seq = 1,
        .n_slot = n_slot,
        .max_len = n,
        .id = o->id,
        .start = o->start,
        .n_mask = &o->n_mask,
        .mask = &o->mask,
        .slot = &o->slot };
}

static void check_hidden(kh_engine *e, const vector_case *c, double limit) {
    one o;
    kh_err err;
    one_init(&o, c, 0);
    kh_question ask = {
        .batch = &o.batch, .inject = c->inject, .prompt = c->prompt, .n_prompt = c->n_prompt ? 1 : 0
    };
    size_t states = (size_t)c->tokens * (size_t)c->width;
    float *hidden = malloc((states + 1) * sizeof *hidden);
    for (int l = 0; c->hidden && l < c->layers; l++) {
        if (kh_engine_hidden(e, &ask, l, hidden, &err) != 0)
            fail_msg("%s: %s", c->name, err.msg);
        double off = vector_error(hidden, c->hidden + (size_t)l * states, states);
        if (off > limit)
            fail_msg("%s: layer %d is off by %g", c->name, l, off);
    }
    free(hidden);
}

static void check_logits(kh_engine *e, const vector_case *c, double limit) {
    kh_err err;
    float *have = malloc((size_t)(c->n_vocab + 1) * sizeof *have);
    for (int i = 0; i < c->n_at; i++) {
        one o;
        one_init(&o, c, 0);
        kh_question ask = { .batch = &o.batch,
            .inject = c->inject,
            .prompt = c->prompt,
            .n_prompt = c->n_prompt ? 1 : 0 };
        if (kh_engine_vocabulary(e, &ask, &c->at[i], 1, have, &err) != 0)
            fail_msg("%s: %s", c->name, err.msg);
        double sum = 0, worst = 0;
        for (int v = 0; v < c->n_vocab; v++)
            sum += exp(c->logits[i][v]);
        for (int v = 0; v < c->n_vocab; v++)
            worst = fmax(worst, fabs(c->logits[i][v] - log(sum) - have[v]));
        if (!(worst < limit * 10)) /* the numbers are around 10 */
            fail_msg("%s: log-probabilities at %d are off by %g", c->name, c->at[i], worst);
    }
    free(have);
}

static void check_model(const char *name, int n_cases) {
    char path[256];
    snprintf(path, sizeof path, VECTORS "%s", name);
    kh_engine *e = open_engine(path, KH_F32);
    snprintf(path, sizeof path, VECTORS "%s/expected.txt", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    vector_case c;
    int n = 0;
    for (; vector_next(f, &c); n++) {
        check_hidden(e, &c, 1e-5);
        if (kh_engine_model(e)->head)
            check_logits(e, &c, 1e-5);
        vector_free(&c);
    }
    vector_free(&c);
    fclose(f);
    assert_int_equal(n, n_cases);
    kh_engine_free(e);
}

static void bert(void **state) {
    (void)state;
    check_model("bert", 7);
}
static void bert_with_old_names_and_own_decoder(void **state) {
    (void)state;
    check_model("bert-old-names", 1);
}
static void bert_without_head(void **state) {
    (void)state;
    check_model("bert-no-head", 1);
}
static void roberta(void **state) {
    (void)state;
    check_model("roberta", 7);
}
static void roberta_f16(void **state) {
    (void)state;
    check_model("roberta-f16", 1);
}
static void roberta_bf16(void **state) {
    (void)state;
    check_model("roberta-bf16", 1);
}
static void electra(void **state) {
    (void)state;
    check_model("electra", 4);
}
static void albert(void **state) {
    (void)state;
    check_model("albert", 4);
}
static void modernbert(void **state) {
    (void)state;
    check_model("modernbert", 7);
}
static void distilbert(void **state) {
    (void)state;
    check_model("distilbert", 1);
}

/* ------------------------------------------------------------------------------ random batches */

/* A ragged batch with slots, made up: n_seq sequences of 12 to 36 tokens, masks behind the slots.
 */
enum { MAX_SEQ = 40, N_SLOT = 5, N_PROMPT = 7, H = 32 };
typedef struct made {
    int32_t id[MAX_SEQ * 40];
    size_t start[MAX_SEQ + 1];
    int mask[MAX_SEQ], slot[MAX_SEQ], n_mask[2];
    float prompt[N_PROMPT * N_SLOT * H];
    kh_batch batch;
} made;

static void made_init(made *m, int n_row, int n_variant, bool slots_move) {
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 1, 0);
    *m = (made){ .n_mask = { 1, 2 } };
    int n_seq = n_row * n_variant;
    for (int s = 0; s < n_seq; s++) {
        int length = 12 + (int)kh_rng_below(&r, 25);
        m->start[s + 1] = m->start[s] + (size_t)length;
        for (size_t i = m->start[s]; i < m->start[s + 1]; i++)
            m->id[i] = 5 + (int32_t)kh_rng_below(&r, 110);
        m->slot[s] = slots_move ? (int)kh_rng_below(&r, 4) : 1;
        m->mask[s] = m->slot[s] + N_SLOT + (int)kh_rng_below(&r, 3);
        for (int i = 0; i < N_SLOT; i++)
            m->id[m->start[s] + (size_t)(m->slot[s] + i)] = 60 + i;
    }
    for (int i = 0; i < N_PROMPT * N_SLOT * H; i++)
        m->prompt[i] = (float)kh_rng_normal(&r);
    m->batch = (kh_batch){ .n_row = n_row,
        .n_variant = n_variant,
        .n_seq = n_seq,
        .n_slot = N_SLOT,
        .max_len = 36,
        .id = m->id,
        .start = m->start,
        .n_mask = m->n_mask,
        .mask = m->mask,
        .slot = m->slot };
}

static const int32_t ID[][2] = { { 10 }, { 20 }, { 30 }, { 40, 41 } };
static const kh_word SINGLE[] = { { .label = 0, .id = ID[0], .n_id = 1 },
    { .label = 1, .id = ID[1], .n_id = 1 }, { .label = 1, .id = ID[2], .n_id = 1 } };
static const kh_word SEVERAL[] = { { .label = 0, .id = ID[0], .n_id = 1 },
    { .label = 0, .id = ID[3], .n_id = 2 }, { .label = 1, .id = ID[2], .n_id = 1 } };
static const int MASKS[] = { 1, 2 };
static const kh_words SINGLE_WORDS = {
    .word = SINGLE, .n_word = 3, .n_label = 2, .n_mask = MASKS, .n_variant = 1
};
static const kh_words SEVERAL_WORDS = {
    .word = SEVERAL, .n_word = 3, .n_label = 2, .n_mask = MASKS, .n_variant = 2
};

/* Logits of the whole vocabulary at a place, by the plain pass. Slots that embed are cut out of the
 * ids. */
static void reference_logits(const kh_model *m, const made *b, int seq, int prompt,
    kh_inject inject, int at, double *logits) {
    int32_t id[64];
    int n = 0, length = (int)(b->start[seq + 1] - b->start[seq]);
    bool embedded = inject != KH_INJECT_POST_LN_ADD;
    for (int i = 0; i < length; i++)
        if (!embedded || i < b->slot[seq] || i >= b->slot[seq] + N_SLOT)
            id[n++] = b->id[b->start[seq] + (size_t)i];
    float out[256];
    kh_input in = { id, n, inject, b->prompt + prompt * N_SLOT * H, N_SLOT };
    kh_err err;
    if (kh_reference_run(m, &in, &(kh_output){ .at = &at, .n_at = 1, .logits = out }, &err) != 0)
        fail_msg("%s", err.msg);
    for (int v = 0; v < m->config.vocab; v++)
        logits[v] = out[v];
}

static void scores_are_the_reference_s(void **state) {
    (void)state;
    kh_engine *e = open_engine(VECTORS "roberta", KH_F32);
    kh_model *m = open_model(VECTORS "roberta");
    made b;
    made_init(&b, MAX_SEQ, 1, false);
    static const kh_inject MODES[] = { KH_INJECT_POST_LN_ADD, KH_INJECT_EMBED_INPLACE };
    for (int mode = 0; mode < 2; mode++) {
        float logits[N_PROMPT * MAX_SEQ * 2];
        kh_question ask = { &b.batch, &SINGLE_WORDS, MODES[mode], b.prompt, N_PROMPT };
        assert_int_equal(kh_engine_score(e, &ask, logits, NULL), 0);
        for (int p = 0; p < N_PROMPT; p++)
            for (int s = 0; s < MAX_SEQ; s++) {
                double want[256];
                reference_logits(m, &b, s, p, MODES[mode], b.mask[s], want);
                const float *have = logits + (p * MAX_SEQ + s) * 2;
                assert_true(fabs(have[0] - want[10]) < 1e-4);
                assert_true(fabs(have[1] - log(exp(want[20]) + exp(want[30]))) < 1e-4);
            }
    }
    kh_model_close(m);
    kh_engine_free(e);
}

/* Hidden states and log-probabilities of many sequences at once are, bit for bit, those of each
 * alone. */
static void many_sequences_are_each_of_them(void **state) {
    (void)state;
    kh_engine *e = open_engine(VECTORS "roberta", KH_F32);
    made b;
    made_init(&b, MAX_SEQ, 1, false);
    b.batch.n_slot = 0;
    size_t tokens = b.start[MAX_SEQ], V = 120;
    float *hidden = malloc(tokens * H * sizeof *hidden),
          *logprob = malloc(2 * MAX_SEQ * V * sizeof *logprob);
    float one_hidden[36 * H], one_logprob[2 * 120];
    int at[2 * MAX_SEQ], n_at = 0;
    for (int s = 0; s < MAX_SEQ; s++) {
        b.slot[s] = -1;
        if (s % 3 == 1) /* some sequences have no place, some two */
            continue;
        at[n_at++] = (int)b.start[s] + 2;
        at[n_at++] = (int)b.start[s + 1] - 1;
    }
    kh_question all = { .batch = &b.batch };
    assert_int_equal(kh_engine_hidden(e, &all, 2, hidden, NULL), 0);
    assert_int_equal(kh_engine_vocabulary(e, &all, at, n_at, logprob, NULL), 0);
    for (int s = 0, next = 0; s < MAX_SEQ; s++) {
        kh_single single;
        int n = (int)(b.start[s + 1] - b.start[s]);
        kh_single_init(&single, b.id + b.start[s], n);
        kh_question alone = { .batch = &single.batch };
        assert_int_equal(kh_engine_hidden(e, &alone, 2, one_hidden, NULL), 0);
        assert_memory_equal(one_hidden, hidden + b.start[s] * H, (size_t)n * H * sizeof *hidden);
        if (s % 3 == 1)
            continue;
        assert_int_equal(
            kh_engine_vocabulary(e, &alone, (int[]){ 2, n - 1 }, 2, one_logprob, NULL), 0);
        assert_memory_equal(one_logprob, logprob + (size_t)next * V, 2 * V * sizeof *logprob);
        next += 2;
    }
    free(hidden);
    free(logprob);
    kh_engine_free(e);
}

/* Words of several tokens: mean log-probability at as many masks; several words of a class are
 * added up. */
static void words_of_several_tokens(void **state) {
    (void)state;
    kh_engine *e = open_engine(VECTORS "roberta", KH_F32);
    kh_model *m = open_model(VECTORS "roberta");
    made b;
    enum { ROWS = 9 };
    made_init(&b, ROWS, 2, false);
    float logits[N_PROMPT * ROWS * 2];
    kh_question ask = { &b.batch, &SEVERAL_WORDS, KH_INJECT_POST_LN_ADD, b.prompt, N_PROMPT };
    assert_int_equal(kh_engine_score(e, &ask, logits, NULL), 0);
    for (int p = 0; p < N_PROMPT; p++)
        for (int r = 0; r < ROWS; r++) {
            double at[3][256], lse[3] = { 0 };
            for (int k = 0; k < 3; k++) {
                int seq = 2 * r + (k > 0);
                reference_logits(
                    m, &b, seq, p, KH_INJECT_POST_LN_ADD, b.mask[seq] + (k == 2), at[k]);
                for (int v = 0; v < m->config.vocab; v++)
                    lse[k] += exp(at[k][v]);
            }
            double word0 = at[0][10] - log(lse[0]),
                   word1 = (at[1][40] - log(lse[1]) + at[2][41] - log(lse[2])) / 2,
                   word2 = at[0][30] - log(lse[0]);
            assert_true(fabs(logits[(p * ROWS + r) * 2] - log(exp(word0) + exp(word1))) < 1e-4);
            assert_true(fabs(logits[(p * ROWS + r) * 2 + 1] - word2) < 1e-4);
        }
    kh_model_close(m);
    kh_engine_free(e);
}

/* One sequence of a batch, as a batch of its own. */
static kh_batch alone(const made *b, int seq, size_t start[2]) {
    kh_batch one_seq = b->batch;
    start[0] = 0;
    start[1] = b->start[seq + 1] - b->start[seq];
    one_seq.n_row = one_seq.n_seq = 1;
    one_seq.id = b->id + b->start[seq];
    one_seq.start = start;
    one_seq.mask = b->mask + seq;
    one_seq.slot = b->slot + seq;
    return one_seq;
}

static void bits_depend_on_nothing_else(void **state) {
    (void)state;
    made b;
    made_init(&b, MAX_SEQ, 1, true);
    for (int precision = KH_F32; precision <= KH_INT8; precision++) {
        kh_engine *e = open_engine(VECTORS "roberta", (kh_precision)precision);
        float all[N_PROMPT * MAX_SEQ * 2], again[N_PROMPT * MAX_SEQ * 2];
        kh_question ask = { &b.batch, &SINGLE_WORDS, KH_INJECT_POST_LN_ADD, b.prompt, N_PROMPT };
        kh_threads_set(1);
        assert_int_equal(kh_engine_score(e, &ask, all, NULL), 0);
        for (int threads = 2; threads <= 5; threads++) {
            kh_threads_set(threads);
            assert_int_equal(kh_engine_score(e, &ask, again, NULL), 0);
            assert_memory_equal(all, again, sizeof all);
        }
        for (int p = 0; p < N_PROMPT; p++)
            for (int s = 0; s < MAX_SEQ; s++) {
                size_t start[2];
                kh_batch one_seq = alone(&b, s, start);
                kh_question one_ask = { &one_seq, &SINGLE_WORDS, KH_INJECT_POST_LN_ADD,
                    b.prompt + p * N_SLOT * H, 1 };
                assert_int_equal(kh_engine_score(e, &one_ask, again, NULL), 0);
                assert_memory_equal(again, all + (p * MAX_SEQ + s) * 2, 2 * sizeof *all);
            }
        kh_threads_set(0);
        kh_engine_free(e);
    }
}

/* bf16 and int8 move the logits a little, and not more. */
static void lower_precisions_stay_near(void **state) {
    (void)state;
    made b;
    made_init(&b, MAX_SEQ, 1, false);
    float exact[N_PROMPT * MAX_SEQ * 2], near[N_PROMPT * MAX_SEQ * 2];
    kh_question ask = { &b.batch, &SINGLE_WORDS, KH_INJECT_POST_LN_ADD, b.prompt, N_PROMPT };
    kh_engine *e = open_engine(VECTORS "roberta", KH_F32);
    assert_int_equal(kh_engine_score(e, &ask, exact, NULL), 0);
    kh_engine_free(e);
    static const double LIMIT[] = { 0, 0.01, 0.05 };
    for (int precision = KH_BF16; precision <= KH_INT8; precision++) {
        e = open_engine(VECTORS "roberta", (kh_precision)precision);
        assert_int_equal(kh_engine_score(e, &ask, near, NULL), 0);
        double off = 0, size = 0;
        for (int i = 0; i < N_PROMPT * MAX_SEQ * 2; i++)
            off += (exact[i] - near[i]) * (exact[i] - near[i]), size += exact[i] * exact[i];
        if (!(sqrt(off / size) < LIMIT[precision]))
            fail_msg("precision %d: relative error of the logits %g", precision, sqrt(off / size));
        kh_engine_free(e);
    }
}

/* ---------------------------------------------------------------------------------- complaints */

/* A soft prompt has the width of hidden states, so that it cannot stand for words of another. */
static void words_of_another_width(void **state) {
    (void)state;
    kh_engine *e = open_engine(VECTORS "albert", KH_F32);
    int32_t id[] = { 2, 5, 6, 7 };
    float prompt[32] = { 0 }, out[4 * 32];
    kh_err err;
    kh_single text;
    kh_single_init(&text, id, 4);
    text.batch.n_slot = 1;
    text.slot = 1;
    kh_question q = {
        .batch = &text.batch, .inject = KH_INJECT_EMBED_INPLACE, .prompt = prompt, .n_prompt = 1
    };
    assert_int_equal(kh_engine_hidden(e, &q, 0, out, &err), KH_EUNSUPPORTED);
    assert_says(&err, "models of type albert have word embeddings of a width of their own");
    q.inject = KH_INJECT_POST_LN_ADD;
    assert_int_equal(kh_engine_hidden(e, &q, 0, out, &err), 0);
    kh_engine_free(e);
}

static void wrong_questions_are_refused(void **state) {
    (void)state;
    kh_engine *e = open_engine(VECTORS "roberta", KH_F32),
              *headless = open_engine(VECTORS "bert-no-head", KH_F32);
    made b;
    kh_err err;
    float out[4 * 40 * 32];
    made_init(&b, 2, 1, false);
    kh_question ask = { &b.batch, &SINGLE_WORDS, KH_INJECT_POST_LN_ADD, NULL, 1 };
    assert_int_equal(kh_engine_score(e, &ask, out, &err), KH_EARG);
    assert_says(&err, "the batch has 5 slots for a soft prompt, but no prompt is given");
    ask.prompt = b.prompt;
    ask.inject = KH_INJECT_NONE;
    assert_int_equal(kh_engine_score(e, &ask, out, &err), KH_EARG);
    assert_says(&err, "needs an injection mode");
    ask.inject = KH_INJECT_POST_LN_ADD;
    assert_int_equal(kh_engine_score(headless, &ask, out, &err), KH_EUNSUPPORTED);
    assert_says(&err, "head");
    int at = 0;
    assert_int_equal(kh_engine_vocabulary(headless, &ask, &at, 1, out, &err), KH_EUNSUPPORTED);
    ask.n_prompt = 2;
    assert_int_equal(kh_engine_hidden(e, &ask, 1, out, &err), KH_EARG);
    assert_says(&err, "this question takes one prompt, not 2");
    ask.n_prompt = 1;
    kh_single single;
    kh_single_init(&single, b.id, 12);
    kh_question about_one = { .batch = &single.batch };
    at = 12;
    assert_int_equal(kh_engine_vocabulary(e, &about_one, &at, 1, out, &err), KH_EARG);
    assert_says(&err, "place 12 among 12 tokens: places must ascend and be inside");
    const int twice[] = { 3, 3 };
    assert_int_equal(kh_engine_vocabulary(e, &about_one, twice, 2, out, &err), KH_EARG);
    assert_says(&err, "place 3 among 12 tokens");
    kh_single_init(&single, b.id, 0);
    assert_int_equal(kh_engine_hidden(e, &about_one, 1, out, &err), KH_EARG);
    assert_says(&err, "a sequence without tokens has no hidden states");
    assert_int_equal(kh_engine_hidden(e, &ask, 3, out, &err), KH_EARG);
    assert_says(&err, "layer 3: the model has layers 0 (embeddings) to 2");
    b.batch.max_len = 39;
    assert_int_equal(kh_engine_score(e, &ask, out, &err), KH_ELIMIT);
    assert_says(&err, "a sequence of 39 tokens is longer than the 38 that the model can take");
    b.batch.max_len = 36;
    b.id[3] = 120;
    assert_int_equal(kh_engine_score(e, &ask, out, &err), KH_EMISMATCH);
    assert_says(&err,
        "token id 120 is outside the model's vocabulary of 120: does the tokenizer belong to the "
        "model?");
    kh_engine_free(e);
    kh_engine_free(headless);
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    made b;
    made_init(&b, 3, 2, true);
    float out[2 * 3 * 2];
    kh_question ask = { &b.batch, &SEVERAL_WORDS, KH_INJECT_POST_LN_ADD, b.prompt, 2 };
    long n = 1;
    for (bool done = false; !done; n++) {
        kh_err err = { 0 };
        kh_model *m = open_model(VECTORS "roberta");
        kh_engine *e;
        kh_alloc_fail_at(n, false);
        int rc = kh_engine_new(&e, m, KH_INT8, &err);
        if (rc == 0)
            rc = kh_engine_score(e, &ask, out, &err);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        kh_engine_free(e);
    }
    assert_true(n > 30);
}

/* Log-probabilities of the whole vocabulary at every place, by a row of the kernels' table. */
static float *vocabulary_by(const char *row, const char *dir, const int32_t *id, int n, size_t V) {
    kh_single s;
    int at[64];
    float *out = malloc((size_t)n * V * sizeof *out);
    for (int i = 0; i < n; i++)
        at[i] = i;
    setenv("KEYHOLE_KERNELS", row, 1);
    kh_engine *e = open_engine(dir, KH_INT8);
    unsetenv("KEYHOLE_KERNELS");
    assert_string_equal(kh_engine_kernels(e)->name, row);
    kh_single_init(&s, id, n);
    assert_int_equal(
        kh_engine_vocabulary(e, &(kh_question){ .batch = &s.batch }, at, n, out, NULL), 0);
    kh_engine_free(e);
    return out;
}

/* Rows of the table that claim to have the same bits have them in a whole answer. */
static void answers_have_the_bits_of_their_kernels(void **state) {
    (void)state;
    enum { V = 211, T = 45 };
    const kh_kernels *k = kh_kernels_pick();
    if (strcmp(k->name, k->bits) == 0)
        test_skip("the row %s has the bits of no other (amx would)", k->name);
    char dir[] = "/tmp/keyhole-bits-XXXXXX", path[64];
    int32_t id[T];
    kh_random_opts r = { .config = *kh_arch_find("bert-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3 };
    r.config.vocab = V, r.config.hidden = 200, r.config.heads = 4, r.config.inner = 330;
    for (int i = 0; i < T; i++)
        id[i] = 1 + i * 37 % (V - 1);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(kh_random_model_write(dir, &r, NULL), 0);
    float *have = vocabulary_by(k->name, dir, id, T, V),
          *want = vocabulary_by(k->bits, dir, id, T, V);
    assert_memory_equal(have, want, (size_t)T * V * sizeof *have);
    free(have);
    free(want);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "config.json" : "model.safetensors");
        unlink(path);
    }
    rmdir(dir);
}

/* A vocabulary of more numbers than are expanded at a time, and of no whole number of pieces. */
static void a_large_matrix_is_packed_in_pieces(void **state) {
    (void)state;
    enum { V = 50001, T = 5, AT = 3 };
    char dir[] = "/tmp/keyhole-pieces-XXXXXX", path[64];
    static const int32_t id[T] = { 2, 9, 50000, 7, 40000 };
    kh_random_opts r = { .config = *kh_arch_find("bert-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3 };
    r.config.vocab = V;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(kh_random_model_write(dir, &r, NULL), 0);
    float *want = malloc(V * sizeof *want), *have = malloc(V * sizeof *have);
    const int at = AT;
    kh_model *m = open_model(dir);
    kh_output out = { .at = &at, .n_at = 1, .logits = want };
    assert_int_equal(kh_reference_run(m, &(kh_input){ .id = id, .n_id = T }, &out, NULL), 0);
    kh_model_close(m);
    kh_engine *e = open_engine(dir, KH_F32);
    kh_single s;
    kh_single_init(&s, id, T);
    assert_int_equal(
        kh_engine_vocabulary(e, &(kh_question){ .batch = &s.batch }, &at, 1, have, NULL), 0);
    double shift = (double)want[0] - (double)have[0], worst = 0; /* what all are normalised by */
    for (int v = 0; v < V; v++) {
        double off = fabs((double)want[v] - (double)have[v] - shift);
        worst = off > worst ? off : worst;
    }
    assert_true(worst < 1e-4);
    kh_engine_free(e);
    free(want);
    free(have);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "config.json" : "model.safetensors");
        unlink(path);
    }
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert),
        cmocka_unit_test(bert_with_old_names_and_own_decoder),
        cmocka_unit_test(bert_without_head),
        cmocka_unit_test(roberta),
        cmocka_unit_test(roberta_f16),
        cmocka_unit_test(roberta_bf16),
        cmocka_unit_test(distilbert),
        cmocka_unit_test(electra),
        cmocka_unit_test(modernbert),
        cmocka_unit_test(answers_have_the_bits_of_their_kernels),
        cmocka_unit_test(a_large_matrix_is_packed_in_pieces),
        cmocka_unit_test(albert),
        cmocka_unit_test(scores_are_the_reference_s),
        cmocka_unit_test(many_sequences_are_each_of_them),
        cmocka_unit_test(words_of_several_tokens),
        cmocka_unit_test(bits_depend_on_nothing_else),
        cmocka_unit_test(lower_precisions_stay_near),
        cmocka_unit_test(words_of_another_width),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
