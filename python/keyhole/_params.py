"""What a classifier's parameters may be: said by name before a model is opened or a question asked."""
from __future__ import annotations

import math
import operator
import os
from typing import Any, Mapping, Optional, Sequence, Tuple

from ._box import Box
from ._library import K, KeyholeError, fail


def wrong(sentence: str) -> KeyholeError:
    return fail(K.KH_EARG, sentence)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number of Python's or NumPy's; never a rounded one."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise wrong(f"{name} is {value!r}; a whole number from {low} on is expected")
    return number


def _seconds(budget: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    try:
        return float(budget[:-1]) * units[budget[-1:]]
    except (KeyError, ValueError):
        return math.nan


def budget_of(budget: Any) -> Tuple[Optional[int], Optional[float]]:
    """The most questions, the most seconds; None where there is no such limit.

    The library takes 0 for "no limit", which nobody means by a budget of 0.
    """
    if budget is None:
        return None, None
    seconds = _seconds(budget) if isinstance(budget, str) else math.nan
    if 0 < seconds < math.inf:
        return None, seconds
    try:
        number = 0 if isinstance(budget, (str, bool)) else int(budget)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number <= 0:
        raise wrong(f"budget {budget!r}: a number of questions, or a time such as \"90s\" or \"10m\"")
    return number, None


def _model(model: Any) -> None:
    if isinstance(model, (str, os.PathLike, Box)):
        return
    if callable(model):
        name = getattr(model, "__name__", "function")
        raise wrong(f"model is a function; give it as Box({name}), which says what it answers")
    raise wrong(f"model is {model!r}; a name, a folder, a file, an address or a Box is expected")


def check_params(clf: Any) -> None:
    """Raises for the first parameter that cannot be meant."""
    _model(clf.model)
    budget_of(clf.budget)
    _whole("seed", clf.seed, 0, (1 << 64) - 1)
    _whole("max_train", clf.max_train, 1, 1 << 31)
    _whole("max_dev", clf.max_dev, 1, 1 << 31)
    share = clf.dev_share
    if isinstance(share, str) or not 0 <= share < 1:
        raise wrong(f"dev_share is {share!r}; a share of the rows is expected, from 0 to less than 1")
    if clf.labels is not None and not isinstance(clf.labels, Mapping):
        raise wrong(f"labels is {clf.labels!r}; {{class: name}} is expected")


def check_classes(
    names: Optional[Mapping[Any, Any]], labels: Sequence[Any], divided: bool
) -> None:
    """Names are for classes that are there, and a class that is divided has a text for each part.

    A fold of a cross-validation may lack a class: one name that fits is enough.
    """
    if names and not any(c in names for c in labels):
        first = next(iter(names))
        raise wrong(f"labels: {first!r} is not a class; there are {sorted(set(map(repr, labels)))[:9]}")
    if not divided:
        return
    for c in dict.fromkeys(labels):
        if labels.count(c) == 1:
            raise wrong(f"class {c!r} has one text; two are needed, to learn from and to choose on")
