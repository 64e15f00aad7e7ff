/* test_model_load.c - config.json, the table of tensors, shards, random models: what loads, what is
 * refused and why. */
#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/random_model.h"
#include "model/reference.h"
#include "model/safetensors.h"
#include "model/weights.h"

#include <math.h>
#include <sys/stat.h>

#define VECTORS "tests/vectors/models/"

/* --------------------------------------------------------------------------------- config.json */

static const char right_config[] =
    "{\"model_type\":\"roberta\",\"num_hidden_layers\":2,\"hidden_size\":32,\"num_attention_"
    "heads\":4,"
    "\"intermediate_size\":56,\"vocab_size\":120,\"max_position_embeddings\":40,\"type_vocab_"
    "size\":1,"
    "\"layer_norm_eps\":1e-05,\"hidden_act\":\"gelu\",\"pad_token_id\":1}";

/* right_config with the value of one key replaced (or the key added, or with value NULL taken
 * away). */
static const char *config_with(const char *key, const char *value) {
    static char out[1024];
    char find[64];
    snprintf(find, sizeof find, "\"%s\":", key);
    const char *at = strstr(right_config, find);
    if (!at)
        snprintf(out, sizeof out, "{%s%s,%s", find, value, right_config + 1);
    else {
        const char *end = at + strcspn(at, ",}");
        if (value)
            snprintf(out, sizeof out, "%.*s%s%s%s", (int)(at - right_config), right_config, find,
                value, end);
        else
            snprintf(out, sizeof out, "%.*s%s", (int)(at - right_config), right_config,
                *end == ',' ? end + 1 : end);
    }
    return out;
}

static void refuse_config(const char *text, int code, const char *sentence) {
    kh_config c;
    kh_err err = { 0 };
    if (kh_config_parse(&c, text, strlen(text), "config.json", &err) != code)
        fail_msg("%s: got %d \"%s\"", text, err.code, err.msg);
    assert_says(&err, "config.json");
    assert_says(&err, sentence);
}

/* What is missing, and what these models could be but are not here. */
static void newer_encoders_that_are_refused(void **state) {
    (void)state;
    static const char sizes[] = "\"vocab_size\":99,\"hidden_size\":32,\"num_hidden_layers\":2,"
                                "\"num_attention_heads\":4,\"intermediate_size\":64,"
                                "\"max_position_embeddings\":40";
    static const struct {
        const char *more, *sentence;
        int code;
    } cases[] = {
        { "\"model_type\":\"electra\"", "\"embedding_size\" is missing", KH_EFORMAT },
        { "\"model_type\":\"albert\",\"embedding_size\":0", "\"embedding_size\" must be a whole",
            KH_EFORMAT },
        { "\"model_type\":\"albert\",\"embedding_size\":16,\"num_hidden_groups\":2",
            "\"num_hidden_groups\" is 2 and \"inner_group_num\" 1; only 1 and 1 are computed",
            KH_EUNSUPPORTED },
        { "\"model_type\":\"modernbert\",\"norm_bias\":true",
            "\"norm_bias\" is true, which is not computed", KH_EUNSUPPORTED },
        { "\"model_type\":\"modernbert\",\"classifier_bias\":true",
            "\"classifier_bias\" is true, which is not computed", KH_EUNSUPPORTED },
        { "\"model_type\":\"modernbert\",\"decoder_bias\":false",
            "\"decoder_bias\" is false, which is not computed", KH_EUNSUPPORTED },
        { "\"model_type\":\"modernbert\",\"local_attention\":0",
            "\"local_attention\" must be a whole", KH_EFORMAT },
        { "\"model_type\":\"modernbert\",\"classifier_activation\":\"mish\"",
            "\"classifier_activation\" is \"mish\"", KH_EUNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "{%s,%s}", sizes, cases[i].more);
        refuse_config(text, cases[i].code, cases[i].sentence);
    }
}

static void configs_that_are_refused(void **state) {
    (void)state;
    refuse_config("", KH_EFORMAT, "not valid JSON");
    refuse_config("[]", KH_EFORMAT, "must be a JSON object");
    refuse_config("{}", KH_EFORMAT, "\"model_type\" is missing");
    refuse_config("{\"model_type\":1}", KH_EFORMAT, "\"model_type\" must be a string");
    refuse_config(config_with("model_type", "\"t5\""), KH_EUNSUPPORTED,
        "\"model_type\" is \"t5\"; models of type bert, roberta");
    refuse_config(config_with("num_hidden_layers", "0"), KH_EFORMAT,
        "\"num_hidden_layers\" must be a whole number from 1 to 1024");
    refuse_config(config_with("num_hidden_layers", "2000"), KH_EFORMAT,
        "\"num_hidden_layers\" must be a whole number from 1 to 1024");
    refuse_config(config_with("hidden_size", "-32"), KH_EFORMAT,
        "\"hidden_size\" must be a whole number from 1 to 65536");
    refuse_config(
        config_with("hidden_size", "32.0"), KH_EFORMAT, "\"hidden_size\" must be a whole number");
    refuse_config(config_with("hidden_size", "1e999"), KH_EFORMAT, "not valid JSON");
    refuse_config(config_with("hidden_size", "33"), KH_EFORMAT,
        "a hidden size of 33 cannot be divided among 4 attention heads");
    refuse_config(config_with("num_attention_heads", "0"), KH_EFORMAT,
        "\"num_attention_heads\" must be a whole number");
    refuse_config(
        config_with("intermediate_size", NULL), KH_EFORMAT, "\"intermediate_size\" is missing");
    refuse_config(
        config_with("vocab_size", "\"120\""), KH_EFORMAT, "\"vocab_size\" must be a whole number");
    refuse_config(config_with("vocab_size", "99999999999"), KH_EFORMAT,
        "\"vocab_size\" must be a whole number");
    refuse_config(config_with("max_position_embeddings", "2"), KH_EFORMAT,
        "\"max_position_embeddings\" is 2, but the first token has position 2");
    refuse_config(config_with("type_vocab_size", "0"), KH_EFORMAT,
        "\"type_vocab_size\" must be a whole number from 1 to 1024");
    refuse_config(config_with("pad_token_id", "120"), KH_EFORMAT,
        "\"pad_token_id\" is 120 in a vocabulary of 120");
    refuse_config(
        config_with("pad_token_id", "-1"), KH_EFORMAT, "\"pad_token_id\" must be a whole number");
    refuse_config(config_with("layer_norm_eps", "0"), KH_EFORMAT,
        "\"layer_norm_eps\" is 0, expected a number above 0 and at most 1");
    refuse_config(
        config_with("layer_norm_eps", "-1e-5"), KH_EFORMAT, "\"layer_norm_eps\" is -1e-05");
    refuse_config(
        config_with("layer_norm_eps", "\"x\""), KH_EFORMAT, "\"layer_norm_eps\" must be a number");
    refuse_config(config_with("hidden_act", "\"mish\""), KH_EUNSUPPORTED,
        "\"hidden_act\" is \"mish\"; gelu, gelu_new, gelu_pytorch_tanh, relu and silu");
    refuse_config(config_with("position_embedding_type", "\"relative_key\""), KH_EUNSUPPORTED,
        "only absolute positions are computed");
    refuse_config(config_with("is_decoder", "true"), KH_EUNSUPPORTED,
        "\"is_decoder\" is true; models of type roberta are read as encoders");
    refuse_config(config_with("tie_word_embeddings", "1"), KH_EFORMAT,
        "\"tie_word_embeddings\" must be true or false");
    refuse_config(
        config_with("quantization_config", "{}"), KH_EUNSUPPORTED, "the weights are quantised");
    refuse_config(
        "{\"model_type\":\"bert\",\"model_type\":\"bert\"}", KH_EFORMAT, "duplicate object key");
}

/* A Llama with one key changed. */
static const char *llama_with(const char *key, const char *value) {
    static char text[1024];
    snprintf(text, sizeof text,
        "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":24,"
        "\"intermediate_size\":40,\"vocab_size\":64,\"max_position_embeddings\":48,"
        "\"num_attention_heads\":4%s%s%s%s}",
        key ? ",\"" : "", key ? key : "", key ? "\":" : "", key ? value : "");
    return text;
}

static void decoders_that_are_refused(void **state) {
    (void)state;
    refuse_config(llama_with("num_key_value_heads", "3"), KH_EFORMAT,
        "4 attention heads cannot share 3 heads of keys and values");
    refuse_config(llama_with("num_key_value_heads", "0"), KH_EFORMAT, "must be a whole number");
    refuse_config(llama_with("head_dim", "5"), KH_EFORMAT, "heads of 5 numbers have no rotary");
    refuse_config(llama_with("rope_theta", "-1"), KH_EFORMAT, "\"rope_theta\" is -1");
    refuse_config(llama_with("rope_scaling", "3"), KH_EFORMAT, "must be an object");
    refuse_config(llama_with("rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2}"),
        KH_EUNSUPPORTED, "rotary positions of type \"yarn\" are not computed");
    refuse_config(
        llama_with("rope_scaling", "{\"type\":\"linear\"}"), KH_EFORMAT, "\"factor\" is missing");
    refuse_config(llama_with("rope_scaling",
                      "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
                      "\"high_freq_factor\":1,\"original_max_position_embeddings\":32}"),
        KH_EFORMAT, "must be above \"low_freq_factor\"");
    refuse_config(llama_with("partial_rotary_factor", "0.5"), KH_EUNSUPPORTED,
        "\"partial_rotary_factor\" is 0.5, which is not computed");
    refuse_config(llama_with("final_logit_softcapping", "30.0"), KH_EUNSUPPORTED,
        "\"final_logit_softcapping\" is 30, which is not computed");
    refuse_config(llama_with("quantization_config", "{}"), KH_EUNSUPPORTED, "quantised");
}

/* A decoder of a type with more keys. */
static const char *decoder_with(const char *type, const char *more) {
    static char text[1024];
    snprintf(text, sizeof text,
        "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"hidden_size\":24,"
        "\"intermediate_size\":40,\"vocab_size\":64,\"max_position_embeddings\":48,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,%s}",
        type, more);
    return text;
}

static kh_config understood(const char *text) {
    kh_config c;
    kh_err err;
    if (kh_config_parse(&c, text, strlen(text), "config.json", &err) != 0)
        fail_msg("%s: %s", text, err.msg);
    return c;
}

/* What a list says of every layer must be what the other keys say. */
static void lists_of_layers_are_compared(void **state) {
    (void)state;
#define FULL "\"full_attention\""
#define SLIDING "\"sliding_attention\""
    static const char *const GOOD[] = { "\"layer_types\":[" SLIDING "," SLIDING "]",
        "\"layer_types\":null", "\"sliding_window\":null,\"layer_types\":[" FULL "," FULL "]" };
    static const int WINDOW[] = { 4096, 4096, 0 }; /* Mistral's, where nothing is said */
    for (int i = 0; i < 3; i++) {
        kh_config c = understood(decoder_with("mistral", GOOD[i]));
        assert_int_equal(kh_config_window(&c, 1), WINDOW[i]);
    }
    static const struct {
        const char *type, *more, *says;
        int code;
    } cases[] = {
        { "mistral", "\"layer_types\":[" SLIDING "]", "must be a list of 2 names", KH_EFORMAT },
        { "mistral", "\"layer_types\":\"full\"", "must be a list of 2 names", KH_EFORMAT },
        { "mistral", "\"layer_types\":[" SLIDING "," FULL "]",
            "\"layer_types\" calls layer 1 \"full_attention\", the other keys make it "
            "\"sliding_attention\"",
            KH_EUNSUPPORTED },
        { "mistral", "\"layer_types\":[3," SLIDING "]", "calls layer 0 \"?\"", KH_EUNSUPPORTED },
        { "qwen2", "\"layer_types\":[" SLIDING "," FULL "]",
            "calls layer 0 \"sliding_attention\", the other keys make it \"full_attention\"",
            KH_EUNSUPPORTED },
        { "qwen2",
            "\"use_sliding_window\":true,\"max_window_layers\":1,\"layer_types\":[" FULL "," FULL
            "]",
            "calls layer 1 \"full_attention\"", KH_EUNSUPPORTED },
        { "qwen2", "\"use_sliding_window\":true", "\"max_window_layers\" is missing", KH_EFORMAT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse_config(decoder_with(cases[i].type, cases[i].more), cases[i].code, cases[i].says);
}

static void rotary_positions_have_several_spellings(void **state) {
    (void)state;
    kh_config c = understood(llama_with("rope_scaling", "{\"rope_type\":\"default\"}"));
    assert_int_equal(c.rope.kind, KH_ROPE_PLAIN);
    c = understood(llama_with("rope_scaling", "null"));
    assert_int_equal(c.rope.kind, KH_ROPE_PLAIN);
    c = understood(
        llama_with("rope_parameters", "{\"rope_theta\":5000,\"type\":\"linear\",\"factor\":2}"));
    assert_int_equal(c.rope.kind, KH_ROPE_LINEAR);
    assert_true(c.rope.theta == 5000 && c.rope.factor == 2);
    refuse_config(llama_with("rope_parameters", "{\"full_attention\":{\"rope_theta\":5000}}"),
        KH_EUNSUPPORTED,
        "\"rope_parameters\": settings for each kind of layer are not read; write \"rope_theta\"");
    refuse_config(llama_with("rope_scaling", "{\"rope_theta\":0}"), KH_EFORMAT,
        "\"rope_theta\" is 0, expected a number above 0");
}

static void flags_that_change_what_is_computed_are_refused(void **state) {
    (void)state;
    refuse_config(llama_with("add_cross_attention", "true"), KH_EUNSUPPORTED,
        "\"add_cross_attention\" is true, which is not computed");
    refuse_config(llama_with("scale_attn_weights", "false"), KH_EUNSUPPORTED,
        "\"scale_attn_weights\" is false, which is not computed");
    refuse_config(llama_with("logit_scale", "0.5"), KH_EUNSUPPORTED, "\"logit_scale\" is 0.5");
    refuse_config(
        llama_with("is_decoder", "1"), KH_EFORMAT, "\"is_decoder\" must be true or false");
    understood(llama_with("is_decoder", "true"));
    refuse_config("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                  "\"intermediate_size\":40,\"vocab_size\":64,\"max_position_embeddings\":48,"
                  "\"num_attention_heads\":64,\"head_dim\":4096}",
        KH_EFORMAT, "64 heads of 4096 numbers are too many");
}

/* Tasks that a model has learned from, as names without commas. */
static void seen_tasks_are_names(void **state) {
    (void)state;
    kh_config c = understood(llama_with("seen_tasks", "[\"sst2\",\"rte\",\"sst2\"]"));
    assert_string_equal(c.seen_tasks, "sst2,rte");
    assert_true(kh_name_is_listed(c.seen_tasks, "rte") && !kh_name_is_listed(c.seen_tasks, "rt"));
    refuse_config(llama_with("seen_tasks", "\"sst2\""), KH_EFORMAT,
        "\"seen_tasks\" must be a list of names of tasks");
    refuse_config(
        llama_with("seen_tasks", "[\"a,b\"]"), KH_ELIMIT, "\"seen_tasks\" cannot hold \"a,b\"");
    refuse_config(llama_with("seen_tasks", "[3]"), KH_ELIMIT, "\"seen_tasks\" cannot hold \"\"");
}

static void configs_that_are_understood(void **state) {
    (void)state;
    kh_config c;
    assert_int_equal(kh_config_parse(&c, right_config, strlen(right_config), "c", NULL), 0);
    assert_int_equal(c.first_position, 2);
    assert_int_equal(kh_config_max_tokens(&c), 38);
    assert_true(c.tied && c.eps == 1e-5);
    const char *text = config_with("model_type", "\"bert\"");
    assert_int_equal(kh_config_parse(&c, text, strlen(text), "c", NULL), 0);
    assert_int_equal(c.first_position, 0);
    text = config_with("model_type", "\"xlm-roberta\"");
    assert_int_equal(kh_config_parse(&c, text, strlen(text), "c", NULL), 0);
    assert_int_equal((int)c.arch->family, KH_FAMILY_ROBERTA);
    assert_string_equal(c.arch->type, "xlm-roberta");
    text =
        config_with("hidden_act", "\"relu\""); /* RoBERTa's head is GELU whatever its layers are */
    assert_int_equal(kh_config_parse(&c, text, strlen(text), "c", NULL), 0);
    assert_int_equal(c.act, KH_ACT_RELU);
    assert_int_equal(c.head_act, KH_ACT_GELU);
    text = config_with("pad_token_id", "null");
    assert_int_equal(kh_config_parse(&c, text, strlen(text), "c", NULL), 0);
    assert_int_equal(c.pad, 1);
}

static void configs_survive_a_round_trip(void **state) {
    (void)state;
    static const char *const archs[] = { "roberta-large", "roberta-base", "bert-large", "bert-base",
        "roberta-tiny", "bert-tiny" };
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        const kh_config *c = kh_arch_find(archs[i]);
        kh_config back;
        kh_buf text = kh_buf_init(1 << 16);
        kh_config_put(c, KH_DTYPE_F32, &text);
        assert_int_equal(kh_config_parse(&back, text.data, text.len, "c", NULL), 0);
        assert_string_equal(back.arch->type, c->arch->type);
        assert_int_equal(back.layers, c->layers);
        assert_int_equal(back.inner, c->inner);
        assert_int_equal(back.vocab, c->vocab);
        assert_int_equal(back.types, c->types);
        assert_int_equal(back.first_position, c->first_position);
        assert_true(back.eps == c->eps && back.act == c->act && back.head_act == c->head_act &&
            back.tied == c->tied);
        kh_buf_free(&text);
    }
    assert_null(kh_arch_find("gpt-2"));
}

static void rotary_models_survive_a_round_trip(void **state) {
    (void)state;
    static const char *const NAMES[] = { "decoders/gpt2", "decoders/llama", "decoders/llama-linear",
        "decoders/llama3", "decoders/mistral", "decoders/qwen2", "decoders/qwen3",
        "decoders/gemma3", "models/modernbert" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char path[256];
        kh_config c, back;
        kh_buf text = kh_buf_init(1 << 16);
        snprintf(path, sizeof path, "tests/vectors/%s/config.json", NAMES[i]);
        assert_int_equal(kh_config_read(&c, path, NULL), 0);
        kh_config_put(&c, KH_DTYPE_F32, &text);
        assert_int_equal(kh_config_parse(&back, text.data, text.len, "c", NULL), 0);
        assert_ptr_equal(back.arch, c.arch);
        assert_int_equal(kh_config_q_width(&back), kh_config_q_width(&c));
        assert_int_equal(kh_config_kv_width(&back), kh_config_kv_width(&c));
        assert_int_equal(back.bias, c.bias);
        assert_true(back.tied == c.tied && back.act == c.act && back.eps == c.eps);
        assert_true(back.head_act == c.head_act && back.types == c.types);
        assert_true(kh_config_attention_scale(&back) == kh_config_attention_scale(&c));
        for (int l = 0; l < c.layers && c.arch->position == KH_POSITION_ROTARY; l++) {
            double f[8], g[8];
            int half = kh_config_head_width(&c) / 2;
            kh_config_frequencies(&c, l, f);
            kh_config_frequencies(&back, l, g);
            assert_memory_equal(f, g, (size_t)half * sizeof *f);
            assert_int_equal(kh_config_window(&back, l), kh_config_window(&c, l));
        }
        kh_buf_free(&text);
    }
}

/* ------------------------------------------------------------------ folders, one thing changed */

/* What is done to tests/vectors/models/roberta on its way into a scratch folder. */
typedef struct edit {
    const char *drop;       /* a tensor left out */
    const char *from, *to;  /* a tensor renamed */
    const char *reshape;    /* a tensor whose rank becomes 1 */
    const char *add;        /* a tensor of 4 zeros added */
    const char *copy_words; /* a tensor added that equals the word embeddings */
    const char *poison;     /* a tensor whose element 40 becomes NaN */
    const char *huge;       /* a tensor whose element 40 becomes 1e6 */
    const char *config;     /* another config.json */
} edit;

static char scratch[64];

static const char *scratch_path(const char *name) {
    static char path[2][128];
    static int turn;
    char *p = path[turn ^= 1];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

static int make_scratch(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/keyhole-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state) {
    (void)state;
    static const char *const names[] = { "config.json", "model.safetensors",
        "model.safetensors.index.json", "pytorch_model.bin", "a.safetensors", "b.safetensors",
        "c.safetensors" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(scratch_path(names[i]));
    return rmdir(scratch);
}

static void write_text(const char *name, const char *text) {
    assert_int_equal(kh_file_write(scratch_path(name), text, strlen(text), NULL), 0);
}

static bool is(const char *edited, const char *name) { return edited && strcmp(edited, name) == 0; }

static void write_edited(const char *file, const edit *e) {
    kh_safetensors *f;
    kh_safetensors_writer *w;
    int n, m = 0;
    assert_int_equal(kh_safetensors_open(&f, VECTORS "roberta/model.safetensors", NULL), 0);
    const kh_array *have = kh_safetensors_arrays(f, &n);
    kh_array *plan = calloc((size_t)n + 2, sizeof *plan);
    const kh_array **source = calloc((size_t)n + 2, sizeof *source);
    for (int i = 0; i < n; i++) {
        if (is(e->drop, have[i].name))
            continue;
        plan[m] = have[i];
        if (is(e->from, have[i].name))
            plan[m].name = e->to;
        if (is(e->reshape, have[i].name)) {
            plan[m].rank = 1;
            plan[m].shape[0] *= plan[m].shape[1];
        }
        source[m++] = &have[i];
    }
    if (e->add)
        plan[m++] = (kh_array){ .name = e->add, .dtype = KH_DTYPE_F32, .rank = 1, .shape = { 4 } };
    if (e->copy_words) {
        source[m] = kh_safetensors_find(f, "roberta.embeddings.word_embeddings.weight");
        plan[m] = *source[m];
        plan[m++].name = e->copy_words;
    }
    assert_int_equal(kh_safetensors_create(&w, scratch_path(file), plan, m, NULL), 0);
    for (int i = 0; i < m; i++) {
        float *bytes = calloc(1, plan[i].bytes);
        if (source[i])
            assert_int_equal(kh_safetensors_read(f, source[i], 0, plan[i].bytes, bytes, NULL), 0);
        if (is(e->poison, plan[i].name))
            bytes[40] = NAN;
        if (is(e->huge, plan[i].name))
            bytes[40] = 1e6f;
        assert_int_equal(kh_safetensors_put(w, bytes, plan[i].bytes, NULL), 0);
        free(bytes);
    }
    assert_int_equal(kh_safetensors_finish(w, true, NULL), 0);
    write_text("config.json", e->config ? e->config : right_config);
    kh_safetensors_close(f);
    free(plan);
    free(source);
}

static void refuse_model(const kh_model_opts *opts, int code, const char *sentence) {
    kh_model *m;
    kh_err err = { 0 };
    int rc = kh_model_open(&m, scratch, opts, &err);
    if (rc != code)
        fail_msg("expected \"%s\", got %d \"%s\"", sentence, rc, err.msg);
    assert_null(m);
    assert_says(&err, sentence);
    assert_says(&err, scratch);
}

static void refuse_edited(edit e, int code, const char *sentence) {
    write_edited("model.safetensors", &e);
    refuse_model(NULL, code, sentence);
}

static kh_model *open_scratch(const kh_model_opts *opts) {
    kh_model *m;
    kh_err err;
    if (kh_model_open(&m, scratch, opts, &err) != 0)
        fail_msg("%s", err.msg);
    return m;
}

static void tensors_that_are_wrong(void **state) {
    (void)state;
    refuse_edited((edit){ .drop = "roberta.encoder.layer.1.output.dense.bias" }, KH_EMISSING,
        "no tensor \"roberta.encoder.layer.1.output.dense.bias\"; the encoder of a roberta model "
        "with 2 layers needs it");
    refuse_edited((edit){ .drop = "lm_head.layer_norm.bias" }, KH_EMISSING,
        "no tensor \"lm_head.layer_norm.bias\"; the masked-language-model head of a roberta model");
    refuse_edited((edit){ .config = config_with("tie_word_embeddings", "false") }, KH_EMISSING,
        "no tensor \"lm_head.decoder.weight\"; \"tie_word_embeddings\" is false, so the head of a "
        "roberta model");
    refuse_edited((edit){ .reshape = "roberta.encoder.layer.0.output.dense.weight" }, KH_EMISMATCH,
        "tensor \"roberta.encoder.layer.0.output.dense.weight\" has shape [1792], but config.json "
        "says [hidden_size, "
        "intermediate_size] = [32, 56]");
    refuse_edited((edit){ .config = config_with("intermediate_size", "57") }, KH_EMISMATCH,
        "has shape [56, 32], but config.json says [intermediate_size, hidden_size] = [57, 32]");
    refuse_edited((edit){ .config = config_with("vocab_size", "119") }, KH_EMISMATCH,
        "word_embeddings.weight\" has shape [120, 32], but config.json says [vocab_size, "
        "hidden_size] = [119, 32]");
    refuse_edited((edit){ .config = config_with("num_hidden_layers", "1") }, KH_EMISMATCH,
        "belongs to layer 1, but config.json says there are 1 layers");
    refuse_edited((edit){ .config = config_with("num_hidden_layers", "3") }, KH_EMISSING,
        "no tensor \"roberta.encoder.layer.2.attention.self.query.weight\"");
    refuse_edited((edit){ .config = config_with("model_type", "\"bert\"") }, KH_EMISSING,
        "no tensor \"bert.embeddings.word_embeddings.weight\"");
    refuse_edited((edit){ .poison = "roberta.encoder.layer.0.attention.self.key.weight" },
        KH_EFORMAT,
        "tensor \"roberta.encoder.layer.0.attention.self.key.weight\" holds NaN or infinity at [1, "
        "8]");
    refuse_edited((edit){ .poison = "roberta.encoder.layer.0.intermediate.dense.bias" }, KH_EFORMAT,
        "holds NaN or infinity at [40]");
    refuse_edited(
        (edit){ .poison = "lm_head.decoder.weight", .copy_words = "lm_head.decoder.weight" },
        KH_EMISMATCH,
        "tensor \"lm_head.decoder.weight\" differs from the word embeddings, but "
        "\"tie_word_embeddings\" in config.json says they "
        "are one");
    refuse_edited((edit){ .add = "lm_head.decoder.weight" }, KH_EMISMATCH,
        "tensor \"lm_head.decoder.weight\" has shape [4]");
}

static void tensors_of_a_wrong_type(void **state) {
    (void)state;
    write_edited("model.safetensors", &(edit){ 0 });
    kh_buf bytes;
    assert_int_equal(kh_file_read(scratch_path("model.safetensors"), 1 << 20, &bytes, NULL), 0);
    char *at = strstr(bytes.data + 8, "\"F32\""); /* the first entry: the word embeddings */
    assert_non_null(at);
    memcpy(at, "\"I32\"", 5);
    assert_int_equal(
        kh_file_write(scratch_path("model.safetensors"), bytes.data, bytes.len, NULL), 0);
    refuse_model(NULL, KH_EUNSUPPORTED,
        "word_embeddings.weight\" is of type I32; weights must be F32, F16 or BF16");
    assert_int_equal(
        kh_file_write(scratch_path("model.safetensors"), bytes.data, bytes.len - 100, NULL), 0);
    refuse_model(NULL, KH_EFORMAT, "cut short: tensor");
    kh_buf_free(&bytes);
}

static void variants_that_load(void **state) {
    (void)state;
    write_edited(
        "model.safetensors", &(edit){ .from = "lm_head.bias", .to = "lm_head.decoder.bias" });
    kh_model *m = open_scratch(NULL);
    uint64_t fingerprint = kh_model_describe(m).fingerprint;
    assert_int_equal(m->n_extra, 0);
    kh_model_close(m);
    write_edited("model.safetensors", &(edit){ .copy_words = "lm_head.decoder.weight" });
    m = open_scratch(NULL);
    assert_true(kh_model_describe(m).fingerprint == fingerprint); /* names are not part of it */
    assert_ptr_equal(m->w.decoder_w.data, m->w.word.data);
    kh_model_drop(m, &m->w.word); /* the decoder still holds the memory */
    assert_true(((float *)m->w.decoder_w.data)[0] != 0);
    kh_model_close(m);
    write_edited("model.safetensors",
        &(edit){ .copy_words = "lm_head.decoder.weight",
            .config = config_with("tie_word_embeddings", "false") });
    m = open_scratch(NULL);
    assert_ptr_not_equal(m->w.decoder_w.data, m->w.word.data);
    assert_true(kh_model_describe(m).fingerprint != fingerprint);
    kh_model_close(m);
    write_edited("model.safetensors", &(edit){ .config = config_with("layer_norm_eps", "2e-5") });
    m = open_scratch(NULL);
    assert_true(kh_model_describe(m).fingerprint != fingerprint);
    kh_model_close(m);
    write_edited("model.safetensors",
        &(edit){ .poison = "roberta.encoder.layer.0.intermediate.dense.bias" });
    m = open_scratch(&(kh_model_opts){ .allow_nonfinite = true });
    kh_model_close(m);
}

static char logged[1024];
static void keep_log(void *user, kh_level level, const char *line) {
    (void)user;
    assert_int_equal(level, KH_WARN);
    snprintf(logged, sizeof logged, "%s", line);
}

static void extra_tensors_are_reported(void **state) {
    (void)state;
    kh_hooks hooks = { .log = keep_log };
    write_edited("model.safetensors", &(edit){ .add = "classifier.weight" });
    kh_model *m = open_scratch(&(kh_model_opts){ .hooks = &hooks });
    assert_int_equal(m->n_extra, 1);
    assert_string_equal(m->extra[0], "classifier.weight");
    assert_non_null(strstr(logged,
        "1 tensor that a roberta model does not have, among them \"classifier.weight\": not used"));
    kh_model_close(m);
    static const char *const harmless[] = { "roberta.embeddings.position_ids",
        "roberta.pooler.dense.bias", "cls.seq_relationship.bias", "pooler.dense.weight" };
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        write_edited("model.safetensors", &(edit){ .add = harmless[i] });
        m = open_scratch(NULL);
        assert_int_equal(m->n_extra, 0);
        kh_model_close(m);
    }
}

static void a_model_without_head(void **state) {
    (void)state;
    kh_model *m;
    kh_err err;
    assert_int_equal(kh_model_open(&m, VECTORS "bert-no-head", NULL, &err), 0);
    assert_false(kh_model_describe(m).head);
    assert_int_equal(kh_model_needs_head(m, "fill-mask", &err), KH_EUNSUPPORTED);
    assert_says(&err,
        "the model has no masked-language-model head, which fill-mask needs; only its features can "
        "be used");
    kh_model_close(m);
    assert_int_equal(
        kh_model_open(&m, VECTORS "bert-no-head", &(kh_model_opts){ .need_head = "a test" }, &err),
        KH_EUNSUPPORTED);
    assert_null(m);
}

static void folders_that_are_none(void **state) {
    (void)state;
    kh_model *m;
    kh_err err;
    assert_int_equal(kh_model_open(&m, "/nonexistent", NULL, &err), KH_EMISSING);
    assert_says(&err,
        "/nonexistent: there is no such folder; a model is a folder with config.json and "
        "model.safetensors");
    refuse_model(NULL, KH_EMISSING, "config.json: cannot open");
    write_text("config.json", right_config);
    refuse_model(
        NULL, KH_EMISSING, "holds neither model.safetensors nor model.safetensors.index.json");
    write_text("pytorch_model.bin", "x");
    refuse_model(NULL, KH_EUNSUPPORTED,
        "holds pytorch_model.bin, which is not read because such a file can run code");
}

static void indexes_that_are_wrong(void **state) {
    (void)state;
    write_edited("a.safetensors", &(edit){ 0 });
    write_edited("b.safetensors", &(edit){ 0 });
    write_text("model.safetensors.index.json", "{}");
    refuse_model(NULL, KH_EFORMAT, "\"weight_map\" must be an object of tensor names and files");
    write_text("model.safetensors.index.json", "[]");
    refuse_model(NULL, KH_EFORMAT, "\"weight_map\" must be an object");
    write_text("model.safetensors.index.json", "{\"weight_map\":{}}");
    refuse_model(NULL, KH_EFORMAT, "\"weight_map\" must be an object");
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"lm_head.bias\":1}}");
    refuse_model(NULL, KH_EFORMAT,
        "the shard of \"lm_head.bias\" must be the name of a file in the same folder");
    static const char *const bad[] = { "../a.safetensors", "/etc/passwd", "..", "",
        "x/a.safetensors", "a..safetensors" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128], sentence[128];
        snprintf(text, sizeof text, "{\"weight_map\":{\"lm_head.bias\":\"%s\"}}", bad[i]);
        snprintf(sentence, sizeof sentence,
            "must be the name of a file in the same folder, not \"%s\"", bad[i]);
        write_text("model.safetensors.index.json", text);
        refuse_model(NULL, KH_EFORMAT, sentence);
    }
    write_text(
        "model.safetensors.index.json", "{\"weight_map\":{\"lm_head.bias\":\"c.safetensors\"}}");
    refuse_model(NULL, KH_EMISSING, "c.safetensors: cannot open");
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"x\":\"a.safetensors\"}}");
    refuse_model(
        NULL, KH_EFORMAT, "tensor \"x\" is not in a.safetensors, where the index says it is");
    write_text("model.safetensors.index.json",
        "{\"weight_map\":{\"lm_head.bias\":\"a.safetensors\",\"x\":\"b.safetensors\"}}");
    refuse_model(NULL, KH_EFORMAT, "is also in a.safetensors");
    write_text(
        "model.safetensors.index.json", "{\"weight_map\":{\"lm_head.bias\":\"a.safetensors\"}}");
    kh_model_close(open_scratch(NULL));
}

static void numbers_too_large_for_the_format(void **state) {
    (void)state;
    write_edited("model.safetensors",
        &(edit){ .huge = "roberta.encoder.layer.0.attention.self.key.weight" });
    kh_model_close(open_scratch(&(kh_model_opts){ .store = KH_DTYPE_BF16 }));
    refuse_model(&(kh_model_opts){ .store = KH_DTYPE_F16 }, KH_ELIMIT,
        "tensor \"roberta.encoder.layer.0.attention.self.key.weight\" holds a number too large for "
        "F16; keep it as BF16 or F32");
}

static void memory_may_run_out(void **state) {
    (void)state;
    const int32_t id[] = { 2, 5, 6 };
    for (long n = 1;; n++) {
        kh_model *m;
        kh_err err = { 0 };
        float hidden[3 * 3 * 32];
        kh_alloc_fail_at(n, n % 2 == 0);
        int rc = kh_model_open(&m, VECTORS "roberta-shards", NULL, &err);
        if (rc == 0)
            rc = kh_reference_run(
                m, &(kh_input){ .id = id, .n_id = 3 }, &(kh_output){ .hidden = hidden }, &err);
        long asked = kh_alloc_count();
        kh_alloc_fail_at(0, false);
        kh_model_close(m);
        assert_true(asked < n ? rc == 0 : rc == KH_ENOMEM);
        if (asked < n)
            break;
    }
}

/* ------------------------------------------------------------------------------- random models */

static kh_random_opts random_opts(const char *arch, kh_dtype dtype) {
    return (
        kh_random_opts){ .config = *kh_arch_find(arch), .dtype = dtype, .std = 0.02, .seed = 7 };
}

static void random_models_load(void **state) {
    (void)state;
    kh_err err;
    uint64_t before = 0;
    for (int i = 0; i < 6; i++) {
        kh_random_opts o =
            random_opts(i % 2 ? "bert-tiny" : "roberta-tiny", (kh_dtype)(KH_DTYPE_F32 + i / 2));
        if (kh_random_model_write(scratch, &o, &err) != 0)
            fail_msg("%s", err.msg);
        kh_model *m = open_scratch(&(kh_model_opts){ .need_head = "a test" });
        assert_int_equal(m->n_extra, 0);
        assert_true(kh_model_describe(m).fingerprint != before);
        assert_int_equal(kh_model_describe(m).dtype, o.dtype);
        before = kh_model_describe(m).fingerprint;
        kh_model_close(m);
    }
}

static void random_weights_are_as_promised(void **state) {
    (void)state;
    kh_random_opts o = random_opts("roberta-tiny", KH_DTYPE_F32);
    assert_int_equal(kh_random_model_write(scratch, &o, NULL), 0);
    kh_model *m = open_scratch(NULL);
    const float *word = m->w.word.data, *gain = m->w.layer[1].ln2_g.data,
                *bias = m->w.layer[0].up_b.data;
    double sum = 0, squares = 0;
    size_t n = 300 * 32;
    for (size_t i = 0; i < n; i++) {
        sum += (double)word[i];
        squares += (double)word[i] * (double)word[i];
    }
    assert_true(fabs(sum / (double)n) < 0.001 && fabs(sqrt(squares / (double)n) - 0.02) < 0.0006);
    for (int i = 0; i < 32; i++)
        assert_true(word[32 + i] == 0 && ((float *)m->w.position.data)[32 + i] == 0 &&
            gain[i] == 1 && bias[i] == 0);
    assert_true(((float *)m->w.layer[0].q_w.data)[0] != ((float *)m->w.layer[1].q_w.data)[0]);
    /* The numbers are part of the promise: the same on every machine and in every version. */
    assert_true(fabsf(word[0] - 0.0158710834f) < 1e-9f);
    uint64_t fingerprint = kh_model_describe(m).fingerprint;
    kh_model_close(m);
    kh_threads_set(3);
    assert_int_equal(kh_random_model_write(scratch, &o, NULL), 0);
    kh_threads_set(0);
    m = open_scratch(NULL);
    assert_true(kh_model_describe(m).fingerprint == fingerprint);
    kh_model_close(m);
}

static int stop(void *user, const kh_progress *p) {
    (void)user, (void)p;
    return 1;
}

static void random_models_that_are_refused(void **state) {
    (void)state;
    kh_err err;
    kh_random_opts o = random_opts("bert-tiny", KH_DTYPE_F32);
    o.config.heads = 5;
    assert_int_equal(kh_random_model_write(scratch, &o, &err), KH_EFORMAT);
    assert_says(
        &err, "the new model: a hidden size of 32 cannot be divided among 5 attention heads");
    o.config.heads = 4;
    assert_int_equal(kh_random_model_write("/nonexistent/deep", &o, &err), KH_EMISSING);
    assert_says(&err, "/nonexistent/deep: cannot make the folder");
    o.config.hidden = 1024; /* large enough to report progress, which stops it */
    o.config.vocab = 20000;
    o.hooks = &(kh_hooks){ .progress = stop };
    assert_int_equal(kh_random_model_write(scratch, &o, &err), KH_STOPPED);
    assert_int_equal(access(scratch_path("model.safetensors"), F_OK), -1);
    for (long n = 1;; n++) {
        o = random_opts("bert-tiny", KH_DTYPE_BF16);
        kh_alloc_fail_at(n, false);
        int rc = kh_random_model_write(scratch, &o, &err);
        long asked = kh_alloc_count();
        kh_alloc_fail_at(0, false);
        assert_true(asked < n ? rc == 0 : rc == KH_ENOMEM);
        if (asked < n)
            break;
    }
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, make_scratch, remove_scratch)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_that_are_refused),
        cmocka_unit_test(newer_encoders_that_are_refused),
        cmocka_unit_test(decoders_that_are_refused),
        cmocka_unit_test(lists_of_layers_are_compared),
        cmocka_unit_test(rotary_positions_have_several_spellings),
        cmocka_unit_test(flags_that_change_what_is_computed_are_refused),
        cmocka_unit_test(seen_tasks_are_names),
        cmocka_unit_test(configs_that_are_understood),
        cmocka_unit_test(configs_survive_a_round_trip),
        cmocka_unit_test(rotary_models_survive_a_round_trip),
        in_scratch(tensors_that_are_wrong),
        in_scratch(tensors_of_a_wrong_type),
        in_scratch(variants_that_load),
        in_scratch(extra_tensors_are_reported),
        cmocka_unit_test(a_model_without_head),
        in_scratch(folders_that_are_none),
        in_scratch(indexes_that_are_wrong),
        in_scratch(numbers_too_large_for_the_format),
        cmocka_unit_test(memory_may_run_out),
        in_scratch(random_models_load),
        in_scratch(random_weights_are_as_promised),
        in_scratch(random_models_that_are_refused),
    };
    return cmocka_run_group_tests_name("model_load", tests, NULL, NULL);
}
