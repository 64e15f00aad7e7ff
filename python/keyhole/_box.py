"""Models: those that the library opens, and a function of one's own as one."""
from __future__ import annotations

import ctypes
import os
import zlib
from typing import Any, Callable, List, Optional, Sequence

from ._library import K, S, call, fail, lib, numpy, opened

ACCESS = {"labels": 0, "logprobs": 1, "weights": 2}
PRECISION = {"f32": 0, "bf16": 1, "int8": 2, "auto": 3}


def is_url(model: Any) -> bool:
    return isinstance(model, str) and model.startswith(("http://", "https://"))


class Box:
    """A model of your own: a function that answers questions about texts.

    ``function(texts)`` gets a list of texts and answers each; ``function(texts, prompts)``, if
    ``hidden`` is given, answers each text under each soft prompt. What methods see of it is
    ``access``:

    - ``"labels"``: it returns a class for each text, by its name or its number in the order of the
      classes; methods such as ``smc`` tune with nothing else.
    - ``"logprobs"``: it returns a row of log-probabilities (or logits), one for each class.

    With prompts, an array of shape (prompts, slots, ``hidden``), it returns such a list for each
    prompt; ``prompts`` is None where a question has none, and then it returns one list.

    A text is the task's template with the row's text filled in and the tokenizer's mask where the
    label word would stand: what a language model would be asked. ``raw=True`` gives the row's own
    text instead (a pair as a tuple), for functions that ask in their own way.

    The answers must depend on the question alone: a run that is resumed does not ask again.
    ``fingerprint`` is any text or number that changes when answers would; a classifier tuned on one
    box refuses another.

    >>> box = Box(lambda texts: [int("good" in t) for t in texts], access="labels")
    >>> KeyholeClassifier(model=box, method="manual").fit(texts, y)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        access: str = "labels",
        *,
        hidden: int = 0,
        raw: bool = False,
        name: str = "python",
        tokenizer: str = "builtin",
        max_len: int = 512,
        fingerprint: Any = None,
    ) -> None:
        if access not in ("labels", "logprobs"):
            raise fail(K.KH_EARG, f"access is {access!r}; a box gives \"labels\" or \"logprobs\"")
        self.function = function
        self.access = access
        self.hidden = hidden
        self.raw = raw
        self.name = name
        self.tokenizer = tokenizer
        self.max_len = max_len
        self.fingerprint = fingerprint

    def __repr__(self) -> str:
        what = getattr(self.function, "__name__", "function")
        return f"Box({what}, access={self.access!r}, hidden={self.hidden})"


class OpenBox:
    """A kh_plm, from a model's name or a Box. Closed when nobody holds it any more."""

    def __init__(self, model: Any, access: str, precision: str, hooks: Any = None) -> None:
        self.handle: Optional[ctypes.c_void_p] = None
        self.failure: Optional[BaseException] = None  # of the function, for its caller
        if isinstance(model, Box):
            self._box = model
            self.name = model.name
            self.access = model.access
            self._open_own()
            return
        for name, value, known in (("access", access, ACCESS), ("precision", precision, PRECISION)):
            if value not in known:
                raise fail(K.KH_EARG, f"{name} is \"{value}\"; there are {', '.join(known)}")
        self.access = access
        self.name = os.fspath(model)
        if not is_url(model) and os.path.exists(self.name):
            self.name = os.path.abspath(self.name)
        http = lib.kh_http_defaults()
        opts = S.kh_plm_opts(access=ACCESS[access], precision=PRECISION[precision])
        opts.hooks = ctypes.pointer(hooks) if hooks is not None else None
        opts.http = ctypes.pointer(http)
        self.handle = opened("kh_plm_open", os.fsencode(self.name), ctypes.byref(opts))

    def _open_own(self) -> None:
        b = self._box
        mark = b.fingerprint if isinstance(b.fingerprint, int) else None
        if mark is None:
            mark = zlib.crc32(repr((b.name, b.fingerprint)).encode())
        types = dict(S.kh_box._fields_)
        self._answer = types["answer"](self._on_answer)
        self._score = types["score"](self._on_score)
        table = S.kh_box(
            name=b.name.encode(),
            access=ACCESS[b.access],
            tokenizer=os.fsencode(b.tokenizer),
            hidden=b.hidden,
            max_len=b.max_len,
            fingerprint=mark & 0xFFFFFFFFFFFFFFFF,
        )
        if b.access == "labels":
            table.answer = self._answer
        else:
            table.score = self._score
        self.handle = opened("kh_plm_new", ctypes.byref(table), None)
        self._tokenizer = lib.kh_plm_tokenizer(self.handle)
        special = (K.KH_TOKEN_BOS, K.KH_TOKEN_EOS)
        self._frame = {lib.kh_tokenizer_special(self._tokenizer, s) for s in special} - {-1}

    # ---- questions, as the function sees them

    def _filled(self, batch: Any, row: int) -> str:
        """The ids of a row's first sequence as text, without slots and without <s> and </s>."""
        s = row * batch.n_variant
        start, end = batch.start[s], batch.start[s + 1]
        slot = batch.slot[s] if batch.n_slot else -1
        slots = range(slot, slot + batch.n_slot) if slot >= 0 else range(0)
        ids = [
            batch.id[start + i]
            for i in range(end - start)
            if i not in slots and batch.id[start + i] not in self._frame
        ]
        out, n = ctypes.c_void_p(), ctypes.c_size_t()
        array = (ctypes.c_int32 * max(len(ids), 1))(*ids)
        call(
            "kh_tokenizer_decode",
            self._tokenizer,
            array,
            len(ids),
            False,
            ctypes.byref(out),
            ctypes.byref(n),
        )
        try:
            return ctypes.string_at(out, n.value).decode("utf-8", "replace").strip()
        finally:
            lib.kh_text_free(out)

    def _texts(self, batch: Any) -> List[Any]:
        if not self._box.raw:
            return [self._filled(batch, r) for r in range(batch.n_row)]
        texts: List[Any] = []
        for r in range(batch.n_row):
            row = batch.given[batch.row[r]]
            a = _bytes(row, "a").decode("utf-8", "replace")
            b = _bytes(row, "b").decode("utf-8", "replace") if row.n_b or row.b is not None else None
            texts.append(a if b is None else (a, b))
        return texts

    def _prompts(self, q: Any) -> Any:
        batch = q.batch.contents
        if not batch.n_slot or not q.prompt:
            return None
        shape = (q.n_prompt, batch.n_slot, self._box.hidden)
        np = numpy()
        if np:
            return np.ctypeslib.as_array(q.prompt, shape).copy()
        flat = q.prompt[: shape[0] * shape[1] * shape[2]]
        rows = [flat[i : i + shape[2]] for i in range(0, len(flat), shape[2])]
        return [rows[i : i + shape[1]] for i in range(0, len(rows), shape[1])]

    def _ask(self, q: Any) -> "tuple[Any, List[Any]]":
        """The function's answers, a list for each prompt, and the batch they are about."""
        batch = q.batch.contents
        texts, prompts = self._texts(batch), self._prompts(q)
        if prompts is None:
            said = [self._box.function(texts, None) if self._box.hidden else self._box.function(texts)]
        else:
            said = list(self._box.function(texts, prompts))
        wanted = 1 if prompts is None else q.n_prompt
        if len(said) != wanted or any(len(rows) != batch.n_row for rows in said):
            shape = f"{len(said)} x {[len(r) for r in said][:3]}"
            raise ValueError(
                f"the function returned {shape} answers; {wanted} prompts x {batch.n_row} texts were asked"
            )
        return batch, said

    def _failed(self, e: BaseException, err: Any) -> int:
        self.failure = self.failure or e
        code = K.KH_EIO if isinstance(e, Exception) else K.KH_STOPPED
        sentence = f"{type(e).__name__}: {e}".encode("utf-8", "replace")
        return lib.kh_err_set(err, code, sentence)

    def _on_answer(self, user: Any, question: Any, label: Any, err: Any) -> int:
        try:
            batch, said = self._ask(question.contents)
            names = _names(batch.task)
            flat = [_code(v, names) for rows in said for v in rows]
            ctypes.memmove(label, (ctypes.c_int * len(flat))(*flat), 4 * len(flat))
        except BaseException as e:  # it cannot pass through C
            return self._failed(e, err)
        return 0

    def _on_score(self, user: Any, question: Any, logits: Any, err: Any) -> int:
        try:
            batch, said = self._ask(question.contents)
            n_label = question.contents.words.contents.n_label
            flat: List[float] = []
            for row in (row for rows in said for row in rows):
                if len(row) != n_label:
                    raise ValueError(f"{len(row)} numbers for a text; there are {n_label} classes")
                flat.extend(float(v) for v in row)
            ctypes.memmove(logits, (ctypes.c_float * len(flat))(*flat), 4 * len(flat))
        except BaseException as e:
            return self._failed(e, err)
        return 0

    def close(self) -> None:
        if self.handle:
            lib.kh_plm_close(self.handle)
            self.handle = None

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the end of the interpreter anything may be gone
            pass


def _bytes(row: Any, field: str) -> bytes:
    """A text of a kh_row by its length: it may hold NUL, and need not end in one."""
    at = ctypes.c_void_p.from_buffer(row, getattr(S.kh_row, field).offset).value
    return ctypes.string_at(at, getattr(row, "n_" + field)) if at else b""


def _names(task: Any) -> Sequence[str]:
    if not task:
        return []
    t = task.contents
    return [t.label[k].name.decode("utf-8", "replace") for k in range(t.n_label)]


def _code(value: Any, names: Sequence[str]) -> int:
    if isinstance(value, str):
        if value in names:
            return names.index(value)
        raise ValueError(f"the function answered {value!r}; the classes are {', '.join(names)}")
    return int(value)
