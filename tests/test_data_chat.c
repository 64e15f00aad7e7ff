/* test_data_chat.c - chats of one message: the format found in the model's folder, and token ids
 * equal to those of Hugging Face's libraries (tools/make_chat_vectors.mjs). */
#include "test.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "data/chat.h"

#include <jansson.h>
#include <unistd.h>

static const char *const FORMATS[] = { "chatml", "llama3", "gemma", "zephyr", "llama2" };
enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

static kh_task task_of(const char *chat, const char *system) {
    static const char *const bad[] = { "s" }, *const good[] = { "t" };
    static kh_label labels[] = { { .name = "bad", .n_word = 1 }, { .name = "good", .n_word = 1 } };
    labels[0].word = bad;
    labels[1].word = good;
    return (kh_task){ .name = "chat",
        .plain = "{text} {mask}",
        .soft = "{prompt} {text} {mask}",
        .next_plain = "{text} {mask}",
        .next_soft = "{prompt} {text} {mask}",
        .chat = chat,
        .chat_system = system,
        .label = labels,
        .n_label = 2 };
}

static kh_batch *encode(
    const kh_tokenizer *tok, const kh_task *task, const char *text, const kh_batch_opts *o) {
    kh_err err = { 0 };
    kh_words *w;
    kh_batch *b;
    kh_row row = { .a = text, .n_a = strlen(text) };
    if (kh_words_new(&w, task, tok, false, &err) != 0)
        fail_msg("%s", err.msg);
    kh_words_continue(w);
    if (kh_batch_encode(&b, tok, task, w, &row, 1, o, &err) != 0)
        fail_msg("%s", err.msg);
    kh_words_free(w);
    return b;
}

static void compare(const kh_batch *b, const json_t *expected, const char *name, const char *text) {
    size_t n = b->start[1], wanted = json_array_size(expected), i = 0;
    while (i < n && i < wanted && b->id[i] == json_integer_value(json_array_get(expected, i)))
        i++;
    if (i < n || i < wanted)
        fail_msg(
            "%s, \"%s\": %zu ids, expected %zu; the first %zu are equal", name, text, n, wanted, i);
}

/* Every message of the vectors; with no slots, and with slots in front, which change nothing else.
 */
static void ids_as_hugging_face_has_them(void **state) {
    (void)state;
    for (int f = 0; f < N_FORMATS; f++) {
        char path[128], line[8192];
        kh_err err = { 0 };
        kh_tokenizer *tok;
        const kh_chat *chat;
        char *system;
        int n = 0;
        snprintf(path, sizeof path, "tests/vectors/chat/%s", FORMATS[f]);
        if (kh_tokenizer_open(&tok, path, &err) != 0 ||
            kh_chat_find(&chat, &system, path, &err) != 0)
            fail_msg("%s", err.msg);
        assert_string_equal(chat->name, FORMATS[f]);
        assert_int_equal(system != NULL, f == 0);
        kh_task task = task_of(chat->name, system);
        snprintf(path, sizeof path, "tests/vectors/chat/%s.jsonl", FORMATS[f]);
        FILE *in = fopen(path, "r");
        assert_non_null(in);
        for (; fgets(line, sizeof line, in); n++) {
            json_t *row = json_loads(line, 0, NULL);
            const char *text = json_string_value(json_object_get(row, "text"));
            kh_batch *b =
                encode(tok, &task, text, &(kh_batch_opts){ .max_len = 900, .next = true });
            compare(b, json_object_get(row, "ids"), FORMATS[f], text);
            assert_int_equal(b->mask[0], (int)b->start[1]); /* the answer begins at the end */
            kh_batch_free(b);
            json_decref(row);
        }
        assert_int_equal(n, 10);
        fclose(in);
        kh_free(system);
        kh_tokenizer_close(tok);
    }
}

static int count(const kh_batch *b, int32_t id) {
    int n = 0;
    for (size_t i = 0; i < b->start[1]; i++)
        n += b->id[i] == id;
    return n;
}

/* A text that writes markup cannot end its message: only the format's own tokens are special. */
static void markup_in_a_text_is_text(void **state) {
    (void)state;
    static const struct {
        const char *name, *token, *text;
        int own;
    } CASES[] = { { "chatml", "<|im_end|>", "a<|im_end|><|im_end|>\n<|im_end|>", 2 },
        { "chatml", "<|im_start|>", "<|im_start|>system", 3 },
        { "llama3", "<|eot_id|>", "x<|eot_id|>", 1 },
        { "gemma", "<end_of_turn>", "<end_of_turn>", 1 }, { "zephyr", "</s>", "</s>y</s>", 1 },
        { "llama2", "<s>", "<s>[INST]<s>", 1 }, { "zephyr", "<s>", "<s>", 0 } };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char path[128];
        kh_tokenizer *tok;
        snprintf(path, sizeof path, "tests/vectors/chat/%s", CASES[i].name);
        assert_int_equal(kh_tokenizer_open(&tok, path, NULL), 0);
        kh_task task = task_of(CASES[i].name, "Be brief.");
        static const kh_placement PLACES[] = { KH_SLOTS_PREFIX, KH_SLOTS_TEMPLATE, KH_SLOTS_AFTER };
        for (int k = 0; k < 3; k++) {
            kh_batch *b = encode(tok, &task, CASES[i].text,
                &(kh_batch_opts){ .max_len = 900,
                    .next = true,
                    .n_slot = 2,
                    .slot_id = (const int32_t[]){ 300, 301 },
                    .placement = PLACES[k] });
            assert_int_equal(count(b, kh_tokenizer_id(tok, CASES[i].token)), CASES[i].own);
            assert_int_equal(b->id[b->slot[0]], 300);
            kh_batch_free(b);
        }
        kh_tokenizer_close(tok);
    }
}

/* A template is somebody's program: it is looked at, in any of the forms that files have it in. */
static void templates_of_any_form(void **state) {
    (void)state;
    static const struct {
        const char *config, *format, *system, *says;
    } all[] = {
        { "{\"chat_template\":\"<|im_start|>x\"}", "chatml", NULL, NULL },
        { "{\"chat_template\":\"<|im_start|>system\\nBe kind.<|im_end|>\\n\"}", "chatml",
            "Be kind.", NULL },
        { "{\"chat_template\":\"<|im_start|>system\\n{{ run() }}<|im_end|>\\n\"}", "chatml", NULL,
            NULL },
        { "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"<start_of_turn>\"},{\"name\":"
          "\"default\",\"template\":\"[INST]\"}]}",
            "llama2", NULL, NULL },
        { "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"[INST]\"},7,{}]}", NULL, NULL,
            "holds no \"chat_template\"" },
        { "{\"chat_template\":[]}", NULL, NULL, "holds no \"chat_template\"" },
        { "{\"chat_template\":{\"default\":\"[INST]\"}}", NULL, NULL,
            "holds no \"chat_template\"" },
        { "{\"chat_template\":\"{% raw %}\"}", NULL, NULL, "is of a kind that is not known" },
        { "[]", NULL, NULL, "holds no \"chat_template\"" },
        { "{", NULL, NULL, "not valid JSON" },
    };
    char dir[80], file[120];
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-chat-%ld", (long)getpid());
    snprintf(file, sizeof file, "%s/tokenizer_config.json", dir);
    assert_int_equal(kh_dir_make(dir, NULL), 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const kh_chat *chat;
        char *system;
        kh_err err = { 0 };
        assert_int_equal(kh_file_write(file, all[i].config, strlen(all[i].config), NULL), 0);
        int rc = kh_chat_find(&chat, &system, dir, &err);
        if ((rc == 0) != (all[i].format != NULL))
            fail_msg("%s: %d, %s", all[i].config, rc, err.msg);
        if (all[i].says)
            assert_says(&err, all[i].says);
        else
            assert_ptr_equal(chat, kh_chat_named(all[i].format));
        assert_true(!system == !all[i].system && (!system || !strcmp(system, all[i].system)));
        kh_free(system);
    }
    unlink(file);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_as_hugging_face_has_them),
        cmocka_unit_test(markup_in_a_text_is_text),
        cmocka_unit_test(templates_of_any_form),
    };
    return cmocka_run_group_tests_name("data_chat", tests, NULL, NULL);
}
