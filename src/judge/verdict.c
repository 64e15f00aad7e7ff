/* verdict.c - see verdict.h.
 *
 * Three ways to be of no use. One class for nearly all rows is counted. Chance is an exact binomial
 * test against the baseline that always says the commonest class: a classifier that has learned
 * something is above it with a p-value below 0.1 even on a dozen rows. Worse than the template is a
 * comparison on the same rows, where a difference of one row does not count. */
#include "judge/verdict.h"

#include "judge/metrics.h"

#include <math.h>
#include <stdio.h>

/* Below that nothing can be told from luck, and nothing is said. */
enum { LEAST_ROWS = 8 };
/* A classifier that says one class to 95 % of the rows is of no use, unless four fifths of the rows
 * are of one class anyway. */
static const double NEARLY_ALL = 0.95, COMMON = 0.8, P_VALUE = 0.1;

typedef struct tally {
    int right, n_said, said, n_true, commonest; /* the class said most often; the commonest class */
} tally;

/* One pass for each class: labels are few, and rows are at most what a person labels. */
static tally count(const kh_answers *a) {
    tally t = { 0 };
    for (int k = 0; k < a->n_label; k++) {
        int said = 0, is = 0;
        for (int i = 0; i < a->n; i++) {
            said += kh_predicted(a->p + (size_t)i * (size_t)a->n_label, a->n_label) == k;
            is += a->label[i] == k;
        }
        if (said > t.n_said) {
            t.n_said = said;
            t.said = k;
        }
        if (is > t.n_true) {
            t.n_true = is;
            t.commonest = k;
        }
    }
    for (int i = 0; i < a->n; i++)
        t.right += kh_predicted(a->p + (size_t)i * (size_t)a->n_label, a->n_label) == a->label[i];
    return t;
}

/* One sentence at the most, the worst first: a person acts on the first one. */
void kh_verdict(const kh_answers *a, double template_accuracy,
    const char *(*name)(const void *user, int k), const void *user, char *out, size_t cap) {
    static const char REMEDY[] = "try more labelled rows, another --method, or a larger --model";
    out[0] = '\0';
    if (a->n < LEAST_ROWS)
        return;
    tally t = count(a);
    double share = (double)t.n_true / a->n;
    /* P(at least so many right), if each row were right with the share of the commonest class. */
    double p_value = 1 - kh_binomial_cdf(t.right - 1, a->n, share);
    if (t.n_said >= NEARLY_ALL * a->n && share < COMMON)
        snprintf(out, cap, "it says \"%s\" to %d of %d rows, so it is of no use; %s",
            name(user, t.said), t.n_said, a->n, REMEDY);
    else if (share < 1 && p_value > P_VALUE)
        snprintf(out, cap,
            "%d of %d rows right is no better than always saying \"%s\" (%d right); %s", t.right,
            a->n, name(user, t.commonest), t.n_true, REMEDY);
    else if (template_accuracy * a->n >= t.right + 2)
        snprintf(out, cap,
            "the template alone does better (%.0f of %d rows right, this classifier %d): use "
            "--method manual --label-prior batch, or another method",
            template_accuracy * a->n, a->n, t.right);
}
