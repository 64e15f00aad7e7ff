/* cmd_metrics.c - keyhole metrics: what any classifier's predictions are worth, and what may be
 * decided with them. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "judge/decisions.h"
#include "prediction_file.h"

#include <math.h>
#include <string.h>

typedef struct metrics_opts {
    const char *ood, *versus, *dev;
    int bootstrap, bins, score, foreign;
    double level, max_risk, delta, miss, keep;
    uint64_t seed;
    bool per_class, reliability, curve, json;
} metrics_opts;

static const kh_opt metrics_table[] = {
    { "bootstrap", KH_OPT_INT, offsetof(metrics_opts, bootstrap), "0", .min = 0, .max = 1000000,
        .arg = "N", .help = "resamples for intervals; 1000 is usual" },
    { "level", KH_OPT_NUMBER, offsetof(metrics_opts, level), "0.95", .min = 0.5, .max = 0.9999,
        .arg = "P", .help = "of the intervals" },
    { "seed", KH_OPT_SEED, offsetof(metrics_opts, seed), "0", .arg = "S",
        .help = "of the bootstrap and of ties in conformal sets" },
    { "bins", KH_OPT_INT, offsetof(metrics_opts, bins), "10", .min = 1, .max = 10000, .arg = "N",
        .help = "of the calibration errors" },
    { "reliability", KH_OPT_FLAG, offsetof(metrics_opts, reliability),
        .help = "print confidence against accuracy, bin by bin" },
    { "curve", KH_OPT_FLAG, offsetof(metrics_opts, curve), .help = "print risk against coverage" },
    { "versus", KH_OPT_TEXT, offsetof(metrics_opts, versus), .arg = "FILE",
        .help = "another classifier on the same rows: differences by paired bootstrap" },
    { "ood", KH_OPT_TEXT, offsetof(metrics_opts, ood), .arg = "FILE",
        .help = "predictions for out-of-distribution rows, which should be less certain" },
    { "dev", KH_OPT_TEXT, offsetof(metrics_opts, dev), .arg = "FILE",
        .help = "labelled predictions to choose thresholds on; without it, the rows themselves" },
    { "max-risk", KH_OPT_NUMBER, offsetof(metrics_opts, max_risk), "0", .min = 0, .max = 0.999,
        .arg = "R",
        .help = "choose when to abstain, so that of the answers given at most R are wrong" },
    { "delta", KH_OPT_NUMBER, offsetof(metrics_opts, delta), "0.1", .min = 1e-9, .max = 0.999,
        .arg = "P", .help = "how probable it may be that --max-risk is missed" },
    { "conformal", KH_OPT_NUMBER, offsetof(metrics_opts, miss), "0", .min = 0, .max = 0.999,
        .arg = "A", .help = "sets of classes that miss the true one with probability A at most" },
    { "per-class", KH_OPT_FLAG, offsetof(metrics_opts, per_class),
        .help = "--conformal promises it within every class" },
    { "keep", KH_OPT_NUMBER, offsetof(metrics_opts, keep), "0.95", .min = 0.001, .max = 0.9999,
        .arg = "P", .help = "share of rows that the threshold for --ood lets in" },
    { "score", KH_OPT_CHOICE, offsetof(metrics_opts, score), "maxp", .arg = "maxp|entropy",
        .help = "what decides when to abstain: 1 - max p, or entropy" },
    { "ood-score", KH_OPT_CHOICE, offsetof(metrics_opts, foreign), "energy",
        .arg = "maxp|entropy|energy",
        .help = "what --keep goes by; energy: where all rows have it, otherwise as --score",
        .old = "foreign-score" },
    CLI_JSON_OPTION(metrics_opts),
    { 0 },
};

/* Everything that was found; what was not asked for is zero. */
typedef struct found {
    const metrics_opts *o;
    cli_predictions rows, other, ood, dev;
    kh_metrics m, low, high;
    kh_compared versus;
    kh_bin *bin; /* [bins] */
    kh_curve_point *point;
    int n_point;
    kh_ood outside[KH_N_SCORE], outside_low[KH_N_SCORE],
        outside_high[KH_N_SCORE]; /* by kh_score, the first n_score of them */
    int n_score;                  /* without energies, those of p */
    double *u, *u_dev;            /* by --score */
    kh_score foreign;             /* what the threshold of ood goes by */
    double threshold;             /* of ood */
    double kept, let_in;          /* shares of rows and of ood rows below it */
    kh_selector selector;
    double coverage, risk; /* of the rows under it */
    kh_conformal conformal;
    double covered, set_size,
        empty; /* shares of sets that hold the true class and of empty ones, mean size */
} found;

static bool wants_decision(const metrics_opts *o) { return o->max_risk > 0 || o->miss > 0; }
static const cli_predictions *dev_of(const found *f) { return f->o->dev ? &f->dev : &f->rows; }

/* ----------------------------------------------------------------------------------- computing */

static int uncertainties(double **u, const cli_predictions *r, kh_score score, kh_err *err) {
    *u = kh_malloc((size_t)r->rows.n * sizeof **u);
    if (!*u)
        return kh_fail_memory(err);
    for (int i = 0; i < r->rows.n; i++)
        (*u)[i] = score == KH_SCORE_ENERGY
            ? r->rows.energy[i]
            : kh_uncertainty(score, r->p + (size_t)i * (size_t)r->rows.n_label, r->rows.n_label);
    return 0;
}

static int rights(bool **good, const kh_answers *a, kh_err *err) {
    *good = kh_malloc((size_t)a->n * sizeof **good);
    if (!*good)
        return kh_fail_memory(err);
    for (int i = 0; i < a->n; i++)
        (*good)[i] = kh_predicted(a->p + (size_t)i * (size_t)a->n_label, a->n_label) == a->label[i];
    return 0;
}

static kh_bootstrap_opts bootstrap_of(const metrics_opts *o) {
    return (kh_bootstrap_opts){ .n_resample = o->bootstrap, .level = o->level, .seed = o->seed };
}

static int compute_metrics(found *f, kh_err *err) {
    const kh_answers *a = &f->rows.known;
    const metrics_opts *o = f->o;
    kh_bootstrap_opts b = bootstrap_of(o);
    bool *good = NULL;
    int rc = kh_metrics_compute(&f->m, a, o->bins, err);
    if (rc == 0 && o->bootstrap > 0)
        rc = kh_metrics_bootstrap(&f->low, &f->high, a, o->bins, &b, err);
    f->bin = kh_calloc((size_t)o->bins, sizeof *f->bin);
    f->point = kh_calloc((size_t)a->n, sizeof *f->point);
    if (rc == 0 && (!f->bin || !f->point))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_reliability(a, KH_BINS_UQ360, o->bins, f->bin, NULL, err);
    if (rc == 0)
        rc = rights(&good, a, err);
    if (rc == 0)
        rc = kh_risk_coverage(f->u, good, a->n, f->point, &f->n_point, err);
    kh_free(good);
    return rc;
}

static int compute_versus(found *f, kh_err *err) {
    kh_bootstrap_opts b = bootstrap_of(f->o);
    if (b.n_resample == 0)
        b.n_resample = kh_bootstrap_defaults().n_resample;
    int rc = kh_metrics_compare(&f->versus, &f->rows.known, &f->other.known, f->o->bins, &b, err);
    return rc == KH_EMISMATCH ? kh_err_prefix(err, "%s and %s", f->rows.name, f->other.name) : rc;
}

static double share_below(const double *u, int n, double t) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count += u[i] <= t;
    return (double)count / n;
}

static bool has_energy(const cli_predictions *r) { return r->rows.n_energy == r->rows.n; }

static int compute_keep(found *f, kh_err *err) {
    double *in = NULL, *out = NULL, *dev = NULL;
    bool known = f->n_score > KH_SCORE_ENERGY && has_energy(dev_of(f));
    f->foreign =
        (kh_score)(f->o->foreign == KH_SCORE_ENERGY && !known ? f->o->score : f->o->foreign);
    int rc = uncertainties(&in, &f->rows, f->foreign, err);
    if (rc == 0)
        rc = uncertainties(&out, &f->ood, f->foreign, err);
    if (rc == 0)
        rc = uncertainties(&dev, dev_of(f), f->foreign, err);
    if (rc == 0)
        rc = kh_ood_threshold(&f->threshold, dev, dev_of(f)->rows.n, f->o->keep, err);
    if (rc == 0) {
        f->kept = share_below(in, f->rows.rows.n, f->threshold);
        f->let_in = share_below(out, f->ood.rows.n, f->threshold);
    }
    kh_free(in);
    kh_free(out);
    kh_free(dev);
    return rc;
}

static int compute_ood(found *f, kh_err *err) {
    kh_bootstrap_opts b = bootstrap_of(f->o);
    int n = f->rows.rows.n, n_out = f->ood.rows.n, rc = 0;
    f->n_score =
        has_energy(&f->rows) && has_energy(&f->ood) ? KH_SCORE_ENERGY + 1 : KH_SCORE_ENERGY;
    for (int s = 0; s < f->n_score && rc == 0; s++) {
        double *in = NULL, *out = NULL;
        rc = uncertainties(&in, &f->rows, (kh_score)s, err);
        if (rc == 0)
            rc = uncertainties(&out, &f->ood, (kh_score)s, err);
        if (rc == 0)
            rc = kh_ood_compute(&f->outside[s], in, n, out, n_out, err);
        if (rc == 0 && b.n_resample > 0)
            rc = kh_ood_bootstrap(
                &f->outside_low[s], &f->outside_high[s], in, n, out, n_out, &b, err);
        kh_free(in);
        kh_free(out);
    }
    return rc == 0 ? compute_keep(f, err) : rc;
}

static int compute_selector(found *f, kh_err *err) {
    const kh_answers *dev = &dev_of(f)->known, *a = &f->rows.known;
    bool *good = NULL, *dev_good = NULL;
    int rc = rights(&dev_good, dev, err), accepted = 0, wrong = 0;
    if (rc == 0)
        rc = kh_selector_fit(
            &f->selector, f->u_dev, dev_good, dev->n, f->o->max_risk, f->o->delta, err);
    if (rc == 0)
        rc = rights(&good, a, err);
    for (int i = 0; i < a->n && rc == 0; i++)
        if (f->u[i] < f->selector.threshold) {
            accepted++;
            wrong += !good[i];
        }
    f->coverage = (double)accepted / a->n;
    f->risk = accepted ? (double)wrong / accepted : NAN;
    kh_free(good);
    kh_free(dev_good);
    return rc;
}

static int compute_conformal(found *f, kh_err *err) {
    const kh_answers *a = &f->rows.known;
    int rc = kh_conformal_fit(&f->conformal, &dev_of(f)->known, f->o->miss, f->o->per_class, err),
        covered = 0, empty = 0;
    bool *in = kh_malloc((size_t)a->n_label * sizeof *in);
    if (rc == 0 && !in)
        rc = kh_fail_memory(err);
    long long size = 0;
    for (int i = 0; i < a->n && rc == 0; i++) {
        int n = kh_conformal_set(&f->conformal, a->p + (size_t)i * (size_t)a->n_label,
            kh_conformal_tie(f->o->seed, i), in);
        size += n;
        empty += n == 0;
        covered += in[a->label[i]];
    }
    f->covered = (double)covered / a->n;
    f->empty = (double)empty / a->n;
    f->set_size = (double)size / a->n;
    kh_free(in);
    return rc;
}

static int read_all(found *f, const char *path, kh_err *err) {
    static const kh_evidence order[] = { KH_PROBS, KH_LOGITS, KH_VOTES };
    struct {
        const char *path;
        cli_predictions *into;
        bool labels;
    } file[] = { { path, &f->rows, true }, { f->o->versus, &f->other, true },
        { f->o->ood, &f->ood, false }, { f->o->dev, &f->dev, true } };
    for (int i = 0; i < 4; i++) {
        if (!file[i].path)
            continue;
        int rc = cli_predictions_read(file[i].into, file[i].path, order, 3, err);
        if (rc == 0 && file[i].labels)
            rc = cli_predictions_need_labels(file[i].into, err);
        if (rc == 0 && file[i].into->rows.n_label != f->rows.rows.n_label)
            rc = kh_fail(err, KH_EMISMATCH, "%s has %d classes, but %s has %d", file[i].into->name,
                file[i].into->rows.n_label, f->rows.name, f->rows.rows.n_label);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int compute(found *f, kh_err *err) {
    int rc = uncertainties(&f->u, &f->rows, (kh_score)f->o->score, err);
    if (rc == 0)
        rc = uncertainties(&f->u_dev, dev_of(f), (kh_score)f->o->score, err);
    if (rc == 0)
        rc = compute_metrics(f, err);
    if (rc == 0 && f->o->versus)
        rc = compute_versus(f, err);
    if (rc == 0 && f->o->ood)
        rc = compute_ood(f, err);
    if (rc == 0 && f->o->max_risk > 0)
        rc = compute_selector(f, err);
    if (rc == 0 && f->o->miss > 0)
        rc = compute_conformal(f, err);
    return rc;
}

/* ---------------------------------------------------------------------------------- for people */

/* A number of six characters, or "-" for what is not defined. */
static void print_number(double x) {
    if (isnan(x))
        printf(" %7s", "-");
    else
        printf(" %7.4f", x);
}

static void print_row(
    const char *name, double x, double low, double high, bool interval, const char *text) {
    printf("  %-20s", name);
    print_number(x);
    if (interval) {
        fputs("  ", stdout);
        print_number(low);
        fputs(" to", stdout);
        print_number(high);
    }
    printf("  %s\n", text);
}

static void print_versus(const found *f) {
    printf("\nminus %s:\n", f->other.name);
    for (int i = 0; kh_metrics_name(i); i++) {
        double p = kh_metrics_value(&f->versus.p, i);
        char text[64] = "";
        if (kh_metrics_better(i) && !isnan(p)) /* nobody is better or worse by an oracle's score */
            snprintf(text, sizeof text, "p = %.4f", p);
        print_row(kh_metrics_name(i), kh_metrics_value(&f->versus.diff, i),
            kh_metrics_value(&f->versus.low, i), kh_metrics_value(&f->versus.high, i), true, text);
    }
}

static void print_ood(const found *f) {
    for (int s = 0; s < f->n_score; s++) {
        printf("\nagainst %d rows of %s, by %s:\n", f->ood.rows.n, f->ood.name,
            kh_score_title((kh_score)s));
        for (int i = 0; kh_ood_name(i); i++)
            print_row(kh_ood_name(i), kh_ood_value(&f->outside[s], i),
                kh_ood_value(&f->outside_low[s], i), kh_ood_value(&f->outside_high[s], i),
                f->o->bootstrap > 0, kh_ood_text(i));
    }
    if (isinf(f->threshold))
        printf("  %d rows are too few for a threshold that keeps %g of such rows\n",
            dev_of(f)->rows.n, f->o->keep);
    else
        printf("  threshold %.6g on %s keeps %.4f of these rows and lets in %.4f of the others\n",
            f->threshold, kh_score_title(f->foreign), f->kept, f->let_in);
}

static void print_selector(const found *f) {
    const kh_selector *s = &f->selector;
    printf("\nanswers of which at most %g are wrong, with probability %g:\n", s->max_risk,
        1 - s->delta);
    if (s->n_accepted == 0) {
        printf("  %d rows of %s cannot show it: abstain always; it takes at least %d answers, all "
               "right\n",
            s->n, dev_of(f)->name, s->n_needed);
        return;
    }
    printf("  chosen on %s: answer where %s < %.6g; %d wrong of %d, at most %.4f\n",
        dev_of(f)->name, f->o->score ? "entropy" : "1 - max p", s->threshold, s->n_wrong,
        s->n_accepted, s->risk_bound);
    printf("  coverage to expect: %.4f (%.4f to %.4f)\n", s->coverage, s->coverage_low,
        s->coverage_high);
    if (f->o->dev)
        printf("  on %s: coverage %.4f, risk %.4f\n", f->rows.name, f->coverage, f->risk);
}

static void print_conformal(const found *f) {
    printf("\nsets that miss the true class with probability at most %g%s:\n", f->conformal.alpha,
        f->conformal.per_class ? ", in every class" : "");
    printf("  fitted on %s, which can promise %.4g at best%s\n", dev_of(f)->name,
        f->conformal.min_alpha,
        f->conformal.alpha < f->conformal.min_alpha
            ? ": sets of all classes are needed where rows are too few"
            : "");
    printf("  on %s: %.4f hold the true class, mean size %.3f, %.4f empty\n", f->rows.name,
        f->covered, f->set_size, f->empty);
}

static void print_text(const found *f) {
    const metrics_opts *o = f->o;
    printf("%s: %d rows, %d classes, %s\n", f->rows.name, f->rows.rows.n, f->rows.rows.n_label,
        kh_evidence_name(f->rows.rows.kind));
    if (o->bootstrap > 0)
        printf("  %-20s %7s  %18s (%g %%)\n", "", "", "interval", 100 * o->level);
    for (int i = 0; kh_metrics_name(i); i++)
        print_row(kh_metrics_name(i), kh_metrics_value(&f->m, i), kh_metrics_value(&f->low, i),
            kh_metrics_value(&f->high, i), o->bootstrap > 0, kh_metrics_text(i));
    if (o->reliability) {
        printf("\n  %-16s %7s %11s %9s\n", "confidence", "rows", "mean", "accuracy");
        for (int b = 0; b < o->bins; b++)
            printf("  %.4f - %.4f  %7d %11.4f %9.4f\n", f->bin[b].low, f->bin[b].high, f->bin[b].n,
                f->bin[b].confidence, f->bin[b].accuracy);
    }
    if (o->curve) {
        printf("\n  %-12s %9s %9s\n", o->score ? "entropy" : "1 - max p", "coverage", "risk");
        for (int i = 0; i < f->n_point; i++)
            printf(
                "  %-12.6g %9.4f %9.4f\n", f->point[i].u, f->point[i].coverage, f->point[i].risk);
    }
    if (o->versus)
        print_versus(f);
    if (o->ood)
        print_ood(f);
    if (o->max_risk > 0)
        print_selector(f);
    if (o->miss > 0)
        print_conformal(f);
    if (wants_decision(o) && !o->dev)
        printf("\n  These rows were chosen on and judged on at once: --dev names rows that are "
               "not.\n");
}

/* -------------------------------------------------------------------------------- for programs */

enum { DIGITS = 12 };

static void put_number(kh_json_out *j, const char *key, double x) {
    kh_json_put_number(j, key, x, DIGITS);
}

/* {"accuracy": 0.9, ...} */
static void put_metrics(kh_json_out *j, const char *key, const kh_metrics *m) {
    kh_json_gap(j, "\n ");
    kh_json_open_object(j, key);
    for (int i = 0; kh_metrics_name(i); i++)
        put_number(j, kh_metrics_name(i), kh_metrics_value(m, i));
    kh_json_close(j);
}

static void put_ood(kh_json_out *j, const char *key, const kh_ood *o) {
    kh_json_open_object(j, key);
    for (int i = 0; kh_ood_name(i); i++)
        put_number(j, kh_ood_name(i), kh_ood_value(o, i));
    kh_json_close(j);
}

static void put_outside(kh_json_out *j, const found *f) {
    kh_json_gap(j, "\n ");
    kh_json_open_object(j, "ood");
    kh_json_put_int(j, "rows", f->ood.rows.n);
    for (int s = 0; s < f->n_score; s++) {
        kh_json_gap(j, "\n  ");
        kh_json_open_object(j, kh_score_name((kh_score)s));
        put_ood(j, "value", &f->outside[s]);
        if (f->o->bootstrap > 0) {
            put_ood(j, "low", &f->outside_low[s]);
            put_ood(j, "high", &f->outside_high[s]);
        }
        kh_json_close(j);
    }
    kh_json_gap(j, "\n  ");
    kh_json_put_string(j, "score", kh_score_name(f->foreign));
    put_number(j, "threshold", f->threshold);
    put_number(j, "kept", f->kept);
    put_number(j, "let_in", f->let_in);
    kh_json_close(j);
}

static void put_selector(kh_json_out *j, const found *f) {
    const kh_selector *s = &f->selector;
    kh_json_gap(j, "\n ");
    kh_json_open_object(j, "selector");
    put_number(j, "max_risk", s->max_risk);
    put_number(j, "delta", s->delta);
    kh_json_put_string(j, "answers", kh_selector_answers(s));
    put_number(j, "threshold", s->threshold);
    kh_json_put_int(j, "rows", s->n);
    kh_json_put_int(j, "accepted", s->n_accepted);
    kh_json_put_int(j, "wrong", s->n_wrong);
    kh_json_put_int(j, "needed", s->n_needed);
    put_number(j, "risk_bound", s->risk_bound);
    put_number(j, "coverage", s->coverage);
    put_number(j, "coverage_low", s->coverage_low);
    put_number(j, "coverage_high", s->coverage_high);
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "here");
    put_number(j, "coverage", f->coverage);
    put_number(j, "risk", f->risk);
    kh_json_close(j);
    kh_json_close(j);
}

static void put_conformal(kh_json_out *j, const found *f) {
    kh_json_gap(j, "\n ");
    kh_json_open_object(j, "conformal");
    put_number(j, "alpha", f->conformal.alpha);
    kh_json_put_bool(j, "per_class", f->conformal.per_class);
    put_number(j, "min_alpha", f->conformal.min_alpha);
    put_number(j, "covered", f->covered);
    put_number(j, "mean_size", f->set_size);
    put_number(j, "empty", f->empty);
    kh_json_close(j);
}

static void put_arrays(kh_json_out *j, const found *f) {
    kh_json_gap(j, "\n ");
    kh_json_open_array(j, "reliability");
    for (int i = 0; i < f->o->bins; i++) {
        kh_json_gap(j, "\n  ");
        kh_json_open_object(j, NULL);
        put_number(j, "low", f->bin[i].low);
        put_number(j, "high", f->bin[i].high);
        kh_json_put_int(j, "rows", f->bin[i].n);
        put_number(j, "confidence", f->bin[i].confidence);
        put_number(j, "accuracy", f->bin[i].accuracy);
        kh_json_close(j);
    }
    kh_json_close(j);
    if (!f->o->curve)
        return;
    kh_json_gap(j, "\n ");
    kh_json_open_array(j, "curve");
    for (int i = 0; i < f->n_point; i++) {
        double point[] = { f->point[i].u, f->point[i].coverage, f->point[i].risk };
        kh_json_put_numbers(j, NULL, point, 3, DIGITS);
    }
    kh_json_close(j);
}

static void put_options(kh_json_out *j, const found *f) {
    kh_buf options = kh_buf_init(1 << 20);
    kh_opts_json(metrics_table, f->o, &options);
    j->out->failed |= kh_buf_failed(&options);
    kh_json_gap(j, "\n ");
    kh_json_put_json(j, "options", options.data ? options.data : "", options.len);
    kh_buf_free(&options);
}

static int print_json(const found *f, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "file", f->rows.name);
    kh_json_put_int(&j, "rows", f->rows.rows.n);
    kh_json_put_int(&j, "classes", f->rows.rows.n_label);
    kh_json_put_string(&j, "kind", kh_evidence_name(f->rows.rows.kind));
    put_options(&j, f);
    put_metrics(&j, "metrics", &f->m);
    if (f->o->bootstrap > 0) {
        put_metrics(&j, "low", &f->low);
        put_metrics(&j, "high", &f->high);
    }
    put_arrays(&j, f);
    if (f->o->versus) {
        put_metrics(&j, "difference", &f->versus.diff);
        put_metrics(&j, "difference_low", &f->versus.low);
        put_metrics(&j, "difference_high", &f->versus.high);
        put_metrics(&j, "difference_p", &f->versus.p);
    }
    if (f->o->ood)
        put_outside(&j, f);
    if (f->o->max_risk > 0)
        put_selector(&j, f);
    if (f->o->miss > 0)
        put_conformal(&j, f);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int run_metrics(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    found f = { .o = opts };
    int rc = read_all(&f, args[0], err);
    if (rc == 0)
        rc = compute(&f, err);
    if (rc == 0 && f.o->json)
        rc = print_json(&f, err);
    else if (rc == 0)
        print_text(&f);
    cli_predictions_free(&f.rows);
    cli_predictions_free(&f.other);
    cli_predictions_free(&f.ood);
    cli_predictions_free(&f.dev);
    kh_conformal_free(&f.conformal);
    kh_free(f.bin);
    kh_free(f.point);
    kh_free(f.u);
    kh_free(f.u_dev);
    return rc;
}

const cli_command cmd_metrics = {
    .name = "metrics",
    .args = "FILE|-",
    .min_args = 1,
    .max_args = 1,
    .summary = "Judge the predictions of any classifier: accuracy, calibration, abstention, OOD",
    .text = "Reads one JSON object a line: {\"probs\": [0.1, 0.9], \"label\": 1}, or \"logits\", "
            "or \"votes\";\n"
            "\"label\" is the true class, from 0; \"energy\", where rows have it, a third score "
            "for --ood.\n"
            "doc/judging.md defines every number.\n\n"
            "With --max-risk, --conformal or --ood it also makes decisions that keep a promise: "
            "when to\n"
            "abstain, which classes to name, which rows to turn away. They are chosen on --dev and "
            "tried\n"
            "on FILE.\n\n"
            "  keyhole metrics test.jsonl --bootstrap 1000\n"
            "  keyhole metrics test.jsonl --versus baseline.jsonl\n"
            "  keyhole metrics test.jsonl --ood others.jsonl --json | jq .ood.maxp.value.auroc\n"
            "  keyhole metrics test.jsonl --dev dev.jsonl --max-risk 0.05 --conformal 0.1",
    .opts = metrics_table,
    .opts_size = sizeof(metrics_opts),
    .run = run_metrics,
};
