/* blocks.c - the number formats of GGUF files; see blocks.h.
 *
 * Each format cuts a row into blocks of 32 or 256 numbers. A block has a scale d in f16 (and a base
 * m, for formats that are not symmetric) and a few bits q for each number; blocks of 256 have parts
 * of 16 or 32 numbers with a small scale s of their own:
 *
 *     x = d q        Q8_0, Q4_0, Q5_0, IQ4_NL (q looked up), MXFP4 (d a power of two)
 *     x = d q + m    Q4_1, Q5_1
 *     x = d s q      Q3_K, Q6_K, IQ4_XS (q looked up), IQ2_XXS (q a point of a grid, with signs)
 *     x = d s q - m t    Q2_K, Q4_K, Q5_K: t is the part's small base
 *
 * What differs is where the bits lie. The vectors in tests/vectors/gguf were computed from the same
 * description by tools/make_gguf_vectors.py.
 *
 * Rounding to Q8_0 and Q4_0 takes the scale that gives the largest number its full range, and the
 * nearest step. */
#include "model/blocks.h"

#include "base/gguf.h"
#include "model/tensor.h"

#include <math.h>
#include <string.h>

static float half_at(const uint8_t *b) { return kh_f32_of_f16((uint16_t)(b[0] | b[1] << 8)); }

static uint32_t word_at(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* ------------------------------------------------------------------------ blocks of 32 numbers */

static void expand_q8_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    for (int i = 0; i < 32; i++)
        x[i] = d * (float)(int8_t)b[2 + i];
}

/* Low halves of 16 bytes are numbers 0 to 15, high halves 16 to 31; here and below. */
static void expand_q4_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)((b[2 + i] & 15) - 8);
        x[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void expand_q4_1(const uint8_t *b, float *x) {
    float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)(b[4 + i] & 15) + m;
        x[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* The fifth bits stand together in 32 bits before the halves. */
static int five(const uint8_t *half, uint32_t top, int i) {
    int low = i < 16 ? half[i] & 15 : half[i - 16] >> 4;
    return low | (int)(top >> i & 1) << 4;
}

static void expand_q5_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    for (int i = 0; i < 32; i++)
        x[i] = d * (float)(five(b + 6, word_at(b + 2), i) - 16);
}

static void expand_q5_1(const uint8_t *b, float *x) {
    float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 32; i++)
        x[i] = d * (float)five(b + 8, word_at(b + 4), i) + m;
}

/* Sixteen levels, closer together around zero. */
static const int8_t LEVELS[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69,
    89, 113 };

static void expand_levels(float d, const int8_t level[16], const uint8_t *b, float *x) {
    for (int i = 0; i < 16; i++) {
        x[i] = d * (float)level[b[i] & 15];
        x[i + 16] = d * (float)level[b[i] >> 4];
    }
}

static void expand_iq4_nl(const uint8_t *b, float *x) {
    expand_levels(half_at(b), LEVELS, b + 2, x);
}

/* A float of 4 bits (1 sign, 2 exponent, 1 fraction), doubled so that it is whole; the block's
 * scale is 2^(e - 127), and e = 255 stands for NaN. */
static void expand_mxfp4(const uint8_t *b, float *x) {
    static const int8_t doubled[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    expand_levels(b[0] == 255 ? NAN : ldexpf(1, b[0] - 128), doubled, b + 1, x);
}

/* ----------------------------------------------------------------------- blocks of 256 numbers */

/* Two bits of number i: 32 bytes hold 128 numbers, first the lowest bits of all of them. */
static int crumb(const uint8_t *q, int i) {
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void expand_q2_k(const uint8_t *b, float *x) {
    float d = half_at(b + 80), m = half_at(b + 82);
    for (int part = 0; part < 16; part++) {
        float step = d * (float)(b[part] & 15), base = m * (float)(b[part] >> 4);
        for (int i = 16 * part; i < 16 * part + 16; i++)
            x[i] = step * (float)crumb(b + 16, i) - base;
    }
}

/* Of a part's scale the low 4 bits are in bytes 0 to 7 (parts 8 to 15 in the high halves), the
 * upper 2 in bytes 8 to 11. The third bit of a number, in the first 32 bytes, is missing 4. */
static void expand_q3_k(const uint8_t *b, float *x) {
    const uint8_t *s = b + 96;
    float d = half_at(b + 108);
    for (int part = 0; part < 16; part++) {
        int low = part < 8 ? s[part] & 15 : s[part - 8] >> 4;
        int high = s[8 + part % 4] >> (part / 4 * 2) & 3;
        float step = d * (float)((low | high << 4) - 32);
        for (int i = 16 * part; i < 16 * part + 16; i++) {
            int third = b[i % 32] >> (i / 32) & 1;
            x[i] = step * (float)(crumb(b + 32, i) + 4 * third - 4);
        }
    }
}

/* Scale and base of one of eight parts, 6 bits each, in 12 bytes: those of the first four parts
 * have a byte each, whose upper two bits belong to the last four. */
static void small_scales(const uint8_t *s, int part, int *scale, int *base) {
    if (part < 4) {
        *scale = s[part] & 63;
        *base = s[part + 4] & 63;
    } else {
        *scale = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
        *base = s[part + 4] >> 4 | s[part] >> 6 << 4;
    }
}

/* Q4_K, and with the fifth bits in `top` (one byte for 8 numbers, 32 apart) Q5_K. */
static void expand_k4(const uint8_t *b, const uint8_t *q, const uint8_t *top, float *x) {
    float d = half_at(b), m = half_at(b + 2);
    for (int part = 0; part < 8; part++) {
        int scale, base;
        small_scales(b + 4, part, &scale, &base);
        float step = d * (float)scale, low = m * (float)base;
        for (int i = 0; i < 32; i++) {
            int bits = q[part / 2 * 32 + i] >> (part % 2 * 4) & 15;
            if (top)
                bits |= (top[i] >> part & 1) << 4;
            x[32 * part + i] = step * (float)bits - low;
        }
    }
}

static void expand_q4_k(const uint8_t *b, float *x) { expand_k4(b, b + 16, NULL, x); }
static void expand_q5_k(const uint8_t *b, float *x) { expand_k4(b, b + 48, b + 16, x); }

static void expand_q6_k(const uint8_t *b, float *x) {
    float d = half_at(b + 208);
    for (int part = 0; part < 16; part++) {
        float step = d * (float)(int8_t)b[192 + part];
        for (int i = 16 * part; i < 16 * part + 16; i++) {
            int in = i % 128, low = b[i / 128 * 64 + in % 64] >> (in / 64 * 4) & 15;
            x[i] = step * (float)((low | crumb(b + 128, i) << 4) - 32);
        }
    }
}

static void expand_iq4_xs(const uint8_t *b, float *x) {
    float d = half_at(b);
    int high = b[2] | b[3] << 8;
    for (int part = 0; part < 8; part++) {
        int low = b[4 + part / 2] >> (part % 2 * 4) & 15;
        int scale = (low | (high >> (2 * part) & 3) << 4) - 32;
        expand_levels(d * (float)scale, LEVELS, b + 8 + 16 * part, x + 32 * part);
    }
}

/* The 256 points of IQ2_XXS' grid: two bits for each of eight dimensions, the lowest bits first,
 * which stand for 8, 25 and 43. */
static const uint16_t GRID[256] = {
    0x0000,
    0x0002,
    0x0005,
    0x0008,
    0x000a,
    0x0011,
    0x0014,
    0x0020,
    0x0022,
    0x0028,
    0x002a,
    0x0041,
    0x0044,
    0x0050,
    0x0058,
    0x0061,
    0x0064,
    0x0080,
    0x0082,
    0x008a,
    0x00a2,
    0x0101,
    0x0104,
    0x0110,
    0x0115,
    0x0140,
    0x0184,
    0x0198,
    0x0200,
    0x0202,
    0x0222,
    0x0282,
    0x0401,
    0x0404,
    0x0410,
    0x0421,
    0x0424,
    0x0440,
    0x0442,
    0x0448,
    0x0460,
    0x0481,
    0x0484,
    0x0490,
    0x04a4,
    0x0500,
    0x0502,
    0x0508,
    0x0520,
    0x0546,
    0x0569,
    0x0580,
    0x0591,
    0x0609,
    0x0610,
    0x0640,
    0x0684,
    0x06a4,
    0x0800,
    0x0805,
    0x0808,
    0x0814,
    0x0828,
    0x0841,
    0x0844,
    0x0850,
    0x0852,
    0x0888,
    0x0904,
    0x0940,
    0x0a02,
    0x0a14,
    0x1001,
    0x1004,
    0x1010,
    0x1021,
    0x1040,
    0x1060,
    0x1084,
    0x1090,
    0x1095,
    0x1100,
    0x1108,
    0x1120,
    0x1150,
    0x115a,
    0x1180,
    0x1224,
    0x1245,
    0x1400,
    0x1408,
    0x1420,
    0x1425,
    0x1449,
    0x1480,
    0x1518,
    0x1562,
    0x1600,
    0x1616,
    0x1801,
    0x1804,
    0x1810,
    0x1840,
    0x1881,
    0x1900,
    0x1905,
    0x19a0,
    0x1a51,
    0x2000,
    0x2002,
    0x200a,
    0x2044,
    0x2061,
    0x2080,
    0x2082,
    0x2129,
    0x2148,
    0x2200,
    0x2202,
    0x2401,
    0x2404,
    0x2410,
    0x2440,
    0x2456,
    0x2500,
    0x2541,
    0x2564,
    0x2690,
    0x2808,
    0x2820,
    0x2894,
    0x2a44,
    0x4001,
    0x4004,
    0x4010,
    0x4018,
    0x4021,
    0x4024,
    0x4040,
    0x4048,
    0x4056,
    0x4060,
    0x4081,
    0x4084,
    0x4090,
    0x4100,
    0x4120,
    0x4161,
    0x4180,
    0x4185,
    0x4201,
    0x4210,
    0x4248,
    0x4256,
    0x4268,
    0x4400,
    0x4408,
    0x4420,
    0x4480,
    0x4499,
    0x4512,
    0x4524,
    0x4600,
    0x4801,
    0x4804,
    0x4810,
    0x4840,
    0x4845,
    0x4900,
    0x4958,
    0x4961,
    0x4982,
    0x4a45,
    0x4a90,
    0x5000,
    0x5008,
    0x5011,
    0x5019,
    0x5020,
    0x5080,
    0x5088,
    0x5104,
    0x5142,
    0x51a4,
    0x5291,
    0x5490,
    0x5492,
    0x550a,
    0x5601,
    0x5654,
    0x5800,
    0x5811,
    0x5819,
    0x5864,
    0x5940,
    0x5a08,
    0x6004,
    0x6010,
    0x6040,
    0x6068,
    0x6100,
    0x6155,
    0x6218,
    0x6260,
    0x6400,
    0x6405,
    0x6510,
    0x6512,
    0x6584,
    0x6842,
    0x8000,
    0x8002,
    0x800a,
    0x8041,
    0x8082,
    0x8104,
    0x8118,
    0x8140,
    0x8211,
    0x8401,
    0x8404,
    0x8410,
    0x8415,
    0x8440,
    0x8460,
    0x8500,
    0x8546,
    0x8594,
    0x8609,
    0x8640,
    0x8660,
    0x8802,
    0x8904,
    0x8a11,
    0x9004,
    0x9010,
    0x9024,
    0x9040,
    0x90a1,
    0x9116,
    0x9180,
    0x9245,
    0x9400,
    0x9422,
    0x9444,
    0x9551,
    0x9881,
    0x9920,
    0xa002,
    0xa050,
    0xa085,
    0xa109,
    0xa200,
    0xa418,
    0xa850,
    0xa904,
};

/* Eight parts of 32 numbers: four points (a byte each), and 32 bits that hold four times seven
 * signs and, on top, the part's scale. The eighth sign makes the number of minus signs even. */
static void expand_iq2_xxs(const uint8_t *b, float *x) {
    static const float length[4] = { 8, 25, 43, 0 };
    float d = half_at(b);
    for (int part = 0; part < 8; part++) {
        const uint8_t *p = b + 2 + 8 * part;
        uint32_t word = word_at(p + 4);
        float step = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++) {
            uint32_t signs = word >> (7 * k) & 127;
            signs |= (uint32_t)(__builtin_popcount(signs) & 1) << 7;
            for (int i = 0; i < 8; i++) {
                float y = step * length[GRID[p[k]] >> (2 * i) & 3];
                x[32 * part + 8 * k + i] = signs >> i & 1 ? -y : y;
            }
        }
    }
}

/* ----------------------------------------------------------------------------------- rounding */

static void put_half(uint8_t *b, float d) {
    uint16_t h = kh_f16_of_f32(d);
    b[0] = (uint8_t)h;
    b[1] = (uint8_t)(h >> 8);
}

/* The number that is farthest from zero, with its sign. */
static float farthest(const float *x) {
    float far = 0;
    for (int i = 0; i < 32; i++)
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    return far;
}

static int step_of(float x, float d, int least, int most) {
    float q = d != 0 ? roundf(x / d) : 0;
    q = q < (float)least ? (float)least : q;
    return (int)(q > (float)most ? (float)most : q);
}

static void shrink_q8_0(const float *x, uint8_t *b) {
    float d = fabsf(farthest(x)) / 127;
    put_half(b, d);
    d = half_at(b); /* the scale that a reader will see */
    for (int i = 0; i < 32; i++)
        b[2 + i] = (uint8_t)(int8_t)step_of(x[i], d, -127, 127);
}

/* Steps go from -8 to 7: the farthest number takes -8, so that the scale has the other sign. */
static void shrink_q4_0(const float *x, uint8_t *b) {
    put_half(b, farthest(x) / -8);
    float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        int low = step_of(x[i], d, -8, 7) + 8, high = step_of(x[i + 16], d, -8, 7) + 8;
        b[2 + i] = (uint8_t)(low | high << 4);
    }
}

/* -------------------------------------------------------------------------------------- table */

static const struct {
    void (*expand)(const uint8_t *, float *);
    void (*shrink)(const float *, uint8_t *);
} formats[] = {
    [KH_DTYPE_Q8_0] = { expand_q8_0, shrink_q8_0 },
    [KH_DTYPE_Q4_0] = { expand_q4_0, shrink_q4_0 },
    [KH_DTYPE_Q4_1] = { expand_q4_1, NULL },
    [KH_DTYPE_Q5_0] = { expand_q5_0, NULL },
    [KH_DTYPE_Q5_1] = { expand_q5_1, NULL },
    [KH_DTYPE_Q2_K] = { expand_q2_k, NULL },
    [KH_DTYPE_Q3_K] = { expand_q3_k, NULL },
    [KH_DTYPE_Q4_K] = { expand_q4_k, NULL },
    [KH_DTYPE_Q5_K] = { expand_q5_k, NULL },
    [KH_DTYPE_Q6_K] = { expand_q6_k, NULL },
    [KH_DTYPE_IQ2_XXS] = { expand_iq2_xxs, NULL },
    [KH_DTYPE_IQ4_NL] = { expand_iq4_nl, NULL },
    [KH_DTYPE_IQ4_XS] = { expand_iq4_xs, NULL },
    [KH_DTYPE_MXFP4] = { expand_mxfp4, NULL },
};

bool kh_is_blocks(kh_dtype t) { return formats[t].expand != NULL; }
bool kh_blocks_shrinks(kh_dtype t) { return formats[t].shrink != NULL; }
int kh_block_count(kh_dtype t) { return t == KH_DTYPE_ANY ? 1 : kh_gguf_type_of(t)->count; }
int kh_block_bytes(kh_dtype t) { return t == KH_DTYPE_ANY ? 0 : kh_gguf_type_of(t)->bytes; }

void kh_blocks_expand(kh_dtype t, const void *blocks, size_t n, float *out) {
    const uint8_t *b = blocks;
    size_t bytes = (size_t)kh_block_bytes(t), count = (size_t)kh_block_count(t);
    for (size_t i = 0; i < n; i++)
        formats[t].expand(b + i * bytes, out + i * count);
}

void kh_blocks_shrink(kh_dtype t, const float *x, size_t n, void *blocks) {
    uint8_t *b = blocks;
    size_t bytes = (size_t)kh_block_bytes(t), count = (size_t)kh_block_count(t);
    for (size_t i = 0; i < n; i++)
        formats[t].shrink(x + i * count, b + i * bytes);
}
