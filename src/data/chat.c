/* chat.c - the table of chat formats; see chat.h. A "chat_template" is a program (Jinja); it is not
 * run, but recognised by the marks that its kind writes around messages. */
#include "data/chat.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/json.h"
#include "base/place.h"

#include <stdio.h>
#include <string.h>

/* Marks are looked for in this order: Zephyr's would also be found in longer ones. */
static const kh_chat table[] = {
    { "chatml", "<|im_start|>", false, false, { "<|im_start|>system\n", "<|im_end|>\n" },
        "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", { "\n", "" } },
    { "llama3", "<|start_header_id|>", true, true, { NULL },
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", { "\n\n", "" } },
    { "gemma", "<start_of_turn>", true, true, { NULL }, "<start_of_turn>user\n",
        "<end_of_turn>\n<start_of_turn>model\n", { "\n", "" } },
    { "zephyr", "<|user|>", false, false, { NULL }, "<|user|>\n", "</s>\n<|assistant|>\n",
        { "\n", "" } },
    { "llama2", "[INST]", true, true, { NULL }, "[INST] ", " [/INST]", { "]", " " } },
};
enum { N_CHATS = sizeof table / sizeof *table, FILE_MAX = 1 << 22 };

const kh_chat *kh_chat_named(const char *name) {
    for (int i = 0; i < N_CHATS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static int unknown(const char *path, kh_err *err) {
    char names[128] = "";
    for (int i = 0; i < N_CHATS; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", table[i].name);
    }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"chat_template\" is of a kind that is not known; known are %s", path, names);
}

/* The template as text; newer files have a list of several, of which "default" counts. */
static const char *template_text(const json_t *root) {
    const json_t *t = json_object_get(root, "chat_template"), *one;
    size_t i;
    if (!json_is_array(t))
        return json_string_value(t);
    json_array_foreach(t, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(one, "template"));
    }
    return NULL;
}

/* The tokenizer_config.json of a folder, or what a GGUF file has of it. */
static int read_config(json_t **root, const char *path, kh_err *err) {
    size_t n = strlen(path);
    if (n <= 5 || strcmp(path + n - 5, ".gguf") != 0) {
        char *file = kh_path_join(path, "tokenizer_config.json");
        int rc = file ? kh_json_read(file, FILE_MAX, root, err) : kh_fail_memory(err);
        kh_free(file);
        return rc;
    }
    kh_gguf *f;
    const char *template = NULL, *config = NULL;
    int rc = kh_gguf_open(&f, path, err);
    if (rc == 0)
        rc = kh_gguf_text_opt(f, "tokenizer.chat_template", &template, err);
    if (rc == 0)
        rc = kh_gguf_text_opt(f, "keyhole.file.tokenizer_config.json", &config, err);
    if (rc == 0 && config && !template)
        rc = kh_json_parse(config, strlen(config), path, root, err);
    else if (rc == 0) {
        *root = template ? json_pack("{s:s}", "chat_template", template) : json_object();
        rc = *root ? 0 : kh_fail(err, KH_EFORMAT, "%s: its chat template is not UTF-8", path);
    }
    kh_gguf_close(f);
    return rc;
}

/* A line break as a template has it in its strings: itself, or written as \n. Where the text goes
 * on behind what is there of `lines`, or NULL. */
static const char *after_lines(const char *at, const char *lines) {
    for (; *lines; lines++)
        if (*at == *lines)
            at++;
        else if (*lines == '\n' && at[0] == '\\' && at[1] == 'n')
            at += 2;
        else
            return NULL;
    return at;
}

/* The message that a template writes where none is given: plain text between the two marks. Quotes,
 * braces or a backslash between them belong to a program, and what it computes is not this. */
static int find_system(char **out, const kh_chat *c, const char *template, kh_err *err) {
    *out = NULL;
    for (const char *at = template; c->system[0] && *at; at++) {
        const char *text = after_lines(at, c->system[0]);
        size_t n = text ? strcspn(text, "'\"{}\\<") : 0;
        if (n == 0 || !after_lines(text + n, c->system[1]))
            continue;
        *out = kh_strndup(text, n);
        return *out ? 0 : kh_fail_memory(err);
    }
    return 0;
}

int kh_chat_find(const kh_chat **out, char **system, const char *model, kh_err *err) {
    char *path;
    json_t *root = NULL;
    *out = NULL;
    *system = NULL;
    int rc = kh_place_model(&path, model, err);
    if (rc == 0)
        rc = read_config(&root, path, err);
    const char *text = rc == 0 ? template_text(root) : NULL;
    if (rc == 0 && !text)
        rc = kh_fail(err, KH_EMISSING,
            "%s: holds no \"chat_template\"; the model is none for chats, leave --chat out", path);
    for (int i = 0; i < N_CHATS && rc == 0 && !*out; i++)
        if (strstr(text, table[i].mark))
            *out = &table[i];
    if (rc == 0 && !*out)
        rc = unknown(path, err);
    if (rc == 0)
        rc = find_system(system, *out, text, err);
    json_decref(root);
    kh_free(path);
    return rc;
}
