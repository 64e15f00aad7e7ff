/* wordcount.c - see wordcount.h.
 *
 * The corpus is cut into chunks of whole lines, of a size that does not depend on the number of
 * threads. Each round reads as many chunks as there are threads, counts each chunk into a table of
 * its own, whose keys point into the chunk, and adds the tables to the result in the order of the
 * chunks. So words stand in the order of their first appearance, whoever counted them. */
#include "text/wordcount.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/forms.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 4 << 20, LINE_BYTES = 64 << 20 };

/* ------------------------------------------------------------------------------- reading lines */

typedef struct reader {
    const char *name;
    int fd; /* -1: closed */
    bool at_start, ended;
    uint64_t left; /* bytes until the limit */
    kh_buf rest;   /* read, but beyond the last whole line of the chunk before */
} reader;

static int refuse_compressed(const reader *r, const kh_buf *start, kh_err *err) {
    static const struct {
        const char *magic, *tool;
        size_t n;
    } kinds[] = { { "\x1F\x8B\x08", "gzip", 3 }, { "\xFD\x37zXZ", "xz", 5 },
        { "\x28\xB5\x2F\xFD", "zstd", 4 }, { "BZh9", "bzip2", 4 } };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (start->len >= kinds[k].n && memcmp(start->data, kinds[k].magic, kinds[k].n) == 0)
            return kh_fail(err, KH_EUNSUPPORTED,
                "%s: is compressed, expected plain text; try \"%s -dc FILE | keyhole tokenizer "
                "train --corpus -\"",
                r->name, kinds[k].tool);
    return 0;
}

static int reader_open(reader *r, const char *path, kh_err *err) {
    bool standard = strcmp(path, "-") == 0;
    r->name = standard ? "standard input" : path;
    r->at_start = true;
    r->ended = false;
    r->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    return r->fd < 0 ? kh_fail_errno(err, path, "cannot open") : 0;
}

static void reader_close(reader *r) {
    if (r->fd > STDIN_FILENO)
        close(r->fd);
    r->fd = -1;
}

/* Fills chunk up to `want` bytes; fewer only at the end of the file. */
static int fill(reader *r, kh_buf *chunk, size_t want, kh_err *err) {
    while (!r->ended && chunk->len < want) {
        if (!kh_buf_reserve(chunk, want - chunk->len))
            return kh_fail_memory(err);
        ssize_t n = read(r->fd, chunk->data + chunk->len, want - chunk->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kh_fail_errno(err, r->name, "cannot read");
        r->ended = n == 0;
        chunk->len += (size_t)n;
    }
    if (!r->at_start)
        return 0;
    r->at_start = false;
    return refuse_compressed(r, chunk, err);
}

/* Where the chunk's last whole line ends: the line that reaches the limit, or else the last one. 0:
 * no line is whole. */
static size_t whole_lines(const reader *r, const kh_buf *chunk) {
    const char *end = NULL;
    if (chunk->len >= r->left)
        end = memchr(chunk->data + r->left - 1, '\n', chunk->len - (size_t)r->left + 1);
    else if (chunk->len > 0)
        for (end = chunk->data + chunk->len - 1; end && *end != '\n';)
            end = end > chunk->data ? end - 1 : NULL;
    return end ? (size_t)(end - chunk->data) + 1 : 0;
}

/* Puts the next lines, about CHUNK_BYTES of them, into chunk; none at the end of the file or of the
 * limit. */
static int reader_next(reader *r, kh_buf *chunk, kh_err *err) {
    kh_buf_reset(chunk);
    if (r->left == 0)
        return 0;
    kh_buf_bytes(chunk, r->rest.len ? r->rest.data : "", r->rest.len);
    kh_buf_reset(&r->rest);
    if (kh_buf_failed(chunk))
        return kh_fail_memory(err);
    size_t cut, want = CHUNK_BYTES;
    for (;; want *= 2) {
        int rc = fill(r, chunk, want, err);
        if (rc != 0)
            return rc;
        cut = whole_lines(r, chunk);
        if (cut > 0 || r->ended)
            break;
        if (want >= LINE_BYTES)
            return kh_fail(err, KH_ELIMIT,
                "%s: a line of more than 64 MB; a corpus holds one text per line", r->name);
    }
    if (r->ended && (cut == 0 || chunk->len < r->left))
        cut = chunk->len; /* the last line needs no newline */
    kh_buf_bytes(&r->rest, chunk->data + cut, chunk->len - cut);
    if (kh_buf_failed(&r->rest))
        return kh_fail_memory(err);
    chunk->len = cut;
    r->left -= cut < r->left ? cut : r->left;
    return 0;
}

/* ------------------------------------------------------------------------------------ counting */

typedef struct chunk {
    kh_buf text, spare; /* whole lines; room to rewrite them */
    kh_counts words;    /* texts point into `text` */
    size_t raw_bytes;   /* as read */
    bool failed;        /* out of memory */
} chunk;

static void put_char(uint32_t ch, bool lowercase, kh_buf *out) {
    char utf8[4];
    if (lowercase && ch < 0x80)
        kh_buf_char(out, (char)(ch >= 'A' && ch <= 'Z' ? ch + 32 : ch));
    else if (lowercase)
        kh_lower_char(ch, out);
    else
        kh_buf_bytes(out, utf8, (size_t)kh_utf8_put(ch, utf8));
}

/* Mends broken UTF-8, puts the prefix spaces in, makes small letters of capital ones. No broken
 * sequence holds a newline, and no character's small form does, so lines stay lines. */
static void rewrite(chunk *c, const kh_counts_opts *o) {
    kh_buf_reset(&c->spare);
    bool line_start = true;
    int len;
    for (size_t i = 0; i < c->text.len; i += (size_t)len) {
        uint32_t ch = kh_utf8_next(c->text.data + i, c->text.len - i, &len, NULL);
        if (line_start && o->prefix_space && ch != ' ')
            kh_buf_char(&c->spare, ' ');
        put_char(ch, o->lowercase, &c->spare);
        line_start = ch == '\n';
    }
    kh_buf old = c->text;
    c->text = c->spare;
    c->spare = old;
}

/* Adds `count` occurrences of a word; a new word's text is kept in `texts`, or borrowed if texts is
 * NULL. */
static bool add_word(kh_counts *w, const char *text, size_t len, uint64_t count, kh_arena *texts) {
    int32_t at;
    w->total += count;
    if (kh_map_get(&w->index, text, len, &at)) {
        w->word[at].count += count;
        return true;
    }
    if (w->n == INT32_MAX || !kh_grow(&w->word, &w->cap, (size_t)w->n + 1, sizeof *w->word))
        return false;
    if (texts && (text = kh_arena_strndup(texts, text, len)) == NULL)
        return false;
    if (kh_map_add(&w->index, text, len, w->n, NULL) < 0)
        return false;
    w->word[w->n++] = (kh_counted){ text, (uint32_t)len, count };
    return true;
}

static void empty_words(kh_counts *w) {
    if (w->n > 0)
        memset(w->index.slots, 0, w->index.cap * sizeof *w->index.slots);
    w->index.n = 0;
    w->n = 0;
    w->lines = w->total = 0;
}

static void count_chunk(chunk *c, const kh_counts_opts *o) {
    empty_words(&c->words);
    c->raw_bytes = c->text.len;
    c->failed = false;
    if (o->prefix_space || o->lowercase || !kh_utf8_valid(c->text.data, c->text.len))
        rewrite(c, o);
    c->failed = kh_buf_failed(&c->text);
    const char *s = c->text.data;
    for (size_t at = 0, line_end; at < c->text.len && !c->failed; at = line_end) {
        const char *newline = memchr(s + at, '\n', c->text.len - at);
        line_end = newline ? (size_t)(newline - s) + 1 : c->text.len;
        for (size_t end; at < line_end && !c->failed; at = end) {
            end = kh_gpt2_split(s, line_end, at);
            c->failed = !add_word(&c->words, s + at, end - at, 1, NULL);
        }
        c->words.lines++;
    }
}

static int collect(kh_counts *all, const chunk *c, kh_err *err) {
    if (c->failed)
        return kh_fail_memory(err);
    for (int k = 0; k < c->words.n; k++) {
        const kh_counted *w = &c->words.word[k];
        if (!add_word(all, w->text, w->len, w->count, &all->texts))
            return kh_fail_memory(err);
    }
    all->bytes += c->raw_bytes;
    all->lines += c->words.lines;
    return 0;
}

/* ----------------------------------------------------------------------------------- the whole */

/* The bytes that will be read, for the progress bar; 0 if a file does not tell. */
static long expected_bytes(const kh_counts_opts *o) {
    uint64_t sum = 0;
    for (int k = 0; k < o->n_path; k++) {
        struct stat st;
        bool known =
            strcmp(o->path[k], "-") != 0 && stat(o->path[k], &st) == 0 && S_ISREG(st.st_mode);
        if (!known)
            return 0;
        sum += (uint64_t)st.st_size;
    }
    return (long)(o->limit_bytes > 0 && o->limit_bytes < sum ? o->limit_bytes : sum);
}

/* Reads up to n_chunk chunks, across the borders of files; *n gets how many hold text. */
static int read_round(reader *r, const kh_counts_opts *o, int *next_path, chunk *chunks,
    int n_chunk, int *n, kh_err *err) {
    *n = 0;
    while (*n < n_chunk && r->left > 0) {
        int rc = 0;
        if (r->fd < 0 && *next_path == o->n_path)
            break;
        if (r->fd < 0)
            rc = reader_open(r, o->path[(*next_path)++], err);
        if (rc == 0)
            rc = reader_next(r, &chunks[*n].text, err);
        if (rc != 0)
            return rc;
        if (chunks[*n].text.len > 0)
            ++*n;
        else
            reader_close(r);
    }
    return 0;
}

int kh_counts_read(kh_counts *words, const kh_counts_opts *o, const kh_hooks *hooks, kh_err *err) {
    int n_chunk = kh_threads(), next_path = 0, n, rc = 0;
    long expected = expected_bytes(o);
    reader r = { .fd = -1,
        .left = o->limit_bytes ? o->limit_bytes : UINT64_MAX,
        .rest = kh_buf_init(KH_BUF_MAX) };
    chunk *chunks = kh_calloc((size_t)n_chunk, sizeof *chunks);
    if (!chunks)
        return kh_fail_memory(err);
    for (int k = 0; k < n_chunk; k++)
        chunks[k].text = chunks[k].spare = kh_buf_init(KH_BUF_MAX);
    while (
        rc == 0 && (rc = read_round(&r, o, &next_path, chunks, n_chunk, &n, err)) == 0 && n > 0) {
#pragma omp parallel for num_threads(n_chunk) schedule(static, 1)
        for (int k = 0; k < n; k++)
            count_chunk(&chunks[k], o);
        for (int k = 0; k < n && rc == 0; k++)
            rc = collect(words, &chunks[k], err);
        if (rc == 0)
            rc = kh_report_progress(hooks, "count words", (long)words->bytes, expected, NULL);
    }
    reader_close(&r);
    kh_buf_free(&r.rest);
    for (int k = 0; k < n_chunk; k++) {
        kh_buf_free(&chunks[k].text);
        kh_buf_free(&chunks[k].spare);
        kh_counts_free(&chunks[k].words);
    }
    kh_free(chunks);
    return rc;
}

void kh_counts_free(kh_counts *w) {
    kh_free(w->word);
    kh_map_free(&w->index);
    kh_arena_free(&w->texts);
    *w = (kh_counts){ 0 };
}
