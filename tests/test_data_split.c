/* test_data_split.c - data folders and few-shot splits, ready-made and drawn. */
#include "test.h"

#include "base/alloc.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "data/stats.h"

#include <sys/stat.h>

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/keyhole-split-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Writes root/path, making the folders on the way. */
static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char *in_root(const char *path) {
    static char full[2][256];
    static int turn;
    char *p = full[turn ^= 1];
    snprintf(p, sizeof full[0], "%s/%s", root, path);
    return p;
}

/* n rows of each of n_label classes, "cK rN". */
static void put_train(const char *path, int n_label, int n) {
    char text[65536] = "label\ttext\n";
    size_t used = strlen(text);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_label; k++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%d\tc%d r%d\n", k, k, i);
    put(path, text);
}

static void count_is(const kh_dataset *d, int n_label, int each) {
    int count[16];
    assert_int_equal(kh_dataset_labels(d), n_label);
    kh_dataset_count(d, count);
    for (int k = 0; k < n_label; k++)
        assert_int_equal(count[k], each);
}

static bool same_row(const kh_row *x, const kh_row *y) {
    return x->label == y->label && x->n_a == y->n_a && memcmp(x->a, y->a, x->n_a) == 0;
}

static void a_draw_takes_k_of_each_class_for_train_and_dev(void **state) {
    (void)state;
    put_train("draw/train.tsv", 3, 20);
    kh_err err;
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("draw"), 4, 13, NULL, &err), 0);
    assert_true(s.drawn);
    count_is(s.train, 3, 4);
    count_is(s.dev, 3, 4);
    for (int i = 0; i < kh_dataset_size(s.train); i++)
        for (int j = 0; j < kh_dataset_size(s.dev); j++)
            assert_false(same_row(&kh_dataset_rows(s.train)[i], &kh_dataset_rows(s.dev)[j]));
    kh_split_close(&s);
    assert_null(s.train);
}

static void a_draw_may_use_up_every_row(void **state) {
    (void)state;
    put_train("all/train.tsv", 2, 8);
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("all"), 4, 1, NULL, NULL), 0);
    count_is(s.train, 2, 4);
    count_is(s.dev, 2, 4);
    kh_split_close(&s);
}

static void the_seed_alone_decides_the_draw(void **state) {
    (void)state;
    put_train("seed/train.tsv", 2, 50);
    kh_split a, b, c;
    assert_int_equal(kh_split_open(&a, in_root("seed"), 8, 13, NULL, NULL), 0);
    assert_int_equal(kh_split_open(&b, in_root("seed"), 8, 13, NULL, NULL), 0);
    assert_int_equal(kh_split_open(&c, in_root("seed"), 8, 21, NULL, NULL), 0);
    int same = 0;
    for (int i = 0; i < 16; i++) {
        assert_true(same_row(&kh_dataset_rows(a.train)[i], &kh_dataset_rows(b.train)[i]));
        assert_true(same_row(&kh_dataset_rows(a.dev)[i], &kh_dataset_rows(b.dev)[i]));
        same += same_row(&kh_dataset_rows(a.train)[i], &kh_dataset_rows(c.train)[i]);
    }
    assert_true(same < 8);
    kh_split_close(&a);
    kh_split_close(&b);
    kh_split_close(&c);
}

/* A draw is part of every result: the rows of (seed 13, this file) are written down here and must
 * never change. */
static void a_known_draw_stays_what_it_was(void **state) {
    (void)state;
    put_train("known/train.tsv", 2, 10);
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("known"), 2, 13, NULL, NULL), 0);
    static const char *const train[] = { "c0 r2", "c1 r9", "c1 r5", "c0 r6" },
                             *const dev[] = { "c1 r0", "c1 r7", "c0 r3", "c0 r7" };
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(kh_dataset_rows(s.train)[i].a, train[i], 5);
        assert_memory_equal(kh_dataset_rows(s.dev)[i].a, dev[i], 5);
    }
    kh_split_close(&s);
}

/* One file gives all three parts, without a row in two of them. */
static void one_file_is_shared_out(void **state) {
    (void)state;
    put_train("one.tsv", 2, 10);
    kh_err err = { 0 };
    kh_split s;
    kh_dataset *test;
    static const int SHOTS[] = { 0, 3 }, TRAIN[] = { 12, 6 }, DEV[] = { 4, 6 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kh_split_open(&s, in_root("one.tsv"), SHOTS[i], 13, NULL, &err), 0);
        assert_int_equal(kh_test_open(&test, in_root("one.tsv"), SHOTS[i], 13, NULL, &err), 0);
        int train = kh_dataset_size(s.train), dev = kh_dataset_size(s.dev);
        assert_int_equal(train, TRAIN[i]);
        assert_int_equal(dev, DEV[i]);
        assert_int_equal(train + dev + kh_dataset_size(test), 20);
        int n;
        assert_int_equal(kh_dataset_overlap(s.train, test, &n, &err), 0);
        assert_int_equal(n, 0);
        kh_split_close(&s);
        kh_dataset_close(test);
    }
    assert_int_equal(kh_test_open(&test, in_root("one.tsv"), 5, 13, NULL, &err), KH_EMISSING);
    assert_says(&err, "leave no row to judge on; use fewer --shots");
    assert_int_equal(kh_split_open(&s, in_root("one.tsv"), 9, 13, NULL, &err), KH_EFORMAT);
    assert_says(&err, "--shots 5 would do");
}

static void a_class_with_too_few_rows_is_named(void **state) {
    (void)state;
    put("few/train.tsv", "label\ttext\n0\ta\n0\tb\n1\tc\n0\td\n0\te\n");
    kh_err err;
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("few"), 2, 13, NULL, &err), KH_EFORMAT);
    assert_says(
        &err, "few/train.tsv: class 1 has 1 row; 2 shots for train and as many for dev need 4");
    put("few/labels.txt", "neg\npos\nneutral\n");
    put_train("few/train.tsv", 2, 10);
    assert_int_equal(kh_split_open(&s, in_root("few"), 2, 13, NULL, &err), KH_EFORMAT);
    assert_says(&err, "class 2 (neutral) has 0 rows");
    put_train("one/train.tsv", 1, 10);
    assert_int_equal(kh_split_open(&s, in_root("one"), 2, 13, NULL, &err), KH_EFORMAT);
    assert_says(&err, "one class only");
}

static void ready_made_splits_are_read_as_they_are(void **state) {
    (void)state;
    put_train("ready/train.tsv", 2, 50);
    put("ready/labels.txt", "neg\npos\n");
    put("ready/kshot16/seed13.train.tsv", "label\ttext\npos\tt\n");
    put("ready/kshot16/seed13.dev.tsv", "label\ttext\n0\td\n");
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("ready"), 16, 13, NULL, NULL), 0);
    assert_false(s.drawn);
    assert_int_equal(kh_dataset_size(s.train), 1);
    assert_int_equal(kh_dataset_rows(s.train)[0].label, 1);
    assert_string_equal(kh_dataset_label(s.dev, 1), "pos");
    kh_split_close(&s);
    assert_int_equal(kh_split_open(&s, in_root("ready"), 16, 21, NULL, NULL), 0);
    assert_true(s.drawn);
    kh_split_close(&s);
}

static void half_a_ready_made_split_is_refused(void **state) {
    (void)state;
    put_train("half/train.tsv", 2, 50);
    put("half/kshot16/seed13.train.tsv", "label\ttext\n1\tt\n");
    kh_err err;
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("half"), 16, 13, NULL, &err), KH_EMISSING);
    assert_says(&err, "kshot16/seed13.train.tsv: the dev file that belongs to it is not there");
}

static void lmbff_tree_can_be_entered_at_three_places(void **state) {
    (void)state;
    put("bff/k-shot/SST-2/16-13/train.tsv", "sentence\tlabel\na \t0\nb\t1\n");
    put("bff/k-shot/SST-2/16-13/dev.tsv", "sentence\tlabel\nc\t0\nd\t1\n");
    put("bff/k-shot/SST-2/16-13/test.tsv", "sentence\tlabel\ne\t0\nf\t1\ng\t1\n");
    put("bff/k-shot/mr/16-13/train.csv", "0,bad\n1,good\n");
    put("bff/k-shot/mr/16-13/dev.csv", "0,worse\n1,better\n");
    put("bff/k-shot/mr/16-13/test.csv", "0,worst\n1,\"best, really\"\n");
    kh_err err;
    kh_split s;
    kh_dataset *test;
    const kh_task *sst2;
    assert_int_equal(kh_task_open(&sst2, "sst2", NULL), 0);
    kh_dataset_opts o = { .task = sst2 };
    static const char *const entries[] = { "bff", "bff/k-shot/SST-2", "bff/k-shot/SST-2/16-13",
        "bff/k-shot/SST-2/16-13/" };
    for (int i = 0; i < 4; i++) {
        if (kh_split_open(&s, in_root(entries[i]), 16, 13, &o, &err) != 0)
            fail_msg("%s", err.msg);
        assert_int_equal(kh_dataset_size(s.dev), 2);
        kh_split_close(&s);
        assert_int_equal(kh_test_open(&test, in_root(entries[i]), 16, 13, &o, &err), 0);
        assert_int_equal(kh_dataset_size(test), 3);
        kh_dataset_close(test);
    }
    assert_int_equal(kh_split_open(&s, in_root("bff/k-shot/mr"), 16, 13, NULL, &err), 0);
    assert_int_equal(kh_dataset_rows(s.train)[1].label, 1);
    kh_split_close(&s);
    assert_int_equal(kh_split_open(&s, in_root("bff"), 16, 13, NULL, &err), KH_EARG);
    assert_says(&err, "bff/k-shot holds 2 tasks; say which task is meant");
    assert_int_equal(
        kh_split_open(&s, in_root("bff/k-shot/mr/16-13"), 16, 21, NULL, &err), KH_EMISMATCH);
    assert_says(&err,
        "16-13: this folder is the split of 16 shots and seed 13, but 16 shots and seed 21 were "
        "asked for");
}

static void zero_shots_take_the_files_whole(void **state) {
    (void)state;
    put_train("whole/train.tsv", 2, 5);
    kh_err err;
    kh_split s;
    assert_int_equal(kh_split_open(&s, in_root("whole"), 0, 13, NULL, &err), KH_EMISSING);
    assert_says(&err, "whole: no dev.tsv, dev.csv or dev.jsonl beside the training rows");
    put("whole/dev.jsonl", "{\"text\":\"x\",\"label\":1}\n");
    assert_int_equal(kh_split_open(&s, in_root("whole"), 0, 13, NULL, &err), 0);
    assert_int_equal(kh_dataset_size(s.train), 10);
    assert_int_equal(kh_dataset_size(s.dev), 1);
    kh_split_close(&s);
}

static void train_and_dev_must_belong_together(void **state) {
    (void)state;
    kh_err err;
    kh_split s;
    put("apart/train.tsv", "label\ttext\nyes\ta\nno\tb\n");
    put("apart/dev.tsv", "label\ttext\nyes\ta\n");
    assert_int_equal(kh_split_open(&s, in_root("apart"), 0, 0, NULL, &err), KH_EMISMATCH);
    assert_says(&err,
        "apart: class 0 is \"no\" in train and \"yes\" in dev; name all classes in a labels.txt");
    put("apart/dev.tsv", "label\ttext_a\ttext_b\nno\ta\tb\nyes\tc\td\n");
    assert_int_equal(kh_split_open(&s, in_root("apart"), 0, 0, NULL, &err), KH_EMISMATCH);
    assert_says(&err, "apart: the rows of train and dev do not have the same number of texts");
}

static void folders_without_what_is_needed(void **state) {
    (void)state;
    kh_err err;
    kh_split s;
    kh_dataset *d;
    put("bare/notes.txt", "");
    assert_int_equal(kh_split_open(&s, in_root("bare"), 16, 13, NULL, &err), KH_EMISSING);
    assert_says(&err,
        "bare: no train.tsv, train.csv or train.jsonl, and no ready-made split for 16 shots and "
        "seed 13");
    assert_int_equal(kh_test_open(&d, in_root("bare"), 16, 13, NULL, &err), KH_EMISSING);
    assert_says(&err, "bare: no test.tsv, test.csv or test.jsonl to judge on");
    assert_int_equal(kh_split_open(&s, in_root("nowhere"), 16, 13, NULL, &err), KH_EMISSING);
    assert_says(&err, "nowhere: there is no such file or folder");
    assert_int_equal(kh_test_open(&d, in_root("nowhere"), 0, 0, NULL, &err), KH_EMISSING);
    assert_says(&err, "nowhere: there is no such file or folder");
}

static void splits_of_a_folder_are_listed_in_order(void **state) {
    (void)state;
    put("list/kshot16/seed100.train.tsv", "");
    put("list/kshot16/seed13.train.tsv", "");
    put("list/kshot16/seed13.dev.tsv", "");
    put("list/kshot16/seedy.train.tsv", "");
    put("list/kshot4/seed7.train.tsv", "");
    put("list/8-1/train.tsv", "");
    put("list/8-x/train.tsv", "");
    kh_split_name *split;
    int n;
    assert_int_equal(kh_folder_splits(in_root("list"), NULL, &split, &n, NULL), 0);
    assert_int_equal(n, 4);
    static const int shots[] = { 4, 8, 16, 16 }, seed[] = { 7, 1, 13, 100 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(split[i].shots, shots[i]);
        assert_int_equal(split[i].seed, seed[i]);
        assert_int_equal(split[i].dir != NULL, i == 1);
    }
    kh_split_names_free(split, n);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    put_train("oom/train.tsv", 2, 10);
    put("oom/k-shot/mr/4-1/train.csv", "0,bad\n1,good\n");
    put("oom/k-shot/mr/4-1/dev.csv", "0,worse\n1,better\n");
    put("oom/k-shot/mr/4-1/test.csv", "0,worse\n1,better\n");
    for (int seed = 1; seed <= 2; seed++)
        for (long n = 1;; n++) {
            kh_err err = { 0 };
            kh_split s = { 0 };
            kh_dataset *test = NULL;
            kh_split_name *names = NULL;
            int n_names = 0;
            kh_alloc_fail_at(n, n % 2);
            int rc = kh_split_open(&s, in_root("oom"), 4, (uint64_t)seed, NULL, &err);
            if (rc == 0 && seed == 1)
                rc = kh_test_open(&test, in_root("oom"), 4, 1, NULL, &err);
            if (rc == 0)
                rc = kh_folder_splits(in_root("oom"), NULL, &names, &n_names, &err);
            kh_alloc_fail_at(0, false);
            assert_true(rc == 0 || rc == KH_ENOMEM);
            kh_split_close(&s);
            kh_dataset_close(test);
            kh_split_names_free(names, n_names);
            if (rc == 0)
                break;
            assert_true(n < 1000);
        }
}

static void shared_splits_hold_sixteen_of_each_class(void **state) {
    (void)state;
    test_needs_shared("data/sst2/kshot16/seed13.train.tsv");
    static const int seeds[] = { 13, 21, 42, 87, 100 };
    for (int i = 0; kh_task_builtin(i); i++) {
        const kh_task *task = kh_task_builtin(i);
        char dir[64];
        snprintf(dir, sizeof dir, "../shared/data/%s", task->name);
        for (int s = 0; s < 5 && strcmp(task->name, "imdb") != 0; s++) {
            kh_err err;
            kh_split split;
            if (kh_split_open(&split, dir, 16, (uint64_t)seeds[s],
                    &(kh_dataset_opts){ .task = task }, &err) != 0)
                fail_msg("%s", err.msg);
            assert_false(split.drawn);
            count_is(split.train, task->n_label, 16);
            count_is(split.dev, task->n_label, 16);
            kh_split_close(&split);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draw_takes_k_of_each_class_for_train_and_dev),
        cmocka_unit_test(a_draw_may_use_up_every_row),
        cmocka_unit_test(the_seed_alone_decides_the_draw),
        cmocka_unit_test(a_known_draw_stays_what_it_was),
        cmocka_unit_test(one_file_is_shared_out),
        cmocka_unit_test(a_class_with_too_few_rows_is_named),
        cmocka_unit_test(ready_made_splits_are_read_as_they_are),
        cmocka_unit_test(half_a_ready_made_split_is_refused),
        cmocka_unit_test(lmbff_tree_can_be_entered_at_three_places),
        cmocka_unit_test(zero_shots_take_the_files_whole),
        cmocka_unit_test(train_and_dev_must_belong_together),
        cmocka_unit_test(folders_without_what_is_needed),
        cmocka_unit_test(splits_of_a_folder_are_listed_in_order),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(shared_splits_hold_sixteen_of_each_class),
    };
    return cmocka_run_group_tests_name("data_split", tests, make_root, remove_root);
}
