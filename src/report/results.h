/* results.h - results.json: what an evaluation found, for programs. doc/results-schema.md documents
 * the schema. */
#ifndef KH_REPORT_RESULTS_H
#define KH_REPORT_RESULTS_H

#include "posterior/eval.h"

#define KH_RESULTS_NAME "results.json"
enum { KH_RESULTS_VERSION = 1 };

/* run: the folder. options: what eval was told, as a JSON object. */
void kh_results_json(const kh_eval *, const char *run, const char *options, kh_buf *out);

/* What "keyhole compare" needs of one. */
typedef struct kh_result {
    char *run; /* as the caller calls it */
    char *model, *task, *method, *options;
    uint64_t seed;
    int rows;
    double covered,
        set_size; /* of conformal sets: hold the true class, mean size; NaN: there are none */
    double alpha; /* they promise to miss it no more often than this */
    double half;  /* share of wrong answers among the half of the rows that it is surest of, ties
                     with them included; NaN: unknown */
    double answered, risk; /* share of rows answered under the decisions, share of wrong answers
                              among them; NaN: there are no decisions */
    kh_curve_point *curve; /* [n_curve] risk against coverage by 1 - max p */
    int n_curve;
    struct kh_named {
        char *name; /* "accuracy", "ood.rte.entropy.auroc", ... */
        double value;
    } * metric;
    int n;
    size_t cap;
} kh_result;

/* RUN/results.json. Free it, failed ones too. */
int kh_result_open(kh_result *out, const char *run, kh_err *err);
int kh_result_parse(kh_result *out, const char *text, size_t n, const char *name, kh_err *err);
void kh_result_free(kh_result *);
/* NaN if there is none of that name. */
double kh_result_value(const kh_result *, const char *name);

/* 1 if more is better, -1 if less is, 0 neither: by the last part of the name. */
int kh_result_better(const char *name);

#endif
