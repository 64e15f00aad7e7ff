/* training.c - checkpoints of pre-training; see pretrain.h for the files.
 *
 * Each file appears whole or not at all. training.json names the state that it belongs to and is
 * written after it, so that a kill at any moment leaves a pair that fits together: the old one or
 * the new one. */
#include "train/training.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "model/safetensors.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* JSON_MAX holds a long recipe, LOG_MAX a million rows: what is larger is not ours. */
enum { STATE_VERSION = 1, JSON_MAX = 1 << 22, LOG_MAX = 1 << 26, NAME = 64 };

static const char *const VECTORS[3] = { "weights", "first_moments", "second_moments" };

static void state_name(long step, char out[NAME]) {
    snprintf(out, NAME, "training-%ld.safetensors", step);
}

int kh_training_save_model(kh_training *t, kh_err *err) {
    return kh_params_save(&t->params, t->w, t->o->out, t->o->dtype, err);
}

int kh_training_save_log(kh_training *t, kh_err *err) {
    char *path = kh_path_join(t->o->out, "log.tsv");
    int rc = path && !kh_buf_failed(&t->log) ? kh_file_write(path, t->log.data, t->log.len, err)
                                             : kh_fail_memory(err);
    kh_free(path);
    return rc;
}

/* -------------------------------------------------------------------------------------- saving */

/* Weights and both moments of AdamW in f32: what was computed goes on bit for bit. */
static int save_vectors(kh_training *t, const char *path, kh_err *err) {
    const float *vector[3] = { t->w, t->adamw.m, t->adamw.v };
    kh_array plan[3] = { { 0 } };
    for (int i = 0; i < 3; i++)
        plan[i] = (kh_array){
            .name = VECTORS[i], .dtype = KH_DTYPE_F32, .rank = 1, .shape = { t->params.size }
        };
    kh_safetensors_writer *w = NULL;
    int rc = kh_safetensors_create(&w, path, plan, 3, err);
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = kh_safetensors_put(w, vector[i], t->params.size * sizeof **vector, err);
    int closed = kh_safetensors_finish(w, rc == 0, rc == 0 ? err : NULL);
    return rc ? rc : closed;
}

static void put_json(const kh_training *t, kh_buf *b) {
    static const char LINE[] = "\n  ";
    char name[NAME];
    state_name(t->step, name);
    kh_json_out j = kh_json_out_init(b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "version", STATE_VERSION);
    kh_json_gap(&j, LINE);
    kh_json_put_string(&j, "state", name);
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "step", t->step);
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "phase", t->phase);
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "tokens", t->tokens);
    kh_json_gap(&j, LINE);
    kh_json_put_fixed(&j, "seconds", t->seconds, 3);
    kh_json_gap(&j, LINE);
    kh_json_put_number(&j, "loss_sum", t->loss_sum, 17);
    kh_json_gap(&j, LINE);
    kh_json_put_number(&j, "loss_weight", t->loss_weight, 17);
    kh_json_gap(&j, LINE);
    kh_json_open_array(&j, "drawn");
    for (int i = 0; i < t->corpus.n_file; i++)
        kh_json_put_int(&j, NULL, (long long)t->sampler.drawn[i]);
    kh_json_close(&j);
    kh_json_gap(&j, LINE);
    kh_json_put_text(&j, "recipe", t->recipe.data, t->recipe.len);
    kh_json_gap(&j, LINE);
    kh_json_put_text(&j, "schedule", t->schedule.data, t->schedule.len);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(b, '\n');
}

/* Removes states other than this one, and what a kill left of one. */
static void remove_old(const char *dir, const char *current) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "training-", 9) == 0 && strcmp(e->d_name, current) != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

/* State, then the JSON that names it, then model and log for people, and last the states that
 * nobody names any more. */
int kh_training_save(kh_training *t, kh_err *err) {
    char name[NAME];
    state_name(t->step, name);
    char *json_path = kh_path_join(t->o->out, "training.json"),
         *path = kh_path_join(t->o->out, name);
    kh_buf json = kh_buf_init(JSON_MAX);
    put_json(t, &json);
    int rc = json_path && path && !kh_buf_failed(&json) ? 0 : kh_fail_memory(err);
    if (rc != 0)
        goto done;
    if ((rc = save_vectors(t, path, err)) != 0 ||
        (rc = kh_file_write(json_path, json.data, json.len, err)) != 0 ||
        (rc = kh_training_save_model(t, err)) != 0 || (rc = kh_training_save_log(t, err)) != 0)
        goto done;
    remove_old(t->o->out, name);
done:
    kh_buf_free(&json);
    kh_free(json_path);
    kh_free(path);
    return rc;
}

/* ------------------------------------------------------------------------------------- loading */

static int load_vectors(kh_training *t, const char *path, kh_err *err) {
    float *vector[3] = { t->w, t->adamw.m, t->adamw.v };
    kh_safetensors *f;
    int rc = kh_safetensors_open(&f, path, err);
    for (int i = 0; i < 3 && rc == 0; i++) {
        const kh_array *a = kh_safetensors_find(f, VECTORS[i]);
        if (!a || a->dtype != KH_DTYPE_F32 || a->bytes != t->params.size * sizeof **vector)
            rc = kh_fail(err, KH_EMISMATCH,
                "%s: has no \"%s\" of %zu numbers in F32; it belongs to another model", path,
                VECTORS[i], t->params.size);
        else
            rc = kh_safetensors_read(f, a, 0, a->bytes, vector[i], err);
    }
    if (rc == 0)
        rc = kh_safetensors_unchanged(f, err);
    kh_safetensors_close(f);
    return rc;
}

/* log.tsv without rows of steps that are still to come (again). */
static int load_log(kh_training *t, kh_err *err) {
    char *path = kh_path_join(t->o->out, "log.tsv");
    if (!path)
        return kh_fail_memory(err);
    kh_buf text = { 0 };
    int rc = kh_file_exists(path) ? kh_file_read(path, LOG_MAX, &text, err) : 0;
    if (rc == 0 && text.len > 0)
        kh_buf_reset(&t->log);
    for (char *at = text.data, *end; rc == 0 && at && *at; at = end) {
        end = at + strcspn(at, "\n");
        end += *end == '\n';
        long step;
        if (sscanf(at, "%ld", &step) != 1 || step <= t->step)
            kh_buf_bytes(&t->log, at, (size_t)(end - at));
    }
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

/* Strict for what decides the batches; told, but allowed, for the learning rate and its like. */
static void check_text(kh_json_in *r, const json_t *root, const char *key, const kh_buf *now,
    bool strict, const kh_hooks *hooks) {
    const char *then = kh_json_get_string(r, root, key);
    if (r->rc != 0 || strcmp(then, now->data) == 0)
        return;
    if (strict)
        kh_json_refuse(r, KH_EMISMATCH,
            "the run was started with \"%.380s\" and cannot go on with \"%.380s\"", then,
            now->data);
    else
        kh_log(hooks, KH_INFO, "%s: the run was started with \"%s\" and goes on with \"%s\"",
            r->name, then, now->data);
}

static double get_count(kh_json_in *r, const json_t *root, const char *key) {
    double x = kh_json_get_number(r, root, key);
    if (!(x >= 0 && x < 1e15))
        kh_json_refuse(r, KH_EFORMAT, "\"%s\" must be a number from 0 to 1e15", key);
    return x;
}

static int load_json(
    kh_training *t, const json_t *root, const char *path, char name[NAME], kh_err *err) {
    kh_json_in r = { path, err, 0 };
    kh_json_get_int(&r, root, "version", 1, STATE_VERSION);
    check_text(&r, root, "recipe", &t->recipe, true, t->o->hooks);
    check_text(&r, root, "schedule", &t->schedule, false, t->o->hooks);
    const char *state = kh_json_get_string(&r, root, "state");
    double step = get_count(&r, root, "step");
    t->phase = kh_json_get_int(&r, root, "phase", 0, t->o->n_phase - 1);
    double tokens = get_count(&r, root, "tokens");
    t->seconds = get_count(&r, root, "seconds");
    t->loss_sum = get_count(&r, root, "loss_sum");
    t->loss_weight = get_count(&r, root, "loss_weight");
    if (strlen(state) >= NAME || strchr(state, '/'))
        kh_json_refuse(&r, KH_EFORMAT, "\"state\" must be the name of a file in the same folder");
    const json_t *drawn = json_object_get(root, "drawn");
    if (!json_is_array(drawn) || json_array_size(drawn) != (size_t)t->corpus.n_file)
        kh_json_refuse(&r, KH_EFORMAT, "\"drawn\" must be a list of %d numbers", t->corpus.n_file);
    if (r.rc != 0)
        return r.rc;
    snprintf(name, NAME, "%s", state);
    t->step = t->adamw.step = (long)step;
    t->tokens = (long long)tokens;
    for (int i = 0; i < t->corpus.n_file; i++) {
        json_int_t n = json_integer_value(json_array_get(drawn, (size_t)i));
        t->drawn[i] = n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int kh_training_load(kh_training *t, bool *found, kh_err *err) {
    char name[NAME], *path = kh_path_join(t->o->out, "training.json"), *state = NULL;
    json_t *root = NULL;
    *found = false;
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc != 0 || !kh_file_exists(path))
        goto done;
    if ((rc = kh_json_read(path, JSON_MAX, &root, err)) != 0 ||
        (rc = load_json(t, root, path, name, err)) != 0)
        goto done;
    if (!(state = kh_path_join(t->o->out, name))) {
        rc = kh_fail_memory(err);
        goto done;
    }
    if ((rc = load_vectors(t, state, err)) == 0)
        rc = load_log(t, err);
    *found = rc == 0;
done:
    json_decref(root);
    kh_free(path);
    kh_free(state);
    return rc;
}
