/* kernels_amx.c - the kernels for CPUs with AMX: those of AVX-512, and products of bytes by tiles.
 *
 * A group of KH_INT8_GROUP values is as deep as a tile, so one TDPBUSD gives the exact sums of a
 * group for 16 rows and 16 columns. What follows, in floats, is what tile_group does, in its order:
 * results have the bits of the avx512 row. A weight panel is stored as tiles want it already. */
#if defined(__x86_64__) && defined(KH_WITH_AMX)
#include "model/kernels_avx512_vectors.h"

#include "model/kernels_body.h"
#include "model/ops_body.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
    STRIP = 16,       /* rows of a tile register */
    TALL = 2 * STRIP, /* rows that are multiplied together: two tiles by two of a panel */
    STRIP_BYTES = STRIP * KH_INT8_GROUP,
    TOGETHER = 2, /* groups whose sums wait for each other */
};
_Static_assert(
    (int)TALL <= (int)MOST_ROWS && KH_INT8_GROUP == 64 && COLUMNS == 32, "the shape of tiles");

/* Sums of the groups that are settled together: [TOGETHER][TALL][COLUMNS]. */
typedef struct sums {
    int32_t of[TOGETHER][TALL][COLUMNS];
} __attribute__((aligned(64))) sums;

/* A tile of TALL rows, or of STRIP at the end of A, by one panel and one block. */
typedef struct job {
    const uint8_t *a;  /* [2][groups][STRIP][KH_INT8_GROUP] */
    size_t strip;      /* bytes of a strip of a */
    const uint32_t *w; /* [groups][GROUP_ROWS][COLUMNS] */
    const rounding *r; /* [groups][stride] */
    size_t stride;
    v_f32 (*c)[2];
    const char *ahead; /* of the next panel: `lines` cache lines of each group are fetched */
    int lines;
    float *to; /* where c goes, and what is added to it: rows ld apart, `rows` of them fetched with
                  each group */
    const float *residual;
    size_t ld;
    int rows;
} job;

/* Tells the cache of what is needed soon: a share of it with each group. */
static inline void fetch(const job *j, int g) {
    for (int i = 0; i < j->lines; i++)
        __builtin_prefetch(j->ahead + (size_t)g * GROUP_ROWS * COLUMNS * 4 + 64 * i);
    for (int i = g * j->rows; i < (g + 1) * j->rows && i < TALL; i++) {
        __builtin_prefetch(j->to + (size_t)i * j->ld, 1);
        __builtin_prefetch(j->to + (size_t)i * j->ld + WIDTH, 1);
        if (j->residual) {
            __builtin_prefetch(j->residual + (size_t)i * j->ld);
            __builtin_prefetch(j->residual + (size_t)i * j->ld + WIDTH);
        }
    }
}

/* Adds groups g .. g + n - 1 to rows from .. to - 1 of c. */
static inline __attribute__((always_inline)) void settle(
    const job *j, int g, int n, const sums *s, int from, int to) {
    v_f32 step[TOGETHER][2], total[TOGETHER][2];
#pragma GCC unroll 4
    for (int q = 0; q < n; q++) {
        const uint32_t *w = j->w + (size_t)((g + q) * GROUP_ROWS + GROUP_WORDS) * COLUMNS;
        for (int half = 0; half < 2; half++) {
            step[q][half] = (v_f32)load_int(w + half * WIDTH);
            total[q][half] = (v_f32)load_int(w + COLUMNS + half * WIDTH);
        }
    }
    for (int i = from; i < to; i++) {
        v_f32 c[2] = { j->c[i][0], j->c[i][1] };
#pragma GCC unroll 4
        for (int q = 0; q < n; q++) {
            const rounding *r = &j->r[(size_t)(g + q) * j->stride + (size_t)i];
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++)
                c[half] += (__builtin_convertvector(load_int(&s->of[q][i][half * WIDTH]), v_f32) -
                               splat(r->zero) * total[q][half]) *
                    (splat(r->step) * step[q][half]);
        }
        j->c[i][0] = c[0], j->c[i][1] = c[1];
    }
}

/* Multiplies n groups from g on; meanwhile settles `before` groups that come before them, so that
 * both units are busy. */
static inline __attribute__((always_inline)) void step(
    const job *j, int strips, int g, int n, sums *now, int before, const sums *then) {
    int pieces = 2 * (n > 0 ? n : 1), tall = strips * STRIP / pieces, row = 0;
#pragma GCC unroll 4
    for (int q = 0; q < n; q++) {
        const uint32_t *w = j->w + (size_t)((g + q) * GROUP_ROWS) * COLUMNS;
        const uint8_t *a = j->a + (size_t)(g + q) * STRIP_BYTES;
        int32_t *out = now->of[q][0];
        fetch(j, g + q);
        _tile_loadd(6, w, COLUMNS * 4);
        _tile_loadd(4, a, KH_INT8_GROUP);
        _tile_zero(0);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, w + WIDTH, COLUMNS * 4);
        _tile_zero(1);
        _tile_dpbusd(1, 4, 7);
        if (strips > 1) {
            _tile_loadd(5, a + j->strip, KH_INT8_GROUP);
            _tile_zero(2);
            _tile_dpbusd(2, 5, 6);
            _tile_zero(3);
            _tile_dpbusd(3, 5, 7);
        }
        settle(j, g - before, before, then, row, row + tall);
        row += tall;
        _tile_stored(0, out, COLUMNS * 4);
        _tile_stored(1, out + WIDTH, COLUMNS * 4);
        settle(j, g - before, before, then, row, row + tall);
        row += tall;
        if (strips > 1) {
            _tile_stored(2, out + STRIP * COLUMNS, COLUMNS * 4);
            _tile_stored(3, out + STRIP * COLUMNS + WIDTH, COLUMNS * 4);
        }
    }
    settle(j, g - before, before, then, row, strips * STRIP);
}

/* All groups of a block. An odd one comes first. */
static inline __attribute__((always_inline)) void tile_strips(
    const job *j, int strips, int groups) {
    sums two[2];
    int at = 0, g = groups % 2 ? 1 : 2;
    if (g == 2)
        step(j, strips, 0, 2, &two[0], 0, NULL);
    else
        step(j, strips, 0, 1, &two[0], 0, NULL);
    if (g == 1 && g < groups) {
        step(j, strips, 1, 2, &two[1], 1, &two[0]);
        g = 3, at = 1;
    }
    for (; g < groups; g += 2, at = !at)
        step(j, strips, g, 2, &two[!at], 2, &two[at]);
    if (groups > 1)
        settle(j, groups - 2, 2, &two[at], 0, strips * STRIP);
    else
        settle(j, 0, 1, &two[at], 0, strips * STRIP);
}

static __attribute__((noinline)) void tile_amx(const job *j, int strips, int groups) {
    if (strips == 2)
        tile_strips(j, 2, groups);
    else
        tile_strips(j, 1, groups);
}

/* A row's part of a block, group by group. */
static void gather_row(const float *x, int depth, rounding *r, size_t stride, uint8_t *out) {
    for (int k = 0; k < depth; k += KH_INT8_GROUP, r += stride, out += STRIP_BYTES) {
        int n = depth - k < KH_INT8_GROUP ? depth - k : KH_INT8_GROUP;
        if (n < KH_INT8_GROUP)
            memset(out, 0, KH_INT8_GROUP);
        *r = find_rounding(x + k, n);
        narrow_bytes(x + k, n, r, out);
    }
}

/* The rows of a block, strip by strip; those beyond the end of A are zero. */
static void gather_strips(const kh_product *p, const block *b, int groups) {
    for (size_t row = 0; row < b->padded; row++) {
        uint8_t *out = (uint8_t *)b->a + row / STRIP * (size_t)groups * STRIP_BYTES +
            row % STRIP * KH_INT8_GROUP;
        if (row < (size_t)p->rows)
            gather_row(p->a + row * p->lda + (size_t)b->k, b->depth, b->r + row, b->padded, out);
        else
            for (int g = 0; g < groups; g++, out += STRIP_BYTES) {
                memset(out, 0, KH_INT8_GROUP);
                b->r[(size_t)g * b->padded + row] = (rounding){ 0 };
            }
    }
}

/* All rows of one panel and one block. Meanwhile the cache is told of the next panel's block, if
 * there is one: a share of each of its groups with each tile. */
static void panel_strips(const kh_product *p, const block *b, int groups, int column,
    const uint32_t *w, const uint32_t *next) {
    enum { LINES = GROUP_ROWS * COLUMNS * 4 / 64 };
    int columns = p->n - column, tiles = (p->rows + TALL - 1) / TALL;
    int share = (LINES + tiles - 1) / tiles, ahead = 0;
    bool first = b->k == 0 && !p->more, last = b->k + b->depth == p->k;
    v_f32 bias[2], c[TALL][2];
    load_columns(p->bias ? p->bias + column : NULL, columns, bias);
    job j = { .strip = (size_t)groups * STRIP_BYTES,
        .w = w,
        .stride = b->padded,
        .c = c,
        .ld = p->ldc,
        .rows = (TALL + groups - 1) / groups };
    for (int row = 0; row < p->rows; row += TALL, ahead += share) {
        float *to = p->c + (size_t)row * p->ldc + (size_t)column;
        j.a = (const uint8_t *)b->a + (size_t)(row / STRIP) * j.strip;
        j.r = b->r + row;
        j.to = to;
        j.residual = last && p->residual ? p->residual + (to - p->c) : NULL;
        j.ahead = (const char *)next + 64 * ahead;
        j.lines = next && ahead + share <= LINES ? share : 0;
        if (first)
            for (int i = 0; i < TALL; i++)
                c[i][0] = c[i][1] = splat(0);
        else
            take_c(to, p->ldc, p->rows - row, columns, TALL, c);
        tile_amx(&j, p->rows - row > STRIP ? 2 : 1, groups);
        if (last)
            finish(p, row, column, bias, TALL, c);
        put_c(to, p->ldc, p->rows - row, columns, TALL, c);
    }
}

/* Eight registers of 16 rows of 64 bytes. */
static void configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) all = { .palette = 1 };
    for (int i = 0; i < 8; i++)
        all.row_bytes[i] = 64, all.rows[i] = STRIP;
    _tile_loadconfig(&all);
}

static void product_int8(const kh_product *p, void *scratch) {
    size_t panel = panel_rows(KH_INT8, p->k) * COLUMNS;
    block b = { .a = scratch, .padded = (size_t)(p->rows + STRIP - 1) / STRIP * STRIP };
    b.r = (rounding *)(b.a + b.padded * BLOCK_WORDS);
    configure();
    for (; b.k < p->k; b.k += b.depth) {
        b.depth = p->k - b.k < block_depth(KH_INT8) ? p->k - b.k : block_depth(KH_INT8);
        int groups = (b.depth + KH_INT8_GROUP - 1) / KH_INT8_GROUP;
        gather_strips(p, &b, groups);
        const uint32_t *w = (const uint32_t *)p->w + panel_rows(KH_INT8, b.k) * COLUMNS;
        for (int column = 0; column < p->n; column += COLUMNS, w += panel)
            panel_strips(p, &b, groups, column, w, column + COLUMNS < p->n ? w + panel : NULL);
    }
    _tile_release(); /* so that the system need not save the tiles of this thread any more */
}

static void product_by_tiles(const kh_product *p, void *scratch) {
    if (p->precision == KH_INT8)
        product_int8(p, scratch);
    else
        product(p, scratch);
}

/* Tiles belong to a process only after it has asked the system for them, which may refuse (an old
 * one, or a thread whose signal stack has no room for tiles). Asking again does no harm. */
static bool usable(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return has_avx512() && __builtin_cpu_supports("amx-tile") &&
        __builtin_cpu_supports("amx-int8") &&
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const kh_kernels kh_kernels_amx = { "amx", "avx512", COLUMNS, usable, pack, product_by_tiles,
    attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
