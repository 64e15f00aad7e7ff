/* test_prompt_text.c - text prompts: how they are written, what they are made of, and their space:
 * a prior that adds up to one, draws that follow it, steps that leave it alone. */
#include "tiny_tune.h"

#include "prompt/text_space.h"

#include <math.h>

static char file_path[80];

static int open_all(void **state) {
    snprintf(file_path, sizeof file_path, "/tmp/keyhole-test-lines-%ld", (long)getpid());
    return tune_setup(state, "text", KH_ACCESS_LOGPROBS, 4, 4, 2);
}

static int close_all(void **state) {
    unlink(file_path);
    return tune_teardown(state);
}

static void write_lines(const char *text) {
    assert_int_equal(kh_file_write(file_path, text, strlen(text), NULL), 0);
}

static kh_text_space *space_with(kh_text_space_opts o) {
    kh_text_space *s;
    kh_err err;
    o.synonyms = o.synonyms ? o.synonyms : "none";
    o.demo_length = o.demo_length ? o.demo_length : 160;
    if (kh_text_space_new(&s, &o, task, plm, kh_dataset_rows(train), 4, &err) != 0)
        fail_msg("%s", err.msg);
    return s;
}

static void refused(kh_text_space_opts o, const char *why) {
    kh_text_space *s;
    kh_err err;
    o.synonyms = o.synonyms ? o.synonyms : "none";
    assert_int_not_equal(kh_text_space_new(&s, &o, task, plm, kh_dataset_rows(train), 4, &err), 0);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

/* ------------------------------------------------------------------------------------- writing */

static void a_prompt_is_one_template(void **state) {
    (void)state;
    const char *word[] = { "awful", "fine" };
    kh_label label[] = { { "bad", &word[0], 1 }, { "good", &word[1], 1 } };
    kh_row row[] = { { .a = "one {x}", .n_a = 7, .label = 1 }, { .a = "two", .n_a = 3 } };
    int demo[] = { 0, 1 };
    kh_text_prompt p = { "Say {it}.", "{text} Is {mask} .", label, demo, 2 };
    kh_buf b = kh_buf_init(1 << 16);
    kh_text_prompt_write(&p, task, row, -1, NULL, &b);
    assert_string_equal(
        b.data, "Say {{it}}.\none {{x}} Is fine .\ntwo Is awful .\n{text} Is {mask} .");
    kh_buf_reset(&b);
    kh_text_prompt_write(&p, task, row, 0, "{text} : {mask}", &b);
    assert_string_equal(b.data, "Say {{it}}.\ntwo Is awful .\n{text} : {mask}");
    kh_buf_reset(&b);
    p.instruction = "";
    p.n_demo = 0;
    kh_text_prompt_show(&p, task, row, &b);
    assert_string_equal(
        b.data, "[TEXT] Is [ANSWER] .\n[ANSWER] is one of \"awful\" (bad), or \"fine\" (good)\n");
    kh_buf_free(&b);
}

static void texts_that_are_shown_end_at_a_word(void **state) {
    (void)state;
    kh_arena a = { 0 };
    kh_row *copy,
        row[] = { { .a = "a whole sentence here", .n_a = 21 },
            { .a = "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", .n_a = 8 } };
    assert_int_equal(kh_text_rows_copy(&copy, &a, row, 2, 12, NULL), 0);
    assert_string_equal(copy[0].a, "a whole");
    assert_string_equal(copy[1].a, row[1].a);
    assert_int_equal(kh_text_rows_copy(&copy, &a, row, 2, 3, NULL), 0);
    assert_string_equal(copy[0].a, "a");
    assert_string_equal(copy[1].a, "\xc3\xa4\xc3\xa4\xc3\xa4"); /* no half characters */
    kh_arena_free(&a);
}

/* ------------------------------------------------------------------------------------ material */

static bool has_edit(const kh_instruction *x, const char *text) {
    for (int i = 0; i < x->n; i++)
        if (strcmp(x->text[i], text) == 0)
            return true;
    return false;
}

static void lines_of_a_file_are_instructions_and_templates(void **state) {
    (void)state;
    write_lines("# a remark\n\n  Say how it was.  \n{text} was {mask} !\nSay how it was.\n");
    kh_text_space *s = space_with((kh_text_space_opts){ .instructions = file_path, .edits = 0.5 });
    assert_int_equal(s->material.n_instruction, 2);
    assert_string_equal(s->material.instruction[0].text[0], "");
    assert_string_equal(s->material.instruction[1].text[0], "Say how it was.");
    assert_int_equal(s->material.n_wording, 2);
    assert_string_equal(s->material.wording[0].template, "{text} It was {mask} .");
    assert_string_equal(s->material.wording[1].template, "{text} was {mask} !");
    kh_text_space_free(s);
    write_lines("{text_a} was {mask} !\n");
    refused((kh_text_space_opts){ .instructions = file_path }, "line 1");
    write_lines("{text_a} {text_b} was {mask} !\n");
    refused((kh_text_space_opts){ .instructions = file_path }, "does not fit task \"toy\"");
    write_lines("# nothing\n");
    refused((kh_text_space_opts){ .instructions = file_path }, "holds no instruction");
    refused((kh_text_space_opts){ .instructions = "/nowhere" }, "/nowhere");
}

static void instructions_are_edited(void **state) {
    (void)state;
    write_lines("Say how, please!\n");
    char list[] = "/tmp/keyhole-test-synonymsXXXXXX";
    int fd = mkstemp(list);
    assert_true(fd >= 0 && write(fd, "# words\nsay: tell , give\n", 24) == 24);
    close(fd);
    kh_text_space *s = space_with(
        (kh_text_space_opts){ .instructions = file_path, .synonyms = list, .edits = 0.5 });
    const kh_instruction *x = &s->material.instruction[1];
    static const char *const EDITS[] = { "Say how, please!", "Tell how, please!",
        "Give how, please!", "how, please!", "Say please!", "Say how,", "how Say, please!",
        "Say please, how!" };
    assert_int_equal(x->n, 8);
    for (int i = 0; i < 8; i++)
        if (!has_edit(x, EDITS[i]))
            fail_msg("no edit \"%s\"", EDITS[i]);
    kh_text_space_free(s);
    assert_int_equal(kh_file_write(list, "say tell\n", 9, NULL), 0);
    refused((kh_text_space_opts){ .instructions = file_path, .synonyms = list, .edits = 0.5 },
        "\"word: other, other\"");
    unlink(list);
}

static void tasks_bring_sets_of_their_own(void **state) {
    (void)state;
    kh_text_space *s = space_with((kh_text_space_opts){ .edits = 0.5, .synonyms = "builtin" });
    assert_true(s->material.n_instruction == 3 && s->material.n_wording == 3); /* generic */
    assert_string_equal(s->material.instruction[1].text[0], "Classify the text as bad or good.");
    assert_true(s->material.wording[0].n_words == 2); /* its words, and the labels' names */
    kh_text_space_free(s);
    s = space_with((kh_text_space_opts){ .edits = 0.5, .synonyms = "model" });
    assert_true(s->material.instruction[1].n > 3);
    kh_text_space_free(s);
    for (int i = 0; kh_task_builtin(i); i++) {
        kh_arena a = { 0 };
        kh_material m;
        assert_int_equal(kh_material_start(&m, &a, kh_task_builtin(i), false, NULL), 0);
        assert_int_equal(kh_material_builtin(&m, NULL), 0);
        assert_true(m.n_instruction >= 3 && m.n_wording >= 3);
        kh_material_free(&m);
        assert_int_equal(kh_material_start(&m, &a, kh_task_builtin(i), true, NULL), 0);
        assert_int_equal(kh_material_builtin(&m, NULL), 0);
        for (int k = 0; k < m.n_wording; k++) /* no text behind the answer */
            assert_null(strstr(strstr(m.wording[k].template, "{mask}"), "{text"));
        kh_material_free(&m);
        kh_arena_free(&a);
    }
}

/* ----------------------------------------------------------------------------------- the space */

enum { MOST = 4096, DIM = KH_TEXT_FIRST_DEMO + 2 };

/* All points of a space of at most two demonstrations. */
static int enumerate(const kh_text_space *s, float (*out)[DIM]) {
    int n = 0, rows = s->n_row;
    for (int t = 0; t < s->material.n_wording; t++)
        for (int w = 0; w < s->material.wording[t].n_words; w++)
            for (int i = 0; i < s->material.n_instruction; i++)
                for (int e = 0; e < s->material.instruction[i].n; e++)
                    for (int d = 0; d < 1 + rows + rows * rows; d++) {
                        int a = d == 0  ? -1
                            : d <= rows ? d - 1
                                        : (d - 1 - rows) / rows,
                            b = d <= rows ? -1 : (d - 1 - rows) % rows;
                        int k = (a >= 0) + (b >= 0);
                        if ((b >= 0 && a == b) || k > s->demos)
                            continue;
                        float x[DIM] = { (float)t, (float)w, (float)i, (float)e, (float)k, (float)a,
                            (float)b };
                        assert_true(n < MOST);
                        memcpy(out[n++], x, sizeof x);
                    }
    return n;
}

static int find(float (*all)[DIM], int n, const float *x) {
    for (int i = 0; i < n; i++)
        if (memcmp(all[i], x, sizeof all[i]) == 0)
            return i;
    fail_msg("a point that is none");
    return -1;
}

static kh_text_space *small_space(void) {
    write_lines("Say it now.\nHow was it?\n{text} was {mask} !\n");
    return space_with((kh_text_space_opts){ .instructions = file_path, .edits = 0.4, .demos = 2 });
}

static float points[MOST][DIM];
static double prior[MOST], shared[MOST];

static void the_prior_adds_up_and_draws_follow_it(void **state) {
    (void)state;
    kh_text_space *s = small_space();
    int n = enumerate(s, points);
    double sum = 0, off = 0;
    enum { DRAWS = 200000 };
    for (int i = 0; i < n; i++) {
        sum += prior[i] = exp(kh_text_space_log_prior(s, points[i]));
        shared[i] = 0;
    }
    assert_true(fabs(sum - 1) < 1e-12);
    for (int k = 0; k < DRAWS; k++) {
        kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 1, (uint32_t)k);
        float x[DIM];
        kh_text_space_draw(s, &r, x);
        shared[find(points, n, x)] += 1.0 / DRAWS;
    }
    for (int i = 0; i < n; i++)
        off += fabs(shared[i] - prior[i]) / 2;
    print_message("%d prompts, total variation of %d draws %.4f\n", n, DRAWS, off);
    assert_true(off < 0.5 * sqrt((double)n / DRAWS));
    float own[DIM];
    kh_text_space_own(s, own);
    assert_true(prior[find(points, n, own)] >= 0.5 * 0.5 * 0.5 * 0.5 - 1e-12);
    kh_text_space_free(s);
}

/* Detailed balance, counted: of pairs (x from the prior, step to y), as many go from part A of the
 * space to part B as back. Parts are told apart by each coordinate, by pairs of them, and by both
 * ends; a step that is invariant but not reversible fails. */
static void steps_are_reversible_under_the_prior(void **state) {
    (void)state;
    kh_text_space *s = small_space();
    enum { DRAWS = 400000, KEYS = 6 };
    static double flow[3][1 << (2 * KEYS)];
    static const double STEP[] = { 0.1, 0.6, 1 };
    for (int b = 0; b < 3; b++) {
        memset(flow[b], 0, sizeof flow[b]);
        for (int k = 0; k < DRAWS; k++) {
            kh_rng r = kh_rng_stream(4, KH_RNG_TEST, (uint32_t)b, (uint32_t)k);
            float x[2][DIM];
            int key[2] = { 0, 0 };
            kh_text_space_draw(s, &r, x[0]);
            kh_text_space_move(s, &r, STEP[b], x[0], x[1]);
            for (int e = 0; e < 2; e++) {
                const float *y = x[e];
                int bits[KEYS] = { y[0] > 0, y[2] > 0, y[3] > 0, y[4] > 0, y[4] > 1, y[5] > y[6] };
                for (int i = 0; i < KEYS; i++)
                    key[e] |= bits[i] << i;
                assert_true(isfinite(kh_text_space_log_prior(s, y)));
            }
            flow[b][key[0] << KEYS | key[1]]++;
        }
        for (int i = 0; i < 1 << KEYS; i++)
            for (int j = 0; j < i; j++) {
                double there = flow[b][i << KEYS | j], back = flow[b][j << KEYS | i];
                if (fabs(there - back) > 5 * sqrt(there + back + 1))
                    fail_msg("step %g: %g from %d to %d, %g back", STEP[b], there, i, j, back);
            }
    }
    kh_text_space_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_one_template),
        cmocka_unit_test(texts_that_are_shown_end_at_a_word),
        cmocka_unit_test(lines_of_a_file_are_instructions_and_templates),
        cmocka_unit_test(instructions_are_edited),
        cmocka_unit_test(tasks_bring_sets_of_their_own),
        cmocka_unit_test(the_prior_adds_up_and_draws_follow_it),
        cmocka_unit_test(steps_are_reversible_under_the_prior),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
