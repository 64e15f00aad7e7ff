/* compare.c - see compare.h.
 *
 * Runs of one method with the same options on the same task and model, but for the seed, are one
 * group; a table shows their mean and standard deviation. The best group of each task and model is
 * marked, where there is more than one. */
#include "report/compare.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same_group(const kh_result *a, const kh_result *b) {
    return strcmp(a->model, b->model) == 0 && strcmp(a->task, b->task) == 0 &&
        strcmp(a->method, b->method) == 0 && strcmp(a->options, b->options) == 0;
}

static bool same_question(const kh_result *a, const kh_result *b) {
    return strcmp(a->model, b->model) == 0 && strcmp(a->task, b->task) == 0;
}

static kh_group *find_group(kh_comparison *c, const kh_result *run) {
    for (int i = 0; i < c->n; i++)
        if (same_group(c->group[i].first, run))
            return &c->group[i];
    return NULL;
}

/* Two runs of one group with the same seed are the same run judged twice. */
static int check_seeds(const kh_result *runs, int n, kh_err *err) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (runs[i].seed == runs[j].seed && same_group(&runs[i], &runs[j]))
                return kh_fail(err, KH_EARG,
                    "%s and %s are the same method with the same seed; name one of them",
                    runs[j].run, runs[i].run);
    return 0;
}

/* Of a single seed there is no deviation: NaN, not 0. */
static int fill_group(kh_group *g, const kh_result *runs, int n, const char *const *metric,
    int n_metric, kh_err *err) {
    double *x = kh_malloc((size_t)n * sizeof *x);
    g->mean = kh_malloc((size_t)n_metric * sizeof *g->mean);
    g->sd = kh_malloc((size_t)n_metric * sizeof *g->sd);
    g->best = kh_calloc((size_t)n_metric, sizeof *g->best);
    int rc = x && g->mean && g->sd && g->best ? 0 : kh_fail_memory(err);
    for (int m = 0; m < n_metric && rc == 0; m++) {
        int count = 0;
        for (int i = 0; i < n; i++) {
            double value = kh_result_value(&runs[i], metric[m]);
            if (same_group(g->first, &runs[i]) && !isnan(value))
                x[count++] = value;
        }
        g->mean[m] = g->sd[m] = NAN;
        if (count > 0)
            kh_mean_sd(x, count, &g->mean[m], &g->sd[m]);
        if (count < 2)
            g->sd[m] = NAN;
    }
    kh_free(x);
    return rc;
}

/* What is printed alike is equally good. */
static bool is_better(double a, double b, int better) {
    double x = round(a * 1e4), y = round(b * 1e4);
    return better > 0 ? x > y : x < y;
}

/* Among groups about the same question only: 0.9 on one task is not better than 0.8 on another. */
static void mark_best(kh_comparison *c) {
    for (int m = 0; m < c->n_metric; m++) {
        int better = kh_result_better(c->metric[m]);
        for (int i = 0; i < c->n && better != 0; i++) {
            bool best = !isnan(c->group[i].mean[m]), alone = true;
            for (int j = 0; j < c->n; j++)
                if (j != i && same_question(c->group[i].first, c->group[j].first) &&
                    !isnan(c->group[j].mean[m])) {
                    alone = false;
                    best &= !is_better(c->group[j].mean[m], c->group[i].mean[m], better);
                }
            c->group[i].best[m] = best && !alone;
        }
    }
}

int kh_comparison_make(kh_comparison *out, const kh_result *runs, int n, const char *const *metric,
    int n_metric, kh_err *err) {
    *out = (kh_comparison){ .metric = metric, .n_metric = n_metric };
    int rc = check_seeds(runs, n, err);
    if (rc != 0)
        return rc;
    out->group = kh_calloc((size_t)n, sizeof *out->group);
    if (!out->group)
        return kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        kh_group *g = find_group(out, &runs[i]);
        if (g) {
            g->n++;
            continue;
        }
        g = &out->group[out->n++];
        *g = (kh_group){ .first = &runs[i], .n = 1 };
        rc = fill_group(g, runs, n, metric, n_metric, err);
    }
    for (int m = 0; m < n_metric && rc == 0; m++) {
        bool known = false;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < runs[i].n; k++)
                known |= strcmp(runs[i].metric[k].name, metric[m]) == 0;
        if (!known)
            rc = kh_fail(err, KH_EARG,
                "no run has a metric \"%s\"; \"keyhole compare RUN --metrics all\" shows which "
                "there are",
                metric[m]);
    }
    if (rc == 0)
        mark_best(out);
    return rc;
}

void kh_comparison_free(kh_comparison *c) {
    for (int i = 0; i < c->n; i++) {
        kh_free(c->group[i].mean);
        kh_free(c->group[i].sd);
        kh_free(c->group[i].best);
    }
    kh_free(c->group);
}

/* ------------------------------------------------------------------------------------- writing */

/* The options in which a group differs from others of its method, so that its name tells them
 * apart. */
static void name_group(const kh_comparison *c, const kh_group *g, kh_buf *out) {
    bool several = false;
    for (int i = 0; i < c->n; i++)
        several |= &c->group[i] != g && strcmp(c->group[i].first->method, g->first->method) == 0 &&
            strcmp(c->group[i].first->options, g->first->options) != 0;
    kh_buf_text(out, g->first->method);
    json_t *mine = NULL;
    if (!several ||
        kh_json_parse(g->first->options, strlen(g->first->options), "options", &mine, NULL) != 0)
        return;
    const char *key;
    json_t *value;
    json_object_foreach(mine, key, value) {
        bool differs = false;
        for (int i = 0; i < c->n; i++) {
            json_t *other = NULL;
            const kh_result *r = c->group[i].first;
            if (strcmp(r->method, g->first->method) == 0 &&
                kh_json_parse(r->options, strlen(r->options), "options", &other, NULL) == 0)
                differs |= !json_equal(value, json_object_get(other, key));
            json_decref(other);
        }
        char *text = differs ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
        if (text)
            kh_buf_printf(out, " %s=%s", key, text);
        free(text);
    }
    if (!kh_buf_failed(out)) /* keys and values of a file from anywhere */
        kh_hide_controls(out->data);
    json_decref(mine);
}

static const char *model_name(const kh_result *r) {
    const char *base = kh_path_base(r->model);
    return *base ? base : r->model;
}

static bool differ(const kh_comparison *c, bool task) {
    for (int i = 1; i < c->n; i++) {
        const kh_result *a = c->group[0].first, *b = c->group[i].first;
        if (task ? strcmp(a->task, b->task) != 0 : strcmp(a->model, b->model) != 0)
            return true;
    }
    return false;
}

/* CSV is for programs: full precision, mean and deviation in columns of their own, nothing for what
 * is not known. */
static void add_value(kh_grid *t, const kh_group *g, int m, kh_grid_format format) {
    bool csv = format == KH_GRID_CSV;
    if (isnan(g->mean[m]))
        kh_grid_add(t, csv ? "" : "-");
    else if (csv || isnan(g->sd[m]))
        kh_grid_add(t, csv ? "%.9g" : "%.4f", g->mean[m]);
    else
        kh_grid_add(t, "%.4f ± %.4f", g->mean[m], g->sd[m]);
    if (g->best[m] && !csv)
        kh_grid_strong(t);
    if (csv && isnan(g->sd[m]))
        kh_grid_add(t, "%s", "");
    else if (csv)
        kh_grid_add(t, "%.9g", g->sd[m]);
}

void kh_comparison_put(const kh_comparison *c, kh_grid_format format, bool colour, kh_buf *out) {
    bool csv = format == KH_GRID_CSV, tasks = csv || differ(c, true),
         models = csv || differ(c, false);
    int left = 1 + tasks + models;
    kh_grid t = {
        .n_col = left + 1 + c->n_metric * (csv ? 2 : 1), .n_left = left, .colour = colour
    };
    if (models)
        kh_grid_add(&t, "model");
    if (tasks)
        kh_grid_add(&t, "task");
    kh_grid_add(&t, "method");
    kh_grid_add(&t, "seeds");
    for (int m = 0; m < c->n_metric; m++) {
        kh_grid_add(&t, "%s", c->metric[m]);
        if (csv)
            kh_grid_add(&t, "%s_sd", c->metric[m]);
    }
    for (int i = 0; i < c->n; i++) {
        const kh_group *g = &c->group[i];
        kh_buf name = kh_buf_init(1 << 12);
        name_group(c, g, &name);
        if (models)
            kh_grid_add(&t, "%s", csv ? g->first->model : model_name(g->first));
        if (tasks)
            kh_grid_add(&t, "%s", g->first->task);
        kh_grid_add(&t, "%s", kh_buf_failed(&name) ? g->first->method : name.data);
        kh_grid_add(&t, "%d", g->n);
        for (int m = 0; m < c->n_metric; m++)
            add_value(&t, g, m, format);
        kh_buf_free(&name);
    }
    kh_grid_put(&t, format, out);
    kh_grid_free(&t);
}

void kh_comparison_json(const kh_comparison *c, kh_buf *b) {
    kh_json_out j = kh_json_out_init(b, KH_JSON_SPACED);
    kh_json_open_array(&j, NULL);
    for (int i = 0; i < c->n; i++) {
        const kh_group *g = &c->group[i];
        kh_json_gap(&j, "\n ");
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "model", g->first->model);
        kh_json_put_string(&j, "task", g->first->task);
        kh_json_put_string(&j, "method", g->first->method);
        kh_json_put_json(&j, "options", g->first->options, strlen(g->first->options));
        kh_json_put_int(&j, "seeds", g->n);
        kh_json_open_object(&j, "metrics");
        for (int m = 0; m < c->n_metric; m++) {
            kh_json_gap(&j, "\n   ");
            kh_json_open_object(&j, c->metric[m]);
            kh_json_put_number(&j, "mean", g->mean[m], 12);
            kh_json_put_number(&j, "sd", g->sd[m], 12);
            kh_json_put_bool(&j, "best", g->best[m]);
            kh_json_close(&j);
        }
        kh_json_close(&j);
        kh_json_close(&j);
    }
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(b, '\n');
}
