"""A posterior: weighted prompts, and what is known of how they were found."""
from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Dict, Optional

from ._library import K, call, fail, lib, numpy, opened

FORMATS = {"peft": 0, "npz": 1, "jsonl": 2, "safetensors": 3}


class Posterior:
    """What tuning found: a distribution over prompts, ``samples`` of them with ``weights``.

    ``z`` holds their coordinates in the space that was searched, shape (samples, dim); methods that
    search no soft prompts have ``dim`` 0. ``Posterior.open(folder)`` reads any run folder, the
    program's too; a fitted classifier has its own as ``posterior_``.
    """

    def __init__(self, handle: ctypes.c_void_p, owner: Any = None, box: Any = None) -> None:
        self._handle = handle
        self._owner = owner  # keeps what the handle belongs to; None: it is ours
        self._box = box

    @classmethod
    def open(cls, folder: "str | os.PathLike[str]") -> "Posterior":
        """Reads posterior.json and posterior.safetensors of a run folder."""
        return cls(opened("kh_posterior_open", os.fsencode(folder)))

    def __del__(self) -> None:
        try:
            if self._owner is None and self._handle:
                lib.kh_posterior_free(self._handle)
        except Exception:
            pass

    @property
    def _info(self) -> Any:
        return lib.kh_posterior_describe(self._handle)

    @property
    def method(self) -> str:
        """The method that found it; of "auto" the one that won."""
        return self._info.method.decode()

    @property
    def samples(self) -> int:
        return self._info.samples

    @property
    def dim(self) -> int:
        return self._info.dim

    @property
    def dev(self) -> float:
        """The task's metric on the rows that it was chosen on, before calibration."""
        return self._info.dev

    @property
    def score(self) -> float:
        """Mean -log p of calibrated answers, cross-validated; NaN where it is not known."""
        return self._info.score

    @property
    def queries(self) -> int:
        """Questions that it took: one prompt with one row."""
        return self._info.train_queries + self._info.dev_queries

    @property
    def stopped(self) -> str:
        """Why tuning ended."""
        return (self._info.stopped or b"").decode()

    @property
    def model(self) -> str:
        return (self._info.model or b"").decode()

    @property
    def precision(self) -> str:
        return (self._info.precision or b"").decode()

    @property
    def access(self) -> str:
        return lib.kh_access_name(self._info.access).decode()

    @property
    def seed(self) -> int:
        return self._info.seed

    @property
    def task(self) -> Dict[str, Any]:
        """Template and label words."""
        t = self._info.task.contents
        labels = [t.label[k] for k in range(t.n_label)]
        return {
            "name": t.name.decode(),
            "template": t.plain.decode(),
            "labels": {
                label.name.decode(): [label.word[i].decode() for i in range(label.n_word)]
                for label in labels
            },
        }

    def _floats(self, pointer: Any, *shape: int) -> Any:
        np = numpy()
        if np:
            return np.ctypeslib.as_array(pointer, shape).copy()
        n = shape[-1]
        flat = pointer[: shape[0] * (n if len(shape) == 2 else 1)]
        return flat if len(shape) == 1 else [flat[i : i + n] for i in range(0, len(flat), n)]

    @property
    def z(self) -> Any:
        """The samples' coordinates, (samples, dim); None without soft prompts."""
        i = self._info
        return self._floats(lib.kh_posterior_z(self._handle), i.samples, i.dim) if i.dim else None

    @property
    def weights(self) -> Any:
        """The samples' weights, which add up to one."""
        return self._floats(lib.kh_posterior_weights(self._handle), self._info.samples)

    def prompt(self, sample: int) -> Any:
        """The soft prompt that a sample stands for, (slots, hidden)."""
        i = self._info
        if not 0 <= sample < i.samples or not i.dim:
            raise IndexError(f"soft prompt {sample} of {i.samples if i.dim else 0}")
        out = (ctypes.c_float * (i.slots * i.hidden))()
        call("kh_posterior_prompt", self._handle, self._need_box(), sample, out)
        return self._floats(ctypes.cast(out, ctypes.POINTER(ctypes.c_float)), i.slots, i.hidden)

    def export(self, path: "str | os.PathLike[str]", format: str = "npz") -> None:
        """Writes the soft prompts for other tools: "npz", "jsonl", "safetensors" or "peft"."""
        if format not in FORMATS:
            raise ValueError(f"format {format!r}: one of {', '.join(FORMATS)}")
        box = self._need_box()
        call("kh_posterior_export", self._handle, box, FORMATS[format], os.fsencode(path), None)

    def _need_box(self) -> Any:
        if self._box is None:
            from ._box import OpenBox, is_url

            if is_url(self.model):  # whoever made the folder chose it, and would be sent the key
                raise fail(
                    K.KH_EARG,
                    "an address that stands in a folder is not contacted unless you name it yourself: "
                    f"KeyholeClassifier.load(folder, model={self.model!r}).posterior_",
                )
            precision = self.precision if self.precision in ("f32", "bf16", "int8") else "f32"
            self._box = OpenBox(self.model, self.access, precision)
        return self._box.handle

    def __repr__(self) -> str:
        return f"<Posterior of {self.method}: {self.samples} samples, dev {self.dev:.3f}>"
