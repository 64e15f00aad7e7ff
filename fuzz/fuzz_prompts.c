/* fuzz_prompts.c - any bytes as a file of instructions and templates for text prompts; after a line
 * of "%%" follow synonyms. What is accepted must be edited into texts that are there. */
#include "fuzz/model.h"
#include "prompt/instructions.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void end(void) {
    fuzz_drop("prompts.txt");
    rmdir(fuzz_folder);
}

static void edit(kh_material *m, const char *text, size_t n) {
    kh_synonyms y = { 0 };
    kh_err err = { 0 };
    int rc = kh_synonyms_parse(&y, m->arena, text, n, "fuzz", &err);
    assert(rc == 0 || (err.code < 0 && err.msg[0]));
    if (kh_material_edit(m, rc == 0 ? &y : NULL, NULL) == 0)
        for (int i = 0; i < m->n_instruction; i++)
            for (int k = 0; k < m->instruction[i].n; k++)
                assert(strlen(m->instruction[i].text[k]) <= 1 << 20);
    kh_synonyms_free(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char SEPARATOR[] = "\n%%\n";
    static const char TASK[] = "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
                               ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                               "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    static const kh_task *task; /* as long as the process */
    char path[128];
    if (!fuzz_folder[0]) {
        fuzz_folder_make("prompts");
        atexit(end);
        assert(kh_task_parse(&task, TASK, sizeof TASK - 1, "toy", NULL) == 0);
    }
    if (n == 0 || n > 1 << 14)
        return 0;
    const char *text = (const char *)data, *cut = memmem(text, n, SEPARATOR, sizeof SEPARATOR - 1);
    size_t first = cut ? (size_t)(cut - text) : n,
           used = cut ? first + sizeof SEPARATOR - 1 : first;
    kh_arena arena = { 0 };
    kh_material m = { 0 };
    kh_err err = { 0 };
    fuzz_put("prompts.txt", text, first);
    snprintf(path, sizeof path, "%s/prompts.txt", fuzz_folder);
    int rc = kh_material_start(&m, &arena, task, data[0] & 1, &err);
    if (rc == 0)
        rc = kh_material_file(&m, path, &err);
    if (rc == 0)
        edit(&m, text + used, n - used);
    else
        assert(err.code < 0 && err.msg[0]);
    kh_material_free(&m);
    kh_arena_free(&arena);
    return 0;
}
