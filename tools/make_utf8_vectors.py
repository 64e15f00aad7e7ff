#!/usr/bin/env python3
"""Writes tests/vectors/utf8/broken.txt: byte sequences, most of them broken, and what Python's errors="replace" makes of them.

One case a line: the bytes in hexadecimal, a space, the code points in hexadecimal with commas between.
    python3 tools/make_utf8_vectors.py > tests/vectors/utf8/broken.txt
"""
import itertools
import random

# First and last bytes of every row of the Unicode standard's table of well-formed sequences (3-7), and their neighbours.
EDGES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
         0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF]

cases = [bytes([b]) for b in EDGES] + [bytes(p) for p in itertools.product(EDGES, repeat=2) if p[0] >= 0x80]
rng = random.Random(1)
while len(cases) < 1600:
    cases.append(bytes(rng.choice(EDGES) for _ in range(rng.randrange(3, 9))))
for c in cases:
    print(c.hex(), ",".join(f"{ord(ch):X}" for ch in c.decode("utf-8", errors="replace")))
