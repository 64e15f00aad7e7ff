/* corpus.h - plain text as training data: lines of token ids, windows over them, and sequences with
 * masks.
 *
 * Lines are tokenised once and kept in memory. A window is a piece of a line (or of all lines
 * joined) that fits a sequence. In every epoch of a file each of its windows comes once, in an
 * order that depends on (seed, file, epoch) alone; which file the next sequence comes from, and
 * what is masked in it, depends on (seed, step, number in the step). So training can stop after any
 * step and go on with nothing but a few counters. */
#ifndef KH_TRAIN_CORPUS_H
#define KH_TRAIN_CORPUS_H

#include "base/rng.h"
#include "train/backward.h"

/* Tokenised lines: line i is id[start[i]] .. id[start[i + 1] - 1], the end-of-sequence token last.
 */
typedef struct kh_lines {
    int32_t *id;
    size_t n, cap;
    size_t *start; /* [n_line + 1] once there is a line */
    size_t n_line, line_cap;
} kh_lines;

typedef struct kh_corpus_opts {
    const char *const *file; /* [n_file] */
    const double
        *weight; /* [n_file] how often a text of the file comes, beside one of a file of weight 1 */
    int n_file;
    const char *valid;  /* a file of held-out lines; NULL: a share of all lines is held out */
    double valid_share; /* the same text is always on the same side, however often it comes */
    const kh_hooks *hooks;
} kh_corpus_opts;

typedef struct kh_corpus {
    kh_lines *file; /* [n_file] */
    double *weight;
    int n_file;
    kh_lines held_out;
    size_t tokens; /* of all files, held-out lines left out */
} kh_corpus;       /* start as {0} */

int kh_corpus_read(kh_corpus *, const kh_tokenizer *, const kh_corpus_opts *, kh_err *err);
void kh_corpus_free(kh_corpus *);

/* ------------------------------------------------------------------------------------- windows */

typedef struct kh_window {
    size_t at;
    int n;
} kh_window;

typedef struct kh_windows {
    kh_window *item;
    size_t n, cap;
} kh_windows; /* start as {0} */

/* All windows of at most `longest` tokens. Lines are cut into pieces of about equal length, of
 * which those of fewer than four tokens are left out; joined lines into pieces of full length. */
int kh_windows_make(kh_windows *, const kh_lines *, int longest, bool joined, kh_err *err);

/* Which windows come next. */
typedef struct kh_window_sampler {
    int n_file;
    uint64_t seed;
    int phase;
    kh_windows *windows; /* [n_file] */
    int **order;         /* [n_file] shuffled windows of the current epoch */
    long *epoch;         /* [n_file] whose order that is; -1: none yet */
    double *share;       /* [n_file] weight times windows */
    uint64_t *drawn;     /* [n_file] windows taken so far: the state */
} kh_window_sampler;     /* start as {0} */

/* Windows of at most `longest` tokens. A phase of training has its own windows and counts from
 * zero. */
int kh_window_sampler_init(kh_window_sampler *, const kh_corpus *, int longest, bool joined,
    uint64_t seed, int phase, kh_err *err);
void kh_window_sampler_free(kh_window_sampler *);
/* The next window; *file says whose. */
int kh_window_sampler_next(
    kh_window_sampler *, kh_rng *, int *file, const kh_window **, kh_err *err);

/* --------------------------------------------------------------------------------------- masks */

typedef struct kh_masker {
    double rate;
    bool whole_word;
    int32_t mask, bos, eos;
    int vocab, first_position;
    bool *special; /* [vocab] never masked, never put in place of another */
    bool *starts;  /* [vocab] starts a word */
    int *word;     /* scratch: where the words of a sequence start */
    size_t word_cap;
} kh_masker;

/* Fails if the tokenizer has no mask, BOS or EOS token, or more tokens than the model. */
int kh_masker_init(kh_masker *, const kh_tokenizer *, const kh_config *, double rate,
    bool whole_word, kh_err *err);
void kh_masker_free(kh_masker *);

/* Sequences with masks: of the chosen tokens, the targets, 80 % become the mask, 10 % any token, 10
 * % stay. */
typedef struct kh_masked {
    kh_slot *slot;
    int *start, *first_at, *at;
    int32_t *target;
    size_t slot_cap, start_cap, first_cap, at_cap, target_cap;
    int n_seq;
} kh_masked; /* start as {0} */

/* Adds BOS, the n ids and EOS; the stream decides the masks. */
int kh_masked_add(kh_masked *, kh_masker *, const int32_t *id, int n, kh_rng *, kh_err *err);
/* Adds a whole sequence as it is, with one target: what belongs at place `at`, where the mask
 * stands. */
int kh_masked_add_asked(
    kh_masked *, const kh_masker *, const int32_t *id, int n, int at, int32_t target, kh_err *err);
void kh_masked_clear(kh_masked *);
void kh_masked_free(kh_masked *);
int kh_masked_tokens(const kh_masked *);
int kh_masked_targets(const kh_masked *);
kh_packed kh_masked_text(const kh_masked *);

#endif
