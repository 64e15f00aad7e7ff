/* test_data_task.c - built-in tasks, task files, and one sentence for each mistake in them. */
#include "test.h"

#include "base/alloc.h"
#include "data/task.h"
#include "data/template.h"

#define LABELS \
    "\"labels\": " \
    "[{\"name\":\"neg\",\"words\":[\"bad\",\"awful\"]},{\"name\":\"pos\",\"words\":[\"great\"]}]"

static const kh_task *parse(const char *json) {
    kh_err err = { 0 };
    const kh_task *t;
    if (kh_task_parse(&t, json, strlen(json), "my.json", &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

static void refused(const char *json, const char *says) {
    kh_err err = { 0 };
    const kh_task *t;
    if (kh_task_parse(&t, json, strlen(json), "my.json", &err) == 0)
        fail_msg("accepted, expected: %s", says);
    assert_null(t);
    assert_int_equal(err.code, KH_EFORMAT);
    assert_says(&err, says);
}

static void built_in_tasks_are_the_nine_of_the_paper(void **state) {
    (void)state;
    static const struct {
        const char *name, *plain, *soft, *first, *last;
        int n_label;
        bool pair;
        kh_metric metric;
    } all[] = {
        { "sst2", "{text} . It was {mask} .", "{prompt} . {text} . It was {mask} .", "bad", "great",
            2, false, KH_METRIC_ACCURACY },
        { "yelp", "{text} . It was {mask} .", "{prompt} . {text} . It was {mask} .", "bad", "great",
            2, false, KH_METRIC_ACCURACY },
        { "imdb", "{text} . It was {mask} .", "{prompt} . {text} . It was {mask} .", "bad", "great",
            2, false, KH_METRIC_ACCURACY },
        { "agnews", "{mask} News: {text}", "{prompt} . {mask} News: {text}", "World", "Tech", 4,
            false, KH_METRIC_ACCURACY },
        { "dbpedia", "[ Category: {mask} ] {text}", "{prompt} [ Category: {mask} ] {text}",
            "Company", "Written", 14, false, KH_METRIC_ACCURACY },
        { "mrpc", "{text_a} ? {mask} , {text_b}", "{prompt} . {text_a} ? {mask} , {text_b}", "No",
            "Yes", 2, true, KH_METRIC_F1 },
        { "rte", "{text_a} ? {mask} , {text_b}", "{prompt} . {text_a} ? {mask} , {text_b}", "Yes",
            "No", 2, true, KH_METRIC_ACCURACY },
        { "snli", "{text_a} ? {mask} , {text_b}", "{prompt} . {text_a} ? {mask} , {text_b}", "Yes",
            "No", 3, true, KH_METRIC_ACCURACY },
        { "mnli", "{text_a} ? {mask} , {text_b}", "{prompt} . {text_a} ? {mask} , {text_b}", "Yes",
            "No", 3, true, KH_METRIC_ACCURACY },
    };
    for (int i = 0; i < 9; i++) {
        const kh_task *t = kh_task_builtin(i), *same;
        assert_string_equal(t->name, all[i].name);
        assert_string_equal(t->plain, all[i].plain);
        assert_string_equal(t->soft, all[i].soft);
        assert_int_equal(t->n_label, all[i].n_label);
        assert_string_equal(t->label[0].word[0], all[i].first);
        assert_string_equal(t->label[t->n_label - 1].word[0], all[i].last);
        assert_int_equal(t->pair, all[i].pair);
        assert_int_equal(t->metric, all[i].metric);
        assert_int_equal(t->newline_escape, strcmp(t->name, "yelp") == 0);
        assert_int_equal(kh_task_open(&same, all[i].name, NULL), 0);
        assert_ptr_equal(t, same);
        kh_task_close(same);
    }
    assert_null(kh_task_builtin(9));
    assert_null(kh_task_builtin(-1));
}

static void a_task_file_with_all_keys(void **state) {
    (void)state;
    const kh_task *t =
        parse("{\"name\":\"mood\",\"template\":\"{text} Feels {mask}!\",\"soft_template\":\"Hm: "
              "{prompt} {text} = {mask}\"," LABELS ",\"metric\":\"f1\",\"newline_escape\":true}");
    assert_string_equal(t->name, "mood");
    assert_string_equal(t->plain, "{text} Feels {mask}!");
    assert_string_equal(t->soft, "Hm: {prompt} {text} = {mask}");
    assert_int_equal(t->n_label, 2);
    assert_string_equal(t->label[0].name, "neg");
    assert_int_equal(t->label[0].n_word, 2);
    assert_string_equal(t->label[0].word[1], "awful");
    assert_int_equal(t->metric, KH_METRIC_F1);
    assert_true(t->newline_escape);
    assert_false(t->pair);
    kh_task_close(t);
}

static void one_template_gives_the_other(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        { "{text} Feels {mask}", "{text} Feels {mask}", "{prompt} . {text} Feels {mask}" },
        { "{prompt} {text} Feels {mask}", "{text} Feels {mask}", "{prompt} {text} Feels {mask}" },
        { "{prompt}{text} {mask}", "{text} {mask}", "{prompt}{text} {mask}" },
        { "{{prompt}} {text} {prompt}  {mask}", "{{prompt}} {text}  {mask}",
            "{{prompt}} {text} {prompt}  {mask}" },
        { "{text} {mask} {prompt}", "{text} {mask} ", "{text} {mask} {prompt}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"name\":\"x\",\"template\":\"%s\"," LABELS "}", cases[i][0]);
        const kh_task *t = parse(json);
        assert_string_equal(t->plain, cases[i][1]);
        assert_string_equal(t->soft, cases[i][2]);
        assert_int_equal(t->metric, KH_METRIC_ACCURACY);
        kh_task_close(t);
    }
}

static void a_template_comes_apart(void **state) {
    (void)state;
    kh_template t;
    assert_int_equal(kh_template_parse(&t, "{prompt} {{{text_a}}} ? {mask}{text_b}", "x", NULL), 0);
    static const kh_segment_kind kinds[] = { KH_SEGMENT_PROMPT, KH_SEGMENT_LITERAL, KH_SEGMENT_A,
        KH_SEGMENT_LITERAL, KH_SEGMENT_MASK, KH_SEGMENT_B };
    assert_int_equal(t.n, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(t.part[i].kind, kinds[i]);
    assert_true(t.pair && t.prompt);
    kh_buf b = kh_buf_init(100);
    kh_template_literal(&b, &t.part[1]);
    kh_template_literal(&b, &t.part[3]);
    assert_string_equal(b.data, " {} ? ");
    kh_buf_free(&b);
}

static void mistakes_in_templates(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{text} {msk}",
            "my.json: \"template\": \"{text} {msk}\" has an unknown placeholder at \"{msk}\"" },
        { "{text} {mask", "has an unknown placeholder at \"{mask\"" },
        { "{text} {mask} }", "has a closing brace alone; a brace as such is written }}" },
        { "{text} only", "holds no {mask}, the place of the answer" },
        { "{text} {mask} {mask}", "holds {mask} twice; once is allowed" },
        { "{text} {text} {mask}", "holds {text} twice" },
        { "{prompt} {prompt} {text} {mask}", "holds {prompt} twice" },
        { "It was {mask}", "holds no text; write {text}, or {text_a} and {text_b}" },
        { "{text} {text_b} {mask}",
            "mixes {text}, for one text, with {text_a} and {text_b}, for two" },
        { "{text} {text_a} {text_b} {mask} {prompt}", "mixes {text}" },
        { "{text_a} {mask}", "holds {text_a} but not {text_b}" },
        { "{text_b} {mask}", "holds {text_b} but not {text_a}" },
        { "", "holds no text" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"name\":\"x\",\"template\":\"%s\"," LABELS "}", cases[i][0]);
        refused(json, cases[i][1]);
    }
}

#define T "\"name\":\"x\",\"template\":\"{text} {mask}\""

static void mistakes_in_task_files(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "", "my.json:1: not valid JSON" },
        { "[]", "my.json: a task file must hold one JSON object" },
        { "{\"template\":\"{text} {mask}\"," LABELS "}", "my.json: \"name\" is missing" },
        { "{\"name\":\"\",\"template\":\"{text} {mask}\"," LABELS "}",
            "my.json: an empty \"name\"" },
        { "{\"name\":\"x\"," LABELS "}", "my.json: \"template\" is missing" },
        { "{" T "}", "my.json: \"labels\" must be a list of objects with \"name\" and \"words\"" },
        { "{" T "," LABELS ",\"verbalizer\":1}", "my.json: unknown key \"verbalizer\"" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\"]}]}",
            "my.json: \"labels\" has 1 entries; a task needs from 2 to 4096" },
        { "{" T ",\"labels\":[1,2]}",
            "my.json: label 0: must be an object with \"name\" and \"words\"" },
        { "{" T ",\"labels\":[{\"words\":[\"b\"]},{}]}", "my.json: label 0: \"name\" is missing" },
        { "{" T ",\"labels\":[{\"name\":\"a\"},{}]}",
            "my.json: label 0: \"words\" must be a list of at least one word" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[]},{}]}",
            "my.json: label 0: \"words\" must be a list of at least one word" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"word\":[\"b\"]},{}]}",
            "my.json: label 0: unknown key \"word\"" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[7]},{}]}",
            "my.json: label 0: \"words\" must be strings" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"\"]},{}]}",
            "my.json: label 0: an empty word" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\" b\"]},{}]}",
            "my.json: label 0: word \" b\" has a space around it" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\\nc\"]},{}]}",
            "my.json: label 0: word 3 bytes long holds a control character" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\\u009bc\"]},{}]}",
            "my.json: label 0: word 4 bytes long holds a control character" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\\u202ec\"]},{}]}",
            "my.json: label 0: word 5 bytes long holds a control character" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\",\"b\"]},{}]}",
            "my.json: label 0: word \"b\" stands there twice" },
        { "{" T ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\"]},{\"name\":\"c\",\"words\":[\"d\","
          "\"b\"]}]}",
            "my.json: label 1: word \"b\" also stands for label 0; a word can stand for one label "
            "only" },
        { "{" T
          ",\"labels\":[{\"name\":\"a\",\"words\":[\"b\"]},{\"name\":\"a\",\"words\":[\"d\"]}]}",
            "my.json: label 1: another label is called \"a\" too" },
        { "{" T "," LABELS ",\"metric\":\"mcc\"}",
            "my.json: metric \"mcc\" is not known; \"accuracy\" and \"f1\" are" },
        { "{" T ",\"metric\":\"f1\",\"labels\":[{\"name\":\"a\",\"words\":[\"a\"]},{\"name\":\"b\","
          "\"words\":[\"b\"]},{\"name\":"
          "\"c\",\"words\":[\"c\"]}]}",
            "my.json: metric \"f1\" is that of label 1 of two; this task has 3 labels" },
        { "{" T "," LABELS ",\"newline_escape\":1}",
            "my.json: \"newline_escape\" must be true or false" },
        { "{" T "," LABELS ",\"soft_template\":\"{text} {mask}\"}",
            "my.json: \"soft_template\" holds no {prompt}" },
        { "{" T "," LABELS ",\"soft_template\":\"{prompt} {text}\"}",
            "my.json: \"soft_template\": \"{prompt} {text}\" holds no {mask}" },
        { "{" T "," LABELS ",\"soft_template\":\"{prompt} {text_a} {text_b} {mask}\"}",
            "my.json: \"template\" and \"soft_template\" must hold the same texts" },
        { "{\"name\":\"x\",\"template\":\"{prompt} {text} {mask}\"," LABELS
          ",\"soft_template\":\"{prompt} {text} {mask}\"}",
            "my.json: {prompt} belongs into one of \"template\" and \"soft_template\"; both are "
            "there" },
        { "{" T "," LABELS "," LABELS "}", "duplicate object key" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i][0], cases[i][1]);
}

static void an_endless_template_is_refused(void **state) {
    (void)state;
    char json[6000] = "{\"name\":\"x\",\"template\":\"{text} {mask} ";
    size_t n = strlen(json);
    memset(json + n, 'x', 5000);
    strcpy(json + n + 5000, "\"," LABELS "}");
    refused(json, "my.json: \"template\": 5014 bytes long, at most 4096 are allowed");
}

static void opening_by_name_or_file(void **state) {
    (void)state;
    kh_err err;
    const kh_task *t;
    const char *json = "{" T "," LABELS "}";
    const char *path = test_file("task.json", json, strlen(json));
    assert_int_equal(kh_task_open(&t, path, &err), 0);
    assert_string_equal(t->name, "x");
    kh_task_close(t);
    unlink(path);
    assert_int_equal(kh_task_open(&t, "sst3", &err), KH_EMISSING);
    assert_says(&err,
        "sst3: neither a task file nor a built-in task (sst2, yelp, imdb, agnews, dbpedia, mrpc, "
        "rte, snli, mnli)");
    kh_task_close(NULL);
}

static void assert_same_task(const kh_task *a, const kh_task *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->plain, b->plain);
    assert_string_equal(a->soft, b->soft);
    assert_int_equal(a->n_label, b->n_label);
    assert_int_equal(a->metric, b->metric);
    assert_int_equal(a->pair, b->pair);
    assert_int_equal(a->newline_escape, b->newline_escape);
    for (int k = 0; k < a->n_label; k++) {
        assert_string_equal(a->label[k].name, b->label[k].name);
        assert_int_equal(a->label[k].n_word, b->label[k].n_word);
        for (int i = 0; i < a->label[k].n_word; i++)
            assert_string_equal(a->label[k].word[i], b->label[k].word[i]);
    }
}

static void a_printed_task_reads_back(void **state) {
    (void)state;
    const kh_task *mine = parse("{\"name\":\"q\\\"\\\\\",\"template\":\"{{ {prompt} {text_a} "
                                "\\\"{text_b}\\\" {mask}\"," LABELS "}");
    for (int i = -1; kh_task_builtin(i) || i < 0; i++) {
        const kh_task *t = i < 0 ? mine : kh_task_builtin(i);
        kh_buf b = kh_buf_init(1 << 20);
        kh_task_json(t, &b);
        const kh_task *back = parse(b.data);
        assert_same_task(t, back);
        kh_task_close(back);
        kh_buf_free(&b);
    }
    kh_task_close(mine);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const texts[] = { "{" T "," LABELS "}",
        "{\"name\":\"x\",\"template\":\"{prompt} {text} {mask}\"," LABELS "}",
        "{" T ",\"soft_template\":\"{prompt} {text} {mask}\"," LABELS "}" };
    for (int i = 0; i < 3; i++)
        for (long n = 1;; n++) {
            kh_err err = { 0 };
            const kh_task *t;
            kh_alloc_fail_at(n, n % 2);
            int rc = kh_task_parse(&t, texts[i], strlen(texts[i]), "my.json", &err);
            kh_alloc_fail_at(0, false);
            kh_task_close(t);
            if (rc == 0)
                break;
            assert_int_equal(rc, KH_ENOMEM);
            assert_true(n < 1000);
        }
}

/* Words that two labels have tell nothing; a label that has no others takes its name whole. */
static void labels_that_share_words(void **state) {
    (void)state;
    static const struct {
        const char *rows, *first, *second;
    } all[] = {
        { "label\ttext\nfee\ta\nno_fee\tb\n", "fee", "no" },
        { "label\ttext\na_b\ta\nb_a\tb\n", "a_b", "b_a" },
        { "label\ttext\nOfficeHolder\ta\nofficeBlock block\tb\n", "holder", "block" },
        { "label\ttext\n!!\ta\n__\tb\n", "!!", "__" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kh_dataset *d;
        const kh_task *t;
        kh_err err;
        kh_dataset_opts o = { .format = KH_FORMAT_TSV, .label_names = true };
        if (kh_dataset_parse(&d, all[i].rows, strlen(all[i].rows), "rows", &o, &err) != 0 ||
            kh_task_of_labels(&t, "x", "{text} It was {mask} .", d, NULL, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(t->n_label == 2 && t->label[0].n_word == 1 && t->label[1].n_word == 1);
        assert_string_equal(t->label[0].word[0], all[i].first);
        assert_string_equal(t->label[1].word[0], all[i].second);
        kh_task_close(t);
        kh_dataset_close(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_tasks_are_the_nine_of_the_paper),
        cmocka_unit_test(a_task_file_with_all_keys),
        cmocka_unit_test(one_template_gives_the_other),
        cmocka_unit_test(a_template_comes_apart),
        cmocka_unit_test(mistakes_in_templates),
        cmocka_unit_test(mistakes_in_task_files),
        cmocka_unit_test(an_endless_template_is_refused),
        cmocka_unit_test(opening_by_name_or_file),
        cmocka_unit_test(a_printed_task_reads_back),
        cmocka_unit_test(labels_that_share_words),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("data_task", tests, NULL, NULL);
}
