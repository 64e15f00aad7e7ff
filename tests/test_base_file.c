/* test_base_file.c - whole files, and options from text. */
#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/opts.h"

#include <sys/resource.h>
#include <signal.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

/* A fresh folder; the caller empties and removes it. */
static const char *make_folder(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/keyhole-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static int count_entries(const char *folder) {
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = -2; /* . and .. */
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void refuse_read(const char *path, size_t max, int code, const char *sentence) {
    kh_buf b;
    kh_err err = { 0 };
    assert_int_equal(kh_file_read(path, max, &b, &err), code);
    assert_int_equal(err.code, code);
    assert_says(&err, path);
    assert_says(&err, sentence);
    kh_buf_free(&b);
    assert_int_equal(kh_file_read(path, max, &b, NULL), code);
    kh_buf_free(&b);
}

/* ------------------------------------------------------------------------------------- reading */

static void regular_file_is_read_whole(void **state) {
    (void)state;
    static char bytes[200001];
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (char)(k * 7);
    static const size_t sizes[] = { 0, 1, 65535, 65536, 65537, sizeof bytes };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const char *path = test_file("read", bytes, sizes[k]);
        kh_buf b;
        assert_int_equal(
            kh_file_read(path, sizes[k], &b, NULL), 0); /* exactly the limit is allowed */
        assert_int_equal(b.len, sizes[k]);
        assert_memory_equal(b.data, bytes, sizes[k]);
        assert_int_equal(b.data[b.len], 0);
        kh_buf_free(&b);
        assert_int_equal(kh_file_read(path, SIZE_MAX, &b, NULL), 0);
        assert_int_equal(b.len, sizes[k]);
        kh_buf_free(&b);
        unlink(path);
    }
}

static void missing_file_is_named(void **state) {
    (void)state;
    refuse_read("/nonexistent/file", 10, KH_EMISSING, "cannot open: No such file or directory");
    refuse_read("/dev/null/file", 10, KH_EMISSING, "cannot open: Not a directory");
}

static void folder_is_no_file(void **state) {
    (void)state;
    refuse_read("tests", 10, KH_EARG, "tests: is a directory, expected a file");
}

static void large_file_is_refused_before_it_is_read(void **state) {
    (void)state;
    const char *path = test_file("large", "12345678901", 11);
    refuse_read(path, 10, KH_ELIMIT, "11 bytes, the limit for this kind of file is 10");
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    refuse_read(path, 1 << 20, KH_ELIMIT,
        "1099511627776 bytes, the limit for this kind of file is 1048576");
    unlink(path);
}

static void file_that_hides_its_size_is_still_limited(void **state) {
    (void)state;
    /* not maps, which qemu makes up, with a size */
    if (access("/proc/self/status", R_OK) != 0)
        test_skip("/proc is not there");
    refuse_read("/proc/self/status", 10, KH_ELIMIT,
        "larger than 10 bytes, the limit for this kind of file");
}

static void pipe_is_no_file_and_does_not_hang(void **state) {
    (void)state;
    const char *folder = make_folder();
    char path[128];
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse_read(path, 10, KH_EARG, "is not a regular file");
    refuse_read("/dev/zero", 10, KH_EARG, "is not a regular file");
    unlink(path);
    rmdir(folder);
}

/* ------------------------------------------------------------------------------------- writing */

static void write_makes_and_replaces(void **state) {
    (void)state;
    const char *folder = make_folder();
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    static char bytes[300000];
    memset(bytes, 'x', sizeof bytes);
    static const size_t sizes[] = { 3, sizeof bytes, 0, 5 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        assert_int_equal(kh_file_write(path, bytes, sizes[k], NULL), 0);
        kh_buf b;
        assert_int_equal(kh_file_read(path, sizeof bytes, &b, NULL), 0);
        assert_int_equal(b.len, sizes[k]);
        assert_memory_equal(b.data, bytes, sizes[k]);
        kh_buf_free(&b);
        assert_int_equal(count_entries(folder), 1); /* no temporary file is left */
    }
    unlink(path);
    rmdir(folder);
}

static void refuse_write(const char *path, int code, const char *sentence) {
    kh_err err = { 0 };
    assert_int_equal(kh_file_write(path, "new", 3, &err), code);
    assert_says(&err, path);
    assert_says(&err, sentence);
}

static void failed_write_says_why(void **state) {
    (void)state;
    refuse_write("/nonexistent/file", KH_EMISSING, "cannot create: No such file or directory");
    refuse_write("/dev/null/file", KH_EMISSING, "cannot create: Not a directory");
}

static void failed_write_leaves_the_old_file(void **state) {
    (void)state;
    const char *folder = make_folder();
    char path[128], inner[192];
    /* A folder in the file's place: writing the temporary file succeeds, renaming it does not. */
    snprintf(path, sizeof path, "%s/taken", folder);
    snprintf(inner, sizeof inner, "%s/old", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(kh_file_write(inner, "old", 3, NULL), 0);
    refuse_write(path, KH_EIO, "cannot rename into place");
    assert_true(kh_file_exists(inner));
    assert_int_equal(count_entries(folder), 1);
    /* A folder that may not be written (root may write anywhere, so this part is for others). */
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0500), 0);
        refuse_write(inner, KH_EIO, "cannot create: Permission denied");
        assert_int_equal(chmod(path, 0700), 0);
    }
    /* Out of memory for the temporary name. */
    kh_alloc_fail_at(1, false);
    kh_err err = { 0 };
    assert_int_equal(kh_file_write(inner, "new", 3, &err), KH_ENOMEM);
    kh_alloc_fail_at(0, false);
    kh_buf b;
    assert_int_equal(kh_file_read(inner, 10, &b, NULL), 0);
    assert_string_equal(b.data, "old");
    kh_buf_free(&b);
    unlink(inner);
    rmdir(path);
    rmdir(folder);
}

/* The kernel refuses to let the file grow; a full disk is tried in test_faults.c. */
static void a_file_that_cannot_grow_is_noticed(void **state) {
    (void)state;
    const char *folder = make_folder();
    char path[128];
    struct rlimit was, none = { 2, RLIM_INFINITY };
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(kh_file_write(path, "old", 3, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    none.rlim_max = was.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    kh_err err = { 0 };
    int rc = kh_file_write(path, "new", 3, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, before);
    assert_int_equal(rc, KH_EIO);
    assert_says(&err, "cannot write: File too large");
    kh_buf b;
    assert_int_equal(kh_file_read(path, 10, &b, NULL), 0);
    assert_string_equal(b.data, "old");
    kh_buf_free(&b);
    assert_int_equal(count_entries(folder), 1);
    unlink(path);
    rmdir(folder);
}

static void expect_file(const char *path, const char *text) {
    kh_buf b;
    assert_int_equal(kh_file_read(path, 100, &b, NULL), 0);
    assert_string_equal(b.data, text);
    kh_buf_free(&b);
}

/* A stranger's folder may hold links under the names that we write. */
static void links_are_not_written_through(void **state) {
    (void)state;
    const char *folder = make_folder();
    char victim[128], path[128], temp[192];
    kh_err err = { 0 };
    int fd;
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(kh_file_write(victim, "precious", 8, NULL), 0);
    snprintf(temp, sizeof temp, "%s.tmp-%ld", path, (long)getpid()); /* as names once were */
    assert_int_equal(symlink(victim, temp), 0);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(kh_file_write(path, "new", 3, NULL), 0);
    expect_file(victim, "precious");
    expect_file(path, "new");
    unlink(path);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(kh_file_open_own(path, O_WRONLY | O_CREAT | O_TRUNC, &fd, &err), KH_EIO);
    assert_says(&err, "/file: is a link; it is not followed: remove it first");
    unlink(path);
    assert_int_equal(link(victim, path), 0);
    assert_int_equal(kh_file_open_own(path, O_WRONLY | O_CREAT | O_TRUNC, &fd, &err), KH_EIO);
    assert_says(&err, "/file: is a second name of another file; remove it first");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(kh_file_open_own(path, O_RDWR | O_CREAT, &fd, &err), KH_EIO);
    assert_says(&err, "/file: is not a regular file; remove it first");
    unlink(path);
    expect_file(victim, "precious");
    assert_int_equal(kh_file_open_own(path, O_RDWR | O_CREAT, &fd, &err), 0);
    close(fd);
    unlink(path);
    assert_int_equal(symlink(folder, path), 0);
    assert_int_equal(kh_dir_make(path, &err), 0); /* the person's own link */
    assert_int_equal(kh_dir_make_own(path, &err), KH_EIO);
    assert_says(&err, "/file: is a link");
    unlink(path);
    unlink(temp);
    unlink(victim);
    rmdir(folder);
}

/* A process that was killed leaves its temporary file; the next that writes the same file removes
 * it, but not one that someone still writes, nor anything else. */
static void stale_temporary_files_are_removed(void **state) {
    (void)state;
    const char *folder = make_folder();
    static const char *const names[] = { "file.tmp-0123456789abcdef", "file.tmp-0123456789abcdeF",
        "file.tmp-0123456789abcdef0", "other.tmp-0123456789abcdef", "file.tmp-1" };
    char path[128], name[192];
    snprintf(path, sizeof path, "%s/file", folder);
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        fclose(fopen(name, "w"));
    }
    kh_file_writer w;
    assert_int_equal(kh_file_writer_open(&w, path, NULL), 0); /* is at it */
    assert_int_equal(count_entries(folder), 5);               /* four of five, and its own */
    assert_int_equal(kh_file_write(path, "new", 3, NULL), 0);
    assert_int_equal(count_entries(folder), 6);
    assert_int_equal(kh_file_writer_put(&w, "late", 4, NULL), 0);
    assert_int_equal(kh_file_writer_close(&w, true, NULL), 0);
    expect_file(path, "late");
    assert_int_equal(count_entries(folder), 5);
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(name), i == 0 ? -1 : 0);
    }
    unlink(path);
    rmdir(folder);
}

/* ------------------------------------------------------------------------------ folders, paths */

static void existence_tells_files_from_folders(void **state) {
    (void)state;
    assert_true(kh_file_exists("Makefile"));
    assert_false(kh_file_exists("tests"));
    assert_false(kh_file_exists("nothing here"));
    assert_true(kh_dir_exists("tests"));
    assert_false(kh_dir_exists("Makefile"));
    assert_false(kh_dir_exists("nothing here"));
}

static void folder_is_made_once(void **state) {
    (void)state;
    const char *folder = make_folder();
    char path[128], deep[192];
    kh_err err = { 0 };
    snprintf(path, sizeof path, "%s/new", folder);
    snprintf(deep, sizeof deep, "%s/a/b", path);
    assert_int_equal(kh_dir_make(path, NULL), 0);
    assert_true(kh_dir_exists(path));
    assert_int_equal(kh_dir_make(path, NULL), 0);
    assert_int_equal(kh_dir_make(deep, &err), KH_EMISSING);
    assert_says(&err, "cannot make the folder: No such file or directory");
    assert_int_equal(kh_dir_make("Makefile", &err), KH_EIO);
    assert_says(&err, "Makefile: cannot make the folder: File exists");
    rmdir(path);
    rmdir(folder);
}

static void paths_join_with_one_slash(void **state) {
    (void)state;
    static const struct {
        const char *dir, *name, *joined;
    } cases[] = { { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "/", "b", "/b" },
        { ".", "b/c", "./b/c" }, { "", "b", "/b" } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *joined = kh_path_join(cases[k].dir, cases[k].name);
        assert_string_equal(joined, cases[k].joined);
        kh_free(joined);
    }
    kh_alloc_fail_at(1, false);
    assert_null(kh_path_join("a", "b"));
    kh_alloc_fail_at(0, false);
    assert_string_equal(kh_path_base("a/b/c"), "c");
    assert_string_equal(kh_path_base("c"), "c");
    assert_string_equal(kh_path_base("a/"), "");
}

/* ------------------------------------------------------------------------------------- options */

typedef struct sample {
    bool flag;
    int count, small, choice;
    uint64_t seed;
    double any, share;
    const char *name, *path;
    kh_strings list;
} sample;

static const kh_opt table[] = {
    { "flag", KH_OPT_FLAG, offsetof(sample, flag), .help = "a flag" },
    { "count", KH_OPT_INT, offsetof(sample, count), "20", .arg = "N", .help = "a count" },
    { "small", KH_OPT_INT, offsetof(sample, small), "-1", .min = -2, .max = 3, .arg = "N",
        .help = "a small number" },
    { "seed", KH_OPT_SEED, offsetof(sample, seed), "13", .arg = "N", .help = "a seed" },
    { "any", KH_OPT_NUMBER, offsetof(sample, any), "0.1", .arg = "X", .help = "any number" },
    { "share", KH_OPT_NUMBER, offsetof(sample, share), "1e-3", .min = 0, .max = 1, .arg = "X",
        .help = "a share" },
    { "name", KH_OPT_TEXT, offsetof(sample, name), "nobody", .arg = "NAME", .help = "a name" },
    { "path", KH_OPT_TEXT, offsetof(sample, path), .arg = "FILE", .help = "a file" },
    { "choice", KH_OPT_CHOICE, offsetof(sample, choice), "second", .arg = "first|second|third",
        .help = "a choice" },
    { "list", KH_OPT_LIST, offsetof(sample, list), .arg = "WORD", .help = "words" },
    { 0 },
};

static int set(sample *s, const char *name, const char *value, kh_err *err) {
    const kh_opt *row = kh_opts_find(table, name, strlen(name));
    assert_non_null(row);
    return kh_opts_set(row, s, value, err);
}

static void options_start_as_their_rows_say(void **state) {
    (void)state;
    sample s = { 0 };
    kh_opts_init(table, &s);
    assert_false(s.flag);
    assert_int_equal(s.count, 20);
    assert_int_equal(s.small, -1);
    assert_int_equal(s.seed, 13);
    assert_true(s.any == 0.1 && s.share == 1e-3);
    assert_string_equal(s.name, "nobody");
    assert_null(s.path);
    assert_int_equal(s.choice, 1);
    assert_int_equal(s.list.n, 0);
    kh_opts_free(table, &s);
}

static void options_are_found_by_whole_name(void **state) {
    (void)state;
    assert_ptr_equal(kh_opts_find(table, "seed=4", 4), &table[3]);
    assert_null(kh_opts_find(table, "see", 3));
    assert_null(kh_opts_find(table, "seeds", 5));
    assert_null(kh_opts_find(table, "", 0));
    assert_null(kh_opts_find(NULL, "seed", 4));
}

static void every_type_takes_its_values(void **state) {
    (void)state;
    sample s = { 0 };
    kh_opts_init(table, &s);
    assert_int_equal(set(&s, "flag", "true", NULL), 0);
    assert_true(s.flag);
    assert_int_equal(set(&s, "flag", "false", NULL), 0);
    assert_false(s.flag);
    assert_int_equal(set(&s, "count", "2147483647", NULL), 0);
    assert_int_equal(s.count, 2147483647);
    assert_int_equal(set(&s, "small", "-2", NULL), 0);
    assert_int_equal(s.small, -2);
    assert_int_equal(set(&s, "seed", "18446744073709551615", NULL), 0);
    assert_true(s.seed == UINT64_MAX);
    assert_int_equal(set(&s, "any", "1e+5", NULL), 0);
    assert_true(s.any == 1e5);
    assert_int_equal(set(&s, "any", "-1e300", NULL), 0);
    assert_true(s.any == -1e300);
    assert_int_equal(set(&s, "share", "1", NULL), 0);
    assert_true(s.share == 1);
    assert_int_equal(set(&s, "name", "", NULL), 0);
    assert_string_equal(s.name, "");
    assert_int_equal(set(&s, "choice", "third", NULL), 0);
    assert_int_equal(s.choice, 2);
    assert_int_equal(set(&s, "choice", "first", NULL), 0);
    assert_int_equal(s.choice, 0);
    for (int k = 0; k < 100; k++)
        assert_int_equal(set(&s, "list", k % 2 ? "odd" : "even", NULL), 0);
    assert_int_equal(s.list.n, 100);
    assert_string_equal(s.list.item[99], "odd");
    kh_opts_free(table, &s);
    assert_int_equal(s.list.n, 0);
}

static void every_refusal_is_a_sentence(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *sentence;
    } cases[] = {
        { "flag", "yes", "--flag takes no value, or true or false; got \"yes\"" },
        { "flag", "", "--flag takes no value, or true or false; got \"\"" },
        { "count", "-1", "--count takes a whole number from 0 to 2147483647; got \"-1\"" },
        { "count", "2147483648",
            "--count takes a whole number from 0 to 2147483647; got \"2147483648\"" },
        { "count", "99999999999999999999",
            "--count takes a whole number from 0 to 2147483647; got \"99999999999999999999\"" },
        { "count", "", "--count takes a whole number from 0 to 2147483647; got \"\"" },
        { "count", "5x", "--count takes a whole number from 0 to 2147483647; got \"5x\"" },
        { "count", "5.0", "--count takes a whole number from 0 to 2147483647; got \"5.0\"" },
        { "count", " 5", "--count takes a whole number from 0 to 2147483647; got \" 5\"" },
        { "count", "+5", "--count takes a whole number from 0 to 2147483647; got \"+5\"" },
        { "small", "-3", "--small takes a whole number from -2 to 3; got \"-3\"" },
        { "small", "4", "--small takes a whole number from -2 to 3; got \"4\"" },
        { "seed", "-1", "--seed takes a whole number from 0 to 18446744073709551615; got \"-1\"" },
        { "seed", "18446744073709551616",
            "--seed takes a whole number from 0 to 18446744073709551615; got "
            "\"18446744073709551616\"" },
        { "seed", "", "--seed takes a whole number from 0 to 18446744073709551615; got \"\"" },
        { "seed", "1e3",
            "--seed takes a whole number from 0 to 18446744073709551615; got \"1e3\"" },
        { "any", "", "--any takes a number; got \"\"" },
        { "any", "nan", "--any takes a number; got \"nan\"" },
        { "any", "inf", "--any takes a number; got \"inf\"" },
        { "any", "1e999", "--any takes a number; got \"1e999\"" },
        { "any", "0,5", "--any takes a number; got \"0,5\"" },
        { "any", " 1", "--any takes a number; got \" 1\"" },
        { "any", "0x10", "--any takes a number; got \"0x10\"" },
        { "share", "1.01", "--share takes a number from 0 to 1; got \"1.01\"" },
        { "share", "-0.5", "--share takes a number from 0 to 1; got \"-0.5\"" },
        { "choice", "fourth", "--choice takes one of first|second|third; got \"fourth\"" },
        { "choice", "", "--choice takes one of first|second|third; got \"\"" },
        { "choice", "first|second",
            "--choice takes one of first|second|third; got \"first|second\"" },
        { "choice", "firs", "--choice takes one of first|second|third; got \"firs\"" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sample s = { 0 }, before;
        kh_opts_init(table, &s);
        before = s;
        kh_err err = { 0 };
        if (set(&s, cases[k].name, cases[k].value, &err) != KH_EARG)
            fail_msg("--%s took \"%s\"", cases[k].name, cases[k].value);
        assert_string_equal(err.msg, cases[k].sentence);
        assert_memory_equal(&s, &before, sizeof s); /* a refused value changes nothing */
        kh_opts_free(table, &s);
    }
}

static void list_out_of_memory_is_reported(void **state) {
    (void)state;
    sample s = { 0 };
    kh_opts_init(table, &s);
    kh_alloc_fail_at(1, true);
    assert_int_equal(set(&s, "list", "x", NULL), KH_ENOMEM);
    kh_alloc_fail_at(0, false);
    assert_int_equal(s.list.n, 0);
    kh_opts_free(table, &s);
}

static void options_are_echoed_as_json(void **state) {
    (void)state;
    sample s = { 0 };
    kh_opts_init(table, &s);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_opts_json(table, &s, &b);
    assert_string_equal(b.data,
        "{\"flag\":false,\"count\":20,\"small\":-1,\"seed\":13,\"any\":0.10000000000000001,"
        "\"share\":0.001,"
        "\"name\":\"nobody\",\"path\":null,\"choice\":\"second\",\"list\":[]}");
    set(&s, "seed", "18446744073709551615", NULL);
    set(&s, "name", "a \"b\"\n\xFF", NULL);
    set(&s, "choice", "third", NULL);
    set(&s, "list", "x", NULL);
    set(&s, "list", "y", NULL);
    kh_buf_reset(&b);
    kh_opts_json(table, &s, &b);
    assert_non_null(strstr(b.data, "\"seed\":\"18446744073709551615\","));
    assert_non_null(strstr(b.data, "\"name\":\"a \\\"b\\\"\\n\uFFFD\""));
    assert_non_null(strstr(b.data, "\"choice\":\"third\",\"list\":[\"x\",\"y\"]}"));
    kh_buf_free(&b);
    b = kh_buf_init(KH_BUF_MAX);
    kh_opts_json(NULL, NULL, &b);
    assert_string_equal(b.data, "{}");
    kh_buf_free(&b);
    kh_opts_free(table, &s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_file_is_read_whole),
        cmocka_unit_test(missing_file_is_named),
        cmocka_unit_test(folder_is_no_file),
        cmocka_unit_test(large_file_is_refused_before_it_is_read),
        cmocka_unit_test(file_that_hides_its_size_is_still_limited),
        cmocka_unit_test(pipe_is_no_file_and_does_not_hang),
        cmocka_unit_test(write_makes_and_replaces),
        cmocka_unit_test(failed_write_says_why),
        cmocka_unit_test(failed_write_leaves_the_old_file),
        cmocka_unit_test(a_file_that_cannot_grow_is_noticed),
        cmocka_unit_test(links_are_not_written_through),
        cmocka_unit_test(stale_temporary_files_are_removed),
        cmocka_unit_test(existence_tells_files_from_folders),
        cmocka_unit_test(folder_is_made_once),
        cmocka_unit_test(paths_join_with_one_slash),
        cmocka_unit_test(options_start_as_their_rows_say),
        cmocka_unit_test(options_are_found_by_whole_name),
        cmocka_unit_test(every_type_takes_its_values),
        cmocka_unit_test(every_refusal_is_a_sentence),
        cmocka_unit_test(list_out_of_memory_is_reported),
        cmocka_unit_test(options_are_echoed_as_json),
    };
    return cmocka_run_group_tests_name("base_file", tests, NULL, NULL);
}
