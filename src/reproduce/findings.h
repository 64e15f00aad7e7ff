/* findings.h - what the runs of a reproduction say to the six questions that it is made for, in
 * sentences with numbers.
 *
 *     kh_finding f[KH_QUESTIONS];
 *     kh_questions_answer(&reproduction, f, err);
 *     for (int i = 0; i < KH_QUESTIONS; i++) ... f[i].question, f[i].agrees, f[i].text
 */
#ifndef KH_REPRODUCE_FINDINGS_H
#define KH_REPRODUCE_FINDINGS_H

#include "reproduce/reproduction.h"

enum { KH_QUESTIONS = 6 };

typedef struct kh_finding {
    const char *question;
    const char *paper; /* what the paper says; NULL: nothing */
    int agrees; /* 1: here, too; -1: not here; 0: it cannot be told. Where the paper does not ask, 1
                   is for ours */
    char text[2200];
} kh_finding;

int kh_questions_answer(const kh_reproduction *, kh_finding out[KH_QUESTIONS], kh_err *err);

/* The queries that run i of the plan had asked when its accuracy on dev first reached `level`; 0:
 * it never did, or its record does not say. *best (may be NULL) becomes the best that it reached.
 */
int kh_queries_to_reach(
    const kh_reproduction *, int i, double level, long long *queries, double *best, kh_err *err);

#endif
