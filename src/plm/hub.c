/* hub.c - see hub.h.
 *
 *     GET /api/models/NAME/revision/REV?blobs=true     the commit and its files, sizes, sha256
 *     GET /NAME/resolve/COMMIT/FILE                    a file, often by way of a redirect
 *
 * Files go to FOLDER.part/FILE, some at a time over one curl multi handle. A transfer that ends
 * early goes on where it stopped (Range). A file is done when it has the size and, where the
 * listing has one, the sha256 that the listing says; when all are done, FOLDER.part is renamed.
 *
 * Redirects are followed here and not by libcurl, so that one place decides who gets the token:
 * only the scheme, host and port of the hub itself. */
#include "plm/hub.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/place.h"
#include "base/secrets.h"
#include "base/sha256.h"
#include "plm/http.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef KH_WITH_CURL
#include "plm/curl_web.h"

enum {
    LISTING_MAX = 32 << 20,
    FILES_MAX = 1000,
    PARALLEL_MAX = 16,
    REDIRECTS_MAX = 5,
    MESSAGE_MAX = 2000, /* bytes kept of what a refusal says */
};

typedef struct hub_file {
    const char *name;
    size_t size;
    const char *sha256; /* or NULL */
} hub_file;

typedef struct hub {
    kh_hub_opts o;
    char *endpoint;
    const char *token;
    char *name, *revision; /* as asked for */
    const char *commit;
    hub_file *file; /* those that are wanted */
    int n_file;
    kh_arena arena;
    CURLM *multi;
    char *folder, *part; /* where it goes, and where it is made */
    size_t done, total;
} hub;

typedef struct transfer {
    hub *h;
    const hub_file *file; /* NULL: into memory */
    kh_buf *memory;
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    int fd;
    size_t at;   /* bytes that are there */
    size_t last; /* as many at the last try */
    long range;  /* where the answer says that it starts, or -1 */
    int tries, redirects;
    double wait;  /* until then */
    double after; /* Retry-After, seconds */
    bool running, done;
    bool too_long, misplaced; /* the answer has more bytes than listed; others than asked for */
    char reason[64];          /* X-Error-Code */
    char error[CURL_ERROR_SIZE];
    kh_buf message;
} transfer;

/* ------------------------------------------------------------------------------------ one file */

static bool starts_with(const char *s, const char *start) {
    return strncmp(s, start, strlen(start)) == 0;
}

/* Scheme, host and port of both are the same. */
static bool same_host(const char *a, const char *b) {
    size_t n = strcspn(strstr(a, "://") + 3, "/?#") + (size_t)(strstr(a, "://") + 3 - a);
    size_t k = strcspn(strstr(b, "://") + 3, "/?#") + (size_t)(strstr(b, "://") + 3 - b);
    return n == k && strncasecmp(a, b, n) == 0;
}

/* Bytes are placed where the answer says that they belong: a hub may ignore the Range and send
 * everything, or begin earlier than asked. */
static size_t take_body(char *bytes, size_t one, size_t n, void *user) {
    transfer *t = user;
    long status = 0;
    (void)one;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) {
        kh_buf_bytes(&t->message, bytes, n); /* capped: the rest is dropped */
        return n;
    }
    if (t->memory) {
        kh_buf_bytes(t->memory, bytes, n);
        return kh_buf_failed(t->memory) ? 0 : n;
    }
    if (status == 200 && t->at > 0 && t->range != -2) { /* the whole file after all */
        t->h->done -= t->at;
        t->at = 0;
    }
    if (status == 206 && t->range >= 0 && (size_t)t->range <= t->at) {
        t->h->done -= t->at - (size_t)t->range;
        t->at = (size_t)t->range; /* where the hub says that these bytes belong */
    } else if (status == 206 && t->range != -2) {
        t->misplaced = true;
        return 0;
    }
    t->range = -2; /* the first bytes are placed */
    if (n > t->file->size - t->at) {
        t->too_long = true;
        return 0;
    }
    for (size_t put = 0; put < n;) {
        ssize_t k = pwrite(t->fd, bytes + put, n - put, (off_t)(t->at + put));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return 0;
        put += (size_t)k;
    }
    t->at += n;
    t->h->done += n;
    return n;
}

static size_t take_header(char *line, size_t one, size_t n, void *user) {
    transfer *t = user;
    (void)one;
    char text[256];
    snprintf(text, sizeof text, "%.*s", n < 255 ? (int)n : 255, line);
    if (strncasecmp(text, "content-range: bytes ", 21) == 0)
        t->range = strtol(text + 21, NULL, 10);
    if (strncasecmp(text, "retry-after: ", 13) == 0)
        t->after = strtod(text + 13, NULL);
    if (strncasecmp(text, "x-error-code: ", 14) == 0) {
        text[14 + strcspn(text + 14, "\r\n")] = '\0';
        snprintf(t->reason, sizeof t->reason, "%.60s", text + 14);
    }
    return n;
}

static int start(transfer *t, kh_err *err) {
    hub *h = t->h;
    kh_buf line = kh_buf_init(1 << 16);
    curl_slist_free_all(t->headers);
    t->headers = curl_slist_append(NULL, "User-Agent: keyhole/" KH_VERSION);
    if (h->token && same_host(t->url, h->endpoint)) {
        kh_buf_printf(&line, "Authorization: Bearer %s", h->token);
        t->headers = kh_buf_failed(&line) ? NULL : curl_slist_append(t->headers, line.data);
        kh_buf_reset(&line);
    }
    if (t->at > 0 && !t->memory) {
        kh_buf_printf(&line, "Range: bytes=%zu-", t->at);
        t->headers = kh_buf_failed(&line) ? NULL : curl_slist_append(t->headers, line.data);
    }
    kh_buf_free(&line);
    if (t->memory)
        kh_buf_reset(t->memory);
    kh_buf_reset(&t->message);
    t->range = -1;
    t->after = 0;
    t->reason[0] = t->error[0] = '\0';
    t->last = t->at;
    bool bad = !t->headers || curl_easy_setopt(t->easy, CURLOPT_URL, t->url) ||
        curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers) ||
        curl_multi_add_handle(h->multi, t->easy);
    t->running = !bad;
    return bad ? kh_fail_memory(err) : 0;
}

/* No whole-transfer timeout: a model takes as long as it takes. A minute without a byte is the end.
 */
static bool set_options(transfer *t) {
    CURL *c = t->easy;
    return !(curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body) ||
        curl_easy_setopt(c, CURLOPT_WRITEDATA, t) ||
        curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) ||
        curl_easy_setopt(c, CURLOPT_HEADERDATA, t) || curl_easy_setopt(c, CURLOPT_PRIVATE, t) ||
        curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error) ||
        curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) || kh_curl_web_only(c) ||
        curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L) ||
        curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L) ||
        curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L));
}

static int transfer_open(transfer *t, hub *h, const char *path, kh_err *err) {
    kh_buf url = kh_buf_init(1 << 16);
    kh_buf_printf(&url, "%s%s", h->endpoint, path);
    *t = (transfer){ .h = h, .fd = -1, .message = kh_buf_init(MESSAGE_MAX) };
    t->url = kh_buf_take(&url, NULL);
    t->easy = curl_easy_init();
    return t->url && t->easy && set_options(t) ? 0 : kh_fail_memory(err);
}

static void transfer_close(transfer *t) {
    if (t->running)
        curl_multi_remove_handle(t->h->multi, t->easy);
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    kh_buf_free(&t->message);
    kh_free(t->url);
    if (t->fd >= 0)
        close(t->fd);
}

/* What a refusal means, as a sentence with a remedy. */
static int fail_status(const transfer *t, long status, kh_err *err) {
    const hub *h = t->h;
    const char *what = t->file ? t->file->name : h->name;
    if (status == 401 && !h->token)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: %s answers 401: there is no such model, or it needs a token; check the name, or "
            "set HF_TOKEN",
            h->name, h->endpoint);
    if (status == 401)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: %s answers 401: it does not accept the token in HF_TOKEN", h->name, h->endpoint);
    if (status == 403)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: %s answers 403: the model is gated%s; accept its terms at %s/%s, then set "
            "HF_TOKEN "
            "to a token that may read it",
            h->name, h->endpoint, h->token ? " and the token may not read it" : "", h->endpoint,
            h->name);
    if (status == 404 && strcmp(t->reason, "RevisionNotFound") == 0)
        return kh_fail(err, KH_EMISSING, "%s: %s has no revision \"%s\" of it", h->name,
            h->endpoint, h->revision);
    if (status == 404)
        return kh_fail(err, KH_EMISSING, "%s: %s answers 404: there is no %s \"%s\"", h->name,
            h->endpoint, t->file ? "file" : "model", what);
    return kh_fail(err, KH_EIO, "%s: %s answers %ld for \"%s\"%s%.200s", h->name, h->endpoint,
        status, what, t->message.len ? ": " : "", t->message.len ? t->message.data : "");
}

/* Tries again after a pause, unless that has been done often without a byte of progress. Progress
 * resets the count: a slow line that breaks every few megabytes still gets there. */
static int again(transfer *t, const char *why, kh_err *err) {
    hub *h = t->h;
    if (t->at > t->last)
        t->tries = 0;
    int most = h->o.retries > 0 ? h->o.retries : 6;
    if (++t->tries > most)
        return kh_fail(err, KH_EIO,
            "%s: %s%s%s: gave up after %d tries; what is there stays, and "
            "the same command goes on with it",
            h->name, t->file ? t->file->name : h->endpoint, *why ? ": " : "", why, most);
    double pause =
        (h->o.pause > 0 ? h->o.pause : 0.5) * (double)(1 << (t->tries < 7 ? t->tries - 1 : 6));
    if (t->after > 0 && t->after < 3600)
        pause = t->after;
    t->wait = kh_clock() + pause;
    return 0;
}

/* Never from https to http, and not for ever. The token is added anew for each address (start), for
 * the hub's own host only. */
static int follow(transfer *t, kh_err *err) {
    const char *to = NULL;
    curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
    if (!to || !(starts_with(to, "http://") || starts_with(to, "https://")) ||
        ++t->redirects > REDIRECTS_MAX ||
        (starts_with(t->url, "https://") && !starts_with(to, "https://")))
        return kh_fail(err, KH_EIO, "%s: a redirect for \"%s\" leads nowhere that may be followed",
            t->h->name, t->file ? t->file->name : t->h->name);
    char *copy = kh_strdup(to);
    if (!copy)
        return kh_fail_memory(err);
    kh_free(t->url);
    t->url = copy;
    t->wait = 0;
    return 0;
}

/* Of the file as it is on disk, after the last byte: what was resumed over several tries is checked
 * as a whole. */
static int check_hash(const transfer *t, kh_err *err) {
    static const size_t PIECE = 1 << 20;
    if (!t->file->sha256)
        return 0;
    char *piece = kh_malloc(PIECE), hex[65];
    if (!piece)
        return kh_fail_memory(err);
    kh_sha256 s;
    kh_sha256_start(&s);
    size_t at = 0;
    for (ssize_t k; at < t->file->size && (k = pread(t->fd, piece, PIECE, (off_t)at)) > 0;
         at += (size_t)k)
        kh_sha256_more(&s, piece, (size_t)k);
    kh_sha256_end(&s, hex);
    kh_free(piece);
    if (strcasecmp(hex, t->file->sha256) == 0)
        return 0;
    return kh_fail(err, KH_EFORMAT,
        "%s: \"%s\" is damaged: its sha256 is %s, the hub lists %s; it was thrown away, try again",
        t->h->name, t->file->name, hex, t->file->sha256);
}

/* What a transfer that ended amounts to. */
static int settle(transfer *t, CURLcode result, kh_err *err) {
    long status = 0;
    hub *h = t->h;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(h->multi, t->easy);
    t->running = false;
    if (t->too_long)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" has more bytes than the hub lists (%zu)",
            h->name, t->file->name, t->file->size);
    if (t->misplaced)
        return kh_fail(err, KH_EIO,
            "%s: the hub answers with other bytes of \"%s\" than those asked for (from %zu)",
            h->name, t->file->name, t->at);
    if (t->memory && kh_buf_failed(t->memory))
        return kh_fail(
            err, KH_ELIMIT, "%s: the listing has more than %d bytes", h->name, (int)LISTING_MAX);
    if (status >= 300 && status < 400)
        return follow(t, err);
    if (status == 416 && t->file) { /* what is there is no start of the file */
        h->done -= t->at;
        t->at = 0;
        return again(t, "the hub has no bytes after those that are here", err);
    }
    if (status == 408 || status == 429 || status >= 500)
        return again(t, status == 429 ? "too many requests (429)" : "the hub fails", err);
    if (t->message.len > 0)
        kh_hide_secrets(t->message.data); /* before it is cut: a piece is easier to overlook */
    if (status >= 400)
        return fail_status(t, status, err);
    if (result == CURLE_WRITE_ERROR)
        return kh_fail_errno(err, t->file ? t->file->name : h->name, "cannot write");
    if (result != CURLE_OK || (t->file && t->at < t->file->size))
        return again(t, *t->error ? t->error : "the connection was cut", err);
    t->done = true;
    if (!t->file)
        return 0;
    int rc = check_hash(t, err);
    if (rc == KH_EFORMAT) { /* nothing of it may be gone on with */
        char *path = kh_path_join(h->part, t->file->name);
        if (path)
            unlink(path);
        kh_free(path);
    }
    return rc;
}

static int tell(hub *h, const char *name, kh_err *err) {
    const kh_hooks *k = h->o.hooks;
    if (!k || !k->progress || h->total == 0)
        return 0;
    kh_progress p = { "pull", (long)h->done, (long)h->total, name };
    return k->progress(k->user, &p) == 0
        ? 0
        : kh_fail(err, KH_STOPPED, "stopped; what is there stays, and the same command goes on");
}

/* Runs all transfers, some at a time. */
static int run(hub *h, transfer *t, int n, kh_err *err) {
    int parallel = h->o.parallel > 0 ? h->o.parallel : 4, rc = 0;
    if (parallel > PARALLEL_MAX)
        parallel = PARALLEL_MAX;
    for (int left = n; left > 0 && rc == 0;) {
        int running = 0, alive;
        left = 0;
        for (int i = 0; i < n; i++)
            running += t[i].running;
        for (int i = 0; i < n && rc == 0; i++)
            if (!t[i].done) {
                left++;
                if (!t[i].running && running < parallel && kh_clock() >= t[i].wait) {
                    rc = start(&t[i], err);
                    running++;
                }
            }
        if (left == 0 || rc != 0)
            break;
        curl_multi_perform(h->multi, &alive);
        CURLMsg *m;
        int more;
        bool ended = false;
        while (rc == 0 && (m = curl_multi_info_read(h->multi, &more)) != NULL) {
            char *who = NULL;
            CURLcode result = m->data.result;
            if (m->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &who);
            rc = settle((transfer *)(void *)who, result, err);
            ended = true;
        }
        if (rc == 0)
            rc = tell(h, t[0].file ? "files" : NULL, err);
        if (rc == 0 && !ended)
            curl_multi_poll(h->multi, NULL, 0, 50, NULL);
    }
    return rc;
}

/* --------------------------------------------------------------------------------- the listing */

/* A name that may become a file of ours. */
static bool is_safe(const char *s) {
    if (!*s || *s == '/' || *s == '.' || strstr(s, "..") || strlen(s) > 200)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s < 0x21 || *s == 0x7F || strchr("\\?#%\"<>|*:", *s))
            return false;
    return true;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* The files of a model in a folder; of weights model.safetensors, or its index and shards. */
static bool is_needed(const char *name, bool whole) {
    static const char *const names[] = { "config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt",
        "model.safetensors" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return !whole &&
        (strcmp(name, "model.safetensors.index.json") == 0 ||
            (starts_with(name, "model-") && ends_with(name, ".safetensors")));
}

static int read_file(hub *h, const json_t *item, hub_file *f, kh_err *err) {
    const json_t *size = json_object_get(item, "size"), *lfs = json_object_get(item, "lfs");
    const char *name = json_string_value(json_object_get(item, "rfilename"));
    const char *hash = json_string_value(json_object_get(lfs, "sha256"));
    if (!name)
        return kh_fail(err, KH_EFORMAT, "%s: the hub lists a file without a name", h->name);
    if (!json_is_integer(size))
        size = json_object_get(lfs, "size");
    f->name = is_safe(name) ? kh_arena_strndup(&h->arena, name, strlen(name)) : "";
    f->size = json_is_integer(size) && json_integer_value(size) >= 0
        ? (size_t)json_integer_value(size)
        : SIZE_MAX;
    if (hash && strlen(hash) == 64)
        f->sha256 = kh_arena_strndup(&h->arena, hash, 64);
    return f->name && (!hash || f->sha256 || strlen(hash) != 64) ? 0 : kh_fail_memory(err);
}

/* Files of sub-folders lose them: what a model needs stands side by side. */
static const char *own_name(const hub_file *f) { return kh_path_base(f->name); }

/* Two that would be written into each other. */
static int check_names(const hub *h, kh_err *err) {
    for (int i = 1; i < h->n_file; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(own_name(&h->file[i]), own_name(&h->file[k])) == 0)
                return kh_fail(err, KH_EARG,
                    "%s: %s and %s would be one file here; choose one with --file", h->name,
                    h->file[k].name, h->file[i].name);
    return 0;
}

/* Which GGUF file is meant: the one that matches, or all parts of one that was split. */
static int choose_gguf(hub *h, const hub_file *all, int n, kh_err *err) {
    kh_buf names = kh_buf_init(4000);
    int found = 0;
    for (int i = 0; i < n; i++) {
        if (!ends_with(all[i].name, ".gguf"))
            continue;
        if (h->o.pattern && fnmatch(h->o.pattern, all[i].name, 0) != 0)
            continue;
        if (!strstr(all[i].name, "-of-") || strstr(all[i].name, "-00001-of-"))
            found++;
        kh_buf_printf(&names, "%s%s (%.0f MB)", names.len ? ", " : "", all[i].name,
            (double)all[i].size / 1e6);
        h->file[h->n_file++] = all[i];
    }
    int rc = 0;
    if (found > 1)
        rc = kh_fail(err, KH_EARG, "%s: holds several GGUF files; choose one with --file: %.700s",
            h->name, names.len ? names.data : "");
    kh_buf_free(&names);
    return rc;
}

static int choose_files(hub *h, const hub_file *all, int n, kh_err *err) {
    bool whole = false, config = false, weights = false, pickle = false;
    for (int i = 0; i < n; i++) {
        whole |= strcmp(all[i].name, "model.safetensors") == 0;
        config |= strcmp(all[i].name, "config.json") == 0;
        weights |= ends_with(all[i].name, ".safetensors");
        pickle |= strcmp(all[i].name, "pytorch_model.bin") == 0;
    }
    if (h->o.pattern || !config || !weights) {
        int rc = choose_gguf(h, all, n, err);
        if (rc != 0 || h->n_file > 0)
            return rc;
        for (int i = 0; i < n && h->o.pattern; i++)
            if (*all[i].name && fnmatch(h->o.pattern, all[i].name, 0) == 0)
                h->file[h->n_file++] = all[i];
        if (h->n_file > 0)
            return 0;
        if (h->o.pattern)
            return kh_fail(err, KH_EMISSING, "%s: holds no file \"%s\"", h->name, h->o.pattern);
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: holds neither model.safetensors with config.json nor a GGUF file%s", h->name,
            pickle ? ", only pytorch_model.bin, which is not read because such a file can run code"
                   : "");
    }
    for (int i = 0; i < n; i++)
        if (is_needed(all[i].name, whole))
            h->file[h->n_file++] = all[i];
    return 0;
}

static int parse_listing(hub *h, const kh_buf *text, kh_err *err) {
    json_t *root;
    int rc = kh_json_parse(text->data, text->len, h->name, &root, err);
    if (rc != 0)
        return rc;
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *list = json_object_get(root, "siblings");
    size_t n = json_array_size(list);
    if (!commit || strlen(commit) < 4 || strspn(commit, "0123456789abcdef") != strlen(commit))
        rc = kh_fail(err, KH_EFORMAT, "%s: the hub's listing has no commit (\"sha\")", h->name);
    else if (n == 0 || n > FILES_MAX * 10)
        rc = kh_fail(err, KH_EFORMAT, "%s: the hub lists %zu files", h->name, n);
    hub_file *all = rc == 0 ? kh_arena_array(&h->arena, n, sizeof *all) : NULL;
    h->file = rc == 0 ? kh_arena_array(&h->arena, n, sizeof *all) : NULL;
    h->commit = rc == 0 ? kh_arena_strndup(&h->arena, commit, strlen(commit)) : NULL;
    if (rc == 0 && (!all || !h->file || !h->commit))
        rc = kh_fail_memory(err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_file(h, json_array_get(list, i), &all[i], err);
    json_decref(root);
    if (rc == 0)
        rc = choose_files(h, all, (int)n, err);
    if (rc == 0)
        rc = check_names(h, err);
    for (int i = 0; i < h->n_file && rc == 0; i++) {
        if (h->file[i].size > (size_t)1 << 46)
            rc = kh_fail(err, KH_EFORMAT, "%s: the hub does not say how large \"%s\" is", h->name,
                h->file[i].name);
        h->total += h->file[i].size;
    }
    return rc;
}

static int ask_listing(hub *h, kh_err *err) {
    kh_buf path = kh_buf_init(4096), text = kh_buf_init(LISTING_MAX);
    kh_buf_printf(&path, "/api/models/%s/revision/%s?blobs=true", h->name, h->revision);
    transfer t = { .fd = -1 };
    int rc = kh_buf_failed(&path) ? kh_fail_memory(err) : transfer_open(&t, h, path.data, err);
    t.memory = &text;
    t.h = h;
    if (rc == 0)
        rc = run(h, &t, 1, err);
    transfer_close(&t);
    if (rc == 0)
        rc = parse_listing(h, &text, err);
    kh_buf_free(&path);
    kh_buf_free(&text);
    return rc;
}

/* ------------------------------------------------------------------------------------- folders */

/* All folders above a path. */
static int make_parents(const char *path, kh_err *err) {
    char *copy = kh_strdup(path);
    int rc = copy ? 0 : kh_fail_memory(err);
    for (char *p = copy; rc == 0 && (p = strchr(p + 1, '/')) != NULL; *p = '/') {
        *p = '\0';
        rc = kh_dir_make(copy, err);
    }
    kh_free(copy);
    return rc;
}

static bool is_there(const hub *h) {
    for (int i = 0; i < h->n_file; i++) {
        char *path = kh_path_join(h->folder, own_name(&h->file[i]));
        struct stat st;
        bool ok = path && stat(path, &st) == 0 && (size_t)st.st_size == h->file[i].size;
        kh_free(path);
        if (!ok)
            return false;
    }
    return true;
}

static int open_file(hub *h, transfer *t, hub_file *f, kh_err *err) {
    kh_buf path = kh_buf_init(4096);
    kh_buf_printf(&path, "/%s/resolve/%s/%s", h->name, h->commit, f->name);
    int rc = kh_buf_failed(&path) ? kh_fail_memory(err) : transfer_open(t, h, path.data, err);
    kh_buf_free(&path);
    t->h = h;
    t->file = f;
    char *to = rc == 0 ? kh_path_join(h->part, own_name(f)) : NULL;
    if (rc == 0 && !to)
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_file_open_own(to, O_RDWR | O_CREAT, &t->fd, err);
    struct stat st;
    if (rc == 0 && fstat(t->fd, &st) == 0 && (size_t)st.st_size <= f->size)
        t->at = (size_t)st.st_size;
    h->done += t->at;
    if (rc == 0 && t->at == f->size) { /* complete, but was its hash seen? */
        rc = check_hash(t, err);
        t->done = rc == 0;
        if (rc == KH_EFORMAT)
            unlink(to);
    }
    kh_free(to);
    return rc;
}

static int fetch_files(hub *h, kh_err *err) {
    transfer *t = kh_calloc((size_t)h->n_file, sizeof *t);
    int rc = t ? make_parents(h->part, err) : kh_fail_memory(err), opened = 0;
    if (rc == 0)
        rc = kh_dir_make_own(h->part, err);
    for (; opened < h->n_file && rc == 0; opened++)
        rc = open_file(h, &t[opened], &h->file[opened], err);
    if (rc == 0)
        rc = run(h, t, h->n_file, err);
    for (int i = 0; i < opened; i++) {
        if (rc == 0 && (ftruncate(t[i].fd, (off_t)t[i].file->size) != 0 || fsync(t[i].fd) != 0))
            rc = kh_fail_errno(err, t[i].file->name, "cannot flush to disk");
        /* Of a hub that sends what it does not list nothing is kept. */
        bool drop = rc != 0 && (t[i].at == 0 || rc == KH_EFORMAT);
        transfer_close(&t[i]);
        char *path = drop ? kh_path_join(h->part, own_name(&h->file[i])) : NULL;
        if (path)
            unlink(path);
        kh_free(path);
    }
    kh_free(t);
    rmdir(h->part); /* if nothing is in it */
    return rc;
}

/* The finished folder under its name, or its files into a folder that is there already. */
static int put_in_place(hub *h, kh_err *err) {
    if (rename(h->part, h->folder) == 0)
        return 0;
    if (!kh_dir_exists(h->folder))
        return kh_fail_errno(err, h->folder, "cannot rename into place");
    int rc = 0;
    for (int i = 0; i < h->n_file && rc == 0; i++) {
        char *from = kh_path_join(h->part, own_name(&h->file[i])),
             *to = kh_path_join(h->folder, own_name(&h->file[i]));
        if (!from || !to)
            rc = kh_fail_memory(err);
        else if (rename(from, to) != 0)
            rc = kh_fail_errno(err, to, "cannot rename into place");
        kh_free(from);
        kh_free(to);
    }
    rmdir(h->part);
    return rc;
}

/* --------------------------------------------------------------------------------------- pull */

static int check_token(const hub *h, kh_err *err) {
    for (const char *p = h->token; p && *p; p++)
        if (*p < '!' || *p > '~')
            return kh_fail(err, KH_EARG, "HF_TOKEN holds a character that no token has");
    if (h->token && !starts_with(h->endpoint, "https://") && !kh_is_loopback(h->endpoint))
        return kh_fail(err, KH_EARG,
            "%s: a token is not sent without encryption; use https, or unset HF_TOKEN",
            h->endpoint);
    if (h->token)
        kh_secret_add(h->token);
    return 0;
}

static int hub_open(hub *h, const char *name, kh_err *err) {
    const char *endpoint = h->o.endpoint ? h->o.endpoint : getenv("HF_ENDPOINT");
    const char *at = strchr(name, '@');
    if (!endpoint || !*endpoint)
        endpoint = "https://huggingface.co";
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    h->endpoint = kh_strndup(endpoint, n);
    h->token = h->o.token ? h->o.token : getenv("HF_TOKEN");
    if (h->token && !*h->token)
        h->token = NULL;
    h->name = at ? kh_strndup(name, (size_t)(at - name)) : kh_strdup(name);
    h->revision = kh_strdup(at ? at + 1 : "main");
    h->multi = curl_multi_init();
    if (!h->endpoint || !h->name || !h->revision || !h->multi)
        return kh_fail_memory(err);
    if (!starts_with(h->endpoint, "http://") && !starts_with(h->endpoint, "https://"))
        return kh_fail(err, KH_EARG, "%s: HF_ENDPOINT must be an http or https URL", h->endpoint);
    const char *slash = strchr(h->name, '/');
    if (!is_safe(h->name) || !is_safe(h->revision) || (slash && strchr(slash + 1, '/')))
        return kh_fail(err, KH_EARG,
            "\"%s\": a model on a hub is called ORG/MODEL or MODEL, perhaps with @REVISION", name);
    return check_token(h, err);
}

static void hub_close(hub *h) {
    curl_multi_cleanup(h->multi);
    kh_arena_free(&h->arena);
    kh_free(h->endpoint);
    kh_free(h->name);
    kh_free(h->revision);
    kh_free(h->folder);
    kh_free(h->part);
}

/* Where the files go: the caller's folder, or a snapshot in the cache. */
static int choose_folder(hub *h, kh_err *err) {
    int rc = 0;
    if (h->o.out)
        h->folder = kh_strdup(h->o.out);
    else
        rc = kh_place_snapshot(&h->folder, h->name, h->commit, err);
    size_t n = h->folder ? strlen(h->folder) : 0;
    while (n > 1 && h->folder[n - 1] == '/')
        h->folder[--n] = '\0';
    kh_buf part = kh_buf_init(1 << 16);
    kh_buf_printf(&part, "%s.part", h->folder ? h->folder : "");
    h->part = kh_buf_take(&part, NULL);
    return rc == 0 && (!h->folder || !h->part) ? kh_fail_memory(err) : rc;
}

static int say_size(hub *h) {
    kh_log(h->o.hooks, KH_INFO, "%s: %d file%s, %.1f MB, from %s to %s", h->name, h->n_file,
        h->n_file == 1 ? "" : "s", (double)h->total / 1e6, h->endpoint, h->folder);
    return 0;
}

/* The folder, or the GGUF file, the first of several. */
static int name_result(const hub *h, char **path, kh_err *err) {
    const hub_file *gguf = NULL;
    for (int i = 0; i < h->n_file; i++)
        if (ends_with(h->file[i].name, ".gguf") &&
            (!gguf || strcmp(h->file[i].name, gguf->name) < 0))
            gguf = &h->file[i];
    *path = gguf ? kh_path_join(h->folder, own_name(gguf)) : kh_strdup(h->folder);
    return *path ? 0 : kh_fail_memory(err);
}

int kh_hub_pull(char **path, const char *name, const kh_hub_opts *o, kh_err *err) {
    *path = NULL;
    hub h = { .o = o ? *o : (kh_hub_opts){ 0 } };
    int rc = hub_open(&h, name, err);
    if (rc == 0)
        rc = ask_listing(&h, err);
    if (rc == 0)
        rc = choose_folder(&h, err);
    if (rc == 0 && !is_there(&h)) {
        rc = say_size(&h);
        if (rc == 0)
            rc = fetch_files(&h, err);
        if (rc == 0)
            rc = put_in_place(&h, err);
    }
    if (rc == 0 && !h.o.out)
        rc = kh_place_reference(h.name, h.revision, h.commit, err);
    if (rc == 0)
        rc = name_result(&h, path, err);
    hub_close(&h);
    return rc;
}

#else

int kh_hub_pull(char **path, const char *name, const kh_hub_opts *o, kh_err *err) {
    (void)o;
    *path = NULL;
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: this keyhole was built without libcurl (Debian: libcurl4-openssl-dev) and cannot "
        "fetch",
        name);
}

#endif

int kh_hub_ensure(const char *model, const kh_hub_opts *o, kh_err *err) {
    char *path = NULL;
    kh_err unused;
    if (strncmp(model, KH_HUB, strlen(KH_HUB)) != 0)
        return 0;
    int rc = kh_place_model(&path, model, &unused);
    kh_free(path);
    if (rc == 0)
        return 0;
    kh_hub_opts mine = o ? *o : (kh_hub_opts){ 0 };
    kh_hub_name n;
    if ((rc = kh_place_hub_name(&n, model, err)) != 0)
        return rc;
    if (n.pattern[0])
        mine.pattern = n.pattern;
    kh_buf name = kh_buf_init(1 << 12);
    kh_buf_printf(&name, "%s@%s", n.name, n.revision);
    path = NULL;
    rc = kh_buf_failed(&name) ? kh_fail_memory(err) : kh_hub_pull(&path, name.data, &mine, err);
    kh_buf_free(&name);
    kh_free(path);
    return rc;
}
