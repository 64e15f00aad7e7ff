/* fuzz_request_server.c - any bytes as the body of a request, from its reading to its answer: the
 * first byte chooses the endpoint (of those above 127, the two for closed questions). The server is
 * a whole one, but the routes are called without a connection. Every body gets a status and, if it
 * is 200, JSON. */
#include "fuzz/model.h"
#include "server/server_parts.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#ifdef KH_WITH_MHD

static const char TASK[] = "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
                           ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                           "{\"name\":\"good\",\"words\":[\"better\"]}]}";

static kh_server *model, *closed,
    *desk; /* at access level embeddings, at labels, and a classifier; they are never stopped */

static kh_plm *open_box(kh_access access) {
    kh_plm *plm;
    assert(kh_plm_open(&plm, fuzz_folder, &(kh_plm_opts){ .access = access }, NULL) == 0);
    return plm;
}

static kh_server *start(const kh_served *what) {
    kh_server_opts o = kh_server_defaults();
    kh_server *s;
    o.port = 0;
    o.prompts = 4; /* what is asked for must not take long */
    o.rows = 4;
    o.tokens = 2000;
    assert(kh_server_start(&s, what, &o, NULL) == 0);
    return s;
}

static void start_all(void) {
    static const kh_task *task; /* they live as long as the servers */
    static kh_posterior *p;
    kh_dataset *rows;
    static const char TSV[] = "label\ttext\n0\ta boat\n1\tno boat\n";
    kh_tune_opts o = kh_tune_defaults();
    fuzz_model_make();
    kh_threads_set(1);
    model = start(&(kh_served){ .plm = open_box(KH_ACCESS_LOGPROBS),
        .name = "fuzz",
        .dir = fuzz_folder,
        .embeddings = true });
    closed = start(
        &(kh_served){ .plm = open_box(KH_ACCESS_LABELS), .name = "fuzz", .dir = fuzz_folder });
    kh_plm *box = open_box(KH_ACCESS_LOGPROBS);
    assert(kh_task_parse(&task, TASK, sizeof TASK - 1, "toy", NULL) == 0);
    assert(kh_dataset_parse(&rows, TSV, sizeof TSV - 1, "rows.tsv", NULL, NULL) == 0);
    assert(kh_tune(&p, "manual", NULL, box, task, rows, rows, &o, NULL) == 0);
    kh_dataset_close(rows);
    desk = start(&(kh_served){ .plm = box, .name = "fuzz", .posterior = p });
}

static void answer(
    kh_server *s, void (*prepare)(kh_server *, kh_call *), const uint8_t *data, size_t n) {
    kh_call c = { .body = kh_buf_init(1 << 20) }, *one = &c;
    kh_buf_bytes(&c.body, data, n);
    prepare(s, &c);
    if (c.reply.status == 0) {
        assert(c.way);
        c.way->run(s, &one, 1);
    }
    assert(c.reply.status == 200 || c.reply.status == 400 || c.reply.status == 403 ||
        c.reply.status == 413 || c.reply.status == 422);
    json_t *root = NULL;
    assert(!kh_buf_failed(&c.reply.body) &&
        kh_json_parse(c.reply.body.data, c.reply.body.len, "answer", &root, NULL) == 0);
    json_decref(root);
    if (c.way)
        c.way->free(c.parsed);
    kh_buf_free(&c.body);
    kh_buf_free(&c.reply.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static void (*const POST[])(
        kh_server *, kh_call *) = { kh_post_score, kh_post_completions, kh_post_embeddings };
    if (n == 0 || n > 1 << 16)
        return 0;
    if (!model)
        start_all();
    if (data[0] > 127) {
        kh_server *const who[] = { model, closed, desk };
        answer(who[(data[0] >> 1) % 3], data[0] & 1 ? kh_post_systemone : kh_post_decisions,
            data + 1, n - 1);
        return 0;
    }
    int which = data[0] % 7;
    if (which == 6)
        answer(desk, kh_post_classify, data + 1, n - 1);
    else
        answer(which < 3 ? model : closed, POST[which % 3], data + 1, n - 1);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) { return data == NULL && n > 0; }

#endif
