/* test_faults.c - disks that misbehave: short counts, interrupted calls, failures at the n-th call,
 * and files that are cut while they are read.
 *
 * The system calls below stand in front of libc's for the whole test program, library included.
 * Reading must come to the same result through short and interrupted calls; a failure at any call
 * must be told in a sentence that names the file; and writing must leave the old file as it was and
 * no temporary one behind. (SQLite's own writes fail in tests/test_run.c, by faulty.h.) */
#include "tiny.h"

#include "base/map.h"
#include "posterior/posterior.h"
#include "model/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---------------------------------------------------------------------------------- the faults */

typedef enum fault_call {
    FAULT_READ = 1,
    FAULT_WRITE = 2,
    FAULT_FSYNC = 4,
    FAULT_RENAME = 8,
    FAULT_CLOSE = 16
} fault_call;

static struct {
    unsigned calls; /* which of them, by bits; 0: none */
    bool trouble;   /* every other call is interrupted, and the rest are short */
    long at;        /* this one fails with `code`, and all after it; 0: none */
    int code;
    const char *cut; /* instead, this file is cut to nothing before call number `at` */
    long n;
} fault;

static void faults_end(void) { memset(&fault, 0, sizeof fault); }

/* Whether this call fails; *n becomes what a short one moves. */
static bool fails(fault_call call, size_t *n) {
    if (!(fault.calls & call))
        return false;
    fault.n++;
    if (fault.cut && fault.n == fault.at && truncate(fault.cut, 0) != 0)
        abort();
    if (fault.trouble && (call == FAULT_READ || call == FAULT_WRITE)) {
        if (fault.n % 2) {
            errno = EINTR;
            return true;
        }
        size_t most = 1 + (size_t)fault.n % 777;
        *n = *n < most ? *n : most;
    }
    if (fault.at > 0 && fault.n >= fault.at && !fault.cut) {
        errno = fault.code;
        return true;
    }
    return false;
}

ssize_t read(int fd, void *p, size_t n) {
    return fails(FAULT_READ, &n) ? -1 : syscall(SYS_read, fd, p, n);
}
ssize_t pread(int fd, void *p, size_t n, off_t at) {
    return fails(FAULT_READ, &n) ? -1 : syscall(SYS_pread64, fd, p, n, at);
}
ssize_t write(int fd, const void *p, size_t n) {
    return fd > 2 && fails(FAULT_WRITE, &n) ? -1 : syscall(SYS_write, fd, p, n);
}
int fsync(int fd) { return fails(FAULT_FSYNC, NULL) ? -1 : (int)syscall(SYS_fsync, fd); }
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return fails(FAULT_RENAME, NULL) ? -1 : (int)syscall(SYS_renameat, from_dir, from, to_dir, to);
}
int close(int fd) { /* closes even when it fails, as Linux does */
    bool bad = ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && fails(FAULT_CLOSE, NULL));
    int rc = (int)syscall(SYS_close, fd);
    return bad ? -1 : rc;
}

/* -------------------------------------------------------------------------------------- scenes */

static char dir[80], rows_path[128];

static uint64_t hash_file(const char *folder, const char *name) {
    kh_buf b;
    char *path = kh_path_join(folder, name);
    kh_err err;
    if (kh_file_read(path, 1 << 24, &b, &err) != 0)
        fail_msg("%s", err.msg);
    uint64_t h = kh_hash64(b.data, b.len);
    kh_buf_free(&b);
    kh_free(path);
    return h;
}

static int files_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int load_model(uint64_t *digest, kh_err *err) {
    kh_plm *box;
    int rc = kh_plm_open(&box, tiny_dir, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, err);
    if (rc == 0)
        *digest = kh_plm_describe(box).fingerprint;
    kh_plm_close(box);
    return rc;
}

static int load_rows(uint64_t *digest, kh_err *err) {
    kh_dataset *d;
    int rc = kh_dataset_open(&d, rows_path, NULL, err);
    if (rc == 0)
        *digest = kh_hash64(kh_dataset_rows(d)[0].a, kh_dataset_rows(d)[0].n_a) +
            (uint64_t)kh_dataset_size(d);
    kh_dataset_close(d);
    return rc;
}

static int load_posterior(uint64_t *digest, kh_err *err) {
    kh_posterior *p;
    int rc = kh_posterior_open(&p, dir, err);
    if (rc == 0)
        *digest = kh_hash64(p->z, (size_t)p->n * (size_t)p->space.dim * sizeof *p->z);
    kh_posterior_free(p);
    return rc;
}

typedef int reading(uint64_t *digest, kh_err *err);
static reading *const READINGS[] = { load_model, load_rows, load_posterior };

static kh_posterior *tuned;

static int save_posterior(kh_err *err) { return kh_posterior_save(tuned, dir, err); }
static int save_model(kh_err *err) {
    kh_random_opts r = {
        .config = *kh_arch_find("roberta-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3, .seed = 9
    };
    r.config.vocab = 300;
    r.config.hidden = 32;
    return kh_random_model_write(dir, &r, err);
}

typedef int writing(kh_err *err);
static const struct {
    writing *write;
    const char *file[2]; /* that it makes */
} WRITINGS[] = { { save_posterior, { "posterior.json", "posterior.safetensors" } },
    { save_model, { "config.json", "model.safetensors" } } };
enum { N_WRITINGS = sizeof WRITINGS / sizeof WRITINGS[0] };

/* ------------------------------------------------------------------------------------- reading */

static void short_and_interrupted_reads_change_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof READINGS / sizeof READINGS[0]; i++) {
        uint64_t want = 0, got = 1;
        kh_err err = { 0 };
        assert_int_equal(READINGS[i](&want, &err), 0);
        fault.calls = FAULT_READ;
        fault.trouble = true;
        int rc = READINGS[i](&got, &err);
        long n = fault.n;
        faults_end();
        if (rc != 0)
            fail_msg("%s", err.msg);
        assert_int_equal(got, want);
        assert_true(n > 2);
    }
}

static void every_read_may_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof READINGS / sizeof READINGS[0]; i++)
        for (long at = 1;; at++) {
            uint64_t got;
            kh_err err = { 0 };
            fault.calls = FAULT_READ;
            fault.at = at;
            fault.code = EIO;
            int rc = READINGS[i](&got, &err);
            bool all = fault.n < at;
            faults_end();
            if (all) {
                assert_int_equal(rc, 0);
                assert_true(at > 1);
                break;
            }
            assert_int_equal(rc, KH_EIO);
            assert_says(&err, "cannot read: Input/output error");
            assert_non_null(strstr(err.msg, "/tmp/keyhole-test-")); /* the file */
        }
}

/* Somebody cuts the file between two reads: at every read there is. */
static void a_file_that_is_cut_while_it_is_read_is_an_error(void **state) {
    (void)state;
    char *path = kh_path_join(tiny_other, "model.safetensors");
    kh_buf whole;
    int refused = 0;
    assert_int_equal(kh_file_read(path, 1 << 24, &whole, NULL), 0);
    for (long at = 1;; at++) {
        kh_plm *box;
        kh_err err = { 0 };
        assert_int_equal(kh_file_write(path, whole.data, whole.len, NULL), 0);
        fault.calls = FAULT_READ;
        fault.cut = path;
        fault.at = at;
        int rc =
            kh_plm_open(&box, tiny_other, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, &err);
        bool all = fault.n < at;
        faults_end();
        kh_plm_close(box);
        if (all)
            break;
        if (rc == 0)
            fail_msg("the file was cut at read %ld, and nobody noticed", at);
        assert_non_null(strstr(err.msg, path));
        refused++;
    }
    assert_true(refused > 3);
    assert_int_equal(kh_file_write(path, whole.data, whole.len, NULL), 0);
    kh_buf_free(&whole);
    kh_free(path);
}

/* Afterwards the file may do what it likes: nothing of it is mapped, so nothing can end in SIGBUS.
 */
static void a_loaded_model_needs_its_file_no_more(void **state) {
    (void)state;
    kh_plm *box;
    kh_words *words;
    kh_batch *batch;
    const kh_task *task = tiny_task();
    kh_dataset *rows = tiny_rows(3, 1, -1);
    char *path = kh_path_join(tiny_other, "model.safetensors"), line[1024];
    kh_buf whole;
    float before[6], after[6];
    assert_int_equal(kh_file_read(path, 1 << 24, &whole, NULL), 0);
    assert_int_equal(
        kh_plm_open(&box, tiny_other, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, NULL), 0);
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(box), false, NULL), 0);
    assert_int_equal(
        kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, kh_dataset_rows(rows), 3,
            &(kh_batch_opts){ .max_len = kh_plm_describe(box).max_len }, NULL),
        0);
    kh_question q = { .batch = batch, .words = words, .n_prompt = 1 };
    assert_int_equal(kh_plm_score(kh_plm_scorer(box, NULL), &q, before, NULL), 0);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, tiny_other))
            fail_msg("mapped: %s", line);
    if (maps)
        fclose(maps);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(kh_plm_score(kh_plm_scorer(box, NULL), &q, after, NULL), 0);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(kh_file_write(path, whole.data, whole.len, NULL), 0);
    kh_buf_free(&whole);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_plm_close(box);
    kh_dataset_close(rows);
    kh_task_close(task);
    kh_free(path);
}

/* ------------------------------------------------------------------------------------- writing */

static void short_and_interrupted_writes_change_nothing(void **state) {
    (void)state;
    for (int i = 0; i < N_WRITINGS; i++) {
        kh_err err = { 0 };
        uint64_t want[2];
        assert_int_equal(WRITINGS[i].write(&err), 0);
        for (int f = 0; f < 2; f++)
            want[f] = hash_file(dir, WRITINGS[i].file[f]);
        fault.calls = FAULT_WRITE;
        fault.trouble = true;
        int rc = WRITINGS[i].write(&err);
        long n = fault.n;
        faults_end();
        if (rc != 0)
            fail_msg("%s", err.msg);
        assert_true(n > 4);
        for (int f = 0; f < 2; f++)
            assert_int_equal(hash_file(dir, WRITINGS[i].file[f]), want[f]);
    }
}

/* At every call, with every way to fail; all that follow fail, too. */
static void a_full_disk_leaves_the_old_files_whole(void **state) {
    (void)state;
    static const struct {
        fault_call call;
        int code;
        const char *says;
    } KINDS[] = { { FAULT_WRITE, ENOSPC, "cannot write: No space left on device" },
        { FAULT_WRITE, EDQUOT, "cannot write: Disk quota exceeded" },
        { FAULT_FSYNC, EIO, "cannot flush to disk: Input/output error" },
        { FAULT_CLOSE, EIO, "cannot write: Input/output error" },
        { FAULT_RENAME, EACCES, "cannot rename into place: Permission denied" } };
    for (int i = 0; i < N_WRITINGS; i++) {
        kh_err err = { 0 };
        uint64_t want[2];
        assert_int_equal(WRITINGS[i].write(&err), 0);
        int files = files_in(dir);
        for (int f = 0; f < 2; f++)
            want[f] = hash_file(dir, WRITINGS[i].file[f]);
        for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
            for (long at = 1;; at++) {
                err = (kh_err){ 0 };
                fault.calls = KINDS[k].call;
                fault.at = at;
                fault.code = KINDS[k].code;
                int rc = WRITINGS[i].write(&err);
                bool all = fault.n < at;
                faults_end();
                if (all) {
                    assert_int_equal(rc, 0);
                    break;
                }
                assert_int_equal(rc, KH_EIO);
                assert_says(&err, KINDS[k].says);
                assert_non_null(strstr(err.msg, dir));
                assert_int_equal(files_in(dir), files);
                for (int f = 0; f < 2; f++)
                    assert_int_equal(hash_file(dir, WRITINGS[i].file[f]), want[f]);
            }
    }
}

/* ----------------------------------------------------------------------------------------- all */

static int open_all(void **state) {
    static const char *const SET[] = { "budget-generations=1", "pop=2", NULL };
    tiny_setup(state);
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-faults-%ld", (long)getpid());
    snprintf(rows_path, sizeof rows_path, "%s/rows.tsv", dir);
    mkdir(dir, 0700);
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_text(&b, "label\ttext\n");
    for (int i = 0; i < 200; i++)
        kh_buf_printf(&b, "%d\tthe boats number %d\n", i % 2, i);
    assert_int_equal(kh_file_write(rows_path, b.data, b.len, NULL), 0);
    kh_buf_free(&b);
    kh_plm *plm = tiny_open(KH_ACCESS_LOGPROBS);
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(6, 2, -1);
    kh_tune_opts o = kh_tune_defaults();
    o.space = tiny_space();
    assert_int_equal(kh_tune(&tuned, "bbt", SET, plm, task, train, dev, &o, NULL), 0);
    assert_int_equal(kh_posterior_save(tuned, dir, NULL), 0);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    kh_plm_close(plm);
    return 0;
}

static int close_all(void **state) {
    static const char *const FILES[] = { "rows.tsv", "posterior.json", "posterior.safetensors",
        "config.json", "model.safetensors", NULL };
    kh_posterior_free(tuned);
    tiny_remove(dir, FILES);
    return tiny_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_interrupted_reads_change_nothing),
        cmocka_unit_test(every_read_may_fail),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read_is_an_error),
        cmocka_unit_test(a_loaded_model_needs_its_file_no_more),
        cmocka_unit_test(short_and_interrupted_writes_change_nothing),
        cmocka_unit_test(a_full_disk_leaves_the_old_files_whole),
    };
    return cmocka_run_group_tests_name("faults", tests, open_all, close_all);
}
