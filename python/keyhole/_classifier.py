"""KeyholeClassifier: a frozen language model as a scikit-learn classifier that knows its limits."""
from __future__ import annotations

import ctypes
import inspect
import json
import os
import shutil
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ._box import Box, OpenBox, is_url
from ._files import is_own, make_folder, own_files, write_file
from ._library import K, KeyholeError, S, Stopped, call, fail, lib, log, numpy, opened, text_of
from ._params import budget_of, check_classes, check_params
from ._posterior import Posterior
from ._progress import Wanted, Watch
from ._rows import Text, as_array, as_jsonl, as_labels, as_texts, divide, in_order, task_json

AUTO_TOKENS = 120000  # as "keyhole tune FILE": a minute on two cores with the built-in model
NOTES = "python.json"  # what the library's files do not say: the classes as Python has them
NOT_PICKLED = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock")
KEPT = {  # parameters that the notes of a run may say, and what they are; a folder chooses no other
    "method": (str,),
    "access": (str, type(None)),
    "budget": (int, str, type(None)),
    "seed": (int,),
    "precision": (str,),
    "dev_share": (int, float),
}
SPACE = ("dim", "slots")
OURS = SPACE + ("features_model",)  # options that are not the method's


class Decision(NamedTuple):
    """What to do with one text."""

    label: Any  #: the most probable class; None: a service refused to answer
    confidence: float  #: its probability
    set: List[Any]  #: classes that hold the true one as often as promised
    abstain: bool  #: better not answer: the promised risk would not hold
    out_of_distribution: bool  #: not the kind of text it was tuned for


class KeyholeClassifier:
    """Tunes a frozen language model on a few labelled texts, and says how sure it is.

    Follows scikit-learn's conventions (``fit``, ``predict``, ``predict_proba``, ``score``,
    ``get_params``), and needs neither scikit-learn nor NumPy; arrays come back as arrays where
    NumPy is installed, else as lists.

    Parameters
    ----------
    model : "builtin", the folder of a model, a GGUF file, the address of a service, or a Box.
    method : "auto" tries what the access level allows and keeps the best; "manual", "bbt",
        "ensemble", "smc", ... (``keyhole.methods()``).
    task : None makes a template and label words from the labels; a template such as
        ``"{text} It was {mask}."``; the name of a built-in task; a task file.
    labels : what the classes are called where their values say nothing: ``{0: "bad", 1: "good"}``.
        With a template, the words that stand for them.
    access : what the model may let out: "labels", "logprobs", "weights"; None: what the method
        needs.
    budget : the most questions to ask (one prompt with one text), or a time such as "90s" or "10m".
    effort : "quick", "normal", "thorough" or "paper": how large soft prompts, samples and budgets are
        where nothing else says so.
    out : the folder of the run, the same files as ``keyhole tune --out``; None: one that goes with
        this object.
    seed : the same seed and texts give the same bits.
    precision : "f32", "bf16", "int8" or "auto".
    options : those of the method, e.g. ``{"members": 5}``; "dim" and "slots" of soft prompts; and
        "features_model", the local model that tells foreign texts by their distance (None: none).
    dev_share : of the rows of each class, what is kept to choose and to calibrate on.
    max_train, max_dev : more rows than these are not used: every one of them costs a question for
        each prompt.
    resume : go on with the run in ``out`` if there is one; it must have the same texts and options.
    overwrite : start again, whatever ``out`` holds.
    progress : "auto" shows a line on a terminal and in a notebook; True, False; or a function that
        gets a ``keyhole.Progress``.

    >>> clf = KeyholeClassifier().fit(texts, labels)
    >>> clf.decide(["The parcel never came."])
    [Decision(label='delivery', confidence=0.93, set=['delivery'], abstain=False, ...)]
    """

    _estimator_type = "classifier"

    def __init__(
        self,
        model: Any = "builtin",
        method: str = "auto",
        task: Any = None,
        labels: Optional[Mapping[Any, Any]] = None,
        access: Optional[str] = None,
        budget: Union[None, int, str] = None,
        out: Any = None,
        *,
        effort: str = "normal",
        seed: int = 13,
        precision: str = "f32",
        options: Optional[Mapping[str, Any]] = None,
        dev_share: float = 0.25,
        max_train: int = 1000,
        max_dev: int = 500,
        resume: bool = True,
        overwrite: bool = False,
        progress: Wanted = "auto",
    ) -> None:
        self.model = model
        self.method = method
        self.task = task
        self.labels = labels
        self.access = access
        self.budget = budget
        self.out = out
        self.effort = effort
        self.seed = seed
        self.precision = precision
        self.options = options
        self.dev_share = dev_share
        self.max_train = max_train
        self.max_dev = max_dev
        self.resume = resume
        self.overwrite = overwrite
        self.progress = progress

    # ------------------------------------------------------------------ scikit-learn's conventions

    @classmethod
    def _names(cls) -> List[str]:
        return [n for n in inspect.signature(cls.__init__).parameters if n != "self"]

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        """The parameters of the constructor, by name."""
        return {n: getattr(self, n) for n in self._names()}

    def set_params(self, **params: Any) -> "KeyholeClassifier":
        """Changes parameters of the constructor; the next ``fit`` goes by them."""
        for name, value in params.items():
            if name not in self._names():
                raise ValueError(f"{name!r} is no parameter; there are {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(string=True, two_d_array=False),
        )

    def __repr__(self) -> str:
        usual = inspect.signature(type(self).__init__).parameters
        given = [
            f"{n}={getattr(self, n)!r}" for n in self._names() if getattr(self, n) is not usual[n].default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    # ------------------------------------------------------------------------------------- fitting

    def fit(self, X: Iterable[Any], y: Iterable[Any], dev: Any = None) -> "KeyholeClassifier":
        """Tunes on texts (or pairs of texts) and their classes.

        A share of the rows (``dev_share``) is kept to choose prompts, to calibrate and to decide
        when to abstain; ``dev=(texts, y)`` gives such rows instead. Ctrl-C keeps the run: every
        answer of the model is in its folder, and the same call with the same ``out`` goes on
        where it ended.
        """
        check_params(self)
        texts = as_texts(X)
        labels = as_labels(y, len(texts))
        dev_texts = as_texts(dev[0]) if dev is not None else []
        dev_labels = as_labels(dev[1], len(dev_texts)) if dev is not None else []
        check_classes(self.labels, labels + dev_labels, divided=dev is None)
        self._forget()
        fitting = _Fitting(self, texts, labels, dev_texts, dev_labels)
        with Watch(self.progress) as watch:
            try:
                fitting.run(watch)
            except Stopped:
                kept = fitting.keep()
                watch.rethrow(
                    f"every answer is kept in {kept}: fit with out={kept!r} and the same texts goes on"
                )
                raise
            except KeyholeError as e:
                if fitting.box is not None and isinstance(fitting.box.failure, Exception):
                    raise e from fitting.box.failure
                raise
            finally:
                fitting.close()
        if watch.exception is not None or watch.interrupted:
            watch.rethrow(f"the run in {fitting.keep()} is complete")
        self.run_ = str(fitting.folder)
        self._classes(fitting.classes)
        self._box = fitting.box
        self._temporary = fitting.temporary
        return self

    def _classes(self, classes: Sequence[Any]) -> None:
        np = numpy()
        self._class_list = list(classes)
        self.classes_ = np.array(classes) if np else list(classes)

    def _forget(self) -> None:
        for name in ("run_", "classes_", "_box", "_opened", "_temporary", "_html"):
            self.__dict__.pop(name, None)

    # ----------------------------------------------------------------------------------- answering

    def _classifier(self) -> "_Open":
        if not hasattr(self, "run_"):
            raise fail(K.KH_EARG, "this classifier is not fitted yet: call fit, or load a run")
        if self.__dict__.get("_opened") is None:
            if self.__dict__.get("_box") is None:
                self._box = _box_of(self.run_, self.model, self.access, self.precision)
            opened_run = _Open(self.run_, self._box)
            if opened_run.n_label != len(self._class_list):
                raise fail(
                    K.KH_EMISMATCH,
                    f"{self.run_}: has {opened_run.n_label} classes, {len(self._class_list)} are named",
                )
            self._opened = opened_run
        return self._opened

    def _run(self, X: Iterable[Any]) -> Tuple[List[Any], Any, Any]:
        return self._classifier().run(as_texts(X))

    def _named(self, label: int) -> Any:
        """A class; None for a text that a service refused to answer."""
        return self._class_list[label] if label >= 0 else None

    def predict(self, X: Iterable[Any]) -> Any:
        """The most probable class of each text."""
        said = [self._named(c.label) for c in self._run(X)[0]]
        if any(s is None for s in said):
            refused = [i for i, s in enumerate(said) if s is None]
            raise fail(
                K.KH_EIO,
                f"the service refused {len(refused)} of {len(said)} texts, the first is number {refused[0]}; "
                "decide() answers the others",
            )
        np = numpy()
        return np.array(said, dtype=self.classes_.dtype) if np else said

    def predict_proba(self, X: Iterable[Any]) -> Any:
        """Calibrated probabilities, (texts, classes), in the order of ``classes_``."""
        said, p, _ = self._run(X)
        k = len(self._class_list)
        np = numpy()
        if np:
            return np.ctypeslib.as_array(p)[: len(said) * k].reshape(len(said), k).copy()
        return [list(p[i * k : (i + 1) * k]) for i in range(len(said))]

    def predict_log_proba(self, X: Iterable[Any]) -> Any:
        """Their logarithms."""
        import math

        p = self.predict_proba(X)
        np = numpy()
        if np:
            with np.errstate(divide="ignore"):
                return np.log(p)
        return [[math.log(v) if v > 0 else -math.inf for v in row] for row in p]

    def predict_set(self, X: Iterable[Any]) -> List[List[Any]]:
        """A set of classes for each text that holds the true one with probability 0.9 or more."""
        return [d.set for d in self.decide(X)]

    def decide(self, X: Iterable[Any]) -> List[Decision]:
        """For each text: the class, how sure, the set, whether to abstain, whether it belongs here."""
        said, _, sets = self._run(X)
        k = len(self._class_list)
        return [
            Decision(
                self._named(c.label),
                c.confidence,
                [name for j, name in enumerate(self._class_list) if sets[i * k + j]],
                c.abstain,
                c.out_of_distribution,
            )
            for i, c in enumerate(said)
        ]

    def score(self, X: Iterable[Any], y: Iterable[Any], sample_weight: Any = None) -> float:
        """The share of texts whose most probable class is theirs."""
        said = [self._named(c.label) for c in self._run(X)[0]]
        labels = as_labels(y, len(said))
        weight = [1.0] * len(said) if sample_weight is None else [float(w) for w in sample_weight]
        right = sum(w for s, t, w in zip(said, labels, weight) if s == t)
        return right / sum(weight)

    @property
    def posterior_(self) -> Posterior:
        """The distribution over prompts that ``fit`` found."""
        c = self._classifier()
        handle = ctypes.c_void_p(lib.kh_classifier_posterior(c.handle))
        return Posterior(handle, owner=c, box=self._box)

    # ------------------------------------------------------------------------------------- judging

    def evaluate(
        self,
        X: Iterable[Any],
        y: Iterable[Any],
        ood: Union[None, Iterable[Any], Mapping[str, Iterable[Any]]] = None,
        compare: bool = True,
    ) -> Dict[str, Any]:
        """Judges on texts that were not learned from; returns what ``results.json`` holds.

        ``ood``: texts that do not belong, or several named lists of them. ``compare`` also asks the
        template alone. Writes results.json and report.html into the run's folder.
        """
        texts = as_texts(X)
        codes = self._codes(as_labels(y, len(texts)))
        self._classifier()
        with Watch(self.progress, self._box.handle) as watch, _Scratch() as scratch:
            try:
                e = _Evaluation(self, watch, texts, codes, scratch.write(ood), compare)
            except Stopped:
                watch.rethrow()
                raise
            try:
                call("kh_eval_save", e.handle, os.fsencode(self.run_), None)
                results = json.loads(text_of("kh_eval_json", e.handle, os.fsencode(self.run_)))
                self._html = text_of("kh_eval_html", e.handle, os.fsencode(self.run_))
            finally:
                e.close()
        self._opened = None  # the decisions may have changed
        watch.rethrow()
        return results

    def _codes(self, labels: Sequence[Any]) -> List[int]:
        known = {c: i for i, c in enumerate(self._class_list)}
        strange = [c for c in labels if c not in known]
        if strange:
            raise ValueError(f"{strange[0]!r} is not one of the classes that were tuned: {self._class_list}")
        return [known[c] for c in labels]

    def report_html(self, path: Any = None) -> str:
        """The report of the last ``evaluate`` as one self-contained page; written to ``path`` if given."""
        self._classifier()
        html = self.__dict__.get("_html")
        file = Path(self.run_) / "report.html"
        if html is None and is_own(file):
            html = file.read_text(encoding="utf-8")
        if html is None:
            raise fail(K.KH_EARG, "there is no report yet: call evaluate(texts, y) first")
        if path is not None:
            Path(path).write_text(html, encoding="utf-8")
        return html

    # ------------------------------------------------------------------------------------- keeping

    def save(self, path: Any) -> None:
        """Copies the run to a folder, which ``load``, ``keyhole predict`` and ``keyhole serve`` read."""
        self._classifier()
        target = Path(path)
        if target.exists() and any(target.iterdir()):
            raise fail(K.KH_EARG, f"{target}: is there and not empty; give another folder")
        root = Path(self.run_)
        target.mkdir(parents=True, exist_ok=True)
        for file in own_files(root):
            copy = target / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy, follow_symlinks=False)

    @classmethod
    def load(cls, path: Any, model: Any = None, **params: Any) -> "KeyholeClassifier":
        """A classifier from a run folder, of ``save`` or of the program.

        ``model`` says where the model is now; a run that was tuned on a service or a Box needs it:
        the folder is never trusted to name an address.
        """
        posterior = Posterior.open(path)
        names = list(posterior.task["labels"])
        notes = _notes(path, len(names))
        found = {"method": posterior.method, "seed": posterior.seed, "access": posterior.access}
        found.update(notes["params"])
        found.update(params)
        if model is None and (is_url(posterior.model) or notes["box"]):
            raise fail(K.KH_EARG, f"{path}: was not tuned on a model folder; give load its model")
        self = cls(model=model if model is not None else posterior.model, **found)
        self.run_ = str(Path(path).resolve())
        self._classes(notes["classes"] or names)
        return self

    def __getstate__(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {"params": self.get_params()}
        if hasattr(self, "run_"):
            root = Path(self.run_)
            state["classes"] = self._class_list
            state["files"] = {
                str(f.relative_to(root)): f.read_bytes()
                for f in own_files(root)
                if f.name not in NOT_PICKLED
            }
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if "files" not in state:
            return
        self._temporary = _Folder()
        for name, data in state["files"].items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise fail(K.KH_EFORMAT, f"{name!r} is no name of a file within a run")
            file = self._temporary.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.run_ = str(self._temporary.path)
        self._classes(state["classes"])


# ------------------------------------------------------------------------------------------ the run


class _Folder:
    """A folder that goes with its owner, unless it is kept."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="keyhole-"))
        self._remove = weakref.finalize(self, shutil.rmtree, str(self.path), True)

    def keep(self) -> None:
        self._remove.detach()


def _effort(name: str) -> int:
    start = "KH_EFFORT_"
    known = {n[len(start) :].lower(): v for n, v in vars(K).items() if n.startswith(start)}
    if name not in known:
        raise fail(K.KH_EARG, f"effort {name!r}: one of {', '.join(known)}")
    return known[name]


def _notes(path: Any, n_label: int) -> Dict[str, Any]:
    """What a run's notes say, of which nothing is believed: the folder may come from a stranger."""
    file = Path(path) / NOTES
    try:
        notes = json.loads(file.read_text(encoding="utf-8")) if is_own(file) else {}
    except (ValueError, RecursionError):
        raise fail(K.KH_EFORMAT, f"{file}: is not JSON") from None
    params = notes.get("params", {}) if isinstance(notes, dict) else None
    if not isinstance(params, dict):
        raise fail(K.KH_EFORMAT, f"{file}: must hold an object, and its \"params\" another one")
    params = {k: v for k, v in params.items() if k in KEPT}
    for name, value in params.items():
        if not isinstance(value, KEPT[name]) or isinstance(value, bool):
            raise fail(K.KH_EFORMAT, f"{file}: its {name} is {value!r:.80}")
    classes = notes.get("classes")
    simple = isinstance(classes, list) and all(isinstance(c, (str, int, float)) for c in classes)
    if classes is not None and not (simple and len(classes) == n_label == len(set(classes))):
        raise fail(
            K.KH_EMISMATCH, f"{file}: its \"classes\" must be {n_label} names or numbers that differ"
        )
    return {"params": params, "classes": classes, "box": bool(notes.get("box"))}


def _box_of(run: str, model: Any, access: Optional[str], precision: str) -> OpenBox:
    """The model of a run that was made before."""
    p = Posterior.open(run)
    at = access or p.access
    return OpenBox(model, "weights" if p.access == "weights" else at, precision)


class _Fitting:
    """One call of fit: the steps of ``keyhole tune FILE``, with rows from memory."""

    def __init__(
        self,
        clf: KeyholeClassifier,
        texts: List[Text],
        labels: List[Any],
        dev_texts: List[Text],
        dev_labels: List[Any],
    ) -> None:
        self.clf = clf
        self.texts, self.labels = texts, labels
        self.dev_texts, self.dev_labels = dev_texts, dev_labels
        self.box: Optional[OpenBox] = None
        self.temporary = _Folder() if clf.out is None else None
        self.folder = self.temporary.path if self.temporary else Path(clf.out).absolute()
        self.classes: List[Any] = []
        self._run = ctypes.c_void_p()
        self._task: Any = None
        self._split = S.kh_split()
        self._posterior = ctypes.c_void_p()

    def keep(self) -> str:
        if self.temporary:
            self.temporary.keep()
        return str(self.folder)

    def close(self) -> None:
        lib.kh_posterior_free(self._posterior)
        lib.kh_run_close(self._run)
        lib.kh_split_close(ctypes.byref(self._split))
        if self._task:
            lib.kh_task_close(self._task)
        self._posterior = self._run = ctypes.c_void_p()
        self._task = None

    def run(self, watch: Watch) -> None:
        clf = self.clf
        self._open_task()
        self._name_classes()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        opts = S.kh_run_opts(resume=clf.resume, overwrite=clf.overwrite, stop=watch.run_stop)
        self._run = opened("kh_run_open", os.fsencode(self.folder), ctypes.byref(opts))
        self._write_rows()
        read = S.kh_dataset_opts(task=self._task, label_names=not self._task)
        data = os.fsencode(self.folder / "data")
        call("kh_split_open", ctypes.byref(self._split), data, 0, clf.seed, ctypes.byref(read))
        self.box = OpenBox(clf.model, self._access(), clf.precision, watch.hooks)
        watch.box = self.box.handle
        if not self._task:
            self._make_task(watch)
        lib.kh_plm_has_seen(self.box.handle, self._task, ctypes.byref(watch.hooks))
        self._tune(watch)

    # ---- what is tuned

    def _open_task(self) -> None:
        task = self.clf.task
        if task is None or (isinstance(task, str) and "{mask}" in task):
            return  # made later, of the labels
        self._task = ctypes.POINTER(S.kh_task)()
        if isinstance(task, Mapping):
            text = json.dumps(task).encode()
            call("kh_task_parse", ctypes.byref(self._task), text, len(text), b"task")
        else:
            call("kh_task_open", ctypes.byref(self._task), os.fsencode(task))

    def _name_classes(self) -> None:
        """Sets classes, the names that the task has for them, and codes."""
        found = in_order(self.labels + self.dev_labels)
        words = self.clf.labels or {}
        if self._task:
            t = self._task.contents
            self.names = [t.label[k].name.decode() for k in range(t.n_label)]
            by_number = all(isinstance(c, int) and 0 <= c < t.n_label for c in found)
            self.classes = list(range(t.n_label)) if by_number else list(self.names)
            called = {c: words.get(c, c) for c in found}
            strange = [c for c in found if called[c] not in self.classes]
            if strange:
                raise fail(
                    K.KH_EMISMATCH,
                    f"{strange[0]!r} is not a label of task \"{t.name.decode()}\": "
                    f"{', '.join(self.names)}",
                )
            back = {called[c]: c for c in found}
            self.classes = [back.get(c, c) for c in self.classes]
        else:
            self.classes = found
            plain = {c: w for c, w in words.items() if isinstance(w, str) and not self._template()}
            self.names = [str(plain.get(c, c)).strip() for c in found]
        if len(found) < 2:
            raise fail(K.KH_EFORMAT, f"{len(found)} classes; at least two are needed to tell apart")
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise fail(K.KH_EARG, f"classes need names that differ: {', '.join(map(repr, self.names))}")
        if self._template():
            text = task_json(self._template(), self.classes, self.names, words)
            self._task = ctypes.POINTER(S.kh_task)()
            call("kh_task_parse", ctypes.byref(self._task), text, len(text), b"task")

    def _template(self) -> str:
        task = self.clf.task
        return task if isinstance(task, str) and "{mask}" in task else ""

    def _write_rows(self) -> None:
        """RUN/data, so that the run can be judged and resumed by whoever has the folder."""
        clf, known = self.clf, {c: i for i, c in enumerate(self.classes)}
        codes = [known[c] for c in self.labels]
        texts, dev_texts = self.texts, self.dev_texts
        dev_codes = [known[c] for c in self.dev_labels]
        if not dev_texts:
            train, dev = divide(codes, len(self.classes), clf.dev_share, clf.seed)
            dev_texts, dev_codes = [texts[i] for i in dev], [codes[i] for i in dev]
            texts, codes = [texts[i] for i in train], [codes[i] for i in train]
        parts = (("train", texts, codes, clf.max_train), ("dev", dev_texts, dev_codes, clf.max_dev))
        folder = self.folder / "data"
        make_folder(folder)
        write_file(folder / "labels.txt", ("\n".join(self.names) + "\n").encode("utf-8"))
        for name, rows, numbers, most in parts:
            chosen = _at_most(numbers, most, clf.seed)
            jsonl = as_jsonl([rows[i] for i in chosen], [self.names[numbers[i]] for i in chosen])
            write_file(folder / f"{name}.jsonl", jsonl)

    def _access(self) -> str:
        """As "keyhole tune": what the method needs, and for auto all that a local model lets out."""
        clf, info, i = self.clf, S.kh_method_info(), 0
        if isinstance(clf.model, Box) or clf.access:
            return clf.access or clf.model.access
        if clf.method == "auto":
            return "logprobs" if is_url(clf.model) else "weights"
        while lib.kh_method_describe(i, ctypes.byref(info)):
            if info.name.decode() == clf.method and info.access == K.KH_ACCESS_WEIGHTS:
                return "weights"
            i += 1
        return "logprobs"

    def _make_task(self, watch: Watch) -> None:
        ask = not is_url(self.clf.model) and not isinstance(self.clf.model, Box)
        ask = ask and self.clf.access != "labels"
        search = S.kh_task_search(name=b"python", ask=ask, hooks=ctypes.pointer(watch.hooks))
        self._task = ctypes.POINTER(S.kh_task)()
        call(
            "kh_task_make",
            ctypes.byref(self._task),
            self.box.handle,
            self._split.train,
            ctypes.byref(search),
        )

    # ---- tuning

    def _options(self) -> Any:
        """The method's options as "name=value" strings, ending in NULL; without those of the space."""
        given = {k: v for k, v in (self.clf.options or {}).items() if k not in OURS}
        words = []
        for key, value in given.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            words.append(f"{key.replace('_', '-')}={text}".encode())
        return (ctypes.c_char_p * (len(words) + 1))(*words, None)

    def _tune_opts(self, watch: Watch) -> Any:
        clf = self.clf
        o = lib.kh_tune_defaults()
        o.seed = clf.seed
        features = (clf.options or {}).get("features_model", "builtin")
        o.features_model = os.fsencode(features) if features else None
        for name in SPACE:
            if name in (clf.options or {}):
                setattr(o.space, name, clf.options[name])
        questions, seconds = budget_of(clf.budget)
        if seconds is not None:
            o.max_seconds = seconds
        elif questions is not None:
            o.max_queries = questions
        elif clf.method == "auto" and clf.effort == "normal":
            o.max_tokens = AUTO_TOKENS
        o.effort = _effort(clf.effort)
        if isinstance(clf.model, Box):
            o.space.p0 = K.KH_P0_RANDOM
        o.hooks = ctypes.pointer(watch.hooks)
        o.model = os.fsencode(self.box.name)
        o.data = os.fsencode(self.folder / "data")
        o.folder = os.fsencode(self.folder)
        o.run = self._run
        return o

    def _tune(self, watch: Watch) -> None:
        box, o = self.box.handle, self._tune_opts(watch)
        train, dev, run = self._split.train, self._split.dev, os.fsencode(self.folder)
        self._posterior = opened(
            "kh_tune", self.clf.method.encode(), self._options(), box, self._task, train, dev,
            ctypes.byref(o),
        )  # fmt: skip
        if watch.interrupted or watch.exception:
            raise Stopped("stopped on request")
        call("kh_posterior_save", self._posterior, run)
        call("kh_run_finish", self._run)
        call("kh_task_save", self._task, os.fsencode(self.folder / "task.json"))
        self._write_notes()
        hooks = ctypes.byref(watch.hooks)
        call("kh_crossfit_save", self._posterior, box, train, dev, ctypes.byref(o), hooks, run)
        self._decide(watch)

    def _decide(self, watch: Watch) -> None:
        """When to abstain, sets, what does not belong: by the dev rows and cross-fitted answers."""
        o = lib.kh_eval_defaults()
        o.test = o.dev = self._split.dev
        o.rows = 1  # what is judged is thrown away: the decisions alone are wanted
        o.run = os.fsencode(self.folder)
        o.bootstrap.n_resample = 0
        o.hooks = ctypes.pointer(watch.hooks)
        e = opened("kh_eval_new", self._posterior, self.box.handle, ctypes.byref(o))
        try:
            decisions = lib.kh_eval_decisions(e)
            if decisions:
                call("kh_decisions_save", decisions, os.fsencode(self.folder))
                warning = decisions.contents.warning.decode("utf-8", "replace")
                if warning:
                    log.warning("%s", warning)
        finally:
            lib.kh_eval_free(e)

    def _write_notes(self) -> None:
        clf = self.clf
        simple = all(isinstance(c, (str, int, float, bool)) for c in self.classes)
        notes = {
            "classes": self.classes if simple else self.names,
            "box": isinstance(clf.model, Box),
            "params": {
                n: getattr(clf, n)
                for n in ("method", "access", "budget", "seed", "precision", "dev_share")
            },
        }
        text = json.dumps(notes, ensure_ascii=False, indent=1) + "\n"
        write_file(self.folder / NOTES, text.encode("utf-8"))


def _at_most(codes: Sequence[int], most: int, seed: int) -> List[int]:
    """All rows, or so many, of each class in turn."""
    if len(codes) <= most:
        return list(range(len(codes)))
    import random

    order = list(range(len(codes)))
    random.Random(seed).shuffle(order)
    queues: Dict[int, List[int]] = {}
    for i in order:
        queues.setdefault(codes[i], []).append(i)
    chosen: List[int] = []
    while len(chosen) < most:
        for k in sorted(queues):
            if queues[k] and len(chosen) < most:
                chosen.append(queues[k].pop())
    return sorted(chosen)


class _Open:
    """A kh_classifier. One thread at a time: the library spreads the work itself."""

    def __init__(self, run: str, box: OpenBox) -> None:
        self.box = box
        self.handle = opened("kh_classifier_open", os.fsencode(run), box.handle)
        posterior = ctypes.c_void_p(lib.kh_classifier_posterior(self.handle))
        self.n_label = lib.kh_posterior_describe(posterior).task.contents.n_label
        self._lock = threading.Lock()

    def run(self, texts: List[Text]) -> Tuple[List[Any], Any, Any]:
        n, n_label = len(texts), self.n_label  # as many as the library writes, whatever others say
        rows, keep = as_array(texts)
        out = (S.kh_classified * max(n, 1))()
        p = (ctypes.c_double * max(n * n_label, 1))()
        sets = (ctypes.c_bool * max(n * n_label, 1))()
        if n:
            try:
                with self._lock:
                    call("kh_classifier_run", self.handle, rows, n, out, p, sets)
            except KeyholeError as e:
                failure, self.box.failure = self.box.failure, None
                if failure is not None and not isinstance(failure, Exception):
                    raise failure
                raise e from failure
        del keep
        return list(out)[:n], p, sets

    def __del__(self) -> None:
        try:
            lib.kh_classifier_close(self.handle)
        except Exception:
            pass


class _Scratch:
    """Files for the length of one call."""

    def __enter__(self) -> "_Scratch":
        self._dir = tempfile.TemporaryDirectory(prefix="keyhole-")
        return self

    def __exit__(self, *exc: Any) -> None:
        self._dir.cleanup()

    def write(self, ood: Any) -> List[bytes]:
        if ood is None:
            return []
        named = ood if isinstance(ood, Mapping) else {"ood": ood}
        paths = []
        for name, texts in named.items():
            file = Path(self._dir.name) / f"{name}.jsonl"
            file.write_bytes(as_jsonl(as_texts(texts)))
            paths.append(os.fsencode(file))
        return paths


class _Evaluation:
    """A kh_eval on rows in memory."""

    def __init__(
        self,
        clf: KeyholeClassifier,
        watch: Watch,
        texts: List[Text],
        codes: List[int],
        ood: List[bytes],
        compare: bool,
    ) -> None:
        self._clf = clf
        self._sets: List[Any] = []
        post = clf.posterior_
        task = lib.kh_posterior_describe(post._handle).task
        self._read = S.kh_dataset_opts(task=task, format=K.KH_FORMAT_JSONL)
        o = lib.kh_eval_defaults()
        names = [task.contents.label[c].name.decode() for c in codes]
        o.test = self._parse(as_jsonl(texts, names), b"evaluate")
        dev = Path(clf.run_) / "data" / "dev.jsonl"
        if dev.is_file():
            o.dev = self._parse(dev.read_bytes(), os.fsencode(dev))
        o.run, o.compare = os.fsencode(clf.run_), compare
        self._ood = (ctypes.c_char_p * max(len(ood), 1))(*ood)
        o.ood = S.kh_strings(item=ctypes.cast(self._ood, ctypes.POINTER(ctypes.c_char_p)), n=len(ood))
        o.hooks = ctypes.pointer(watch.hooks)
        self._post, self._o = post, o
        self.handle: Any = None
        try:
            self.handle = opened("kh_eval_new", post._handle, clf._box.handle, ctypes.byref(o))
        except BaseException:
            self.close()
            raise

    def _parse(self, jsonl: bytes, name: bytes) -> Any:
        made = opened("kh_dataset_parse", jsonl, len(jsonl), name, ctypes.byref(self._read))
        self._sets.append(made)
        return made

    def close(self) -> None:
        lib.kh_eval_free(self.handle)
        for s in self._sets:
            lib.kh_dataset_close(s)
        self._sets, self.handle = [], None
