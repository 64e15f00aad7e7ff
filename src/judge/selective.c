/* selective.c - when to answer: thresholds chosen on a few labelled rows, with promises that hold
 * for finite samples.
 *
 * kh_selector_fit wants a threshold whose risk (share of wrong answers among those given) is at
 * most r with probability 1 - delta, and the largest coverage it can have. Trying thresholds until
 * one looks good would spoil the promise, so they are tested in a fixed order, from few accepted
 * rows to many, each by the exact binomial test at the full delta, and the first failure ends it
 * (fixed-sequence testing; Angelopoulos et al. 2021, "Learn then Test"). Nothing is lost to a
 * correction for the number of thresholds, which is why it is preferred to Bonferroni here:
 * development sets have 32 rows, not 3,200.
 *
 * The order is fixed by ranks, never by labels: first max(n_needed, n/10) rows, since fewer than
 * n_needed could not pass even without an error and a longer start forgives the single early one;
 * then up to n in twenty steps, since every further test is another chance to stop early. A
 * threshold is the lowest uncertainty among the rows left out, which are not counted, so the
 * accepted ones are a sample from what the threshold accepts. doc/judging.md, [18] to [20], has the
 * argument and its condition.
 *
 * Binomial sums are taken exactly, term by term from the largest. */
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

/* More steps would find a little more coverage and stop early more often. */
enum { N_STEP = 20 };
/* Four risks are tried on the same rows, each from two starts, so each start has a part of delta:
 * doc/judging.md, [20a]. */
static const double SHARE_HALF = 0.5, SHARE_FEW = 0.25;

/* ------------------------------------------------------------------------------------ binomial */

static double log_gamma(double x) {
    int sign; /* lgamma would write to a global */
    return lgamma_r(x, &sign);
}

/* In logarithms: binomial coefficients overflow long before n is a thousand. */
static double log_pmf(int k, int n, double p) {
    return log_gamma(n + 1.0) - log_gamma(k + 1.0) - log_gamma(n - k + 1.0) + k * log(p) +
        (n - k) * log1p(-p);
}

/* Terms of the probability function from k down to 0, or up to n, until they no longer count. */
static double sum_terms(int k, int n, double p, bool down) {
    double term = exp(log_pmf(k, n, p)), sum = term;
    for (int j = k; (down ? j > 0 : j < n) && term > sum * 1e-17;) {
        if (down) {
            term *= (double)j / (n - j + 1) * ((1 - p) / p);
            j--;
        } else {
            term *= (double)(n - j) / (j + 1) * (p / (1 - p));
            j++;
        }
        sum += term;
    }
    return sum;
}

/* [18] */
double kh_binomial_cdf(int k, int n, double p) {
    if (k < 0)
        return 0;
    if (k >= n || p <= 0)
        return 1;
    if (p >= 1)
        return 0;
    /* The tail that does not hold the mean: there terms only fall. */
    double cdf = k <= n * p ? sum_terms(k, n, p, true) : 1 - sum_terms(k + 1, n, p, false);
    return kh_clamp(cdf, 0, 1);
}

/* The one-sided Clopper-Pearson bound: the largest risk under which k or fewer errors in n still
 * have probability delta. By bisection on an exact distribution function; a hundred halvings are
 * more than a double has. */
double kh_binomial_upper(int k, int n, double delta) {
    if (k >= n)
        return 1;
    double low = k > 0 ? (double)k / n : 0, high = 1; /* for delta < 1/2 the bound is above k/n */
    if (kh_binomial_cdf(k, n, low) < delta)
        low = 0;
    for (int i = 0; i < 100 && high - low > 1e-15; i++) {
        double mid = low + (high - low) / 2;
        if (kh_binomial_cdf(k, n, mid) >= delta)
            low = mid;
        else
            high = mid;
    }
    return high;
}

/* ------------------------------------------------------------------------------------ selector */

/* A risk of 0 or 1 promises the impossible or nothing. */
static int check_selector(const double *u, int n, double max_risk, double delta, kh_err *err) {
    if (!(max_risk > 0 && max_risk < 1))
        return kh_fail(err, KH_EARG, "the largest risk is %g, expected between 0 and 1", max_risk);
    if (!(delta > 0 && delta < 1))
        return kh_fail(err, KH_EARG,
            "the probability of breaking the promise is %g, expected between 0 and 1", delta);
    return kh_scores_check(u, n, "rows", err);
}

/* The fewest rows without error for which (1 - r)^m <= delta. */
static int rows_needed(double max_risk, double delta) {
    double m = ceil(log(delta) / log1p(-max_risk) - 1e-9);
    return (int)kh_clamp(m, 1, INT32_MAX);
}

/* Accepting the first `rank` rows and all that tie with the last of them. Rows with equal scores
 * cannot be told apart by any threshold: they are accepted together. The threshold is the score of
 * the first row that is left out, and that row is not counted. */
static kh_selector accept_first(const kh_selector *s, const kh_ranked *row, int rank) {
    kh_selector t = *s;
    int m = rank;
    while (m < s->n && row[m].u == row[rank - 1].u)
        m++;
    t.n_accepted = m;
    t.n_wrong = 0;
    for (int i = 0; i < m; i++)
        t.n_wrong += !row[i].good;
    t.threshold = m < s->n ? row[m].u : INFINITY;
    return t;
}

/* [19]: the last threshold before the first that fails, from rank `start`, but not below n_needed,
 * to rank `stop`. */
static void search(kh_selector *s, const kh_ranked *row, int start, int stop) {
    kh_selector best = *s;
    start = s->n_needed > start ? s->n_needed : start;
    for (int step = 0, last = 0; step <= N_STEP && start <= stop; step++) {
        int rank = start + (int)((long long)step * (stop - start) / N_STEP);
        if (rank <= last) /* part of the ties accepted before */
            continue;
        kh_selector t = accept_first(s, row, rank);
        if (kh_binomial_cdf(t.n_wrong, t.n_accepted, s->max_risk) > s->delta)
            break;
        best = t;
        last = t.n_accepted;
    }
    *s = best;
}

/* What to expect of the threshold that was found. The bounds are for people: what was promised is
 * max_risk at delta, and holds by the test that chose the threshold. */
static void describe(kh_selector *s) {
    int m = s->n_accepted, n = s->n;
    s->coverage = (double)m / n;
    s->coverage_high = kh_binomial_upper(m, n, s->delta / 2);
    s->coverage_low = 1 - kh_binomial_upper(n - m, n, s->delta / 2);
    if (m > 0) {
        s->risk = (double)s->n_wrong / m;
        s->risk_bound = kh_binomial_upper(s->n_wrong, m, s->delta);
    }
}

int kh_selector_fit(kh_selector *out, const double *u, const bool *good, int n, double max_risk,
    double delta, kh_err *err) {
    *out = (kh_selector){ .max_risk = max_risk,
        .delta = delta,
        .threshold = -INFINITY,
        .n = n,
        .risk = NAN,
        .risk_bound = NAN };
    int rc = check_selector(u, n, max_risk, delta, err);
    if (rc != 0)
        return rc;
    kh_ranked *row;
    rc = kh_rank_rows(&row, u, good, n, err);
    if (rc != 0)
        return rc;
    out->n_needed = rows_needed(max_risk, delta);
    search(out, row, (n + 9) / 10, n);
    kh_free(row);
    describe(out);
    return 0;
}

/* -------------------------------------------------------------------------------------- ladder */

enum { N_LADDER = KH_LADDER_STEPS };
static const double LADDER[N_LADDER] = { 0.05, 0.1, 0.2, 0.3 };

static int half_of(int n) { return (n + 1) / 2; }

/* The share of delta for the start at half of the rows: all of it, where the other start has too
 * few rows to pass anything. That depends on n alone, never on answers. */
static double half_share(double max_risk, double delta, int n) {
    bool few = rows_needed(max_risk, SHARE_FEW * delta) < half_of(n);
    return few ? SHARE_HALF : SHARE_HALF + SHARE_FEW;
}

/* The first rank of the start at half: no less than forgives one error, where there are so many
 * rows, so that a single early one does not end the search. */
static int first_of_half(double max_risk, double level, int n) {
    int m = half_of(n);
    while (m <= n && kh_binomial_cdf(1, m, max_risk) > level)
        m++;
    return m <= n ? m : half_of(n);
}

/* One risk, from half of the rows upwards; if not even half can be answered, from few upwards to
 * half. */
static kh_selector try_risk(const kh_ranked *row, int n, double max_risk, double delta) {
    const double share[] = { half_share(max_risk, delta, n), SHARE_FEW };
    const int start[] = { first_of_half(max_risk, share[0] * delta, n), (n + 9) / 10 };
    const int stop[] = { n, half_of(n) - 1 };
    kh_selector s = { 0 };
    for (int i = 0; i < 2 && s.n_accepted == 0; i++) {
        s = (kh_selector){ .max_risk = max_risk,
            .delta = share[i] * delta,
            .threshold = -INFINITY,
            .n = n,
            .risk = NAN,
            .risk_bound = NAN,
            .n_needed = rows_needed(max_risk, share[i] * delta) };
        search(&s, row, start[i], stop[i]);
        describe(&s);
    }
    s.delta = delta;
    return s;
}

/* The tightest risk that answers half of the rows, or else the one that answers most. */
static void climb(kh_selector *out, const kh_ranked *row, int n, double delta) {
    for (int k = 0; k < N_LADDER; k++) {
        kh_selector s = try_risk(row, n, LADDER[k], delta);
        if (k == 0 || s.n_accepted > out->n_accepted)
            *out = s;
        if (out->n_accepted >= half_of(n))
            return;
    }
}

/* [20b]: the widest threshold whose share of wrong answers, counted as (wrong + 1/2) / (m + 1), is
 * at most a step of the ladder, the tightest step that has one; at least a quarter of the rows. If
 * none has, every row is answered. Adding half an error keeps a few rows without one from looking
 * perfect. No promise: the caller is told that it is an estimate. */
static void estimate(kh_selector *s, const kh_ranked *row) {
    int least = s->n / 4 > 4 ? s->n / 4 : 4;
    least = least < s->n ? least : s->n;
    for (int k = 0; k < N_LADDER; k++)
        for (int rank = s->n; rank >= least; rank--) {
            kh_selector t = accept_first(s, row, rank);
            if (t.n_accepted != rank || (t.n_wrong + 0.5) / (rank + 1) > LADDER[k])
                continue;
            *s = t;
            s->max_risk = LADDER[k];
            return;
        }
    *s = accept_first(s, row, s->n);
    s->max_risk = (s->n_wrong + 0.5) / (s->n + 1);
}

int kh_selector_ladder(
    kh_selector *out, const double *u, const bool *good, int n, double delta, kh_err *err) {
    kh_ranked *row = NULL;
    *out = (kh_selector){ .n = n };
    int rc = check_selector(u, n, LADDER[0], delta, err);
    if (rc == 0)
        rc = kh_rank_rows(&row, u, good, n, err);
    if (rc != 0)
        return rc;
    climb(out, row, n, delta);
    if (out->n_accepted == 0) {
        out->estimate = true;
        estimate(out, row);
        describe(out);
    }
    kh_free(row);
    return 0;
}

/* The fewest rows of which the surer half would pass, with the share of errors that it has now. */
static int rows_for_half(const kh_ranked *row, int n, double max_risk, double delta) {
    enum { TIMES = 20 };
    int wrong = 0, half = half_of(n);
    for (int i = 0; i < half; i++)
        wrong += !row[i].good;
    for (int more = n; more <= TIMES * n; more++) {
        int m = half_of(more), e = (int)ceil((double)wrong * m / half - 1e-9);
        if (kh_binomial_cdf(e, m, max_risk) <= half_share(max_risk, delta, more) * delta)
            return more;
    }
    return 0;
}

int kh_ladder_steps(kh_ladder_step out[KH_LADDER_STEPS], const double *u, const bool *good, int n,
    double delta, kh_err *err) {
    kh_ranked *row = NULL;
    int rc = check_selector(u, n, LADDER[0], delta, err);
    if (rc == 0)
        rc = kh_rank_rows(&row, u, good, n, err);
    for (int k = 0; k < N_LADDER && rc == 0; k++) {
        kh_selector s;
        rc = kh_selector_fit(&s, u, good, n, LADDER[k], delta, err);
        out[k] = (kh_ladder_step){ LADDER[k], rc == 0 ? s.coverage : 0,
            rows_for_half(row, n, LADDER[k], delta) };
    }
    kh_free(row);
    return rc;
}

/* ------------------------------------------------------------------------------- OOD threshold */

static double ood_rank(int n, double keep) { return ceil((n + 1.0) * keep - 1e-9); }

bool kh_ood_enough(int n, double keep) { return ood_rank(n, keep) <= n; }

/* [21]: the ceil((n + 1) keep)-th smallest. With so few rows that the rank is beyond the last,
 * nothing can be turned away at that rate: infinity. */
int kh_ood_threshold(double *t, const double *u, int n, double keep, kh_err *err) {
    *t = INFINITY;
    if (!(keep > 0 && keep < 1))
        return kh_fail(
            err, KH_EARG, "the share of rows to keep is %g, expected between 0 and 1", keep);
    int rc = kh_scores_check(u, n, "rows", err);
    if (rc != 0)
        return rc;
    if (!kh_ood_enough(n, keep))
        return 0;
    double rank = ood_rank(n, keep);
    double *sorted = kh_malloc((size_t)n * sizeof *sorted);
    if (!sorted)
        return kh_fail_memory(err);
    memcpy(sorted, u, (size_t)n * sizeof *sorted);
    kh_sort_doubles(sorted, n);
    *t = sorted[rank < 1 ? 0 : (int)rank - 1];
    kh_free(sorted);
    return 0;
}
