/* place.c - see place.h. A folder counts as there if a file in it is: folders alone are left behind
 * by many things. */
#include "base/place.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/portable.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the folder of the program, or of the library, to what it came with. Two folders above an
 * installed program is anywhere, so a tree must look like one. */
static const struct {
    const char *path, *sign, *folder; /* folder: what the name of the folder must be like */
} WAYS[] = { { "../..", "../../src/base/place.c", "*" }, { "../share/keyhole", NULL, "*" },
    { "../../share/keyhole", NULL, "*-*-*" } }; /* /usr/lib/x86_64-linux-gnu */
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
        bool fits = fnmatch(WAYS[i].folder, kh_path_base(folder), 0) == 0;
        if (fits && (!WAYS[i].sign || (sign && kh_file_exists(sign))))
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
    if (kh_own_program(self, sizeof self) > 0)
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

/* ----------------------------------------------------------------------------- models of a hub */

int kh_place_hub_name(kh_hub_name *out, const char *model, kh_err *err) {
    const char *s = model + strlen(KH_HUB);
    size_t n = strcspn(s, "@:");
    const char *at = s[n] == '@' ? s + n + 1 : "main", *colon = strchr(s, ':');
    size_t n_at = strcspn(at, ":");
    const char *pattern = colon ? colon + 1 : "";
    bool wild = strpbrk(pattern, "*?[") != NULL;
    size_t len = strlen(pattern);
    bool whole = len > 5 && strcmp(pattern + len - 5, ".gguf") == 0;
    if (n == 0 || n >= sizeof out->name || n_at == 0 || n_at >= sizeof out->revision ||
        len + 8 > sizeof out->pattern || strstr(s, "..") || *s == '/' || strchr(at, '/'))
        return kh_fail(err, KH_EARG,
            "\"%.200s\": a model on a hub is called hf:NAME, perhaps with @REVISION and, for one "
            "of "
            "several GGUF files, :PATTERN",
            model);
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, s);
    snprintf(out->revision, sizeof out->revision, "%.*s", (int)n_at, at);
    snprintf(
        out->pattern, sizeof out->pattern, wild || whole || !len ? "%s" : "*%s*.gguf", pattern);
    return 0;
}

/* "models--ORG--MODEL" in the cache. */
static int hub_folder(char **out, const char *name, kh_err *err) {
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    kh_buf b = kh_buf_init(1 << 16);
    if (cache && *cache)
        kh_buf_text(&b, cache);
    else if (home && *home)
        kh_buf_printf(&b, "%s/hub", home);
    else
        kh_buf_printf(&b, "%s/.cache/huggingface/hub", user && *user ? user : ".");
    kh_buf_text(&b, "/models--");
    for (const char *c = name; *c; c++)
        kh_buf_text(&b, *c == '/' ? "--" : (char[2]){ *c, 0 });
    *out = kh_buf_take(&b, NULL);
    return *out ? 0 : kh_fail_memory(err);
}

static int below(char **out, const char *folder, const char *kind, const char *name, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_buf_printf(&b, "%s/%s/%s", folder, kind, name);
    *out = kh_buf_take(&b, NULL);
    return *out ? 0 : kh_fail_memory(err);
}

int kh_place_snapshot(char **out, const char *name, const char *commit, kh_err *err) {
    char *folder;
    *out = NULL;
    int rc = hub_folder(&folder, name, err);
    if (rc == 0)
        rc = below(out, folder, "snapshots", commit, err);
    kh_free(folder);
    return rc;
}

int kh_place_reference(const char *name, const char *revision, const char *commit, kh_err *err) {
    char *folder, *path = NULL, *refs = NULL;
    int rc = hub_folder(&folder, name, err);
    if (rc == 0)
        rc = below(&path, folder, "refs", revision, err);
    if (rc == 0 && !(refs = kh_path_join(folder, "refs")))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_dir_make(refs, err);
    if (rc == 0)
        rc = kh_file_write(path, commit, strlen(commit), err);
    kh_free(folder);
    kh_free(path);
    kh_free(refs);
    return rc;
}

/* The commit that a revision was when it was pulled, or the revision itself. */
static int find_commit(
    const kh_hub_name *n, const char *folder, char *commit, size_t cap, kh_err *err) {
    char *path;
    kh_buf text;
    int rc = below(&path, folder, "refs", n->revision, err);
    if (rc != 0)
        return rc;
    snprintf(commit, cap, "%s", n->revision);
    if (kh_file_exists(path)) {
        rc = kh_file_read(path, 200, &text, err);
        if (rc == 0)
            snprintf(commit, cap, "%.*s", (int)strcspn(text.data ? text.data : "", "\r\n/"),
                text.data ? text.data : "");
        kh_buf_free(&text);
    }
    kh_free(path);
    return rc;
}

/* The first GGUF file of a folder, by name, that matches; NULL: none. */
static char *find_gguf(const char *folder, const char *pattern) {
    DIR *d = opendir(folder);
    char *best = NULL;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (fnmatch(*pattern ? pattern : "*.gguf", e->d_name, 0) == 0 &&
            (!best || strcmp(e->d_name, best) < 0)) {
            kh_free(best);
            best = kh_strdup(e->d_name);
        }
    if (d)
        closedir(d);
    char *path = best ? kh_path_join(folder, best) : NULL;
    kh_free(best);
    return path;
}

static int place_hub(char **out, const char *model, kh_err *err) {
    kh_hub_name n;
    char *folder = NULL, *snapshot = NULL, commit[128];
    int rc = kh_place_hub_name(&n, model, err);
    if (rc == 0)
        rc = hub_folder(&folder, n.name, err);
    if (rc == 0)
        rc = find_commit(&n, folder, commit, sizeof commit, err);
    if (rc == 0)
        rc = below(&snapshot, folder, "snapshots", commit, err);
    char *config = rc == 0 ? kh_path_join(snapshot, "config.json") : NULL;
    if (config && !n.pattern[0] && kh_file_exists(config)) {
        *out = snapshot;
        snapshot = NULL;
    } else if (config)
        *out = find_gguf(snapshot, n.pattern);
    if (rc == 0 && !*out)
        rc = kh_fail(err, KH_EMISSING, "%s: is not here yet; \"keyhole pull %s\" fetches it", model,
            model + strlen(KH_HUB));
    kh_free(config);
    kh_free(snapshot);
    kh_free(folder);
    return rc;
}

int kh_place_model(char **out, const char *name, kh_err *err) {
    *out = NULL;
    if (strncmp(name, KH_HUB, strlen(KH_HUB)) == 0)
        return place_hub(out, name, err);
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
