/* http.c - see http.h. One curl multi handle; as many easy handles as requests may be in flight,
 * each kept with its connection from request to request. */
#include "plm/http.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/secrets.h"

#include <stdlib.h>
#include <string.h>

bool kh_is_url(const char *model) {
    return strncmp(model, "http://", 7) == 0 || strncmp(model, "https://", 8) == 0;
}

#ifdef KH_WITH_CURL

#include "plm/curl_web.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <strings.h>

enum {
    RETRIES = 8,       /* unless told otherwise */
    MISSING_TRIES = 2, /* of them, for answers that came and say nothing */
};

typedef enum slot_state { SLOT_FREE, SLOT_RUNNING, SLOT_WAITING } slot_state;

typedef struct slot {
    CURL *easy;
    slot_state state;
    int index;   /* of the request */
    int attempt; /* from 0 */
    double wake; /* when waiting: the time to try again */
    kh_buf body, answer;
    bool too_large;
    char error[CURL_ERROR_SIZE];
} slot;

struct kh_http {
    char *url;
    kh_http_opts o;
    const kh_hooks *hooks;
    CURLM *multi;
    struct curl_slist *headers; /* one of them holds the key */
    slot *slot;                 /* [n_slot] */
    int n_slot;
    size_t max_answer;
    int retries;
    bool reached;    /* someone has answered */
    uint64_t jitter; /* state of a generator that decides pauses and nothing else */
    kh_buf path;
};

static pthread_once_t curl_ready = PTHREAD_ONCE_INIT;
/* Once for the process, whoever comes first: curl's own initialisation is not safe in threads. */
static void ready_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

/* ------------------------------------------------------------------------------------- opening */

typedef struct alone {
    kh_http_opts o;
} alone;
static const kh_opt http_table[] = { KH_HTTP_ROWS(alone, o), { 0 } };

kh_http_opts kh_http_defaults(void) {
    alone a = { 0 };
    kh_opts_init(http_table, &a);
    return a.o;
}

/* The host of a URL, without port and brackets, in *n bytes. IPv6 addresses stand in brackets. */
static const char *host_of(const char *url, size_t *n) {
    const char *host = strstr(url, "://") + 3;
    if (*host == '[') {
        *n = strcspn(++host, "]/");
        return host;
    }
    *n = strcspn(host, ":/");
    return host;
}

/* An address of the loopback network, or its name: "127.0.0.1" and not "127.example.org". */
bool kh_is_loopback(const char *url) {
    size_t n;
    struct in_addr four;
    const char *host = host_of(url, &n), *whole = strstr(url, "://") + 3;
    char text[64];
    if (n == 0 || n >= sizeof text || memchr(whole, '@', strcspn(whole, "/")) ||
        (*whole == '[' && !strchr(":/", host[n] ? host[n + 1] : 'x')))
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (strcasecmp(text, "localhost") == 0 || strcmp(text, "::1") == 0)
        return true;
    return inet_pton(AF_INET, text, &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

/* Whether "HOST" or "HOST:PORT" is where the URL leads. */
static bool is_at(const char *url, const char *where, size_t n) {
    const char *host = strstr(url, "://") + 3;
    size_t whole = strcspn(host, "/"), bare_n;
    const char *bare = host_of(url, &bare_n);
    return (n == whole && strncasecmp(host, where, n) == 0) ||
        (n == bare_n && strncasecmp(bare, where, n) == 0);
}

/* "KEY", or "host=HOST KEY" for a key that must go to that host and no other. Without white space
 * around it, in *key. */
static int parse_key(
    const char *text, const char *url, const char *from, bool file, char **key, kh_err *err) {
    static const char WHITE[] = " \t\r\n", BOUND[] = "host=";
    const char *host = NULL;
    size_t n_host = 0;
    text += strspn(text, WHITE);
    if (strncmp(text, BOUND, sizeof BOUND - 1) == 0) {
        host = text + sizeof BOUND - 1;
        n_host = strcspn(host, WHITE);
        text = host + n_host + strspn(host + n_host, WHITE);
    }
    size_t n = strcspn(text, WHITE);
    bool odd = text[n + strspn(text + n, WHITE)] != '\0';
    for (size_t i = 0; i < n; i++)
        odd |= text[i] < '!' || text[i] > '~';
    if (odd || (n == 0 && (file || host)))
        return kh_fail(err, KH_EFORMAT,
            "%s: must hold one key, of plain characters without spaces, perhaps after "
            "\"host=HOST\", the host that it is for",
            from);
    if (host && !is_at(url, host, n_host))
        return kh_fail(err, KH_EARG, "%s: the key is for %.*s, and not for this service", url,
            (int)(n_host < 200 ? n_host : 200), host);
    if (n > 0 && !(*key = kh_strndup(text, n)))
        return kh_fail_memory(err);
    if (n > 0)
        kh_secret_add(*key);
    return 0;
}

/* OpenAI's key is OpenAI's: it goes to their host, or to where OPENAI_BASE_URL says. */
static const char *openai_key(const char *url) {
    const char *base = getenv("OPENAI_BASE_URL"), *host = "api.openai.com";
    size_t n = strlen(host);
    if (base && strstr(base, "://"))
        host = host_of(base, &n);
    return is_at(url, host, n) ? getenv("OPENAI_API_KEY") : NULL;
}

/* The key in *key: from the file, or from the environment; NULL if there is none. */
static int read_key(const kh_http_opts *o, const char *url, char **key, kh_err *err) {
    kh_buf file = kh_buf_init(0);
    const char *text = getenv("KEYHOLE_API_KEY");
    *key = NULL;
    if (!text && o->backend && strcmp(o->backend, "openai") == 0)
        text = openai_key(url);
    int rc = o->key_file ? kh_file_read(o->key_file, 1 << 16, &file, err) : 0;
    if (o->key_file)
        text = file.len > 0 ? file.data : "";
    if (rc == 0 && text)
        rc = parse_key(text, url, o->key_file ? o->key_file : "the environment's key",
            o->key_file != NULL, key, err);
    kh_buf_free(&file);
    return rc;
}

static int add_header(kh_http *h, const char *line, kh_err *err) {
    struct curl_slist *more = curl_slist_append(h->headers, line);
    if (!more)
        return kh_fail_memory(err);
    h->headers = more;
    return 0;
}

static int set_headers(kh_http *h, kh_err *err) {
    char *key;
    kh_buf line = kh_buf_init(1 << 17);
    int rc = read_key(&h->o, h->url, &key, err);
    if (rc == 0)
        rc = add_header(h, "Content-Type: application/json", err);
    if (rc == 0)
        rc = add_header(
            h, "Expect:", err); /* no question before a large body: it costs a round trip */
    if (rc == 0 && key) {
        kh_buf_printf(&line, "Authorization: Bearer %s", key);
        rc = kh_buf_failed(&line) ? kh_fail_memory(err) : add_header(h, line.data, err);
        if (strncmp(h->url, "http://", 7) == 0 && !kh_is_loopback(h->url))
            kh_log(h->hooks, KH_WARN, "%s: the key travels unencrypted; https:// would hide it",
                h->url);
    }
    kh_free(key);
    kh_buf_free(&line);
    return rc;
}

/* An answer beyond the cap is cut off as it arrives, not when it is all there. */
static size_t receive(char *bytes, size_t size, size_t n, void *user) {
    slot *s = user;
    s->too_large = size * n > s->answer.max - s->answer.len;
    kh_buf_bytes(&s->answer, bytes, size * n);
    return kh_buf_failed(&s->answer) ? 0 : size * n;
}

/* No signals (a library in somebody's process), no other protocols, no redirects (a key goes to the
 * host that it was meant for), no compression (a small answer that unpacks into gigabytes). */
static bool set_options(kh_http *h, slot *s) {
    CURL *e = s->easy;
    bool bad = curl_easy_setopt(e, CURLOPT_HTTPHEADER, h->headers) ||
        curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, receive) ||
        curl_easy_setopt(e, CURLOPT_WRITEDATA, s) || curl_easy_setopt(e, CURLOPT_PRIVATE, s) ||
        curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->error) ||
        curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) || kh_curl_web_only(e) ||
        curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) ||
        curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, 15000L) ||
        curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)(h->o.timeout * 1000)) ||
        curl_easy_setopt(e, CURLOPT_USERAGENT, "keyhole/" KH_VERSION) ||
        curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, NULL);
    if (h->o.ca_file)
        bad = bad || curl_easy_setopt(e, CURLOPT_CAINFO, h->o.ca_file);
    if (kh_is_loopback(h->url))
        bad = bad ||
            curl_easy_setopt(e, CURLOPT_NOPROXY,
                "*"); /* whatever proxy the environment names, it is not for us */
    return !bad;
}

/* Names and keys in a URL would end up in logs; a query or a fragment would be lost when the path
 * is appended. */
static int check_url(const char *url, kh_err *err) {
    const char *host = strstr(url, "://") + 3;
    size_t n = strcspn(host, "/");
    if (n == 0 || memchr(host, '@', n))
        return kh_fail(err, KH_EARG,
            "a service is named as http://HOST:PORT or https://HOST; names and keys do not go into "
            "the URL");
    for (const char *c = url; *c; c++)
        if (*c <= ' ' || *c == '?' || *c == '#' || *c == 127)
            return kh_fail(err, KH_EARG,
                "a service is named as http://HOST:PORT or https://HOST, perhaps with a path, and "
                "nothing else");
    return 0;
}

int kh_http_open(
    kh_http **out, const char *url, const kh_http_opts *o, const kh_hooks *hooks, kh_err *err) {
    *out = NULL;
    int rc = check_url(url, err);
    if (rc != 0)
        return rc;
    pthread_once(&curl_ready, ready_curl);
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    kh_http *h = kh_calloc(1, sizeof *h);
    if (!h)
        return kh_fail_memory(err);
    *h = (kh_http){ .url = kh_strndup(url, n),
        .o = o ? *o : kh_http_defaults(),
        .hooks = hooks,
        .multi = curl_multi_init(),
        /* differs between processes; decides nothing but the length of pauses */
        .jitter = (uint64_t)(kh_clock() * 1e9) | 1,
        .path = kh_buf_init(1 << 16) };
    h->retries = h->o.retries < 0 ? RETRIES : h->o.retries;
    h->slot = kh_calloc((size_t)h->o.in_flight, sizeof *h->slot);
    rc = h->url && h->multi && h->slot ? set_headers(h, err) : kh_fail_memory(err);
    for (int i = 0; i < h->o.in_flight && rc == 0; i++, h->n_slot++) {
        slot *s = &h->slot[i];
        s->body = kh_buf_init(KH_BUF_MAX);
        s->easy = curl_easy_init();
        if (!s->easy || !set_options(h, s))
            rc = kh_fail_memory(err);
    }
    if (rc != 0)
        kh_http_close(h);
    else
        *out = h;
    return rc;
}

void kh_http_close(kh_http *h) {
    if (!h)
        return;
    for (int i = 0; h->slot && i < h->o.in_flight; i++) {
        slot *s = &h->slot[i];
        if (s->state == SLOT_RUNNING)
            curl_multi_remove_handle(h->multi, s->easy);
        curl_easy_cleanup(s->easy);
        kh_buf_free(&s->body);
        kh_buf_free(&s->answer);
    }
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    kh_free(h->slot);
    kh_buf_free(&h->path);
    kh_free(h->url);
    kh_free(h);
}

const char *kh_http_url(const kh_http *h) { return h->url; }
int kh_http_in_flight(const kh_http *h) { return h->o.in_flight; }
const kh_hooks *kh_http_hooks(const kh_http *h) { return h->hooks; }

/* ------------------------------------------------------------------------------------- running */

/* From here on the request counts as sent: it may be paid for. */
static int start(kh_http *h, slot *s, kh_err *err) {
    s->state = SLOT_RUNNING;
    s->too_large = false;
    s->error[0] = '\0';
    kh_buf_reset(&s->answer);
    s->answer.max = h->max_answer;
    if (curl_multi_add_handle(h->multi, s->easy) != CURLM_OK) {
        s->state = SLOT_FREE;
        return kh_fail_memory(err);
    }
    return 0;
}

/* The request as it is now: what was answered in part asks for the rest only. */
static int make(kh_http *h, slot *s, const kh_http_jobs *jobs, kh_err *err) {
    const char *path = "/";
    kh_buf_reset(&s->body);
    kh_buf_reset(&h->path);
    int rc = jobs->make(jobs->user, s->index, &path, &s->body, err);
    if (rc != 0)
        return rc;
    kh_buf_printf(&h->path, "%s%s", h->url, path);
    if (kh_buf_failed(&s->body) || kh_buf_failed(&h->path))
        return kh_fail_memory(err);
    bool bad = curl_easy_setopt(s->easy, CURLOPT_URL, h->path.data);
    if (s->body.len > 0)
        bad = bad || curl_easy_setopt(s->easy, CURLOPT_POST, 1L) ||
            curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body.data) ||
            curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->body.len);
    else
        bad = bad || curl_easy_setopt(s->easy, CURLOPT_HTTPGET, 1L);
    return bad ? kh_fail_memory(err) : 0;
}

static int begin(kh_http *h, slot *s, const kh_http_jobs *jobs, int index, kh_err *err) {
    s->index = index;
    s->attempt = 0;
    int rc = make(h, s, jobs, err);
    return rc == 0 ? start(h, s, err) : rc;
}

/* What a service says about a refusal: {"error":{"message":"..."}}, {"error":"..."},
 * {"message":"..."}, {"detail":"..."}. */
static void said(const slot *s, char *out, size_t cap) {
    json_t *root = NULL;
    out[0] = '\0';
    if (s->answer.len > 0 &&
        kh_json_parse(s->answer.data, s->answer.len, "answer", &root, NULL) == 0) {
        const json_t *error = json_object_get(root, "error");
        const char *text =
            json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);
        static const char *const KEYS[] = { "message", "detail" };
        for (int i = 0; i < 2 && !text; i++)
            text = json_string_value(json_object_get(root, KEYS[i]));
        char *all = text ? kh_strdup(text) : NULL;
        if (all) {
            size_t n = 0;
            kh_hide_secrets(all); /* before it is cut: a piece of a key is easier to overlook */
            out[n++] = ':', out[n++] = ' ';
            for (const char *c = all; *c && n + 1 < cap; c++)
                out[n++] = (unsigned char)*c < ' ' ? ' ' : *c;
            out[n] = '\0';
        }
        kh_free(all);
    }
    json_decref(root);
}

/* Whose fault a status is: the request's, the address', the key's or the access level's; else the
 * service's. */
static int code_of_status(long status) {
    switch (status) {
    case 400:
    case 413:
    case 422: return KH_EARG;
    case 404: return KH_EMISSING;
    case 401:
    case 403:
    case 405:
    case 501: return KH_EUNSUPPORTED;
    default: return KH_EIO;
    }
}

static int refuse(const kh_http *h, const slot *s, long status, kh_err *err) {
    char why[400];
    said(s, why, sizeof why);
    int code = code_of_status(status);
    const char *hint = "";
    if (status == 401 && !h->o.key_file)
        hint = "; --key-file or KEYHOLE_API_KEY gives the key";
    else if (status >= 300 && status < 400)
        hint = "; redirects are not followed, name the place itself";
    if (s->attempt > 0)
        return kh_fail(err, code, "%s: still answers HTTP %ld after %d tries%s%s", h->url, status,
            s->attempt + 1, why, hint);
    return kh_fail(err, code, "%s: answered HTTP %ld%s%s", h->url, status, why, hint);
}

/* Statuses that the same request may not get again a little later. */
static bool passes(long status) {
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
        status == 504;
}

static bool is_lost(CURLcode c) {
    return c == CURLE_COULDNT_CONNECT || c == CURLE_PARTIAL_FILE || c == CURLE_OPERATION_TIMEDOUT ||
        c == CURLE_SEND_ERROR || c == CURLE_RECV_ERROR || c == CURLE_GOT_NOTHING ||
        c == CURLE_COULDNT_RESOLVE_HOST || c == CURLE_HTTP2 || c == CURLE_HTTP2_STREAM;
}

/* A quarter of a second, doubling up to half a minute, of which a random half to whole is waited;
 * or what the service says, up to five minutes. */
static double pause_of(kh_http *h, const slot *s) {
    curl_off_t after = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RETRY_AFTER, &after);
    h->jitter ^= h->jitter << 13, h->jitter ^= h->jitter >> 7, h->jitter ^= h->jitter << 17;
    double share = 0.5 + 0.5 * (double)(h->jitter >> 11) / 9007199254740992.0, pause = 0.25;
    for (int i = 0; i < s->attempt && pause < 30; i++)
        pause *= 2;
    pause = (pause < 30 ? pause : 30) * share;
    return kh_clamp((double)after, pause, 300); /* pause is 30 at most */
}

static void wait_to_retry(kh_http *h, slot *s, const char *why) {
    double pause = pause_of(h, s);
    s->attempt++;
    s->state = SLOT_WAITING;
    s->wake = kh_clock() + pause;
    kh_log(h->hooks, s->attempt > 2 ? KH_WARN : KH_DEBUG,
        "%s: %s; trying again in %.1f s (%d of %d)", h->url, why, pause, s->attempt, h->retries);
}

/* An answer has come. KH_RETRY: the answer came and is well-formed, but says nothing (an empty
 * choice, say). Such are tried again a few times and then given up one by one, if the caller can do
 * without. */
static int hand_over(kh_http *h, slot *s, const kh_http_jobs *jobs, int *done, kh_err *err) {
    kh_buf_bytes(&s->answer, "", 0); /* an empty answer is an empty string */
    if (kh_buf_failed(&s->answer))
        return kh_fail_memory(err);
    kh_err wrong = { 0 };
    int rc = jobs->take(jobs->user, s->index, s->answer.data, s->answer.len, &wrong);
    if (rc == KH_RETRY && s->attempt < h->retries && s->attempt < MISSING_TRIES) {
        wait_to_retry(h, s, wrong.msg);
        return make(h, s, jobs, err);
    }
    ++*done;
    if (rc == KH_RETRY && jobs->give_up)
        return jobs->give_up(jobs->user, s->index, s->attempt + 1, &wrong, err);
    if (rc != 0 && err)
        *err = wrong;
    if (rc == KH_RETRY)
        rc = kh_fail(err, KH_EIO, "%s, in %d tries", wrong.msg, s->attempt + 1);
    return rc;
}

/* Decides between an answer, another try, and the end; the sentence of the end says how many tries
 * there were. */
static int finish(
    kh_http *h, slot *s, CURLcode result, const kh_http_jobs *jobs, int *done, kh_err *err) {
    long status = 0;
    char why[CURL_ERROR_SIZE + 64];
    curl_multi_remove_handle(h->multi, s->easy);
    s->state = SLOT_FREE;
    if (s->too_large)
        return kh_fail(err, KH_ELIMIT,
            "%s: answered with more than %zu bytes, which no answer to this question has", h->url,
            h->max_answer);
    if (kh_buf_failed(&s->answer))
        return kh_fail_memory(err);
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    h->reached |= status > 0;
    if (result == CURLE_OK && status >= 200 && status < 300)
        return hand_over(h, s, jobs, done, err);
    if (result == CURLE_OUT_OF_MEMORY)
        return kh_fail_memory(err);
    if (result == CURLE_OK)
        snprintf(why, sizeof why, "answered HTTP %ld", status);
    else
        snprintf(why, sizeof why, "%s", s->error[0] ? s->error : curl_easy_strerror(result));
    bool again = result == CURLE_OK ? passes(status) : is_lost(result);
    bool nobody = (result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST) &&
        !h->reached && h->o.retries < 0;
    if (nobody)
        return kh_fail(err, KH_EIO,
            "%s: %s; is the service running, and is this where it listens? --retries N waits for "
            "it",
            h->url, why);
    if (again && s->attempt < h->retries) {
        wait_to_retry(h, s, why);
        return 0;
    }
    if (result == CURLE_OK)
        return refuse(h, s, status, err);
    return kh_fail(err, KH_EIO, "%s: %s%s", h->url, why,
        again && s->attempt > 0 ? ", and the tries are used up" : "");
}

static int finish_all(kh_http *h, const kh_http_jobs *jobs, int *done, kh_err *err) {
    CURLMsg *m;
    int left, rc = 0;
    while (rc == 0 && (m = curl_multi_info_read(h->multi, &left)) != NULL)
        if (m->msg == CURLMSG_DONE) {
            slot *s;
            CURLcode result = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &s);
            rc = finish(h, s, result, jobs, done, err);
        }
    return rc;
}

/* New requests into free slots, and those whose pause is over; *sleep becomes the longest wait that
 * misses none. */
static int start_due(kh_http *h, const kh_http_jobs *jobs, int *next, int *sleep, kh_err *err) {
    int rc = 0;
    *sleep = 200; /* so often the caller is asked whether to go on */
    for (int i = 0; i < h->n_slot && rc == 0; i++) {
        slot *s = &h->slot[i];
        double left = s->state == SLOT_WAITING ? s->wake - kh_clock() : 0;
        if (s->state == SLOT_FREE && *next < jobs->n)
            rc = begin(h, s, jobs, (*next)++, err);
        else if (s->state == SLOT_WAITING && left <= 0)
            rc = start(h, s, err);
        else if (s->state == SLOT_WAITING && left * 1000 < *sleep)
            *sleep = (int)(left * 1000) + 1;
    }
    return rc;
}

/* One request has failed for good. Others are under way, and will be paid for: they are waited for,
 * as long as one may take, and their answers handed over; none is tried again. */
static void settle(kh_http *h, const kh_http_jobs *jobs, double seconds) {
    double end = kh_clock() + (seconds < h->o.timeout ? seconds : h->o.timeout);
    for (int running = 1; running > 0 && kh_clock() < end;) {
        CURLMsg *m;
        int left;
        if (curl_multi_perform(h->multi, &running) != CURLM_OK)
            return;
        while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
            slot *s;
            long status = 0;
            if (m->msg != CURLMSG_DONE)
                continue;
            CURLcode result = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &s);
            curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
            curl_multi_remove_handle(h->multi, s->easy);
            s->state = SLOT_FREE;
            kh_buf_bytes(&s->answer, "", 0);
            if (result == CURLE_OK && status >= 200 && status < 300 && !kh_buf_failed(&s->answer))
                jobs->take(jobs->user, s->index, s->answer.data, s->answer.len, NULL);
        }
        if (running > 0)
            curl_multi_poll(h->multi, NULL, 0, 100, NULL);
    }
}

int kh_http_run(kh_http *h, const kh_http_jobs *jobs, kh_err *err) {
    int next = 0, done = 0, sleep, running, rc = 0;
    h->max_answer = jobs->max_answer;
    while (done < jobs->n && rc == 0) {
        rc = start_due(h, jobs, &next, &sleep, err);
        if (rc == 0 && curl_multi_perform(h->multi, &running) != CURLM_OK)
            rc = kh_fail_memory(err);
        int before = done;
        if (rc == 0)
            rc = finish_all(h, jobs, &done, err);
        if (rc == 0 && done < jobs->n && kh_must_stop(h->hooks))
            rc = kh_fail(err, KH_STOPPED, "stopped on request");
        if (rc == 0 && done == before)
            curl_multi_poll(h->multi, NULL, 0, sleep, NULL);
    }
    if (rc != 0 && rc != KH_ENOMEM)
        settle(h, jobs, rc == KH_STOPPED ? 5 : 60); /* someone who wants to stop waits less */
    for (int i = 0; i < h->n_slot; i++) {
        if (h->slot[i].state == SLOT_RUNNING)
            curl_multi_remove_handle(h->multi, h->slot[i].easy);
        h->slot[i].state = SLOT_FREE;
    }
    return rc;
}

#else

static const char MISSING[] = "this keyhole was built without libcurl, so it cannot ask a service; "
                              "install libcurl4-openssl-dev and build it again";

kh_http_opts kh_http_defaults(void) { return (kh_http_opts){ .in_flight = 1 }; }
int kh_http_open(
    kh_http **out, const char *url, const kh_http_opts *o, const kh_hooks *hooks, kh_err *err) {
    (void)url, (void)o, (void)hooks;
    *out = NULL;
    return kh_fail(err, KH_EUNSUPPORTED, "%s", MISSING);
}
void kh_http_close(kh_http *h) { (void)h; }
const char *kh_http_url(const kh_http *h) {
    (void)h;
    return "";
}
int kh_http_in_flight(const kh_http *h) {
    (void)h;
    return 1;
}
const kh_hooks *kh_http_hooks(const kh_http *h) {
    (void)h;
    return NULL;
}
int kh_http_run(kh_http *h, const kh_http_jobs *jobs, kh_err *err) {
    (void)h, (void)jobs;
    return kh_fail(err, KH_EUNSUPPORTED, "%s", MISSING);
}

#endif

/* --------------------------------------------------------------------------------- one request */

typedef struct single {
    const char *path;
    const kh_buf *body;
    kh_buf *answer;
} single;

static int make_single(void *user, int i, const char **path, kh_buf *body, kh_err *err) {
    const single *s = user;
    (void)i, (void)err;
    *path = s->path;
    if (s->body)
        kh_buf_bytes(body, s->body->data, s->body->len);
    return 0;
}

static int take_single(void *user, int i, const char *body, size_t n, kh_err *err) {
    single *s = user;
    (void)i;
    kh_buf_bytes(s->answer, body, n);
    return kh_buf_failed(s->answer) ? kh_fail_memory(err) : 0;
}

int kh_http_ask(kh_http *h, const char *path, const kh_buf *body, size_t max_answer, kh_buf *answer,
    kh_err *err) {
    *answer = kh_buf_init(KH_BUF_MAX);
    single s = { path, body, answer };
    return kh_http_run(
        h, &(kh_http_jobs){ 1, make_single, take_single, &s, max_answer, NULL }, err);
}
