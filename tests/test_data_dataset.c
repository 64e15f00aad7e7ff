/* test_data_dataset.c - files of labelled rows: formats, labels, and one sentence for each way to
 * be wrong. */
#include "test.h"

#include "base/alloc.h"
#include "data/dataset.h"

#include <sys/stat.h>

static kh_dataset *read_as(const char *name, const char *text, const kh_dataset_opts *o) {
    kh_err err = { 0 };
    kh_dataset *d;
    if (kh_dataset_parse(&d, text, strlen(text), name, o, &err) != 0)
        fail_msg("%s", err.msg);
    return d;
}

/* The sentence must hold `says`. Bytes, because some of them are NUL. */
static void refused_bytes(const char *name, const char *bytes, size_t n, const kh_dataset_opts *o,
    long line, const char *says) {
    kh_err err = { 0 };
    kh_dataset *d;
    int rc = kh_dataset_parse(&d, bytes, n, name, o, &err);
    if (rc == 0)
        fail_msg("%s was accepted, expected: %s", name, says);
    assert_null(d);
    assert_true(rc == KH_EFORMAT || rc == KH_EMISMATCH);
    assert_int_equal(err.code, rc);
    assert_says(&err, says);
    assert_int_equal(err.line, line);
}

static void refused(const char *name, const char *text, long line, const char *says) {
    refused_bytes(name, text, strlen(text), NULL, line, says);
}

static void assert_row(const kh_dataset *d, int i, int label, const char *a, const char *b) {
    const kh_row *row = &kh_dataset_rows(d)[i];
    assert_int_equal(row->label, label);
    assert_int_equal(row->n_a, strlen(a));
    assert_memory_equal(row->a, a, row->n_a);
    if (!b) {
        assert_null(row->b);
        return;
    }
    assert_non_null(row->b);
    assert_int_equal(row->n_b, strlen(b));
    assert_memory_equal(row->b, b, row->n_b);
}

static const kh_task *task(const char *name) {
    const kh_task *t;
    assert_int_equal(kh_task_open(&t, name, NULL), 0);
    return t;
}

/* ------------------------------------------------------------------------------------- formats */

static void tsv_with_label_and_text(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.tsv", "label\ttext\n0\tone\n1\ttwo \"quoted\"\n", NULL);
    assert_int_equal(kh_dataset_size(d), 2);
    assert_int_equal(kh_dataset_labels(d), 2);
    assert_null(kh_dataset_label(d, 0));
    assert_null(kh_dataset_label(d, 7));
    assert_false(kh_dataset_pairs(d));
    assert_int_equal(kh_dataset_format(d), KH_FORMAT_TSV);
    assert_string_equal(kh_dataset_path(d), "x.tsv");
    assert_row(d, 0, 0, "one", NULL);
    assert_row(d, 1, 1, "two \"quoted\"", NULL);
    assert_int_equal(kh_dataset_rows(d)[1].line, 3);
    kh_dataset_close(d);
}

static void tsv_columns_in_any_order_with_others_between(void **state) {
    (void)state;
    kh_dataset *d =
        read_as("x.tsv", "id\tText_B\tnote\tTEXT_A\tLabel\n7\tbee\tn\tay\t1\n8\tb\t\ta\t0\n", NULL);
    assert_true(kh_dataset_pairs(d));
    assert_row(d, 0, 1, "ay", "bee");
    assert_row(d, 1, 0, "a", "b");
    kh_dataset_close(d);
}

static void glue_sst2_trims_its_sentences(void **state) {
    (void)state;
    kh_dataset *d = read_as("train.tsv",
        "sentence\tlabel\nhide new secretions from the parental units \t0\nfine\t1\n", NULL);
    assert_row(d, 0, 0, "hide new secretions from the parental units", NULL);
    assert_row(d, 1, 1, "fine", NULL);
    kh_dataset_close(d);
}

static void glue_mrpc_with_bom_and_crlf(void **state) {
    (void)state;
    kh_dataset *d = read_as("msr.tsv",
        "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\tAmrozi accused "
        "\"him\tReferring to "
        "him\r\n0\t1\t2\tx\ty\r\n",
        NULL);
    assert_row(d, 0, 1, "Amrozi accused \"him", "Referring to him");
    assert_row(d, 1, 0, "x", "y");
    kh_dataset_close(d);
}

static void glue_rte_label_words_follow_the_task(void **state) {
    (void)state;
    kh_dataset_opts o = { .task = task("rte") };
    const char *text =
        "index\tsentence1\tsentence2\tlabel\n0\tp\th\tnot_entailment\n1\tp2\th2\tentailment\n";
    kh_dataset *d = read_as("rte.tsv", text, &o);
    assert_row(d, 0, 1, "p", "h");
    assert_row(d, 1, 0, "p2", "h2");
    assert_string_equal(kh_dataset_label(d, 1), "not_entailment");
    kh_dataset_close(d);
}

static void glue_qnli_and_nli_columns(void **state) {
    (void)state;
    kh_dataset *d = read_as("qnli.tsv",
        "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n1\tq\ts\tnot_entailment\n",
        NULL);
    assert_row(d, 0, 0, "Who?", "He.");
    kh_dataset_close(d);
    d = read_as("mnli.tsv",
        "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n0\t(x)"
        "\ta\tb\tneutral\tneutral\n"
        "1\t(x)\tc\td\tneutral\t-\n2\t(x)\te\tf\tx\tentailment\n",
        &(kh_dataset_opts){ .task = task("mnli") });
    assert_int_equal(kh_dataset_size(d), 2);
    assert_int_equal(kh_dataset_undecided(d), 1);
    assert_row(d, 0, 1, "a", "b");
    assert_row(d, 1, 0, "e", "f");
    kh_dataset_close(d);
    d = read_as("nli.tsv", "premise\thypothesis\tlabel\na\tb\t0\nc\td\t2\n", NULL);
    assert_row(d, 1, 2, "c", "d");
    kh_dataset_close(d);
}

static void csv_without_header_counts_from_one(void **state) {
    (void)state;
    kh_dataset *d = read_as("ag.csv",
        "\"3\",\"Wall St. Bears, back\",\"Reuters - \"\"Short\"\" "
        "sellers\"\n\"4\",\"b\",\"c\"\n1,w,x\n",
        NULL);
    assert_int_equal(kh_dataset_format(d), KH_FORMAT_CSV_NOHEADER);
    assert_int_equal(kh_dataset_labels(d), 4);
    assert_row(d, 0, 2, "Wall St. Bears, back Reuters - \"Short\" sellers", NULL);
    assert_row(d, 1, 3, "b c", NULL);
    assert_row(d, 2, 0, "w x", NULL);
    kh_dataset_close(d);
}

static void csv_without_header_counts_from_zero_if_a_zero_is_there(void **state) {
    (void)state;
    kh_dataset *d = read_as("mr.csv", "1,good film\n0,bad film\n", NULL);
    assert_int_equal(kh_dataset_labels(d), 2);
    assert_row(d, 0, 1, "good film", NULL);
    assert_row(d, 1, 0, "bad film", NULL);
    kh_dataset_close(d);
}

static void csv_without_header_for_a_pair_task(void **state) {
    (void)state;
    kh_dataset *d =
        read_as("p.csv", "1,\"a, b\",c\n2,d,\"e\"\n", &(kh_dataset_opts){ .task = task("rte") });
    assert_row(d, 0, 0, "a, b", "c");
    assert_row(d, 1, 1, "d", "e");
    kh_dataset_close(d);
}

static void csv_quoted_fields_may_hold_line_breaks(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.csv",
        "label,text\r\n0,\"one\r\ntwo\r\n\r\nthree\"\r\n1,\"\"\"so\"\"\"\r\n\r\n1,a \"b\" c\r\n",
        NULL);
    assert_row(d, 0, 0, "one\r\ntwo\r\n\r\nthree", NULL);
    assert_row(d, 1, 1, "\"so\"", NULL);
    assert_row(d, 2, 1, "a \"b\" c", NULL);
    assert_int_equal(kh_dataset_rows(d)[1].line, 6);
    assert_int_equal(kh_dataset_rows(d)[2].line, 8);
    kh_dataset_close(d);
}

static void csv_title_and_content_are_joined(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.csv", "label,title,content\n0,T,body\n1,,only body\n", NULL);
    assert_row(d, 0, 0, "T body", NULL);
    assert_row(d, 1, 1, "only body", NULL);
    kh_dataset_close(d);
    d = read_as("x.csv", "content,label,title\nbody,0,T\nb,1,t\n", NULL);
    assert_row(d, 0, 0, "T body", NULL);
    assert_row(d, 1, 1, "t b", NULL);
    kh_dataset_close(d);
}

static void csv_three_text_columns_are_joined(void **state) {
    (void)state;
    kh_dataset *d =
        read_as("yahoo.csv", "\"1\",\"q\",\"\",\"best answer\"\n\"2\",\"a\",\"b\",\"c\"\n", NULL);
    assert_row(d, 0, 0, "q  best answer", NULL);
    assert_row(d, 1, 1, "a b c", NULL);
    kh_dataset_close(d);
}

static void jsonl_with_escapes_and_names_beside_numbers(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.jsonl",
        "{\"text\": \"caf\\u00e9 \\\"x\\\"\\n\\ud83d\\ude00\", \"label\": 1, \"label_text\": "
        "\"positive\"}\n\n"
        "{\"label\": 0, \"id\": [1, {}], \"label_text\": \"negative\", \"text\": \"two\"}\r\n",
        NULL);
    assert_row(d, 0, 1, "caf\xC3\xA9 \"x\"\n\xF0\x9F\x98\x80", NULL);
    assert_row(d, 1, 0, "two", NULL);
    assert_string_equal(kh_dataset_label(d, 0), "negative");
    assert_string_equal(kh_dataset_label(d, 1), "positive");
    assert_int_equal(kh_dataset_rows(d)[1].line, 3);
    kh_dataset_close(d);
}

static void jsonl_pairs_and_label_text_alone(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.jsonl",
        "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label_text\": \"yes\"}\n"
        "{\"premise\": \"c\", \"hypothesis\": \"d\", \"label_text\": \"no\"}\n",
        NULL);
    assert_true(kh_dataset_pairs(d));
    assert_row(d, 0, 1, "a", "b");
    assert_row(d, 1, 0, "c", "d");
    assert_string_equal(kh_dataset_label(d, 0), "no");
    kh_dataset_close(d);
    d = read_as("x.jsonl",
        "{\"title\": \"T\", \"content\": \"C\", \"label\": 0}\n{\"title\": \"t\", \"content\": "
        "\"c\", \"label\": 1}\n",
        NULL);
    assert_row(d, 0, 0, "T C", NULL);
    kh_dataset_close(d);
}

static void format_is_found_by_content_without_an_extension(void **state) {
    (void)state;
    static const struct {
        const char *text;
        kh_format format;
    } cases[] = {
        { "label\ttext\n0\ta, b\n1\tb\n", KH_FORMAT_TSV },
        { "label,text\n0,a\n1,b\n", KH_FORMAT_CSV },
        { "1,a\n2,b\n", KH_FORMAT_CSV_NOHEADER },
        { "\n {\"text\":\"a\\t,\",\"label\":0}\n{\"text\":\"b\",\"label\":1}", KH_FORMAT_JSONL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kh_dataset *d = read_as("rows", cases[i].text, NULL);
        assert_int_equal(kh_dataset_format(d), cases[i].format);
        assert_int_equal(kh_dataset_size(d), 2);
        kh_dataset_close(d);
    }
}

static void format_can_be_forced(void **state) {
    (void)state;
    kh_dataset *d =
        read_as("x.txt", "text,label\n2,b\n", &(kh_dataset_opts){ .format = KH_FORMAT_CSV });
    assert_int_equal(kh_dataset_size(d), 1);
    kh_dataset_close(d);
    d = read_as(
        "x.tsv", "1,text\n2,label\n", &(kh_dataset_opts){ .format = KH_FORMAT_CSV_NOHEADER });
    assert_row(d, 0, 0, "text", NULL);
    kh_dataset_close(d);
}

static void escaped_newlines_become_spaces_where_asked(void **state) {
    (void)state;
    const char *text = "label\ttext\n1\tGood.\\n\\nReally\\\\n\\\n0\t\\nb\n";
    kh_dataset *d = read_as("x.tsv", text, NULL);
    assert_row(d, 0, 1, "Good.\\n\\nReally\\\\n\\", NULL);
    kh_dataset_close(d);
    d = read_as("x.tsv", text, &(kh_dataset_opts){ .newline_escape = true });
    assert_row(d, 0, 1, "Good.  Really\\ \\", NULL);
    assert_row(d, 1, 0, "b", NULL);
    kh_dataset_close(d);
    d = read_as("x.tsv", text, &(kh_dataset_opts){ .task = task("yelp") });
    assert_row(d, 0, 1, "Good.  Really\\ \\", NULL);
    kh_dataset_close(d);
}

static void last_line_needs_no_newline(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.tsv", "label\ttext\n0\ta\n1\tb", NULL);
    assert_row(d, 1, 1, "b", NULL);
    kh_dataset_close(d);
    d = read_as("x.csv", "label,text\n0,a\n1,\"b\"", NULL);
    assert_row(d, 1, 1, "b", NULL);
    kh_dataset_close(d);
}

/* -------------------------------------------------------------------------------------- labels */

static void names_found_in_a_file_count_alphabetically(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.tsv", "label\ttext\nwest\ta\neast\tb\nsouth\tc\neast\td\n", NULL);
    assert_int_equal(kh_dataset_labels(d), 3);
    assert_string_equal(kh_dataset_label(d, 0), "east");
    assert_string_equal(kh_dataset_label(d, 2), "west");
    assert_row(d, 0, 2, "a", NULL);
    assert_row(d, 1, 0, "b", NULL);
    assert_row(d, 2, 1, "c", NULL);
    kh_dataset_close(d);
}

/* A file in a scratch folder of its own; the path lives until the next call but one. */
static const char *folder_file(const char *dir, const char *name, const char *text) {
    static char paths[2][512];
    static int turn;
    char where[256], *path = paths[turn ^= 1];
    snprintf(where, sizeof where, "/tmp/keyhole-test-%ld-%s", (long)getpid(), dir);
    mkdir(where, 0700);
    snprintf(path, sizeof paths[0], "%s/%s", where, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void remove_folder(const char *dir) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf /tmp/keyhole-test-%ld-%s", (long)getpid(), dir);
    assert_int_equal(system(command), 0);
}

static void labels_txt_beside_the_file_names_the_classes(void **state) {
    (void)state;
    kh_err err;
    kh_dataset *d;
    folder_file("names", "labels.txt", "\xEF\xBB\xBFnegative\r\npositive\r\n\r\n");
    const char *path = folder_file("names", "x.tsv", "label\ttext\npositive\ta\nnegative\tb\n");
    assert_int_equal(kh_dataset_open(&d, path, NULL, &err), 0);
    assert_row(d, 0, 1, "a", NULL);
    assert_string_equal(kh_dataset_label(d, 0), "negative");
    kh_dataset_close(d);
    path = folder_file("names", "y.tsv", "label\ttext\npositive\ta\nhappy\tb\n");
    assert_int_equal(kh_dataset_open(&d, path, NULL, &err), KH_EFORMAT);
    assert_says(&err, "y.tsv:3: label \"happy\" is not one of ");
    assert_says(&err, "labels.txt (negative, positive)");
    path = folder_file("names", "z.tsv", "label\ttext\n1\ta\n2\tb\n");
    assert_int_equal(kh_dataset_open(&d, path, NULL, &err), KH_EFORMAT);
    assert_says(&err, "z.tsv:3: label 2 is out of range: the 2 labels of ");
    path = folder_file("names", "w.csv", "1,a\n2,b\n3,c\n");
    assert_int_equal(kh_dataset_open(&d, path, NULL, &err), KH_EFORMAT);
    assert_says(&err, "w.csv:3: label 3 is out of range");
    assert_says(&err, "are numbered 1 to 2");
    remove_folder("names");
}

static void labels_txt_and_task_meet_by_name(void **state) {
    (void)state;
    kh_err err;
    kh_dataset *d;
    folder_file("meet", "labels.txt", "contradiction\nentailment\nneutral\n");
    const char *path =
        folder_file("meet", "x.tsv", "label\ttext_a\ttext_b\n0\ta\tb\n1\tc\td\nneutral\te\tf\n");
    assert_int_equal(
        kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("snli") }, &err), KH_EFORMAT);
    assert_says(&err, "x.tsv:4: label \"neutral\" is a name, but the labels before it are numbers");
    path = folder_file("meet", "x.tsv", "label\ttext_a\ttext_b\n0\ta\tb\n1\tc\td\n2\te\tf\n");
    assert_int_equal(
        kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("snli") }, &err), 0);
    assert_row(d, 0, 2, "a", "b");
    assert_row(d, 1, 0, "c", "d");
    assert_row(d, 2, 1, "e", "f");
    kh_dataset_close(d);
    assert_int_equal(
        kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("rte") }, &err), KH_EMISMATCH);
    assert_says(&err, "labels.txt: label \"contradiction\" is not one of task \"rte\"");
    folder_file("meet", "labels.txt", "no\nyes\n");
    assert_int_equal(
        kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("snli") }, &err), KH_EMISMATCH);
    assert_says(&err, "labels.txt: 2 labels, but task \"snli\" has 3");
    path = folder_file("meet", "y.tsv", "label\ttext_a\ttext_b\nno\ta\tb\nyes\tc\td\n");
    assert_int_equal(kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("rte") }, &err), 0);
    assert_row(d, 1, 1, "c", "d");
    assert_string_equal(kh_dataset_label(d, 1), "not_entailment");
    kh_dataset_close(d);
    remove_folder("meet");
}

static void labels_txt_that_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "a\n\nb\n", "labels.txt:2: an empty line among the label names" },
        { "a\nb\na\n", "labels.txt:3: label name \"a\" stands here and on line 1" },
        { "a\n", "labels.txt: 1 label names; one a line, and at least two, are expected" },
        { "", "labels.txt: 0 label names" },
        { "a\nb\xFF\n", "labels.txt:2: not valid UTF-8: byte 0xFF" },
    };
    kh_err err;
    kh_dataset *d;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        folder_file("wrong", "labels.txt", cases[i].text);
        const char *path = folder_file("wrong", "x.tsv", "label\ttext\n0\ta\n");
        assert_int_equal(kh_dataset_open(&d, path, NULL, &err), KH_EFORMAT);
        assert_says(&err, cases[i].says);
    }
    remove_folder("wrong");
}

static void rows_without_labels_are_kept_where_asked(void **state) {
    (void)state;
    kh_dataset_opts o = { .unlabelled = true };
    kh_dataset *d = read_as("test.tsv", "index\tsentence\n0\tone\n1\ttwo\n", &o);
    assert_int_equal(kh_dataset_size(d), 2);
    assert_row(d, 0, -1, "one", NULL);
    assert_int_equal(kh_dataset_labels(d), 0);
    kh_dataset_close(d);
    d = read_as("x.tsv", "label\ttext\n-\ta\n\tb\n-1\tc\n1\td\n", &o);
    assert_row(d, 0, -1, "a", NULL);
    assert_row(d, 1, -1, "b", NULL);
    assert_row(d, 2, -1, "c", NULL);
    assert_row(d, 3, 1, "d", NULL);
    kh_dataset_close(d);
    d = read_as("x.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\",\"label\":null}\n", &o);
    assert_row(d, 1, -1, "b", NULL);
    kh_dataset_close(d);
}

/* ---------------------------------------------------------------------------------- complaints */

static void malformed_tables(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        long line;
        const char *says;
    } cases[] = {
        { "x.tsv", "", 0, "x.tsv: the file is empty" },
        { "x.tsv", "\xEF\xBB\xBF\r\n \n", 0, "x.tsv: the file is empty" },
        { "x.tsv", "label\ttext\n", 0, "x.tsv: a header, but no rows" },
        { "x.tsv", "label\ttext\n-\ta\n", 0, "x.tsv: none of its 1 rows has a label" },
        { "x.tsv", "label\ttext\n0\ta\n1\n", 3, "x.tsv:3: 1 columns, but 2 in the first row" },
        { "x.tsv", "label\ttext\n0\ta\tb\n", 2, "x.tsv:2: 3 columns, but 2 in the first row" },
        { "x.csv", "1,a\n2,b,c\n", 2, "x.csv:2: 3 columns, but 2 in the first row" },
        { "x.csv", "label,text\n0,\"a\nb\n\",c\n", 2,
            "x.csv:2: 3 columns, but 2 in the first row" },
        { "x.csv", "1\n2\n", 1,
            "x.csv:1: one column; without a header, a class and then texts are expected" },
        { "x.csv", "label,text\n0,a\n1,\"b\n0,c\n", 3,
            "x.csv:3: a quoted field of the row that starts here is never closed" },
        { "x.csv", "label,text\n0,\"a\"b\n", 2,
            "x.csv:2: text follows the closing quote of field 2" },
        { "x.tsv", "a\tb\n0\tc\n", 1,
            "x.tsv:1: no text column among \"a\", \"b\"; call it \"text\"" },
        { "x.tsv", "text\nx\n", 1, "x.tsv:1: no label column among \"text\"; call it \"label\"" },
        { "x.tsv", "label\ttext_a\n0\tc\n", 1,
            "x.tsv:1: no column \"text_b\", which the other text column calls for" },
        { "x.tsv", "label\thypothesis\n0\tc\n", 1, "x.tsv:1: no column \"premise\"" },
        { "x.tsv", "label\ttext\ttext\n0\ta\tb\n", 1, "x.tsv:1: two columns are called \"text\"" },
        { "x.tsv", "label\ttext\n0\t\n", 2, "x.tsv:2: the text is empty" },
        { "x.tsv", "label\ttext_a\ttext_b\n0\ta\t \n", 2, "x.tsv:2: the text is empty" },
        { "x.tsv", "label\ttext\n\ta\n", 2, "x.tsv:2: the label is empty" },
        { "x.tsv", "label\ttext\n0\ta\ngood\tb\n", 3,
            "x.tsv:3: label \"good\" is a name, but the labels before it are numbers" },
        { "x.tsv", "label\ttext\ngood\tb\n0\ta\n", 3,
            "x.tsv:3: label \"0\" is a number, but the labels before it are names" },
        { "x.tsv", "label\ttext\n99999\tb\n", 2,
            "x.tsv:2: label 99999: numbers of labels must be below 65536" },
        { "x.tsv", "label\ttext\n0\t\xC3(\n", 2,
            "x.tsv:2: not valid UTF-8: byte 0xC3, 2 bytes after the start of the row" },
        { "x.csv", "label,text\n0,ok\n0,\"\xE9t\xE9\"\n", 3,
            "x.csv:3: not valid UTF-8: byte 0xE9" },
        { "rows", "just some text\n", 0, "rows: cannot tell what format this is; name it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].name, cases[i].text, cases[i].line, cases[i].says);
}

static void malformed_jsonl(void **state) {
    (void)state;
    static const struct {
        const char *text;
        long line;
        const char *says;
    } cases[] = {
        { "{\"text\":\"a\",\"label\":0}\n{\"text\":\"b\",\n", 2, "x.jsonl:2: not valid JSON" },
        { "[1]\n", 1, "x.jsonl:1: each line must hold one JSON object" },
        { "{\"words\":\"a\",\"label\":0}\n", 1, "x.jsonl:1: no text column" },
        { "{\"text\":\"a\"}\n", 1, "x.jsonl:1: no label column" },
        { "{\"text\":\"a\",\"label\":0}\n{\"text\":\"b\"}\n", 2,
            "x.jsonl:2: \"label\" is missing" },
        { "{\"text\":\"a\",\"label\":0}\n{\"sentence\":\"b\",\"label\":1}\n", 2,
            "x.jsonl:2: \"text\" is missing" },
        { "{\"text\":7,\"label\":0}\n", 1, "x.jsonl:1: \"text\" must be a string" },
        { "{\"text\":\"a\",\"label\":0.5}\n", 1,
            "x.jsonl:1: \"label\" must be a whole number or a string" },
        { "{\"text\":\"a\",\"label\":-3}\n{\"text\":\"a\",\"label\":1}\n", 2,
            "is a number, but the labels before it are names" },
        { "{\"text\":\"a\\u0000b\",\"label\":0}\n", 1, "x.jsonl:1: \"text\" holds a NUL byte" },
        { "{\"text\":\"a\",\"label\":\"a\\u0000b\"}\n", 1, "x.jsonl:1: the row holds a NUL byte" },
        { "{\"text\":\"a\",\"text\":\"b\",\"label\":0}\n", 1,
            "x.jsonl:1: not valid JSON: duplicate object key" },
        { "{\"text\":\" \",\"label\":0}\n", 1, "x.jsonl:1: the text is empty" },
        { "{\"text\":\"\xFF\",\"label\":0}\n", 1, "x.jsonl:1: not valid UTF-8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused("x.jsonl", cases[i].text, cases[i].line, cases[i].says);
}

static void deep_json_is_refused(void **state) {
    (void)state;
    char text[400] = "{\"text\":";
    for (int i = 0; i < 100; i++)
        strcat(text, "[");
    kh_err err;
    kh_dataset *d;
    assert_int_equal(kh_dataset_parse(&d, text, strlen(text), "x.jsonl", NULL, &err), KH_ELIMIT);
    assert_says(&err, "x.jsonl:1: JSON is nested deeper than 64 levels");
}

static void nul_bytes_and_utf16(void **state) {
    (void)state;
    refused_bytes(
        "x.tsv", "label\ttext\n0\ta\0b\n", 17, NULL, 2, "x.tsv:2: the row holds a NUL byte");
    refused_bytes(
        "x.csv", "label,text\n0,\"a\0b\"\n", 19, NULL, 2, "x.csv:2: the row holds a NUL byte");
    refused_bytes("x.tsv", "\xFF\xFEl\0a\0b\0", 8, NULL, 1, "x.tsv:1: the file is UTF-16");
    refused_bytes("x.tsv", "\xFF\xFEl\n", 4, NULL, 1, "x.tsv:1: the file is UTF-16");
}

static void files_that_are_no_text_are_named(void **state) {
    (void)state;
    refused_bytes("x.xlsx", "PK\x03\x04zip", 7, NULL, 0, "x.xlsx: this is an Excel workbook");
    refused_bytes("x.csv", "\x1F\x8B\x08", 3, NULL, 0, "x.csv: this is compressed by gzip");
    refused_bytes("x.csv", "l\0a\0b\0e\0l\0,\0t\0e\0x\0t\0", 20, NULL, 1, "iconv -f UTF-16");
    refused_bytes("x.parquet", "PAR1....", 8, NULL, 0, "a Parquet file, not a text file; export");
}

/* Excel's semicolons, no header, a header of unknown names; the label first or last. */
static void layouts_are_told_from_the_rows(void **state) {
    (void)state;
    static const char *const files[] = {
        "text;label\n\"one; two\";b\nthree, four;a\n",
        "one; two,b\nthree,a\nfour,b\nfive,a\nsix,b\n",
        "complaint,department\none; two,b\nthree,a\nfour,b\nfive,a\nsix,b\nseven,a\n",
        "b,one; two\na,three\nb,four\na,five\nb,six\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        kh_dataset *d = read_as("x.csv", files[i], NULL);
        assert_int_equal(kh_dataset_labels(d), 2);
        assert_string_equal(kh_dataset_label(d, 0), "a");
        assert_row(d, 0, 1, "one; two", NULL);
        kh_dataset_close(d);
    }
}

/* Ratings from 1 to 3 are three classes, not four of which one is empty. */
static void digits_may_be_names(void **state) {
    (void)state;
    kh_dataset *d =
        read_as("x.csv", "text,label\na,1\nb,3\nc,2\n", &(kh_dataset_opts){ .label_names = true });
    assert_int_equal(kh_dataset_labels(d), 3);
    assert_string_equal(kh_dataset_label(d, 0), "1");
    assert_row(d, 1, 2, "b", NULL);
    kh_dataset_close(d);
}

static void over_long_rows(void **state) {
    (void)state;
    size_t n = (16u << 20) + 100;
    char *text = malloc(n);
    memset(text, 'x', n);
    memcpy(text, "label\ttext\n0\t", 13);
    refused_bytes("x.tsv", text, n, NULL, 2,
        "x.tsv:2: a row of 16777305 bytes; at most 16777216 are allowed");
    memcpy(text, "label,text\n0,\"", 14);
    text[n - 1] = '"';
    refused_bytes("x.csv", text, n, NULL, 2, "x.csv:2: a row of ");
    memcpy(text, "1,xxxxxxx,", 10);
    memset(text + 10, ',', 5000);
    refused_bytes("x.csv", text, 6000, NULL, 1, "x.csv:1: more than 4096 columns");
    free(text);
}

static void one_text_or_two_must_suit_the_task(void **state) {
    (void)state;
    const char *one = "label\ttext\n0\ta\n", *two = "label\ttext_a\ttext_b\n0\ta\tb\n";
    refused_bytes("x.tsv", one, strlen(one), &(kh_dataset_opts){ .task = task("rte") }, 1,
        "x.tsv:1: rows hold one text, but task \"rte\" takes two");
    refused_bytes("x.tsv", two, strlen(two), &(kh_dataset_opts){ .task = task("sst2") }, 1,
        "x.tsv:1: rows hold two texts, but task \"sst2\" takes one");
    refused_bytes("x.csv", "1,a\n", 4, &(kh_dataset_opts){ .task = task("rte") }, 1,
        "x.csv:1: 2 columns; task \"rte\" needs a class and two texts");
}

static void unknown_labels_of_a_task(void **state) {
    (void)state;
    kh_dataset_opts o = { .task = task("sst2") };
    const char *name = "label\ttext\nmeh\ta\n", *number = "label\ttext\n2\ta\n";
    refused_bytes("x.tsv", name, strlen(name), &o, 2,
        "x.tsv:2: label \"meh\" is not one of task \"sst2\" (negative, positive)");
    refused_bytes("x.tsv", number, strlen(number), &o, 2,
        "x.tsv:2: label 2 is out of range: the 2 labels of task \"sst2\" are numbered 0 to 1");
}

static void missing_files(void **state) {
    (void)state;
    kh_err err;
    kh_dataset *d;
    assert_int_equal(kh_dataset_open(&d, "/nonexistent/x.tsv", NULL, &err), KH_EMISSING);
    assert_says(&err, "/nonexistent/x.tsv: cannot open");
    assert_int_equal(kh_dataset_open(&d, "/tmp", NULL, &err), KH_EARG);
    assert_says(&err, "/tmp: is a directory");
}

/* ------------------------------------------------------------------------------------ skipping */

typedef struct heard {
    int n;
    char first[256];
} heard;

static void hear(void *user, kh_level level, const char *line) {
    heard *h = user;
    assert_int_equal(level, KH_WARN);
    if (h->n++ == 0)
        snprintf(h->first, sizeof h->first, "%.255s", line);
}

static void bad_rows_are_counted_and_the_first_reported(void **state) {
    (void)state;
    heard h = { 0 };
    kh_hooks hooks = { .log = hear, .user = &h };
    kh_dataset_opts o = { .skip_bad_rows = true, .max_reports = 2, .hooks = &hooks };
    kh_dataset *d = read_as("x.tsv", "label\ttext\n0\ta\n1\nx\ty\tz\n1\t\xFF\n1\tb\n", &o);
    assert_int_equal(kh_dataset_size(d), 2);
    assert_int_equal(kh_dataset_skipped(d), 3);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.first, "x.tsv:3: 1 columns, but 2 in the first row");
    assert_int_equal(kh_dataset_rows(d)[1].line, 6);
    kh_dataset_close(d);
    d = read_as("x.csv", "label,text\n0,a\n0,\"b\"c\n1,\"d\n1,e\n", &o);
    assert_int_equal(kh_dataset_size(d), 1);
    assert_int_equal(kh_dataset_skipped(d), 2);
    kh_dataset_close(d);
    d = read_as(
        "x.jsonl", "{\"text\":\"a\",\"label\":0}\n{}\n}\n{\"text\":\"b\",\"label\":1}\n", &o);
    assert_int_equal(kh_dataset_size(d), 2);
    assert_int_equal(kh_dataset_skipped(d), 2);
    kh_dataset_close(d);
    d = read_as("x.csv", "1,a\n3,b\n2,c\n",
        &(kh_dataset_opts){ .skip_bad_rows = true, .task = task("sst2") });
    assert_int_equal(kh_dataset_size(d), 2);
    assert_row(d, 1, 1, "c", NULL);
    kh_dataset_close(d);
    const char *all = "label\ttext\n0\n";
    refused_bytes("x.tsv", all, strlen(all), &o, 0, "x.tsv: every one of its 1 rows is malformed");
}

/* --------------------------------------------------------------------------- parts and writing */

static void a_selection_stands_alone(void **state) {
    (void)state;
    kh_dataset *d = read_as("x.tsv",
                   "label\ttext_a\ttext_b\nyes\tone\tuno\nno\ttwo\tdue\nno\tthree\ttre\n", NULL),
               *part;
    int index[] = { 2, 0, 2 };
    assert_int_equal(kh_dataset_select(&part, d, index, 3, NULL), 0);
    kh_dataset_close(d);
    assert_int_equal(kh_dataset_size(part), 3);
    assert_row(part, 0, 0, "three", "tre");
    assert_row(part, 1, 1, "one", "uno");
    assert_row(part, 2, 0, "three", "tre");
    assert_string_equal(kh_dataset_label(part, 1), "yes");
    assert_int_equal(kh_dataset_rows(part)[1].line, 2);
    kh_dataset_close(part);
}

static void written_rows_read_back(void **state) {
    (void)state;
    kh_err err;
    kh_dataset *d = read_as("x.csv", "label,text\n1,\"a\tb\nc\"\n0,\"\"\"d\"\"\"\n", NULL), *back;
    const char *path = test_file("written.tsv", "", 0);
    assert_int_equal(kh_dataset_write(d, path, &err), 0);
    kh_dataset_close(d);
    assert_int_equal(kh_dataset_open(&back, path, NULL, &err), 0);
    assert_row(back, 0, 1, "a b c", NULL);
    assert_row(back, 1, 0, "\"d\"", NULL);
    kh_dataset_close(back);
    unlink(path);
}

/* ------------------------------------------------------------------------------- out of memory */

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        { "x.tsv", "label\ttext_a\ttext_b\nyes\tone\tuno\nno\ttwo\tdue\n" },
        { "x.csv", "content,label,title\nbody,0,\"T\"\nb,1,t\n" },
        { "x.csv", "1,\"a\",b\n2,c,d\n" },
        { "x.jsonl",
            "{\"text\":\"a\",\"label\":0,\"label_text\":\"n\"}\n{\"text\":\"b\",\"label\":1,"
            "\"label_text\":\"p\"}\n" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (int forever = 0; forever < 2; forever++)
            for (long n = 1;; n++) {
                kh_err err = { 0 };
                kh_dataset *d, *part = NULL;
                int index[] = { 1 };
                kh_alloc_fail_at(n, forever);
                int rc =
                    kh_dataset_parse(&d, texts[i][1], strlen(texts[i][1]), texts[i][0], NULL, &err);
                if (rc == 0)
                    rc = kh_dataset_select(&part, d, index, 1, &err);
                kh_alloc_fail_at(0, false);
                assert_true(rc == 0 || rc == KH_ENOMEM);
                if (rc != 0)
                    assert_string_equal(err.msg, "out of memory");
                kh_dataset_close(part);
                kh_dataset_close(d);
                if (rc == 0)
                    break;
                assert_true(n < 1000);
            }
}

static void every_allocation_may_fail_with_a_list_of_labels(void **state) {
    (void)state;
    folder_file("oom", "labels.txt", "contradiction\nentailment\nneutral\n");
    const char *path =
        folder_file("oom", "x.tsv", "label\ttext_a\ttext_b\n0\ta\tb\n1\tc\td\n2\te\tf\n");
    for (long n = 1;; n++) {
        kh_err err = { 0 };
        kh_dataset *d;
        kh_alloc_fail_at(n, false);
        int rc = kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task("snli") }, &err);
        kh_alloc_fail_at(0, false);
        kh_dataset_close(d);
        if (rc == 0)
            break;
        assert_int_equal(rc, KH_ENOMEM);
        assert_true(n < 1000);
    }
    remove_folder("oom");
}

/* ------------------------------------------------------------------------------ the nine tasks */

static void shared_files_have_the_rows_they_should(void **state) {
    (void)state;
    test_needs_shared("data/sst2/train.tsv");
    static const struct {
        const char *task;
        int train, test, n_label;
    } all[] = {
        { "sst2", 6920, 872, 2 },
        { "yelp", 320, 800, 2 },
        { "imdb", 0, 3000, 2 },
        { "agnews", 5613, 3800, 4 },
        { "dbpedia", 2212, 4981, 14 },
        { "mrpc", 3668, 408, 2 },
        { "rte", 2490, 277, 2 },
        { "snli", 9999, 3000, 3 },
        { "mnli", 9999, 3000, 3 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int part = 0; part < 2; part++) {
            char path[128];
            kh_err err;
            kh_dataset *d;
            int expected = part ? all[i].test : all[i].train, count[16], sum = 0;
            snprintf(path, sizeof path, "../shared/data/%s/%s.tsv", all[i].task,
                part ? "test" : "train");
            if (!expected)
                continue;
            if (kh_dataset_open(&d, path, &(kh_dataset_opts){ .task = task(all[i].task) }, &err) !=
                0)
                fail_msg("%s", err.msg);
            assert_int_equal(kh_dataset_size(d), expected);
            assert_int_equal(kh_dataset_labels(d), all[i].n_label);
            kh_dataset_count(d, count);
            for (int k = 0; k < all[i].n_label; k++) {
                assert_true(count[k] > 0);
                assert_string_equal(kh_dataset_label(d, k), task(all[i].task)->label[k].name);
                sum += count[k];
            }
            assert_int_equal(sum, expected);
            kh_dataset_close(d);
        }
}

/* ------------------------------------------------------------------------------ parts of files */

static void labels_may_be_passed_over(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        kh_format format;
    } all[] = {
        { "label\ttext\nnonsense\tone\n7\ttwo\n", KH_FORMAT_TSV },
        { "{\"label\":\"nonsense\",\"text\":\"one\"}\n{\"label\":[7],\"text\":\"two\"}\n",
            KH_FORMAT_JSONL },
        { "nonsense,one\n7,two\n", KH_FORMAT_CSV_NOHEADER },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kh_dataset *d;
        kh_err err;
        kh_dataset_opts o = {
            .format = all[i].format, .task = kh_task_builtin(0), .unlabelled = true
        };
        assert_int_not_equal(
            kh_dataset_parse(&d, all[i].bytes, strlen(all[i].bytes), "part", &o, &err), 0);
        o.ignore_labels = true;
        assert_int_equal(
            kh_dataset_parse(&d, all[i].bytes, strlen(all[i].bytes), "part", &o, &err), 0);
        assert_int_equal(kh_dataset_size(d), 2);
        assert_int_equal(kh_dataset_rows(d)[1].label, -1);
        kh_dataset_close(d);
    }
}

static void lines_count_from_the_whole_file(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        kh_format format;
        long first;
    } all[] = {
        { "text\none\n\ntwo\n", KH_FORMAT_TSV, 102 },
        { "{\"text\":\"one\"}\n\n{\"text\":\"two\"}\n", KH_FORMAT_JSONL, 101 },
        { "0,one\n\n0,two\n", KH_FORMAT_CSV_NOHEADER, 101 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kh_dataset *d;
        kh_dataset_opts o = { .format = all[i].format, .unlabelled = true, .lines_before = 100 };
        assert_int_equal(
            kh_dataset_parse(&d, all[i].bytes, strlen(all[i].bytes), "part", &o, NULL), 0);
        assert_int_equal(kh_dataset_rows(d)[0].line, all[i].first);
        assert_int_equal(kh_dataset_rows(d)[1].line, all[i].first + 2);
        kh_dataset_close(d);
    }
    kh_dataset *d;
    kh_err err;
    kh_dataset_opts o = { .unlabelled = true, .lines_before = 100, .format = KH_FORMAT_TSV };
    assert_int_equal(kh_dataset_parse(&d, "text\n\xFF\n", 7, "part", &o, &err), KH_EFORMAT);
    assert_says(&err, "part:102:");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tsv_with_label_and_text),
        cmocka_unit_test(tsv_columns_in_any_order_with_others_between),
        cmocka_unit_test(glue_sst2_trims_its_sentences),
        cmocka_unit_test(glue_mrpc_with_bom_and_crlf),
        cmocka_unit_test(glue_rte_label_words_follow_the_task),
        cmocka_unit_test(glue_qnli_and_nli_columns),
        cmocka_unit_test(csv_without_header_counts_from_one),
        cmocka_unit_test(csv_without_header_counts_from_zero_if_a_zero_is_there),
        cmocka_unit_test(csv_without_header_for_a_pair_task),
        cmocka_unit_test(csv_quoted_fields_may_hold_line_breaks),
        cmocka_unit_test(csv_title_and_content_are_joined),
        cmocka_unit_test(csv_three_text_columns_are_joined),
        cmocka_unit_test(jsonl_with_escapes_and_names_beside_numbers),
        cmocka_unit_test(jsonl_pairs_and_label_text_alone),
        cmocka_unit_test(format_is_found_by_content_without_an_extension),
        cmocka_unit_test(format_can_be_forced),
        cmocka_unit_test(escaped_newlines_become_spaces_where_asked),
        cmocka_unit_test(last_line_needs_no_newline),
        cmocka_unit_test(names_found_in_a_file_count_alphabetically),
        cmocka_unit_test(labels_txt_beside_the_file_names_the_classes),
        cmocka_unit_test(labels_txt_and_task_meet_by_name),
        cmocka_unit_test(labels_txt_that_is_wrong),
        cmocka_unit_test(rows_without_labels_are_kept_where_asked),
        cmocka_unit_test(malformed_tables),
        cmocka_unit_test(malformed_jsonl),
        cmocka_unit_test(deep_json_is_refused),
        cmocka_unit_test(nul_bytes_and_utf16),
        cmocka_unit_test(files_that_are_no_text_are_named),
        cmocka_unit_test(layouts_are_told_from_the_rows),
        cmocka_unit_test(digits_may_be_names),
        cmocka_unit_test(over_long_rows),
        cmocka_unit_test(one_text_or_two_must_suit_the_task),
        cmocka_unit_test(unknown_labels_of_a_task),
        cmocka_unit_test(missing_files),
        cmocka_unit_test(bad_rows_are_counted_and_the_first_reported),
        cmocka_unit_test(a_selection_stands_alone),
        cmocka_unit_test(written_rows_read_back),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_may_fail_with_a_list_of_labels),
        cmocka_unit_test(shared_files_have_the_rows_they_should),
        cmocka_unit_test(labels_may_be_passed_over),
        cmocka_unit_test(lines_count_from_the_whole_file),
    };
    return cmocka_run_group_tests_name("data_dataset", tests, NULL, NULL);
}
