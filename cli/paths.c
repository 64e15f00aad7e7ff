/* paths.c - names of files: folders made on the way, paths that hold from any folder, and runs
 * named after their data. */
#include "cli.h"
#include "suggest.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "plm/http.h"

#include <stdlib.h>
#include <string.h>

int cli_make_parents(const char *path, kh_err *err) {
    char *copy = kh_strdup(path);
    int rc = copy ? 0 : kh_fail_memory(err);
    for (char *slash = copy; rc == 0 && (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        if (!kh_dir_exists(copy))
            rc = kh_dir_make(copy, err);
        *slash = '/';
    }
    kh_free(copy);
    return rc;
}

char *cli_absolute(const char *path) {
    bool there = kh_file_exists(path) || kh_dir_exists(path);
    char *whole = there ? realpath(path, NULL) : NULL, *copy = kh_strdup(whole ? whole : path);
    free(whole);
    return copy;
}

/* What git leaves in place of a large file that was not fetched. */
static bool is_lfs_pointer(const char *path) {
    static const char START[] = "version https://git-lfs";
    char head[sizeof START] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof START - 1, f) : 0;
    if (f)
        fclose(f);
    return n == sizeof START - 1 && strcmp(head, START) == 0;
}

static bool ends_in(const char *s, const char *ending) {
    size_t n = strlen(s), m = strlen(ending);
    return n > m && strcmp(s + n - m, ending) == 0;
}

static int check_files(const char *model, kh_err *err) {
    char *weights =
        kh_dir_exists(model) ? kh_path_join(model, "model.safetensors") : kh_strdup(model);
    int rc = 0;
    if (!weights)
        return kh_fail_memory(err);
    if (kh_file_exists(weights) && is_lfs_pointer(weights))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: is a pointer of git-LFS, not the file itself; \"git lfs pull\" in its folder "
            "fetches "
            "it",
            weights);
    else if (kh_file_exists(model) && (ends_in(model, ".bin") || ends_in(model, ".pt")))
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: PyTorch's pickled weights are not read, because they can run code; take the "
            "folder of a model with model.safetensors, or a GGUF file",
            model);
    else if (kh_file_exists(model) && ends_in(model, ".safetensors"))
        rc = kh_fail(err, KH_EARG,
            "%s: is a part of a model; name the folder that it is in, with config.json and "
            "tokenizer.json",
            model);
    kh_free(weights);
    return rc;
}

int cli_check_model(const char *model, kh_err *err) {
    char hint[512] = "";
    if (kh_is_url(model) || strcmp(model, "builtin") == 0 || strncmp(model, "hf:", 3) == 0)
        return 0;
    if (kh_dir_exists(model) || kh_file_exists(model))
        return check_files(model, err);
    if (ends_in(model, ".gguf") || ends_in(model, ".bin") || ends_in(model, ".safetensors"))
        return kh_fail(err, KH_EMISSING, "%s: there is no such file", model);
    if (cli_distance(model, strlen(model), "builtin") <= 2)
        return kh_fail(
            err, KH_EMISSING, "%s: there is no such model; did you mean builtin?", model);
    if (model[0] != '.' && model[0] != '/' && strlen(model) < 100)
        snprintf(hint, sizeof hint,
            ", or builtin, the one that comes with keyhole; \"keyhole pull %s\" fetches one of "
            "that name, and --model hf:%s uses it",
            model, model);
    return kh_fail(err, KH_EMISSING,
        "%s: there is no such model: a folder with config.json, model.safetensors and "
        "tokenizer.json, a GGUF file, the address of a service%s",
        model, hint);
}

char *cli_stem(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/')
        from--;
    const char *dot = memchr(path + from + 1, '.', end > from + 1 ? end - from - 1 : 0);
    if (dot)
        end = (size_t)(dot - path);
    return end > from ? kh_strndup(path + from, end - from) : kh_strdup("data");
}

char *cli_run_name(const char *data) {
    char *stem = cli_stem(data);
    kh_buf b = kh_buf_init(1 << 16);
    if (stem)
        kh_buf_printf(&b, "%s-run", stem);
    kh_free(stem);
    return stem ? kh_buf_take(&b, NULL) : NULL;
}
