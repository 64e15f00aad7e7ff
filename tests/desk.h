/* desk.h - a tuned classifier over the tiny model, kept in a folder and served in this process. */
#ifndef KH_TEST_DESK_H
#define KH_TEST_DESK_H

#include "site.h"

#include "base/json.h"

/* A classifier of three prompts over the tiny model, kept in a folder. */
typedef struct desk {
    kh_plm *plm;
    kh_posterior *posterior;
    const kh_task *task;
    site s;
    char run[80];
} desk;

static inline desk desk_open(const kh_server_opts *given, bool decisions) {
    static const char *const SET[] = { "budget-generations=2", "pop=4", "members=3", NULL };
    desk d = { .plm = tiny_open(KH_ACCESS_LOGPROBS), .task = tiny_task() };
    kh_tune_opts o = kh_tune_defaults();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(40, 2, -1);
    kh_err err;
    snprintf(d.run, sizeof d.run, "/tmp/keyhole-test-desk-%ld", (long)getpid());
    o.space = tiny_space();
    if (kh_tune(&d.posterior, "ensemble", SET, d.plm, d.task, train, dev, &o, &err) != 0 ||
        kh_posterior_save(d.posterior, d.run, &err) != 0)
        fail_msg("%s", err.msg);
    if (decisions) {
        kh_predictor *p;
        double q[40 * 2], energy[40];
        int label[40];
        kh_decisions fitted;
        kh_decision_opts how = kh_decision_defaults();
        how.max_risk = 0.9;
        for (int i = 0; i < 40; i++)
            label[i] = kh_dataset_rows(dev)[i].label;
        if (kh_predictor_new(&p, d.posterior, d.plm, NULL, &err) != 0 ||
            kh_predictor_explain(p, kh_dataset_rows(dev), 40,
                &(kh_explained){ .p = q, .energy = energy }, &err) != 0 ||
            kh_decisions_fit(&fitted, &(kh_answers){ q, label, 40, 2 }, energy, &how, &err) != 0 ||
            kh_decisions_save(&fitted, d.run, &err) != 0)
            fail_msg("%s", err.msg);
        kh_decisions_free(&fitted);
        kh_predictor_free(p);
    }
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_server_opts so = given ? *given : kh_server_defaults();
    so.port = 0;
    if (kh_server_start(&d.s.server,
            &(kh_served){ .plm = d.plm, .name = "desk", .posterior = d.posterior, .run = d.run },
            &so, &err) != 0)
        fail_msg("%s", err.msg);
    return d;
}

static inline void desk_close(desk *d) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors",
        "decisions.json", "report.html", NULL };
    kh_server_stop(d->s.server);
    kh_posterior_free(d->posterior);
    kh_plm_close(d->plm);
    kh_task_close(d->task);
    tiny_remove(d->run, FILES);
}

static inline json_t *body_of(const char *text) {
    const char *body = strstr(text, "\r\n\r\n");
    json_t *root = NULL;
    assert_non_null(body);
    assert_int_equal(kh_json_parse(body + 4, strlen(body + 4), "answer", &root, NULL), 0);
    return root;
}

#endif
