"""keyhole: a frozen language model and a handful of labelled texts as a classifier that knows its limits.

>>> from keyhole import KeyholeClassifier
>>> clf = KeyholeClassifier().fit(texts, labels)
>>> clf.decide(["The parcel never came."])

``KeyholeClassifier`` is the whole package for most people. ``Box`` is a model of your own, given as
a function; ``Posterior`` the distribution over prompts that tuning finds; ``KeyholeError`` what any
call may raise. Everything is done by libkeyhole, the same library as behind the program
``keyhole``: run folders, sentences and bits are the same.
"""
from __future__ import annotations

import ctypes as _ctypes
from typing import Dict as _Dict

from ._box import Box
from ._classifier import Decision, KeyholeClassifier
from ._library import KeyholeError, S as _S, Stopped, lib as _lib, version as __version__
from ._posterior import Posterior
from ._progress import Progress

__all__ = [
    "Box",
    "Decision",
    "KeyholeClassifier",
    "KeyholeError",
    "Posterior",
    "Progress",
    "Stopped",
    "methods",
    "set_threads",
    "__version__",
]


def methods() -> _Dict[str, str]:
    """The methods of tuning, each with what it does in a line."""
    found: _Dict[str, str] = {}
    info = _S.kh_method_info()
    while _lib.kh_method_describe(len(found), _ctypes.byref(info)):
        found[info.name.decode()] = info.summary.decode()
    return found


def set_threads(n: int) -> None:
    """How many threads the library may use; 0: one for each core. Results do not depend on it."""
    _lib.kh_threads_set(n)
