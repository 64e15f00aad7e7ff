/* ranks.c - the processes of an MPI job: the plugin, the end of the job, and what rank 0 and the
 * others share; see ranks.h. */
#include "plm/ranks.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/portable.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const kh_mpi_head STOP = { .kind = KH_MPI_STOP };

/* --------------------------------------------------------------------------------- open, close */

/* Takes the port over, also on failure: the other ranks wait for its end. */
int kh_ranks_new(kh_ranks **out, kh_port *port, const kh_ranks_opts *opts, kh_err *err) {
    kh_ranks *r = kh_calloc(1, sizeof *r);
    double *speed = kh_calloc((size_t)port->size, sizeof *speed);
    int *queued = kh_calloc((size_t)port->size, sizeof *queued);
    *out = NULL;
    if (!r || !speed || !queued) {
        kh_free(r);
        kh_free(speed);
        kh_free(queued);
        port->close(port, port->size == 1);
        return kh_fail_memory(err);
    }
    *r = (kh_ranks){ .port = port, .speed = speed, .queued = queued };
    if (opts)
        r->opts = *opts;
    *out = r;
    return 0;
}

int kh_ranks_open(kh_ranks **out, const char *plugin, const kh_ranks_opts *opts, kh_err *err) {
    *out = NULL;
    /* Global, because an MPI loads parts of itself that look for its symbols. */
    void *library = dlopen(plugin, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return kh_fail(err, KH_EMISSING, "%s: MPI's part of keyhole cannot be loaded: %.400s",
            plugin, dlerror());
    void *symbol = dlsym(library, KH_PORT_SYMBOL);
    kh_port_open_fn *start = NULL;
    char why[256] = "it is not a part of keyhole";
    memcpy(&start, &symbol, sizeof start); /* what POSIX asks for and ISO C has no cast for */
    kh_port *port = start ? start(KH_PORT_VERSION, why, sizeof why) : NULL;
    if (!port) {
        dlclose(library);
        return kh_fail(err, KH_EUNSUPPORTED, "%s: %s", plugin, why);
    }
    int rc = kh_ranks_new(out, port, opts, err);
    if (rc == 0)
        (*out)->library = library;
    return rc;
}

int kh_ranks_rank(const kh_ranks *r) { return r->port->rank; }
int kh_ranks_size(const kh_ranks *r) { return r->port->size; }
bool kh_ranks_idle(const kh_ranks *r) { return r->port->size > 1 && !r->told; }

/* What the launcher bound this rank to, and no more than its share of the machine, however it was
 * bound. */
void kh_ranks_set_threads(kh_ranks *r, int n) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN), mine = kh_cores_allowed();
    long share = cores / r->port->local > 0 ? cores / r->port->local : 1;
    long most = mine < share ? mine : share;
    r->opts.threads = n;
    kh_threads_set(n > 0 ? n : (int)most);
}

/* Whether all ranks said their last word in time. A rank that does not answer in time is left to
 * the launcher: waiting for ever for the dead would be worse. */
static bool dismiss(kh_port *port, double seconds) {
    double end = kh_clock() + seconds;
    int left = port->size - 1, from;
    kh_mpi_wait wait = { 0 };
    for (int i = 1; i < port->size; i++)
        if (port->send(port, i, &STOP, sizeof STOP, NULL, 0) != 0)
            return false;
    while (left > 0 && kh_clock() < end) {
        const void *bytes;
        size_t n;
        int rc = port->poll(port, &from, &bytes, &n);
        if (rc < 0)
            return false;
        if (rc == 0)
            kh_mpi_pause(&wait);
        else if (n >= sizeof(kh_mpi_head) && ((const kh_mpi_head *)bytes)->kind == KH_MPI_BYE)
            left--;
    }
    return left == 0;
}

void kh_ranks_close(kh_ranks *r, double seconds) {
    if (!r)
        return;
    r->port->close(r->port, seconds >= 0 && (r->port->rank > 0 || dismiss(r->port, seconds)));
    /* The library stays: an MPI that was finalised leaves exit handlers behind. */
    kh_free(r->speed);
    kh_free(r->queued);
    kh_free(r);
}

/* -------------------------------------------------------------------------------- what both do */

/* The pause is short while an answer may come any moment, and costs an idle rank next to nothing.
 */
void kh_mpi_pause(kh_mpi_wait *w) {
    int turn = w->turns < 10000 ? ++w->turns : w->turns;
    struct timespec nap = { .tv_nsec = 1000000 };
    if (turn < 5000)
        nap.tv_nsec = turn < 100 ? 20000 : 100000;
    if (turn < 50)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* A binomial tree: rank r sends to r + 1, r + 2, r + 4 ... as long as these bits of r are 0, so
 * that all are reached in log2(size) steps. */
int kh_mpi_forward(
    kh_port *port, const void *head, size_t n_head, const void *body, size_t n_body) {
    int rank = port->rank, rc = 0;
    for (int bit = 1; bit < port->size && !(rank & bit) && rc == 0; bit <<= 1)
        if (rank + bit < port->size)
            rc = port->send(port, rank + bit, head, n_head, body, n_body);
    return rc;
}

/* ------------------------------------------------------------------------------------ contexts */

/* As sent: this, start [n_seq + 1], then as int32 n_mask, mask, slot, the ids, the words' n_mask,
 * and for each word five numbers and its ids. */
typedef struct context {
    int32_t n_row, n_variant, n_slot, max_len, inject, n_word, n_label, n_length, paper_exact, next;
    uint64_t n_token, n_word_id;
} context;

typedef struct word {
    int32_t label, n_token, n_id, same, first_same, unknown;
} word;

void kh_mpi_context_put(kh_buf *out, const kh_question *q) {
    const kh_batch *b = q->batch;
    const kh_words *w = q->words;
    size_t n_seq = (size_t)b->n_seq, first = b->start[0];
    context c = { b->n_row, b->n_variant, b->n_slot, b->max_len, (int32_t)q->inject, w->n_word,
        w->n_label, w->n_variant, w->paper_exact, w->next + 2 * w->mean, b->start[n_seq] - first,
        0 };
    for (int i = 0; i < w->n_word; i++)
        c.n_word_id += (uint64_t)w->word[i].n_token;
    kh_buf_bytes(out, &c, sizeof c);
    for (size_t s = 0; s <= n_seq; s++)
        kh_buf_bytes(out, &(uint64_t){ b->start[s] - first }, sizeof(uint64_t));
    kh_buf_bytes(out, b->n_mask, (size_t)b->n_variant * sizeof(int));
    kh_buf_bytes(out, b->mask, n_seq * sizeof(int));
    kh_buf_bytes(out, b->slot, n_seq * sizeof(int));
    kh_buf_bytes(out, b->id + first, c.n_token * sizeof(int32_t));
    kh_buf_bytes(out, w->n_mask, (size_t)w->n_variant * sizeof(int));
    for (int i = 0; i < w->n_word; i++) {
        const kh_word *x = &w->word[i];
        word head = { x->label, x->n_token, x->n_id, x->same, x->first_same, x->unknown };
        kh_buf_bytes(out, &head, sizeof head);
        kh_buf_bytes(out, x->id, (size_t)x->n_token * sizeof(int32_t));
    }
}

/* Ranks run the same program; a wrong length means two versions, and must not become an index. */
static int malformed(kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "a message from rank 0 has the wrong length");
}

int kh_mpi_context_get(const void *bytes, size_t n, kh_batch *batch, kh_words *words,
    kh_inject *inject, void **memory, kh_err *err) {
    _Static_assert(sizeof(int) == sizeof(int32_t) && sizeof(size_t) == sizeof(uint64_t),
        "arrays are used as they came");
    context c;
    *memory = NULL;
    if (n < sizeof c)
        return malformed(err);
    memcpy(&c, bytes, sizeof c);
    size_t n_seq = (size_t)c.n_row * (size_t)c.n_variant, n_word = (size_t)c.n_word;
    size_t ints = (size_t)c.n_variant + 2 * n_seq + c.n_token + (size_t)c.n_length + c.n_word_id;
    size_t whole =
        sizeof c + (n_seq + 1) * sizeof(uint64_t) + ints * sizeof(int32_t) + n_word * sizeof(word);
    if (n != whole)
        return malformed(err);
    size_t body = (whole + 7) / 8 * 8, zeros = (size_t)c.n_row * sizeof(int),
           all = body + n_word * sizeof(kh_word) + zeros;
    char *m = *memory = kh_calloc(all, 1);
    if (!m)
        return kh_fail_memory(err);
    memcpy(m, bytes, n);
    const size_t *start = (const size_t *)(void *)(m + sizeof c);
    const int *at = (const int *)(const void *)(start + n_seq + 1);
    kh_word *table = (kh_word *)(void *)(m + body);
    const int *none = (const int *)(void *)(m + body + n_word * sizeof *table);
    *batch = (kh_batch){ .n_row = c.n_row,
        .n_variant = c.n_variant,
        .n_seq = (int)n_seq,
        .n_slot = c.n_slot,
        .max_len = c.max_len,
        .start = start,
        .label = none,
        .row = none };
    batch->n_mask = at, at += c.n_variant;
    batch->mask = at, at += n_seq;
    batch->slot = at, at += n_seq;
    batch->id = at, at += c.n_token;
    *words = (kh_words){ .word = table,
        .n_word = c.n_word,
        .n_label = c.n_label,
        .n_mask = at,
        .n_variant = c.n_length,
        .paper_exact = c.paper_exact,
        .next = c.next & 1,
        .mean = c.next & 2 };
    at += c.n_length;
    *inject = (kh_inject)c.inject;
    for (size_t i = 0, ids = 0; i < n_word; i++) {
        word head;
        memcpy(&head, at, sizeof head);
        at += sizeof head / sizeof *at;
        if (head.n_token < 0 || (ids += (size_t)head.n_token) > c.n_word_id)
            return malformed(err);
        table[i] = (kh_word){ .text = "",
            .label = head.label,
            .id = at,
            .n_token = head.n_token,
            .n_id = head.n_id,
            .same = head.same,
            .first_same = head.first_same,
            .unknown = head.unknown != 0 };
        at += head.n_token;
    }
    return 0;
}
