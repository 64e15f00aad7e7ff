/* eval.h - a tuned classifier judged on rows it has not seen, and on rows that are
 * out-of-distribution: the inside of the public kh_eval.
 *
 *     kh_eval e;
 *     if (kh_eval_run(&e, posterior, plm, &opts, err) == 0)
 *         ...                                numbers, rows and decisions are in e
 *     kh_eval_clear(&e);                     failed ones too
 *
 * results.h and page.h turn it into a file for programs and a page for people. */
#ifndef KH_POSTERIOR_EVAL_H
#define KH_POSTERIOR_EVAL_H

#include "base/opts.h"
#include "judge/jackknife.h"
#include "judge/metrics.h"
#include "keyhole.h"

enum { KH_EVAL_PLANE = 500 };

/* Rows and what the classifier says of them. */
typedef struct kh_judged {
    char *name; /* "test", or that of a task */
    kh_dataset *data;
    const kh_row *row; /* [n], of data */
    int n, of;         /* rows judged, and rows there are */
    double *p, *votes, *ambiguity, *energy, *distance,
        *both; /* the last three NaN where they are not known */
} kh_judged;

/* Rows that are out-of-distribution. */
typedef struct kh_ood_rows {
    const kh_task *task; /* whose template they take; NULL: the classifier's own */
    kh_judged rows;
    kh_ood value[KH_N_SCORE], low[KH_N_SCORE],
        high[KH_N_SCORE]; /* by kh_score, those that are known */
    double flagged;       /* share called foreign by the decisions; NaN without */
} kh_ood_rows;

struct kh_eval {
    const kh_posterior *post;
    const kh_eval_opts *o;
    const char *data; /* the folder */
    int n_label;
    kh_judged rows, dev;
    int *label, *dev_label;  /* true classes */
    kh_metrics m, low, high; /* without bootstrap low and high are NaN */
    kh_bin bin[KH_BINS];
    bool known[KH_N_SCORE]; /* scores that texts from elsewhere are told apart by: those of p,
                               energy, distance and both where they are known */
    int n_score;            /* how many */
    kh_both both;           /* what energies and distances are measured in, if both are known, */
    double *own_both;       /* [n_own_both] and the classifier's own rows by it, each left out */
    int n_own_both;
    kh_curve_point
        *point[2]; /* risk against coverage, by kh_score: energies say nothing of right or wrong */
    int n_point[2];
    int *confusion;       /* [n_label, n_label] rows are true classes */
    kh_ood_rows *outside; /* [n_outside] */
    int n_outside;
    bool decided; /* there were dev rows to decide on; otherwise `why` */
    char why[1024];
    kh_decisions decisions;
    int n_train; /* the first of the dev rows that are train rows: the template learns from none */
    kh_left_out left_out; /* what the calibrator would say without some of the dev rows */
    bool chosen_on;       /* the classifier was chosen on the rows that say when to abstain */
    int n_ood;            /* rows that the threshold of what is out-of-distribution comes from */
    kh_ladder_step step[KH_LADDER_STEPS]; /* what promises would take, on the rows decided on */
    int n_cross; /* rows of cross-fitted answers that the decisions are by; 0: the dev rows */
    double template_accuracy; /* of the template alone on the same rows; NaN: not asked */
    int n_known;              /* rows judged on that stand among the train rows, too */
    char warning[512];        /* why the classifier is of no use; empty: it is of some */
    double coverage, risk;    /* of the rows under the decisions; NaN without */
    double covered, set_size,
        empty;      /* of their conformal sets: hold the true class, mean size, empty */
    double flagged; /* share of the rows called foreign */
    double ambiguity, disagreement; /* means; NaN where samples only vote */
    double *xy;      /* [n_xy, 2] the samples on a plane; NULL: there are fewer than two, or no soft
                        prompts */
    double share[2]; /* of the variance, along each axis */
    int n_xy;        /* at most the first KH_EVAL_PLANE samples */
    bool of_prompts; /* the plane is that of the prompts, as samples have projections of their own;
                        else of z */
    long long queries;
    bool seen;       /* the model has learned from train rows of the task */
    kh_plm_info box; /* that answered; its strings live as long as it does */
};

int kh_eval_run(kh_eval *out, const kh_posterior *, kh_plm *, const kh_eval_opts *, kh_err *err);
void kh_eval_clear(kh_eval *);

const char *kh_eval_split_name(int split);
/* A row's score, by which one it may be. */
double kh_judged_score(const kh_judged *, int row, kh_score, int n_label);
/* What decides, or would decide, what is foreign. */
kh_score kh_eval_foreign(const kh_eval *);
/* The row's own parts of uncertainty. */
kh_decomposition kh_judged_parts(const kh_judged *, int row, int n_label);

/* Rows to show, one of each class that is said: their numbers in out [most], and how many. */
int kh_eval_examples(const kh_eval *, int *out, int most);

/* One JSON object a line for every row judged, those from elsewhere too. */
void kh_eval_rows_json(const kh_eval *, kh_buf *out);

#endif
