"""Texts and labels as they come from Python, for the library."""
from __future__ import annotations

import json
from typing import Any, Dict, Hashable, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._library import S

Text = Union[str, Tuple[str, str]]
_SPACE = "\t\n\v\f\r "  # what the library takes for white space around texts


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own."""
    return value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value


def as_texts(X: Iterable[Any]) -> List[Text]:
    """A list of texts, or of pairs of texts; from a list, an array, a pandas Series."""
    if isinstance(X, (str, bytes)):
        raise ValueError("a list of texts is expected, not one text: [text]")
    texts: List[Text] = []
    for i, item in enumerate(X):
        item = _plain(item)
        if not isinstance(item, str) and isinstance(item, Sequence) and len(item) == 1:
            item = item[0]  # a table of one column
        if isinstance(item, str):
            texts.append(item)
        elif (
            hasattr(item, "__len__")
            and len(item) == 2
            and all(isinstance(t, str) for t in item)
        ):
            texts.append((item[0], item[1]))
        else:
            raise ValueError(f"text {i} is {type(item).__name__}; a text or a pair of texts is expected")
    if len({isinstance(t, tuple) for t in texts}) > 1:
        raise ValueError("some texts are pairs and some are not")
    return texts


def as_labels(y: Iterable[Any], n: int) -> List[Hashable]:
    labels = [_plain(v) for v in y]
    if len(labels) != n:
        raise ValueError(f"{n} texts, but {len(labels)} labels")
    for i, label in enumerate(labels):
        if label is None or label != label:
            raise ValueError(f"label {i} is {label}; every text needs a class")
    return labels


def in_order(labels: Iterable[Hashable]) -> List[Any]:
    """Each class once, sorted as scikit-learn sorts them."""
    found = set(labels)
    try:
        return sorted(found)  # type: ignore[type-var]
    except TypeError:
        return sorted(found, key=lambda c: (type(c).__name__, str(c)))


def as_array(texts: Sequence[Text]) -> Tuple[Any, List[bytes]]:
    """kh_row [n], and the bytes that it points into."""
    rows = (S.kh_row * max(len(texts), 1))()
    keep: List[bytes] = []
    for row, text in zip(rows, texts):
        parts = (text,) if isinstance(text, str) else text
        utf8 = [p.strip(_SPACE).encode("utf-8", "surrogatepass") for p in parts]
        keep += utf8
        row.a, row.n_a, row.label = utf8[0], len(utf8[0]), -1
        if len(utf8) == 2:
            row.b, row.n_b = utf8[1], len(utf8[1])
    return rows, keep


def as_jsonl(texts: Sequence[Text], names: Optional[Sequence[str]] = None) -> bytes:
    """One object a line, with the name of its class: names go before numbers, even "1"."""
    lines = []
    for i, text in enumerate(texts):
        row: Dict[str, Any] = (
            {"text": text} if isinstance(text, str) else {"text_a": text[0], "text_b": text[1]}
        )
        if names is not None:
            row["label"] = names[i]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines).encode("utf-8", "replace")


def divide(codes: Sequence[int], n_class: int, share: float, seed: int) -> Tuple[List[int], List[int]]:
    """Rows to learn from and rows to choose on, class by class, in an order that the seed decides."""
    import random

    order = list(range(len(codes)))
    random.Random(seed).shuffle(order)
    train: List[int] = []
    dev: List[int] = []
    for k in range(n_class):
        mine = [i for i in order if codes[i] == k]
        n_dev = min(max(1, round(share * len(mine))), len(mine) // 2)
        dev += mine[:n_dev]
        train += mine[n_dev:]
    return sorted(train), sorted(dev)


def task_json(template: str, classes: Sequence[Any], names: Sequence[str], words: Mapping[Any, Any]) -> bytes:
    """A task of a template, "{text} It was {mask}.", and words for the classes."""
    labels = []
    for c, name in zip(classes, names):
        said = words.get(c, name)
        labels.append({"name": name, "words": [said] if isinstance(said, str) else list(said)})
    soft = template if "{prompt}" in template else "{prompt} " + template
    task = {
        "name": "python",
        "template": template.replace("{prompt} ", "").replace("{prompt}", ""),
        "soft_template": soft,
        "labels": labels,
        "metric": "accuracy",
    }
    return json.dumps(task, ensure_ascii=False).encode("utf-8")
