/* decisions.c - when to answer, which classes to name, what to turn away: fitted once, kept beside
 * the posterior, used on every row that comes.
 *
 * decisions.json carries a hash of posterior.json, so that thresholds of one classifier are never
 * used with another. Numbers are written with 17 digits: what is read back decides exactly as what
 * was fitted. */
#include "judge/decisions.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A file that claims more rows or labels than these is not ours; nothing is allocated for it. */
enum { VERSION = 4, MAX_ROWS = 1 << 24, MAX_LABEL = 1 << 16 };

static const struct {
    const char *name, *title;
} SCORES[KH_N_SCORE] = { { "maxp", "1 - max p" }, { "entropy", "entropy" }, { "energy", "energy" },
    { "distance", "distance" }, { "both", "energy and distance" } };

const char *kh_score_name(kh_score s) { return SCORES[s].name; }
const char *kh_score_title(kh_score s) { return SCORES[s].title; }

/* 90 % confidence, sets that miss one time in ten, and one in twenty rows of the task's own kind
 * turned away by mistake: what the documents promise by default. */
kh_decision_opts kh_decision_defaults(void) {
    return (kh_decision_opts){ .score = KH_SCORE_MAXP,
        .foreign = KH_SCORE_ENERGY,
        .max_risk = KH_RISK_LADDER,
        .delta = 0.1,
        .alpha = 0.1,
        .keep = 0.95 };
}

/* ------------------------------------------------------------------------------------- fitting */

/* A row's score, by which one it may be. Energy and distance come from outside the distribution p;
 * the others are functions of it. */
static double score_of(kh_score s, const double *p, int n_label, double outside) {
    return s > KH_SCORE_ENTROPY ? outside : kh_uncertainty(s, p, n_label);
}

int kh_decisions_outside(kh_decisions *d, const double *u, int n, kh_err *err) {
    return kh_ood_threshold(&d->ood, u, n, d->opts.keep, err);
}

/* The threshold of what is foreign, by opts.foreign. u [n] is scratch. */
static int fit_foreign(
    kh_decisions *out, const kh_answers *dev, const double *outside, double *u, kh_err *err) {
    for (int i = 0; i < dev->n; i++)
        u[i] = score_of(out->opts.foreign, dev->p + (size_t)i * (size_t)dev->n_label, dev->n_label,
            outside ? outside[i] : NAN);
    return kh_decisions_outside(out, u, dev->n, err);
}

/* By the risk that was asked for, or by the ladder. */
static int fit_selector(
    kh_decisions *out, const double *u, const bool *good, int n, double max_risk, kh_err *err) {
    int rc = max_risk < 0
        ? kh_selector_ladder(&out->selector, u, good, n, out->opts.delta, err)
        : kh_selector_fit(&out->selector, u, good, n, max_risk, out->opts.delta, err);
    out->by_ladder = max_risk < 0;
    out->opts.max_risk = out->selector.max_risk;
    return rc;
}

static int scores_and_rights(
    const kh_answers *a, kh_score score, double **u, bool **good, kh_err *err) {
    *u = kh_malloc((size_t)a->n * sizeof **u);
    *good = kh_malloc((size_t)a->n * sizeof **good);
    for (int i = 0; i < a->n && *u && *good; i++) {
        const double *p = a->p + (size_t)i * (size_t)a->n_label;
        (*u)[i] = kh_uncertainty(score, p, a->n_label);
        (*good)[i] = kh_predicted(p, a->n_label) == a->label[i];
    }
    return *u && *good ? 0 : kh_fail_memory(err);
}

/* Energy and distance tell what kind of text it is, not whether the answer is right: they may turn
 * rows away, but never decide whether to answer. */
int kh_decisions_fit(kh_decisions *out, const kh_answers *dev, const double *outside,
    const kh_decision_opts *o, kh_err *err) {
    *out = (kh_decisions){ .opts = *o, .n = dev->n, .n_label = dev->n_label, .ood = INFINITY };
    if (o->foreign > KH_SCORE_ENTROPY && !outside)
        out->opts.foreign = o->score;
    int rc = kh_answers_check(dev, err);
    if (rc == 0 && out->opts.foreign == KH_SCORE_BOTH && !kh_both_known(&o->both))
        rc = kh_fail(err, KH_EARG,
            "energy and distance are no score yet: kh_both_fit tells their middle and spread");
    if (rc == 0 && o->score > KH_SCORE_ENTROPY)
        rc = kh_fail(err, KH_EARG,
            "%s cannot decide when to abstain: it says nothing of right or wrong; maxp and "
            "entropy do",
            kh_score_name(o->score));
    if (rc != 0)
        return rc;
    double *u;
    bool *good;
    rc = scores_and_rights(dev, o->score, &u, &good, err);
    if (rc == 0 && o->max_risk != 0)
        rc = fit_selector(out, u, good, dev->n, o->max_risk, err);
    if (rc == 0 && o->alpha > 0)
        rc = kh_conformal_fit(&out->conformal, dev, o->alpha, o->per_class, err);
    if (rc == 0)
        rc = fit_foreign(out, dev, outside, u, err);
    kh_free(u);
    kh_free(good);
    return rc;
}

/* The same thresholds from other rows: cross-fitted answers, where the dev rows have been learned
 * from. */
int kh_decisions_select(kh_decisions *d, const kh_answers *rows, kh_err *err) {
    double *u;
    bool *good;
    double asked = d->by_ladder ? KH_RISK_LADDER : d->opts.max_risk;
    int rc = kh_answers_check(rows, err);
    if (rc != 0)
        return rc;
    rc = scores_and_rights(rows, d->opts.score, &u, &good, err);
    if (rc == 0 && d->opts.max_risk != 0)
        rc = fit_selector(d, u, good, rows->n, asked, err);
    kh_free(u);
    kh_free(good);
    if (rc == 0 && d->opts.alpha > 0) {
        kh_conformal_free(&d->conformal);
        rc = kh_conformal_fit(&d->conformal, rows, d->opts.alpha, d->opts.per_class, err);
    }
    return rc;
}

void kh_decisions_chosen_on(kh_decisions *d) { d->selector.estimate |= d->selector.n_accepted > 0; }

int kh_decisions_steps(const kh_decisions *d, const kh_answers *rows,
    kh_ladder_step out[KH_LADDER_STEPS], kh_err *err) {
    double *u;
    bool *good;
    int rc = scores_and_rights(rows, d->opts.score, &u, &good, err);
    if (rc == 0)
        rc = kh_ladder_steps(out, u, good, rows->n, d->opts.delta, err);
    kh_free(u);
    kh_free(good);
    return rc;
}

void kh_decisions_free(kh_decisions *d) { kh_conformal_free(&d->conformal); }

/* A row's own number, so that the same text is decided the same way wherever it stands. The uniform
 * number that splits ties of sets is named by the text itself: asking twice gives the same set. */
static int row_number(const kh_row *row) {
    uint64_t h = kh_hash64_more(KH_HASH64_START, row->a, row->n_a);
    if (row->b)
        h = kh_hash64_more(kh_hash64_more(h, "\t", 1), row->b, row->n_b);
    return (int)(h >> 33);
}

int kh_decisions_check(
    const kh_decisions *d, kh_predictor *predictor, const char *run, kh_err *err) {
    kh_score by = d->opts.foreign;
    if ((by == KH_SCORE_DISTANCE || by == KH_SCORE_BOTH) && !kh_predictor_distance(predictor))
        return kh_fail(err, KH_EMISMATCH,
            "%s: its decisions go by distances to the texts of tuning, and the encoder of those is "
            "not to be had or has changed; \"keyhole eval %s\" makes them anew",
            run, run);
    if ((by != KH_SCORE_ENERGY && by != KH_SCORE_BOTH) || kh_predictor_energy(predictor))
        return 0;
    return kh_fail(err, KH_EMISMATCH,
        "%s: its decisions go by energies, which this box does not show; \"keyhole eval %s\" with "
        "the same --model makes them anew",
        run, run);
}

double kh_outside(const kh_decisions *d, double energy, double distance) {
    if (d->opts.foreign == KH_SCORE_BOTH)
        return kh_both_score(&d->opts.both, energy, distance);
    return d->opts.foreign == KH_SCORE_DISTANCE ? distance : energy;
}

kh_decision kh_decide(
    const kh_decisions *d, const kh_row *row, const double *p, double outside, bool *in) {
    kh_decision out = { .score = kh_uncertainty(d->opts.score, p, d->n_label), .set_size = -1 };
    out.ood_score = score_of(d->opts.foreign, p, d->n_label, outside);
    out.unsure = d->opts.max_risk > 0 && !(out.score < d->selector.threshold);
    out.foreign = out.ood_score > d->ood;
    out.abstain = out.unsure || out.foreign;
    if (d->opts.alpha > 0 && in)
        out.set_size =
            kh_conformal_set(&d->conformal, p, kh_conformal_tie(d->opts.seed, row_number(row)), in);
    return out;
}

/* ------------------------------------------------------------------------------------- writing */

const char *kh_selector_answers(const kh_selector *s) {
    if (s->n_accepted == 0)
        return "never";
    return isinf(s->threshold) ? "always" : "below threshold";
}

enum { DIGITS = 17 }; /* a double comes back as it was */

static void put_selector(kh_json_out *j, const kh_selector *s) {
    kh_json_open_object(j, "selector");
    kh_json_put_number(j, "max_risk", s->max_risk, DIGITS);
    kh_json_put_number(j, "delta", s->delta, DIGITS);
    kh_json_put_bool(j, "estimate", s->estimate);
    kh_json_put_string(j, "answers", kh_selector_answers(s));
    kh_json_put_number(j, "threshold", s->threshold, DIGITS);
    kh_json_gap(j, "\n    ");
    kh_json_put_int(j, "rows", s->n);
    kh_json_put_int(j, "accepted", s->n_accepted);
    kh_json_put_int(j, "wrong", s->n_wrong);
    kh_json_put_int(j, "needed", s->n_needed);
    kh_json_put_number(j, "risk", s->risk, DIGITS);
    kh_json_put_number(j, "risk_bound", s->risk_bound, DIGITS);
    kh_json_gap(j, "\n    ");
    kh_json_put_number(j, "coverage", s->coverage, DIGITS);
    kh_json_put_number(j, "coverage_low", s->coverage_low, DIGITS);
    kh_json_put_number(j, "coverage_high", s->coverage_high, DIGITS);
    kh_json_close(j);
}

static void put_maps(kh_json_out *j, const kh_conformal *c) {
    kh_json_gap(j, "\n    ");
    kh_json_put_ints(j, "map", c->map, (size_t)c->start[c->n_label]);
    kh_json_gap(j, "\n    ");
    kh_json_put_numbers(j, "slope", c->slope, (size_t)c->n_map, DIGITS);
    kh_json_gap(j, "\n    ");
    kh_json_put_numbers(j, "shift", c->shift, (size_t)c->n_map * (size_t)c->n_label, DIGITS);
}

static void put_conformal(kh_json_out *j, const kh_conformal *c) {
    kh_json_open_object(j, "conformal");
    kh_json_put_number(j, "alpha", c->alpha, DIGITS);
    kh_json_put_bool(j, "per_class", c->per_class);
    kh_json_put_number(j, "min_alpha", c->min_alpha, DIGITS);
    kh_json_gap(j, "\n    ");
    kh_json_put_ints(j, "start", c->start, (size_t)c->n_label + 1);
    kh_json_gap(j, "\n    ");
    kh_json_put_numbers(j, "scores", c->score, (size_t)c->start[c->n_label], DIGITS);
    if (c->n_map > 0)
        put_maps(j, c);
    kh_json_close(j);
}

static const char *const PARTS[] = { "energy", "distance" }; /* of a score by both */

void kh_decisions_json(const kh_decisions *d, kh_json_out *j) {
    kh_json_gap(j, "\n  ");
    kh_json_put_int(j, "rows", d->n);
    kh_json_put_int(j, "classes", d->n_label);
    kh_json_put_string(j, "score", kh_score_name(d->opts.score));
    kh_json_put_u64(j, "seed", d->opts.seed);
    kh_json_gap(j, "\n  ");
    if (d->opts.max_risk > 0)
        put_selector(j, &d->selector);
    else
        kh_json_put_null(j, "selector");
    kh_json_gap(j, "\n  ");
    if (d->opts.alpha > 0)
        put_conformal(j, &d->conformal);
    else
        kh_json_put_null(j, "conformal");
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "ood");
    kh_json_put_string(j, "score", kh_score_name(d->opts.foreign));
    kh_json_put_number(j, "keep", d->opts.keep, DIGITS);
    kh_json_put_number(j, "threshold", d->ood, DIGITS);
    for (int k = 0; k < 2 && d->opts.foreign == KH_SCORE_BOTH; k++) {
        kh_json_open_object(j, PARTS[k]);
        kh_json_put_number(j, "middle", d->opts.both.middle[k], DIGITS);
        kh_json_put_number(j, "spread", d->opts.both.spread[k], DIGITS);
        kh_json_close(j);
    }
    kh_json_close(j);
    if (d->warning[0]) {
        kh_json_gap(j, "\n  ");
        kh_json_put_string(j, "warning", d->warning);
    }
}

void kh_decisions_file(const kh_decisions *d, uint64_t stamp, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_gap(&j, "\n  ");
    kh_json_put_string(&j, "schema", "keyhole-decisions");
    kh_json_put_int(&j, "version", VERSION);
    kh_json_put_string(&j, "keyhole", kh_version());
    kh_json_put_hex(&j, "posterior", stamp);
    kh_decisions_json(d, &j);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* ------------------------------------------------------------------------------------- reading */

typedef struct reader {
    kh_decisions *d;
    const char *name;
    kh_err *err;
} reader;

/* A number, or null for what has none. */
static int read_threshold(
    const reader *r, const json_t *o, const char *key, double none, double *out) {
    const json_t *v = json_object_get(o, key);
    *out = none;
    return json_is_null(v) ? 0 : kh_json_number(o, key, out, r->name, r->err);
}

static int read_selector(reader *r, const json_t *o) {
    kh_selector *s = &r->d->selector;
    const char *answers = "";
    int rc = kh_json_number(o, "max_risk", &s->max_risk, r->name, r->err);
    if (rc == 0)
        rc = kh_json_number(o, "delta", &s->delta, r->name, r->err);
    if (rc == 0)
        rc = kh_json_bool_opt(o, "estimate", &s->estimate, r->name, r->err);
    if (rc == 0)
        rc = kh_json_string(o, "answers", &answers, r->name, r->err);
    struct {
        const char *key;
        int *out;
    } counts[] = { { "rows", &s->n }, { "accepted", &s->n_accepted }, { "wrong", &s->n_wrong },
        { "needed", &s->n_needed } };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && rc == 0; i++)
        rc = kh_json_int(o, counts[i].key, 0, INT32_MAX, counts[i].out, r->name, r->err);
    struct {
        const char *key;
        double *out;
    } numbers[] = { { "risk", &s->risk }, { "risk_bound", &s->risk_bound },
        { "coverage", &s->coverage }, { "coverage_low", &s->coverage_low },
        { "coverage_high", &s->coverage_high } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && rc == 0; i++)
        rc = read_threshold(r, o, numbers[i].key, NAN, numbers[i].out);
    if (rc == 0)
        rc = read_threshold(
            r, o, "threshold", s->n_accepted > 0 ? INFINITY : -INFINITY, &s->threshold);
    if (rc == 0 &&
        (!(s->max_risk > 0 && s->max_risk <= 1) || strcmp(answers, kh_selector_answers(s)) != 0))
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: \"selector\" contradicts itself: it answers \"%s\"; \"keyhole eval\" writes it "
            "anew",
            r->name, answers);
    r->d->opts.max_risk = s->max_risk;
    r->d->opts.delta = s->delta;
    return rc;
}

static int read_scores(reader *r, const json_t *start, const json_t *scores) {
    kh_conformal *c = &r->d->conformal;
    size_t n = json_array_size(scores);
    if (!json_is_array(start) || !json_is_array(scores) ||
        json_array_size(start) != (size_t)c->n_label + 1 || n > MAX_ROWS)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"start\" must hold %d numbers and \"scores\" at most %d", r->name, c->n_label + 1,
            MAX_ROWS);
    c->start = kh_calloc((size_t)c->n_label + 1, sizeof *c->start);
    c->score = kh_malloc(n * sizeof *c->score);
    if (!c->start || !c->score)
        return kh_fail_memory(r->err);
    bool good = true;
    for (size_t k = 0; k <= (size_t)c->n_label && good; k++) {
        json_int_t v = json_integer_value(json_array_get(start, k));
        good = v >= (k ? c->start[k - 1] : 0) && v <= (json_int_t)n && (k > 0 || v == 0) &&
            (k < (size_t)c->n_label || v == (json_int_t)n);
        c->start[k] = (int)v;
    }
    for (size_t i = 0; i < n && good; i++) {
        const json_t *v = json_array_get(scores, i);
        c->score[i] = json_number_value(v);
        good = json_is_number(v) && isfinite(c->score[i]);
    }
    for (int k = 0; k < c->n_label && good; k++)
        for (int i = c->start[k] + 1; i < c->start[k + 1]; i++)
            good &= c->score[i - 1] <= c->score[i];
    return good ? 0
                : kh_fail(r->err, KH_EFORMAT,
                      "%s: \"start\" and \"scores\" must ascend, class by class", r->name);
}

/* n finite numbers into fresh memory. */
static int read_numbers(const reader *r, const json_t *o, const char *key, size_t n, double **out) {
    const json_t *list = json_object_get(o, key);
    bool good = json_is_array(list) && json_array_size(list) == n;
    *out = good ? kh_malloc((n + 1) * sizeof **out) : NULL;
    if (good && !*out)
        return kh_fail_memory(r->err);
    for (size_t i = 0; i < n && good; i++) {
        const json_t *v = json_array_get(list, i);
        (*out)[i] = json_number_value(v);
        good = json_is_number(v) && isfinite((*out)[i]);
    }
    return good ? 0
                : kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must hold %zu numbers", r->name, key, n);
}

/* Jackknife+: a map for each score. */
static int read_maps(reader *r, const json_t *o) {
    kh_conformal *c = &r->d->conformal;
    const json_t *list = json_object_get(o, "map");
    size_t n = (size_t)c->start[c->n_label], maps = json_array_size(json_object_get(o, "slope"));
    if (!list)
        return 0;
    bool good = json_is_array(list) && json_array_size(list) == n && maps > 0 && maps <= n;
    c->map = good ? kh_malloc((n + 1) * sizeof *c->map) : NULL;
    if (good && !c->map)
        return kh_fail_memory(r->err);
    for (size_t i = 0; i < n && good; i++) {
        json_int_t v = json_integer_value(json_array_get(list, i));
        good = json_is_integer(json_array_get(list, i)) && v >= 0 && v < (json_int_t)maps;
        c->map[i] = (int)v;
    }
    if (!good)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"map\" must name one of the maps of \"slope\" for each of %zu scores", r->name,
            n);
    int rc = read_numbers(r, o, "slope", maps, &c->slope);
    if (rc == 0)
        rc = read_numbers(r, o, "shift", maps * (size_t)c->n_label, &c->shift);
    c->n_map = rc == 0 ? (int)maps : 0;
    return rc;
}

static int read_conformal(reader *r, const json_t *o) {
    kh_conformal *c = &r->d->conformal;
    c->n_label = r->d->n_label;
    int rc = kh_json_number(o, "alpha", &c->alpha, r->name, r->err);
    if (rc == 0)
        rc = kh_json_number(o, "min_alpha", &c->min_alpha, r->name, r->err);
    if (rc == 0)
        rc = kh_json_bool(o, "per_class", &c->per_class, r->name, r->err);
    if (rc == 0 && !(c->alpha > 0 && c->alpha < 1))
        rc = kh_fail(
            r->err, KH_EFORMAT, "%s: \"alpha\" is %g, expected between 0 and 1", r->name, c->alpha);
    if (rc == 0)
        rc = read_scores(r, json_object_get(o, "start"), json_object_get(o, "scores"));
    if (rc == 0)
        rc = read_maps(r, o);
    r->d->opts.alpha = c->alpha;
    r->d->opts.per_class = c->per_class;
    return rc;
}

/* One of the scores up to `last`. */
static int read_score(reader *r, const json_t *o, kh_score last, kh_score *out) {
    const char *score;
    int rc = kh_json_string(o, "score", &score, r->name, r->err), s = 0;
    if (rc != 0)
        return rc;
    while (s <= (int)last && strcmp(score, SCORES[s].name) != 0)
        s++;
    if (s > (int)last)
        return kh_fail(r->err, KH_EFORMAT, "%s: \"score\" must be %s, not \"%s\"", r->name,
            last == KH_SCORE_BOTH ? "maxp, entropy, energy, distance or both" : "maxp or entropy",
            score);
    *out = (kh_score)s;
    return 0;
}

static int read_both(reader *r, const json_t *ood) {
    kh_both *b = &r->d->opts.both;
    int rc = 0;
    for (int k = 0; k < 2 && rc == 0; k++) {
        const json_t *o = json_object_get(ood, PARTS[k]);
        if (!json_is_object(o))
            return kh_fail(r->err, KH_EFORMAT,
                "%s: \"ood\" goes by both energy and distance, and \"%s\" is not in it", r->name,
                PARTS[k]);
        rc = kh_json_number(o, "middle", &b->middle[k], r->name, r->err);
        if (rc == 0)
            rc = kh_json_number(o, "spread", &b->spread[k], r->name, r->err);
    }
    if (rc == 0 && !kh_both_known(b))
        rc = kh_fail(r->err, KH_EFORMAT, "%s: a \"spread\" must be above 0", r->name);
    return rc;
}

static int read_head(reader *r, const json_t *root, uint64_t *stamp) {
    const char *schema, *posterior;
    int version, rc = kh_json_string(root, "schema", &schema, r->name, r->err);
    if (rc == 0 && strcmp(schema, "keyhole-decisions") != 0)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"schema\" is \"%s\", expected \"keyhole-decisions\"",
            r->name, schema);
    if (rc == 0)
        rc = kh_json_int(root, "version", 1, INT32_MAX, &version, r->name, r->err);
    if (rc == 0 && version > VERSION)
        rc = kh_fail(r->err, KH_EUNSUPPORTED,
            "%s: written in version %d by a later keyhole; this one reads up to %d", r->name,
            version, VERSION);
    if (rc == 0)
        rc = kh_json_string(root, "posterior", &posterior, r->name, r->err);
    if (rc == 0)
        *stamp = strtoull(posterior, NULL, 16);
    if (rc == 0)
        rc = kh_json_int(root, "rows", 1, MAX_ROWS, &r->d->n, r->name, r->err);
    if (rc == 0)
        rc = kh_json_int(root, "classes", 2, MAX_LABEL, &r->d->n_label, r->name, r->err);
    if (rc == 0)
        rc = read_score(r, root, KH_SCORE_ENTROPY, &r->d->opts.score);
    if (rc == 0) {
        const json_t *seed = json_object_get(root, "seed");
        r->d->opts.seed = json_is_string(seed) ? strtoull(json_string_value(seed), NULL, 10)
                                               : (uint64_t)json_integer_value(seed);
    }
    return rc;
}

int kh_decisions_parse(
    kh_decisions *out, const char *text, size_t n, const char *name, uint64_t *stamp, kh_err *err) {
    *out = (kh_decisions){ .ood = INFINITY };
    reader r = { out, name, err };
    json_t *root;
    int rc = kh_json_parse(text, n, name, &root, err);
    if (rc == 0 && !json_is_object(root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must hold a JSON object", name);
    if (rc == 0)
        rc = read_head(&r, root, stamp);
    struct {
        const char *key;
        int (*read)(reader *, const json_t *);
    } parts[] = { { "selector", read_selector }, { "conformal", read_conformal } };
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        const json_t *o = json_object_get(root, parts[i].key);
        if (json_is_object(o))
            rc = parts[i].read(&r, o);
        else if (!json_is_null(o))
            rc = kh_fail(
                err, KH_EFORMAT, "%s: \"%s\" must be an object or null", name, parts[i].key);
    }
    const json_t *ood = rc == 0 ? json_object_get(root, "ood") : NULL;
    if (rc == 0)
        rc = json_is_object(ood) ? kh_json_number(ood, "keep", &out->opts.keep, name, err)
                                 : kh_fail(err, KH_EFORMAT, "%s: \"ood\" must be an object", name);
    out->opts.foreign = out->opts.score; /* version 1 had one score for both */
    if (rc == 0 && json_object_get(ood, "score"))
        rc = read_score(&r, ood, KH_SCORE_BOTH, &out->opts.foreign);
    if (rc == 0 && out->opts.foreign == KH_SCORE_BOTH)
        rc = read_both(&r, ood);
    if (rc == 0)
        rc = read_threshold(&r, ood, "threshold", INFINITY, &out->ood);
    const char *warning = "";
    if (rc == 0)
        rc = kh_json_string_opt(root, "warning", &warning, name, err);
    snprintf(out->warning, sizeof out->warning, "%s", warning);
    kh_hide_controls(out->warning);
    json_decref(root);
    return rc;
}
