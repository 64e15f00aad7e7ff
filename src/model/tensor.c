/* tensor.c - half-precision formats by their bits.
 *
 *     f32   1 sign, 8 exponent (bias 127), 23 fraction
 *     bf16  the upper half of an f32
 *     f16   1 sign, 5 exponent (bias 15), 10 fraction; exponent 0 is fraction * 2^-24
 */
#include "model/tensor.h"

#include "base/gguf.h"
#include "model/blocks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

size_t kh_dtype_bytes(kh_dtype t) {
    if (t == KH_DTYPE_F32)
        return 4;
    return t == KH_DTYPE_F16 || t == KH_DTYPE_BF16 ? 2 : 0; /* 0: blocks, kh_gguf_type_of() */
}

const char *kh_dtype_name(kh_dtype t) {
    return t == KH_DTYPE_ANY ? "any" : kh_gguf_type_of(t)->name;
}

size_t kh_numbers_bytes(kh_dtype t, size_t n) {
    return n / (size_t)kh_block_count(t) * (size_t)kh_block_bytes(t);
}

size_t kh_tensor_bytes(const kh_tensor *t) {
    return t->data ? kh_numbers_bytes(t->dtype, (size_t)t->rows * (size_t)t->cols) : 0;
}

static float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float kh_f32_of_bf16(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

float kh_f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3FF;
    if (exponent == 0) { /* zero and subnormals; the product is exact */
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    if (exponent == 31)
        return float_of_bits(sign | 0x7F800000u | fraction << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Drops the low `shift` bits of x, rounding to nearest with ties to even; a carry runs into the
 * exponent, as it should. */
static uint32_t round_off(uint32_t x, uint32_t shift) {
    uint32_t half = 1u << (shift - 1), odd = (x >> shift) & 1;
    return (x + half - 1 + odd) >> shift;
}

uint16_t kh_bf16_of_f32(float x) {
    uint32_t bits = bits_of_float(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 |
            0x40); /* quiet, so that dropping the low half cannot make it an infinity */
    return (uint16_t)round_off(bits, 16);
}

uint16_t kh_f16_of_f32(float x) {
    uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000)
        return (uint16_t)(sign | 0x7E00);
    if (rest >= 0x477FF000) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7C00);
    if (rest >= 0x38800000) /* 2^-14: normal */
        return (uint16_t)(sign | round_off(rest - (112u << 23), 13));
    uint32_t exponent = rest >> 23;
    if (exponent < 102) /* below 2^-25: zero */
        return (uint16_t)sign;
    return (uint16_t)(sign | round_off((rest & 0x7FFFFF) | 0x800000, 126 - exponent));
}

static float get(const void *numbers, kh_dtype t, size_t i) {
    switch (t) {
    case KH_DTYPE_F16: return kh_f32_of_f16(((const uint16_t *)numbers)[i]);
    case KH_DTYPE_BF16: return kh_f32_of_bf16(((const uint16_t *)numbers)[i]);
    default: return ((const float *)numbers)[i];
    }
}

/* Between blocks and anything else: by way of the floats of one block. */
static void convert_blocks(
    const void *from, kh_dtype from_type, void *to, kh_dtype to_type, size_t n) {
    float x[KH_BLOCK_MAX];
    kh_dtype type = kh_is_blocks(from_type) ? from_type : to_type;
    size_t count = (size_t)kh_block_count(type), from_bytes = kh_numbers_bytes(from_type, count);
    size_t to_bytes = kh_numbers_bytes(to_type, count);
    for (size_t i = 0; i < n / count; i++) {
        const char *in = (const char *)from + i * from_bytes;
        char *out = (char *)to + i * to_bytes;
        if (kh_is_blocks(from_type))
            kh_blocks_expand(from_type, in, 1, x);
        else
            kh_numbers_convert(in, from_type, x, KH_DTYPE_F32, count);
        if (kh_is_blocks(to_type))
            kh_blocks_shrink(to_type, x, count / (size_t)kh_block_count(to_type), out);
        else
            kh_numbers_convert(x, KH_DTYPE_F32, out, to_type, count);
    }
}

void kh_numbers_convert(
    const void *from, kh_dtype from_type, void *to, kh_dtype to_type, size_t n) {
    if (from_type == to_type) {
        memcpy(to, from, kh_numbers_bytes(to_type, n));
        return;
    }
    if (kh_is_blocks(from_type) || kh_is_blocks(to_type)) {
        convert_blocks(from, from_type, to, to_type, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float x = get(from, from_type, i);
        if (to_type == KH_DTYPE_F32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = to_type == KH_DTYPE_F16 ? kh_f16_of_f32(x) : kh_bf16_of_f32(x);
    }
}

/* The same for blocks, as the numbers that they stand for. */
static size_t nonfinite_blocks(const void *numbers, kh_dtype t, size_t n) {
    float x[KH_BLOCK_MAX];
    size_t count = (size_t)kh_block_count(t), bytes = (size_t)kh_block_bytes(t);
    for (size_t i = 0; i < n; i += count) {
        kh_blocks_expand(t, (const char *)numbers + i / count * bytes, 1, x);
        size_t bad = kh_numbers_nonfinite(x, KH_DTYPE_F32, count);
        if (bad < count)
            return i + bad;
    }
    return n;
}

/* A number is finite unless all its exponent bits are set. */
size_t kh_numbers_nonfinite(const void *numbers, kh_dtype t, size_t n) {
    size_t i = 0;
    if (kh_is_blocks(t))
        return nonfinite_blocks(numbers, t, n);
    if (t == KH_DTYPE_F32) {
        const uint32_t *x = numbers;
        while (i < n && (x[i] & 0x7F800000) != 0x7F800000)
            i++;
    } else {
        const uint16_t *x = numbers, exponent = t == KH_DTYPE_F16 ? 0x7C00 : 0x7F80;
        while (i < n && (x[i] & exponent) != exponent)
            i++;
    }
    return i;
}

void kh_tensor_row(const kh_tensor *t, int row, float *out) {
    assert(row >= 0 && row < t->rows);
    size_t cols = (size_t)t->cols;
    kh_numbers_convert((const char *)t->data + (size_t)row * kh_numbers_bytes(t->dtype, cols),
        t->dtype, out, KH_DTYPE_F32, cols);
}
