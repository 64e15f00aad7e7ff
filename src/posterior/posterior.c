/* posterior.c - making, saving and opening posteriors.
 *
 * posterior.safetensors is written first, posterior.json last, each through a temporary file: a
 * folder with a posterior.json holds a whole posterior. The JSON carries a hash of the samples, so
 * that halves of two different posteriors in one folder are noticed. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "data/task.h"
#include "judge/class_prior.h"
#include "judge/predictions.h"
#include "model/safetensors.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define JSON_NAME "posterior.json"
#define SAMPLES_NAME "posterior.safetensors"

/* A thousand text prompts with their demonstrations, many times over. */
enum { JSON_MAX = 256 << 20 };

/* -------------------------------------------------------------------------------------- making */

const char *kh_posterior_keep(kh_posterior *p, const char *s) {
    return s ? kh_arena_strndup(&p->arena, s, strlen(s)) : NULL;
}

/* By its own JSON: the copy owns everything and is what a reader of the file will get. */
static int copy_task(const kh_task **out, const kh_task *task, kh_err *err) {
    kh_buf json = kh_buf_init(KH_BUF_MAX);
    kh_task_json(task, &json);
    int rc = kh_buf_failed(&json) ? kh_fail_memory(err)
                                  : kh_task_parse(out, json.data, json.len, task->name, err);
    kh_buf_free(&json);
    return rc;
}

/* Access is what the samples may see, so never more than log-probabilities: an adapter raises it
 * (kh_posterior_set_adapter). */
int kh_posterior_new(
    kh_posterior **out, const char *method, kh_plm *plm, const kh_task *task, kh_err *err) {
    *out = NULL;
    kh_posterior *p = kh_calloc(1, sizeof *p);
    if (!p)
        return kh_fail_memory(err);
    kh_plm_info info = kh_plm_describe(plm);
    p->access = info.access < KH_ACCESS_LOGPROBS ? info.access : KH_ACCESS_LOGPROBS;
    p->fingerprint = info.fingerprint;
    p->tokenizer = kh_tokenizer_fingerprint(kh_plm_tokenizer(plm));
    p->version = kh_version();
    p->score = NAN;
    p->method = kh_posterior_keep(p, method);
    p->backend = kh_posterior_keep(p, info.backend);
    p->precision = kh_posterior_keep(p, info.precision);
    p->kernels = kh_posterior_keep(p, info.kernels);
    int rc = p->method && p->backend && p->precision && p->kernels ? copy_task(&p->task, task, err)
                                                                   : kh_fail_memory(err);
    if (rc != 0)
        kh_posterior_free(p);
    else
        *out = p;
    return rc;
}

static void fresh_free(kh_posterior *p) {
    kh_free(p->fresh.p);
    kh_free(p->fresh.label);
    kh_free(p->fresh.line);
    p->fresh = (struct kh_fresh){ 0 };
}

int kh_posterior_set_fresh(
    kh_posterior *post, const double *p, const int *label, const long *line, int n, kh_err *err) {
    size_t rows = (size_t)n, size = rows * (size_t)post->task->n_label;
    fresh_free(post);
    post->fresh = (struct kh_fresh){ .p = kh_malloc(size * sizeof *p),
        .label = kh_malloc(rows * sizeof *label),
        .line = kh_malloc(rows * sizeof *line),
        .n = n };
    if (!post->fresh.p || !post->fresh.label || !post->fresh.line)
        return kh_fail_memory(err);
    memcpy(post->fresh.p, p, size * sizeof *p);
    memcpy(post->fresh.label, label, rows * sizeof *label);
    memcpy(post->fresh.line, line, rows * sizeof *line);
    return 0;
}

void kh_posterior_free(kh_posterior *p) {
    if (!p)
        return;
    kh_free(p->z);
    kh_free(p->weight);
    kh_free(p->projection);
    kh_free(p->adapter.x);
    kh_free(p->features);
    fresh_free(p);
    kh_calibrator_free(&p->calibrator);
    kh_space_free(&p->space);
    kh_task_close(p->task);
    kh_arena_free(&p->arena);
    kh_free(p);
}

int kh_posterior_set_space(kh_posterior *p, const kh_space *space, kh_err *err) {
    p->soft = true;
    return kh_space_copy(&p->space, space, err);
}

/* All weights become equal again; methods whose weights differ set them at the end. An element
 * more: text prompts have no z, and an array of nothing must not be NULL. */
int kh_posterior_add(kh_posterior *p, const float *z, uint64_t projection, kh_err *err) {
    size_t n = (size_t)p->n + 1, d = (size_t)(z ? p->space.dim : 0);
    if (!kh_grow(&p->z, &p->cap_z, n * d + 1, sizeof *p->z) ||
        !kh_grow(&p->weight, &p->cap_weight, n, sizeof *p->weight) ||
        (z && !kh_grow(&p->projection, &p->cap_seed, n, sizeof *p->projection)))
        return kh_fail_memory(err);
    if (z) {
        memcpy(p->z + (size_t)p->n * d, z, d * sizeof *z);
        p->projection[p->n] = projection;
    }
    p->n++;
    for (int i = 0; i < p->n; i++)
        p->weight[i] = (float)(1.0 / p->n);
    return 0;
}

int kh_posterior_set_class_prior(kh_posterior *p, const char *prior, kh_err *err) {
    int n_label = p->task->n_label;
    if (!prior) {
        p->class_prior = NULL;
        return 0;
    }
    double *x = kh_arena_array(&p->arena, (size_t)n_label, sizeof *x);
    if (!x)
        return kh_fail_memory(err);
    int rc = kh_class_prior_parse(x, prior, n_label, err);
    if (rc == 0)
        p->class_prior = x;
    return rc;
}

int kh_posterior_add_text(kh_posterior *p, const kh_text_prompt *prompt, kh_err *err) {
    int rc = kh_text_prompts_add(&p->texts, &p->arena, prompt, p->task->n_label, &p->cap_text, err);
    return rc == 0 ? kh_posterior_add(p, NULL, 0, err) : rc;
}

/* An adapter is a posterior of one sample: tuning with gradients gives a point. */
int kh_posterior_set_adapter(kh_posterior *p, const kh_adapter *g, kh_err *err) {
    size_t bytes = kh_adapter_size(g) * sizeof *g->x;
    p->adapter = *g;
    p->adapter.x = kh_malloc(bytes);
    if (!p->adapter.x)
        return kh_fail_memory(err);
    memcpy(p->adapter.x, g->x, bytes);
    p->access = KH_ACCESS_WEIGHTS;
    return kh_posterior_add(p, NULL, 0, err);
}

kh_posterior_info kh_posterior_describe(const kh_posterior *p) {
    return (kh_posterior_info){ .method = p->method,
        .access = p->access,
        .samples = p->n,
        .dim = p->soft ? p->space.dim : 0,
        .slots = p->soft ? p->space.slots : 0,
        .hidden = p->soft ? p->space.hidden : 0,
        .inject = p->soft ? p->space.inject : KH_INJECT_NONE,
        .task = p->task,
        .model = p->model,
        .precision = p->precision,
        .fingerprint = p->fingerprint,
        .seed = p->seed,
        .train_queries = p->train_queries,
        .dev_queries = p->dev_queries,
        .forward = p->forward,
        .backward = p->backward,
        .dev = p->dev,
        .score = p->score,
        .stopped = p->stopped,
        .backend = p->backend,
        .template_share = p->template_share };
}

/* -------------------------------------------------------------------------------------- saving */

static size_t z_bytes(const kh_posterior *p) {
    return (size_t)p->n * (size_t)(p->soft ? p->space.dim : 0) * sizeof *p->z;
}
static size_t weight_bytes(const kh_posterior *p) { return (size_t)p->n * sizeof *p->weight; }

static size_t features_bytes(const kh_posterior *p) {
    return (size_t)p->n_features * (size_t)p->features_size * sizeof *p->features;
}

/* In the order of the file. It guards against two halves that do not belong together, not against
 * forgers. */
static uint64_t hash_samples(const kh_posterior *p) {
    uint64_t h = kh_hash64_more(
        kh_hash64_more(KH_HASH64_START, p->z, z_bytes(p)), p->weight, weight_bytes(p));
    if (p->features)
        h = kh_hash64_more(h, p->features, features_bytes(p));
    return p->adapter.x
        ? kh_hash64_more(h, p->adapter.x, kh_adapter_size(&p->adapter) * sizeof *p->adapter.x)
        : h;
}

/* The plan is the file's table of contents; writing follows its order without another copy of the
 * numbers. */
static int save_samples(const kh_posterior *p, const char *path, kh_err *err) {
    kh_array plan[3 + KH_ADAPTER_PARTS] = {
        { .name = "weights", .dtype = KH_DTYPE_F32, .rank = 1, .shape = { (size_t)p->n } },
        { .name = "z",
            .dtype = KH_DTYPE_F32,
            .rank = 2,
            .shape = { (size_t)p->n, (size_t)(p->soft ? p->space.dim : 0) } },
    };
    kh_adapter_part part[KH_ADAPTER_PARTS];
    int n_part = kh_adapter_parts(&p->adapter, part);
    for (int i = 0; i < n_part; i++) {
        kh_array *a = &plan[2 + i];
        *a = (kh_array){ .name = part[i].name, .dtype = KH_DTYPE_F32, .rank = part[i].rank };
        memcpy(a->shape, part[i].shape, sizeof part[i].shape);
    }
    if (p->features)
        plan[2 + n_part] = (kh_array){ .name = "features",
            .dtype = KH_DTYPE_F32,
            .rank = 2,
            .shape = { (size_t)p->n_features, (size_t)p->features_size } };
    kh_safetensors_writer *w;
    int rc = kh_safetensors_create(&w, path, plan, 2 + n_part + (p->features != NULL), err);
    if (rc == 0)
        rc = kh_safetensors_put(w, p->weight, weight_bytes(p), err);
    if (rc == 0)
        rc = kh_safetensors_put(w, p->z, z_bytes(p), err);
    if (rc == 0 && n_part > 0) /* the parts lie in x in the order of the plan */
        rc = kh_safetensors_put(
            w, p->adapter.x, kh_adapter_size(&p->adapter) * sizeof *p->adapter.x, err);
    if (rc == 0 && p->features)
        rc = kh_safetensors_put(w, p->features, features_bytes(p), err);
    int finished = kh_safetensors_finish(w, rc == 0, rc == 0 ? err : NULL);
    return rc ? rc : finished;
}

/* Those of another posterior that was there before must not stay. */
static int save_fresh(const kh_posterior *p, const char *dir, kh_err *err) {
    int n_label = p->task->n_label;
    char *path = kh_path_join(dir, KH_CROSSFIT_NAME);
    kh_buf lines = kh_buf_init(KH_BUF_MAX);
    int rc = path ? 0 : kh_fail_memory(err);
    for (int i = 0; i < p->fresh.n; i++)
        kh_predictions_put(&lines, p->fresh.p + (size_t)i * (size_t)n_label, n_label,
            p->fresh.label[i], p->fresh.line[i]);
    if (rc == 0 && kh_buf_failed(&lines))
        rc = kh_fail_memory(err);
    else if (rc == 0 && p->fresh.n > 0)
        rc = kh_file_write(path, lines.data, lines.len, err);
    else if (rc == 0 && !p->opened)
        unlink(path);
    kh_buf_free(&lines);
    kh_free(path);
    return rc;
}

int kh_posterior_save(const kh_posterior *p, const char *dir, kh_err *err) {
    char *samples = kh_path_join(dir, SAMPLES_NAME), *json = kh_path_join(dir, JSON_NAME);
    kh_buf text = kh_buf_init(JSON_MAX);
    int rc = samples && json ? kh_dir_make(dir, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = save_fresh(p, dir, err);
    if (rc == 0)
        kh_posterior_json(p, hash_samples(p), &text);
    if (rc == 0 && kh_buf_failed(&text))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = save_samples(p, samples, err);
    if (rc == 0)
        rc = kh_file_write(json, text.data, text.len, err);
    kh_buf_free(&text);
    kh_free(samples);
    kh_free(json);
    return rc;
}

bool kh_posterior_exists(const char *dir) {
    char *json = kh_path_join(dir, JSON_NAME);
    bool there = json && kh_file_exists(json);
    kh_free(json);
    return there;
}

/* A name for this very posterior, which decisions.json cites: the JSON holds the hash of the
 * samples. */
int kh_posterior_stamp(const char *dir, uint64_t *out, kh_err *err) {
    char *json = kh_path_join(dir, JSON_NAME);
    kh_buf text = kh_buf_init(0);
    int rc = json ? kh_file_read(json, JSON_MAX, &text, err) : kh_fail_memory(err);
    *out = rc == 0 ? kh_hash64(text.data, text.len) : 0;
    kh_buf_free(&text);
    kh_free(json);
    return rc;
}

/* ------------------------------------------------------------------------------------- opening */

static int find_array(const kh_safetensors *f, const char *name, int rank, const size_t *shape,
    const kh_array **out, kh_err *err) {
    const kh_array *a = *out = kh_safetensors_find(f, name);
    char want[128], have[128];
    kh_shape_text(shape, rank, want, sizeof want);
    if (!a)
        return kh_fail(err, KH_EFORMAT, "%s: no array \"%s\"", kh_safetensors_path(f), name);
    kh_shape_text(a->shape, a->rank, have, sizeof have);
    if (a->dtype != KH_DTYPE_F32 || strcmp(want, have) != 0)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is %s of shape %s, expected F32 of shape %s",
            kh_safetensors_path(f), name, a->type, have, want);
    return 0;
}

/* *out is fresh memory, taken only after the file has shown that it holds as much. */
static int read_array(const kh_safetensors *f, const char *name, int rank, const size_t *shape,
    float **out, kh_err *err) {
    const kh_array *a;
    int rc = find_array(f, name, rank, shape, &a, err);
    if (rc != 0)
        return rc;
    *out = kh_malloc(a->bytes);
    return *out ? kh_safetensors_read(f, a, 0, a->bytes, *out, err) : kh_fail_memory(err);
}

/* All parts of an adapter into one vector; again the file must hold them before memory is taken. */
static int read_adapter(kh_posterior *p, const kh_safetensors *f, kh_err *err) {
    kh_adapter_part part[KH_ADAPTER_PARTS];
    const kh_array *a[KH_ADAPTER_PARTS];
    int n = kh_adapter_parts(&p->adapter, part), rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = find_array(f, part[i].name, part[i].rank, part[i].shape, &a[i], err);
    if (rc != 0 || n == 0)
        return rc;
    p->adapter.x = kh_malloc(kh_adapter_size(&p->adapter) * sizeof *p->adapter.x);
    if (!p->adapter.x)
        return kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = kh_safetensors_read(f, a[i], 0, a[i]->bytes, p->adapter.x + part[i].at, err);
    return rc;
}

/* Weights are floats that were rounded one by one: 1e-3 is far above what 2^20 of them can lose,
 * far below a missing sample of 100. */
static int check_samples(const kh_posterior *p, const char *path, kh_err *err) {
    double total = 0;
    for (int i = 0; i < p->n; i++) {
        if (!(p->weight[i] >= 0) || !isfinite(p->weight[i]))
            return kh_fail(err, KH_EFORMAT, "%s: the weight of sample %d is %g", path, i,
                (double)p->weight[i]);
        total += (double)p->weight[i];
    }
    if (!(fabs(total - 1) < 1e-3))
        return kh_fail(err, KH_EFORMAT, "%s: the weights add up to %g, expected 1", path, total);
    for (size_t i = 0; i < z_bytes(p) / sizeof *p->z; i++)
        if (!isfinite(p->z[i]))
            return kh_fail(err, KH_EFORMAT, "%s: number %zu of z is not finite", path, i);
    for (size_t i = 0; p->features && i < features_bytes(p) / sizeof *p->features; i++)
        if (!isfinite(p->features[i]))
            return kh_fail(
                err, KH_EFORMAT, "%s: number %zu of the features is not finite", path, i);
    for (size_t i = 0; p->adapter.x && i < kh_adapter_size(&p->adapter); i++)
        if (!isfinite(p->adapter.x[i]))
            return kh_fail(err, KH_EFORMAT, "%s: number %zu of the %s is not finite", path, i,
                kh_adapter_name(p->adapter.kind));
    return 0;
}

/* Shapes come from the JSON, which was checked first; the file must agree before memory is taken.
 */
static int open_samples(kh_posterior *p, const char *path, uint64_t hash, kh_err *err) {
    size_t d = (size_t)(p->soft ? p->space.dim : 0), shape[] = { (size_t)p->n, d };
    kh_safetensors *f;
    int rc = kh_safetensors_open(&f, path, err);
    if (rc != 0)
        return rc;
    rc = read_array(f, "weights", 1, shape, &p->weight, err);
    if (rc == 0)
        rc = read_array(f, "z", 2, shape, &p->z, err);
    if (rc == 0)
        rc = read_adapter(p, f, err);
    size_t features[] = { (size_t)p->n_features, (size_t)p->features_size };
    if (rc == 0 && p->n_features > 0)
        rc = read_array(f, "features", 2, features, &p->features, err);
    if (rc == 0 && hash_samples(p) != hash)
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: does not belong to the " JSON_NAME " beside it; one of them was replaced", path);
    if (rc == 0)
        rc = check_samples(p, path, err);
    kh_safetensors_close(f);
    return rc;
}

/* A model that tuning has made lies in the run's own folder, wherever that is now. */
static int find_own_model(kh_posterior *p, const char *dir, kh_err *err) {
    static const char LAST[] = "/model";
    size_t n = p->model ? strlen(p->model) : 0, m = sizeof LAST - 1;
    if (n < m || strcmp(p->model + n - m, LAST) != 0)
        return 0;
    char *config = kh_path_join(dir, "model/config.json"), *own = kh_path_join(dir, "model");
    int rc = config && own ? 0 : kh_fail_memory(err);
    if (rc == 0 && kh_file_exists(config) && !kh_dir_exists(p->model)) {
        p->model = kh_posterior_keep(p, own);
        rc = p->model ? 0 : kh_fail_memory(err);
    }
    kh_free(config);
    kh_free(own);
    return rc;
}

/* A folder without a posterior, a file, or nothing at all. */
static int refuse_folder(const char *dir, kh_err *err) {
    if (kh_file_exists(dir))
        return kh_fail(err, KH_EMISSING,
            "%s: is a file, not the folder of a run; \"keyhole tune %s\" makes one", dir, dir);
    if (!kh_dir_exists(dir))
        return kh_fail(err, KH_EMISSING,
            "%s: there is no such folder; \"keyhole tune --out %s\" makes a run in it", dir, dir);
    return kh_fail(err, KH_EMISSING,
        "%s: no " JSON_NAME " in it; \"keyhole tune --out %s\" makes one", dir, dir);
}

int kh_posterior_open(kh_posterior **out, const char *dir, kh_err *err) {
    *out = NULL;
    kh_posterior *p = kh_calloc(1, sizeof *p);
    char *samples = kh_path_join(dir, SAMPLES_NAME), *json = kh_path_join(dir, JSON_NAME);
    kh_buf text = kh_buf_init(0);
    uint64_t hash = 0;
    int rc = p && samples && json ? 0 : kh_fail_memory(err);
    if (rc == 0 && !kh_file_exists(json))
        rc = refuse_folder(dir, err);
    if (rc == 0)
        rc = kh_file_read(json, JSON_MAX, &text, err);
    if (rc == 0)
        rc = kh_posterior_parse(p, text.data, text.len, json, &hash, err);
    if (rc == 0)
        rc = open_samples(p, samples, hash, err);
    if (rc == 0)
        rc = find_own_model(p, dir, err);
    if (rc == 0)
        p->opened = true;
    kh_buf_free(&text);
    kh_free(samples);
    kh_free(json);
    if (rc != 0)
        kh_posterior_free(p);
    else
        *out = p;
    return rc;
}
