/* cmaes_state.c - the state of an optimiser as bytes, and back.
 *
 * Every number is eight bytes, little-endian: whole numbers in two's complement, reals as IEEE 754
 * bits.
 *
 *     magic "KHCMAES\n", version, n, pop, variant, bounded, generation: these decide the length
 *     number of options, then each row of kh_cmaes_table in turn
 *     sigma0, sigma, best value, condition, evaluations at the last decomposition,
 *         flat generations, stop reason
 *     m, p_s, p_c, best [n]; D [n]; lower and upper bounds [n] if bounded
 *     C: the lower triangle by rows, and B [n, n]; or, separable, the diagonal of C
 *     best and median values of the last min(generation, 20000) generations, oldest first
 *     FNV-1a of all bytes before it
 *
 * One function walks the fields in both directions, so they cannot disagree. The checksum finds
 * damage, not forgery: whatever passes it is checked again, so that no bytes can make an optimiser
 * misbehave. */
#include "tune/cmaes_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/map.h"

#include <endian.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static const char MAGIC[8] = { 'K', 'H', 'C', 'M', 'A', 'E', 'S', '\n' };
enum { VERSION = 1, N_HEAD = 6 };

/* ------------------------------------------------------------------------- one walk, both ways */

typedef struct walk {
    kh_buf *out;             /* saving: where to */
    const unsigned char *in; /* loading: where from, and how much is left */
    size_t left;
    bool bad; /* loading: a number did not fit its field, or there was none */
} walk;

static void bits(walk *w, uint64_t *v) {
    uint64_t le = htole64(*v);
    if (w->out) {
        kh_buf_bytes(w->out, &le, sizeof le);
    } else if (w->left >= sizeof le) {
        memcpy(&le, w->in, sizeof le);
        w->in += sizeof le;
        w->left -= sizeof le;
        *v = le64toh(le);
    } else {
        w->bad = true;
    }
}

static void whole(walk *w, long long *v, long long min, long long max) {
    uint64_t u = (uint64_t)*v;
    bits(w, &u);
    long long got;
    memcpy(&got, &u, sizeof got);
    w->bad = w->bad || got < min || got > max;
    *v = w->bad ? min : got;
}

static void whole_int(walk *w, int *v, int min, int max) {
    long long got = *v;
    whole(w, &got, min, max);
    *v = (int)got;
}

static void boolean(walk *w, bool *v) {
    int got = *v;
    whole_int(w, &got, 0, 1);
    *v = got == 1;
}

/* Reals within [min, max]; NaN never is. */
static void reals(walk *w, double *v, size_t n, double min, double max) {
    for (size_t i = 0; i < n && !w->bad; i++) {
        uint64_t u;
        memcpy(&u, v + i, sizeof u);
        bits(w, &u);
        memcpy(v + i, &u, sizeof u);
        w->bad = w->bad || !(v[i] >= min && v[i] <= max);
    }
}

static void option(walk *w, const kh_opt *row, void *field) {
    switch (row->type) {
    case KH_OPT_FLAG: boolean(w, field); break;
    case KH_OPT_INT:
    case KH_OPT_CHOICE: whole_int(w, field, 0, INT_MAX); break;
    case KH_OPT_SEED: bits(w, field); break;
    case KH_OPT_NUMBER: reals(w, field, 1, -INFINITY, INFINITY); break;
    case KH_OPT_TEXT:
    case KH_OPT_LIST: w->bad = true; break; /* there are none */
    }
}

static void options(walk *w, kh_cmaes_opts *o) {
    int n = 0;
    while (kh_cmaes_table[n].name)
        n++;
    whole_int(w, &(int){ n }, n, n);
    for (int i = 0; i < n; i++)
        option(w, &kh_cmaes_table[i], (char *)o + kh_cmaes_table[i].offset);
}

static void history(walk *w, const kh_cmaes *c, double *ring) {
    long long kept = c->generation < CMAES_HISTORY ? c->generation : CMAES_HISTORY;
    for (long long g = c->generation - kept; g < c->generation && !w->bad; g++)
        reals(w, ring + g % CMAES_HISTORY, 1, -INFINITY, INFINITY);
}

/* All that stands behind the head and the options. The limits are generous to every run, and keep
 * what follows finite. */
static void fields(walk *w, kh_cmaes *c) {
    size_t n = (size_t)c->n;
    int stop = (int)c->stop;
    reals(w, &c->sigma0, 1, 1e-150, 1e150);
    reals(w, &c->sigma, 1, 1e-150, 1e150);
    reals(w, &c->best_f, 1, -INFINITY, INFINITY);
    reals(w, &c->condition, 1, 1, INFINITY);
    whole(w, &c->eigen_evals, 0, c->evals);
    whole_int(w, &c->flat, 0, INT_MAX);
    whole_int(w, &stop, KH_CMAES_GOING, KH_CMAES_STAGNATION);
    c->stop = (kh_cmaes_reason)stop;
    reals(w, c->m, n, -1e300, 1e300);
    reals(w, c->ps, n, -1e30, 1e30);
    reals(w, c->pc, n, -1e75, 1e75);
    reals(w, c->best, n, -1e300, 1e300);
    reals(w, c->D, n, 1e-75, 1e75);
    if (c->bounded) {
        reals(w, c->lo, n, -INFINITY, 1e100);
        reals(w, c->hi, n, -1e100, INFINITY);
    }
    if (c->full) {
        for (size_t i = 0; i < n; i++)
            reals(w, c->C + i * n, i + 1, -1e200, 1e200);
        reals(w, c->B, n * n, -2, 2); /* entries of unit vectors, and rounding */
    } else {
        reals(w, c->C, n, 0, 1e200);
    }
    history(w, c, c->hist);
    history(w, c, c->hist_median);
}

/* ---------------------------------------------------------------------------------------- save */

int kh_cmaes_save(const kh_cmaes *from, kh_buf *out, kh_err *err) {
    kh_cmaes c = *from; /* the walk writes through pointers only when loading */
    size_t start = out->len;
    walk w = { .out = out };
    long long head[N_HEAD] = { VERSION, c.n, c.pop, c.full ? KH_CMAES_FULL : KH_CMAES_SEPARABLE,
        c.bounded, c.generation };
    kh_buf_bytes(out, MAGIC, sizeof MAGIC);
    for (int i = 0; i < N_HEAD; i++)
        whole(&w, &head[i], 0, LLONG_MAX);
    options(&w, &c.o);
    fields(&w, &c);
    if (!kh_buf_failed(out)) {
        uint64_t sum = kh_hash64(out->data + start, out->len - start);
        bits(&w, &sum);
    }
    return kh_buf_failed(out) ? kh_fail_memory(err) : 0;
}

/* ---------------------------------------------------------------------------------------- load */

/* The length of a state whose head is this, in bytes. */
static size_t state_bytes(const kh_cmaes *c) {
    size_t n = (size_t)c->n,
           words =
               1 + N_HEAD + 1 + 7 + 5 * n + (c->bounded ? 2 * n : 0) + 1; /* magic .. checksum */
    for (const kh_opt *row = kh_cmaes_table; row->name; row++)
        words++;
    words += c->full ? n * (n + 1) / 2 + n * n : n;
    words += 2 * (size_t)(c->generation < CMAES_HISTORY ? c->generation : CMAES_HISTORY);
    return words * 8;
}

/* Magic, version, checksum, and the numbers that decide about the length, which must be right. */
static int load_head(
    kh_cmaes *c, walk *w, const void *bytes, size_t n, const char *name, kh_err *err) {
    if (n < sizeof MAGIC + (N_HEAD + 1) * 8 || memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: not a CMA-ES state: it does not start as one, or is too short", name);
    *w = (walk){ .in = (const unsigned char *)bytes + sizeof MAGIC, .left = n - sizeof MAGIC };
    long long version = 0;
    whole(w, &version, LLONG_MIN, LLONG_MAX);
    if (version != VERSION)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: a CMA-ES state of version %lld; this program reads version %d", name, version,
            VERSION);
    walk end = { .in = (const unsigned char *)bytes + n - 8, .left = 8 };
    uint64_t sum = 0;
    bits(&end, &sum);
    if (sum != kh_hash64(bytes, n - 8))
        return kh_fail(
            err, KH_EFORMAT, "%s: the CMA-ES state is damaged: its checksum is wrong", name);
    int variant = 0;
    whole_int(w, &c->n, 1, KH_CMAES_MAX_SEPARABLE);
    whole_int(w, &c->pop, 2, KH_CMAES_MAX_POP);
    whole_int(w, &variant, KH_CMAES_FULL, KH_CMAES_SEPARABLE);
    boolean(w, &c->bounded);
    whole(w, &c->generation, 0, UINT32_MAX);
    c->full = variant == KH_CMAES_FULL;
    c->evals = c->generation * c->pop;
    if (w->bad || c->n > (c->full ? KH_CMAES_MAX_FULL : KH_CMAES_MAX_SEPARABLE))
        return kh_fail(err, KH_EFORMAT,
            "%s: the CMA-ES state has impossible sizes: %d dimensions, population %d", name, c->n,
            c->pop);
    if (n != state_bytes(c))
        return kh_fail(err, KH_EFORMAT,
            "%s: the CMA-ES state has %zu bytes; %d dimensions and %lld generations make %zu", name,
            n, c->n, c->generation, state_bytes(c));
    return 0;
}

/* What ranges of single numbers do not tell. */
static bool consistent(const kh_cmaes *c) {
    bool ok = c->o.pop == c->pop && c->o.variant == (c->full ? KH_CMAES_FULL : KH_CMAES_SEPARABLE);
    for (int i = 0; i < c->n && ok; i++) {
        ok = cmaes_variance(c, i) > 0;
        if (ok && c->bounded)
            ok = c->lo[i] < c->hi[i] && c->best[i] >= c->lo[i] && c->best[i] <= c->hi[i] &&
                (isinf(c->lo[i]) || c->lo[i] >= -1e100) && (isinf(c->hi[i]) || c->hi[i] <= 1e100);
    }
    return ok;
}

int kh_cmaes_load(kh_cmaes **out, const void *bytes, size_t n, const char *name, kh_err *err) {
    *out = NULL;
    kh_cmaes *c = kh_calloc(1, sizeof *c);
    if (!c)
        return kh_fail_memory(err);
    walk w;
    int rc = load_head(c, &w, bytes, n, name, err);
    if (rc == 0) {
        options(&w, &c->o);
        if (w.bad)
            rc = kh_fail(
                err, KH_EFORMAT, "%s: the CMA-ES state has other options than this program", name);
        else if ((rc = cmaes_check(&c->o, c->n, 1, err)) != 0)
            kh_err_prefix(err, "%s", name);
    }
    if (rc == 0)
        rc = cmaes_alloc(c, err);
    if (rc == 0) {
        fields(&w, c);
        if (w.bad || !consistent(c))
            rc = kh_fail(
                err, KH_EFORMAT, "%s: the CMA-ES state holds numbers that no run produces", name);
    }
    if (rc) {
        kh_cmaes_free(c);
        return rc;
    }
    cmaes_parameters(c);
    *out = c;
    return 0;
}
