/* together.h - several text prompts about the same rows, asked at once.
 *
 *     kh_question q[N];           the same rows in each, no slots; templates and label words differ
 *     kh_plm_score_together(scorer, q, N, logprob, err);
 *
 * A box that is a decision service sends the questions about a row in one request, so that its text
 * is sent, and paid for, once; up to KH_SHARED_MOST of them, then another. Every other box is asked
 * one question after another. The answers, and their keys in a journal, are those of the questions
 * asked one by one. */
#ifndef KH_PLM_TOGETHER_H
#define KH_PLM_TOGETHER_H

#include "keyhole.h"

/* Whether asking together saves anything: the box sends several questions in one request. */
bool kh_plm_shares(const kh_plm *);

/* logprob [n, n_row, n_label]; NaN where a service refused (kh_is_missing). */
int kh_plm_score_together(kh_scorer *, const kh_question *q, int n, float *logprob, kh_err *err);
/* label [n, n_row]; -1 where a service refused. */
int kh_plm_answer_together(kh_labeler *, const kh_question *q, int n, int *label, kh_err *err);

/* Between true and false, which may nest, several text prompts are asked about the same rows one
 * after another: a decoder in this process keeps what it made of a text that stands in front of the
 * prompt's own words. Any other box does nothing. */
void kh_plm_keep_texts(kh_plm *, bool keep);

/* Whether the answer about a row, its log-probabilities, is one that a service refused to give. */
static inline bool kh_is_missing(const float *logprob) { return logprob[0] != logprob[0]; }

#endif
