/* run.h - what tuning tells a run and gets back from it.
 *
 *     kh_run_begin(run, &card, options, n, err);          compares with what is there;
 *     kh_plm_set_cache(plm, kh_run_cache(run));           from here on every answer is journalled
 *     kh_run_generation(run, "bbt", 7, 300, line);        every generation
 *     kh_run_keep(run, "search", 0, &books, bytes, n);    now and then: a state to go on from
 *     kh_run_end(run, &result, err);
 *
 * Resuming is running again. A method is a function of its options, the seed and the answers, so it
 * takes the same way; the journal gives what was answered, and at its end the box is asked. Answers
 * are known by their questions, not by their order: so a run that ended can be given a larger
 * budget, though its last questions (the final look at dev) would now come later.
 *
 * Epochs: whenever a budget changes, or a run that had ended is taken up again, a new epoch begins.
 * Within one, the way is the same from the start, so a question that is not in the journal while
 * answers of this epoch are left unused means that the program now computes something else; that is
 * refused. A run that is ended early (KH_RUN_FINISH) is such a change of budget, too; but its kept
 * states stay, as none lies beyond what was reached. */
#ifndef KH_RUN_RUN_H
#define KH_RUN_RUN_H

#include "base/buf.h"
#include "plm/answer_cache.h"

/* Who the run is. */
typedef struct kh_run_card {
    const char *method, *task, *model, *data, *access, *metric;
    uint64_t seed;
} kh_run_card;

/* The name of the option that ends a run where its answers end; journals without it mean "false".
 */
#define KH_RUN_FINISH "--finish"

/* What decides the result. One that is not a budget must be the same when the run is resumed. */
typedef struct kh_run_option {
    const char *name, *value; /* as a sentence would have them: "--pop", "20" */
    bool budget;
} kh_run_option;

typedef struct kh_run_result {
    double dev;
    int samples;
    long long train_queries, dev_queries;
    double seconds; /* of the box */
    const char *stopped;
} kh_run_result;

/* The books at the moment when a state is kept. */
typedef struct kh_run_books {
    kh_meter meter; /* since the beginning of the run */
    long long dev_queries;
} kh_run_books;

int kh_run_begin(kh_run *, const kh_run_card *, const kh_run_option *, int n, kh_err *err);
const kh_answer_cache *kh_run_cache(kh_run *);
bool kh_run_resumed(const kh_run *);
/* The last answer came from the journal: the clock of this process says nothing yet. */
bool kh_run_replaying(const kh_run *);
/* All that was answered in this epoch has been used: the method is where the run was, and a state
 * kept now is one to go on from. */
bool kh_run_caught_up(const kh_run *);
/* Asks for the run to end where its answers end (KH_RUN_FINISH); before kh_run_begin. */
void kh_run_ask_finish(kh_run *);
bool kh_run_finishes(const kh_run *);
/* Nothing of what was answered in earlier epochs is left to use; finishing begins one. */
bool kh_run_at_end(const kh_run *);
double kh_run_keep_seconds(const kh_run *);
double kh_run_spent(const kh_run *); /* seconds that earlier processes worked */
/* Queries a second, from what the journal holds of earlier processes; 0: nothing yet. */
double kh_run_rate(const kh_run *);

/* One line of key=value pairs, for the journal and for log.txt: both are told here and nowhere
 * else. Generations count from 0 in the order of these calls. A failure is told by the next answer
 * or by kh_run_end. */
void kh_run_generation(kh_run *, const char *phase, long done, long total, const char *line);
void kh_run_event(kh_run *, const char *what, const char *text);

/* States from which to go on without computing all that led to them. Keeps the latest of each
 * (name, number). */
int kh_run_keep(kh_run *, const char *name, int number, const kh_run_books *, const void *bytes,
    size_t n, kh_err *err);
int kh_run_forget(kh_run *, const char *name, int number, kh_err *err);
/* 1: *out (empty before) holds the bytes, and what happened up to then counts as done: its answers
 * are used, and each line of its generations that was not reported yet is given to `line` (may be
 * NULL). 0: nothing was kept. */
int kh_run_recall(kh_run *, const char *name, int number, kh_run_books *, kh_buf *out,
    void (*line)(void *user, const char *line), void *user, kh_err *err);

/* result NULL: the method has failed, or was stopped, for the reason in `why`. */
int kh_run_end(kh_run *, const kh_run_result *, const kh_err *why, kh_err *err);

/* -- for those who only look (info.c); a process may be at work on the run -- */

/* Every option, in the order in which they were given. */
int kh_run_read_options(
    const char *dir, void (*each)(void *user, const kh_run_option *), void *user, kh_err *err);
/* The lines of generations from number `first` on; *next becomes the number after the last. */
int kh_run_read_lines(const char *dir, int first,
    void (*each)(void *user, const char *line, const char *facts), void *user, int *next,
    kh_err *err);

#endif
