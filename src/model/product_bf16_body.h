/* product_bf16_body.h - products of matrices whose numbers are rounded to bf16 on the way, for
 * training; included after kernels_body.h, whose tiles it uses.
 *
 * The engine packs a weight once; a training step packs everything anew: weights, activations,
 * gradients, each as it lies or turned. So A is packed a block of rows and of k at a time, B a
 * panel at a time, just before all tiles of A pass over it, and both stay in the cache. Packing n k
 * numbers of B is paid by the m n k products made with them. Sums are f32. Every element of C is
 * summed over k in one fixed order. */

enum {
    BF16_WORDS = KH_BF16_DEPTH / 2, /* of two bf16 numbers: a panel of B takes 24 KB */
    BF16_ROWS = KH_BF16_ROWS / TILE * TILE,
};

/* An f32 whose upper half is x, rounded to nearest even. */
static inline uint32_t rounded_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits + 0x7FFF + (bits >> 16 & 1);
}

/* Neighbours of a row as words. */
static void pair_along(const float *x, int n, uint32_t *out) {
    for (int i = 0; i < n / 2; i++)
        out[i] = rounded_bits(x[2 * i]) >> 16 | (rounded_bits(x[2 * i + 1]) & 0xFFFF0000);
    if (n % 2)
        out[n / 2] = rounded_bits(x[n - 1]) >> 16;
}

/* Two rows, one below the other, as words; the second may be missing. */
static inline void pair_down(const float *x, const float *below, int n, uint32_t *out) {
    if (below)
        for (int i = 0; i < n; i++)
            out[i] = rounded_bits(x[i]) >> 16 | (rounded_bits(below[i]) & 0xFFFF0000);
    else
        for (int i = 0; i < n; i++)
            out[i] = rounded_bits(x[i]) >> 16;
}

/* `columns` vectors of `depth` numbers as words [depth / 2][width]; they lie side by side (number i
 * of vector j is x[i * ld + j]) or, if turned, one after the other (x[j * ld + i]). Missing vectors
 * become 0. */
static inline void pack_down(
    const float *x, size_t ld, int columns, int depth, int width, uint32_t *out) {
    if (columns < width)
        memset(out, 0, (size_t)((depth + 1) / 2 * width) * sizeof *out);
    for (int i = 0; i < depth; i += 2, x += 2 * ld, out += width)
        pair_down(x, i + 1 < depth ? x + ld : NULL, columns < width ? columns : width, out);
}

static void pack_b_panel(const kh_bf16_product *p, int k, int depth, int column, uint32_t *out) {
    int columns = p->n - column;
    if (!p->b_turned) {
        pack_down(p->b + (size_t)k * p->ldb + (size_t)column, p->ldb,
            columns < COLUMNS ? columns : COLUMNS, depth, COLUMNS, out);
        return;
    }
    uint32_t words[COLUMNS][BF16_WORDS];
    const float *row = p->b + (size_t)column * p->ldb + (size_t)k;
    for (int j = 0; j < COLUMNS && j < columns; j++, row += p->ldb)
        pair_along(row, depth, words[j]);
    pack_rows((const float *)words[0], BF16_WORDS, columns < COLUMNS ? columns : COLUMNS,
        (depth + 1) / 2, (float *)out);
}

static void pack_a_tile(const kh_bf16_product *p, int k, int depth, int row, uint32_t *out) {
    int rows = p->m - row;
    if (p->a_turned) {
        pack_down(p->a + (size_t)k * p->lda + (size_t)row, p->lda, rows < TILE ? rows : TILE, depth,
            TILE, out);
        return;
    }
    uint32_t words[TILE][BF16_WORDS];
    const float *from = p->a + (size_t)row * p->lda + (size_t)k;
    for (int i = 0; i < TILE && i < rows; i++, from += p->lda)
        pair_along(from, depth, words[i]);
    gather_f32((const float *)words[0], BF16_WORDS, rows, (depth + 1) / 2, (float *)out);
}

/* All panels over rows row .. of A, for k .. k + depth. */
static void product_block(
    const kh_bf16_product *p, int k, int depth, int row, int rows, uint32_t *a, uint32_t *w) {
    int words = (depth + 1) / 2;
    bool fresh = k == 0 && !p->add;
    for (int i = 0; i < rows; i += TILE)
        pack_a_tile(p, k, depth, row + i, a + i * words);
    for (int column = 0; column < p->n; column += COLUMNS) {
        pack_b_panel(p, k, depth, column, w);
        for (int i = 0; i < rows; i += TILE) {
            float *c = p->c + (size_t)(row + i) * p->ldc + (size_t)column;
            v_f32 sum[TILE][2];
            if (fresh)
                for (int j = 0; j < TILE; j++)
                    sum[j][0] = sum[j][1] = splat(0);
            else
                take_c(c, p->ldc, p->m - row - i, p->n - column, TILE, sum);
            tile_bf16(a + i * words, w, words, sum);
            put_c(c, p->ldc, p->m - row - i, p->n - column, TILE, sum);
        }
    }
}

static void product_bf16(const kh_bf16_product *p, void *scratch) {
    uint32_t *w = scratch, *a = w + COLUMNS * BF16_WORDS;
    for (int row = 0; row < p->m; row += BF16_ROWS)
        for (int k = 0; k < p->k; k += KH_BF16_DEPTH)
            product_block(p, k, p->k - k < KH_BF16_DEPTH ? p->k - k : KH_BF16_DEPTH, row,
                p->m - row < BF16_ROWS ? p->m - row : BF16_ROWS, a, w);
}
