/* embeddings.c - POST /v1/embeddings as OpenAI has it: texts -> the mean of their hidden states
 * after the last layer. Only at access level embeddings; everything else here is about answers,
 * this is about what the model makes of a text. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "model/engine.h"
#include "plm/backend.h"

#include <string.h>

typedef struct inputs {
    kh_ids *ids; /* [n] */
    int n;
} inputs;

static void free_inputs(void *parsed) {
    inputs *in = parsed;
    if (!in)
        return;
    for (int i = 0; i < in->n; i++)
        kh_ids_free(&in->ids[i]);
    kh_free(in->ids);
    kh_free(in);
}

static int read_inputs(kh_server *s, inputs *in, const json_t *root, kh_err *err) {
    const json_t *input = json_object_get(root, "input");
    size_t n = json_is_array(input) ? json_array_size(input) : json_is_string(input);
    if (n < 1 || n > (size_t)s->limits.rows)
        return kh_fail(err, KH_EFORMAT,
            "request: \"input\" must be a text, or an array of 1 to %d texts", s->limits.rows);
    if (!(in->ids = kh_calloc(n, sizeof *in->ids)))
        return kh_fail_memory(err);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *v = json_is_array(input) ? json_array_get(input, i) : input;
        const char *text = json_string_value(v);
        in->n++;
        rc = text ? kh_tokenizer_encode(kh_plm_tokenizer(s->what.plm), text, json_string_length(v),
                        KH_ENCODE_FRAME | KH_ENCODE_PLAIN, &in->ids[i], err)
                  : kh_fail(err, KH_EFORMAT, "request: element %zu of \"input\" is no text", i);
        if (rc == 0 && (in->ids[i].n < 1 || in->ids[i].n > s->limits.max_len))
            rc = kh_fail(err, KH_ELIMIT, "request: text %zu has %d tokens; the model takes 1 to %d",
                i, in->ids[i].n, s->limits.max_len);
    }
    return rc;
}

/* The mean over the tokens of one text: hidden [T, H] is scratch, out [H]. */
static int embed(kh_server *s, const kh_ids *ids, float *hidden, float *out, kh_err *err) {
    kh_engine *e = kh_plm_engine(s->what.plm);
    size_t H = (size_t)s->limits.hidden;
    kh_single single;
    kh_single_init(&single, ids->id, ids->n);
    int layers = kh_model_describe(kh_engine_model(e)).layers;
    int rc = kh_engine_hidden(
        e, &(kh_question){ .batch = &single.batch, .n_prompt = 1 }, layers, hidden, err);
    for (size_t i = 0; i < H && rc == 0; i++) {
        double sum = 0;
        for (int t = 0; t < ids->n; t++)
            sum += (double)hidden[(size_t)t * H + i];
        out[i] = (float)(sum / ids->n);
    }
    return rc;
}

static void run(kh_server *s, kh_call **calls, int n) {
    kh_call *c = calls[0];
    const inputs *in = c->parsed;
    size_t H = (size_t)s->limits.hidden;
    kh_err err = { 0 };
    float *hidden = kh_malloc(((size_t)s->limits.max_len + 1) * H * sizeof *hidden);
    int rc = hidden ? 0 : kh_fail_memory(&err);
    (void)n;
    kh_reply_text(c, 200, NULL, "");
    kh_json_out j = kh_json_out_init(&c->reply.body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "object", "list");
    kh_json_put_string(&j, "model", s->what.name);
    kh_json_open_array(&j, "data");
    for (int i = 0; i < in->n && rc == 0; i++) {
        float *mean = hidden + (size_t)s->limits.max_len * H;
        rc = embed(s, &in->ids[i], hidden, mean, &err);
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "object", "embedding");
        kh_json_put_int(&j, "index", i);
        kh_json_open_array(&j, "embedding");
        for (size_t k = 0; k < H && rc == 0; k++)
            kh_json_put_number(&j, NULL, (double)mean[k], 9);
        kh_json_close(&j);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&c->reply.body, '\n');
    if (rc != 0)
        kh_reply_err(c, &err);
    kh_free(hidden);
}

static const kh_way EMBED = { NULL, run, free_inputs, false };

void kh_post_embeddings(kh_server *s, kh_call *c) {
    kh_err err = { 0 };
    json_t *root = NULL;
    inputs *in = s->what.embeddings ? kh_calloc(1, sizeof *in) : NULL;
    if (!in) {
        kh_reply_fail(c, s->what.embeddings ? 503 : 403,
            s->what.embeddings ? "out of memory"
                               : "hidden states go out at --access embeddings only");
        return;
    }
    c->parsed = in;
    c->way = &EMBED;
    int rc = kh_json_parse(c->body.data ? c->body.data : "", c->body.len, "request", &root, &err);
    size_t longest = kh_longest_text(json_object_get(root, "input"));
    if (rc == 0 && kh_guard_charge(s, c, kh_encode_cost(longest)))
        rc = read_inputs(s, in, root, &err);
    if (rc != 0)
        kh_reply_err(c, &err);
    c->queries = in->n;
    c->bound = ((size_t)in->n * 20 + (size_t)s->limits.max_len * 4) * (size_t)s->limits.hidden;
    json_decref(root);
}
