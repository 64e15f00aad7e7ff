/* decisions.h - decisions beyond what the public header says. */
#ifndef KH_JUDGE_DECISIONS_H
#define KH_JUDGE_DECISIONS_H

#include "base/json_out.h"
#include "judge/metrics.h"
#include "keyhole.h"

#define KH_DECISIONS_NAME "decisions.json"

const char *kh_score_name(kh_score);  /* "maxp", "entropy", ...: the words of options and files */
const char *kh_score_title(kh_score); /* "1 - max p", ...: for people */

/* Refuses decisions of `run` that go by energies or distances, for a classifier that does not know
 * them. */
int kh_decisions_check(const kh_decisions *, kh_predictor *, const char *run, kh_err *err);

/* The threshold of what is out-of-distribution again, on the scores u [n] of these rows. */
int kh_decisions_outside(kh_decisions *, const double *u, int n, kh_err *err);
/* The classifier was chosen on the rows of the selector: what they show is an estimate. */
void kh_decisions_chosen_on(kh_decisions *);
/* What each risk of the ladder would take on these rows. */
int kh_decisions_steps(
    const kh_decisions *, const kh_answers *, kh_ladder_step out[KH_LADDER_STEPS], kh_err *err);

/* Appends them as the members of a JSON object, without its braces. */
void kh_decisions_json(const kh_decisions *, kh_json_out *);
/* Appends the whole file; stamp is that of the posterior (kh_posterior_stamp). */
void kh_decisions_file(const kh_decisions *, uint64_t stamp, kh_buf *out);
/* Reads the same from text; messages call it by `name`. *stamp is that of the posterior. Free *out,
 * failed ones too. */
int kh_decisions_parse(
    kh_decisions *out, const char *text, size_t n, const char *name, uint64_t *stamp, kh_err *err);

/* "never", "always" or "below threshold". */
const char *kh_selector_answers(const kh_selector *);

#endif
