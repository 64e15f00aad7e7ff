#!/usr/bin/python3
"""make_gguf_vectors.py > tests/vectors/gguf/blocks.txt

Blocks of every number format that keyhole reads from GGUF files, with the floats that they stand for, computed here with
numpy (Debian's python3-numpy) from the description of each format: a block is taken apart into arrays of bits, and the
formula is applied to whole arrays. src/model/blocks.c walks bytes in loops instead; the two share nothing but the
description.

Output, three lines a format:   NAME ELEMENTS BYTES      (of one block)
                                the blocks, as hexadecimal bytes
                                the numbers, as the hexadecimal bits of an f32 each
"""
import numpy as np

BLOCKS = 4  # of each format: random, random, all bits set but the scales, tiny scales
f32 = np.float32
rng = np.random.default_rng(25)

# Eight steps each of the grid of IQ2_XXS: a row of digits is one of its 256 points, and a digit 0, 1 or 2 the length
# 8, 25 or 43 in that dimension.
GRID = """
00000000 20000000 11000000 02000000 22000000 10100000 01100000 00200000
20200000 02200000 22200000 10010000 01010000 00110000 02110000 10210000
01210000 00020000 20020000 22020000 20220000 10001000 01001000 00101000
11101000 00011000 01021000 02121000 00002000 20002000 20202000 20022000
10000100 01000100 00100100 10200100 01200100 00010100 20010100 02010100
00210100 10020100 01020100 00120100 01220100 00001100 20001100 02001100
00201100 21011100 12211100 00021100 10121100 12002100 00102100 00012100
01022100 01222100 00000200 11000200 02000200 01100200 02200200 10010200
01010200 00110200 20110200 02020200 01001200 00011200 20002200 01102200
10000010 01000010 00100010 10200010 00010010 00210010 01020010 00120010
11120010 00001010 02001010 00201010 00111010 22111010 00021010 01202010
11012010 00000110 02000110 00200110 11200110 12010110 00020110 02101110
20211110 00002110 21102110 10000210 01000210 00100210 00010210 10020210
00001210 11001210 00221210 10112210 00000020 20000020 22000020 01010020
10210020 00020020 20020020 12201020 02011020 00002020 20002020 10000120
01000120 00100120 00010120 21110120 00001120 10011120 01211120 00122120
02000220 00200220 01120220 01012220 10000001 01000001 00100001 02100001
10200001 01200001 00010001 02010001 21110001 00210001 10020001 01020001
00120001 00001001 00201001 10211001 00021001 11021001 10002001 00102001
02012001 21112001 02212001 00000101 02000101 00200101 00020101 12120101
20101101 01201101 00002101 10000201 01000201 00100201 00010201 11010201
00001201 02111201 10211201 20021201 11012201 00122201 00000011 02000011
10100011 12100011 00200011 00020011 02020011 01001011 20011011 01221011
10122011 00120111 20120111 22001111 10002111 01112111 00000211 10100211
12100211 01210211 00011211 02002211 01000021 00100021 00010021 02210021
00001021 11111021 02102021 00212021 00000121 11000121 00101121 20101121
01021121 20010221 00000002 20000002 22000002 10010002 20020002 01001002
02101002 00011002 10102002 10000102 01000102 00100102 11100102 00010102
00210102 00001102 21011102 01121102 12002102 00012102 00212102 20000202
01001202 10102202 01000012 00100012 01200012 00010012 10220012 21101012
00021012 11012012 00000112 20200112 01010112 10111112 10020212 00201212
20000022 00110022 11020022 12001022 00002022 02100122 00110222 01001222
"""
POINTS = np.array([[(8, 25, 43)[int(c)] for c in row] for row in GRID.split()], dtype=f32)  # [256, 8]
assert POINTS.shape == (256, 8)

# The sixteen levels of IQ4_NL and IQ4_XS, and of a 4-bit float (E2M1) with sign: MXFP4.
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=f32)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=f32)
E2M1 = np.concatenate([E2M1, 0 - E2M1])  # the zeros have no sign here


def half(b):
    """[n, 2] bytes -> [n, 1] floats"""
    return np.ascontiguousarray(b).view("<f2").astype(f32)


def nibbles(b):
    """[n, k] bytes -> [n, 2 k] numbers: all low halves, then all high halves"""
    return np.concatenate([b & 15, b >> 4], axis=1)


def bits(b):
    """[n, k] bytes -> [n, 8 k] bits, the lowest of the first byte first"""
    return np.unpackbits(np.ascontiguousarray(b), axis=1, bitorder="little")


def times(d, q):
    return (d * q.astype(f32)).astype(f32)


def f32_numbers(b):
    return np.ascontiguousarray(b).view("<f4").astype(f32)


def bf16_numbers(b):
    u = np.ascontiguousarray(b).view("<u2").astype(np.uint32) << 16
    return u.view(f32)


def q8_0(b):
    return times(half(b[:, :2]), np.ascontiguousarray(b[:, 2:]).view(np.int8))


def q4_0(b):
    return times(half(b[:, :2]), nibbles(b[:, 2:]).astype(int) - 8)


def q4_1(b):
    return times(half(b[:, :2]), nibbles(b[:, 4:])) + half(b[:, 2:4])


def q5_0(b):
    return times(half(b[:, :2]), nibbles(b[:, 6:]).astype(int) + 16 * bits(b[:, 2:6]) - 16)


def q5_1(b):
    return times(half(b[:, :2]), nibbles(b[:, 8:]).astype(int) + 16 * bits(b[:, 4:8])) + half(b[:, 2:4])


def crumbs(q):
    """[n, 64] bytes -> [n, 256]: of each 32 bytes first all lowest pairs of bits, then the next pairs, ..."""
    q = q.reshape(len(q), 2, 1, 32)
    return ((q >> np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 1, 4, 1)) & 3).reshape(len(q), 256)


def q2_k(b):
    scales, q, d, least = b[:, :16], crumbs(b[:, 16:80]), half(b[:, 80:82]), half(b[:, 82:84])
    step = np.repeat(times(d, scales & 15), 16, axis=1)
    base = np.repeat(times(least, scales >> 4), 16, axis=1)
    return times(step, q) - base


def q3_k(b):
    top = bits(b[:, :32]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)  # bit j of the 32 bytes: numbers 32 j ...
    q, s, d = crumbs(b[:, 32:96]), b[:, 96:108], half(b[:, 108:110])
    low = nibbles(s[:, :8])                                                       # 16 scales of 6 bits: 4 low ones here,
    high = np.concatenate([(s[:, 8:12] >> k) & 3 for k in (0, 2, 4, 6)], axis=1)  # and 2 high ones there
    scale = low.astype(int) + 16 * high - 32
    return times(np.repeat(times(d, scale), 16, axis=1), q.astype(int) + 4 * top - 4)


def scales_k4(s):
    """12 bytes -> 8 scales and 8 minima of 6 bits each"""
    a, m, mixed = s[:, :4], s[:, 4:8], s[:, 8:12]
    scale = np.concatenate([a & 63, (mixed & 15) | (a >> 6) << 4], axis=1)
    least = np.concatenate([m & 63, (mixed >> 4) | (m >> 6) << 4], axis=1)
    return scale, least


def k4(b, q):
    scale, least = scales_k4(b[:, 4:16])
    step = np.repeat(times(half(b[:, :2]), scale), 32, axis=1)
    base = np.repeat(times(half(b[:, 2:4]), least), 32, axis=1)
    return times(step, q) - base


def by_32(q):
    """[n, 128] bytes -> [n, 256]: of each 32 bytes the low halves, then the high halves"""
    return np.concatenate([nibbles(q[:, i:i + 32]) for i in range(0, 128, 32)], axis=1)


def q4_k(b):
    return k4(b, by_32(b[:, 16:144]))


def q5_k(b):
    top = bits(b[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    return k4(b, by_32(b[:, 48:176]).astype(int) + 16 * top)


def q6_k(b):
    low = np.concatenate([nibbles(b[:, i:i + 64]) for i in (0, 64)], axis=1)
    q = low.astype(int) + 16 * crumbs(b[:, 128:192]) - 32
    scale = np.ascontiguousarray(b[:, 192:208]).view(np.int8)
    return times(np.repeat(times(half(b[:, 208:210]), scale), 16, axis=1), q)


def iq2_xxs(b):
    part = b[:, 2:].reshape(-1, 8, 8)  # eight groups of 32 numbers: four points, then signs and a scale in 32 bits
    word = np.ascontiguousarray(part[:, :, 4:]).view("<u4")[:, :, 0]
    scale = times(half(b[:, :2]), (word >> 28).astype(f32) + f32(0.5)) * f32(0.25)
    seven = (word[:, :, None] >> (7 * np.arange(4, dtype=np.uint32))) & 127
    sign = (seven[:, :, :, None] >> np.arange(8, dtype=np.uint32)) & 1
    sign[..., 7] = sign[..., :7].sum(axis=-1) & 1  # the eighth makes the number of minus signs even
    value = POINTS[part[:, :, :4]] * np.where(sign, f32(-1), f32(1))
    return (scale[:, :, None, None] * value).astype(f32).reshape(-1, 256)


def iq4_nl(b):
    return times(half(b[:, :2]), LEVELS[nibbles(b[:, 2:])])


def iq4_xs(b):
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2").astype(int)
    low = b[:, 4:8]
    scale = np.stack([low & 15, low >> 4], axis=2).reshape(-1, 8) + 16 * (high >> (2 * np.arange(8)) & 3) - 32
    q = np.concatenate([nibbles(b[:, 8 + i:24 + i]) for i in range(0, 128, 16)], axis=1)
    return times(np.repeat(times(half(b[:, :2]), scale), 32, axis=1), LEVELS[q])


def mxfp4(b):
    return (np.ldexp(1.0, b[:, :1].astype(int) - 127) * E2M1[nibbles(b[:, 1:])]).astype(f32)


# name, numbers in a block, its bytes, formula, where the f16 scales stand
FORMATS = [
    ("F32", 1, 4, f32_numbers, ()), ("F16", 1, 2, half, (0,)), ("BF16", 1, 2, bf16_numbers, ()),
    ("Q8_0", 32, 34, q8_0, (0,)), ("Q4_0", 32, 18, q4_0, (0,)), ("Q4_1", 32, 20, q4_1, (0, 2)),
    ("Q5_0", 32, 22, q5_0, (0,)), ("Q5_1", 32, 24, q5_1, (0, 2)), ("Q2_K", 256, 84, q2_k, (80, 82)),
    ("Q3_K", 256, 110, q3_k, (108,)), ("Q4_K", 256, 144, q4_k, (0, 2)), ("Q5_K", 256, 176, q5_k, (0, 2)),
    ("Q6_K", 256, 210, q6_k, (208,)), ("IQ2_XXS", 256, 66, iq2_xxs, (0,)), ("IQ4_NL", 32, 18, iq4_nl, (0,)),
    ("IQ4_XS", 256, 136, iq4_xs, (0,)), ("MXFP4", 32, 17, mxfp4, ()),
]


def make_blocks(name, size, scales):
    b = rng.integers(0, 256, size=(BLOCKS, size), dtype=np.uint8)
    b[2] = 255
    for i in range(BLOCKS):
        for at in scales:
            value = np.float16(3e-7 if i == 3 else rng.normal() * 0.02)  # the last: a subnormal
            b[i, at:at + 2] = np.frombuffer(value.tobytes(), dtype=np.uint8)
    if name in ("F32", "BF16"):
        x = (rng.normal(size=BLOCKS) * 0.1).astype("<f4").view(np.uint8).reshape(BLOCKS, 4)
        b = x if name == "F32" else x[:, 2:]
    if name == "MXFP4":
        b[:, 0] = [120, 127, 1, 0]  # exponents; the last two give subnormals
    return np.ascontiguousarray(b)


for name, count, size, formula, scales in FORMATS:
    blocks = make_blocks(name, size, scales)
    numbers = np.ascontiguousarray(formula(blocks)).astype("<f4")
    assert numbers.shape == (BLOCKS, count), (name, numbers.shape)
    print(name, count, size)
    print(blocks.tobytes().hex())
    print(" ".join("%08x" % u for u in numbers.view("<u4").ravel()))
