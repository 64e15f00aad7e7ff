/* cmd_data.c - keyhole data check, stats, split: what is in a data file or folder, and whether it
 * can be used. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "data/stats.h"

#include <limits.h>
#include <string.h>

/* ------------------------------------------------------------------------------ what all share */

typedef struct data_opts {
    const char *task, *model, *out;
    int format, max_len, slots, max_problems, shots;
    uint64_t seed;
    bool json, skip, unlabelled, force;
} data_opts;

#define OPT_TASK \
    { \
        "task", KH_OPT_TEXT, offsetof(data_opts, task), \
            .arg = "NAME|FILE", \
            .help = "the task that the rows are for: its label names, one or two texts" \
    }
#define OPT_FORMAT \
    { \
        "format", KH_OPT_CHOICE, offsetof(data_opts, format), "auto", \
            .arg = "auto|tsv|csv|csv-noheader|jsonl", \
            .help = "how files are written; GLUE's files are tsv" \
    }
#define OPT_SKIP \
    { \
        "skip-bad-rows", KH_OPT_FLAG, offsetof(data_opts, skip), \
            .help = "leave malformed rows out, with a count" \
    }

/* The files to look at. */
typedef struct files {
    char **path;
    int n;
    size_t cap;
} files;

static void free_files(files *f) {
    for (int i = 0; i < f->n; i++)
        kh_free(f->path[i]);
    kh_free(f->path);
}

/* Takes *path over; NULL is no file. */
static int add_file(files *f, char **path, kh_err *err) {
    if (!*path)
        return 0;
    if (!kh_grow(&f->path, &f->cap, (size_t)f->n + 1, sizeof *f->path))
        return kh_fail_memory(err);
    f->path[f->n++] = *path;
    *path = NULL;
    return 0;
}

static int add_parts(files *f, kh_folder *p, kh_err *err) {
    int rc = add_file(f, &p->train, err);
    if (rc == 0)
        rc = add_file(f, &p->dev, err);
    if (rc == 0)
        rc = add_file(f, &p->test, err);
    kh_folder_free(p);
    return rc;
}

/* The file itself, or train, dev and test of a folder; with splits, those of its ready-made splits
 * too. */
static int list_files(files *f, const char *where, const kh_task *task, bool splits, kh_err *err) {
    kh_folder parts;
    if (!kh_dir_exists(where)) {
        char *copy = kh_strdup(where);
        int rc = copy ? add_file(f, &copy, err) : kh_fail_memory(err);
        kh_free(copy);
        return rc;
    }
    kh_split_name *split = NULL;
    int n = 0, rc = kh_folder_find(where, &parts, err);
    if (rc == 0)
        rc = add_parts(f, &parts, err);
    if (rc == 0)
        rc = kh_folder_splits(where, task, &split, &n, err);
    for (int i = 0; i < n && splits && rc == 0; i++) {
        rc = kh_folder_split(where, task, split[i].shots, split[i].seed, &parts, err);
        if (rc == 0 &&
            !split[i].dir) { /* kshotK: the test file is the folder's own, which is there already */
            kh_free(parts.test);
            parts.test = NULL;
        }
        if (rc == 0)
            rc = add_parts(f, &parts, err);
    }
    kh_split_names_free(split, n);
    if (rc == 0 && f->n == 0)
        rc = kh_fail(err, KH_EMISSING,
            "%s: no train, dev or test file (.tsv, .csv or .jsonl) and no few-shot splits", where);
    return rc;
}

static int open_task(const kh_task **task, const char *name, kh_err *err) {
    *task = NULL;
    return name ? kh_task_open(task, name, err) : 0;
}

/* --------------------------------------------------------------------------------------- check */

static const kh_opt check_table[] = {
    OPT_TASK,
    OPT_FORMAT,
    { "max-problems", KH_OPT_INT, offsetof(data_opts, max_problems), "50", .min = 1, .max = 1000000,
        .arg = "N", .help = "how many problems to print" },
    { "unlabelled", KH_OPT_FLAG, offsetof(data_opts, unlabelled),
        .help = "rows without a label are fine" },
    CLI_JSON_OPTION(data_opts),
    { 0 },
};

typedef struct checker {
    const data_opts *o;
    int n_problem; /* found */
    int n_printed;
    long n_row;
    kh_buf text;
    kh_json_out json; /* into text: the list of problems is open */
} checker;

static void report(checker *c, const char *sentence) {
    c->n_problem++;
    if (c->n_printed >= c->o->max_problems)
        return;
    c->n_printed++;
    if (c->o->json) {
        kh_json_gap(&c->json, "\n  ");
        kh_json_put_string(&c->json, NULL, sentence);
    } else
        printf("%s\n", sentence);
}

static void report_row(void *user, kh_level level, const char *line) {
    (void)level;
    report(user, line);
}

static int check_classes(checker *c, const kh_dataset *d, kh_err *err) {
    int n_label = kh_dataset_labels(d), *count = kh_calloc((size_t)n_label, sizeof *count);
    if (!count)
        return kh_fail_memory(err);
    kh_dataset_count(d, count);
    for (int k = 0; k < n_label; k++)
        if (count[k] == 0) {
            char sentence[512];
            const char *name = kh_dataset_label(d, k);
            snprintf(sentence, sizeof sentence, "%s: no row has label %d%s%s%s", kh_dataset_path(d),
                k, name ? " (" : "", name ? name : "", name ? ")" : "");
            report(c, sentence);
        }
    kh_free(count);
    return 0;
}

static int check_file(checker *c, const char *path, const kh_task *task, kh_err *err) {
    kh_hooks hooks = { .log = report_row, .user = c };
    kh_dataset_opts o = { .format = (kh_format)c->o->format,
        .task = task,
        .unlabelled = c->o->unlabelled,
        .skip_bad_rows = true,
        .max_reports = INT_MAX,
        .hooks = &hooks };
    kh_dataset *d;
    kh_err why = { 0 };
    int rc = kh_dataset_open(&d, path, &o, &why);
    if (rc == KH_ENOMEM)
        return kh_fail_memory(err);
    if (rc != 0) {
        report(c, why.msg);
        return 0;
    }
    c->n_row += kh_dataset_size(d);
    rc = check_classes(c, d, err);
    kh_dataset_close(d);
    return rc;
}

static int run_check(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    checker c = { .o = opts, .text = kh_buf_init(KH_BUF_MAX) };
    const kh_task *task;
    files f = { 0 };
    int rc = open_task(&task, c.o->task, err);
    if (rc == 0)
        rc = list_files(&f, args[0], task, true, err);
    c.json = kh_json_out_init(&c.text, KH_JSON_SPACED);
    kh_json_open_object(&c.json, NULL);
    kh_json_open_array(&c.json, "problems");
    for (int i = 0; i < f.n && rc == 0; i++)
        rc = check_file(&c, f.path[i], task, err);
    if (rc == 0 && c.o->json) {
        kh_json_close(&c.json);
        kh_json_gap(&c.json, "\n ");
        kh_json_put_int(&c.json, "n_problems", c.n_problem);
        kh_json_put_int(&c.json, "n_files", f.n);
        kh_json_put_int(&c.json, "n_rows", c.n_row);
        kh_json_close(&c.json);
        rc = cli_print_json(&c.json, stdout, err);
    } else if (rc == 0 && c.n_problem == 0)
        printf(
            "%s: %d file%s, %ld rows, no problems\n", args[0], f.n, f.n == 1 ? "" : "s", c.n_row);
    if (rc == 0 && c.n_problem > 0)
        rc = kh_fail(err, KH_EFORMAT, "%s: %d problem%s in %d file%s%s", args[0], c.n_problem,
            c.n_problem == 1 ? "" : "s", f.n, f.n == 1 ? "" : "s",
            c.n_problem > c.n_printed ? "; --max-problems shows more" : "");
    kh_buf_free(&c.text);
    free_files(&f);
    kh_task_close(task);
    return rc;
}

const cli_command cmd_data_check = {
    .name = "data check",
    .args = "DIR|FILE",
    .min_args = 1,
    .max_args = 1,
    .summary = "Read data files to the end and print every problem",
    .text = "A folder holds train, dev and test as .tsv, .csv or .jsonl, labels.txt with one class "
            "name\n"
            "a line, and perhaps few-shot splits (kshot16/seed13.train.tsv, or LM-BFF's tree). "
            "Columns\n"
            "go by their names: label; text, or text_a and text_b; GLUE's and Hugging Face's names "
            "work.\n"
            "Prints file:line: what is wrong, for each malformed row, and classes without rows. "
            "Exit 1 if\n"
            "there is any problem.\n\n"
            "  keyhole data check DIR --task sst2\n"
            "  keyhole data check reviews.csv --format csv-noheader --max-problems 5",
    .opts = check_table,
    .opts_size = sizeof(data_opts),
    .run = run_check,
};

/* --------------------------------------------------------------------------------------- stats */

static const kh_opt stats_table[] = {
    OPT_TASK,
    CLI_TOKENIZER_OPTION(data_opts, "count tokens too, with the tokenizer of this model"),
    { "max-len", KH_OPT_INT, offsetof(data_opts, max_len), "512", .min = 1, .max = 1000000,
        .arg = "N", .help = "tokens that the model reads" },
    { "slots", KH_OPT_INT, offsetof(data_opts, slots), "0", .min = 0, .max = 100000, .arg = "N",
        .help = "prompt slots to count among the tokens" },
    OPT_FORMAT,
    OPT_SKIP,
    CLI_JSON_OPTION(data_opts),
    { 0 },
};

typedef struct file_stats {
    kh_dataset *d;
    int *count; /* [n_label] */
    int n_unlabelled;
    kh_lengths characters, tokens;
    int n_long; /* rows over --max-len */
    int n_duplicate, n_conflict;
} file_stats;

typedef struct stats {
    const data_opts *o;
    const kh_task *task;
    kh_tokenizer *tok;
    kh_words *words;
    file_stats *file; /* [n] */
    int n;
    int train, test; /* which of the files, -1: none */
    int n_overlap;
    kh_split_name *split;
    int n_split;
} stats;

/* Tokens of each row: of the filled-in template if there is a task, of the framed texts otherwise.
 */
static int count_tokens(const stats *s, const kh_dataset *d, int *length, kh_err *err) {
    const kh_row *row = kh_dataset_rows(d);
    int n = kh_dataset_size(d), rc = 0;
    if (s->task) {
        kh_batch *b;
        kh_batch_opts o = { .max_len = INT_MAX };
        rc = kh_batch_encode(&b, s->tok, s->task, s->words, row, n, &o, err);
        for (int i = 0; i < n && rc == 0; i++) {
            int last = (i + 1) * b->n_variant - 1;
            length[i] = (int)(b->start[last + 1] - b->start[last]) + s->o->slots;
        }
        kh_batch_free(b);
        return rc;
    }
    kh_ids ids = { 0 };
    unsigned flags = KH_ENCODE_FRAME | KH_ENCODE_PLAIN;
    for (int i = 0; i < n && rc == 0; i++) {
        ids.n = 0;
        rc = row[i].b ? kh_tokenizer_encode_pair(s->tok, row[i].a, row[i].n_a, row[i].b, row[i].n_b,
                            flags, &ids, NULL, err)
                      : kh_tokenizer_encode(s->tok, row[i].a, row[i].n_a, flags, &ids, err);
        length[i] = ids.n + s->o->slots;
    }
    kh_ids_free(&ids);
    return rc;
}

static int measure_file(const stats *s, file_stats *f, const char *path, kh_err *err) {
    kh_dataset_opts o = { .format = (kh_format)s->o->format,
        .task = s->task,
        .unlabelled = true,
        .skip_bad_rows = s->o->skip,
        .hooks = &cli_hooks };
    int *length = NULL, rc = kh_dataset_open(&f->d, path, &o, err);
    if (rc != 0)
        return rc;
    int n = kh_dataset_size(f->d);
    f->count = kh_calloc((size_t)kh_dataset_labels(f->d), sizeof *f->count);
    length = kh_calloc((size_t)n, sizeof *length);
    if (!f->count || !length) {
        rc = kh_fail_memory(err);
        goto done;
    }
    kh_dataset_count(f->d, f->count);
    f->n_unlabelled = n;
    for (int k = 0; k < kh_dataset_labels(f->d); k++)
        f->n_unlabelled -= f->count[k];
    kh_dataset_characters(f->d, length);
    f->characters = kh_lengths_of(length, n);
    rc = kh_dataset_duplicates(f->d, &f->n_duplicate, &f->n_conflict, err);
    if (rc == 0 && s->tok && (rc = count_tokens(s, f->d, length, err)) == 0) {
        for (int i = 0; i < n; i++)
            f->n_long += length[i] > s->o->max_len;
        f->tokens = kh_lengths_of(length, n);
    }
done:
    kh_free(length);
    return rc;
}

static void print_lengths(const char *what, const kh_lengths *l) {
    printf("  %-11s mean %.1f, median %d, 95 %% up to %d, max %d", what, l->mean, l->median, l->p95,
        l->max);
}

static void print_file(const stats *s, const file_stats *f) {
    const kh_dataset *d = f->d;
    printf("%s (%s, %s)\n  %-11s %d", kh_dataset_path(d), kh_format_name(kh_dataset_format(d)),
        kh_dataset_pairs(d) ? "two texts" : "one text", "rows", kh_dataset_size(d));
    if (kh_dataset_skipped(d))
        printf(", and %d malformed ones left out", kh_dataset_skipped(d));
    if (f->n_unlabelled)
        printf(", %d of them without a label", f->n_unlabelled);
    putchar('\n');
    for (int k = 0; k < kh_dataset_labels(d); k++)
        printf("  %-11s %2d %-24s %7d  %5.1f %%\n", k ? "" : "classes", k,
            kh_dataset_label(d, k) ? kh_dataset_label(d, k) : "", f->count[k],
            100.0 * f->count[k] / kh_dataset_size(d));
    print_lengths("characters", &f->characters);
    putchar('\n');
    if (s->tok) {
        print_lengths("tokens", &f->tokens);
        printf("; %d rows over %d\n", f->n_long, s->o->max_len);
    }
    printf("  %-11s %d rows repeat an earlier one, %d of them with another label\n", "duplicates",
        f->n_duplicate, f->n_conflict);
}

static void print_stats(const stats *s) {
    for (int i = 0; i < s->n; i++)
        print_file(s, &s->file[i]);
    if (s->train >= 0 && s->test >= 0)
        printf("overlap: %d of %d test rows also stand in train\n", s->n_overlap,
            kh_dataset_size(s->file[s->test].d));
    for (int i = 0; i < s->n_split; i++) {
        bool first = i == 0 || s->split[i].shots != s->split[i - 1].shots;
        if (first)
            printf("%sfew-shot splits of %d: seeds", i ? "\n" : "", s->split[i].shots);
        printf(" %llu", (unsigned long long)s->split[i].seed);
    }
    if (s->n_split)
        putchar('\n');
}

/* The object is left open. */
static void put_lengths(kh_json_out *j, const char *key, const kh_lengths *l) {
    kh_json_open_object(j, key);
    kh_json_put_number(j, "mean", l->mean, 6);
    kh_json_put_int(j, "median", l->median);
    kh_json_put_int(j, "p95", l->p95);
    kh_json_put_int(j, "max", l->max);
}

static void put_file(kh_json_out *j, const stats *s, const file_stats *f) {
    const kh_dataset *d = f->d;
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "path", kh_dataset_path(d));
    kh_json_put_string(j, "format", kh_format_name(kh_dataset_format(d)));
    kh_json_put_bool(j, "pairs", kh_dataset_pairs(d));
    kh_json_put_int(j, "rows", kh_dataset_size(d));
    kh_json_put_int(j, "skipped", kh_dataset_skipped(d));
    kh_json_put_int(j, "unlabelled", f->n_unlabelled);
    kh_json_open_array(j, "classes");
    for (int k = 0; k < kh_dataset_labels(d); k++) {
        kh_json_open_object(j, NULL);
        kh_json_put_int(j, "label", k);
        kh_json_put_string(j, "name", kh_dataset_label(d, k));
        kh_json_put_int(j, "rows", f->count[k]);
        kh_json_close(j);
    }
    kh_json_close(j);
    put_lengths(j, "characters", &f->characters);
    kh_json_close(j);
    if (s->tok) {
        put_lengths(j, "tokens", &f->tokens);
        kh_json_put_int(j, "max_len", s->o->max_len);
        kh_json_put_int(j, "over_max_len", f->n_long);
        kh_json_close(j);
    }
    kh_json_put_int(j, "duplicates", f->n_duplicate);
    kh_json_put_int(j, "conflicts", f->n_conflict);
    kh_json_close(j);
}

static int stats_json(const stats *s, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_open_array(&j, "files");
    for (int i = 0; i < s->n; i++) {
        kh_json_gap(&j, "\n  ");
        put_file(&j, s, &s->file[i]);
    }
    kh_json_close(&j);
    kh_json_gap(&j, "\n ");
    if (s->train >= 0 && s->test >= 0)
        kh_json_put_int(&j, "overlap", s->n_overlap);
    else
        kh_json_put_null(&j, "overlap");
    kh_json_open_array(&j, "splits");
    for (int i = 0; i < s->n_split; i++) {
        kh_json_open_object(&j, NULL);
        kh_json_put_int(&j, "shots", s->split[i].shots);
        kh_json_put_u64(&j, "seed", s->split[i].seed);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int open_tokenizer(stats *s, kh_err *err) {
    int rc = s->o->model ? kh_tokenizer_open(&s->tok, s->o->model, err) : 0;
    if (rc == 0 && s->tok && s->task)
        rc = kh_words_new(&s->words, s->task, s->tok, false, err);
    return rc;
}

static int measure(stats *s, const files *f, kh_err *err) {
    s->file = kh_calloc((size_t)f->n, sizeof *s->file);
    int rc = s->file ? open_tokenizer(s, err) : kh_fail_memory(err);
    for (int i = 0; i < f->n && rc == 0; i++) {
        s->n = i + 1;
        rc = measure_file(s, &s->file[i], f->path[i], err);
        const char *name = kh_path_base(f->path[i]);
        s->train = strncmp(name, "train.", 6) == 0 ? i : s->train;
        s->test = strncmp(name, "test.", 5) == 0 ? i : s->test;
    }
    if (rc == 0 && s->train >= 0 && s->test >= 0)
        rc = kh_dataset_overlap(s->file[s->train].d, s->file[s->test].d, &s->n_overlap, err);
    return rc;
}

static int run_stats(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    stats s = { .o = opts, .train = -1, .test = -1 };
    files f = { 0 };
    int rc = open_task(&s.task, s.o->task, err);
    if (rc == 0)
        rc = list_files(&f, args[0], s.task, false, err);
    if (rc == 0 && kh_dir_exists(args[0]))
        rc = kh_folder_splits(args[0], s.task, &s.split, &s.n_split, err);
    if (rc == 0)
        rc = measure(&s, &f, err);
    if (rc == 0 && s.o->json)
        rc = stats_json(&s, err);
    else if (rc == 0)
        print_stats(&s);
    for (int i = 0; i < s.n; i++) {
        kh_dataset_close(s.file[i].d);
        kh_free(s.file[i].count);
    }
    kh_free(s.file);
    kh_split_names_free(s.split, s.n_split);
    kh_words_free(s.words);
    kh_tokenizer_close(s.tok);
    kh_task_close(s.task);
    free_files(&f);
    return rc;
}

const cli_command cmd_data_stats = {
    .name = "data stats",
    .args = "DIR|FILE",
    .min_args = 1,
    .max_args = 1,
    .summary = "Count rows, classes, lengths and duplicates of data files",
    .text =
        "For each of train, dev and test in a folder, or for one file: rows, rows of each class, "
        "the\n"
        "length of texts in characters and, with --model, in tokens, rows that stand there twice.\n"
        "For a folder also the test rows that stand in train, and the few-shot splits in it. With\n"
        "--task tokens are those of the filled-in template.\n\n"
        "  keyhole data stats DIR\n"
        "  keyhole data stats DIR --task agnews --model DIR --slots 50\n"
        "  keyhole data stats rows.jsonl --json",
    .opts = stats_table,
    .opts_size = sizeof(data_opts),
    .run = run_stats,
};

/* --------------------------------------------------------------------------------------- split */

static const kh_opt split_table[] = {
    { "out", KH_OPT_TEXT, offsetof(data_opts, out), .arg = "DIR",
        .help = "where train.tsv and dev.tsv go; made if it is not there", .required = true },
    { "shots", KH_OPT_INT, offsetof(data_opts, shots), "16", .min = 1, .max = 1000000, .arg = "K",
        .help = "rows of each class, for train and for dev" },
    { "seed", KH_OPT_SEED, offsetof(data_opts, seed), "13", .arg = "S", .help = "which draw" },
    OPT_TASK,
    OPT_FORMAT,
    OPT_SKIP,
    { "force", KH_OPT_FLAG, offsetof(data_opts, force), .help = "write over files that are there" },
    CLI_JSON_OPTION(data_opts),
    { 0 },
};

static int write_part(const data_opts *o, const kh_dataset *d, const char *name, kh_err *err) {
    char *path = kh_path_join(o->out, name);
    int rc;
    if (!path)
        rc = kh_fail_memory(err);
    else if (!o->force && kh_file_exists(path))
        rc = kh_fail(err, KH_EARG, "%s: is there already; --force writes over it", path);
    else if (strcmp(name, "labels.txt") == 0)
        rc = kh_dataset_write_labels(d, path, err);
    else
        rc = kh_dataset_write(d, path, err);
    kh_free(path);
    return rc;
}

static int run_split(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const data_opts *o = opts;
    const kh_task *task;
    kh_split s = { 0 };
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = open_task(&task, o->task, err);
    kh_dataset_opts read = {
        .format = (kh_format)o->format, .task = task, .skip_bad_rows = o->skip, .hooks = &cli_hooks
    };
    if (rc == 0)
        rc = kh_split_open(&s, args[0], o->shots, o->seed, &read, err);
    if (rc == 0)
        rc = kh_dir_make(o->out, err);
    if (rc == 0)
        rc = write_part(o, s.train, "train.tsv", err);
    if (rc == 0)
        rc = write_part(o, s.dev, "dev.tsv", err);
    if (rc == 0)
        rc = write_part(o, s.train, "labels.txt", err);
    if (rc == 0 && o->json) {
        kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "out", o->out);
        kh_json_put_int(&j, "shots", o->shots);
        kh_json_put_u64(&j, "seed", o->seed);
        kh_json_put_bool(&j, "drawn", s.drawn);
        kh_json_put_int(&j, "train_rows", kh_dataset_size(s.train));
        kh_json_put_int(&j, "dev_rows", kh_dataset_size(s.dev));
        kh_json_close(&j);
        rc = cli_print_json(&j, stdout, err);
    } else if (rc == 0)
        printf("%s: train.tsv %d rows, dev.tsv %d rows, %s (%d shots, seed %llu)\n", o->out,
            kh_dataset_size(s.train), kh_dataset_size(s.dev), s.drawn ? "drawn" : "ready-made",
            o->shots, (unsigned long long)o->seed);
    kh_split_close(&s);
    kh_task_close(task);
    return rc;
}

const cli_command cmd_data_split = {
    .name = "data split",
    .args = "DIR",
    .min_args = 1,
    .max_args = 1,
    .summary = "Write a few-shot split of a data folder",
    .text = "The rows of DIR's train file are shuffled by the seed and walked: the first K of each "
            "class\n"
            "become train.tsv, the next K dev.tsv. The same seed and file give the same rows "
            "everywhere.\n"
            "A ready-made split of DIR for this K and seed is written out as it is.\n\n"
            "  keyhole data split DIR --shots 16 --seed 13 --out few",
    .opts = split_table,
    .opts_size = sizeof(data_opts),
    .run = run_split,
};
