/* test_data_batch.c - label words and batches: the ids must be those of the whole filled-in text.
 */
#include "test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "data/template.h"

#define TINY_BPE "tests/vectors/tokenizers/tiny-bpe.json"
#define TINY_WORDPIECE "tests/vectors/tokenizers/tiny-wordpiece.json"

static kh_tokenizer *open_tokenizer(const char *path) {
    kh_err err = { 0 };
    kh_tokenizer *t;
    if (kh_tokenizer_open(&t, path, &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

static const kh_task *parse_task(const char *json) {
    kh_err err = { 0 };
    const kh_task *t;
    if (kh_task_parse(&t, json, strlen(json), "task", &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

static kh_words *words_of(const kh_task *task, const kh_tokenizer *tok) {
    kh_err err = { 0 };
    kh_words *w;
    if (kh_words_new(&w, task, tok, false, &err) != 0)
        fail_msg("%s", err.msg);
    return w;
}

static kh_batch *encode(const kh_tokenizer *tok, const kh_task *task, const kh_words *w,
    const kh_row *rows, int n, const kh_batch_opts *o) {
    kh_err err = { 0 };
    kh_batch *b;
    if (kh_batch_encode(&b, tok, task, w, rows, n, o, &err) != 0)
        fail_msg("%s", err.msg);
    return b;
}

static kh_row row_of(const char *a, const char *b, int label) {
    return (kh_row){ .a = a, .n_a = strlen(a), .b = b, .n_b = b ? strlen(b) : 0, .label = label };
}

/* Appends the template from part `from` on, with the row and n_mask masks filled in. */
static void fill(
    kh_buf *out, const kh_template *t, int from, const kh_row *row, const char *mask, int n_mask) {
    for (int i = from; i < t->n; i++)
        switch (t->part[i].kind) {
        case KH_SEGMENT_LITERAL: kh_template_literal(out, &t->part[i]); break;
        case KH_SEGMENT_A: kh_buf_bytes(out, row->a, row->n_a); break;
        case KH_SEGMENT_B: kh_buf_bytes(out, row->b, row->n_b); break;
        case KH_SEGMENT_MASK:
            for (int k = 0; k < n_mask; k++)
                kh_buf_text(out, mask);
            break;
        case KH_SEGMENT_PROMPT: fail_msg("the prompt must come first");
        }
}

static void assert_ids(const kh_batch *b, int s, const kh_ids *expected) {
    assert_int_equal(b->start[s + 1] - b->start[s], expected->n);
    assert_memory_equal(
        b->id + b->start[s], expected->id, (size_t)expected->n * sizeof *expected->id);
}

/* Every sequence must be what the tokenizer gives for the whole filled-in text, special tokens
 * recognised. */
static void assert_whole(
    const kh_tokenizer *tok, const kh_task *task, const kh_batch *b, const kh_row *rows) {
    const char *mask = kh_tokenizer_token(tok, kh_tokenizer_special(tok, KH_TOKEN_MASK));
    kh_template t;
    kh_buf text = kh_buf_init(1 << 26);
    kh_ids ids = { 0 };
    assert_int_equal(kh_template_parse(&t, task->plain, "t", NULL), 0);
    for (int s = 0; s < b->n_seq; s++) {
        int n_mask = b->n_mask[s % b->n_variant];
        kh_buf_reset(&text);
        ids.n = 0;
        fill(&text, &t, 0, &rows[b->row[s / b->n_variant]], mask, n_mask);
        assert_int_equal(
            kh_tokenizer_encode(tok, text.data, text.len, KH_ENCODE_FRAME, &ids, NULL), 0);
        assert_ids(b, s, &ids);
        for (int k = 0; k < ids.n; k++)
            assert_int_equal(ids.id[k] == kh_tokenizer_special(tok, KH_TOKEN_MASK),
                k >= b->mask[s] && k < b->mask[s] + n_mask);
        assert_int_equal(b->slot[s], -1);
    }
    kh_buf_free(&text);
    kh_ids_free(&ids);
}

/* Texts of ordinary and odd characters, the same ones every time. */
static const char *random_text(kh_rng *r, char *out, size_t cap) {
    static const char *const bits[] = { "the", " film", " is", " ", "  ", ".", ",", " a", "b",
        "Very", " 42", "!", " caf\xC3\xA9", "\xE2\x80\x9Cquote\xE2\x80\x9D", "\xF0\x9F\x98\x80",
        " \xE6\x97\xA5\xE6\x9C\xAC", "\t", "\n", "'s", " don't", "\xC2\xA0", " (x)", "--", " #",
        "<", ">", "e\xCC\x81" };
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t n = kh_rng_below(r, 30); n > 0 && used + 16 < cap; n--) {
        const char *bit = bits[kh_rng_below(r, sizeof bits / sizeof bits[0])];
        strcpy(out + used, bit);
        used += strlen(bit);
    }
    return out;
}

#define TWO_LABELS \
    "\"labels\":[{\"name\":\"a\",\"words\":[\"t\"]},{\"name\":\"b\",\"words\":[\"s\"]}]"

static const char *const plain_tasks[] = {
    "{\"name\":\"end\",\"template\":\"{text} . It was {mask} .\"," TWO_LABELS "}",
    "{\"name\":\"start\",\"template\":\"{mask} News: {text}\"," TWO_LABELS "}",
    "{\"name\":\"bracket\",\"template\":\"[ Category: {mask} ] {text}\"," TWO_LABELS "}",
    "{\"name\":\"pair\",\"template\":\"{text_a} ? {mask} , {text_b}\"," TWO_LABELS "}",
    "{\"name\":\"tight\",\"template\":\"{text_b}{mask}{text_a}\"," TWO_LABELS "}",
    "{\"name\":\"spaces\",\"template\":\"  {text}  {mask}  \"," TWO_LABELS "}",
    "{\"name\":\"braces\",\"template\":\"{{{text}}} = {mask}\"," TWO_LABELS "}",
};

static void equal_on_random_texts(const char *path) {
    kh_tokenizer *tok = open_tokenizer(path);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    enum { N = 150 };
    static char text[2 * N][512];
    for (int i = 0; i < 2 * N; i++)
        random_text(&r, text[i], sizeof text[i]);
    for (size_t k = 0; k < sizeof plain_tasks / sizeof plain_tasks[0]; k++) {
        const kh_task *task = parse_task(plain_tasks[k]);
        kh_words *w = words_of(task, tok);
        kh_row rows[N];
        for (int i = 0; i < N; i++)
            rows[i] = row_of(text[2 * i], task->pair ? text[2 * i + 1] : NULL, i % 2);
        kh_batch *b = encode(tok, task, w, rows, N, &(kh_batch_opts){ .max_len = 100000 });
        assert_int_equal(b->n_row, N);
        assert_int_equal(b->n_truncated + b->n_dropped, 0);
        assert_whole(tok, task, b, rows);
        kh_batch_free(b);
        kh_words_free(w);
        kh_task_close(task);
    }
    kh_tokenizer_close(tok);
}

static void tiny_bpe_ids_are_those_of_the_whole_text(void **state) {
    (void)state;
    equal_on_random_texts(TINY_BPE);
}

static void tiny_wordpiece_ids_are_those_of_the_whole_text(void **state) {
    (void)state;
    equal_on_random_texts(TINY_WORDPIECE);
}

static void real_tokenizers_ids_are_those_of_the_whole_text(void **state) {
    (void)state;
    test_needs_shared("tokenizers/roberta-base/tokenizer.json");
    equal_on_random_texts("../shared/tokenizers/roberta-base");
    equal_on_random_texts("../shared/tokenizers/bert-base-uncased");
    equal_on_random_texts("../shared/tokenizers/babyberta");
}

static void real_rows_have_the_ids_of_the_whole_text(void **state) {
    (void)state;
    test_needs_shared("tokenizers/roberta-base/tokenizer.json");
    test_needs_shared("data/sst2/test.tsv");
    static const char *const paths[] = { "../shared/tokenizers/roberta-base",
        "../shared/tokenizers/bert-base-uncased", "../shared/tokenizers/babyberta" };
    for (int p = 0; p < 3; p++) {
        kh_tokenizer *tok = open_tokenizer(paths[p]);
        for (int i = 0; kh_task_builtin(i); i++) {
            const kh_task *task = kh_task_builtin(i);
            char path[64];
            kh_dataset *d;
            snprintf(path, sizeof path, "../shared/data/%s/test.tsv", task->name);
            assert_int_equal(
                kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task }, NULL), 0);
            kh_words *w = words_of(task, tok);
            int n = kh_dataset_size(d) < 200 ? kh_dataset_size(d) : 200;
            kh_batch *b =
                encode(tok, task, w, kh_dataset_rows(d), n, &(kh_batch_opts){ .max_len = 100000 });
            assert_int_equal(b->n_row, n);
            assert_whole(tok, task, b, kh_dataset_rows(d));
            kh_batch_free(b);
            kh_words_free(w);
            kh_dataset_close(d);
        }
        kh_tokenizer_close(tok);
    }
}

/* --------------------------------------------------------------------------------------- slots */

static const int32_t slots[] = { 20, 21, 22, 23, 24 };

static void slots_stand_where_the_template_says(void **state) {
    (void)state;
    static const char *const paths[] = { TINY_BPE, TINY_WORDPIECE };
    for (int p = 0; p < 2; p++) {
        kh_tokenizer *tok = open_tokenizer(paths[p]);
        const kh_task *task = parse_task(plain_tasks[0]); /* {prompt} . {text} . It was {mask} . */
        kh_words *w = words_of(task, tok);
        kh_row row = row_of("the film", NULL, 0);
        kh_batch *b = encode(tok, task, w, &row, 1,
            &(kh_batch_opts){ .max_len = 100, .n_slot = 5, .slot_id = slots });
        kh_ids expected = { 0 };
        const char *mask = kh_tokenizer_token(tok, kh_tokenizer_special(tok, KH_TOKEN_MASK));
        char rest[128];
        snprintf(rest, sizeof rest, " . the film . It was %s .", mask);
        assert_int_equal(kh_tokenizer_encode(tok, "", 0, KH_ENCODE_FRAME, &expected, NULL), 0);
        assert_int_equal(expected.n, 2);
        int32_t last = expected.id[1];
        expected.n = 1;
        for (int i = 0; i < 5; i++) {
            assert_true(
                kh_grow(&expected.id, &expected.cap, (size_t)expected.n + 1, sizeof *expected.id));
            expected.id[expected.n++] = slots[i];
        }
        assert_int_equal(kh_tokenizer_encode(tok, rest, strlen(rest), 0, &expected, NULL), 0);
        assert_true(
            kh_grow(&expected.id, &expected.cap, (size_t)expected.n + 1, sizeof *expected.id));
        expected.id[expected.n++] = last;
        assert_ids(b, 0, &expected);
        assert_int_equal(b->slot[0], 1);
        assert_int_equal(b->n_slot, 5);
        assert_int_equal(b->id[b->mask[0]], kh_tokenizer_special(tok, KH_TOKEN_MASK));
        assert_int_equal(b->max_len, expected.n);
        kh_ids_free(&expected);
        kh_batch_free(b);
        kh_words_free(w);
        kh_task_close(task);
        kh_tokenizer_close(tok);
    }
}

static void slots_may_stand_in_the_middle(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task =
        parse_task("{\"name\":\"m\",\"template\":\"{text} {prompt} so {mask}\"," TWO_LABELS "}");
    kh_words *w = words_of(task, tok);
    kh_row row = row_of("a b", NULL, 0);
    kh_batch *b = encode(
        tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 100, .n_slot = 5, .slot_id = slots });
    kh_ids before = { 0 }, after = { 0 };
    assert_int_equal(kh_tokenizer_encode(tok, "a b", 3, 0, &before, NULL),
        0); /* the space before the slots is theirs */
    assert_int_equal(kh_tokenizer_encode(tok, " so", 3, 0, &after, NULL), 0);
    assert_int_equal(b->slot[0], 1 + before.n);
    assert_memory_equal(b->id + 1, before.id, (size_t)before.n * sizeof *before.id);
    assert_memory_equal(b->id + b->slot[0], slots, sizeof slots);
    assert_memory_equal(b->id + b->slot[0] + 5, after.id, (size_t)after.n * sizeof *after.id);
    assert_int_equal(b->mask[0], b->slot[0] + 5 + after.n);
    kh_ids_free(&before);
    kh_ids_free(&after);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void prefix_slots_stand_before_the_plain_text(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[0]);
    kh_words *w = words_of(task, tok);
    kh_row row = row_of("the film", NULL, 0);
    kh_batch *plain = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 100 });
    kh_batch *b = encode(tok, task, w, &row, 1,
        &(kh_batch_opts){
            .max_len = 100, .n_slot = 5, .slot_id = slots, .placement = KH_SLOTS_PREFIX });
    assert_int_equal(b->slot[0], 0);
    assert_int_equal(b->start[1], plain->start[1] + 5);
    assert_memory_equal(b->id, slots, sizeof slots);
    assert_memory_equal(b->id + 5, plain->id, plain->start[1] * sizeof *plain->id);
    assert_int_equal(b->mask[0], plain->mask[0] + 5);
    kh_batch_free(plain);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void default_slots_are_ids_from_1000(void **state) {
    (void)state;
    test_needs_shared("tokenizers/roberta-base/tokenizer.json");
    kh_tokenizer *tok = open_tokenizer("../shared/tokenizers/roberta-base");
    const kh_task *task = kh_task_builtin(0);
    kh_words *w = words_of(task, tok);
    kh_row row = row_of("fine", NULL, 1);
    kh_batch *b = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 512, .n_slot = 50 });
    for (int i = 0; i < 50; i++)
        assert_int_equal(b->id[1 + i], 1000 + i);
    /* <s>, slots, " .", " fine", " .", " It", " was", <mask>, " .", </s>: ids of roberta-base's
     * vocabulary */
    static const int32_t rest[] = { 479, 2051, 479, 85, 21, 50264, 479, 2 };
    assert_int_equal(b->start[1], 51 + 8);
    assert_memory_equal(b->id + 51, rest, sizeof rest);
    assert_int_equal(b->mask[0], 56);
    kh_batch_free(b);
    kh_words_free(w);
    kh_tokenizer_close(tok);
}

/* ---------------------------------------------------------------------------- strangers' texts */

static void special_tokens_in_a_text_stay_text(void **state) {
    (void)state;
    static const char *const paths[] = { TINY_BPE, TINY_WORDPIECE };
    for (int p = 0; p < 2; p++) {
        kh_tokenizer *tok = open_tokenizer(paths[p]);
        const kh_task *task = parse_task(plain_tasks[3]);
        kh_words *w = words_of(task, tok);
        kh_row row = row_of("a <mask> b [MASK] </s>", "<s> [CLS] [SEP] <mask>", 0);
        kh_batch *b = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 500 });
        int n_special = 0;
        for (size_t i = 0; i < b->start[1]; i++)
            n_special += b->id[i] == kh_tokenizer_special(tok, KH_TOKEN_MASK) ||
                b->id[i] == kh_tokenizer_special(tok, KH_TOKEN_BOS) ||
                b->id[i] == kh_tokenizer_special(tok, KH_TOKEN_EOS);
        assert_int_equal(n_special, 3); /* ours: one each */
        kh_batch_free(b);
        kh_words_free(w);
        kh_task_close(task);
        kh_tokenizer_close(tok);
    }
}

static void escaped_newlines_of_raw_rows_become_spaces(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(
        "{\"name\":\"y\",\"template\":\"{text} {mask}\",\"newline_escape\":true," TWO_LABELS "}");
    kh_words *w = words_of(task, tok);
    kh_row rows[] = { row_of("a\\nb\\n\\nc", NULL, -1), row_of("a b  c", NULL, -1) };
    kh_batch *b = encode(tok, task, w, rows, 2, &(kh_batch_opts){ .max_len = 100 });
    assert_int_equal(b->start[1], b->start[2] - b->start[1]);
    assert_memory_equal(b->id, b->id + b->start[1], b->start[1] * sizeof *b->id);
    assert_int_equal(b->label[0], -1);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

/* ----------------------------------------------------------------------------------- long rows */

/* The ids of a row whose texts are cut to `keep` characters by hand. */
static bool same_as_cut(const kh_tokenizer *tok, const kh_task *task, const kh_words *w,
    const kh_batch *b, int s, const kh_row *row, size_t keep, int *len) {
    kh_row cut = *row;
    cut.n_a = cut.n_a < keep ? cut.n_a : keep;
    cut.n_b = cut.n_b < keep ? cut.n_b : keep;
    while (cut.n_a < row->n_a && cut.n_a > 0 && cut.a[cut.n_a - 1] == ' ')
        cut.n_a--;
    while (cut.n_b < row->n_b && cut.n_b > 0 && cut.b[cut.n_b - 1] == ' ')
        cut.n_b--;
    kh_batch *c = encode(tok, task, w, &cut, 1, &(kh_batch_opts){ .max_len = 100000 });
    size_t n = b->start[s + 1] - b->start[s];
    bool same = n == c->start[1] && memcmp(b->id + b->start[s], c->id, n * sizeof *c->id) == 0;
    *len = (int)c->start[1];
    kh_batch_free(c);
    return same;
}

static void long_texts_are_cut_and_nothing_else(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[0]);
    kh_words *w = words_of(task, tok);
    char text[4001];
    for (int i = 0; i < 4000; i++)
        text[i] = "the cat sat on a mat and slept; "[i % 32];
    text[4000] = '\0';
    kh_row rows[] = { row_of(text, NULL, 0), row_of("short", NULL, 1) };
    static const int limits[] = { 40, 100, 512, 3000 };
    for (int k = 0; k < 4; k++) {
        kh_batch *b = encode(tok, task, w, rows, 2, &(kh_batch_opts){ .max_len = limits[k] });
        int len = 0, next = 0;
        size_t keep = 0;
        for (size_t c = 4000; c > 0 && keep == 0; c--)
            if (same_as_cut(tok, task, w, b, 0, &rows[0], c, &len))
                keep = c;
        assert_true(keep > 0);
        assert_int_equal(b->n_truncated, keep < 4000);
        assert_true(len <= limits[k]);
        assert_int_equal(b->max_len, len);
        if (keep < 4000) {
            same_as_cut(tok, task, w, b, 0, &rows[0], keep + 1, &next);
            assert_true(next > limits[k]);
        }
        kh_batch_free(b);
    }
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void a_cut_leaves_no_space_behind(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[0]);
    kh_words *w = words_of(task, tok);
    kh_row row = row_of("the \xF0\x9F\x98\x80 the \xF0\x9F\x98\x80 the \xF0\x9F\x98\x80 the "
                        "\xF0\x9F\x98\x80 the \xF0\x9F\x98\x80",
        NULL, 0);
    int n_cut = 0;
    for (int limit = 15; limit < 40;
         limit++) { /* often between a space and a character of many tokens */
        kh_batch *b = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = limit });
        char *back;
        size_t n;
        n_cut += b->n_truncated;
        assert_int_equal(
            kh_tokenizer_decode(tok, b->id, (int)b->start[1], true, &back, &n, NULL), 0);
        assert_null(strstr(back, "  "));
        kh_text_free(back);
        kh_batch_free(b);
    }
    assert_true(n_cut > 10);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void of_a_pair_the_longer_text_is_cut_first(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[3]);
    kh_words *w = words_of(task, tok);
    char a[301], b[31];
    memset(a, 'x', 300);
    memset(b, 'z', 30);
    a[300] = b[30] = '\0';
    kh_row row = row_of(a, b, 0);
    int len, full = 0, both = 0;
    kh_batch *whole = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 1000 });
    for (int limit = (int)whole->start[1] - 1; limit > 20; limit -= 7) {
        kh_batch *cut = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = limit });
        bool found = false;
        for (size_t keep = 0; keep < 300 && !found; keep++) {
            found = same_as_cut(tok, task, w, cut, 0, &row, keep, &len);
            full += found && keep >= 30;
            both += found && keep < 30;
        }
        assert_true(found);
        assert_int_equal(cut->n_truncated, 1);
        kh_batch_free(cut);
    }
    assert_true(full > 5 && both > 2);
    kh_batch_free(whole);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void cuts_do_not_split_characters(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[1]);
    kh_words *w = words_of(task, tok);
    char text[401];
    for (int i = 0; i < 100; i++)
        memcpy(text + 4 * i, "\xF0\x9F\x98\x80", 4);
    text[400] = '\0';
    kh_row row = row_of(text, NULL, 0);
    for (int limit = 30; limit < 60; limit++) {
        kh_batch *b = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = limit });
        char *back;
        size_t n;
        assert_int_equal(
            kh_tokenizer_decode(tok, b->id, (int)b->start[1], true, &back, &n, NULL), 0);
        assert_null(strstr(back, "\xEF\xBF\xBD"));
        kh_text_free(back);
        kh_batch_free(b);
    }
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void paper_exact_leaves_long_rows_out(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[0]);
    kh_words *w = words_of(task, tok);
    char text[601];
    memset(text, 'x', 600);
    text[600] = '\0';
    kh_row rows[] = { row_of("a", NULL, 1), row_of(text, NULL, 0), row_of("b", NULL, 0) };
    kh_batch *b =
        encode(tok, task, w, rows, 3, &(kh_batch_opts){ .max_len = 100, .paper_exact = true });
    assert_int_equal(b->n_row, 2);
    assert_int_equal(b->n_seq, 2);
    assert_int_equal(b->n_dropped, 1);
    assert_int_equal(b->n_truncated, 0);
    assert_int_equal(b->row[0], 0);
    assert_int_equal(b->row[1], 2);
    assert_int_equal(b->label[0], 1);
    assert_int_equal(b->label[1], 0);
    assert_whole(tok, task, b, rows);
    kh_batch_free(b);
    b = encode(tok, task, w, rows + 1, 1, &(kh_batch_opts){ .max_len = 100, .paper_exact = true });
    assert_int_equal(b->n_row, 0);
    assert_int_equal(b->start[0], 0);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

/* ------------------------------------------------------------------------------------ refusals */

static void refused(const kh_tokenizer *tok, const kh_task *task, const kh_words *w,
    const kh_row *row, const kh_batch_opts *o, int code, const char *says) {
    kh_err err = { 0 };
    kh_batch *b;
    assert_int_equal(kh_batch_encode(&b, tok, task, w, row, 1, o, &err), code);
    assert_null(b);
    assert_says(&err, says);
}

static void what_cannot_be_encoded_is_refused(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE),
                 *maskless = open_tokenizer("tests/vectors/tokenizers/pre-bytelevel.json");
    const kh_task *one = parse_task(plain_tasks[0]), *pair = parse_task(plain_tasks[3]);
    const kh_task *three =
        parse_task("{\"name\":\"three\",\"template\":\"{text} "
                   "{mask}\",\"labels\":[{\"name\":\"a\",\"words\":[\"t\"]},"
                   "{\"name\":\"b\",\"words\":[\"h\"]},{\"name\":\"c\",\"words\":[\"w\"]}]}");
    kh_words *w = words_of(one, tok), *wm = words_of(one, maskless);
    kh_row single = row_of("a", NULL, 0), two = row_of("a", "b", 0), high = row_of("a", NULL, 2);
    kh_batch_opts o = { .max_len = 100 };
    refused(maskless, one, wm, &single, &o, KH_EUNSUPPORTED,
        "the tokenizer has no mask token; a masked language model, such as BERT or RoBERTa");
    refused(tok, one, w, &two, &o, KH_EMISMATCH, "row 0 has two texts, but task \"end\" takes one");
    refused(
        tok, pair, w, &single, &o, KH_EMISMATCH, "row 0 has one text, but task \"pair\" takes two");
    refused(
        tok, one, w, &high, &o, KH_EMISMATCH, "row 0 has label 2, but task \"end\" has 2 labels");
    refused(tok, three, w, &single, &o, KH_EMISMATCH,
        "label words for 2 labels, but task \"three\" has 3");
    refused(tok, one, w, &single, &(kh_batch_opts){ .max_len = 0 }, KH_EARG,
        "a batch of 1 rows, 0 slots and sequences of 0 tokens cannot be made");
    refused(tok, one, w, &single,
        &(kh_batch_opts){ .max_len = 100, .n_slot = 1, .slot_id = (int32_t[]){ 1000000 } }, KH_EARG,
        "the id 1000000 of prompt slot 0 is not in the vocabulary of ");
    refused(tok, one, w, &single,
        &(kh_batch_opts){ .max_len = 100, .n_slot = 1, .slot_id = (int32_t[]){ -1 } }, KH_EARG,
        "the id -1 of prompt slot 0");
    refused(tok, one, w, &single, &(kh_batch_opts){ .max_len = 8, .n_slot = 5, .slot_id = slots },
        KH_ELIMIT, "task \"end\": template, mask and 5 prompt slots alone take ");
    kh_words_free(w);
    kh_words_free(wm);
    kh_task_close(one);
    kh_task_close(pair);
    kh_task_close(three);
    kh_tokenizer_close(tok);
    kh_tokenizer_close(maskless);
}

/* --------------------------------------------------------------------------------------- words */

static void words_have_a_space_before_them(void **state) {
    (void)state;
    test_needs_shared("tokenizers/roberta-base/tokenizer.json");
    kh_tokenizer *tok = open_tokenizer("../shared/tokenizers/roberta-base");
    const kh_task *task;
    kh_words *w;
    assert_int_equal(kh_task_open(&task, "sst2", NULL), 0);
    assert_int_equal(kh_words_new(&w, task, tok, false, NULL), 0);
    assert_int_equal(w->n_word, 2);
    assert_int_equal(w->n_label, 2);
    assert_int_equal(w->n_variant, 1);
    assert_int_equal(w->n_mask[0], 1);
    assert_string_equal(kh_tokenizer_token(tok, w->word[1].id[0]), "\xC4\xA0great");
    assert_int_equal(kh_words_check(w, task, NULL), 0);
    kh_words_free(w);
    assert_int_equal(kh_task_open(&task, "dbpedia", NULL), 0);
    assert_int_equal(kh_words_new(&w, task, tok, true, NULL), 0);
    assert_true(w->paper_exact);
    assert_string_equal(kh_tokenizer_token(tok, w->word[3].id[0]), "A");
    assert_string_equal(kh_tokenizer_token(tok, w->word[8].id[0]), "Vill");
    for (int i = 0; i < w->n_word; i++)
        assert_int_equal(w->word[i].n_id, 1);
    kh_words_free(w);
    kh_tokenizer_close(tok);
    tok = open_tokenizer("../shared/tokenizers/bert-base-uncased");
    assert_int_equal(kh_words_new(&w, task, tok, false, NULL), 0);
    for (int i = 0; i < w->n_word; i++)
        assert_int_equal(w->word[i].n_id, 1);
    assert_string_equal(kh_tokenizer_token(tok, w->word[8].id[0]), "village");
    kh_words_free(w);
    kh_tokenizer_close(tok);
}

static void several_tokens_make_several_variants(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_WORDPIECE);
    const kh_task *task = parse_task("{\"name\":\"v\",\"template\":\"{text} {mask} "
                                     ".\",\"labels\":[{\"name\":\"a\",\"words\":[\"t\",\"h t\"]},"
                                     "{\"name\":\"b\",\"words\":[\"h\",\"h h\",\"t h t h\"]}]}");
    kh_words *w = words_of(task, tok);
    assert_int_equal(w->n_word, 5);
    assert_int_equal(w->n_variant, 3);
    static const int lengths[] = { 1, 2, 4 }, label[] = { 0, 0, 1, 1, 1 },
                     n_id[] = { 1, 2, 1, 2, 4 };
    for (int v = 0; v < 3; v++)
        assert_int_equal(w->n_mask[v], lengths[v]);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(w->word[i].label, label[i]);
        assert_int_equal(w->word[i].n_id, n_id[i]);
        assert_int_equal(w->word[i].same, -1);
    }
    assert_int_equal(w->word[0].first_same, 4);
    assert_int_equal(w->word[1].first_same, 2);
    kh_row rows[] = { row_of("a b", NULL, 0), row_of("the cat", NULL, 1) };
    kh_batch *b = encode(tok, task, w, rows, 2, &(kh_batch_opts){ .max_len = 100 });
    assert_int_equal(b->n_row, 2);
    assert_int_equal(b->n_seq, 6);
    assert_int_equal(b->n_variant, 3);
    assert_whole(tok, task, b, rows);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void all_variants_of_a_row_hold_the_same_text(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_WORDPIECE);
    const kh_task *task = parse_task("{\"name\":\"v\",\"template\":\"{text} "
                                     "{mask}\",\"labels\":[{\"name\":\"a\",\"words\":[\"t\"]},"
                                     "{\"name\":\"b\",\"words\":[\"h t h\"]}]}");
    kh_words *w = words_of(task, tok);
    kh_row row = row_of("a b a b a b a b a b a b a b a b a b a b", NULL, 0);
    kh_batch *b = encode(tok, task, w, &row, 1, &(kh_batch_opts){ .max_len = 12 });
    assert_int_equal(b->start[2] - b->start[1], 12);
    assert_int_equal(b->start[1], 10);
    assert_int_equal(b->mask[0], b->mask[1]);
    assert_memory_equal(b->id, b->id + b->start[1], (size_t)b->mask[0] * sizeof *b->id);
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void words_that_cannot_work_are_named(void **state) {
    (void)state;
    kh_err err = { 0 };
    kh_tokenizer *tok = open_tokenizer(TINY_WORDPIECE);
    const kh_task *task = parse_task("{\"name\":\"u\",\"template\":\"{text} "
                                     "{mask}\",\"labels\":[{\"name\":\"a\",\"words\":[\"t\"]},"
                                     "{\"name\":\"b\",\"words\":[\"\xF0\x9F\x98\x80\"]}]}");
    kh_words *w = words_of(task, tok);
    assert_true(w->word[1].unknown);
    assert_int_equal(kh_words_check(w, task, &err), KH_EMISMATCH);
    assert_says(&err,
        "task \"u\": the tokenizer does not know the word \"\xF0\x9F\x98\x80\" of label \"b\"; "
        "choose another");
    kh_row row = row_of("a", NULL, 0);
    refused(tok, task, w, &row, &(kh_batch_opts){ .max_len = 50 }, KH_EMISMATCH,
        "the tokenizer does not know the word");
    kh_words_free(w);
    kh_task_close(task);
    task = parse_task("{\"name\":\"s\",\"template\":\"{text} "
                      "{mask}\",\"labels\":[{\"name\":\"a\",\"words\":[\"t\"]},"
                      "{\"name\":\"b\",\"words\":[\"h\",\"T\"]}]}");
    w = words_of(task, tok);
    assert_int_equal(w->word[0].same, 2);
    assert_int_equal(w->word[1].same, -1);
    assert_int_equal(w->word[2].same, 0);
    assert_int_equal(kh_words_check(w, task, &err), KH_EMISMATCH);
    assert_says(&err,
        "task \"s\": the words \"t\" and \"T\", of labels \"a\" and \"b\", are the same to this "
        "tokenizer");
    kh_words_free(w);
    assert_int_equal(kh_words_new(&w, task, tok, true, NULL), 0);
    kh_batch *b = encode(tok, task, w, &row, 1,
        &(kh_batch_opts){ .max_len = 50, .paper_exact = true }); /* the paper's choice */
    kh_batch_free(b);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

/* ---------------------------------------------------------------------- threads, out of memory */

static void threads_do_not_change_the_batch(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(plain_tasks[3]);
    kh_words *w = words_of(task, tok);
    kh_rng r = kh_rng_stream(2, KH_RNG_TEST, 0, 0);
    enum { N = 300 };
    static char text[2 * N][512];
    static kh_row rows[N];
    for (int i = 0; i < 2 * N; i++)
        random_text(&r, text[i], sizeof text[i]);
    for (int i = 0; i < N; i++)
        rows[i] = row_of(text[2 * i], text[2 * i + 1], i % 2);
    for (int exact = 0; exact < 2; exact++) {
        kh_batch_opts o = { .max_len = 60, .n_slot = 5, .slot_id = slots, .paper_exact = exact };
        kh_threads_set(1);
        kh_batch *one = encode(tok, task, w, rows, N, &o);
        assert_true((exact ? one->n_dropped : one->n_truncated) > 10);
        for (int t = 2; t < 8; t += 3) {
            kh_threads_set(t);
            kh_batch *many = encode(tok, task, w, rows, N, &o);
            assert_int_equal(one->n_row, many->n_row);
            assert_int_equal(one->n_truncated, many->n_truncated);
            assert_memory_equal(
                one->start, many->start, (size_t)(one->n_seq + 1) * sizeof *one->start);
            assert_memory_equal(one->id, many->id, one->start[one->n_seq] * sizeof *one->id);
            assert_memory_equal(one->mask, many->mask, (size_t)one->n_seq * sizeof *one->mask);
            assert_memory_equal(one->row, many->row, (size_t)one->n_row * sizeof *one->row);
            kh_batch_free(many);
        }
        kh_batch_free(one);
    }
    kh_threads_set(0);
    kh_words_free(w);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kh_tokenizer *tok = open_tokenizer(TINY_BPE);
    const kh_task *task = parse_task(
        "{\"name\":\"v\",\"template\":\"{text} {mask} .\",\"newline_escape\":true,\"labels\":["
        "{\"name\":\"a\",\"words\":[\"t\",\"tzzz\"]},{\"name\":\"b\",\"words\":[\"h\"]}]}");
    kh_row rows[40];
    for (int i = 0; i < 40; i++)
        rows[i] = row_of(i % 7
                ? "a b\\nc"
                : "a text that is too long to fit into forty tokens, whatever one does about it",
            NULL, 0);
    for (int threads = 1; threads <= 2; threads++)
        for (long n = 1;; n += threads == 1 ? 1 : 7) {
            kh_err err = { 0 };
            kh_words *w = NULL;
            kh_batch *b = NULL;
            kh_threads_set(threads);
            kh_alloc_fail_at(n, n % 2);
            int rc = kh_words_new(&w, task, tok, false, &err);
            if (rc == 0)
                rc = kh_batch_encode(&b, tok, task, w, rows, 40,
                    &(kh_batch_opts){ .max_len = 40, .n_slot = 5, .slot_id = slots }, &err);
            kh_alloc_fail_at(0, false);
            assert_true(rc == 0 || rc == KH_ENOMEM);
            kh_batch_free(b);
            kh_words_free(w);
            if (rc == 0)
                break;
            assert_true(n < 100000);
        }
    kh_threads_set(0);
    kh_task_close(task);
    kh_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_bpe_ids_are_those_of_the_whole_text),
        cmocka_unit_test(tiny_wordpiece_ids_are_those_of_the_whole_text),
        cmocka_unit_test(real_tokenizers_ids_are_those_of_the_whole_text),
        cmocka_unit_test(real_rows_have_the_ids_of_the_whole_text),
        cmocka_unit_test(slots_stand_where_the_template_says),
        cmocka_unit_test(slots_may_stand_in_the_middle),
        cmocka_unit_test(prefix_slots_stand_before_the_plain_text),
        cmocka_unit_test(default_slots_are_ids_from_1000),
        cmocka_unit_test(special_tokens_in_a_text_stay_text),
        cmocka_unit_test(escaped_newlines_of_raw_rows_become_spaces),
        cmocka_unit_test(long_texts_are_cut_and_nothing_else),
        cmocka_unit_test(a_cut_leaves_no_space_behind),
        cmocka_unit_test(of_a_pair_the_longer_text_is_cut_first),
        cmocka_unit_test(cuts_do_not_split_characters),
        cmocka_unit_test(paper_exact_leaves_long_rows_out),
        cmocka_unit_test(what_cannot_be_encoded_is_refused),
        cmocka_unit_test(words_have_a_space_before_them),
        cmocka_unit_test(several_tokens_make_several_variants),
        cmocka_unit_test(all_variants_of_a_row_hold_the_same_text),
        cmocka_unit_test(words_that_cannot_work_are_named),
        cmocka_unit_test(threads_do_not_change_the_batch),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("data_batch", tests, NULL, NULL);
}
