#!/usr/bin/python3
"""decoder_files.py MODEL.gguf TYPE OUT.gguf - a GGUF file of the same shapes, names and vocabulary with random weights of one type (f32,
q8_0 or q4_0; vectors are f32), for measuring speed: how fast a product is does not depend on its numbers. Needs Debian's python3-numpy."""
import struct, sys
import numpy as np

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of the scalar types of values
STRING, ARRAY, BLOCK = 8, 9, 32
TYPES = {"f32": 0, "q4_0": 2, "q8_0": 8}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at])

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.take("I"), self.take("Q")
            for _ in range(n if inner in (STRING, ARRAY) else 0):
                self.skip(inner)
            self.at += n * SIZES.get(inner, 0)
        else:
            self.at += SIZES[kind]


def numbers(rng, kind, count):
    """Bytes of `count` random weights."""
    if kind == "f32":
        return (0.02 * rng.standard_normal(count, dtype=np.float32)).tobytes()
    width = 32 if kind == "q8_0" else 16
    blocks = np.zeros(count // BLOCK, dtype=[("scale", "<f2"), ("x", "u1", width)])
    blocks["scale"] = 0.02 / (40 if kind == "q8_0" else 4)
    blocks["x"] = rng.integers(0, 256, (count // BLOCK, width), dtype=np.uint8)
    return blocks.tobytes()


def main(source, kind, target):
    r = Reader(np.memmap(source, dtype=np.uint8, mode="r"))
    magic, version, n_tensor, n_value = (r.take(f) for f in ("4s", "I", "Q", "Q"))
    assert magic == b"GGUF", f"{source}: is no GGUF file"
    first, align = r.at, 32
    for _ in range(n_value):
        key, value = r.text(), r.take("I")
        if key == b"general.alignment":
            align = struct.unpack_from("<I", r.data, r.at)[0]
        r.skip(value)
    values = bytes(r.data[first:r.at])
    infos, parts, at = b"", [], 0
    for _ in range(n_tensor):
        name, rank = r.text(), r.take("I")
        shape = [r.take("Q") for _ in range(rank)]
        r.take("I"), r.take("Q")
        count, mine = int(np.prod(shape)), kind if rank > 1 else "f32"
        size = count * 4 if mine == "f32" else count // BLOCK * (34 if mine == "q8_0" else 18)
        infos += struct.pack("<Q", len(name)) + name + struct.pack(f"<I{rank}QIQ", rank, *shape, TYPES[mine], at)
        parts.append((mine, count, at))
        at += -(-size // align) * align
    rng = np.random.default_rng(1)
    with open(target, "wb") as f:
        f.write(struct.pack("<4sIQQ", magic, version, n_tensor, n_value) + values + infos)
        f.write(b"\0" * (-f.tell() % align))
        start = f.tell()
        for mine, count, offset in parts:
            f.seek(start + offset)
            f.write(numbers(rng, mine, count))
        f.truncate(start + at)


main(*sys.argv[1:4])
