/* place.c - see place.h. A folder counts as there if a file in it is: folders alone are left behind
 * by many things. */
#include "base/place.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the folder of the program, or of the library, to what it came with. Two folders above an
 * installed program is anywhere, so a tree must look like one. */
static const struct {
    const char *path, *sign;
} WAYS[] = { { "../..", "../../src/base/place.c" }, { "../share/keyhole", NULL } };
enum { N_WAY = sizeof WAYS / sizeof *WAYS };

typedef struct search {
    const char *file; /* "models/builtin/config.json": what must be there */
    char *found;      /* the path of that file */
    kh_buf seen;      /* the places that were tried, as text */
    bool failed;      /* out of memory */
} search;

static void look(search *s, const char *folder, const char *way, const char *file) {
    char *base = *way ? kh_path_join(folder, way) : kh_strdup(folder);
    char *real = base ? realpath(base, NULL) : NULL; /* for people: no dots, if the folder exists */
    char *path = base ? kh_path_join(real ? real : base, file) : NULL;
    s->failed |= !path;
    if (path && kh_file_exists(path)) {
        s->found = path;
        path = NULL;
    } else if (path)
        kh_buf_printf(
            &s->seen, "%s%.*s", s->seen.len ? ", " : "", (int)(strrchr(path, '/') - path), path);
    free(real);
    kh_free(path);
    kh_free(base);
}

/* self: the path of a program or a library. */
static void look_around(search *s, const char *self) {
    const char *slash = strrchr(self, '/');
    char *folder = slash ? kh_strndup(self, (size_t)(slash - self)) : NULL;
    s->failed |= slash && !folder;
    for (int i = 0; i < N_WAY && folder && !s->found && !s->failed; i++) {
        char *sign = WAYS[i].sign ? kh_path_join(folder, WAYS[i].sign) : NULL;
        if (!WAYS[i].sign || (sign && kh_file_exists(sign)))
            look(s, folder, WAYS[i].path, s->file);
        s->failed |= WAYS[i].sign && !sign;
        kh_free(sign);
    }
    kh_free(folder);
}

/* The shared library that this code is part of, with its real path, or NULL: it is part of the
 * program. */
static char *own_library(void) {
    Dl_info in;
    const char *name = dladdr(WAYS, &in) != 0 && in.dli_fname ? in.dli_fname : "";
    return strstr(kh_path_base(name), ".so") ? realpath(name, NULL) : NULL;
}

static void look_everywhere(search *s) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    look_around(s, self);
    char *library = s->found || s->failed ? NULL : own_library();
    if (library)
        look_around(s, library);
    free(library);
}

/* The folder of the file that was found, or the sentence that it was not. */
static int finish(search *s, char **out, const char *what, const char *advice, kh_err *err) {
    int rc = 0;
    if (s->failed)
        rc = kh_fail_memory(err);
    else if (!s->found)
        rc = kh_fail(err, KH_EMISSING, "%s is not here: there is none in %s; %s", what,
            kh_buf_failed(&s->seen) || !s->seen.len ? "the usual places" : s->seen.data, advice);
    else {
        *strrchr(s->found, '/') = '\0';
        *out = s->found;
        s->found = NULL;
    }
    kh_free(s->found);
    kh_buf_free(&s->seen);
    return rc;
}

int kh_place_model(char **out, const char *name, kh_err *err) {
    *out = NULL;
    if (strcmp(name, KH_BUILTIN) != 0)
        return (*out = kh_strdup(name)) ? 0 : kh_fail_memory(err);
    search s = { .file = "models/" KH_BUILTIN "/config.json", .seen = kh_buf_init(1 << 16) };
    const char *own = getenv("KEYHOLE_MODELS");
    if (own && *own)
        look(&s, own, "", KH_BUILTIN "/config.json");
    else
        look_everywhere(&s);
    return finish(&s, out, "the built-in model",
        "set KEYHOLE_MODELS to the folder that holds \"" KH_BUILTIN
        "\", make it with \"make builtin\" in keyhole's sources, or "
        "give the folder of another model",
        err);
}

int kh_place_examples(char **out, kh_err *err) {
    *out = NULL;
    search s = { .file = "examples/README.md", .seen = kh_buf_init(1 << 16) };
    look_everywhere(&s);
    return finish(&s, out, "the folder of example data", "--data says where it is", err);
}
