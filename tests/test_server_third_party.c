/* test_server_third_party.c - the boxes behind other people's APIs: vLLM's completions against our
 * own server, and vLLM's chat, SGLang and OpenAI against a script; what they send, how they read
 * what comes back, and what they refuse. */
#include "evil.h"
#include "site.h"

#include "base/json.h"
#include "plm/torch_file.h"

#include <math.h>

#if defined KH_WITH_MHD && defined KH_WITH_CURL

enum { SLOTS = 3, PROMPTS = 2, ROWS = 2 };

typedef struct asked {
    const kh_task *task;
    kh_words *words;
    kh_batch *batch;
    float prompt[PROMPTS * SLOTS * 32];
    kh_question q;
} asked;

static void asked_init(asked *a, kh_plm *box, kh_inject inject, const char *json) {
    static int32_t slot_id[SLOTS] = { 20, 21, 22 };
    static const kh_row ROW[ROWS] = { { .a = "the boats", .n_a = 9 },
        { .a = "were green and small", .n_a = 20 } };
    kh_err err;
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, 0, 0);
    kh_batch_opts o = { .max_len = 100,
        .n_slot = inject == KH_INJECT_NONE ? 0 : SLOTS,
        .slot_id = slot_id,
        .placement = inject == KH_INJECT_EMBED_PREFIX ? KH_SLOTS_PREFIX : KH_SLOTS_TEMPLATE,
        .next = kh_plm_describe(box).next };
    if (kh_task_parse(&a->task, json, strlen(json), "task", &err) != 0 ||
        kh_words_new(&a->words, a->task, kh_plm_tokenizer(box), false, &err) != 0 ||
        kh_batch_encode(&a->batch, kh_plm_tokenizer(box), a->task, a->words, ROW, ROWS, &o, &err) !=
            0)
        fail_msg("%s", err.msg);
    for (int i = 0; i < PROMPTS * SLOTS * 32; i++)
        a->prompt[i] = 0.5f * (float)kh_rng_normal(&r);
    a->q = (kh_question){ a->batch, a->words, inject, inject == KH_INJECT_NONE ? NULL : a->prompt,
        PROMPTS };
}

static void asked_free(asked *a) {
    kh_batch_free(a->batch);
    kh_words_free(a->words);
    kh_task_close(a->task);
}

static char weights[128];

static kh_plm *box_open(const char *url, const char *backend, const char *model, kh_access access) {
    kh_http_opts o = kh_http_defaults();
    kh_plm *box;
    kh_err err;
    snprintf(weights, sizeof weights, "%s/model.safetensors", tiny_dir);
    o.backend = backend;
    o.model = model;
    o.retries = 0;
    o.in_flight = 3;
    o.tokenizer = tiny_dir;
    o.embeddings = weights;
    if (kh_plm_open(&box, url, &(kh_plm_opts){ .access = access, .http = &o }, &err) != 0)
        fail_msg("%s", err.msg);
    return box;
}

/* Log-probabilities over the vocabulary come back rounded, so the labels' agree but for the last
 * bits. */
static void vllm_completions_agree_with_the_native_box(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS),
           *http = box_open(s.url, "vllm-completions", NULL, KH_ACCESS_LOGPROBS);
    assert_string_equal(kh_plm_describe(http).model, "tiny"); /* the first of /v1/models */
    assert_string_equal(kh_plm_describe(http).backend, "vllm-completions");
    for (int inject = KH_INJECT_NONE; inject <= KH_INJECT_EMBED_INPLACE; inject++) {
        if (inject == KH_INJECT_POST_LN_ADD)
            continue;
        asked a;
        float one[PROMPTS * ROWS * 2], two[PROMPTS * ROWS * 2];
        int label[PROMPTS * ROWS], same[PROMPTS * ROWS], n = (inject ? PROMPTS : 1) * ROWS;
        kh_err err;
        asked_init(&a, native, (kh_inject)inject, TINY_TASK);
        assert_int_equal(kh_plm_score(kh_plm_scorer(native, NULL), &a.q, one, NULL), 0);
        if (kh_plm_score(kh_plm_scorer(http, NULL), &a.q, two, &err) != 0)
            fail_msg("%s", err.msg);
        for (int i = 0; i < n * 2; i++)
            assert_true(fabs((double)one[i] - (double)two[i]) < 1e-4);
        assert_int_equal(kh_plm_answer(kh_plm_labeler(native, NULL), &a.q, label, NULL), 0);
        assert_int_equal(kh_plm_answer(kh_plm_labeler(http, NULL), &a.q, same, &err), 0);
        assert_memory_equal(label, same, (size_t)n * sizeof *label);
        asked_free(&a);
    }
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

/* At access level labels, the same endpoint gives the same labels and no number. */
static void vllm_completions_at_labels_let_no_number_out(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    kh_plm *native = tiny_open(KH_ACCESS_LABELS),
           *http = box_open(s.url, "vllm-completions", "tiny", KH_ACCESS_LOGPROBS);
    kh_err err;
    assert_null(kh_plm_scorer(http, &err)); /* the probe has found out */
    asked a;
    int label[PROMPTS * ROWS], same[PROMPTS * ROWS];
    asked_init(&a, native, KH_INJECT_EMBED_INPLACE, TINY_TASK);
    assert_int_equal(kh_plm_answer(kh_plm_labeler(native, NULL), &a.q, label, NULL), 0);
    if (kh_plm_answer(kh_plm_labeler(http, NULL), &a.q, same, &err) != 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(label, same, sizeof label);
    static const char *const LEAKS[] = { "{\"prompt\":\"a <mask>\",\"logprobs\":5}",
        "{\"prompt\":\"a <mask>\",\"logprobs\":0}",
        "{\"prompt\":\"a <mask>\",\"logprobs\":1,\"logprob_token_ids\":[5]}",
        "{\"prompt\":\"a <mask>\",\"logit_bias\":{\"5\":3.5}}",
        "{\"prompt\":\"a <mask>\",\"logprob_token_ids\":[5]}",
        "{\"prompt\":\"a <mask>\",\"echo\":true}" };
    for (size_t i = 0; i < sizeof LEAKS / sizeof LEAKS[0]; i++) {
        int status = ask(&s, "POST", "/v1/completions", "", LEAKS[i], answer, sizeof answer);
        if ((status != 403 && status != 400) || strstr(answer, "logprobs\":{"))
            fail_msg("%s: HTTP %d: %s", LEAKS[i], status, answer);
    }
    assert_int_equal(
        ask(&s, "POST", "/v1/completions", "", "{\"prompt\":\"a <mask>\"}", answer, sizeof answer),
        200);
    assert_non_null(strstr(answer, "\"logprobs\":null"));
    asked_free(&a);
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

static void completions_refuse_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *body, *says;
    } CASES[] = {
        { "[]", "must be an object" },
        { "{}", "prompts are needed" },
        { "{\"prompt\":\"no such token\"}", "holds no mask" },
        { "{\"prompt\":[1,2,99999]}", "is no token id" },
        { "{\"prompt\":\"<mask>\",\"max_tokens\":5}", "max_tokens" },
        { "{\"prompt\":\"<mask>\",\"logprobs\":21}", "logprobs" },
        { "{\"prompt\":\"<mask>\",\"stream\":true}", "not offered" },
        { "{\"prompt_embeds\":\"AAAA\"}", "not a zip archive" },
        { "{\"prompt_embeds\":\"AAA\"}", "must be base64" },
        { "{\"prompt_embeds\":5}", "must be base64" },
        { "{\"prompt_embeds\":\"AA A\"}", "is not base64" },
    };
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int status = ask(&s, "POST", "/v1/completions", "", CASES[i].body, answer, sizeof answer);
        if (status != 400 || !strstr(answer, CASES[i].says))
            fail_msg("%s: HTTP %d: %s", CASES[i].body, status, answer);
    }
    site_close(&s);
}

/* ----------------------------------------------------------------------------------- by script */

/* Ids of the words: lower, better. */
static int32_t lower, better;
static char reply[2048];

static const char *chat_script(int n) {
    (void)n;
    snprintf(reply, sizeof reply,
        "{\"choices\":[{\"message\":{\"content\":\" "
        "better\"},\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-1,\"top_logprobs\":[{"
        "\"token\":"
        "\"token_id:%d\",\"logprob\":-0.25},{\"token\":\"token_id:%d\",\"logprob\":-1.5},{"
        "\"token\":\"token_id:1\",\"logprob\":-"
        "9999.0}]}]}}]}",
        better, lower);
    return wrap(reply);
}
static const char *text_script(int n) {
    (void)n;
    return wrap("{\"choices\":[{\"message\":{\"content\":\"better\"},\"logprobs\":{\"content\":[{"
                "\"token\":\"x\",\"logprob\":-1,"
                "\"top_logprobs\":[{\"token\":"
                "\" better\",\"logprob\":-0.25},{\"token\":\" other\",\"logprob\":-1.5}]}]}}]}");
}
static const char *sglang_script(int n) {
    (void)n;
    snprintf(reply, sizeof reply,
        "{\"text\":\"x\",\"meta_info\":{\"output_token_logprobs\":[[-0.1,%d,null]],\"output_token_"
        "ids_logprobs\":[[[-1.5,%d,null],["
        "-0.25,%d,null]]]}}",
        better, lower, better);
    return wrap(reply);
}
static const char *empty_script(int n) {
    return n == 0 ? text_script(0)
                  : wrap("{\"choices\":[{\"message\":{\"content\":\"?\"},\"logprobs\":{\"content\":"
                         "[{\"token\":\"x\",\"top_"
                         "logprobs\":[]}]}}]}");
}
static const char *nan_script(int n) {
    return n == 0 ? text_script(0)
                  : wrap("{\"choices\":[{\"message\":{\"content\":\"?\"},\"logprobs\":{\"content\":"
                         "[{\"token\":\"x\",\"top_"
                         "logprobs\":[{\"token\":\" better\","
                         "\"logprob\":null}]}]}}]}");
}
static const char *strange_script(int n) {
    return n == 0 ? text_script(0)
                  : wrap("{\"choices\":[{\"message\":{\"content\":\"?\"},\"logprobs\":{\"content\":"
                         "[{\"token\":\"x\",\"top_"
                         "logprobs\":[{\"token\":\"zzz\","
                         "\"logprob\":-1}]}]}}]}");
}
static const char *no_logprobs_script(int n) {
    (void)n;
    return wrap("{\"choices\":[{\"message\":{\"content\":\"better\"},\"logprobs\":null}]}");
}

static void find_words(void) {
    kh_tokenizer *t;
    kh_ids a = { 0 }, b = { 0 };
    assert_int_equal(kh_tokenizer_open(&t, tiny_dir, NULL), 0);
    assert_int_equal(kh_tokenizer_encode(t, " lower", 6, KH_ENCODE_PLAIN, &a, NULL), 0);
    assert_int_equal(kh_tokenizer_encode(t, " better", 7, KH_ENCODE_PLAIN, &b, NULL), 0);
    lower = a.id[0], better = b.id[0];
    kh_ids_free(&a);
    kh_ids_free(&b);
    kh_tokenizer_close(t);
}

static void url_of(const evil *e, char *out) { snprintf(out, 64, "http://127.0.0.1:%d", e->port); }

static void services_are_read(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        script_fn *script;
        kh_inject inject;
        double other; /* log-probability of the less probable label, before it is made to add up to
                         one */
    } CASES[] = { { "vllm-chat", chat_script, KH_INJECT_EMBED_PREFIX, -1.5 },
        { "sglang", sglang_script, KH_INJECT_EMBED_INPLACE, -1.5 },
        { "openai", text_script, KH_INJECT_NONE, -1.5 } };
    find_words();
    for (int i = 0; i < 3; i++) {
        evil *e = evil_new(CASES[i].script, NULL);
        char url[64];
        url_of(e, url);
        kh_plm *box = box_open(url, CASES[i].backend, "m", KH_ACCESS_LOGPROBS);
        asked a;
        float p[PROMPTS * ROWS * 2];
        int label[PROMPTS * ROWS];
        kh_err err;
        asked_init(&a, box, CASES[i].inject, TINY_TASK);
        if (kh_plm_score(kh_plm_scorer(box, NULL), &a.q, p, &err) != 0 ||
            kh_plm_answer(kh_plm_labeler(box, NULL), &a.q, label, &err) != 0)
            fail_msg("%s: %s", CASES[i].backend, err.msg);
        double want = -0.25 - log(exp(-0.25) + exp(CASES[i].other));
        assert_true(fabs((double)p[1] - want) < 1e-6);
        assert_int_equal(label[0], 1);
        /* SGLang's log-probabilities are over the whole vocabulary: -log of the mass of the label
         * words. */
        bool absolute = strcmp(CASES[i].backend, "sglang") == 0;
        float energy[PROMPTS * ROWS], same[PROMPTS * ROWS * 2];
        assert_true(kh_plm_describe(box).energy == absolute);
        assert_int_equal(
            kh_plm_score_energy(kh_plm_scorer(box, NULL), &a.q, same, energy, NULL), 0);
        assert_true(same[0] == p[0] && same[1] == p[1]);
        assert_true(absolute ? fabs((double)energy[0] + log(exp(-0.25) + exp(-1.5))) < 1e-6
                             : isnan(energy[0]));
        asked_free(&a);
        kh_plm_close(box);
        evil_free(e);
    }
}

static void what_services_send_amiss_is_named(void **state) {
    (void)state;
    static const struct {
        script_fn *script;
        const char *says;
    } CASES[] = { { empty_script, "sent no log-probabilities with its answer to prompt 0, row" },
        { nan_script, "a log-probability that is none" },
        { strange_script, "none of the label words is among the tokens" } };
    for (int i = 0; i < 3; i++) {
        evil *e = evil_new(CASES[i].script, NULL);
        char url[64];
        url_of(e, url);
        kh_plm *box = box_open(url, "openai", "m", KH_ACCESS_LOGPROBS);
        asked a;
        float p[ROWS * 2];
        kh_err err;
        asked_init(&a, box, KH_INJECT_NONE, TINY_TASK);
        assert_int_equal(kh_plm_score(kh_plm_scorer(box, NULL), &a.q, p, &err), KH_EFORMAT);
        assert_says(&err, CASES[i].says);
        asked_free(&a);
        kh_plm_close(box);
        evil_free(e);
    }
    evil *e = evil_new(no_logprobs_script, NULL);
    char url[64];
    kh_err err;
    url_of(e, url);
    kh_plm *box = box_open(url, "openai", "m", KH_ACCESS_LOGPROBS);
    assert_null(
        kh_plm_scorer(box, &err)); /* accepted the field and gave nothing: known from the probe */
    kh_plm_close(box);
    evil_free(e);
}

/* Text prompts, with log-probabilities and with labels only. The service speaks of the words
 * "lower" and "better" and of no others: prompts with other words are left out. */
static void text_prompts_through_a_chat(void **state) {
    (void)state;
    static const struct {
        const char *method, *set[4];
        script_fn *script;
        kh_access access;
    } CASES[] = {
        { "text-ensemble", { "prompts=4", "demos=1" }, text_script, KH_ACCESS_LOGPROBS },
        { "text-search", { "candidates=6", "demos=1" }, text_script, KH_ACCESS_LOGPROBS },
        { "text-search", { "candidates=6", "demos=1" }, no_logprobs_script, KH_ACCESS_LABELS },
        { "text-smc", { "samples=4", "first-draws=4", "budget-levels=1" }, no_logprobs_script,
            KH_ACCESS_LABELS },
    };
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(4, 1, -1), *dev = tiny_rows(4, 2, -1);
    find_words();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        evil *e = evil_new(CASES[i].script, NULL);
        kh_tune_opts o = kh_tune_defaults();
        kh_posterior *p;
        kh_err err;
        char url[64];
        url_of(e, url);
        o.fallback = KH_FALLBACK_NONE;
        kh_plm *box = box_open(url, "openai", "m", CASES[i].access);
        if (kh_tune(&p, CASES[i].method, CASES[i].set, box, task, train, dev, &o, &err) != 0)
            fail_msg("%s: %s", CASES[i].method, err.msg);
        assert_int_equal(kh_posterior_describe(p).access, CASES[i].access);
        kh_posterior_free(p);
        kh_plm_close(box);
        evil_free(e);
    }
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
}

static void what_a_service_cannot_do_is_refused(void **state) {
    (void)state;
    static const char LONG[] = "{\"name\":\"long\",\"template\":\"{text} It was {mask} "
                               ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"slower than\"]},"
                               "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    static const struct {
        const char *backend, *task, *says;
        kh_inject inject;
    } CASES[] = { { "openai", TINY_TASK, "takes texts and no soft prompts",
                      KH_INJECT_EMBED_PREFIX },
        { "vllm-chat", TINY_TASK, "tune with --inject embed-prefix", KH_INJECT_EMBED_INPLACE },
        { "sglang", TINY_TASK, "cannot add a prompt behind LayerNorm", KH_INJECT_POST_LN_ADD },
        { "openai", LONG, "choose words of one token", KH_INJECT_NONE } };
    find_words();
    for (int i = 0; i < 4; i++) {
        evil *e = evil_new(chat_script, NULL);
        char url[64];
        url_of(e, url);
        kh_plm *box = box_open(url, CASES[i].backend, "m", KH_ACCESS_LABELS);
        asked a;
        int label[PROMPTS * ROWS];
        kh_err err;
        asked_init(&a, box, CASES[i].inject, CASES[i].task);
        assert_int_equal(
            kh_plm_answer(kh_plm_labeler(box, NULL), &a.q, label, &err), KH_EUNSUPPORTED);
        assert_says(&err, CASES[i].says);
        asked_free(&a);
        kh_plm_close(box);
        evil_free(e);
    }
    kh_plm *box;
    kh_err err;
    kh_http_opts o = kh_http_defaults();
    o.backend = "openai";
    o.model = "m";
    assert_int_equal(
        kh_plm_open(&box, "http://127.0.0.1:1", &(kh_plm_opts){ .http = &o }, &err), KH_EARG);
    assert_says(&err, "--tokenizer says where it is");
}

/* Both words nearly certain; services round, so that one may come out a little above 0. */
static const char *too_sure_script(int n) {
    (void)n;
    return wrap(
        "{\"choices\":[{\"message\":{\"content\":\"better\"},\"logprobs\":{\"content\":[{"
        "\"token\":\"x\",\"logprob\":-1,\"top_logprobs\":[{\"token\":\" better\",\"logprob\":"
        "0.0005},{\"token\":\" lower\",\"logprob\":-0.01}]}]}}]}");
}

static void probabilities_of_words_add_up(void **state) {
    (void)state;
    evil *e = evil_new(too_sure_script, NULL);
    char url[64];
    asked a;
    float p[ROWS * 2];
    kh_err err;
    url_of(e, url);
    kh_plm *box = box_open(url, "openai", "m", KH_ACCESS_LOGPROBS);
    asked_init(&a, box, KH_INJECT_NONE, TINY_TASK);
    assert_int_equal(kh_plm_score(kh_plm_scorer(box, NULL), &a.q, p, &err), KH_EFORMAT);
    assert_says(&err, "with label words whose probabilities add up to 1.99005");
    asked_free(&a);
    kh_plm_close(box);
    evil_free(e);
}

static const char *refuses_probe(int n) {
    (void)n;
    return HEAD("400 Bad Request") "Content-Length: 0\r\n\r\n";
}
static const char *fails_probe(int n) {
    (void)n;
    return HEAD("500 Oops") "Content-Length: 0\r\n\r\n";
}

/* Opening asks for one token with its log-probabilities. A service that refuses gives labels; one
 * that fails is not known. */
static void a_refused_probe_leaves_labels(void **state) {
    (void)state;
    script_fn *const SCRIPT[] = { refuses_probe, fails_probe };
    for (int i = 0; i < 2; i++) {
        evil *e = evil_new(SCRIPT[i], NULL);
        char url[64];
        kh_plm *box;
        kh_err err;
        kh_http_opts o = kh_http_defaults();
        o.backend = "openai";
        o.model = "m";
        o.tokenizer = tiny_dir;
        o.retries = 0;
        url_of(e, url);
        int rc = kh_plm_open(&box, url, &(kh_plm_opts){ .http = &o }, &err);
        assert_int_equal(rc, i ? KH_EIO : 0);
        if (i)
            assert_says(&err, "500");
        else
            assert_null(kh_plm_scorer(box, NULL));
        kh_plm_close(box);
        evil_free(e);
    }
}

static const char *models; /* what the service lists */
static const char *lists(int n) {
    (void)n;
    return strstr(evil_request, "GET /v1/models ") ? wrap(models) : chat_script(n);
}

/* Without a name the first model that is listed is asked. */
static void models_are_looked_up(void **state) {
    (void)state;
    static const struct {
        const char *backend, *models, *model, *says;
    } CASES[] = {
        { "openai", "{\"data\":[{\"id\":\"first\"},{\"id\":\"second\"}]}", "first", NULL },
        { "openai", "{\"data\":[]}", NULL, "lists no model; --model-name gives its name" },
        { "openai", "{\"data\":[{\"id\":7}]}", NULL, "lists no model" },
        { "openai", "[", NULL, "not valid JSON" },
        { "decisions", "{\"models\":[{\"name\":\"other way\"}]}", "other way", NULL },
        { "decisions", "{\"data\":[{\"id\":\"one way\"}]}", "one way", NULL },
        { "decisions", "{}", NULL, "lists no model; --model-name gives its name" },
        { "decisions", "no", NULL, "not valid JSON" },
    };
    find_words();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        evil *e = evil_new(lists, NULL);
        char url[64];
        kh_plm *box;
        kh_err err = { 0 };
        kh_http_opts o = kh_http_defaults();
        o.backend = CASES[i].backend;
        o.tokenizer = strcmp(o.backend, "openai") == 0 ? TINY_TOKENIZER : NULL;
        o.retries = 0;
        models = CASES[i].models;
        url_of(e, url);
        int rc = kh_plm_open(&box, url, &(kh_plm_opts){ .http = &o }, &err);
        if (rc != (CASES[i].says ? KH_EFORMAT : 0))
            fail_msg("%s: %d, %s", models, rc, err.msg);
        if (rc == 0)
            assert_string_equal(kh_plm_describe(box).model, CASES[i].model);
        else
            assert_says(&err, CASES[i].says);
        kh_plm_close(box);
        evil_free(e);
    }
}

static int open_with(const evil *e, const char *embeddings, kh_plm **box, kh_err *err) {
    char url[64];
    kh_http_opts o = kh_http_defaults();
    url_of(e, url);
    o.backend = "vllm-chat";
    o.model = "m";
    o.retries = 0;
    o.tokenizer = tiny_dir;
    o.embeddings = embeddings;
    return kh_plm_open(box, url, &(kh_plm_opts){ .http = &o }, err);
}

/* Soft prompts are made of word embeddings, which a service does not give. */
static void soft_prompts_need_embeddings(void **state) {
    (void)state;
    evil *e = evil_new(chat_script, NULL);
    float row[4];
    double mean, std;
    kh_plm *box;
    kh_err err;
    find_words();
    assert_int_equal(open_with(e, NULL, &box, &err), 0);
    assert_int_equal(kh_plm_embedding_stats(box, &mean, &std, &err), KH_EARG);
    assert_says(&err, "the word embeddings of m are needed; --embeddings FILE.safetensors says");
    assert_int_equal(kh_plm_embedding_row(box, 0, row, &err), KH_EARG);
    assert_says(&err, "the word embeddings of m are needed; --embeddings FILE.safetensors says");
    kh_plm_close(box);
    evil_free(e);
}

/* A safetensors file with one array of zeros. */
static const char *embeddings_file(const char *name, const char *dtype, const char *shape, int n) {
    static char bytes[512];
    memset(bytes, 0, sizeof bytes);
    int head = snprintf(bytes + 8, 256,
        "{\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%d]}}", name, dtype, shape, n);
    bytes[0] = (char)head;
    return test_file("embeddings.safetensors", bytes, (size_t)(8 + head + n));
}

static void embeddings_are_a_matrix_of_a_usual_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *dtype, *shape;
        int n, row; /* the last row that there is; < 0: refused */
    } CASES[] = { { "wte.weight", "BF16", "[3,4]", 24, 2 }, { "wte.weight", "F16", "[1,4]", 8, 0 },
        { "model.embed_tokens.weight", "F32", "[2,4]", 32, 1 }, { "other", "F32", "[2,4]", 32, -1 },
        { "wte.weight", "F32", "[8]", 32, -1 }, { "wte.weight", "I32", "[2,4]", 32, -1 },
        { "wte.weight", "F32", "[0,4]", 0, -1 }, { "wte.weight", "F32", "[4,0]", 0, -1 } };
    find_words();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const char *path =
            embeddings_file(CASES[i].name, CASES[i].dtype, CASES[i].shape, CASES[i].n);
        evil *e = evil_new(chat_script, NULL);
        kh_plm *box;
        kh_err err = { 0 };
        float row[4] = { 1, 1, 1, 1 };
        int rc = open_with(e, path, &box, &err);
        if (rc != (CASES[i].row < 0 ? KH_EFORMAT : 0))
            fail_msg("%s %s: %d, %s", CASES[i].dtype, CASES[i].shape, rc, err.msg);
        if (rc == 0) {
            assert_int_equal(kh_plm_describe(box).hidden, 4);
            assert_int_equal(kh_plm_embedding_row(box, CASES[i].row, row, &err), 0);
            assert_true(row[0] == 0 && row[3] == 0);
            assert_int_equal(kh_plm_embedding_row(box, CASES[i].row + 1, row, &err), KH_EARG);
            assert_says(&err, "is outside the");
        } else
            assert_says(&err, "safetensors: ");
        kh_plm_close(box);
        unlink(path);
        evil_free(e);
    }
}

/* For a tokenizer without a mask, sequences end where the mask would stand. */
static void sequences_for_models_that_continue_texts(void **state) {
    (void)state;
    kh_plm *native = tiny_open(KH_ACCESS_LABELS);
    const kh_tokenizer *tok = kh_plm_tokenizer(native);
    const kh_task *task = tiny_task(), *early;
    kh_words *words;
    kh_batch *full, *cut;
    kh_row row = { .a = "the boats", .n_a = 9 };
    kh_err err;
    assert_int_equal(kh_words_new(&words, task, tok, false, NULL), 0);
    assert_int_equal(
        kh_batch_encode(&full, tok, task, words, &row, 1, &(kh_batch_opts){ .max_len = 64 }, NULL),
        0);
    assert_int_equal(kh_batch_encode(&cut, tok, task, words, &row, 1,
                         &(kh_batch_opts){ .max_len = 64, .next = true }, NULL),
        0);
    assert_int_equal(cut->start[1], (size_t)full->mask[0]);
    assert_int_equal(cut->mask[0], full->mask[0]);
    assert_memory_equal(cut->id, full->id, cut->start[1] * sizeof *cut->id);
    kh_batch_free(full);
    kh_batch_free(cut);
    static const char EARLY[] = "{\"name\":\"early\",\"template\":\"{mask} News: "
                                "{text}\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                                "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    assert_int_equal(kh_task_parse(&early, EARLY, sizeof EARLY - 1, "early", NULL), 0);
    assert_int_equal(kh_batch_encode(&cut, tok, early, words, &row, 1,
                         &(kh_batch_opts){ .max_len = 64, .next = true }, &err),
        KH_EUNSUPPORTED);
    assert_says(&err, "where a model that continues texts cannot see them");
    kh_task_close(early);
    kh_task_close(task);
    kh_words_free(words);
    kh_plm_close(native);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_completions_agree_with_the_native_box),
        cmocka_unit_test(vllm_completions_at_labels_let_no_number_out),
        cmocka_unit_test(completions_refuse_with_a_reason),
        cmocka_unit_test(services_are_read),
        cmocka_unit_test(what_services_send_amiss_is_named),
        cmocka_unit_test(text_prompts_through_a_chat),
        cmocka_unit_test(what_a_service_cannot_do_is_refused),
        cmocka_unit_test(probabilities_of_words_add_up),
        cmocka_unit_test(a_refused_probe_leaves_labels),
        cmocka_unit_test(models_are_looked_up),
        cmocka_unit_test(soft_prompts_need_embeddings),
        cmocka_unit_test(embeddings_are_a_matrix_of_a_usual_name),
        cmocka_unit_test(sequences_for_models_that_continue_texts),
    };
    return cmocka_run_group_tests_name("other people's services", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: services: built without libmicrohttpd or libcurl\nok 1 - services # SKIP "
           "built without libmicrohttpd or "
           "libcurl\n");
    return 0;
}
#endif
