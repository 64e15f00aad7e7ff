/* test_judge_decisions.c - decisions fitted, kept beside a posterior, read back and refused;
 * predictions of foreign rows. */
#include "tiny.h"

#include "judge/decisions.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "prompt/target.h"

#include <math.h>

/* cmocka's own compares floats. */
#define assert_near(a, b, within) assert_true(fabs((double)(a) - (double)(b)) <= (within))

enum { N = 60, K = 2 };

static char dir[80];
static kh_plm *plm;
static const kh_task *task;

static int open_all(void **state) {
    tiny_setup(state);
    plm = tiny_open(KH_ACCESS_LOGPROBS);
    task = tiny_task();
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-decisions-%ld", (long)getpid());
    return 0;
}

static int close_all(void **state) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors",
        "decisions.json", NULL };
    tiny_remove(dir, FILES);
    kh_task_close(task);
    kh_plm_close(plm);
    return tiny_teardown(state);
}

static kh_posterior *manual(const char *method) {
    kh_posterior *p;
    assert_int_equal(kh_posterior_new(&p, method, plm, task, NULL), 0);
    assert_int_equal(kh_posterior_add(p, NULL, 0, NULL), 0);
    p->model = kh_posterior_keep(p, "m");
    return p;
}

static void save_posterior(const char *method) {
    kh_posterior *p = manual(method);
    kh_err err;
    if (kh_posterior_save(p, dir, &err) != 0)
        fail_msg("%s", err.msg);
    kh_posterior_free(p);
}

/* Answers that are right unless unsure. */
static kh_answers answers(double *p, int *label) {
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++) {
        double c = 0.5 + 0.5 * (i + 1) / (N + 1);
        label[i] = i % 2;
        int said = c < 0.6 && kh_rng_below(&r, 2) ? 1 - label[i] : label[i];
        p[2 * i + said] = c;
        p[2 * i + 1 - said] = 1 - c;
    }
    return (kh_answers){ p, label, N, K };
}

static kh_decisions fitted(void) {
    static double p[N * K];
    static int label[N];
    kh_answers a = answers(p, label);
    kh_decision_opts o = kh_decision_defaults();
    kh_decisions d;
    kh_err err;
    if (kh_decisions_fit(&d, &a, NULL, &o, &err) != 0)
        fail_msg("%s", err.msg);
    return d;
}

static void fit_is_what_its_parts_are(void **state) {
    (void)state;
    double p[N * K], u[N];
    int label[N];
    bool good[N];
    kh_answers a = answers(p, label);
    kh_decisions d = fitted();
    kh_selector s;
    double t;
    for (int i = 0; i < N; i++) {
        u[i] = kh_uncertainty(KH_SCORE_MAXP, p + 2 * i, K);
        good[i] = kh_predicted(p + 2 * i, K) == label[i];
    }
    assert_int_equal(kh_selector_ladder(&s, u, good, N, 0.1, NULL), 0);
    assert_int_equal(kh_ood_threshold(&t, u, N, 0.95, NULL), 0);
    assert_true(d.selector.threshold == s.threshold && s.n_accepted > 0);
    assert_true(d.ood == t && isfinite(t));
    assert_int_equal(d.conformal.start[2], N);
    assert_int_equal(d.n, N);
    (void)a;
    kh_decisions_free(&d);
}

static void parts_can_be_left_out(void **state) {
    (void)state;
    double p[N * K];
    int label[N];
    kh_answers a = answers(p, label);
    kh_decision_opts o = { .keep = 0.95, .score = KH_SCORE_ENTROPY };
    kh_decisions d;
    bool in[2] = { true, true };
    assert_int_equal(kh_decisions_fit(&d, &a, NULL, &o, NULL), 0);
    kh_decision one =
        kh_decide(&d, &(kh_row){ .a = "x", .n_a = 1 }, (double[]){ 0.5, 0.5 }, NAN, in);
    assert_false(one.unsure);
    assert_int_equal(one.set_size, -1);
    assert_true(one.foreign && one.abstain); /* what is not its kind of text is not answered */
    assert_near(one.score, log(2), 1e-9);
    one = kh_decide(&d, &(kh_row){ .a = "x", .n_a = 1 }, (double[]){ 1, 0 }, NAN, in);
    assert_true(!one.foreign && !one.abstain && !one.unsure);
    kh_decisions_free(&d);
}

/* Energies tell what is foreign and nothing else; where there are none, the score of p does. */
static void energies_decide_what_is_foreign(void **state) {
    (void)state;
    double p[N * K], energy[N], t;
    int label[N];
    kh_answers a = answers(p, label);
    kh_decision_opts o = kh_decision_defaults();
    kh_decisions d, plain;
    kh_err err;
    for (int i = 0; i < N; i++)
        energy[i] = -10 + 0.01 * ((i * 37) % N);
    assert_int_equal(kh_decisions_fit(&plain, &a, NULL, &o, NULL), 0);
    assert_int_equal(kh_decisions_fit(&d, &a, energy, &o, NULL), 0);
    assert_int_equal(kh_ood_threshold(&t, energy, N, 0.95, NULL), 0);
    assert_true(d.ood == t && d.opts.foreign == KH_SCORE_ENERGY);
    assert_true(d.selector.threshold == plain.selector.threshold &&
        plain.opts.foreign == KH_SCORE_MAXP && plain.ood != t);
    kh_row row = { .a = "x", .n_a = 1 };
    kh_decision in = kh_decide(&d, &row, (double[]){ 0.5, 0.5 }, t, NULL);
    kh_decision out = kh_decide(&d, &row, (double[]){ 0.5, 0.5 }, t + 1e-9, NULL);
    assert_true(!in.foreign && out.foreign && out.ood_score == t + 1e-9 && out.score == 0.5 &&
        out.abstain == in.abstain);
    assert_false(kh_decide(&d, &row, (double[]){ 0.5, 0.5 }, NAN, NULL).foreign);
    save_posterior("one");
    kh_decisions e;
    assert_int_equal(kh_decisions_save(&d, dir, NULL), 0);
    assert_int_equal(kh_decisions_open(&e, dir, NULL), 0);
    assert_true(
        e.opts.foreign == KH_SCORE_ENERGY && e.opts.score == KH_SCORE_MAXP && e.ood == d.ood);
    o.foreign = KH_SCORE_ENTROPY; /* asked for, it decides, energies or not */
    kh_decisions f;
    assert_int_equal(kh_decisions_fit(&f, &a, energy, &o, NULL), 0);
    assert_true(f.opts.foreign == KH_SCORE_ENTROPY && f.ood > 0);
    kh_decisions_free(&f);
    o.score = KH_SCORE_ENERGY;
    assert_int_equal(kh_decisions_fit(&f, &a, energy, &o, &err), KH_EARG);
    assert_says(&err,
        "energy cannot decide when to abstain: it says nothing of right or wrong; maxp and entropy "
        "do");
    kh_decisions_free(&d);
    kh_decisions_free(&e);
    kh_decisions_free(&f);
    kh_decisions_free(&plain);
}

/* Energy and distance as one score: fitted, kept with what they are measured in, read back. */
static void both_decide_what_is_foreign(void **state) {
    (void)state;
    double p[N * K], energy[N], distance[N], u[N], t;
    int label[N];
    kh_answers a = answers(p, label);
    kh_decision_opts o = kh_decision_defaults();
    kh_decisions d, e;
    kh_err err;
    o.foreign = KH_SCORE_BOTH;
    for (int i = 0; i < N; i++) {
        energy[i] = -10 + 0.01 * ((i * 37) % N);
        distance[i] = 0.2 + 0.003 * ((i * 23) % N);
    }
    assert_int_equal(kh_decisions_fit(&d, &a, energy, &o, &err), KH_EARG);
    assert_says(&err, "energy and distance are no score yet: kh_both_fit");
    kh_decisions_free(&d);
    assert_int_equal(kh_both_fit(&o.both, energy, distance, N, u, NULL), 0);
    assert_int_equal(kh_decisions_fit(&d, &a, u, &o, NULL), 0);
    assert_int_equal(kh_ood_threshold(&t, u, N, 0.95, NULL), 0);
    assert_true(d.ood == t && d.opts.foreign == KH_SCORE_BOTH);
    save_posterior("one");
    assert_int_equal(kh_decisions_save(&d, dir, NULL), 0);
    assert_int_equal(kh_decisions_open(&e, dir, NULL), 0);
    assert_true(e.opts.foreign == KH_SCORE_BOTH && e.ood == d.ood);
    assert_memory_equal(&e.opts.both, &d.opts.both, sizeof d.opts.both);
    kh_row row = { .a = "x", .n_a = 1 };
    const double half[] = { 0.5, 0.5 };
    const struct {
        double energy, distance;
        bool foreign;
    } rows[] = { { -9.7, 0.29, false }, { 0, 0.29, true }, { -9.7, 1, true }, { -30, 1, true },
        { NAN, 1, false }, { 0, NAN, false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double outside = kh_outside(&e, rows[i].energy, rows[i].distance);
        assert_true(kh_decide(&e, &row, half, outside, NULL).foreign == rows[i].foreign);
    }
    e.opts.foreign = KH_SCORE_DISTANCE;
    assert_true(kh_outside(&e, 1, 2) == 2);
    e.opts.foreign = KH_SCORE_ENERGY;
    assert_true(kh_outside(&e, 1, 2) == 1);
    kh_decisions_free(&d);
    kh_decisions_free(&e);
}

static void decisions_by_energy_need_a_box_that_shows_them(void **state) {
    (void)state;
    kh_decisions d = fitted();
    kh_posterior *p = manual("manual");
    kh_predictor *knows, *votes;
    kh_err err;
    assert_int_equal(kh_predictor_new(&knows, p, plm, NULL, NULL), 0);
    p->access = KH_ACCESS_LABELS;
    assert_int_equal(kh_predictor_new(&votes, p, plm, NULL, NULL), 0);
    assert_true(kh_predictor_energy(knows) && !kh_predictor_energy(votes));
    assert_int_equal(kh_decisions_check(&d, votes, "run", &err), 0);
    d.opts.foreign = KH_SCORE_ENERGY;
    assert_int_equal(kh_decisions_check(&d, knows, "run", &err), 0);
    assert_int_equal(kh_decisions_check(&d, votes, "run", &err), KH_EMISMATCH);
    assert_says(&err,
        "run: its decisions go by energies, which this box does not show; \"keyhole eval run\" "
        "with the same");
    d.opts.foreign = KH_SCORE_BOTH; /* of which neither is to be had here */
    assert_int_equal(kh_decisions_check(&d, knows, "run", &err), KH_EMISMATCH);
    assert_says(&err, "run: its decisions go by distances to the texts of tuning");
    kh_predictor_free(knows);
    kh_predictor_free(votes);
    kh_posterior_free(p);
    kh_decisions_free(&d);
}

static void a_text_is_decided_alike_wherever_it_stands(void **state) {
    (void)state;
    kh_decisions d = fitted();
    bool in[2];
    int sizes[3] = { 0 };
    for (int i = 0; i < 200; i++) { /* all rows tie: the text alone decides */
        char text[32];
        snprintf(text, sizeof text, "text %d", i);
        kh_row row = { .a = text, .n_a = strlen(text), .line = i }, again = row;
        again.line = 1000 - i;
        double p[] = { d.conformal.score[N - 5], 1 - d.conformal.score[N - 5] };
        int size = kh_decide(&d, &row, p, NAN, in).set_size;
        assert_int_equal(size, kh_decide(&d, &again, p, NAN, in).set_size);
        sizes[size]++;
    }
    assert_true(sizes[0] + sizes[1] + sizes[2] == 200);
    kh_decisions_free(&d);
}

static void saved_and_opened_it_decides_the_same(void **state) {
    (void)state;
    save_posterior("one");
    kh_decisions d = fitted(), e;
    kh_err err;
    assert_int_equal(kh_decisions_save(&d, dir, &err), 0);
    if (kh_decisions_open(&e, dir, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(d.selector.threshold == e.selector.threshold && d.ood == e.ood);
    assert_int_equal(e.n_label, K);
    assert_int_equal(memcmp(d.conformal.score, e.conformal.score, N * sizeof(double)), 0);
    assert_int_equal(memcmp(d.conformal.start, e.conformal.start, 3 * sizeof(int)), 0);
    assert_true(e.opts.max_risk == 0.1 && e.opts.alpha == 0.1 && e.opts.keep == 0.95 &&
        e.opts.score == KH_SCORE_MAXP);
    for (int i = 0; i < 100; i++) {
        double p[] = { i / 99.0, 1 - i / 99.0 };
        bool a[2], b[2];
        kh_row row = { .a = "abc", .n_a = (size_t)(i % 4) };
        kh_decision x = kh_decide(&d, &row, p, NAN, a), y = kh_decide(&e, &row, p, NAN, b);
        assert_true(x.abstain == y.abstain && x.foreign == y.foreign && x.set_size == y.set_size &&
            a[0] == b[0] && a[1] == b[1]);
    }
    kh_decisions_free(&d);
    kh_decisions_free(&e);
}

/* Maps of rows that taught the calibrator are kept, one for each score. */
static void maps_are_kept(void **state) {
    (void)state;
    save_posterior("one");
    kh_decisions d = fitted(), e;
    kh_conformal *c = &d.conformal;
    kh_err err;
    c->n_map = 3;
    c->map = kh_malloc(N * sizeof *c->map);
    c->slope = kh_malloc(3 * sizeof *c->slope);
    c->shift = kh_malloc(3 * K * sizeof *c->shift);
    for (int i = 0; i < N; i++)
        c->map[i] = i * 2 % 3;
    for (int i = 0; i < 3; i++) {
        c->slope[i] = 0.7 + i / 3.0;
        c->shift[2 * i] = i / 7.0;
        c->shift[2 * i + 1] = 0.1 - c->shift[2 * i];
    }
    assert_int_equal(kh_decisions_save(&d, dir, &err), 0);
    if (kh_decisions_open(&e, dir, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(e.conformal.n_map, 3);
    assert_memory_equal(e.conformal.map, c->map, N * sizeof *c->map);
    assert_memory_equal(e.conformal.slope, c->slope, 3 * sizeof *c->slope);
    assert_memory_equal(e.conformal.shift, c->shift, 3 * K * sizeof *c->shift);
    kh_decisions_free(&d);
    kh_decisions_free(&e);
}

static void infinities_survive(void **state) {
    (void)state;
    save_posterior("one");
    for (int always = 0; always < 2; always++) {
        kh_decisions d = fitted(), e;
        d.selector.threshold = always ? INFINITY : -INFINITY;
        d.selector.n_accepted = always ? N : 0;
        d.ood = INFINITY;
        assert_int_equal(kh_decisions_save(&d, dir, NULL), 0);
        assert_int_equal(kh_decisions_open(&e, dir, NULL), 0);
        assert_true(e.selector.threshold == d.selector.threshold && isinf(e.ood));
        kh_decision one =
            kh_decide(&e, &(kh_row){ .a = "", .n_a = 0 }, (double[]){ 0, 1 }, NAN, NULL);
        assert_int_equal(one.abstain, !always);
        kh_decisions_free(&d);
        kh_decisions_free(&e);
    }
}

static void another_posterior_is_noticed(void **state) {
    (void)state;
    save_posterior("one");
    kh_decisions d = fitted(), e;
    kh_err err;
    assert_int_equal(kh_decisions_save(&d, dir, &err), 0);
    save_posterior("two");
    assert_int_equal(kh_decisions_open(&e, dir, &err), KH_EMISMATCH);
    assert_says(&err, "was made for another posterior; \"keyhole eval");
    kh_decisions_free(&e);
    kh_decisions_free(&d);
}

static void none_is_said_so(void **state) {
    (void)state;
    save_posterior("one");
    char *path = kh_path_join(dir, "decisions.json");
    unlink(path);
    kh_free(path);
    kh_decisions e;
    kh_err err;
    assert_int_equal(kh_decisions_open(&e, dir, &err), KH_EMISSING);
    assert_says(&err, "no decisions.json in it; \"keyhole eval");
    kh_decisions_free(&e);
}

#define HEAD \
    "{\"schema\":\"keyhole-decisions\",\"version\":1,\"posterior\":\"ab\",\"rows\":2,\"classes\":" \
    "2,\"score\":\"maxp\",\"seed\":0,"
#define OOD ",\"ood\":{\"keep\":0.9,\"threshold\":null}}"
#define SELECTOR(answers, risk) \
    "{\"max_risk\":" risk ",\"delta\":0.1,\"answers\":\"" answers \
    "\",\"threshold\":null,\"rows\":2,\"accepted\":0,\"wrong\":0,\"needed\":22," \
    "\"risk\":null,\"risk_bound\":null,\"coverage\":0,\"coverage_low\":0,\"coverage_high\":1}"
#define CONFORMAL(alpha, start, scores) \
    "{\"alpha\":" alpha ",\"per_class\":false,\"min_alpha\":0.3,\"start\":" start \
    ",\"scores\":" scores "}"
#define MAPS(map, slope, shift) \
    HEAD "\"selector\":null,\"conformal\":{\"alpha\":0.1,\"per_class\":false,\"min_alpha\":0.3," \
         "\"start\":[0,2,2],\"scores\":[0,1],\"map\":" map ",\"slope\":" slope ",\"shift\":" shift \
         "}" OOD

static void every_malformed_file_has_its_sentence(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "[]", "must hold a JSON object" },
        { "{\"schema\":\"x\"}", "\"schema\" is \"x\", expected \"keyhole-decisions\"" },
        { "{\"schema\":\"keyhole-decisions\",\"version\":9}",
            "written in version 9 by a later keyhole" },
        { "{\"schema\":\"keyhole-decisions\",\"version\":1,\"posterior\":\"0\",\"rows\":1,"
          "\"classes\":2,\"score\":\"luck\"}",
            "\"score\" must be maxp or entropy, not \"luck\"" },
        { HEAD "\"selector\":3,\"conformal\":null" OOD, "\"selector\" must be an object or null" },
        { HEAD "\"selector\":" SELECTOR("always", "0.1") ",\"conformal\":null" OOD,
            "contradicts itself: it answers \"always\"" },
        { HEAD "\"selector\":" SELECTOR("never", "7") ",\"conformal\":null" OOD,
            "contradicts itself" },
        { HEAD "\"selector\":null,\"conformal\":" CONFORMAL("2", "[0,2,2]", "[0,1]") OOD,
            "\"alpha\" is 2, expected between 0 and 1" },
        { HEAD "\"selector\":null,\"conformal\":" CONFORMAL("0.1", "[0,2]", "[0,1]") OOD,
            "\"start\" must hold 3 numbers" },
        { HEAD "\"selector\":null,\"conformal\":" CONFORMAL("0.1", "[0,9,2]", "[0,1]") OOD,
            "must ascend, class by class" },
        { HEAD "\"selector\":null,\"conformal\":" CONFORMAL("0.1", "[0,2,2]", "[1,0]") OOD,
            "must ascend, class by class" },
        { HEAD "\"selector\":null,\"conformal\":" CONFORMAL("0.1", "[0,2,2]", "[1,\"x\"]") OOD,
            "must ascend, class by class" },
        { MAPS("[0]", "[1]", "[0,0]"), "\"map\" must name one of the maps" },
        { MAPS("[0,1]", "[1]", "[0,0]"), "\"map\" must name one of the maps" },
        { MAPS("[0,0.5]", "[1]", "[0,0]"), "\"map\" must name one of the maps" },
        { MAPS("[0,0]", "3", "[0,0]"), "\"map\" must name one of the maps" },
        { MAPS("[0,0]", "[\"x\"]", "[0,0]"), "\"slope\" must hold 1 numbers" },
        { MAPS("[0,1]", "[1,1]", "[0,0]"), "\"shift\" must hold 4 numbers" },
        { HEAD "\"selector\":null,\"conformal\":null,\"ood\":1}", "\"ood\" must be an object" },
        { HEAD "\"selector\":null,\"conformal\":null,\"ood\":{\"score\":\"luck\",\"keep\":0.9,"
               "\"threshold\":1}}",
            "\"score\" must be maxp, entropy, energy, distance or both, not \"luck\"" },
        { HEAD "\"selector\":null,\"conformal\":null,\"ood\":{\"score\":\"both\",\"keep\":0.9,"
               "\"threshold\":1,\"energy\":{\"middle\":0,\"spread\":1}}}",
            "\"ood\" goes by both energy and distance, and \"distance\" is not in it" },
        { HEAD "\"selector\":null,\"conformal\":null,\"ood\":{\"score\":\"both\",\"keep\":0.9,"
               "\"threshold\":1,\"energy\":{\"middle\":0}}}",
            "\"spread\"" },
        { HEAD "\"selector\":null,\"conformal\":null,\"ood\":{\"score\":\"both\",\"keep\":0.9,"
               "\"threshold\":1,\"energy\":{\"middle\":0,\"spread\":1},\"distance\":{"
               "\"middle\":0,\"spread\":0}}}",
            "a \"spread\" must be above 0" },
        { "{\"schema\":\"keyhole-decisions\",\"version\":2,\"posterior\":\"0\",\"rows\":1,"
          "\"classes\":2,\"score\":\"energy\"}",
            "\"score\" must be maxp or entropy, not \"energy\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kh_decisions d;
        kh_err err = { 0 };
        uint64_t stamp;
        assert_true(kh_decisions_parse(
                        &d, cases[i].json, strlen(cases[i].json), "d.json", &stamp, &err) < 0);
        assert_says(&err, cases[i].says);
        kh_decisions_free(&d);
    }
    kh_decisions d;
    uint64_t stamp;
    static const char good[] = HEAD "\"selector\":" SELECTOR(
        "never", "0.1") ",\"conformal\":" CONFORMAL("0.1", "[0,2,2]", "[0,1]") OOD;
    assert_int_equal(kh_decisions_parse(&d, good, sizeof good - 1, "d.json", &stamp, NULL), 0);
    assert_int_equal(stamp, 0xab);
    assert_true(d.opts.foreign == KH_SCORE_MAXP); /* version 1 had one score for both */
    kh_decisions_free(&d);
    static const char old[] = "{\"schema\":\"keyhole-decisions\",\"version\":1,\"posterior\":"
                              "\"ab\",\"rows\":2,\"classes\":2,\"score\":\"entropy\","
                              "\"seed\":0,\"selector\":null,\"conformal\":null,\"ood\":{\"keep\":0."
                              "9,\"threshold\":0.25}}";
    assert_int_equal(kh_decisions_parse(&d, old, sizeof old - 1, "d.json", &stamp, NULL), 0);
    assert_true(
        d.opts.score == KH_SCORE_ENTROPY && d.opts.foreign == KH_SCORE_ENTROPY && d.ood == 0.25);
    kh_decisions_free(&d);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    save_posterior("one");
    for (long n = 1;; n++) {
        double p[N * K];
        int label[N];
        kh_answers a = answers(p, label);
        kh_decision_opts o = kh_decision_defaults();
        kh_decisions d, e = { 0 };
        kh_err err;
        kh_alloc_fail_at(n, true);
        int rc = kh_decisions_fit(&d, &a, NULL, &o, &err);
        if (rc == 0)
            rc = kh_decisions_save(&d, dir, &err);
        if (rc == 0)
            rc = kh_decisions_open(&e, dir, &err);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        kh_decisions_free(&d);
        kh_decisions_free(&e);
        if (done) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc < 0);
    }
}

/* ------------------------------------------------------------------------- foreign rows, votes */

static void foreign_rows_take_their_template_and_our_words(void **state) {
    (void)state;
    static const char PAIR[] =
        "{\"name\":\"pair\",\"template\":\"{text_a} ? {mask} , "
        "{text_b}\",\"labels\":[{\"name\":\"a\",\"words\":[\"new\"]},"
        "{\"name\":\"b\",\"words\":[\"old\"]},{\"name\":\"c\",\"words\":[\"boat\"]}]}";
    /* The same by hand: a task of that template with our labels. */
    static const char MIXED[] = "{\"name\":\"mixed\",\"template\":\"{text_a} ? {mask} , "
                                "{text_b}\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                                "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    const kh_task *pair, *mixed;
    kh_err err;
    assert_int_equal(kh_task_parse(&pair, PAIR, sizeof PAIR - 1, "pair.json", &err), 0);
    assert_int_equal(kh_task_parse(&mixed, MIXED, sizeof MIXED - 1, "mixed.json", &err), 0);
    kh_posterior *p = manual("manual"), *q;
    assert_int_equal(kh_posterior_new(&q, "manual", plm, mixed, &err), 0);
    assert_int_equal(kh_posterior_add(q, NULL, 0, NULL), 0);
    kh_predictor *a = NULL, *b = NULL;
    if (kh_predictor_foreign(&a, p, plm, pair, &err) != 0 ||
        kh_predictor_new(&b, q, plm, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    kh_row rows[] = { { .a = "it rains", .n_a = 8, .b = "the sun", .n_b = 7, .label = -1 } };
    double x[2], y[2];
    assert_int_equal(kh_predictor_run(a, rows, 1, x, &err), 0);
    assert_int_equal(kh_predictor_run(b, rows, 1, y, &err), 0);
    assert_true(x[0] == y[0] && x[1] == y[1]);
    kh_predictor_free(a);
    kh_predictor_free(b);
    kh_posterior_free(p);
    kh_posterior_free(q);
    kh_task_close(pair);
    kh_task_close(mixed);
}

static void parts_agree_with_the_definition(void **state) {
    (void)state;
    enum { S = 3, R = 2, L = 3 };
    float logprob[S * R * L], weight[S] = { 0.5f, 0.25f, 0.25f };
    double mean[R * L] = { 0 }, votes[R * L] = { 0 }, ambiguity[R] = { 0 };
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < S * R; i++) {
        double e[L], sum = 0;
        for (int k = 0; k < L; k++)
            sum += e[k] = kh_rng_uniform(&r);
        for (int k = 0; k < L; k++)
            logprob[i * L + k] = (float)log(e[k] / sum);
    }
    kh_mixture_add(mean, logprob, weight, S, R, L);
    kh_mixture_parts(votes, ambiguity, logprob, weight, S, R, L);
    for (int row = 0; row < R; row++) {
        double p[S * L], w[S] = { 0.5, 0.25, 0.25 }, total = 0;
        for (int s = 0; s < S; s++)
            for (int k = 0; k < L; k++)
                p[s * L + k] = exp((double)logprob[(s * R + row) * L + k]);
        kh_decomposition d = kh_uncertainty_parts(p, w, S, L);
        assert_near(ambiguity[row], d.ambiguity, 1e-6);
        for (int k = 0; k < L; k++)
            total += votes[row * L + k];
        assert_near(total, 1, 1e-6);
        int first = kh_predicted(p, L);
        assert_true(votes[row * L + first] >= 0.5);
    }
    float certain[] = { 0, -INFINITY };
    double v[2] = { 0 }, h = 0;
    kh_mixture_parts(v, &h, certain, (float[]){ 1 }, 1, 1, 2);
    assert_true(h == 0 && v[0] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_is_what_its_parts_are),
        cmocka_unit_test(parts_can_be_left_out),
        cmocka_unit_test(energies_decide_what_is_foreign),
        cmocka_unit_test(both_decide_what_is_foreign),
        cmocka_unit_test(decisions_by_energy_need_a_box_that_shows_them),
        cmocka_unit_test(a_text_is_decided_alike_wherever_it_stands),
        cmocka_unit_test(saved_and_opened_it_decides_the_same),
        cmocka_unit_test(maps_are_kept),
        cmocka_unit_test(infinities_survive),
        cmocka_unit_test(another_posterior_is_noticed),
        cmocka_unit_test(none_is_said_so),
        cmocka_unit_test(every_malformed_file_has_its_sentence),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(foreign_rows_take_their_template_and_our_words),
        cmocka_unit_test(parts_agree_with_the_definition),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
