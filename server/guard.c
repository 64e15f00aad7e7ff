/* guard.c - what a client may do: where its requests may come from, how much memory and how many
 * queries they may take, and which words it may ask about.
 *
 * Origins. A page of some other site, open in a browser on this machine, can send requests here: to
 * a name of its own that it lets point to 127.0.0.1 (DNS rebinding; the Host header then holds that
 * name), or across sites (the Origin header then names the site). Both are refused. An address in
 * numbers cannot be rebound, so any is a good Host.
 *
 * Framing. A proxy in front of this server must not see a request end elsewhere than we do, or the
 * rest of one client's body becomes another's request (RFC 9112, 6.3 and 11.2). libmicrohttpd is
 * lenient here; what is ambiguous is refused, and the connection ends with it.
 *
 * Memory. Everything that a request makes the server hold is charged to it before it is made: the
 * body, the tree that JSON becomes (base/json.h tells its size beforehand), the arrays, the answer;
 * and the charge stands until the answer is fetched. What does not fit now gets 503.
 *
 * Words. At access level labels a client that may choose the words of a label can measure
 * probabilities: words of one label are summed, so each more is a known weight on the scale, and
 * bisection does the rest. So the words are those of the server's task, or else those of the first
 * question, as long as the server runs. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "base/secrets.h"

#include <stdlib.h>
#include <string.h>

#ifdef KH_WITH_MHD

#include <arpa/inet.h>
#include <microhttpd.h>
#include <strings.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- origins */

/* The host in "HOST", "HOST:PORT", "[ADDRESS]" or "[ADDRESS]:PORT", in *n bytes. */
static const char *bare_host(const char *host, size_t *n) {
    if (*host == '[') {
        *n = strcspn(++host, "]");
        return host;
    }
    *n = strcspn(host, ":/");
    return host;
}

static bool is_address(const char *host, size_t n) {
    char text[64];
    unsigned char room[16];
    if (n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    return inet_pton(AF_INET, text, room) == 1 || inet_pton(AF_INET6, text, room) == 1;
}

static bool is_name(const char *host, size_t n, const char *name) {
    return strlen(name) == n && strncasecmp(host, name, n) == 0;
}

static bool is_listed(const kh_strings *list, const char *text, size_t n) {
    for (int i = 0; i < list->n; i++)
        if (is_name(text, n, list->item[i]))
            return true;
    return false;
}

static bool good_host(const kh_server *s, const char *header) {
    size_t n;
    char own[256] = { 0 };
    const char *host = bare_host(header, &n);
    return is_address(host, n) || is_name(host, n, "localhost") || is_name(host, n, s->o.host) ||
        (gethostname(own, sizeof own - 1) == 0 && own[0] && is_name(host, n, own)) ||
        is_listed(&s->o.allow_host, host, n);
}

/* A browser names the site that a request comes from: ours, one on the list, or none of our
 * business. */
static bool good_origin(const kh_server *s, const char *origin, const char *host) {
    const char *scheme = strstr(origin, "://");
    if (is_listed(&s->o.allow_origin, origin, strlen(origin)))
        return true;
    return scheme && host && strcasecmp(scheme + 3, host) == 0;
}

static bool is_json(const char *type) {
    static const char JSON[] = "application/json";
    size_t n = sizeof JSON - 1;
    return strncasecmp(type, JSON, n) == 0 && strchr("; \t", type[n]) != NULL;
}

/* What the head says of itself. */
typedef struct frame {
    int hosts, lengths, codings;
    const char *wrong; /* NULL: nothing yet */
} frame;

/* The characters of a token, RFC 9110, 5.6.2. */
static bool is_head_name(const char *name, size_t n) {
    static const char TOKEN[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return n > 0 && strspn(name, TOKEN) == n;
}

/* RFC 9110, 5.5: CR makes a value dangerous, since others may see a line end there; no other
 * control character but the tab belongs into one either. */
static bool is_head_value(const char *value, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return false;
    }
    return true;
}

static enum MHD_Result look_at(void *user, enum MHD_ValueKind kind, const char *name, size_t n_name,
    const char *value, size_t n_value) {
    frame *f = user;
    const char *text = value ? value : "";
    (void)kind;
    if (!is_head_name(name, n_name))
        f->wrong = "the name of a header is none";
    if (value && !is_head_value(value, n_value))
        f->wrong = "a header holds a control character";
    f->hosts += strcasecmp(name, "Host") == 0;
    if (strcasecmp(name, "Content-Length") == 0) {
        f->lengths++;
        if (!text[0] || text[strspn(text, "0123456789")] || strlen(text) > 18)
            f->wrong = "Content-Length must be one whole number";
    }
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        f->codings++;
        if (strcasecmp(text, "chunked") != 0)
            f->wrong = "Transfer-Encoding must be chunked and nothing else";
    }
    return MHD_YES;
}

/* NULL, or why nobody can be sure where the request ends or whom it is for. */
static const char *ambiguity(struct MHD_Connection *from, const char *version) {
    frame f = { 0 };
    bool old = strcmp(version, "HTTP/1.1") != 0;
    MHD_get_connection_values_n(from, MHD_HEADER_KIND, look_at, &f);
    if (f.wrong)
        return f.wrong;
    if (f.lengths + f.codings > 1)
        return "the length of the body is said more than once";
    if (f.codings > 0 && old)
        return "Transfer-Encoding is of HTTP/1.1";
    if (f.hosts > 1 || (f.hosts == 0 && !old))
        return "there must be one Host";
    return NULL;
}

bool kh_guard_head(const kh_server *s, kh_call *c, const char *method, const char *version) {
    struct MHD_Connection *from = c->connection;
    const char *wrong = ambiguity(from, version);
    const char *host = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Host"),
               *origin = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Origin"),
               *type = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Content-Type");
    if (wrong)
        kh_reply_fail(c, 400, "%s", wrong);
    else if (host && !good_host(s, host))
        kh_reply_fail(c, 421,
            "requests to the name \"%.60s\" are not answered here; --allow-host says that they are",
            host);
    else if (origin && !good_origin(s, origin, host))
        kh_reply_fail(c, 403,
            "requests from pages of \"%.60s\" are not answered; --allow-origin says that they are",
            origin);
    else if (strcmp(method, "POST") == 0 && (!type || !is_json(type)))
        kh_reply_fail(c, 415, "a body must be JSON, and say so: Content-Type: application/json");
    return c->reply.status == 0;
}

/* ---------------------------------------------------------------------------- keys and budgets */

/* Takes as long for a wrong token as for the right one. */
static bool is_token(const char *want, const char *given) {
    size_t n = strlen(want), m = strlen(given);
    volatile unsigned char differ = n != m;
    for (size_t i = 0; i < m; i++)
        differ = (unsigned char)(differ |
            ((unsigned char)given[i] ^ (unsigned char)want[n > 0 ? i % n : 0]));
    return !differ;
}

bool kh_guard_token(kh_server *s, kh_call *c) {
    const char *given =
        MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "Authorization");
    bool bearer = given && strncasecmp(given, "Bearer ", 7) == 0;
    c->key = s->key[0].token ? NULL : &s->key[0];
    for (int i = 0; i < s->n_key && bearer; i++)
        if (s->key[i].token && is_token(s->key[i].token, given + 7))
            c->key = &s->key[i];
    return c->key != NULL;
}

#endif

bool kh_guard_spend(kh_server *s, kh_call *c) {
    long long most = s->o.budget;
    if (!c->key || c->queries <= 0)
        return true;
    long long before = atomic_fetch_add(&c->key->spent, c->queries);
    if (most == 0 || before + c->queries <= most)
        return true;
    atomic_fetch_sub(&c->key->spent, c->queries);
    kh_reply_fail(c, 403,
        "%lld queries, but of the %lld that this key may ask (--query-budget) %lld are left",
        c->queries, most, before < most ? most - before : 0);
    return false;
}

int kh_guard_init(kh_server *s, kh_err *err) {
    kh_buf file = kh_buf_init(0);
    const char *text = getenv("KEYHOLE_SERVE_TOKEN");
    int rc = s->o.token_file ? kh_file_read(s->o.token_file, 1 << 16, &file, err) : 0;
    size_t cap = 0;
    if (s->o.token_file)
        text = file.len > 0 ? file.data : "";
    while (rc == 0 && text) { /* one key a line */
        text += strspn(text, " \t\r\n");
        size_t n = strcspn(text, " \t\r\n"), rest = strspn(text + n, " \t\r");
        if ((n == 0 && s->n_key == 0) || (text[n + rest] && text[n + rest] != '\n'))
            rc = kh_fail(err, KH_EFORMAT, "%s: must hold one token a line, without spaces in it",
                s->o.token_file ? s->o.token_file : "the environment's KEYHOLE_SERVE_TOKEN");
        if (rc != 0 || n == 0)
            break;
        if (!kh_grow(&s->key, &cap, (size_t)s->n_key + 1, sizeof *s->key))
            rc = kh_fail_memory(err);
        else {
            kh_key *k = &s->key[s->n_key++];
            atomic_init(&k->spent, 0);
            k->token = kh_strndup(text, n);
            rc = k->token ? 0 : kh_fail_memory(err);
            if (rc == 0)
                kh_secret_add(k->token);
        }
        text += n;
    }
    if (rc == 0 && !s->key) { /* everybody is one client */
        s->key = kh_calloc(1, sizeof *s->key);
        rc = s->key ? 0 : kh_fail_memory(err);
    }
    kh_buf_free(&file);
    pthread_mutex_init(&s->words_lock, NULL);
    s->words[0] = s->words[1] = s->allowed = kh_buf_init(1 << 24);
    s->guarded = true;
    return rc;
}

void kh_guard_free(kh_server *s) {
    for (int i = 0; i < s->n_key; i++)
        kh_free(s->key[i].token);
    kh_free(s->key);
    kh_buf_free(&s->words[0]);
    kh_buf_free(&s->words[1]);
    kh_buf_free(&s->allowed);
    if (s->guarded)
        pthread_mutex_destroy(&s->words_lock);
}

/* -------------------------------------------------------------------------------------- memory */

bool kh_guard_charge(kh_server *s, kh_call *c, size_t n) {
    size_t most = (size_t)s->o.memory_mb << 20;
    n = n < most ? n : most + 1; /* sums cannot wrap */
    size_t before = atomic_fetch_add(&s->bytes, n);
    if (before + n <= most && before + n >= n) {
        c->charged += n;
        return true;
    }
    atomic_fetch_sub(&s->bytes, n);
    if (c->charged + n > most)
        kh_reply_fail(c, 413, "this request would take %zu MB of the %d MB that all may have",
            (c->charged + n) >> 20, s->o.memory_mb);
    else
        kh_reply_fail(
            c, 503, "requests under way take all of the %d MB that they may have", s->o.memory_mb);
    return false;
}

void kh_guard_release(kh_server *s, kh_call *c, size_t n) {
    n = n < c->charged ? n : c->charged;
    atomic_fetch_sub(&s->bytes, n);
    c->charged -= n;
}

size_t kh_longest_text(const json_t *v) {
    size_t longest = json_string_length(v), i;
    const json_t *one;
    json_array_foreach(v, i, one) {
        size_t n = json_string_length(one);
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* --------------------------------------------------------------------------------------- words */

static void put_int(kh_buf *b, int x) { kh_buf_bytes(b, &x, sizeof x); }

static void put_words(kh_buf *b, const kh_words *w) {
    for (int i = 0; i < w->n_word; i++) {
        put_int(b, w->word[i].label);
        put_int(b, w->word[i].n_id);
        kh_buf_bytes(b, w->word[i].id, (size_t)w->word[i].n_id * sizeof *w->word[i].id);
    }
}

static bool is_same(const kh_buf *a, const kh_buf *b) {
    return a->len == b->len && a->len > 0 && memcmp(a->data, b->data, a->len) == 0;
}

/* Whether `asked` is one of the n that may be asked about; the first question decides. */
static int check_fixed(kh_server *s, kh_buf *fixed, int n, kh_buf *asked, kh_err *err) {
    int rc = kh_buf_failed(asked) ? kh_fail_memory(err) : 0;
    bool known = false;
    pthread_mutex_lock(&s->words_lock);
    if (rc == 0 && fixed[0].len == 0) {
        kh_buf_bytes(&fixed[0], asked->data, asked->len);
        known = !kh_buf_failed(&fixed[0]);
    }
    for (int i = 0; i < n; i++)
        known |= is_same(&fixed[i], asked);
    pthread_mutex_unlock(&s->words_lock);
    kh_buf_free(asked);
    if (rc == 0 && !known)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "at --access labels the words are those of the server's task, or of the first "
            "question: "
            "a client that chooses them can measure probabilities (--words any allows it)");
    return rc;
}

static bool is_fixed(const kh_server *s) {
    return !s->scorer && !s->what.any_words && s->n_tuned == 0;
}

int kh_guard_words(kh_server *s, const kh_words *w, kh_err *err) {
    kh_map seen = { 0 };
    int rc = 0;
    for (int i = 0; i < w->n_word && rc == 0; i++) {
        int added = kh_map_add(&seen, (const char *)w->word[i].id,
            (size_t)w->word[i].n_id * sizeof *w->word[i].id, i, NULL);
        if (added < 0)
            rc = kh_fail_memory(err);
        if (added == 0)
            rc = kh_fail(err, KH_EFORMAT, "request: a label word stands in \"labels\" twice");
    }
    kh_map_free(&seen);
    if (rc != 0 || !is_fixed(s))
        return rc;
    kh_buf asked = kh_buf_init(1 << 24);
    put_words(&asked, w);
    return check_fixed(s, s->words, 2, &asked, err);
}

int kh_guard_tokens(kh_server *s, const int32_t *id, int n, kh_err *err) {
    if (n == 0 || !is_fixed(s))
        return 0;
    kh_buf asked = kh_buf_init(1 << 24);
    kh_buf_bytes(&asked, id, (size_t)n * sizeof *id);
    return check_fixed(s, &s->allowed, 1, &asked, err);
}

int kh_guard_task(kh_server *s, const kh_task *task, kh_err *err) {
    int rc = 0;
    for (int exact = 0; exact < 2 && rc == 0; exact++) {
        kh_words *w = NULL;
        rc = kh_words_new(&w, task, kh_plm_tokenizer(s->what.plm), exact == 1, err);
        if (rc == 0)
            put_words(&s->words[exact], w);
        kh_words_free(w);
    }
    return rc == 0 && (kh_buf_failed(&s->words[0]) || kh_buf_failed(&s->words[1]))
        ? kh_fail_memory(err)
        : rc;
}
