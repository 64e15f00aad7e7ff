"""The shared library: where it is, how it is called, how its sentences become exceptions."""
from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Optional, Type

from ._header import Header

log = logging.getLogger("keyhole")

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent  # of the sources, where this is python/keyhole


class KeyholeError(Exception):
    """What keyhole could not do, in one sentence: the file, the place, what was found, the remedy.

    ``code`` is the library's number for the kind of failure (``KH_EARG`` and so on), ``line`` the
    line of the file that the sentence names, or 0. Wrong arguments and malformed data are
    ``ValueError`` as well, missing files ``FileNotFoundError``, and so on, so that code that knows
    nothing of keyhole can handle them.
    """

    code: int = 0
    line: int = 0


class _Value(KeyholeError, ValueError):
    pass


class _Missing(KeyholeError, FileNotFoundError):
    pass


class _Memory(KeyholeError, MemoryError):
    pass


class _Disk(KeyholeError, OSError):
    pass


class Stopped(KeyholeError):
    """A callback asked the work to stop."""


for _kind in (_Value, _Missing, _Memory, _Disk):
    _kind.__name__ = _kind.__qualname__ = "KeyholeError"

_KINDS: Dict[str, Type[KeyholeError]] = {
    "KH_EARG": _Value,
    "KH_EFORMAT": _Value,
    "KH_EMISMATCH": _Value,
    "KH_EMISSING": _Missing,
    "KH_ENOMEM": _Memory,
    "KH_EIO": _Disk,
    "KH_STOPPED": Stopped,
}


def _first(*paths: Path) -> Optional[Path]:
    return next((p for p in paths if p.is_file()), None)


def _open() -> "tuple[Any, Header]":
    named = os.environ.get("KEYHOLE_LIBRARY")
    header = _first(HERE / "keyhole.h", TREE / "include" / "keyhole.h")
    if header is None:
        raise ImportError(f"{HERE}: keyhole.h is not there; it comes with the package")
    found = named or _first(HERE / "lib" / "libkeyhole.so.0", TREE / "build/release/libkeyhole.so")
    try:
        lib = ctypes.CDLL(str(found or "libkeyhole.so.0"))
    except OSError as e:
        raise ImportError(
            f"libkeyhole.so.0 cannot be loaded ({e}); install the wheel or libkeyhole0, run "
            "\"make\" in keyhole's sources, or set KEYHOLE_LIBRARY to the file"
        ) from None
    return lib, Header(header.read_text(encoding="utf-8"))


lib, _header = _open()
K = SimpleNamespace(**_header.constants)  #: the header's constants
S = SimpleNamespace(**{k: v for k, v in _header.structs.items() if v})  #: its structs
header_version = _header.values["KH_VERSION"]

for _name, (_result, _parameters) in _header.functions.items():
    _function = getattr(lib, _name, None)
    if _function is not None:
        _function.restype = _result
        _function.argtypes = _parameters

version = lib.kh_version().decode()
if version != header_version:
    raise ImportError(
        f"the library is keyhole {version}, this package is for {header_version}; install both of "
        "one version"
    )

_KIND_OF = {getattr(K, name): kind for name, kind in _KINDS.items()}


def fail(code: int, sentence: str) -> KeyholeError:
    """An exception of the kind that the code says."""
    e = _KIND_OF.get(code, KeyholeError)(sentence)
    e.code = code
    return e


def check(rc: int, err: Any) -> int:
    """Raises what a call has said; gives its result back if it did not fail."""
    if rc == 0:
        return 0
    e = fail(rc, err.msg.decode("utf-8", "replace"))
    e.line = err.line
    raise e


def call(name: str, *args: Any) -> None:
    """Calls a function whose last parameter is kh_err, and raises if it fails."""
    err = S.kh_err()
    check(getattr(lib, name)(*args, ctypes.byref(err)), err)


def opened(name: str, *args: Any) -> ctypes.c_void_p:
    """The same for functions whose first parameter gets the new object."""
    out = ctypes.c_void_p()
    call(name, ctypes.byref(out), *args)
    return out


def text_of(function: str, *args: Any) -> str:
    """The same for functions that give fresh text by their last but one parameter."""
    out = ctypes.c_void_p()
    call(function, *args, ctypes.byref(out))
    try:
        return ctypes.string_at(out).decode("utf-8", "replace")
    finally:
        lib.kh_text_free(out)


def path_bytes(path: Any) -> bytes:
    return os.fsencode(path)


def numpy() -> Any:
    """NumPy, or None where it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy
