"""python_tests.py MODEL SCRATCH - tests of the Python package, in TAP; tests/cli_python.sh runs it.

Most of them tune a Box, a function that needs no model and answers at once; the others ask MODEL, a
small random one. Nothing but Python and the library is needed; NumPy is used where it is there, and
hidden from the package with KEYHOLE_NO_NUMPY=1.
"""
import http.server
import json
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

if os.environ.get("KEYHOLE_NO_NUMPY"):
    sys.modules["numpy"] = None

import keyhole
from keyhole import Box, KeyholeClassifier, KeyholeError, Posterior
from keyhole._library import S, _header

MODEL, SCRATCH = sys.argv[1], sys.argv[2]
try:
    import numpy

    NUMPY = True
except ImportError:
    NUMPY = False

random.seed(1)
GOOD = ["good", "lovely", "bright", "warm", "splendid"]
BAD = ["bad", "awful", "dull", "cold", "dreadful"]
FILL = ["film", "room", "day", "plot", "meal", "story", "train", "song"]


def sentence(words):
    return f"a {random.choice(words)} {random.choice(FILL)} and a {random.choice(words)} {random.choice(FILL)}"


TEXTS = [sentence(GOOD if i % 2 else BAD) for i in range(48)]
Y = ["pos" if i % 2 else "neg" for i in range(48)]
SOFT = {"dim": 4, "slots": 2, "features_model": None}


def by_word(texts):
    return ["pos" if any(w in t for w in GOOD) else "neg" for t in texts]


def by_prompt(texts, prompts):
    """Right where the first number of the prompt is above 0, and the other way round below."""
    said = [w == "pos" for w in by_word(texts)]
    if prompts is None:
        return [0] * len(texts)
    return [[int(s) if p[0][0] > 0 else int(not s) for s in said] for p in prompts]


def plain(**kw):
    kw.setdefault("options", {"features_model": None})
    kw.setdefault("method", "manual")
    kw.setdefault("model", Box(by_word))
    return KeyholeClassifier(progress=False, **kw)


def raises(kind, words, function, *args, **kw):
    try:
        function(*args, **kw)
    except kind as e:
        assert words in str(e), str(e)
        return e
    raise AssertionError(f"no {kind.__name__}")


# ------------------------------------------------------------------------------------------ header


def structs_are_those_of_the_compiler():
    lines = ["#include <keyhole.h>", "#include <stdio.h>", "int main(void) {"]
    for name, kind in sorted(vars(S).items()):
        lines.append(f'printf("{name} %zu\\n", sizeof({"struct " + name}));')
        for field, *_ in kind._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
    for name in sorted(_header.constants):
        lines.append(f'printf("{name} %d\\n", (int){name});')
    source = os.path.join(SCRATCH, "sizes.c")
    with open(source, "w") as f:
        f.write("\n".join(lines + ["return 0; }"]))
    program = os.path.join(SCRATCH, "sizes")
    cc = os.environ.get("CC", "gcc")
    subprocess.run([cc, "-Iinclude", "-o", program, source], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    import ctypes

    ours = []
    for name, kind in sorted(vars(S).items()):
        ours.append(f"{name} {ctypes.sizeof(kind)}")
        ours += [f"{name}.{f} {getattr(kind, f).offset}" for f, *_ in kind._fields_]
    ours += [f"{n} {v}" for n, v in sorted(_header.constants.items())]
    assert said.split("\n")[:-1] == ours, [(a, b) for a, b in zip(said.split("\n"), ours) if a != b][:5]
    assert len(ours) > 400


def a_header_with_a_field_more_is_read():
    from keyhole._header import Header

    h = Header(
        "typedef enum e { A, B = 4, C } e;\n#define L(X) X(u) X(v)\n"
        "typedef struct s { int a[C];\n#define F(n) double n;\nL(F)\n"
        "e k; int (*f)(void *, const struct s *); struct { long long a, b; } t[3]; } s;\nint g(s *, const char *, char **out);\n"
    )
    assert [f[0] for f in h.structs["s"]._fields_] == ["a", "u", "v", "k", "f", "t"]
    assert h.constants == {"A": 0, "B": 4, "C": 5}
    assert len(h.functions["g"][1]) == 3
    raises(ValueError, "not known", Header, "unheard_of x;")


# --------------------------------------------------------------------------------------------- fit


def fits_and_answers():
    c = plain().fit(TEXTS, Y)
    assert list(c.classes_) == ["neg", "pos"]
    assert c.score(TEXTS, Y) == 1.0
    p = c.predict_proba(TEXTS[:3])
    assert len(p) == 3 and all(abs(sum(row) - 1) < 1e-9 for row in p)
    assert list(c.predict(TEXTS[:4])) == Y[:4]
    logs = c.predict_log_proba(TEXTS[:3])
    assert all(math.isclose(math.exp(a), b) for a, b in zip(logs[0], p[0]))
    d = c.decide(TEXTS[:2])
    assert d[0].label == "neg" and d[0].set == c.predict_set(TEXTS[:2])[0] and "neg" in d[0].set
    assert isinstance(d[0].abstain, bool) and 0 <= d[0].confidence <= 1
    assert c.predict_proba([]) is not None and len(c.decide([])) == 0


def arrays_come_back_as_arrays():
    c = plain().fit(TEXTS, Y)
    if not NUMPY:
        assert type(c.predict(TEXTS[:2])) is list and type(c.classes_) is list
        return
    np = numpy
    c = plain().fit(np.array(TEXTS), np.array(Y))
    assert isinstance(c.predict(np.array(TEXTS[:2], dtype=object)), np.ndarray)
    assert c.predict_proba(TEXTS[:2]).shape == (2, 2)
    numbers = plain(model=Box(lambda t: [int(w == "pos") for w in by_word(t)])).fit(
        TEXTS, np.array([10 * (v == "pos") for v in Y])
    )
    assert numbers.classes_.dtype.kind == "i" and numbers.score(TEXTS, [10 * (v == "pos") for v in Y]) == 1


def numbers_as_classes():
    """9 and 10 are in the order of numbers, and a label is no index."""
    y = [10 if v == "pos" else 9 for v in Y]
    c = plain(model=Box(lambda t: [int(w == "pos") for w in by_word(t)])).fit(TEXTS, y)
    assert list(c.classes_) == [9, 10] and c.score(TEXTS, y) == 1.0
    named = plain(labels={9: "neg", 10: "pos"}).fit(TEXTS, y)
    assert list(named.classes_) == [9, 10] and named.score(TEXTS, y) == 1.0
    assert list(named.posterior_.task["labels"]) == ["neg", "pos"]


def templates_and_tasks():
    seen = []

    def listen(texts):
        seen.extend(texts)
        return by_word(texts)

    c = plain(model=Box(listen), task="{text} All in all {mask}.", labels={"neg": "terrible", "pos": ["great"]})
    c.fit(TEXTS, Y)
    assert c.posterior_.task["labels"] == {"neg": ["terrible"], "pos": ["great"]}
    assert "all in all" in seen[0].lower() and "[MASK]" in seen[0] and "[SEP]" not in seen[0], seen[0]
    task = {"name": "t", "template": "{text} {mask}", "soft_template": "{prompt} {text} {mask}",
            "labels": [{"name": "neg", "words": ["bad"]}, {"name": "pos", "words": ["good"]}], "metric": "accuracy"}
    assert plain(task=task).fit(TEXTS, Y).score(TEXTS, Y) == 1.0
    sst2 = plain(task="sst2", model=Box(lambda t: [int(w == "pos") for w in by_word(t)]))
    assert list(sst2.fit(TEXTS, [int(v == "pos") for v in Y]).classes_) == [0, 1]
    raises(KeyholeError, "is not a label of task", plain(task="sst2").fit, TEXTS, Y)


def raw_texts_and_pairs():
    seen = []

    def listen(texts):
        seen.extend(texts)
        return by_word(t[0] for t in texts)

    pairs = [(t, "second half") for t in TEXTS]
    c = plain(model=Box(listen, raw=True)).fit(pairs, Y)
    assert seen[0][1] == "second half" and seen[0][0] in TEXTS
    assert c.score(pairs, Y) == 1.0
    raises(ValueError, "pairs", c.predict, ["a", ("b", "c")])


def a_box_is_tuned_with_labels_only():
    box = Box(by_prompt, "labels", hidden=3)
    c = KeyholeClassifier(model=box, method="smc", options=dict(SOFT, samples=12), budget=4000, progress=False)
    c.fit(TEXTS, Y)
    p = c.posterior_
    assert p.method == "smc" and p.access == "labels" and p.samples > 1 and p.dim == 4
    assert abs(sum(p.weights) - 1) < 1e-5 and len(p.z) == p.samples and len(p.z[0]) == 4
    assert p.queries <= 4000
    assert c.score(TEXTS, Y) >= 0.9, c.score(TEXTS, Y)
    assert len(p.prompt(0)) == 2 and len(p.prompt(0)[0]) == 3
    p.export(os.path.join(SCRATCH, "prompts.jsonl"), "jsonl")
    assert os.path.getsize(os.path.join(SCRATCH, "prompts.jsonl")) > 0
    again = KeyholeClassifier(model=box, method="smc", options=dict(SOFT, samples=12), budget=4000, progress=False)
    again.fit(TEXTS, Y)
    same = [list(map(float, r)) for r in again.posterior_.z] == [list(map(float, r)) for r in p.z]
    assert same, "the same seed gives the same bits"


def early_rejection_keeps_the_rows():
    """Hard rows are asked first, in another order: a box that wants raw texts still gets theirs."""
    truth = dict(zip(TEXTS, Y))

    def ask(texts, prompts):
        assert all(t in truth for t in texts)
        return by_prompt(texts, prompts)

    c = KeyholeClassifier(model=Box(ask, "labels", hidden=3, raw=True), method="smc", options=dict(SOFT, samples=12),
                          budget=4000, progress=False).fit(TEXTS, Y)
    assert c.score(TEXTS, Y) >= 0.9


def a_box_gives_logprobs():
    def scores(texts, prompts=None):
        rows = [[0.0, 1.0] if w == "pos" else [1.0, 0.0] for w in by_word(texts)]
        return rows if prompts is None else [rows for _ in prompts]

    c = plain(model=Box(scores, "logprobs", hidden=3), method="bbt", options=SOFT, budget=2000).fit(TEXTS, Y)
    assert c.score(TEXTS, Y) == 1.0 and c.posterior_.access == "logprobs"


def auto_takes_every_box():
    """The default method leaves out what a box cannot do: one without prompts has no soft ones, one with few numbers small ones."""
    for box in (Box(by_word), Box(lambda t: [[0.0, 2.0] if w == "pos" else [2.0, 0.0] for w in by_word(t)], "logprobs")):
        c = plain(method="auto", model=box, budget=2000).fit(TEXTS, Y)
        assert c.score(TEXTS, Y) == 1.0, c.score(TEXTS, Y)
    searched = plain(method="auto", model=Box(by_prompt, hidden=3), budget=4000).fit(TEXTS, Y)
    assert searched.posterior_.method == "smc" and searched.score(TEXTS, Y) >= 0.9, searched.posterior_


def a_model_is_tuned():
    c = KeyholeClassifier(model=MODEL, method="bbt", options=dict(SOFT, features_model=MODEL), budget=1500,
                          progress=False, labels={"neg": "bad", "pos": "good"})
    c.fit(TEXTS, Y)
    assert c.posterior_.model == os.path.abspath(MODEL)
    a = [list(map(float, r)) for r in c.predict_proba(TEXTS)]
    assert all(abs(sum(r) - 1) < 1e-9 for r in a)
    assert a == [list(map(float, r)) for r in c.predict_proba(TEXTS)]


# ------------------------------------------------------------------------------- judge, save, load


def evaluates_and_reports():
    c = plain().fit(TEXTS[:32], Y[:32])
    raises(KeyholeError, "evaluate", c.report_html)
    r = c.evaluate(TEXTS[32:], Y[32:], ood={"noise": ["qwer asdf", "zxcv uiop"]}, compare=False)
    assert r["metrics"]["accuracy"]["value"] == 1.0, r["metrics"]["accuracy"]
    file = os.path.join(SCRATCH, "report.html")
    assert c.report_html(file).startswith("<!") and os.path.getsize(file) > 1000
    assert os.path.exists(os.path.join(c.run_, "results.json"))
    raises(ValueError, "'neither'", c.evaluate, ["a"], ["neither"])


def three_classes_have_a_macro_f1():
    said = ["a", "a", "a", "b", "b", "c", "c", "c", "c", "c"]  # as the box answers
    true = ["a", "a", "b", "b", "c", "c", "c", "c", "a", "b"]
    texts = [f"{said[i % 10]}{i}" for i in range(60)]
    c = plain(model=Box(lambda asked: [t[0] for t in asked])).fit(texts[:30], [t[0] for t in texts[:30]])
    r = c.evaluate(texts[30:], true * 3, compare=False)["metrics"]
    # hits, said and true: a 2, 3, 3; b 1, 2, 3; c 3, 5, 4
    assert abs(r["macro_f1"]["value"] - (4 / 6 + 2 / 5 + 6 / 9) / 3) < 1e-12, r
    assert r["f1"]["value"] is None, r["f1"]  # of one class of two


def saves_and_loads():
    c = plain().fit(TEXTS, Y)
    where = os.path.join(SCRATCH, "saved")
    c.save(where)
    raises(KeyholeError, "not empty", c.save, where)
    d = KeyholeClassifier.load(where, model=Box(by_word))
    assert list(d.predict(TEXTS)) == Y and d.method == "manual"
    assert [list(map(float, r)) for r in d.predict_proba(TEXTS)] == [list(map(float, r)) for r in c.predict_proba(TEXTS)]
    raises(KeyholeError, "give load its model", KeyholeClassifier.load, where)
    other = KeyholeClassifier.load(where, model=Box(by_word, fingerprint=7))
    raises(KeyholeError, "", other.predict, TEXTS)
    p = Posterior.open(where)
    assert p.method == "manual" and p.samples == 1 and p.z is None


def the_program_reads_it():
    where = os.path.join(SCRATCH, "for-program")
    KeyholeClassifier(model=MODEL, method="manual", out=where, progress=False, options={"features_model": None},
                      labels={"neg": "bad", "pos": "good"}).fit(TEXTS, Y)
    program = os.environ["KEYHOLE"]
    said = subprocess.run([program, "predict", where, TEXTS[0]], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    c = KeyholeClassifier.load(where)
    assert c.model == os.path.abspath(MODEL)
    name = {"neg": "bad", "pos": "good"}[c.predict(TEXTS[:1])[0]]
    assert json.loads(said.stdout)["label"] == name, said.stdout
    judged = subprocess.run([program, "eval", where, "--split", "dev"], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stderr


def pickles():
    c = plain(model=Box(by_word)).fit(TEXTS, Y)
    d = pickle.loads(pickle.dumps(c))
    assert list(d.predict(TEXTS)) == list(c.predict(TEXTS)) and d.run_ != c.run_
    folder = d.run_
    del d
    assert not os.path.exists(folder), "the folder of a pickle goes with its classifier"
    empty = pickle.loads(pickle.dumps(plain(method="smc")))
    assert empty.method == "smc" and not hasattr(empty, "run_")


# ------------------------------------------------------------------------------- received folders


def received(name, notes=None):
    """A run of somebody else, on MODEL, and perhaps with notes of their own."""
    where = os.path.join(SCRATCH, name)
    KeyholeClassifier(model=MODEL, method="manual", out=where, progress=False, options={"features_model": None},
                      labels={"neg": "bad", "pos": "good"}).fit(TEXTS, Y)
    if notes is not None:
        with open(os.path.join(where, "python.json"), "w", encoding="utf-8") as f:
            f.write(notes if isinstance(notes, str) else json.dumps(notes))
    return where


def an_address_in_a_folder_is_not_asked():
    asked = []

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Authorization"))
            self.send_error(404)

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    where = received("with-address")
    file = os.path.join(where, "posterior.json")
    with open(file, encoding="utf-8") as f:
        text = f.read()
    with open(file, "w", encoding="utf-8") as f:
        f.write(text.replace(json.dumps(os.path.abspath(MODEL)), json.dumps(url)))
    os.environ["KEYHOLE_API_KEY"] = "the-secret-key"
    try:
        p = Posterior.open(where)
        assert p.model == url
        raises(KeyholeError, "is not contacted", p.export, os.path.join(SCRATCH, "stolen.npz"))
        raises(KeyholeError, "give load its model", KeyholeClassifier.load, where)
    finally:
        del os.environ["KEYHOLE_API_KEY"]
        server.shutdown()
        server.server_close()
    assert not asked, asked


def notes_are_not_believed():
    where = received("with-notes", {"params": {"out": SCRATCH, "overwrite": True, "task": "/etc/passwd", "seed": 5}})
    c = KeyholeClassifier.load(where)
    assert (c.out, c.overwrite, c.task, c.seed) == (None, False, None, 5), c
    for notes in ({"params": {"seed": "x"}}, {"params": []}, [], "{", "[" * 100000, {"classes": 3}, {"classes": ["a"]},
                  {"classes": ["a", "a"]}, {"classes": ["a", "b", "c"]}, {"classes": ["a", []]}):
        raises(KeyholeError, "python.json", KeyholeClassifier.load, received("odd-notes", notes))
    # Too few classes gave the library an array too small: it wrote beyond.
    c._class_list = ["one"]
    raises(KeyholeError, "has 2 classes", c.predict_proba, TEXTS * 100)


def links_lead_nowhere():
    secret = os.path.join(SCRATCH, "secret")
    for name in ("data", "data/train.jsonl", "data/dev.jsonl", "data/labels.txt", "python.json"):
        with open(secret, "w", encoding="utf-8") as f:
            f.write("precious")
        where = tempfile.mkdtemp(dir=SCRATCH)
        os.makedirs(os.path.join(SCRATCH, "elsewhere"), exist_ok=True)
        if "/" in name:
            os.mkdir(os.path.join(where, "data"))
        os.symlink(os.path.join(SCRATCH, "elsewhere") if name == "data" else secret, os.path.join(where, name))
        if name == "data":
            raises(KeyholeError, "is a link", plain(out=where).fit, TEXTS, Y)
        else:
            plain(out=where).fit(TEXTS, Y)
        with open(secret, encoding="utf-8") as f:
            assert f.read() == "precious", name
        assert not os.listdir(os.path.join(SCRATCH, "elsewhere")), name


def what_links_lead_to_is_not_passed_on():
    where = received("with-links")
    os.symlink(os.path.join(SCRATCH, "secret"), os.path.join(where, "notes.txt"))
    os.symlink(os.path.join(SCRATCH, "elsewhere"), os.path.join(where, "more"))
    for file in ("secret", "elsewhere/secret"):
        with open(os.path.join(SCRATCH, file), "w", encoding="utf-8") as f:
            f.write("precious")
    c = KeyholeClassifier.load(where)
    copy = os.path.join(SCRATCH, "passed-on")
    c.save(copy)
    assert not {"notes.txt", "more"} & set(os.listdir(copy)), os.listdir(copy)
    assert b"precious" not in pickle.dumps(c)
    state = c.__getstate__()
    state["files"]["../outside"] = b""
    raises(KeyholeError, "outside", KeyholeClassifier().__setstate__, state)


def refused_texts_have_no_class():
    c = plain().fit(TEXTS, Y)
    run = c._classifier().run

    def refusing(texts):
        said, p, sets = run(texts)
        said[1].label = -1
        return said, p, sets

    c._opened.run = refusing
    assert [d.label for d in c.decide(TEXTS[:3])] == [Y[0], None, Y[2]]
    raises(KeyholeError, "refused 1 of 3", c.predict, TEXTS[:3])
    assert c.score(TEXTS[:4], Y[:4]) == 0.75


def the_folder_goes_with_the_classifier():
    c = plain().fit(TEXTS, Y)
    folder = c.run_
    assert os.path.isdir(folder)
    del c
    assert not os.path.exists(folder)


# ------------------------------------------------------------------------- progress and interrupts


def progress_is_told():
    told = []
    box = Box(by_prompt, "labels", hidden=3)
    KeyholeClassifier(model=box, method="smc", options=dict(SOFT, samples=12), budget=2000, progress=told.append).fit(TEXTS, Y)
    assert told and told[-1].seconds > 0 and max(t.queries for t in told) > 100
    assert all(isinstance(t, keyhole.Progress) for t in told)


def a_notebook_shows_one_line_that_ends():
    """IPython's part is played here: a cell whose display is written over, and does not stop half way."""
    from types import ModuleType

    shown = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def update(self, data, raw):
            shown[-1].append(data["text/plain"])

    def display(data, raw, display_id):
        shown.append([data["text/plain"]])
        return Handle()

    ipython, cells = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython, cells.display = ZMQInteractiveShell, display
    sys.modules.update({"IPython": ipython, "IPython.display": cells})
    c = KeyholeClassifier(model=Box(by_prompt, "labels", hidden=3), method="smc", options=dict(SOFT, samples=12), budget=2000)
    try:
        c.fit(TEXTS, Y)
        c.set_params(model=Box(lambda t, p: 1 / 0, hidden=3))
        raises(KeyholeError, "division", c.fit, TEXTS, Y)
    finally:
        del sys.modules["IPython"], sys.modules["IPython.display"]
    assert len(shown[0]) > 1 and " s" in shown[0][0] and shown[0][-1].startswith("keyhole: done, "), shown
    assert len(shown) == 1 or shown[1][-1].startswith("keyhole: ended, "), shown


def an_exception_in_progress_comes_out():
    def fails(p):
        raise RuntimeError("enough")

    box = Box(by_prompt, "labels", hidden=3)
    c = KeyholeClassifier(model=box, method="smc", options=dict(SOFT, samples=12), budget=2000, progress=fails)
    raises(RuntimeError, "enough", c.fit, TEXTS, Y)


def control_c_keeps_the_run():
    """The box itself sends the signal, so that it comes at the same question every time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells give jobs in the background SIG_IGN
    out = os.path.join(SCRATCH, "interrupted")
    asked = []

    def kills(texts, prompts):
        asked.append(len(texts) * (len(prompts) if prompts is not None else 1))
        if len(asked) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return by_prompt(texts, prompts)

    def quiet(texts, prompts):
        asked.append(len(texts) * (len(prompts) if prompts is not None else 1))
        return by_prompt(texts, prompts)

    def classifier(function, out):
        return KeyholeClassifier(model=Box(function, "labels", hidden=3), method="smc", out=out, budget=3000,
                                 options=dict(SOFT, samples=12), progress=False)

    c = classifier(kills, out)
    raises(KeyboardInterrupt, out, c.fit, TEXTS, Y)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not hasattr(c, "run_") and os.path.exists(os.path.join(out, "run.sqlite"))
    before = len(asked)
    assert before < 10, before
    c = classifier(quiet, out).fit(TEXTS, Y)
    resumed = sum(asked)
    asked.clear()
    whole = classifier(quiet, os.path.join(SCRATCH, "whole")).fit(TEXTS, Y)
    assert resumed == sum(asked), f"{resumed} questions in two parts, {sum(asked)} in one: none is asked twice"
    assert [list(map(float, r)) for r in c.posterior_.z] == [list(map(float, r)) for r in whole.posterior_.z]


def control_c_leaves_those_who_ignore_it_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def kills(texts):
        os.kill(os.getpid(), signal.SIGINT)
        return by_word(texts)

    try:
        assert plain(model=Box(kills)).fit(TEXTS, Y).score(TEXTS, Y) == 1.0
    finally:
        signal.signal(signal.SIGINT, before)


def other_threads_can_fit():
    found = []
    t = threading.Thread(target=lambda: found.append(plain().fit(TEXTS, Y).score(TEXTS, Y)))
    t.start()
    t.join()
    assert found == [1.0]


# ------------------------------------------------------------------------------------------ errors


def errors_are_the_same_sentence():
    e = raises(KeyholeError, "/nowhere", KeyholeClassifier(model="/nowhere", progress=False).fit, TEXTS, Y)
    raises(KeyholeError, "nonsense", plain(method="nonsense").fit, TEXTS, Y)
    nothing = os.path.join(SCRATCH, "nothing-here")
    program = subprocess.run([os.environ["KEYHOLE"], "predict", nothing, "x"], capture_output=True, text=True)
    missing = raises(FileNotFoundError, "nothing-here", Posterior.open, nothing)
    assert program.stderr == f"keyhole: {missing}\n", (str(missing), program.stderr)
    assert isinstance(e, (KeyholeError, OSError)) and e.code < 0
    assert isinstance(missing, KeyholeError)
    raises(KeyholeError, "not fitted", plain().predict, TEXTS)
    raises(ValueError, "labels", plain().fit, TEXTS, Y[:-1])
    raises(ValueError, "not one text", plain().fit, "text", Y)
    raises(ValueError, "text 1 is int", plain().fit, ["a", 3], ["x", "y"])
    raises(ValueError, "two", plain().fit, TEXTS, ["x"] * len(TEXTS))
    raises(ValueError, "budget", plain(budget="soon").fit, TEXTS, Y)
    raises(ValueError, "quick, normal", plain(effort="huge").fit, TEXTS, Y)
    assert plain(effort="quick").fit(TEXTS, Y).score(TEXTS, Y) == 1.0
    raises(ValueError, "no parameter", plain().set_params, nonsense=1)
    raises(ValueError, "access", Box, by_word, "weights")
    raises(KeyholeError, "members", plain(method="ensemble", model=Box(lambda t: [[0, 0]] * len(t), "logprobs", hidden=3), options=dict(SOFT, members="many")).fit, TEXTS, Y)


def parameters_that_cannot_be_meant():
    """Said before anything is asked, with the parameter's name; none is read as "as many as you like"."""
    for budget in (0, -5, float("nan"), "0s", "nans", "infm", "-3s", True):
        raises(ValueError, "budget", plain(budget=budget).fit, TEXTS, Y)
    for share in (-0.1, 1, 2, float("nan"), "half"):
        raises(ValueError, "dev_share", plain(dev_share=share).fit, TEXTS, Y)
    for seed in (-1, 1.5, None, 1 << 64):
        raises(ValueError, "seed", plain(seed=seed).fit, TEXTS, Y)
    for most in (0, -1):
        raises(ValueError, "max_train", plain(max_train=most).fit, TEXTS, Y)
        raises(ValueError, "max_dev", plain(max_dev=most).fit, TEXTS, Y)
    raises(ValueError, "Box(", plain(model=by_word).fit, TEXTS, Y)
    raises(ValueError, "model", plain(model=None).fit, TEXTS, Y)
    raises(ValueError, 'access is "all"', plain(model=MODEL, access="all").fit, TEXTS, Y)
    raises(ValueError, 'precision is "fp4"', plain(model=MODEL, precision="fp4").fit, TEXTS, Y)
    raises(ValueError, "labels", plain(labels=["bad", "good"]).fit, TEXTS, Y)
    raises(ValueError, "'x' is not a class", plain(labels={"x": "bad"}).fit, TEXTS, Y)
    raises(ValueError, "label 0 is None", plain().fit, TEXTS, [None] + Y[1:])
    raises(ValueError, "label 0 is nan", plain().fit, TEXTS, [float("nan")] + Y[1:])
    raises(ValueError, "'only' has one text", plain().fit, TEXTS + ["once"], Y + ["only"])
    assert plain(budget=300, dev_share=0.5).fit(TEXTS, Y).score(TEXTS, Y) == 1.0


def a_box_that_fails_says_why():
    def fails(texts):
        raise ZeroDivisionError("the model is out")

    e = raises(KeyholeError, "the model is out", plain(model=Box(fails)).fit, TEXTS, Y)
    assert isinstance(e.__cause__, ZeroDivisionError)
    raises(KeyholeError, "1 x [1]", plain(model=Box(lambda t: ["pos"])).fit, TEXTS, Y)
    raises(KeyholeError, "the classes are neg, pos", plain(model=Box(lambda t: ["maybe"] * len(t))).fit, TEXTS, Y)
    raises(KeyholeError, "outside 0..1", plain(model=Box(lambda t: [7] * len(t))).fit, TEXTS, Y)
    raises(KeyholeError, "there are 2 classes", plain(model=Box(lambda t: [[0.0]] * len(t), "logprobs")).fit, TEXTS, Y)


def a_folder_in_use_is_refused():
    out = os.path.join(SCRATCH, "other-options")
    plain(out=out).fit(TEXTS, Y)
    raises(KeyholeError, "", plain(out=out, resume=False).fit, TEXTS, Y)
    raises(KeyholeError, "", plain(out=out, seed=14).fit, TEXTS, Y)
    assert plain(out=out, seed=14, overwrite=True).fit(TEXTS, Y).score(TEXTS, Y) == 1.0


def odd_texts():
    texts = TEXTS + ["  \t spaces around ", "nul \0 inside", "\ud800 alone", "ünïcödé 😀", "x" * 5000]
    c = plain().fit(TEXTS, Y)
    assert len(c.predict(texts)) == len(texts)


def params_and_repr():
    c = plain(method="smc", seed=7)
    assert c.get_params()["seed"] == 7 and c.set_params(seed=8).seed == 8
    assert "method='smc'" in repr(c) and "Box(by_word" in repr(c)
    assert KeyholeClassifier(**c.get_params()).get_params() == c.get_params()
    assert "smc" in keyhole.methods() and keyhole.__version__ in open("include/keyhole.h").read()


def documented():
    import inspect

    for name in keyhole.__all__:
        thing = getattr(keyhole, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
            for m, f in vars(thing).items():
                if inspect.isfunction(f) and not m.startswith("_"):
                    assert f.__doc__ and "return" in f.__annotations__, f"{name}.{m}"
        elif callable(thing):
            assert thing.__doc__ and thing.__annotations__, name


TESTS = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == "__main__"
         and f.__name__ not in ("sentence", "by_word", "by_prompt", "plain", "raises", "received")]
if NUMPY is False and os.environ.get("KEYHOLE_NO_NUMPY"):
    wanted = ("fits_and_answers", "arrays_come_back_as_arrays", "a_box_is_tuned_with_labels_only", "a_box_gives_logprobs",
              "evaluates_and_reports", "pickles", "numbers_as_classes")
    TESTS = [t for t in TESTS if t.__name__ in wanted]
failed = 0
for i, test in enumerate(TESTS, 1):
    suffix = " (no NumPy)" if os.environ.get("KEYHOLE_NO_NUMPY") else ""
    try:
        test()
        print(f"ok {i} - {test.__name__.replace('_', ' ')}{suffix}", flush=True)
    except Exception:
        failed += 1
        print(f"not ok {i} - {test.__name__.replace('_', ' ')}{suffix}", flush=True)
        print("".join("# " + line + "\n" for line in traceback.format_exc().split("\n")), flush=True)
print(f"1..{len(TESTS)}")
sys.exit(failed > 0)
