/* export.c - the prompts of a posterior as files: soft ones for other tools, texts for people.
 *
 * safetensors and npz hold the same arrays: prompt [n, slots, hidden], weight [n] and z [n, dim].
 * PEFT knows one prompt at a time, so it gets a folder for each sample. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/place.h"
#include "base/zip.h"
#include "posterior/predict.h"
#include "model/engine.h"
#include "model/safetensors.h"
#include "plm/backend.h"

#include <stdio.h>
#include <string.h>

/* The arrays of a run. */
typedef struct arrays {
    const char *out, *task_type;
    const kh_posterior *post;
    kh_plm *plm;
    const float *prompt;
    size_t size; /* numbers of a prompt */
} arrays;

static int write_buf(const char *path, kh_buf *b, kh_err *err) {
    return kh_buf_failed(b) ? kh_fail_memory(err) : kh_file_write(path, b->data, b->len, err);
}

/* ------------------------------------------------------------------------------------- formats */

static int to_safetensors(const arrays *a, kh_err *err) {
    const kh_space *s = &a->post->space;
    size_t n = (size_t)a->post->n;
    kh_array plan[] = {
        { .name = "prompt",
            .dtype = KH_DTYPE_F32,
            .rank = 3,
            .shape = { n, (size_t)s->slots, (size_t)s->hidden } },
        { .name = "weight", .dtype = KH_DTYPE_F32, .rank = 1, .shape = { n } },
        { .name = "z", .dtype = KH_DTYPE_F32, .rank = 2, .shape = { n, (size_t)s->dim } },
    };
    kh_safetensors_writer *w;
    int rc = kh_safetensors_create(&w, a->out, plan, 3, err);
    if (rc == 0)
        rc = kh_safetensors_put(w, a->prompt, n * a->size * sizeof(float), err);
    if (rc == 0)
        rc = kh_safetensors_put(w, a->post->weight, n * sizeof(float), err);
    if (rc == 0)
        rc = kh_safetensors_put(w, a->post->z, n * (size_t)s->dim * sizeof(float), err);
    int finished = kh_safetensors_finish(w, rc == 0, rc == 0 ? err : NULL);
    return rc ? rc : finished;
}

/* One array in NumPy's format 1.0: magic, length of the header, a Python literal padded to 64
 * bytes, the numbers. */
static void add_npy(kh_zip *z, const char *name, const float *x, const char *shape, size_t n) {
    kh_buf b = kh_buf_init(KH_BUF_MAX), head = kh_buf_init(1 << 10);
    kh_buf_printf(&head, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape);
    while ((10 + head.len + 1) % 64 != 0 && !kh_buf_failed(&head))
        kh_buf_char(&head, ' ');
    kh_buf_char(&head, '\n');
    kh_buf_bytes(&b, "\x93NUMPY\x01\x00", 8);
    kh_buf_char(&b, (char)(head.len & 255));
    kh_buf_char(&b, (char)(head.len >> 8));
    kh_buf_bytes(&b, head.data, head.len);
    kh_buf_bytes(&b, x, n * sizeof *x);
    if (kh_buf_failed(&b) || kh_buf_failed(&head))
        z->out->failed = true;
    else
        kh_zip_add(z, name, b.data, b.len);
    kh_buf_free(&b);
    kh_buf_free(&head);
}

static int to_npz(const arrays *a, kh_err *err) {
    const kh_space *s = &a->post->space;
    size_t n = (size_t)a->post->n;
    char shape[3][64];
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_zip z = kh_zip_start(&b);
    snprintf(shape[0], sizeof shape[0], "%zu, %d, %d", n, s->slots, s->hidden);
    snprintf(shape[1], sizeof shape[1], "%zu,", n);
    snprintf(shape[2], sizeof shape[2], "%zu, %d", n, s->dim);
    add_npy(&z, "prompt.npy", a->prompt, shape[0], n * a->size);
    add_npy(&z, "weight.npy", a->post->weight, shape[1], n);
    add_npy(&z, "z.npy", a->post->z, shape[2], n * (size_t)s->dim);
    kh_zip_finish(&z);
    int rc = write_buf(a->out, &b, err);
    kh_buf_free(&b);
    return rc;
}

static void put_numbers(kh_json_out *j, const char *key, const float *x, int n) {
    kh_json_open_array(j, key);
    for (int i = 0; i < n; i++)
        kh_json_put_number(j, NULL, (double)x[i], 9);
    kh_json_close(j);
}

static int to_jsonl(const arrays *a, kh_err *err) {
    const kh_space *s = &a->post->space;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    for (int i = 0; i < a->post->n; i++) {
        kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_int(&j, "sample", i);
        kh_json_put_number(&j, "weight", (double)a->post->weight[i], 9);
        kh_json_put_string(&j, "inject", kh_inject_name(s->inject));
        put_numbers(&j, "z", a->post->z + (size_t)i * (size_t)s->dim, s->dim);
        kh_json_open_array(&j, "prompt");
        for (int r = 0; r < s->slots; r++)
            put_numbers(&j, NULL, a->prompt + (size_t)i * a->size + (size_t)r * (size_t)s->hidden,
                s->hidden);
        kh_json_close(&j);
        kh_json_close(&j);
        kh_buf_char(&b, '\n');
    }
    int rc = write_buf(a->out, &b, err);
    kh_buf_free(&b);
    return rc;
}

/* ---------------------------------------------------------------------------------------- PEFT */

static void put_config(const arrays *a, kh_buf *b) {
    const kh_space *s = &a->post->space;
    struct kh_engine *e = kh_plm_engine(a->plm);
    kh_model_info m = e ? kh_model_describe(kh_engine_model(e)) : (kh_model_info){ 0 };
    const char *model = a->post->model;
    if (e && model && strcmp(model, KH_BUILTIN) == 0) /* a word that only keyhole knows */
        model = kh_engine_model(e)->dir;
    const char *type = a->task_type;
    if (!type)
        type = kh_plm_describe(a->plm).next ? "CAUSAL_LM" : "FEATURE_EXTRACTION";
    static const char LINE[] = "\n  ";
    kh_json_out j = kh_json_out_init(b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
#define PUT(how, ...) (kh_json_gap(&j, LINE), kh_json_put_##how(&j, __VA_ARGS__))
    PUT(null, "auto_mapping");
    PUT(string, "base_model_name_or_path", model);
    PUT(bool, "inference_mode", true);
    PUT(null, "modules_to_save");
    if (e) {
        PUT(int, "num_attention_heads", m.heads);
        PUT(int, "num_layers", m.layers);
    } else {
        PUT(null, "num_attention_heads");
        PUT(null, "num_layers");
    }
    PUT(int, "num_transformer_submodules", 1);
    PUT(int, "num_virtual_tokens", s->slots);
    PUT(string, "peft_type", "PROMPT_TUNING");
    PUT(string, "prompt_tuning_init", "RANDOM");
    PUT(null, "prompt_tuning_init_text");
    PUT(null, "revision");
    PUT(string, "task_type", type);
    PUT(int, "token_dim", s->hidden);
    PUT(null, "tokenizer_kwargs");
    PUT(null, "tokenizer_name_or_path");
#undef PUT
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(b, '\n');
}

static int write_adapter(const arrays *a, int sample, const char *dir, kh_err *err) {
    const kh_space *s = &a->post->space;
    char *config = kh_path_join(dir, "adapter_config.json"),
         *weights = kh_path_join(dir, "adapter_model.safetensors");
    kh_buf b = kh_buf_init(1 << 20);
    kh_array plan = { .name = "prompt_embeddings",
        .dtype = KH_DTYPE_F32,
        .rank = 2,
        .shape = { (size_t)s->slots, (size_t)s->hidden } };
    kh_safetensors_writer *w = NULL;
    int rc = config && weights ? kh_dir_make(dir, err) : kh_fail_memory(err);
    put_config(a, &b);
    if (rc == 0)
        rc = kh_safetensors_create(&w, weights, &plan, 1, err);
    if (rc == 0)
        rc = kh_safetensors_put(
            w, a->prompt + (size_t)sample * a->size, a->size * sizeof(float), err);
    int finished = kh_safetensors_finish(w, rc == 0, rc == 0 ? err : NULL);
    rc = rc ? rc : finished;
    if (rc == 0)
        rc = write_buf(config, &b, err);
    kh_buf_free(&b);
    kh_free(config);
    kh_free(weights);
    return rc;
}

static int to_peft(const arrays *a, kh_err *err) {
    kh_inject inject = a->post->space.inject;
    if (inject != KH_INJECT_EMBED_PREFIX)
        return kh_fail(err, KH_EUNSUPPORTED,
            "PEFT puts its prompts in front of all word embeddings; these were tuned as %s, which "
            "%s, and would mean something "
            "else there; "
            "tune with --inject embed-prefix",
            kh_inject_name(inject),
            inject == KH_INJECT_POST_LN_ADD ? "adds them behind the embeddings' LayerNorm"
                                            : "puts them behind the first token");
    int rc = kh_dir_make(a->out, err);
    for (int i = 0; i < a->post->n && rc == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "sample-%03d", i);
        char *dir = kh_path_join(a->out, name);
        rc = dir ? write_adapter(a, i, dir, err) : kh_fail_memory(err);
        kh_free(dir);
    }
    return rc;
}

/* --------------------------------------------------------------------------------------- texts */

int kh_posterior_export_text(const kh_posterior *p, const char *path, kh_err *err) {
    if (p->texts.n == 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the posterior has no text prompts; methods text-search, text-ensemble and text-smc "
            "make them");
    int *order = kh_calloc((size_t)p->n, sizeof *order), rc = order ? 0 : kh_fail_memory(err);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    if (rc == 0)
        kh_posterior_by_weight(p, order);
    kh_buf_printf(&b,
        "# %d text prompt%s of method %s for task \"%s\", the heaviest first.\n# Ask with each, "
        "and "
        "average the answers by these weights.\n",
        p->n, p->n == 1 ? "" : "s", p->method, p->task->name);
    for (int i = 0; i < p->n && rc == 0; i++) {
        char *text;
        rc = kh_posterior_text(p, order[i], &text, err);
        if (rc == 0)
            kh_buf_printf(&b, "\n## weight %.4f\n\n%s", (double)p->weight[order[i]], text);
        kh_text_free(text);
    }
    if (rc == 0)
        rc = write_buf(path, &b, err);
    kh_buf_free(&b);
    kh_free(order);
    return rc;
}

/* ----------------------------------------------------------------------------------- the call */

int kh_posterior_export(const kh_posterior *p, kh_plm *plm, kh_export_format format,
    const char *path, const char *task_type, kh_err *err) {
    static int (*const WRITE[])(
        const arrays *, kh_err *) = { to_peft, to_npz, to_jsonl, to_safetensors };
    if (!p->soft)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the posterior was made without a soft prompt, so there is nothing to export%s",
            p->texts.n > 0 ? "; its text prompts go by --format text" : "");
    kh_predictor *predictor;
    int rc = kh_predictor_new(&predictor, p, plm, NULL, err);
    if (rc == 0) {
        arrays a = { .out = path,
            .task_type = task_type,
            .post = p,
            .plm = plm,
            .prompt = kh_predictor_prompts(predictor),
            .size = (size_t)p->space.slots * (size_t)p->space.hidden };
        rc = WRITE[format](&a, err);
    }
    kh_predictor_free(predictor);
    return rc;
}
