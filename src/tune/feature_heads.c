/* feature_heads.c - the methods that leave the model as it is and read it: a small head, learned by
 * gradients, on the hidden states of the last layer over the row in the plain template. feature-mlp
 * reads one state, feature-bilstm all of them. The states are read once, before the first epoch: a
 * query for each row. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/err.h"
#include "posterior/features.h"

typedef struct feature_opts {
    kh_descent_opts descent;
    int states; /* kh_pool; the BiLSTM reads all */
    int inner;
} feature_opts;

static const kh_opt mlp_table[] = {
    { "states", KH_OPT_CHOICE, offsetof(feature_opts, states), "mask", .arg = "mask|mean|first",
        .help = "what it reads: the state at the mask, the mean of all, the first" },
    { "inner", KH_OPT_INT, offsetof(feature_opts, inner), "256", .min = 1, .max = 1 << 14,
        .arg = "N", .help = "hidden units" },
    KH_DESCENT_ROWS(feature_opts, descent, "1e-3", "200", "0.01"),
    { 0 },
};

static const kh_opt bilstm_table[] = {
    { "inner", KH_OPT_INT, offsetof(feature_opts, inner), "64", .min = 1, .max = 1 << 14,
        .arg = "N", .help = "units of each direction" },
    KH_DESCENT_ROWS(feature_opts, descent, "1e-3", "100", "0.01"),
    { 0 },
};

typedef struct learned {
    kh_head *head;
    kh_adapter adapter;
    kh_features train, dev;
    kh_head_row *row; /* of one run: [the larger of both parts] */
    int *dev_label;
} learned;

static void learned_free(learned *l) {
    kh_head_free(l->head);
    kh_features_free(&l->train);
    kh_features_free(&l->dev);
    kh_free(l->adapter.x);
    kh_free(l->row);
    kh_free(l->dev_label);
}

/* Rows are chosen from the states that were read before: an epoch asks the model nothing. */
static int run_head(void *self, const kh_row_subset *some, bool gradients, float *logprob,
    double *loss, float **slope, kh_err *err) {
    learned *l = self;
    const kh_features *f = some->dev ? &l->dev : &l->train;
    for (int i = 0; i < some->n; i++)
        l->row[i] = f->row[some->which[i]];
    *slope = kh_head_gradient(l->head);
    return kh_head_run(l->head, l->adapter.x, l->row, some->n, gradients, logprob, loss, err);
}

static int read_features(learned *l, kh_tuning *t, kh_err *err) {
    kh_plm_info box = kh_plm_describe(t->plm);
    kh_batch_opts o = { .max_len = box.max_len, .next = box.next };
    kh_pool pool = l->adapter.pool;
    int most = t->n_train > t->n_dev ? t->n_train : t->n_dev;
    int rc = kh_features_read(
        &l->train, t->plm, t->task, t->words, &o, pool, t->train_row, t->n_train, err);
    long long before = kh_tuning_queries(t);
    if (rc == 0)
        rc = kh_features_read(
            &l->dev, t->plm, t->task, t->words, &o, pool, t->dev_row, t->n_dev, err);
    t->dev_queries = kh_tuning_queries(t) - before;
    l->row = kh_calloc((size_t)most, sizeof *l->row);
    l->dev_label = kh_calloc((size_t)t->n_dev, sizeof *l->dev_label);
    if (rc == 0 && (!l->row || !l->dev_label))
        rc = kh_fail_memory(err);
    for (int i = 0; i < t->n_dev && rc == 0; i++)
        l->dev_label[i] = l->dev.row[i].label;
    return rc;
}

/* Weight decay acts on matrices and not on biases (rank 1). */
static int run_features(
    kh_tuning *t, const feature_opts *o, kh_adapter_kind kind, kh_posterior *p, kh_err *err) {
    learned l = { .adapter = { .kind = kind,
                      .pool = kind == KH_ADAPTER_MLP ? (kh_pool)o->states : KH_POOL_ALL,
                      .hidden = kh_plm_describe(t->plm).hidden,
                      .inner = o->inner,
                      .labels = t->task->n_label } };
    kh_adapter_part part[KH_ADAPTER_PARTS];
    kh_param_group segment[KH_ADAPTER_PARTS];
    int n = kh_adapter_parts(&l.adapter, part);
    for (int i = 0; i < n; i++)
        segment[i] = (kh_param_group){ part[i].n, part[i].rank > 1 };
    l.adapter.x = kh_calloc(kh_adapter_size(&l.adapter), sizeof *l.adapter.x);
    int rc = l.adapter.x ? kh_head_new(&l.head, &l.adapter, o->descent.shards, err)
                         : kh_fail_memory(err);
    if (rc == 0)
        rc = read_features(&l, t, err);
    if (rc == 0)
        kh_head_start(&l.adapter, t->o->seed, l.adapter.x);
    kh_descent d = { .t = t,
        .o = &o->descent,
        .phase = kind == KH_ADAPTER_MLP ? "feature-mlp" : "feature-bilstm",
        .x = l.adapter.x,
        .n = kh_adapter_size(&l.adapter),
        .segment = segment,
        .n_segment = n,
        .n_train = t->n_train,
        .n_dev = t->n_dev,
        .dev_label = l.dev_label,
        .run = run_head,
        .self = &l };
    if (rc == 0)
        rc = kh_descent_run(&d, err);
    if (rc == 0)
        rc = kh_posterior_set_adapter(p, &l.adapter, err);
    if (rc == 0)
        p->dev = d.best_dev; /* what a predictor would say: the same states, the same head */
    learned_free(&l);
    return rc;
}

static int run_mlp(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    return run_features(t, opts, KH_ADAPTER_MLP, p, err);
}

static int run_bilstm(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    return run_features(t, opts, KH_ADAPTER_BILSTM, p, err);
}

/* Every row's states are read once, whatever the budget. */
static long long all_once(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_train + t->n_dev;
}

static void plan_once(const kh_tuning *t, const void *opts, kh_plan *most) {
    (void)opts;
    *most = (kh_plan){ .candidates = 1, .train = t->n_train, .dev = t->n_dev };
}

const kh_method kh_method_feature_mlp = {
    .name = "feature-mlp",
    .summary = "a small network on hidden states of the model, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .opts = mlp_table,
    .opts_size = sizeof(feature_opts),
    .least = all_once,
    .most = plan_once,
    .run = run_mlp,
};

const kh_method kh_method_feature_bilstm = {
    .name = "feature-bilstm",
    .summary = "a bidirectional LSTM on hidden states of the model, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .opts = bilstm_table,
    .opts_size = sizeof(feature_opts),
    .least = all_once,
    .most = plan_once,
    .run = run_bilstm,
};
