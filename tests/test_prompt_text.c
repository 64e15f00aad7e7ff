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

/* A task from a description; free it with kh_task_close. */
static const kh_task *task_of(const char *json) {
    const kh_task *t;
    kh_err err;
    if (kh_task_parse(&t, json, strlen(json), "task.json", &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

static const char PAIR_TASK[] =
    "{\"name\":\"same\",\"template\":\"{text_a} {text_b} ? {mask} .\",\"labels\":[{\"name\":"
    "\"no\",\"words\":[\"lower\"]},{\"name\":\"yes\",\"words\":[\"better\"]}]}";

/* Reads file_path as the material of a task; free both. */
static int read_material(kh_material *m, kh_arena *a, const kh_task *t, bool next, kh_err *err) {
    *a = (kh_arena){ 0 };
    assert_int_equal(kh_material_start(m, a, t, next, NULL), 0);
    return kh_material_file(m, file_path, err);
}

static void refused_line(const kh_task *t, bool next, const char *why) {
    kh_arena a;
    kh_material m;
    kh_err err;
    assert_int_not_equal(read_material(&m, &a, t, next, &err), 0);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
    kh_material_free(&m);
    kh_arena_free(&a);
}

static void templates_of_a_file_must_suit_task_and_model(void **state) {
    (void)state;
    const kh_task *pair = task_of(PAIR_TASK);
    write_lines("{prompt} {text} was {mask} !");
    refused_line(task, false, "it must hold {text} and no {prompt}");
    write_lines("fine\n{mask} , says {text}\n");
    refused_line(task, true, "line 2: the template \"{mask} , says {text}\" does not fit");
    refused_line(task, true, "{text} before {mask} and no {prompt}");
    write_lines("{text} was {mask} !");
    refused_line(pair, false, "it must hold {text_a} and {text_b} and no {prompt}");
    write_lines("{text_a} {mask} {text_b}\n");
    refused_line(pair, true, "{text_a} and {text_b} before {mask}");
    kh_arena a;
    kh_material m;
    assert_int_equal(read_material(&m, &a, pair, false, NULL), 0);
    assert_string_equal(m.wording[m.n_wording - 1].template, "{text_a} {mask} {text_b}");
    kh_material_free(&m);
    kh_arena_free(&a);
    kh_task_close(pair);
}

static void lines_are_short_and_hold_text(void **state) {
    (void)state;
    static char line[4098];
    kh_arena a;
    kh_material m;
    memset(line, 'a', 4097);
    write_lines(line);
    refused_line(task, false, "line 1: an instruction is one line of at most 4096 bytes");
    line[4096] = '\0';
    write_lines(line);
    assert_int_equal(read_material(&m, &a, task, false, NULL), 0);
    assert_string_equal(m.instruction[1].text[0], line);
    kh_material_free(&m);
    kh_arena_free(&a);
    assert_int_equal(kh_file_write(file_path, "one\ntw\0o\n", 9, NULL), 0);
    refused_line(task, false, "line 2: an instruction is one line");
}

static void synonyms_refused(const char *text, size_t n, const char *why) {
    kh_synonyms y = { 0 };
    kh_arena a = { 0 };
    kh_err err;
    assert_int_not_equal(kh_synonyms_parse(&y, &a, text, n, "list", &err), 0);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
    kh_synonyms_free(&y);
    kh_arena_free(&a);
}

static void synonyms_are_read_line_by_line(void **state) {
    (void)state;
    static const char LIST[] = "\n# a: b\n \t\n say : tell , , give,\nname:\n\nread: see";
    kh_synonyms y = { 0 };
    kh_arena a = { 0 };
    assert_int_equal(kh_synonyms_parse(&y, &a, LIST, sizeof LIST - 1, "list", NULL), 0);
    static const char *const PAIRS[][2] = { { "say", "tell" }, { "say", "give" },
        { "read", "see" } };
    assert_int_equal(y.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(y.pair[i].word, PAIRS[i][0]);
        assert_string_equal(y.pair[i].other, PAIRS[i][1]);
    }
    kh_synonyms_free(&y);
    kh_arena_free(&a);
    synonyms_refused("a: b\n: c\n", 9, "list, line 2: synonyms are written \"word: other");
    synonyms_refused("a: \0b\n", 6, "list, line 1");
    write_lines("");
    kh_text_space *s = space_with((kh_text_space_opts){ .synonyms = file_path, .edits = 0.5 });
    kh_text_space_free(s); /* an empty list: what is left out and what is swapped */
    refused((kh_text_space_opts){ .synonyms = "/nowhere" }, "/nowhere");
}

static kh_material edited(kh_arena *a, const char *lines, const char *synonyms) {
    kh_material m;
    kh_synonyms y = { 0 };
    write_lines(lines);
    assert_int_equal(read_material(&m, a, task, false, NULL), 0);
    if (synonyms)
        assert_int_equal(kh_synonyms_parse(&y, a, synonyms, strlen(synonyms), "list", NULL), 0);
    assert_int_equal(kh_material_edit(&m, synonyms ? &y : NULL, NULL), 0);
    kh_synonyms_free(&y);
    return m;
}

/* What stands behind the words that are edited stays, too. */
static void edits_of_a_long_instruction_keep_its_end(void **state) {
    (void)state;
    kh_arena a;
    kh_buf lines = kh_buf_init(1 << 16);
    for (int i = 0; i < 50; i++)
        kh_buf_printf(&lines, "w%d ", i);
    kh_buf_text(&lines, "end.\n");
    kh_material m = edited(&a, lines.data, "w0: first\nw45: late");
    const kh_instruction *x = &m.instruction[1];
    assert_int_equal(x->n, 65); /* as many as there may be, and itself */
    for (int i = 0; i < x->n; i++)
        if (!strstr(x->text[i], " w40 w41 w42") || !strstr(x->text[i], " w48 w49 end."))
            fail_msg("the end is missing: \"%s\"", x->text[i]);
    assert_non_null(strstr(x->text[1], "first w1 w2"));
    kh_buf_free(&lines);
    kh_material_free(&m);
    kh_arena_free(&a);
}

static void short_instructions_have_few_edits(void **state) {
    (void)state;
    kh_arena a;
    kh_material m = edited(&a, "Answer:\n-- say  it\n", NULL);
    assert_int_equal(m.instruction[1].n, 1); /* a word alone is not left out */
    const kh_instruction *x = &m.instruction[2];
    assert_int_equal(m.instruction[0].n, 1);
    assert_true(has_edit(x, "say it") && has_edit(x, "-- it"));
    kh_material_free(&m);
    kh_arena_free(&a);
}

static void names_of_labels_are_words_if_all_differ(void **state) {
    (void)state;
    const kh_task *t =
        task_of("{\"name\":\"t\",\"template\":\"{text} {mask}\",\"labels\":[{\"name\":"
                "\"world news\",\"words\":[\"lower\"]},{\"name\":\"world sports\","
                "\"words\":[\"better\"]}]}");
    kh_arena a = { 0 };
    kh_material m;
    assert_int_equal(kh_material_start(&m, &a, t, false, NULL), 0);
    assert_int_equal(m.wording[0].n_words, 1); /* both names begin with "world" */
    kh_material_free(&m);
    kh_arena_free(&a);
    kh_task_close(t);
}

/* An instruction that lists many labels is none that anybody would read. */
static void many_labels_are_not_listed(void **state) {
    (void)state;
    kh_buf json = kh_buf_init(1 << 16);
    kh_arena a = { 0 };
    kh_material m;
    kh_buf_text(&json, "{\"name\":\"many\",\"template\":\"{text} {mask}\",\"labels\":[");
    for (int k = 0; k < 13; k++)
        kh_buf_printf(
            &json, "%s{\"name\":\"n%c\",\"words\":[\"w%c\"]}", k ? "," : "", 'a' + k, 'a' + k);
    kh_buf_text(&json, "]}");
    const kh_task *t = task_of(json.data);
    assert_int_equal(kh_material_start(&m, &a, t, false, NULL), 0);
    assert_int_equal(kh_material_builtin(&m, NULL), 0);
    assert_int_equal(m.n_instruction, 1);
    assert_int_equal(m.n_wording, 3);
    kh_material_free(&m);
    kh_arena_free(&a);
    kh_task_close(t);
    kh_buf_free(&json);
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
        cmocka_unit_test(templates_of_a_file_must_suit_task_and_model),
        cmocka_unit_test(lines_are_short_and_hold_text),
        cmocka_unit_test(synonyms_are_read_line_by_line),
        cmocka_unit_test(edits_of_a_long_instruction_keep_its_end),
        cmocka_unit_test(short_instructions_have_few_edits),
        cmocka_unit_test(names_of_labels_are_words_if_all_differ),
        cmocka_unit_test(many_labels_are_not_listed),
        cmocka_unit_test(the_prior_adds_up_and_draws_follow_it),
        cmocka_unit_test(steps_are_reversible_under_the_prior),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
