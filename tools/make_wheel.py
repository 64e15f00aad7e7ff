#!/usr/bin/env python3
"""make_wheel.py VERSION ARCH GLIBC TREE OUT - a wheel of the folder TREE (which holds keyhole/) in the folder OUT.

No build back end is needed: a wheel is a zip of the files, three lists and a name. GLIBC, as tools/bundle.sh prints it, makes the
platform tag (PEP 600): pip refuses the wheel where the C library is older. The same tree gives the same bytes.
"""
import base64
import hashlib
import sys
import zipfile
from pathlib import Path

version, arch, glibc, tree, out = sys.argv[1:6]
tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{arch}"
info = f"keyhole-{version}.dist-info"
readme = Path("python/README.md").read_text(encoding="utf-8")
metadata = f"""Metadata-Version: 2.1
Name: keyhole
Version: {version}
Summary: A text classifier with trustworthy uncertainty from a frozen language model
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Programming Language :: Python :: 3
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

{readme}"""
wheel = f"Wheel-Version: 1.0\nGenerator: keyhole\nRoot-Is-Purelib: false\nTag: {tag}\n"

files = {str(p.relative_to(tree)): p.read_bytes() for p in sorted(Path(tree).rglob("*")) if p.is_file() and "__pycache__" not in p.parts}
files[f"{info}/METADATA"] = metadata.encode()
files[f"{info}/WHEEL"] = wheel.encode()
for name in ("LICENSE", "NOTICE"):
    files[f"{info}/{name}"] = Path(name).read_bytes()


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
path = Path(out) / f"keyhole-{version}-{tag}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
    for name, data in files.items():
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = 0o644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        z.writestr(entry, data)
print(path)
