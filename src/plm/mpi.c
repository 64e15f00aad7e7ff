/* mpi.c - rank 0's side of a box that is spread over ranks.
 *
 * A question is a grid of units: one prompt with a block of rows. Rows are cut into as few blocks
 * as give every rank several units; prompts of one block stand side by side, so a piece is a range
 * of units within a block. Pieces are handed out when a rank has room for them: two at a time, so
 * that none waits while rank 0 is busy, and each half of what would be the rank's share of the rest
 * by its measured speed, so that they shrink towards the end. When nothing is left to hand out, an
 * idle rank takes over pieces that wait behind others. Rank 0 answers too, in pieces so short that
 * nobody waits for it; with many ranks it only hands out.
 *
 * An answer is a pure function of prompt and row (engine.h), and is put where it belongs by its
 * index. So neither the number of ranks nor who answers what, nor when, nor twice, changes a bit.
 */
#include "plm/ranks.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hooks.h"
#include "model/question.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    AHEAD = 2,        /* pieces that a rank has at a time */
    UNITS = 4,        /* units for each rank, at least, if rows allow it */
    WORKING_MAX = 32, /* with more ranks than this, rank 0 only hands out */
};
static const double OWN_SECONDS =
    0.02; /* the longest piece that rank 0 itself takes: how long others may wait for it */
/* How long a rank may keep silent when all wait for it, and when the launcher has begun to end the
 * job: mpirun gives a second. */
static const double PATIENCE = 60, PATIENCE_ALARMED = 0.5;

typedef struct spread {
    kh_ranks *ranks;
    const kh_backend *native;
    void *box;
    int hidden;
} spread;

typedef struct piece {
    int rank, first, n; /* units [first, first + n) */
    bool done, moved;   /* moved: another rank does it too */
} piece;

typedef struct job {
    spread *s;
    kh_ranks *r;
    const kh_question *q;
    float *logits;
    uint64_t context;
    size_t prompt; /* floats of a prompt */
    int n_prompt, n_block, n_unit;
    int next, left; /* units: the first that was not handed out; how many are not answered */
    bool *done;     /* [n_unit] */
    piece *piece;
    int n_piece, open; /* all before `open` are done */
    size_t cap;
    int *seen, turn; /* [size] the last search that met a piece of this rank */
} job;

static int lost(int rank, kh_err *err) {
    return kh_fail(err, KH_EIO,
        "lost contact with rank %d; every answer so far is kept: the same command with --resume "
        "goes on",
        rank);
}

/* ------------------------------------------------------------------------------------ the grid */

static int block_start(const job *j, int block) {
    return (int)((long long)j->q->batch->n_row * block / j->n_block);
}

/* What a unit of this piece costs. */
static double tokens_of(const job *j, const piece *p) {
    const kh_batch *b = j->q->batch;
    int block = p->first / j->n_prompt, r0 = block_start(j, block), r1 = block_start(j, block + 1);
    return (double)(b->start[r1 * b->n_variant] - b->start[r0 * b->n_variant]);
}

/* The question of a piece; rows are kept in *rows. */
static kh_question part_of(const job *j, const piece *p, kh_batch *rows, int *r0) {
    int block = p->first / j->n_prompt;
    *r0 = block_start(j, block);
    *rows = kh_batch_part(j->q->batch, *r0, block_start(j, block + 1) - *r0);
    kh_question q = *j->q;
    q.batch = rows;
    q.n_prompt = p->n;
    q.prompt = j->prompt > 0 ? q.prompt + (size_t)(p->first % j->n_prompt) * j->prompt : NULL;
    return q;
}

/* Puts the answers of a piece where they belong. */
static void place(job *j, piece *p, const float *logits) {
    kh_batch rows;
    int r0;
    part_of(j, p, &rows, &r0);
    size_t n_label = (size_t)j->q->words->n_label, width = (size_t)rows.n_row * n_label;
    for (int i = 0; i < p->n; i++) {
        size_t prompt = (size_t)(p->first % j->n_prompt) + (size_t)i;
        memcpy(j->logits + (prompt * (size_t)j->q->batch->n_row + (size_t)r0) * n_label,
            logits + (size_t)i * width, width * sizeof *logits);
        j->left -= !j->done[p->first + i];
        j->done[p->first + i] = true;
    }
    p->done = true;
}

/* An exponential mean: ranks slow down when others use their machine, and speed up again. */
static void learn(kh_ranks *r, int rank, double tokens, double seconds) {
    double speed = seconds > 1e-9 ? tokens / seconds : 0;
    r->speed[rank] = r->speed[rank] > 0 && speed > 0 ? 0.7 * r->speed[rank] + 0.3 * speed : speed;
}

/* --------------------------------------------------------------------------------- handing out */

/* This rank's part of the speed of all; one that is not known is taken to be of the middling kind.
 */
static double share_of(const kh_ranks *r, int rank) {
    double sum = 0, known = 0;
    int size = r->port->size;
    for (int i = 0; i < size; i++) {
        sum += r->speed[i];
        known += r->speed[i] > 0;
    }
    double mean = known > 0 ? sum / known : 1, mine = r->speed[rank] > 0 ? r->speed[rank] : mean;
    return mine / (sum + (size - known) * mean);
}

static piece *add_piece(job *j, piece p) {
    if (!kh_grow(&j->piece, &j->cap, (size_t)j->n_piece + 1, sizeof *j->piece))
        return NULL;
    j->piece[j->n_piece] = p;
    return &j->piece[j->n_piece++];
}

/* The next piece for a rank; there is something left. */
static piece *cut(job *j, int rank) {
    piece p = { .rank = rank, .first = j->next };
    int end = (j->next / j->n_prompt + 1) * j->n_prompt;
    double n = (j->n_unit - j->next) * share_of(j->r, rank) / 2;
    if (rank == 0) {
        double most = OWN_SECONDS * j->r->speed[0] / tokens_of(j, &p);
        n = n < most ? n : most;
    }
    p.n = n < end - j->next ? (int)n : end - j->next;
    p.n = n < 1 ? 1 : p.n;
    j->next += p.n;
    return add_piece(j, p);
}

/* The last piece that waits behind another one of its rank; -1: there is none. */
static int waiting_piece(job *j, int rank) {
    int found = -1;
    while (j->open < j->n_piece && j->piece[j->open].done)
        j->open++;
    j->turn++;
    for (int i = j->open; i < j->n_piece; i++) {
        const piece *p = &j->piece[i];
        if (p->done || p->moved || p->rank == 0 || p->rank == rank)
            continue;
        if (j->seen[p->rank] == j->turn)
            found = i;
        j->seen[p->rank] = j->turn;
    }
    return found;
}

/* Such a piece for a rank that has nothing to do: 1, with it as the last of the pieces; 0: there is
 * none. The rank that had the piece is told to drop it; if it has begun already, both answer, and
 * the second answer changes nothing. */
static int take_over(job *j, int rank, kh_err *err) {
    int i = waiting_piece(j, rank);
    if (i < 0)
        return 0;
    piece *old = &j->piece[i], mine = { .rank = rank, .first = old->first, .n = old->n };
    kh_mpi_head drop = { .kind = KH_MPI_DROP, .piece = i, .question = j->r->question };
    old->moved = true;
    if (j->r->port->send(j->r->port, old->rank, &drop, sizeof drop, NULL, 0) != 0)
        return lost(old->rank, err);
    return add_piece(j, mine) ? 1 : kh_fail_memory(err);
}

/* Only prompts travel with a piece: rows and words were sent once (share_context). */
static int give(job *j, const piece *p, kh_err *err) {
    kh_batch rows;
    int r0;
    kh_question q = part_of(j, p, &rows, &r0);
    kh_mpi_head head = { .kind = KH_MPI_PIECE,
        .piece = (int32_t)(p - j->piece),
        .question = j->r->question,
        .context = j->context,
        .n_prompt = p->n,
        .r0 = r0,
        .r1 = r0 + rows.n_row };
    j->r->queued[p->rank]++;
    size_t bytes = (size_t)p->n * j->prompt * sizeof *q.prompt;
    return j->r->port->send(j->r->port, p->rank, &head, sizeof head, q.prompt, bytes) == 0
        ? 0
        : lost(p->rank, err);
}

/* Every rank gets a first piece before one gets a second. */
static int hand_out(job *j, kh_err *err) {
    int rc = 0;
    for (int depth = 1; depth <= AHEAD; depth++)
        for (int i = 1; i < j->r->port->size && rc == 0 && j->next < j->n_unit; i++)
            if (j->r->queued[i] < depth) {
                piece *p = cut(j, i);
                rc = p ? give(j, p, err) : kh_fail_memory(err);
            }
    for (int i = 1; i < j->r->port->size && rc == 0 && j->next == j->n_unit; i++)
        if (j->r->queued[i] == 0) {
            rc = take_over(j, i, err);
            if (rc == 0)
                break;
            rc = rc < 0 ? rc : give(j, &j->piece[j->n_piece - 1], err);
        }
    return rc;
}

/* Rank 0's own piece: 1, or 0 if there is none. */
static int do_own(job *j, kh_err *err) {
    if (j->r->port->size > WORKING_MAX)
        return 0;
    int rc;
    if (j->next < j->n_unit)
        rc = cut(j, 0) ? 1 : kh_fail_memory(err);
    else
        rc = take_over(j, 0, err);
    if (rc <= 0)
        return rc;
    piece *p = &j->piece[j->n_piece - 1];
    kh_batch rows;
    int r0;
    kh_question q = part_of(j, p, &rows, &r0);
    double start = kh_clock();
    float *logits =
        kh_calloc((size_t)p->n * (size_t)rows.n_row * (size_t)q.words->n_label, sizeof *logits);
    rc = logits ? j->s->native->score(j->s->box, &q, logits, NULL, err) : kh_fail_memory(err);
    if (rc == 0) {
        learn(j->r, 0, tokens_of(j, p) * p->n, kh_clock() - start);
        place(j, p, logits);
    }
    kh_free(logits);
    return rc == 0 ? 1 : rc;
}

/* ------------------------------------------------------------------------------------- answers */

/* Other ranks run the same program, but a message that does not fit is still an error and never an
 * index. */
static int take_result(
    job *j, int from, const kh_mpi_head *h, const char *body, size_t n, kh_err *err) {
    j->r->queued[from]--;
    if (h->question != j->r->question || n == 0)
        return 0; /* of a question that was given up, or of a piece that another rank does */
    if (h->piece < 0 || h->piece >= j->n_piece || j->piece[h->piece].rank != from)
        return kh_fail(err, KH_EFORMAT, "rank %d answered a piece that it was not given", from);
    piece *p = &j->piece[h->piece];
    kh_batch rows;
    int r0;
    part_of(j, p, &rows, &r0);
    if (n != (size_t)p->n * (size_t)rows.n_row * (size_t)j->q->words->n_label * sizeof(float))
        return kh_fail(err, KH_EFORMAT,
            "rank %d answered %zu bytes to a piece of %d prompts and %d rows", from, n, p->n,
            rows.n_row);
    learn(j->r, from, tokens_of(j, p) * p->n, h->seconds);
    place(j, p, (const float *)(const void *)body);
    return 0;
}

static int say_failed(kh_ranks *r, int from, const char *body, size_t n, kh_err *err) {
    r->queued[from] -= r->queued[from] > 0;
    return kh_fail(err, KH_EIO, "rank %d %.*s", from, (int)(n < 900 ? n : 900), body);
}

/* All that has come: 1, or 0 if nothing has. */
static int collect(job *j, kh_err *err) {
    bool some = false;
    for (;;) {
        const void *bytes;
        size_t n;
        int from, rc = j->r->port->poll(j->r->port, &from, &bytes, &n);
        if (rc == 0)
            return some;
        kh_mpi_head head;
        if (rc < 0 || n < sizeof head)
            return kh_fail(err, KH_EIO,
                "lost contact with the other ranks; the same command with --resume goes on");
        memcpy(&head, bytes, sizeof head);
        const char *body = (const char *)bytes + sizeof head;
        n -= sizeof head;
        some = true;
        if (head.kind == KH_MPI_RESULT)
            rc = take_result(j, from, &head, body, n, err);
        else
            rc = head.kind == KH_MPI_FAILED ? say_failed(j->r, from, body, n, err) : 0;
        if (rc != 0)
            return rc;
    }
}

/* ---------------------------------------------------------------------------------- a question */

/* Sends rows and label words to all, unless they have them from an earlier question. Ranks keep the
 * last few contexts (KH_MPI_CONTEXTS); train and dev rows alternate in a run, and neither is sent
 * twice. */
static int share_context(job *j, kh_err *err) {
    kh_ranks *r = j->r;
    kh_buf b = kh_buf_init(0x7fffff00);
    kh_mpi_context_put(&b, j->q);
    if (kh_buf_failed(&b)) {
        kh_buf_free(&b);
        return kh_fail_memory(err);
    }
    XXH128_hash_t hash = XXH3_128bits(b.data, b.len);
    uint64_t oldest = r->context > KH_MPI_CONTEXTS ? r->context - KH_MPI_CONTEXTS : 0;
    int rc = 0;
    for (j->context = r->context; j->context > oldest; j->context--)
        if (r->known[j->context % KH_MPI_CONTEXTS].lo == hash.low64 &&
            r->known[j->context % KH_MPI_CONTEXTS].hi == hash.high64)
            break;
    if (j->context == oldest) {
        j->context = ++r->context;
        r->known[j->context % KH_MPI_CONTEXTS].lo = hash.low64;
        r->known[j->context % KH_MPI_CONTEXTS].hi = hash.high64;
        kh_mpi_head head = { .kind = KH_MPI_CONTEXT, .context = j->context };
        if (kh_mpi_forward(r->port, &head, sizeof head, b.data, b.len) != 0)
            rc = kh_fail(err, KH_EIO,
                "lost contact with the other ranks; the same command with --resume goes on");
    }
    kh_buf_free(&b);
    return rc;
}

/* Nothing has come for so long: is there a rank that should have answered by now? */
static int check_silence(const job *j, double silent, bool alarmed, kh_err *err) {
    double base = alarmed ? PATIENCE_ALARMED : PATIENCE, factor = alarmed ? 2 : 20;
    if (silent < base)
        return 0;
    for (int i = j->open; i < j->n_piece; i++) {
        const piece *p = &j->piece[i];
        double speed = j->r->speed[p->rank],
               expected = speed > 0 ? tokens_of(j, p) * p->n / speed : PATIENCE;
        if (!p->done && !p->moved && p->rank > 0 && silent > factor * AHEAD * expected)
            return kh_fail(err, KH_EIO,
                "rank %d does not answer any more; every answer so far is kept: the same command "
                "with --resume goes on",
                p->rank);
    }
    return 0;
}

static int run(job *j, kh_err *err) {
    kh_mpi_wait wait = { 0 };
    double heard = kh_clock();
    int rc = share_context(j, err);
    if (rc != 0)
        return rc;
    while (j->left > 0) {
        int stop = j->r->opts.stop ? j->r->opts.stop(j->r->opts.user) : 0;
        if (stop > 0)
            return kh_fail(err, KH_STOPPED, "stopped on request");
        int came = collect(j, err);
        if (came < 0)
            return came;
        if ((rc = hand_out(j, err)) != 0)
            return rc;
        int did = j->left > 0 ? do_own(j, err) : 0;
        if (did < 0)
            return did;
        if (came || did) {
            wait = (kh_mpi_wait){ 0 };
            heard = kh_clock();
            continue;
        }
        if ((rc = check_silence(j, kh_clock() - heard, stop < 0, err)) != 0)
            return rc;
        kh_mpi_pause(&wait);
    }
    return 0;
}

static int score(void *self, const kh_question *q, float *logits, float *energy, kh_err *err) {
    (void)energy;
    spread *s = self;
    const kh_batch *b = q->batch;
    job j = { .s = s, .r = s->ranks, .q = q, .logits = logits, .n_prompt = kh_question_prompts(q) };
    int wanted = (UNITS * s->ranks->port->size + j.n_prompt - 1) / j.n_prompt;
    j.prompt = (size_t)b->n_slot * (size_t)s->hidden;
    j.n_block = wanted < b->n_row ? wanted : b->n_row;
    if (j.n_block > 0x7fffffff / j.n_prompt)
        j.n_block = 1;
    j.left = j.n_unit = j.n_block * j.n_prompt;
    j.done = kh_calloc((size_t)j.n_unit, sizeof *j.done);
    j.seen = kh_calloc((size_t)s->ranks->port->size, sizeof *j.seen);
    s->ranks->question++;
    int rc = j.done && j.seen ? run(&j, err) : kh_fail_memory(err);
    kh_free(j.done);
    kh_free(j.seen);
    kh_free(j.piece);
    return rc;
}

/* ------------------------------------------------------------------------- the rest of the box */

/* A posterior does not change by the ranks that answered: they are the native engine. */
static void describe(const void *self, kh_plm_info *info) {
    const spread *s = self;
    info->backend = s->native->name;
    s->native->describe(s->box, info);
    info->ranks = s->ranks->port->size;
}

static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    spread *s = self;
    return s->native->embedding_stats(s->box, mean, std, err);
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    spread *s = self;
    return s->native->embedding_row(s->box, id, row, err);
}

static struct kh_engine *engine(void *self) {
    spread *s = self;
    return s->native->engine(s->box);
}

static void close_spread(void *self) {
    spread *s = self;
    if (s && s->native)
        s->native->close(s->box);
    if (s)
        s->ranks->taken = false;
    kh_free(s);
}

static const kh_backend SPREAD = { .name = "mpi",
    .score = score,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .engine = engine,
    .close = close_spread };

/* ------------------------------------------------------------------------------------- opening */

static int check_opened(
    int from, const char *body, size_t n, const kh_plm_info *own, const char *dir, kh_err *err) {
    kh_mpi_opened o;
    if (n != sizeof o)
        return kh_fail(err, KH_EFORMAT, "rank %d sent a message of the wrong length", from);
    memcpy(&o, body, sizeof o);
    if (o.fingerprint != own->fingerprint)
        return kh_fail(err, KH_EMISMATCH,
            "%s: rank %d on %.63s has another model there than rank 0: copy one to all machines",
            dir, from, o.host);
    if (strcmp(o.kernels, own->kernels) != 0 || strcmp(o.precision, own->precision) != 0)
        return kh_fail(err, KH_EMISMATCH,
            "rank %d on %.63s computes with the kernels %.15s in %.15s and rank 0 with %s in %s, "
            "so bits would depend on who "
            "answers; set KEYHOLE_KERNELS, and --precision, to what all machines have",
            from, o.host, o.kernels, o.precision, own->kernels, own->precision);
    return 0;
}

/* Waits until all ranks have the model. */
static int await_ranks(spread *s, const char *dir, kh_err *err) {
    kh_port *port = s->ranks->port;
    kh_plm_info own = { 0 };
    kh_mpi_wait wait = { 0 };
    s->native->describe(s->box, &own);
    s->hidden = own.hidden;
    for (int left = port->size - 1; left > 0;) {
        const void *bytes;
        size_t n;
        int from, rc = port->poll(port, &from, &bytes, &n);
        if (rc < 0)
            return kh_fail(
                err, KH_EIO, "lost contact with the other ranks before the model was open");
        if (s->ranks->opts.stop && s->ranks->opts.stop(s->ranks->opts.user) > 0)
            return kh_fail(err, KH_EIO, "stopped before all ranks had opened %s", dir);
        if (rc == 0) {
            kh_mpi_pause(&wait);
            continue;
        }
        const kh_mpi_head *head = bytes;
        const char *body = (const char *)bytes + sizeof *head;
        n -= sizeof *head;
        if (head->kind == KH_MPI_FAILED)
            return say_failed(s->ranks, from, body, n, err);
        if (head->kind != KH_MPI_OPENED)
            continue;
        if ((rc = check_opened(from, body, n, &own, dir, err)) != 0)
            return rc;
        left--;
    }
    return 0;
}

int kh_mpi_open(
    const kh_backend **out, void **self, const char *dir, const kh_plm_opts *opts, kh_err *err) {
    kh_ranks *r = opts->ranks;
    spread *s = kh_calloc(1, sizeof *s);
    if (!s)
        return kh_fail_memory(err);
    s->ranks = r;
    r->taken = r->told = true;
    kh_mpi_head head = { .kind = KH_MPI_OPEN };
    kh_mpi_model model = {
        .version = KH_VERSION, .precision = (int32_t)opts->precision, .threads = r->opts.threads
    };
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_bytes(&b, &model, sizeof model);
    kh_buf_text(&b, dir);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : 0;
    for (int i = 1; i < r->port->size && rc == 0; i++)
        rc = r->port->send(r->port, i, &head, sizeof head, b.data, b.len) == 0 ? 0 : lost(i, err);
    kh_buf_free(&b);
    if (rc == 0) /* all ranks read at the same time, and on one machine the second reader finds the
                    file in memory */
        rc = kh_native_open(&s->native, &s->box, dir, opts, err);
    if (rc == 0)
        rc = await_ranks(s, dir, err);
    if (rc == 0)
        kh_log(opts->hooks, KH_INFO, "%d ranks answer", r->port->size);
    if (rc != 0) {
        close_spread(s);
        return rc;
    }
    *out = &SPREAD;
    *self = s;
    return 0;
}
