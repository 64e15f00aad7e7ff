/* clang-format off */
/* keyhole.h - a distribution over prompts for a frozen language model, and a classifier made of it.
 *
 * This header is the manual of libkeyhole. The whole method is this program (examples/method.c):
 *
 *     #include <keyhole.h>
 *     #include <stdio.h>
 *     #include <string.h>
 *
 *     int main(int argc, char **argv) {
 *         const char *model = argc > 1 ? argv[1] : "builtin";
 *         const char *data = argc > 2 ? argv[2] : "examples/reviews";
 *         const char *text = argc > 3 ? argv[3] : "a gorgeous film", *run = "method-run";
 *         const kh_task *task = NULL;
 *         kh_split rows = { 0 };
 *         kh_plm *box = NULL;
 *         kh_posterior *posterior = NULL;
 *         kh_eval *evaluation = NULL;
 *         kh_classifier *classifier = NULL;
 *         kh_classified said;
 *         kh_row row = { .a = text, .n_a = strlen(text), .label = -1 };
 *         kh_plm_opts access = { .access = KH_ACCESS_LABELS };
 *         kh_tune_opts o = kh_tune_defaults();
 *         kh_eval_opts judge = kh_eval_defaults();
 *         kh_err err;
 *         o.seed = 13, o.space.dim = 50, o.space.slots = 10, o.max_queries = 8000;
 *         o.data = judge.data = data, judge.rows = 100;
 *
 *         int rc = kh_task_open(&task, data, &err) ||
 *             kh_split_open(&rows, data, 0, 0, &(kh_dataset_opts){ .task = task }, &err) ||
 *             kh_plm_open(&box, model, &access, &err) ||
 *             kh_tune(&posterior, "smc", NULL, box, task, rows.train, rows.dev, &o, &err) ||
 *             kh_posterior_save(posterior, run, &err) ||
 *             kh_eval_new(&evaluation, posterior, box, &judge, &err) ||
 *             kh_eval_save(evaluation, run, NULL, &err) ||
 *             kh_classifier_open(&classifier, run, box, &err) ||
 *             kh_classifier_run(classifier, &row, 1, &said, NULL, NULL, &err);
 *         if (rc)
 *             fprintf(stderr, "%s\n", err.msg);
 *         else {
 *             kh_eval_info e = kh_eval_describe(evaluation);
 *             printf("accuracy %.3f, calibration error %.3f\n", e.value.accuracy, e.value.ece);
 *             printf("\"%s\": %s, %.2f%s%s\n", text, task->label[said.label].name, said.confidence,
 *                 said.abstain ? ", abstain" : "",
 *                 said.out_of_distribution ? ", not my kind of text" : "");
 *         }
 *         kh_classifier_close(classifier), kh_eval_free(evaluation), kh_posterior_free(posterior);
 *         kh_plm_close(box), kh_split_close(&rows), kh_task_close(task);
 *         return rc != 0;
 *     }
 *
 * The header follows the flow of the data: text becomes ids, rows become encoded batches, a box
 * answers questions about them, a method turns answers into a posterior, and the posterior
 * predicts, abstains and is judged. Other examples: own_box.c, a box of one's own; simulator.c,
 * likelihood-free inference on a simulator of one's own.
 *
 * Conventions, everywhere
 *   - Fallible calls return int: 0 done; > 0 recoverable, or more to come; < 0 failed. The last
 *     parameter, kh_err *err (NULL is allowed), then holds a code and a sentence for a person.
 *   - open/close own OS resources, new/free own memory, init fills the caller's struct. close and
 *     free accept NULL.
 *   - The library never prints, never exits, and touches no file that it was not asked to touch.
 *   - Text is UTF-8 with a length; it may hold NUL bytes. Invalid bytes become U+FFFD as Python's
 *     errors="replace" does.
 *   - Nothing here is random unless a seed is an argument; the same seed gives the same bits.
 */
/* clang-format on */
#ifndef KEYHOLE_H
#define KEYHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KH_API __attribute__((visibility("default")))
#else
#define KH_API
#endif

#define KH_VERSION "0.2.0"

/* The version of the library that is linked, which may differ from the header's. */
KH_API const char *kh_version(void);

/* -------------------------------------------------------------------------------------- errors */

/* name, value, meaning */
#define KH_CODES(X) \
    X(KH_OK, 0, "done") \
    X(KH_RETRY, 1, "may succeed later") \
    X(KH_STOPPED, 2, "stopped on request") \
    X(KH_ENOMEM, -1, "out of memory") \
    X(KH_EIO, -2, "cannot read or write") \
    X(KH_EMISSING, -3, "not found") \
    X(KH_EFORMAT, -4, "malformed input") \
    X(KH_EARG, -5, "wrong argument") \
    X(KH_ELIMIT, -6, "limit exceeded") \
    X(KH_EUNSUPPORTED, -7, "not supported") \
    X(KH_EMISMATCH, -8, "things that do not belong together")

enum kh_code {
#define KH_CODE_ENUM(name, value, text) name = value,
    KH_CODES(KH_CODE_ENUM)
#undef KH_CODE_ENUM
};

typedef struct kh_err {
    int code;       /* one of the above */
    long line;      /* line of the file that the message names, from 1; 0 if there is none */
    char msg[1024]; /* one sentence: the file, the place, what was found, what was expected */
} kh_err;

/* For callbacks: fills *err (NULL is allowed) and returns the code. */
KH_API int kh_err_set(kh_err *err, int code, const char *sentence);

/* The meaning of a code; never NULL. */
KH_API const char *kh_code_text(int code);

/* A list of strings, borrowed from whoever filled it. */
typedef struct kh_strings {
    const char **item; /* [n] */
    int n;
    size_t cap; /* the library's business; 0 in a list of the caller's */
} kh_strings;

/* ------------------------------------------------------------------------------- log, progress */

typedef enum kh_level { KH_DEBUG, KH_INFO, KH_WARN } kh_level;

typedef struct kh_progress {
    const char *phase; /* what is being done, e.g. "tokenizer train" */
    long done, total;  /* total 0: unknown */
    const char *note;  /* key=value pairs for people and plots, or NULL */
} kh_progress;

/* What a long call tells its caller; all may be NULL. A progress callback that returns non-zero
 * stops the work cleanly: the call then returns KH_STOPPED. Callbacks run on the calling thread. */
typedef struct kh_hooks {
    int (*progress)(void *user, const kh_progress *);
    void (*log)(void *user, kh_level, const char *line);
    void *user;
    /* Asked several times a second while others are waited for, such as a service that wants a
     * pause: non-zero ends the call with KH_STOPPED. */
    int (*stop)(void *user);
} kh_hooks;

/* ------------------------------------------------------------------------------------- threads */

/* How many threads the library may use; 0 (the start value) means one for each core. Results never
 * depend on it. */
KH_API void kh_threads_set(int n);
KH_API int kh_threads(void);

/* ---------------------------------------------------------------------- text -> ids (src/text) */

/* A tokenizer as Hugging Face's tools define it, read from their files. Immutable after open: share
 * it between threads. */
typedef struct kh_tokenizer kh_tokenizer;

/* path: a model folder ("builtin" is keyhole's own), a tokenizer.json, a vocab.json (with
 * merges.txt beside it), a merges.txt or a vocab.txt. In a folder tokenizer.json is preferred. A
 * component that is not known is refused by name, never ignored.
 *   - tokenizer.json alone decides how text is encoded, but its "truncation" and "padding" are not
 * applied.
 *   - The older files follow the conventions of RoBERTa, GPT-2 and BERT, with what
 * tokenizer_config.json, special_tokens_map.json and added_tokens.json in their folder say:
 * add_prefix_space, do_lower_case, mask_token, ...
 *   - Those also tell which token is the mask, the padding and so on; otherwise the usual names do.
 */
KH_API int kh_tokenizer_open(kh_tokenizer **out, const char *path, kh_err *err);
KH_API void kh_tokenizer_close(kh_tokenizer *);

/* A growable list of token ids; start as {0}. */
typedef struct kh_ids {
    int32_t *id;
    int n;
    size_t cap;
} kh_ids;
KH_API void kh_ids_free(kh_ids *);

enum kh_encode_flags {
    KH_ENCODE_FRAME = 1, /* add what the post-processor adds: <s> ... </s>, [CLS] ... [SEP] */
    KH_ENCODE_PLAIN = 2, /* special tokens inside the text are ordinary characters: for text that is
                            not trusted */
};

/* Appends the ids of text (at most 1 GB) to *out; nothing is appended on failure. */
KH_API int kh_tokenizer_encode(
    const kh_tokenizer *, const char *text, size_t n, unsigned flags, kh_ids *out, kh_err *err);
/* The same for a pair; type_id, if not NULL, gets the token type of each id appended to out. */
KH_API int kh_tokenizer_encode_pair(const kh_tokenizer *, const char *a, size_t na, const char *b,
    size_t nb, unsigned flags, kh_ids *out, kh_ids *type_id, kh_err *err);

/* Fresh text (kh_text_free) of the ids, NUL-terminated; *n gets its length. skip_special leaves
 * special tokens out. Ids that have no token are passed over. */
KH_API int kh_tokenizer_decode(const kh_tokenizer *, const int32_t *id, int n_id, bool skip_special,
    char **text, size_t *n, kh_err *err);
KH_API void kh_text_free(char *text);

/* Number of ids: every id is in 0 .. size-1. */
KH_API int kh_tokenizer_size(const kh_tokenizer *);
/* The token of an id as it stands in the vocabulary, or NULL; lives as long as the tokenizer. */
KH_API const char *kh_tokenizer_token(const kh_tokenizer *, int32_t id);
/* The id of a token, or -1. */
KH_API int32_t kh_tokenizer_id(const kh_tokenizer *, const char *token);

typedef enum kh_special {
    KH_TOKEN_MASK,
    KH_TOKEN_UNK,
    KH_TOKEN_PAD,
    KH_TOKEN_BOS,
    KH_TOKEN_EOS
} kh_special;
/* The id that plays this part ([CLS] is BOS, [SEP] is EOS), or -1 if the tokenizer has none. */
KH_API int32_t kh_tokenizer_special(const kh_tokenizer *, kh_special);
/* Whether this token takes the white space before it (RoBERTa's <mask> does) or after it. */
KH_API bool kh_tokenizer_strips(const kh_tokenizer *, int32_t id, bool left);
/* Changes whenever encoding could change: a hash over the files. */
KH_API uint64_t kh_tokenizer_fingerprint(const kh_tokenizer *);

/* -- a vocabulary of one's own -- */

typedef struct kh_tokenizer_train_opts {
    const char *const *file; /* [n_file] plain UTF-8, one text per line */
    int n_file;
    int vocab;         /* tokens in all: special tokens, the 256 bytes, merges */
    int min_frequency; /* a pair that occurs less often is not merged */
    bool gpt2;         /* nothing around texts; otherwise RoBERTa's <s> ... </s> and <mask> */
    bool prefix_space, lowercase;
    const kh_hooks *hooks;
} kh_tokenizer_train_opts;
KH_API kh_tokenizer_train_opts kh_tokenizer_train_defaults(void); /* 30,000 tokens, twice */
/* Learns a byte-level BPE vocabulary and writes it as `out`, a tokenizer.json. The same files give
 * the same bytes, with any number of threads. */
KH_API int kh_tokenizer_train(const kh_tokenizer_train_opts *, const char *out, kh_err *err);

/* ---------------------------------------------------------- rows -> encoded batches (src/data) */

/* -- tasks: a template with a mask, and words that stand for classes -- */

typedef enum kh_metric { KH_METRIC_ACCURACY, KH_METRIC_F1 } kh_metric; /* F1 is that of class 1 */

typedef struct kh_label {
    const char *name;        /* as data files write it */
    const char *const *word; /* [n_word], without white space around them */
    int n_word;
} kh_label;

/* A template holds {text}, or {text_a} and {text_b}; one {mask}; and, if it is a soft one, one
 * {prompt}, where the slots of the soft prompt go. {{ and }} are braces. */
typedef struct kh_task {
    const char *name;
    const char *plain; /* the template for use without a soft prompt */
    const char *soft;  /* the template with {prompt} */
    /* The same for models that continue texts, whose templates end with {mask}; NULL: the others.
     */
    const char *next_plain, *next_soft;
    const char *chat; /* the chat format that these are wrapped in, see data/chat.h; NULL: none */
    const char *chat_system; /* what the model's format says before the first message; NULL: nothing
                              */
    bool mean; /* words of several tokens count by the mean of their log-probabilities */
    const kh_label *label;
    int n_label;
    kh_metric metric;
    bool pair;           /* two texts a row */
    bool newline_escape; /* a backslash and an n in a text stand for a line break and become a space
                            (Yelp) */
    const struct kh_task *variant; /* [n_variant] other templates and words for the same labels;
                                      only "pretrain --rows" uses them */
    int n_variant;
    void *memory; /* NULL for a built-in task */
} kh_task;

/* The name of a built-in task (sst2, yelp, imdb, agnews, dbpedia, mrpc, rte, snli, mnli), a task
 * file, or a data folder with a task.json in it (JSON; see "keyhole task show NAME --json" for one
 * to start from). */
KH_API int kh_task_open(const kh_task **out, const char *name_or_file, kh_err *err);
/* The same from JSON in memory; messages call it by `name`. */
KH_API int kh_task_parse(
    const kh_task **out, const char *json, size_t n, const char *name, kh_err *err);
KH_API void kh_task_close(const kh_task *);
/* Built-in task number i, or NULL after the last. */
KH_API const kh_task *kh_task_builtin(int i);

/* -- data sets -- */

/* One row. Texts are UTF-8 without white space around them. */
typedef struct kh_row {
    const char *a, *b; /* b is NULL unless rows are pairs */
    size_t n_a, n_b;
    int label; /* 0 .. n_label-1, or -1: not known */
    long line; /* where the row starts in its file; 0: not from a file */
} kh_row;

typedef enum kh_format {
    KH_FORMAT_AUTO, /* by extension and content */
    KH_FORMAT_TSV,  /* header line, tabs, no quoting; columns by name, so GLUE's files too */
    KH_FORMAT_CSV,  /* header line, RFC 4180 quoting */
    KH_FORMAT_CSV_NOHEADER, /* class, then texts (AG News, Yelp, DBPedia); classes count from 1
                               unless one of them is 0 */
    KH_FORMAT_JSONL,        /* one object a line */
} kh_format;

typedef struct kh_dataset_opts { /* {0} is the default */
    kh_format format;
    const kh_task *task; /* checks one or two texts, names the labels; must outlive the call only */
    bool unlabelled;     /* rows without a label are kept, as -1; otherwise a file without labels is
                            refused */
    bool ignore_labels; /* with unlabelled: a column of labels is passed over, whatever stands in it
                         */
    bool label_names;  /* labels are names even where they are digits, unless the file or labels.txt
                          names the numbers */
    long lines_before; /* for a part of a file: lines left out between the header, if there is one,
                          and the rows */
    bool newline_escape; /* as the task's */
    bool
        skip_bad_rows; /* leave malformed rows out and count them instead of failing at the first */
    int max_reports;   /* how many of the skipped rows are logged through hooks; 0 means 5 */
    const kh_hooks *hooks; /* may be NULL */
} kh_dataset_opts;

/* A file of rows, in memory, immutable. Text columns are found by their names (text, sentence;
 * text_a and text_b, sentence1 and sentence2, premise and hypothesis, ...), and so is the label
 * (label, gold_label, Quality, ...). A label is a number from 0, or a name: one of labels.txt
 * beside the file, or of the task's; failing both, the names found count in alphabetical order.
 * Rows labelled "-" or -1 (annotators disagreed) are left out and counted, or kept if `unlabelled`.
 */
typedef struct kh_dataset kh_dataset;

KH_API int kh_dataset_open(
    kh_dataset **out, const char *path, const kh_dataset_opts *, kh_err *err);
/* The same for n bytes in memory, which are copied; `name` stands for the path, and labels.txt is
 * not sought. */
KH_API int kh_dataset_parse(kh_dataset **out, const char *bytes, size_t n, const char *name,
    const kh_dataset_opts *, kh_err *err);
/* A data set of some rows of another, in the given order. It stands alone. */
KH_API int kh_dataset_select(
    kh_dataset **out, const kh_dataset *, const int *index, int n, kh_err *err);
KH_API void kh_dataset_close(kh_dataset *);

KH_API int kh_dataset_size(const kh_dataset *);
KH_API const kh_row *kh_dataset_rows(
    const kh_dataset *); /* [size], as long as the data set lives */
KH_API bool kh_dataset_pairs(const kh_dataset *);
KH_API int kh_dataset_labels(const kh_dataset *); /* how many classes are known of */
KH_API const char *kh_dataset_label(
    const kh_dataset *, int k); /* the name of a class, or NULL if it has none */
KH_API const char *kh_dataset_path(const kh_dataset *);
KH_API kh_format kh_dataset_format(const kh_dataset *); /* never KH_FORMAT_AUTO */
KH_API int kh_dataset_skipped(const kh_dataset *);      /* malformed rows left out */
KH_API int kh_dataset_undecided(const kh_dataset *); /* rows left out because they have no label */

/* A data folder holds train, dev and test as .tsv, .csv or .jsonl, labels.txt with one class name a
 * line, and perhaps ready-made few-shot splits: kshotK/seedS.train.tsv and .dev.tsv, or LM-BFF's
 * k-shot/TASK/K-S/train.tsv and so on (the folder may also be k-shot/TASK or the folder K-S
 * itself). */
typedef struct kh_split {
    kh_dataset *train, *dev;
    bool drawn; /* by us; otherwise read from ready-made files */
} kh_split;

/* The few-shot split of a folder: `shots` rows of each class for train, as many for dev. Ready-made
 * files for (shots, seed) are read as they are. Otherwise the rows of train are shuffled by the
 * seed and walked: the first `shots` of each class make train, the next make dev. shots = 0 takes
 * the files train and dev whole. `dir` may be one file of rows: it is shuffled and walked the same
 * way, and with shots = 0 three fifths of each class make train (1,000 rows at most in all) and one
 * fifth dev (500). */
KH_API int kh_split_open(
    kh_split *out, const char *dir, int shots, uint64_t seed, const kh_dataset_opts *, kh_err *err);
KH_API void kh_split_close(kh_split *);
/* The rows to judge on: the folder's test file, or the rows of one file that kh_split_open leaves.
 * shots and seed say where to look for it in LM-BFF's
 * tree. */
KH_API int kh_test_open(kh_dataset **out, const char *dir, int shots, uint64_t seed,
    const kh_dataset_opts *, kh_err *err);

/* -- label words as tokens -- */

typedef struct kh_word {
    const char *text;
    int label;
    const int32_t *id; /* [n_token] all tokens of the word */
    int n_token;
    int n_id; /* how many of them count: all, or with paper_exact the first */
    int same; /* the first word of another class with the very same tokens that count, or -1 */
    int first_same; /* the first word of another class with the same first token, or -1 */
    bool unknown;   /* one of its tokens is the unknown token, or it has none */
} kh_word;

/* How a model scores them: if every word is one token (n_variant is 1 and n_mask[0] is 1), a
 * label's logit is the logit of its word at the mask, log-sum-exp over several words. Otherwise the
 * score of a word is the mean over its tokens of the log-probabilities, over the whole vocabulary,
 * at as many masks as it has tokens; over several words, log-sum-exp. A model that continues texts
 * scores a word of several tokens by its whole log-probability, the sum over its tokens, each given
 * those before it; with `mean`, by the mean. */
typedef struct kh_words {
    const kh_word *word; /* [n_word], label after label */
    int n_word, n_label;
    const int *n_mask; /* [n_variant], the lengths of words in tokens, ascending, each once */
    int n_variant;
    bool paper_exact;
    bool next; /* they continue texts: n_variant is 1, whatever their lengths */
    bool mean; /* see above */
    void *memory;
} kh_words;

/* Each word as it stands inside a sentence: with a space before it. paper_exact: the first token of
 * the word without. */
KH_API int kh_words_new(
    kh_words **out, const kh_task *, const kh_tokenizer *, bool paper_exact, kh_err *err);
/* The same words for a model that continues texts. */
KH_API void kh_words_continue(kh_words *);
/* Refuses words that cannot work: unknown to the tokenizer, or the very same tokens for two
 * classes. */
KH_API int kh_words_check(const kh_words *, const kh_task *, kh_err *err);
KH_API void kh_words_free(kh_words *);

/* -- batches: rows as ids, ready for a model -- */

typedef enum kh_placement {
    KH_SLOTS_TEMPLATE, /* where the soft template says; after BOS if {prompt} comes first in it */
    KH_SLOTS_PREFIX, /* in front of BOS, and the template is the plain one (PEFT's prompt tuning) */
    KH_SLOTS_AFTER,  /* right after the last text of the plain template */
} kh_placement;

typedef struct kh_batch_opts {
    int max_len; /* the longest sequence that the model takes, all tokens and slots counted */
    int n_slot;  /* 0: no soft prompt, the plain template */
    const int32_t *slot_id; /* [n_slot] ids that stand in the slots; NULL: 1000, 1001, ... */
    kh_placement placement;
    bool paper_exact; /* rows longer than max_len are left out; otherwise their texts are cut */
    bool next; /* for models that continue texts: a sequence ends where its mask would stand, and
                  has none */
} kh_batch_opts;

/* Sequences of different lengths, one after another, without padding. A row has n_variant
 * sequences, one for each word length (one in all if label words are single tokens): sequence s
 * belongs to row s / n_variant and holds n_mask[s % n_variant] masks side by side. Its tokens are
 * id[start[s]] .. id[start[s + 1] - 1]; positions below count from start[s]. The slots of a
 * sequence stand side by side. */
typedef struct kh_batch {
    int n_row, n_variant, n_seq; /* n_seq = n_row * n_variant */
    int n_slot;
    int max_len;         /* the longest sequence that is here */
    const int32_t *id;   /* [start[n_seq]] */
    const size_t *start; /* [n_seq + 1] */
    const int *n_mask;   /* [n_variant] */
    const int *mask;     /* [n_seq] position of the first mask */
    const int *slot;     /* [n_seq] position of the first slot, -1 without a soft prompt */
    const int *label;    /* [n_row], -1: not known */
    const int *row;      /* [n_row] which of the given rows this is; others were left out */
    int n_truncated;     /* rows whose texts were cut to fit */
    int n_dropped;       /* rows left out (paper_exact) */
    /* What it was made from, for services that take texts: `row` counts in `given`. Borrowed, and
     * only as long as their owners keep them; NULL: not known. */
    const kh_task *task;
    const kh_row *given;
    void *memory;
} kh_batch;

/* Fills the template with each of the n rows (of kh_dataset_rows, or made by the caller) and
 * encodes it. The ids are those that Hugging Face's tokenizer gives for the filled-in text, except
 * that special tokens written in a text ("<mask>" in a review) stay ordinary characters. Rows that
 * are too long lose the end of their texts, never template, slots or mask: of a pair the longer
 * text first, until both are of one length. */
KH_API int kh_batch_encode(kh_batch **out, const kh_tokenizer *, const kh_task *, const kh_words *,
    const kh_row *rows, int n, const kh_batch_opts *, kh_err *err);
KH_API void kh_batch_free(kh_batch *);

/* --------------------------------------------------- ids + prompt -> hidden states (src/model) */

/* How numbers are stored. */
typedef enum kh_dtype {
    KH_DTYPE_ANY,
    KH_DTYPE_F32,
    KH_DTYPE_F16,
    KH_DTYPE_BF16,
    /* In blocks that share scales, as GGUF files have them; Q8_0 and Q4_0 can be written too. */
    KH_DTYPE_Q8_0,
    KH_DTYPE_Q4_0,
    KH_DTYPE_Q4_1,
    KH_DTYPE_Q5_0,
    KH_DTYPE_Q5_1,
    KH_DTYPE_Q2_K,
    KH_DTYPE_Q3_K,
    KH_DTYPE_Q4_K,
    KH_DTYPE_Q5_K,
    KH_DTYPE_Q6_K,
    KH_DTYPE_IQ2_XXS,
    KH_DTYPE_IQ4_NL,
    KH_DTYPE_IQ4_XS,
    KH_DTYPE_MXFP4,
} kh_dtype;

/* Where a soft prompt of m rows enters an encoder (doc/model.md has the formulas). The names are
 * what artefacts record. */
#define KH_INJECTS(X) \
    X(KH_INJECT_NONE, "none") /* no soft prompt */ \
    X(KH_INJECT_POST_LN_ADD, \
        "post-ln-add") /* added to the embedding output of ids 1..m, which hold their place */ \
    X(KH_INJECT_EMBED_PREFIX, "embed-prefix")   /* m word embeddings before the first id */ \
    X(KH_INJECT_EMBED_INPLACE, "embed-inplace") /* m word embeddings after the first id */

typedef enum kh_inject {
#define KH_INJECT_ENUM(name, text) name,
    KH_INJECTS(KH_INJECT_ENUM)
#undef KH_INJECT_ENUM
} kh_inject;
KH_API const char *kh_inject_name(kh_inject);
KH_API int kh_inject_find(kh_inject *out, const char *name, kh_err *err);

/* An encoder as Hugging Face's folders hold it: config.json and model.safetensors (or its index and
 * shards). Immutable after open: share it between threads. */
typedef struct kh_model kh_model;

typedef struct kh_model_opts {
    kh_dtype store; /* what matrices are kept as in memory; KH_DTYPE_ANY: as they are in the file */
    const char *need_head; /* what needs a masked-language-model head, e.g. "fill-mask": refuses a
                              model without; or NULL */
    bool allow_nonfinite;  /* do not refuse NaN and infinite weights */
    const kh_hooks *hooks; /* warnings about tensors that are not used; NULL: none */
} kh_model_opts;

/* dir: the folder; the word "builtin" is the model that comes with keyhole, found in
 * $KEYHOLE_MODELS if that is set, else by where the program or the library is. opts NULL means all
 * zero. */
KH_API int kh_model_open(kh_model **out, const char *dir, const kh_model_opts *opts, kh_err *err);
KH_API void kh_model_close(kh_model *);

typedef struct kh_model_info {
    const char *type; /* "bert", "roberta", ... as config.json calls it */
    int layers, hidden, heads, inner, vocab;
    int max_tokens;         /* the longest sequence, special tokens and soft prompt included */
    bool head;              /* has a masked-language-model head */
    bool tied;              /* whose decoder is the word-embedding matrix */
    kh_dtype dtype;         /* of the word embeddings in the file */
    size_t params;          /* a tied decoder is counted once */
    size_t bytes;           /* of weights in memory */
    uint64_t fingerprint;   /* over sizes and all weights; not over names, shards or the folder */
    const char *seen_tasks; /* names, with commas, of tasks whose train rows it has learned from:
                               "seen_tasks" of config.json; lives as long as the model */
} kh_model_info;
KH_API kh_model_info kh_model_describe(const kh_model *);

/* ------------------------------------------ prompts x rows -> answers: the black box (src/plm) */

/* A frozen language model, seen only through its answers. It remembers nothing but its meter. Call
 * it from one thread: the call itself spreads the work. */
typedef struct kh_plm kh_plm;

/* What a box lets out. */
typedef enum kh_access {
    KH_ACCESS_LABELS,   /* the predicted label and nothing else */
    KH_ACCESS_LOGPROBS, /* log-probabilities of the labels */
    KH_ACCESS_WEIGHTS,  /* everything, gradients included */
} kh_access;
KH_API const char *kh_access_name(kh_access); /* "labels", "logprobs", "weights" */

/* How the engine holds weights and multiplies. The result is a pure function of (weights,
 * precision, kind of CPU, inputs). */
typedef enum kh_precision {
    KH_F32,
    KH_BF16, /* weights in bf16; activations too where the CPU multiplies bf16, else f32 */
    KH_INT8, /* weights rounded per output channel, activations per token */
    KH_PRECISION_AUTO, /* bf16 where the CPU multiplies it, else f32 */
} kh_precision;

/* How to speak to a model behind HTTP. */
typedef struct kh_http_opts {
    const char *backend;   /* keyhole (NULL means it), vllm-completions, vllm-chat, sglang, openai,
                              decisions, systemone */
    const char *model;     /* the service's name for the model; NULL: the first that it lists */
    const char *key_file;  /* holds the key; NULL: the environment's KEYHOLE_API_KEY. Keys appear in
                              no message and no file */
    const char *ca_file;   /* certificates to trust; NULL: the system's */
    const char *tokenizer; /* of the model, where the service does not give it */
    const char *embeddings; /* safetensors file with the word embeddings, where the service wants
                               whole sequences of them */
    int in_flight;          /* requests at a time */
    int retries;            /* of one request; -1: 8, and none while nobody has answered yet */
    double timeout;         /* seconds, of one try */
} kh_http_opts;
KH_API kh_http_opts kh_http_defaults(void);

/* The processes of an MPI job (doc/scale.md). Rank 0 opens boxes with them; the others serve it,
 * and do nothing else:
 *
 *     kh_ranks_open(&ranks, "keyhole-mpi.so", NULL, err);
 *     if (kh_ranks_rank(ranks) > 0)
 *         kh_ranks_serve(ranks, err);       returns when rank 0 closes
 *     else
 *         ...                               kh_plm_opts.ranks = ranks, and all calls below
 *     kh_ranks_close(ranks, 60);
 *
 * Answers have the bits that rank 0 alone would give, whatever the number of ranks. */
typedef struct kh_ranks kh_ranks;

typedef struct kh_ranks_opts {
    /* Asked while waiting for other ranks: > 0 ends the question with KH_STOPPED; < 0 says that the
     * job may be about to be ended, so that a rank that does not answer is given up soon. NULL:
     * never. */
    int (*stop)(void *user);
    void *user;
    int threads; /* of each rank; 0: the cores of a machine shared between its ranks */
} kh_ranks_opts;

/* plugin: the file keyhole-mpi.so, which starts MPI. opts NULL means all zero. */
KH_API int kh_ranks_open(
    kh_ranks **out, const char *plugin, const kh_ranks_opts *opts, kh_err *err);
KH_API int kh_ranks_rank(const kh_ranks *);
KH_API int kh_ranks_size(const kh_ranks *);
KH_API bool kh_ranks_idle(
    const kh_ranks *); /* no model was opened on them, and no warning was issued */
/* Sets how many threads each rank uses, and this one from now on; 0: a share of the machine's
 * cores. */
KH_API void kh_ranks_set_threads(kh_ranks *, int n);
KH_API int kh_ranks_serve(kh_ranks *, kh_err *err);
/* Rank 0 ends the others, and waits so many seconds for them; then the whole job is ended by force.
 * < 0: by force at once. */
KH_API void kh_ranks_close(kh_ranks *, double seconds);

typedef struct kh_plm_opts {
    kh_access access;
    kh_precision precision;
    const kh_hooks *hooks;    /* may be NULL */
    const kh_http_opts *http; /* for a URL; NULL: the defaults */
    kh_ranks *ranks; /* that answer with this process; NULL: none. The first open box has them; they
                        outlive it */
    size_t cache;    /* bytes for keys and values of texts that a decoder keeps; 0: a quarter of the
                        memory. Answers do not depend on it */
} kh_plm_opts;

/* model: a folder in Hugging Face layout with its tokenizer; "builtin"; or the URL of a service,
 * which decides precision itself and opens the box at the lower of its own access level and the one
 * asked for. */
KH_API int kh_plm_open(kh_plm **out, const char *model, const kh_plm_opts *, kh_err *err);
KH_API void kh_plm_close(kh_plm *);

struct kh_question;

/* A box of one's own: a model in the same process, or a client of whatever answers. Its functions
 * get the caller's `self`, are called from the thread that asks, and return 0; > 0 or < 0 with *err
 * filled (kh_err_set) fail the question. examples/own_box.c is a whole one. */
typedef struct kh_box {
    const char *name;      /* what records and messages call it; copied */
    kh_access access;      /* KH_ACCESS_LABELS or KH_ACCESS_LOGPROBS: no more is ever let out */
    const char *tokenizer; /* file or folder (kh_tokenizer_open): cuts texts into the ids it gets */
    int hidden;            /* numbers in a row of a soft prompt; 0: it takes no soft prompts */
    int max_len;           /* tokens of the longest sequence */
    uint64_t fingerprint;  /* changes whenever answers could: posteriors are tied to it */
    bool next;             /* it continues texts rather than fill masks: kh_batch_opts.next */
    bool energy;           /* its logits are absolute, so that energies can be taken of them */
    /* Of the word embeddings that soft prompts stand among; they scale the prior. std 0 means 1. */
    double embedding_mean, embedding_std;
    /* row [hidden]: the word embedding of an id, for injection modes embed-*; NULL: there is none
     */
    int (*embedding_row)(void *self, int32_t id, float *row, kh_err *err);
    /* logits [n_prompt, n_row, n_label] of the labels, up to a constant for each row; NULL at
     * access level labels. */
    int (*score)(void *self, const struct kh_question *, float *logits, kh_err *err);
    /* label [n_prompt, n_row], each within 0 .. n_label - 1; NULL: the best of score. */
    int (*answer)(void *self, const struct kh_question *, int *label, kh_err *err);
    void (*close)(void *self); /* called by kh_plm_close; NULL: nothing to do */
} kh_box;

/* The table is copied; `tokenizer` is opened. On failure `close` is not called. */
KH_API int kh_plm_new(kh_plm **out, const kh_box *, void *self, kh_err *err);

/* What may be known of any box. */
typedef struct kh_plm_info {
    const char
        *backend; /* "native", ...; behind keyhole's own services, that of the engine there */
    kh_access access;
    int hidden;           /* length of a prompt row */
    int max_len;          /* tokens in a sequence, slots included */
    uint64_t fingerprint; /* of weights and tokenizer */
    const char *precision, *kernels;
    const char *opened;     /* the folder, word or URL that kh_plm_open was given */
    const char *model;      /* what a service calls its model; NULL: `opened` is its name */
    bool next;              /* it continues texts rather than fill masks: kh_batch_opts.next */
    int ranks;              /* processes that share the work: several under mpirun or srun */
    const char *seen_tasks; /* as kh_model_info's; NULL: not known */
    bool energy; /* kh_plm_score_energy gives energies: the level is not labels, and what is behind
                    shows absolute logits */
} kh_plm_info;
KH_API kh_plm_info kh_plm_describe(const kh_plm *);
KH_API const kh_tokenizer *kh_plm_tokenizer(const kh_plm *); /* lives as long as the box */

/* Whether the model behind the box says that it has learned from train rows of this task, which are
 * then not few-shot to it; one line of warning, unless hooks is NULL. */
KH_API bool kh_plm_has_seen(const kh_plm *, const kh_task *, const kh_hooks *hooks);

/* What the box was asked so far. A query is one prompt with one row. Answers that a resumed run had
 * already (src/run) count as if they were given now, in `seconds` too, but not as calls. */
typedef struct kh_meter {
    long long calls, prompts, queries, tokens;
    long long replayed; /* of the queries: not asked in this process */
    double seconds;
    long long forward, backward; /* rows that passed the opened weights beside the box, and back:
                                    gradients, no queries */
} kh_meter;
KH_API kh_meter kh_plm_meter(const kh_plm *);

/* What soft prompts are made from: mean and standard deviation of the word-embedding matrix, and
 * its rows [hidden]. A box of any access level gives them, and they are not queries. */
KH_API int kh_plm_embedding_stats(kh_plm *, double *mean, double *std, kh_err *err);
KH_API int kh_plm_embedding_row(kh_plm *, int32_t id, float *row, kh_err *err);

/* A question: every prompt with every row of a batch. */
typedef struct kh_question {
    const kh_batch *batch;
    const kh_words *words;
    kh_inject inject;
    const float *prompt; /* [n_prompt, batch->n_slot, hidden]; without slots NULL, and n_prompt is
                            taken as 1 */
    int n_prompt;
} kh_question;

/* Access levels are types: a method that was given a kh_labeler has no way to a probability. Both
 * borrow the box, and are NULL (with a sentence) if it was opened at a lower level. */
typedef struct kh_labeler kh_labeler;
typedef struct kh_scorer kh_scorer;
KH_API kh_labeler *kh_plm_labeler(kh_plm *, kh_err *err);
KH_API kh_scorer *kh_plm_scorer(kh_plm *, kh_err *err);

/* logprob [n_prompt, n_row, n_label]: log-probabilities of the labels, which add up to one. */
KH_API int kh_plm_score(kh_scorer *, const kh_question *, float *logprob, kh_err *err);
/* The same bits, and energy [n_prompt, n_row]: -log sum_k exp(logit of label k), logits as the
 * model gives them (kh_words says which), which their normalisation throws away; where they are
 * log-probabilities over the whole vocabulary, -log of the mass of the label words. NaN where
 * kh_plm_info.energy is false. */
KH_API int kh_plm_score_energy(
    kh_scorer *, const kh_question *, float *logprob, float *energy, kh_err *err);

/* label [n_prompt, n_row]: the most probable; the first of equals; -1: a service refused. */
KH_API int kh_plm_answer(kh_labeler *, const kh_question *, int *label, kh_err *err);

/* Early rejection. Rows are asked `chunk` at a time; a prompt that has made more errors against
 * batch->label than its allowance is asked no further. What is asked depends on this alone, never
 * on threads. */
typedef struct kh_patience {
    const int *allowance; /* [n_prompt] */
    const int *order; /* [n_row] the rows, each once, as they are asked: hard ones first saves most;
                         NULL: as they stand */
    int chunk; /* 0: a sensible number; -n: as many as must be asked before one of the prompts
                  could leave, n at least */
} kh_patience;

/* errors [n_prompt]: how many it made; exact if not more than the allowance. label [n_prompt,
 * n_row], -1 where a prompt was not asked; may be NULL. */
KH_API int kh_plm_answer_within(
    kh_labeler *, const kh_question *, const kh_patience *, int *errors, int *label, kh_err *err);

/* --------------------------------------------------------------- z -> soft prompt (src/prompt) */

/* How the entries of the matrix A are distributed. The names are what artefacts record. */
#define KH_PROJECTIONS(X) \
    X(KH_PROJECTION_NORMAL, "normal") /* scaled from the word embeddings (the paper) */ \
    X(KH_PROJECTION_UNIFORM, \
        "uniform") /* within -1 / sqrt dim .. 1 / sqrt dim (the original BBT) */ \
    X(KH_PROJECTION_IDENTITY, \
        "identity") /* no projection: z is the whole prompt, slots x hidden numbers */

typedef enum kh_projection {
#define KH_PROJECTION_ENUM(name, text) name,
    KH_PROJECTIONS(KH_PROJECTION_ENUM)
#undef KH_PROJECTION_ENUM
} kh_projection;

/* Where P0, the prompt at z = 0, comes from. */
typedef enum kh_p0 {
    KH_P0_IDS,    /* the vocabulary ids 1000, 1001, ... */
    KH_P0_RANDOM, /* ids drawn by the seed */
    KH_P0_TEXT,   /* the tokens of a text, repeated until the slots are full */
} kh_p0;

/* The soft prompts P = A z + P0 in which methods search. */
typedef struct kh_space_opts {
    int dim;             /* of z */
    int slots;           /* rows of P */
    int inject;          /* kh_inject: where P enters; post-ln-add is embed-inplace in a decoder */
    int placement;       /* 0: where the soft template says; 1: right after the text */
    int projection;      /* kh_projection */
    int p0;              /* kh_p0 */
    const char *p0_text; /* for KH_P0_TEXT */
} kh_space_opts;
KH_API kh_space_opts kh_space_defaults(void); /* the paper's: 500, 50, post-ln-add, normal, ids */

/* ------------------------------------------------------ posteriors and predictions (src/judge) */

/* What every method of tuning returns: weighted samples of z and all that is needed to use them
 * again. In a folder it is posterior.safetensors (z, weights) and posterior.json (the rest). A
 * manual prompt and in-context learning are posteriors, too: one without z, one with
 * demonstrations. */
typedef struct kh_posterior kh_posterior;

KH_API int kh_posterior_open(kh_posterior **out, const char *dir, kh_err *err);
/* Makes the folder if it is not there. The same posterior gives the same bytes. */
KH_API int kh_posterior_save(const kh_posterior *, const char *dir, kh_err *err);
KH_API void kh_posterior_free(kh_posterior *);

typedef struct kh_posterior_info {
    const char *method;
    kh_access
        access; /* KH_ACCESS_LABELS: samples vote; otherwise their probabilities are averaged */
    int samples, dim;              /* dim 0: no soft prompt */
    int slots, hidden;             /* a prompt has slots x hidden numbers; 0 without */
    kh_inject inject;              /* and enters the model so */
    const kh_task *task;           /* as it was when tuning */
    const char *model, *precision; /* the folder it was tuned on, and how */
    uint64_t fingerprint;          /* of weights and tokenizer */
    uint64_t seed;
    long long train_queries, dev_queries; /* what it cost */
    long long forward,
        backward; /* and in passes of rows through the weights, if the box was open */
    double dev;   /* the task's metric on the dev rows, before calibration */
    double score; /* mean -log p of calibrated answers, cross-validated over rows that were not
                     learned from; NaN: not known */
    const char *stopped;   /* why tuning ended */
    const char *backend;   /* what answered, as kh_plm_info has it */
    double template_share; /* of the plain template, which answers beside the samples; 0: none */
} kh_posterior_info;
KH_API kh_posterior_info kh_posterior_describe(
    const kh_posterior *); /* lives as long as the posterior */

/* Its samples: z [samples, dim] (NULL with dim 0), and weights [samples] that add up to one. They
 * live as long as the posterior. */
/* How frequent the classes are among the texts to come, "P1,P2,..." in the order of the labels,
 * where that is not as among the rows of tuning; NULL: as there. Answers change from now on. */
KH_API int kh_posterior_set_class_prior(kh_posterior *, const char *prior, kh_err *err);
KH_API const float *kh_posterior_z(const kh_posterior *);
KH_API const float *kh_posterior_weights(const kh_posterior *);
/* The soft prompt that a sample stands for, A z + P0: prompt [slots, hidden]. The box must be of
 * the posterior's model; it is asked nothing. */
KH_API int kh_posterior_prompt(
    const kh_posterior *, kh_plm *, int sample, float *prompt, kh_err *err);

/* The soft prompts of all samples for other tools: PEFT (a folder for each sample; prompts tuned as
 * embed-prefix only), NumPy's npz, one JSON object a line, safetensors. */
typedef enum kh_export_format {
    KH_EXPORT_PEFT,
    KH_EXPORT_NPZ,
    KH_EXPORT_JSONL,
    KH_EXPORT_SAFETENSORS
} kh_export_format;
/* task_type: what PEFT is told; NULL: CAUSAL_LM for decoders, else FEATURE_EXTRACTION. */
KH_API int kh_posterior_export(const kh_posterior *, kh_plm *, kh_export_format, const char *path,
    const char *task_type, kh_err *err);

/* A classifier made of a posterior and the box it belongs to. Another model, or another task (NULL:
 * the posterior's own), is refused with a sentence that names what differs. Posterior, box and task
 * must outlive it. */
typedef struct kh_predictor kh_predictor;
KH_API int kh_predictor_new(
    kh_predictor **out, const kh_posterior *, kh_plm *, const kh_task *, kh_err *err);
KH_API void kh_predictor_free(kh_predictor *);

/* p [n, n_label]: the predictive distribution of each row, the weighted mean of softmax, or of
 * votes. Texts that are too long are cut. A row's distribution depends on that row alone. */
KH_API int kh_predictor_run(kh_predictor *, const kh_row *rows, int n, double *p, kh_err *err);

/* The same, and what the samples said one by one. */
typedef struct kh_explained {
    double *p;     /* [n, n_label] */
    double *votes; /* [n, n_label] the weight of the samples whose first choice a class is; NULL:
                      not wanted, */
    double *ambiguity; /* [n] nor this: the weighted mean of the samples' entropies, NaN where
                          samples only vote */
    double *energy; /* [n] the weighted mean of the samples' energies, NaN where they are not known;
                       NULL: not wanted */
    double *distance; /* [n] how far the text is from the texts of tuning, NaN where that is not
                         known; NULL: not wanted */
} kh_explained;
KH_API int kh_predictor_explain(
    kh_predictor *, const kh_row *rows, int n, const kh_explained *out, kh_err *err);

/* Whether energies are known: the samples were asked for log-probabilities, of a box that shows
 * them (kh_plm_info.energy). The answers of a head beside the model have none. */
KH_API bool kh_predictor_energy(const kh_predictor *);

/* Whether distances are: the posterior holds features of the texts of tuning, and the encoder that
 * made them can be opened. Opens it when first asked. */
KH_API bool kh_predictor_distance(kh_predictor *);

/* For rows of another task, which are out-of-distribution: the template of that task
 * (which must outlive the predictor) with the posterior's label words. */
KH_API int kh_predictor_foreign(
    kh_predictor **out, const kh_posterior *, kh_plm *, const kh_task *template_of, kh_err *err);

/* -------------------------------------------------- what a set of answers is worth (src/judge) */

/* Everything here is pure: arrays in, numbers out. doc/judging.md has the equations. */

/* Distributions over classes, and the true classes. */
typedef struct kh_answers {
    const double *p;  /* [n, n_label], every row adds up to one */
    const int *label; /* [n], 0 .. n_label-1 */
    int n, n_label;
} kh_answers;

/* Refuses what cannot be judged: no rows, fewer than two classes, NaN, negative numbers, rows that
 * do not add up to one (within 0.001), labels that are no class. The calls below that can fail
 * check the same. */
KH_API int kh_answers_check(const kh_answers *, kh_err *err);
/* The most probable class; the first of equals. */
KH_API int kh_predicted(const double *p, int n_label);

/* How uncertain an answer is: higher means less certain. The first two say where it may be wrong;
 * energy says how little the row is of the kind that the label words are for, and nothing of right
 * or wrong (Liu et al. 2020, "Energy-based out-of-distribution detection"). */
typedef enum kh_score {
    KH_SCORE_MAXP,     /* 1 - max p */
    KH_SCORE_ENTROPY,  /* -sum p log p, in nats */
    KH_SCORE_ENERGY,   /* -log sum exp of the label logits: not to be had of p, but from
                          kh_predictor_explain */
    KH_SCORE_DISTANCE, /* of the text to the nearest texts of tuning, by a local encoder: likewise
                        */
    KH_SCORE_BOTH,     /* energy and distance as one: kh_both_score */
} kh_score;
enum { KH_N_SCORE = 5 };
/* NaN for all but the first two. */
KH_API double kh_uncertainty(kh_score, const double *p, int n_label);

/* Energy and distance have no unit in common: each is measured from the middle of a classifier's
 * own rows, in their spread (doc/judging.md, [37]). */
typedef struct kh_both {
    double middle[2], spread[2]; /* of the energies, of the distances */
} kh_both;
/* By the energies and distances [n] of rows of its own, n >= 3. left_out [n] (NULL: not wanted):
 * the score of each by middle and spread of the others, which is what a threshold is chosen on. */
KH_API int kh_both_fit(kh_both *out, const double *energy, const double *distance, int n,
    double *left_out, kh_err *err);
/* false: most rows have the same energy or the same distance. Then there is no such score, and
 * left_out was not written. */
KH_API bool kh_both_known(const kh_both *);
/* The soft maximum of the two. NaN where one of them is. */
KH_API double kh_both_score(const kh_both *, double energy, double distance);

/* Where the uncertainty of an ensemble comes from. p [n_sample, n_label] are the answers of its
 * members to one row, weight [n_sample] their weights (NULL: equal). total = entropy of the mean;
 * ambiguity = mean of the entropies, what every member sees in the row; disagreement = total -
 * ambiguity, the mutual information between answer and member. */
typedef struct kh_decomposition {
    double total, ambiguity, disagreement;
} kh_decomposition;
KH_API kh_decomposition kh_uncertainty_parts(
    const double *p, const double *weight, int n_sample, int n_label);
/* The same for row number `row` of what a predictor explained; ambiguity and disagreement are NaN
 * where samples only vote. */
KH_API kh_decomposition kh_explained_parts(const kh_explained *, int row, int n_label);

/* -- metrics -- */

/* name, which way is better (1 up, -1 down, 0 neither), meaning */
#define KH_METRICS(X) \
    X(accuracy, 1, "share of rows whose most probable class is the true one") \
    X(f1, 1, "F1 of class 1 of two") \
    X(macro_f1, 1, "the mean of the classes' F1") \
    X(nll, -1, "mean -log p of the true class, p not below 1e-15") \
    X(brier, -1, "mean squared distance to the true class, all classes added (0 to 2)") \
    X(ece, -1, "calibration error, bins over [0.5,1] for two classes, else [0,1] (UQ360)") \
    X(ece_plain, -1, "calibration error, bins over [0,1]") \
    X(ece_classwise, -1, "calibration error of every class's probability, averaged") \
    X(ece_adaptive, -1, "calibration error, bins of equal mass") \
    X(aurrrc, -1, "area under the risk-rejection-rate curve by 1 - max p (UQ360)") \
    X(aurrrc_entropy, -1, "the same by entropy") \
    X(aurrrc_oracle, 0, "the same by an oracle that says right or wrong") \
    X(aurrrc_min, 0, "the least that any score could reach") \
    X(aurc, -1, "area under the risk-coverage curve by 1 - max p") \
    X(aurc_entropy, -1, "the same by entropy") \
    X(aurc_min, 0, "the least that any score could reach") \
    X(auroc_error, 1, "chance that a wrong answer is less certain than a right one, by 1 - max p") \
    X(auroc_error_entropy, 1, "the same by entropy") \
    X(confidence, 0, "mean max p") \
    X(entropy, 0, "mean entropy in nats") \
    X(zeros, -1, "share of rows that give the true class no probability at all")

typedef struct kh_metrics {
#define KH_METRIC_FIELD(name, better, text) double name;
    KH_METRICS(KH_METRIC_FIELD)
} kh_metrics; /* NaN: not defined, e.g. auroc_error without errors */

enum { KH_BINS = 10 };

/* n_bin: for the calibration errors; 0 means KH_BINS. */
KH_API int kh_metrics_compute(kh_metrics *out, const kh_answers *, int n_bin, kh_err *err);

/* Metrics by number, in the order of the list above: name and meaning (NULL after the last),
 * direction, value. */
KH_API const char *kh_metrics_name(int i);
KH_API const char *kh_metrics_text(int i);
KH_API int kh_metrics_better(int i);
KH_API double kh_metrics_value(const kh_metrics *, int i);

/* Mean and standard deviation (n - 1) of each metric over n runs; undefined values are left out. */
KH_API void kh_metrics_spread(const kh_metrics *runs, int n, kh_metrics *mean, kh_metrics *sd);
KH_API void kh_mean_sd(const double *x, int n, double *mean, double *sd);

/* -- reliability -- */

typedef enum kh_binning {
    KH_BINS_UQ360,    /* [0.5,1] for two classes, else [0,1] */
    KH_BINS_PLAIN,    /* [0,1] */
    KH_BINS_ADAPTIVE, /* of equal mass; equal confidences share a bin */
} kh_binning;

typedef struct kh_bin {
    double low, high; /* confidences low <= c < high; the last bin holds its end too */
    int n;
    double confidence, accuracy; /* means; 0 in an empty bin */
} kh_bin;

/* Fills bin [n_bin] and, if ece is not NULL, the calibration error: sum of n_b/n |accuracy -
 * confidence|. */
KH_API int kh_reliability(
    const kh_answers *, kh_binning, int n_bin, kh_bin *bin, double *ece, kh_err *err);

/* -- curves: how well a score u (higher is less certain) tells good rows from bad ones -- */

typedef struct kh_curve {
    double aurrrc, aurrrc_oracle, aurrrc_min;
    double aurc, aurc_min;
    double auroc; /* NaN if all rows are good or all bad */
} kh_curve;
KH_API int kh_curve_compute(kh_curve *out, const double *u, const bool *good, int n, kh_err *err);

typedef struct kh_curve_point {
    double u;        /* accept rows up to this uncertainty */
    double coverage; /* share of rows accepted */
    double risk;     /* share of bad ones among them */
} kh_curve_point;
/* point [n]: one for each different u, ascending; *n_point says how many. */
KH_API int kh_risk_coverage(
    const double *u, const bool *good, int n, kh_curve_point *point, int *n_point, kh_err *err);

/* Scores of rows of the distribution, and of out-of-distribution rows. */
#define KH_OOD_METRICS(X) \
    X(auroc, 1, "chance that an out-of-distribution row is less certain than another") \
    X(aupr_in, 1, "average precision, rows of the distribution positive") \
    X(aupr_out, 1, "average precision, out-of-distribution rows positive") \
    X(fpr95, -1, "share of out-of-distribution rows let in when 95 % of the others are") \
    X(aurrrc, -1, "area under the risk-rejection-rate curve of pooled rows (UQ360)") \
    X(aurrrc_oracle, 0, "the same by an oracle that knows which rows are out-of-distribution")

typedef struct kh_ood {
    KH_OOD_METRICS(KH_METRIC_FIELD)
} kh_ood;
KH_API int kh_ood_compute(
    kh_ood *out, const double *u_in, int n_in, const double *u_out, int n_out, kh_err *err);
KH_API const char *kh_ood_name(int i);
KH_API const char *kh_ood_text(int i);
KH_API double kh_ood_value(const kh_ood *, int i);

/* -- intervals by the bootstrap -- */

typedef struct kh_bootstrap_opts {
    int n_resample;
    double level; /* e.g. 0.95 */
    uint64_t seed;
} kh_bootstrap_opts;
KH_API kh_bootstrap_opts kh_bootstrap_defaults(void); /* 1000, 0.95, 0 */

/* Percentile intervals of every metric. Rows are drawn with replacement. */
KH_API int kh_metrics_bootstrap(kh_metrics *low, kh_metrics *high, const kh_answers *, int n_bin,
    const kh_bootstrap_opts *, kh_err *err);
KH_API int kh_ood_bootstrap(kh_ood *low, kh_ood *high, const double *u_in, int n_in,
    const double *u_out, int n_out, const kh_bootstrap_opts *, kh_err *err);

/* Two classifiers on the same rows: a - b, with intervals and two-sided p-values from the same
 * resamples for both. */
typedef struct kh_compared {
    kh_metrics diff, low, high, p;
} kh_compared;
KH_API int kh_metrics_compare(kh_compared *out, const kh_answers *a, const kh_answers *b, int n_bin,
    const kh_bootstrap_opts *, kh_err *err);

/* -- decisions: when to abstain, which classes to name, what is out-of-distribution -- */

/* P(X <= k) for X binomial (n, p), and the Clopper-Pearson bound: the largest p for which that is
 * still at least delta. */
KH_API double kh_binomial_cdf(int k, int n, double p);
KH_API double kh_binomial_upper(int k, int n, double delta);

/* Answer where u < threshold: with probability 1 - delta over the rows it was chosen on, the share
 * of wrong answers among those given is at most max_risk (doc/judging.md says under which
 * condition). */
typedef struct kh_selector {
    double max_risk, delta;
    double threshold;           /* -INFINITY: never answer; INFINITY: always */
    int n, n_accepted, n_wrong; /* of the rows it was chosen on */
    double risk,
        risk_bound;  /* n_wrong / n_accepted, and its upper bound; NaN if nothing is accepted */
    double coverage; /* what to expect: n_accepted / n, */
    double coverage_low, coverage_high; /* and its Clopper-Pearson interval of level 1 - delta */
    int n_needed;  /* the fewest accepted rows, all right, that could show max_risk */
    bool estimate; /* max_risk is no promise: it is what the rows suggest (kh_selector_ladder) */
} kh_selector;
KH_API int kh_selector_fit(kh_selector *out, const double *u, const bool *good, int n,
    double max_risk, double delta, kh_err *err);

/* The tightest risk of 5, 10, 20 and 30 % that can be promised and answers half of the rows, or
 * the one that answers most: with probability 1 - delta the promise holds, the choice included.
 * Where none can be promised, what the rows suggest, marked as an estimate: max_risk is what to
 * expect. doc/judging.md, [20a]. */
KH_API int kh_selector_ladder(
    kh_selector *out, const double *u, const bool *good, int n, double delta, kh_err *err);

/* The smallest threshold t such that a new row of the same distribution has u <= t with probability
 * >= keep; INFINITY if n rows are too few to say so. */
KH_API int kh_ood_threshold(double *t, const double *u, int n, double keep, kh_err *err);

/* Conformal sets (LAC): sets of classes that hold the true one with probability >= 1 - alpha,
 * whatever the classifier. */
typedef struct kh_conformal {
    double alpha;
    bool per_class; /* the promise holds within every class */
    int n_label;
    double *score; /* ascending, class after class if per_class */
    int *start;    /* [n_label + 1] where each class starts in score; all rows are class 0's if not
                      per_class */
    double min_alpha; /* the smallest alpha that does not force all classes into every set: 1 / (n +
                         1) */
    /* Jackknife+, where the classifier was calibrated on the same rows: what it would say without
     * some of them, given p, is softmax(slope log p + shift). */
    int n_map;     /* 0: none, and then the rest is NULL */
    int *map;      /* [scores] the one that has not seen the row of the score */
    double *slope; /* [n_map] */
    double *shift; /* [n_map, n_label] */
} kh_conformal;
KH_API int kh_conformal_fit(
    kh_conformal *out, const kh_answers *, double alpha, bool per_class, kh_err *err);
KH_API void kh_conformal_free(kh_conformal *);
/* in [n_label]: which classes are in the set of p; returns how many, which may be none. u in (0, 1)
 * decides ties at random, which makes the coverage exact; u = 1 keeps all that tie. */
KH_API int kh_conformal_set(const kh_conformal *, const double *p, double u, bool *in);
/* The number that decides the ties of this row, given a seed. */
KH_API double kh_conformal_tie(uint64_t seed, int row);

/* All three for one classifier, fitted on its development rows and kept in its folder as
 * decisions.json. */
enum { KH_RISK_LADDER = -1 };

typedef struct kh_decision_opts {
    kh_score score;   /* what decides when to abstain: a score of p */
    kh_score foreign; /* what decides what is out-of-distribution: KH_SCORE_ENERGY,
                         KH_SCORE_DISTANCE and KH_SCORE_BOTH where they are known, and else `score`;
                         kh_eval goes from both to distance, and from that to energy */
    kh_both both;     /* of KH_SCORE_BOTH; kh_eval fits it */
    double max_risk;  /* 0: no threshold for abstaining; KH_RISK_LADDER: the tightest of a ladder */
    double delta;     /* how probable it may be that max_risk is missed */
    double alpha;     /* of conformal sets; 0: none */
    bool per_class;   /* their promise holds within every class */
    double keep;      /* share of rows of the distribution that are to be recognised as such */
    uint64_t seed;    /* of ties in conformal sets */
} kh_decision_opts;
KH_API kh_decision_opts kh_decision_defaults(
    void); /* 1 - max p, energy, the ladder, 0.1, 0.1, not per class, 0.95, 0 */

typedef struct kh_decisions {
    kh_decision_opts opts;  /* foreign, both, max_risk: what they came to be */
    int n, n_label;         /* rows they were fitted on, and classes */
    kh_selector selector;   /* if opts.max_risk > 0 */
    kh_conformal conformal; /* if opts.alpha > 0 */
    double ood;             /* the threshold of opts.foreign; INFINITY: too few rows to say */
    bool by_ladder;         /* max_risk was not asked for */
    char warning[512];      /* why the classifier is of no use; empty: it is of some */
} kh_decisions;

/* outside [dev->n]: the energies, the distances or the scores by both of the same rows, whichever
 * opts.foreign names; NULL: not known. */
KH_API int kh_decisions_fit(kh_decisions *out, const kh_answers *dev, const double *outside,
    const kh_decision_opts *, kh_err *err);
/* Fits the threshold for abstaining and the sets again, on answers to other rows that were not
 * learned from. */
KH_API int kh_decisions_select(kh_decisions *, const kh_answers *, kh_err *err);
KH_API void kh_decisions_free(kh_decisions *);
/* run: the folder of the posterior whose answers they were fitted on. Open fails with KH_EMISSING
 * if it has none, with KH_EMISMATCH if the posterior has changed since. Free what was fitted or
 * opened, failed ones too. */
KH_API int kh_decisions_save(const kh_decisions *, const char *run, kh_err *err);
KH_API int kh_decisions_open(kh_decisions *out, const char *run, kh_err *err);

typedef struct kh_decision {
    double score;     /* the uncertainty that decided when to abstain, */
    double ood_score; /* and what is out-of-distribution */
    bool abstain;     /* better not answer: unsure or foreign */
    bool unsure;      /* the promised risk would not hold; false without a selector */
    bool foreign;     /* out-of-distribution */
    int set_size;     /* of the conformal set; -1 without */
} kh_decision;
/* What the decisions tell out-of-distribution rows by: the energy, the distance or the score by
 * both. */
KH_API double kh_outside(const kh_decisions *, double energy, double distance);
/* outside: the row's kh_outside; NaN if it is not known, and then decisions that were fitted with
 * such numbers do not call it out-of-distribution. in [n_label] (NULL:
 * not wanted) gets the conformal set. Ties are decided by the text of the row: the same text always
 * gets the same set. */
KH_API kh_decision kh_decide(
    const kh_decisions *, const kh_row *, const double *p, double outside, bool *in);

/* -- a run folder as one classifier -- */

/* Posterior, model, predictor and decisions, opened and closed together. */
typedef struct kh_classifier kh_classifier;
/* run: the folder of "keyhole tune" or of kh_posterior_save. box: what answers, borrowed; NULL: the
 * model folder that the run was tuned on is opened. A run that was tuned on a service needs a box.
 */
KH_API int kh_classifier_open(kh_classifier **out, const char *run, kh_plm *box, kh_err *err);
KH_API void kh_classifier_close(kh_classifier *);
KH_API const kh_posterior *kh_classifier_posterior(const kh_classifier *);
KH_API kh_plm *kh_classifier_box(kh_classifier *);
/* Whether the folder has decisions (decisions.json): when to abstain, sets of classes, what is
 * out-of-distribution. */
KH_API bool kh_classifier_decides(const kh_classifier *);

typedef struct kh_classified {
    int label;                /* the most probable class; -1: a service refused the text */
    double confidence;        /* its probability; then NaN */
    bool abstain;             /* better not answer: the promised risk would not hold, or the
                                 text is out-of-distribution */
    bool out_of_distribution; /* not the kind of text it was tuned for */
    int set_size;             /* classes in the conformal set; -1 without decisions */
} kh_classified;
/* out [n]; p [n, n_label] the distributions and set [n, n_label] the conformal sets (without
 * decisions the label alone): either may be NULL. */
KH_API int kh_classifier_run(kh_classifier *, const kh_row *rows, int n, kh_classified *out,
    double *p, bool *set, kh_err *err);

/* -- calibration -- */

typedef enum kh_calibration {
    KH_CALIBRATE_TEMPERATURE, /* softmax(x / T); x are logits or log-probabilities */
    KH_CALIBRATE_VECTOR,      /* softmax(w * x + b), x centred */
    KH_CALIBRATE_VOTES,  /* p_k proportional to (x_k + alpha)^(1/T); x are votes, whole or weighted
                          */
    KH_CALIBRATE_AFFINE, /* softmax(w x + b): one slope, a bias for each class; how strongly it is
                            pulled towards no change is cross-validated over the rows */
    KH_CALIBRATE_VOTES_AFFINE, /* p_k proportional to (x_k + alpha)^w exp(b_k), x votes; chosen
                                  likewise */
} kh_calibration;

typedef struct kh_calibrator {
    kh_calibration method;
    int n_label;
    int n;                 /* rows it was fitted on */
    double temperature;    /* 0.05 to 20; 1 with a weight for each class */
    double alpha;          /* of votes */
    double strength;       /* affine: of the pull towards no change; 0: no change is best */
    double *weight, *bias; /* [n_label] vector and affine; affine: all weights are equal */
} kh_calibrator;

/* x [n, n_label]. Always ends in finite, bounded parameters: priors pull towards no change. Free
 * it, failed ones too. */
KH_API int kh_calibrator_fit(kh_calibrator *out, kh_calibration, const double *x, const int *label,
    int n, int n_label, kh_err *err);
KH_API void kh_calibrator_free(kh_calibrator *);
/* p [n, n_label] may be x itself. */
KH_API void kh_calibrator_apply(const kh_calibrator *, const double *x, int n, double *p);
/* p [n, n_label]: every row calibrated by a fit that has not seen it (n_fold folds, stratified). An
 * honest "after". */
KH_API int kh_calibrator_crossfit(kh_calibration, const double *x, const int *label, int n,
    int n_label, int n_fold, double *p, kh_err *err);
KH_API int kh_calibrator_open(kh_calibrator *out, const char *path, kh_err *err); /* a JSON file */
KH_API int kh_calibrator_save(const kh_calibrator *, const char *path, kh_err *err);

/* ---------------------------------------------- a posterior, judged on rows (src/posterior) */

typedef enum kh_eval_split { KH_EVAL_TEST, KH_EVAL_DEV, KH_EVAL_TRAIN } kh_eval_split;

typedef struct kh_eval_opts {
    /* The rows, labelled: of a data folder or a file (NULL: that of tuning, and of a file the rows
     * held out; of another file all), or of memory. `dev` are the rows that decisions are fitted
     * on; without them there are no decisions. */
    const char *data;
    const char *run; /* the posterior's folder, for cross-fitted answers; NULL: none */
    bool compare;    /* ask the template alone, too, to tell whether the classifier is worse */
    const kh_dataset *test, *dev; /* not NULL: `data` is not read for these */
    int split;                    /* kh_eval_split: which rows of the folder are judged */
    int rows;                     /* judge at most so many, drawn by the seed; 0: all */
    kh_strings
        ood; /* out-of-distribution rows: NAME=DIR, a task and where its rows are; or a folder
                or file, rows for the template of the classifier, whatever their labels */
    kh_decision_opts decide;
    kh_bootstrap_opts bootstrap; /* n_resample 0: no intervals */
    uint64_t seed;               /* of rows drawn */
    const kh_hooks *hooks;
} kh_eval_opts;
/* Decisions and intervals as their own defaults say, but out-of-distribution rows by energy and
 * distance. */
KH_API kh_eval_opts kh_eval_defaults(void);

/* The classifier's answers to rows it has not seen, judged. Posterior, box and what opts point to
 * must outlive it. */
typedef struct kh_eval kh_eval;
KH_API int kh_eval_new(
    kh_eval **out, const kh_posterior *, kh_plm *, const kh_eval_opts *, kh_err *err);
KH_API void kh_eval_free(kh_eval *);

typedef struct kh_eval_info {
    int rows, dev_rows, n_label;
    long long queries;
    kh_metrics value, low, high; /* without bootstrap low and high are NaN */
    /* Under the decisions that were fitted on dev; NaN without. */
    bool decided;
    double coverage, risk;           /* share of rows answered, share of wrong answers among them */
    double covered, set_size, empty; /* conformal sets: hold the true class; mean size; empty */
    double flagged;                  /* share of rows called out-of-distribution */
    int n_ood;                       /* sets of out-of-distribution rows */
} kh_eval_info;
KH_API kh_eval_info kh_eval_describe(const kh_eval *);
KH_API kh_answers kh_eval_answers(
    const kh_eval *); /* p and true labels; lives as long as it does */
KH_API const kh_decisions *kh_eval_decisions(const kh_eval *); /* NULL: there were no dev rows */

typedef struct kh_eval_ood_info {
    const char *name;
    int rows;
    double flagged;           /* share called out-of-distribution; NaN without decisions */
    int n_score;              /* by kh_score: */
    kh_ood value[KH_N_SCORE]; /* how well each score tells these rows from the others */
} kh_eval_ood_info;
KH_API kh_eval_ood_info kh_eval_ood(const kh_eval *, int i);

/* results.json as text (doc/results-schema.md); kh_text_free it. run: what it calls the folder. */
KH_API int kh_eval_json(const kh_eval *, const char *run, char **json, kh_err *err);
/* report.html as text: one page with plots (by gnuplot, if it is there), tables and rows. */
KH_API int kh_eval_html(const kh_eval *, const char *run, char **html, kh_err *err);
/* Writes decisions.json into the run's folder, results.json and report.html into `dir` (NULL: the
 * run's). */
KH_API int kh_eval_save(const kh_eval *, const char *run, const char *dir, kh_err *err);

/* ------------------------------------------------------ everything that must survive (src/run) */

/* A run is a folder. Its run.sqlite (doc/run-schema.md) holds every answer of the box before anyone
 * uses it; so a run that was interrupted, in whatever way, can be begun again with the same
 * options, gets from the journal what was already answered, and ends in the same bits. One process
 * at a time works on a run. */
typedef struct kh_run kh_run;

typedef struct kh_run_opts {
    bool resume;    /* go on with the run that is in the folder, if there is one; without, it is
                       refused */
    bool overwrite; /* start again; what is there is removed when the new run begins */
    /* Called before each piece of a question, a few seconds' work at most; non-zero ends the run
     * with KH_STOPPED, to be resumed. NULL: never. */
    int (*stop)(void *user);
    void *user;
    /* Methods whose own computing takes long keep their state after so many seconds, to go on from
     * there; 0: ten, < 0: whenever they can. */
    double keep_seconds;
} kh_run_opts;

/* Takes hold of the folder, which is made if it is not there. kh_tune, given the run, does the
 * rest: the journal, and log.txt with a line for each generation. */
KH_API int kh_run_open(kh_run **out, const char *dir, const kh_run_opts *, kh_err *err);
/* The results are saved: the run is done. */
KH_API int kh_run_finish(kh_run *, kh_err *err);
/* A run that never began leaves nothing behind. */
KH_API void kh_run_close(kh_run *);

/* What is known of a run; strings live until kh_run_info_free. */
typedef struct kh_run_info {
    const char *method, *task, *model, *data, *seed, *access, *version;
    const char *state;   /* "running"; "interrupted", which --resume mends; "failed"; "finished" */
    const char *stopped; /* why it ended, or NULL */
    const char *metric;
    double dev;        /* the metric on the dev rows as of now; NaN: not known */
    long long queries; /* asked so far */
    long long answers; /* in the journal */
    long done, total;  /* generations */
    int sessions;      /* processes that have worked on it */
    double started;    /* seconds since 1970 */
    double seconds;    /* that they worked */
    char *memory;
} kh_run_info;
/* Reads it from the folder, also while a process is at work on it. */
KH_API int kh_run_info_read(kh_run_info *out, const char *dir, kh_err *err);
KH_API void kh_run_info_free(kh_run_info *);

/* --------------------------------------------------------- questions -> a posterior (src/tune) */

/* The name of method number i ("manual", "icl", "bbt", ...), or NULL after the last. */
KH_API const char *kh_method_name(int i);

typedef struct kh_method_info {
    const char *name;
    const char *summary; /* one line */
    kh_access access;    /* the least that the box must let out */
    bool soft;           /* searches soft prompts: the box must take them */
} kh_method_info;
KH_API bool kh_method_describe(int i, kh_method_info *out); /* false after the last */

/* An option of a method, which kh_tune takes as "name=value". */
typedef enum kh_option_type {
    KH_OPTION_FLAG,   /* true or false */
    KH_OPTION_INT,    /* a whole number within min .. max */
    KH_OPTION_NUMBER, /* a number within min .. max; min = max = 0: any */
    KH_OPTION_TEXT,
    KH_OPTION_CHOICE, /* one of choices, "first|second|..." */
} kh_option_type;
typedef struct kh_option {
    const char *name, *help;
    const char *value; /* the default, as it would be written */
    kh_option_type type;
    const char *choices; /* NULL unless it is a choice */
    double min, max;
} kh_option;
/* Option number i of a method; false after the last, and for a method that is not there. */
KH_API bool kh_method_option(const char *method, int i, kh_option *out);

/* Numbers are upper limits: a run may stop before. */
/* How much is asked of the box for a result: budget, size of the soft prompt, samples and the
 * method's own settings together (doc/methods.md has the table). What is set by hand wins. */
typedef enum kh_effort {
    KH_EFFORT_PAPER,   /* the paper's settings, no budget: a day on two cores for some methods */
    KH_EFFORT_QUICK,   /* at most 3,000 questions */
    KH_EFFORT_NORMAL,  /* at most 20,000 */
    KH_EFFORT_THOROUGH /* at most 120,000 */
} kh_effort;
enum { KH_EFFORTS = 4 };

typedef struct kh_forecast {
    long long candidates, queries, tokens; /* 0: the method cannot tell */
    long long least;                       /* a budget of fewer queries would be refused */
    int train_rows, dev_rows;
    double row_tokens;    /* of a row with its prompt, on average */
    double query_seconds; /* from a question or two to warm up, which nothing else counts; 0: not
                             tried */
    long long warm_up;    /* queries that it took */
    /* What each effort would take of the same method, by its own settings; queries 0: cannot be
     * told, seconds 0: not tried. */
    struct {
        long long queries;
        double seconds;
    } effort[KH_EFFORTS];
} kh_forecast;

/* What is done about label words that the model says more readily than others, whatever the text is
 * (doc/methods.md): nothing; their mean over the train and dev rows is made even; or it is learned
 * from texts that say nothing. Needs log-probabilities. */
typedef enum kh_label_prior {
    KH_LABEL_PRIOR_NONE,
    KH_LABEL_PRIOR_BATCH,
    KH_LABEL_PRIOR_CONTEXTUAL
} kh_label_prior;

/* What is returned where a search has found nothing that is surely better than the plain template:
 * auto: the template, but with the paper's effort or paper_exact what was found. */
typedef enum kh_fallback { KH_FALLBACK_AUTO, KH_FALLBACK_TEMPLATE, KH_FALLBACK_NONE } kh_fallback;

typedef struct kh_tune_opts {
    kh_space_opts space; /* dim, slots 0: as the effort says */
    kh_effort effort;    /* paper_exact: the paper's, whatever stands here */
    int search_rows;     /* train rows at most that a search asks each candidate about, as many of
                            each class; 0: as the effort says; -1: all */
    kh_label_prior label_prior;
    bool prior_inside; /* batch: a search's losses, too, are taken after a candidate's own prior is
                          removed; no question more */
    const char *class_prior; /* how frequent the classes are among the texts to come: "P1,P2,..." in
                                the order of the labels; "train": as among the rows of tuning; NULL:
                                a label prior makes them even, otherwise as "train" */
    uint64_t
        seed; /* the same seed gives the same posterior, bit for bit, with any number of threads */
    bool paper_exact;           /* the published code's ways where they differ from ours */
    const char *features_model; /* the local encoder by which texts are compared with those of
                                   tuning (KH_SCORE_DISTANCE): a folder or "builtin"; NULL: none */
    kh_fallback fallback;
    bool uncalibrated;     /* answers stay as they are; so they do with paper_exact */
    long long max_queries; /* stop before asking more; 0: as the effort says, unless options
                              of the method or max_seconds set a budget */
    long long max_tokens;  /* likewise, in tokens: as many questions as have so many, at the mean
                              length of the rows; 0: no limit */
    double max_seconds;    /* stop after the generation in which they have passed; 0: no limit */
    int groups; /* members of an ensemble that go side by side, in one question: more for many ranks
                   to do; same result. 0: one */
    const kh_hooks *hooks; /* progress that returns non-zero ends the run, and what was found is
                              returned; NULL: none */
    void (*record)(void *user,
        const char *line); /* one line of key=value pairs for each generation; NULL: none */
    void *user;
    /* For the record: what the posterior calls the model and the data. NULL: what the box was
     * opened with; not known. */
    const char *model, *data;
    int shots;
    const char *folder; /* where model-tuning puts the model that it makes; NULL: nowhere, and it is
                           refused */
    kh_run *run;        /* where the run is kept, so that it can be resumed; NULL: nowhere */
    /* What the run will cost at most, told before the first query; non-zero ends it there, with
     * KH_STOPPED. NULL: not wanted. */
    int (*forecast)(void *user, const struct kh_forecast *);
} kh_tune_opts;
KH_API kh_tune_opts kh_tune_defaults(void); /* effort normal, no labels' prior, calibrated */

/* Tunes on the rows of train and chooses on those of dev. set: options of the method as
 * "name=value" strings, ending in NULL; NULL: its defaults ("keyhole tune --method NAME --help"
 * lists them). What can be refused is refused before the first query. */
KH_API int kh_tune(kh_posterior **out, const char *method, const char *const *set, kh_plm *,
    const kh_task *, const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *,
    kh_err *err);

/* -- from rows alone to a classifier that knows its limits: what "keyhole tune FILE" does around
 * kh_tune -- */

typedef struct kh_task_search {
    const char *name; /* of the task */
    bool ask;         /* the box may be asked; otherwise the first template and the labels' names */
    const kh_hooks *hooks;
    long long queries; /* set: what it took */
} kh_task_search;
/* A task for rows that come without one: template and words are made from the names of the labels
 * and chosen by asking the box about the train rows, which were opened without a task. The result
 * depends on the rows and the box alone. */
KH_API int kh_task_make(
    const kh_task **out, kh_plm *, const kh_dataset *train, kh_task_search *, kh_err *err);
/* Writes a task as a file that kh_task_open reads. */
KH_API int kh_task_save(const kh_task *, const char *path, kh_err *err);

/* Answers to the rows of tuning by classifiers that did not learn from them, five runs of the
 * posterior's method, kept in the run's folder as crossfit.jsonl: an evaluation that is told the
 * folder (kh_eval_opts.run) takes its threshold for abstaining from all of these rows rather than
 * from the dev rows alone. It costs as many runs as there are folds, so it does nothing for methods
 * that search, for boxes that are not this library's own engine, and for classes of few rows; nor
 * for manual, which learns from no row and is judged by all of them, and feature-logistic, of which
 * kh_tune itself leaves such answers in the posterior (kh_posterior_save writes them, an evaluation
 * uses them). opts: those of kh_tune; hooks: told of
 * progress, may be NULL. */
KH_API int kh_crossfit_save(const kh_posterior *, kh_plm *, const kh_dataset *train,
    const kh_dataset *dev, const kh_tune_opts *opts, const kh_hooks *hooks, const char *run,
    kh_err *err);

/* ---------------------------------------- likelihood-free inference on a simulator (src/tune) */

/* The samplers behind the labels-only methods, for any problem: z has the prior N(0, prior_var I),
 * and can be tried. Another prior is a map of z, made in the callback: theta = a + (b - a) Phi(z)
 * is uniform on [a, b]. One of the two functions is given. */
typedef struct kh_problem {
    int dim;          /* of z */
    double prior_var; /* 0 means 1 */
    /* What z [dim] would have made us observe: x [n_obs]. noise [n_noise] are standard normal
     * numbers, the only source of randomness: the same z and noise give the same x. */
    int (*simulate)(void *user, const float *z, const double *noise, float *x, kh_err *err);
    int n_obs, n_noise;
    const float *observed; /* [n_obs] */
    /* How far x is from what was observed; NULL: the Euclidean distance. */
    double (*distance)(void *user, const float *x);
    double unit; /* distances count in whole units; 0: 1/100 of the mean distance of prior draws */
    /* Or: the label that z gives to each row, label [n_row] in 0 .. n_class - 1. */
    int (*answer)(void *user, const float *z, int *label, kh_err *err);
    int n_row, n_class;
    const int *truth; /* [n_row] */
    void *user;
} kh_problem;

typedef struct kh_sample_opts {
    long long max_simulations; /* stop before more; 0: no limit but the sampler's own */
    const kh_hooks *hooks; /* progress after each population; non-zero stops with what is there */
} kh_sample_opts;

/* Weighted draws from p(z | what was observed), approximately. */
typedef struct kh_samples {
    int n, dim;
    float *z;        /* [n, dim] */
    double *weight;  /* [n] they add up to one */
    double distance; /* no sample is farther away, in distance or wrong labels; NaN: unknown */
    long long simulations; /* that it took */
    char stopped[256];     /* why it ended */
} kh_samples;

/* sampler: "abc-rejection", "abc-smc", "smc" (recommended in many dimensions) or "snpe"; set: its
 * options as "name=value", ending in NULL; opts NULL means all zero. The same seed gives the same
 * bits. Free the samples, failed ones too. */
KH_API int kh_sample(kh_samples *out, const char *sampler, const char *const *set,
    const kh_problem *, uint64_t seed, const kh_sample_opts *opts, kh_err *err);
KH_API void kh_samples_free(kh_samples *);
KH_API const char *kh_sampler_name(int i); /* NULL after the last */
KH_API bool kh_sampler_option(const char *sampler, int i, kh_option *out);

/* ----------------------------------------------------------------- CMA-ES by ask and tell
 * (src/tune) */

/* Minimises a function of n reals of which only values are known. The optimiser never calls the
 * function, so values may come from anywhere:
 *
 *     kh_cmaes_opts o = kh_cmaes_defaults();
 *     o.pop = 20, o.seed = 13;
 *     kh_cmaes_new(&c, NULL, n, 1.0, &o, err);                 from 0 with step size 1
 *     while (!kh_cmaes_stop(c)) {
 *         kh_cmaes_ask(c, x);                                  x [pop, n]
 *         for (int k = 0; k < 20; k++)
 *             f[k] = loss(x + k * n);
 *         kh_cmaes_tell(c, f);
 *     }
 *     kh_cmaes_free(c);
 *
 * Weighted recombination, cumulative step-size adaptation, rank-one, rank-mu and active updates
 * (Hansen, arXiv 1604.00772; doc/methods.md). Asking again gives the same candidates; the bits of a
 * run depend neither on the number of threads nor on interruptions. ask and tell cannot fail. Use
 * one optimiser from one thread at a time. */
typedef struct kh_cmaes kh_cmaes;

/* full: all of C, O(n^2) memory and time per candidate. separable: the diagonal of C alone (Ros and
 * Hansen 2008), O(n), and learns (n + 2) / 3 times faster; for high dimension, or functions whose
 * coordinates hardly interact. */
typedef enum kh_cmaes_variant { KH_CMAES_FULL, KH_CMAES_SEPARABLE } kh_cmaes_variant;

enum {
    KH_CMAES_MAX_FULL = 16384,        /* dimensions of the full variant */
    KH_CMAES_MAX_SEPARABLE = 1 << 20, /* and of the separable one */
    KH_CMAES_MAX_POP = 1 << 16,
};

typedef struct kh_cmaes_opts {
    int variant; /* kh_cmaes_variant */
    int pop;     /* candidates per generation, >= 2; 0: 4 + floor(3 ln n) */
    bool active; /* bad candidates count, too: negative weights */
    uint64_t seed;
    double bound;  /* candidates stay within -bound .. bound; 0: no bounds */
    double target; /* stop at f <= target */
    int max_evals; /* 0: pop * (100 + 150 (n + 3)^2 / sqrt(pop)) */
    double tolfun; /* and the rest as the names of the stop reasons below say; 0 switches a
                      tolerance off */
    double tolfunhist;
    double tolx;
    double tolfacupx;
    double tolupsigma;
    double tolcondition;
    int tolflat;
    bool stagnation;
    /* Bounds of each coordinate [n], copied, instead of `bound` on that side; infinities are none.
     * NULL: as `bound` says. */
    const double *lower, *upper;
} kh_cmaes_opts;

KH_API kh_cmaes_opts kh_cmaes_defaults(void);

/* Why a run should end, the most telling reason first. A caller may go on nevertheless; all stays
 * defined. name, name in results, sentence */
#define KH_CMAES_STOPS(X) \
    X(KH_CMAES_GOING, "none", "No stop condition is met.") \
    X(KH_CMAES_TARGET, "target", "The target value was reached.") \
    X(KH_CMAES_MAX_EVALS, "max-evals", "The limit of evaluations was reached.") \
    X(KH_CMAES_ALL_NAN, "all-nan", "Every value of the last generation was not a number.") \
    X(KH_CMAES_FLAT, "flat", \
        "All candidates of several successive generations had the same value.") \
    X(KH_CMAES_TOLFUN, "tolfun", \
        "The values of the last generation and the best values of recent ones differ by less " \
        "than tolfun.") \
    X(KH_CMAES_TOLFUNHIST, "tolfunhist", \
        "The best values of recent generations differ by less than tolfunhist.") \
    X(KH_CMAES_TOLX, "tolx", "Steps became shorter than tolx in every coordinate.") \
    X(KH_CMAES_TOLFACUPX, "tolfacupx", \
        "Steps grew by more than the factor tolfacupx: the start was far too narrow, or f has no " \
        "minimum.") \
    X(KH_CMAES_TOLUPSIGMA, "tolupsigma", \
        "The step size grew by more than tolupsigma times what the covariance explains.") \
    X(KH_CMAES_CONDITION, "condition", \
        "The covariance matrix is too ill-conditioned, or its entries too large or small, to go " \
        "on.") \
    X(KH_CMAES_NO_EFFECT_AXIS, "no-effect-axis", \
        "A tenth of a step along a principal axis no longer changes the mean.") \
    X(KH_CMAES_NO_EFFECT_COORD, "no-effect-coord", \
        "A fifth of a step in some coordinate no longer changes the mean.") \
    X(KH_CMAES_STAGNATION, "stagnation", \
        "Best and median values have not improved over a long window of generations.")

typedef enum kh_cmaes_reason {
#define KH_CMAES_STOP_ENUM(name, text, sentence) name,
    KH_CMAES_STOPS(KH_CMAES_STOP_ENUM)
#undef KH_CMAES_STOP_ENUM
} kh_cmaes_reason;

/* x0 [n], inside the bounds; NULL: 0 in every coordinate. sigma: the first standard deviation in
 * every coordinate, about a third of the distance in which the optimum is expected; it is held to a
 * third of the distance of bounds. opts NULL: the defaults. */
KH_API int kh_cmaes_new(
    kh_cmaes **out, const double *x0, int n, double sigma, const kh_cmaes_opts *opts, kh_err *err);
KH_API void kh_cmaes_free(kh_cmaes *);
/* An independent optimiser in the same state. */
KH_API int kh_cmaes_copy(kh_cmaes **out, const kh_cmaes *, kh_err *err);

/* The candidates of this generation, x [pop, n], within the bounds. The state stays as it is. */
KH_API void kh_cmaes_ask(kh_cmaes *, double *x);
/* Their values, f [pop], in the same order; ends the generation. Smaller is better; equals rank by
 * index. NaN counts as worse than any number; if all are NaN, the distribution stays as it is. */
KH_API void kh_cmaes_tell(kh_cmaes *, const double *f);

/* KH_CMAES_GOING (0), or why the run should end, as of the last tell. */
KH_API kh_cmaes_reason kh_cmaes_stop(const kh_cmaes *);
KH_API const char *kh_cmaes_stop_name(kh_cmaes_reason);
KH_API const char *kh_cmaes_stop_text(kh_cmaes_reason);

KH_API int kh_cmaes_dim(const kh_cmaes *);
KH_API int kh_cmaes_pop(const kh_cmaes *);
KH_API long long kh_cmaes_generation(const kh_cmaes *); /* generations told so far */
KH_API long long kh_cmaes_evals(const kh_cmaes *);      /* values told so far */
KH_API double kh_cmaes_sigma(const kh_cmaes *);
KH_API double kh_cmaes_condition(const kh_cmaes *);     /* of C, as of its last decomposition */
KH_API void kh_cmaes_mean(const kh_cmaes *, double *x); /* x [n], within the bounds */
/* The best candidate told so far [n], with its value in *f (if not NULL). Until a value below
 * infinity was told: the start, and infinity. Lives until the next tell. */
KH_API const double *kh_cmaes_best(const kh_cmaes *, double *f);

#ifdef __cplusplus
}
#endif
#endif
