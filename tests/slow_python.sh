#!/bin/bash
# slow_python.sh - the Python package inside scikit-learn (Debian's python3-sklearn): cross-validation, a pipeline, clone, grid search
# over two methods, pickling by joblib; and a box in Python tuned with labels only. The rows are examples/reviews.
. tests/tap.sh
: >"$here/out"; : >"$here/err"
tools/setup.sh python3-sklearn >/dev/null || { echo "# skipped: slow_python: no python3-sklearn"; echo "ok 1 - sklearn # SKIP"; echo "1..1"; exit 0; }
[ -f "$(dirname "$KEYHOLE")/libkeyhole.so" ] || make -s --no-print-directory "$(dirname "$KEYHOLE")/libkeyhole.so"
KEYHOLE_LIBRARY=$(realpath "$(dirname "$KEYHOLE")/libkeyhole.so")
export KEYHOLE_LIBRARY PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1
ok "a random model to ask" run 0 model random --arch tiny --layers 1 --std 0.3 --seed 5 --tokenizer models/builtin/tokenizer.json \
    --out "$here/tiny"
cp models/builtin/tokenizer.json "$here/tiny/tokenizer.json"

cat >"$here/common.py" <<'PY'
import csv, os, sys
import numpy as np
from keyhole import Box, KeyholeClassifier

rows = list(csv.DictReader(open("examples/reviews/train.tsv"), delimiter="\t", quoting=csv.QUOTE_NONE))[:60]
texts = np.array([r["text"] for r in rows], dtype=object)
y = np.array([r["label"] for r in rows])
TINY = os.environ["TINY"]
WORDS = {v: w for v, w in zip(sorted(set(y)), ("terrible", "great"))}

def quick(**kw):
    kw.setdefault("method", "manual")
    return KeyholeClassifier(model=TINY, labels=WORDS, progress=False, options={"features_model": None}, **kw)
PY
# py CODE: runs it after common.py
py() { { cat "$here/common.py"; echo "$1"; } >"$here/case.py"; TINY=$here/tiny /usr/bin/python3 "$here/case.py" >"$here/out" 2>"$here/err"; }

ok "cross_val_score of a pipeline" py '
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
s = cross_val_score(make_pipeline(quick()), texts, y, cv=3, error_score="raise")
print(s); assert s.shape == (3,) and np.all(s >= 0)'
ok "with the built-in model" py '
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
s = cross_val_score(make_pipeline(KeyholeClassifier(method="manual", labels=WORDS, progress=False)), texts, y, cv=2, error_score="raise")
print(s); assert s.mean() > 0.5'
ok "a step before it" py '
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
lower = FunctionTransformer(lambda X: np.array([t.lower() for t in X], dtype=object))
p = make_pipeline(lower, quick()).fit(texts, y)
assert p.predict_proba(texts[:3]).shape == (3, 2) and list(p.classes_) == sorted(set(y))'
ok "clone" py '
from sklearn.base import clone, is_classifier
c = quick(seed=7); d = clone(c)
assert d is not c and d.get_params() == c.get_params() and is_classifier(d)
clone(c.fit(texts, y)); assert not hasattr(clone(c), "run_")'
ok "grid search over two methods" py '
from sklearn.model_selection import GridSearchCV
g = GridSearchCV(quick(), {"method": ["manual", "icl"]}, cv=2, scoring="neg_log_loss", error_score="raise").fit(texts, y)
print(g.best_params_, g.cv_results_["mean_test_score"])
assert g.best_estimator_.predict(texts[:2]).shape == (2,)'
ok "processes side by side" py '
from sklearn.model_selection import cross_val_score
s = cross_val_score(quick(), texts, y, cv=2, n_jobs=2, error_score="raise")
assert list(s) == list(cross_val_score(quick(), texts, y, cv=2))'
ok "pickled by joblib" py '
import joblib, tempfile
c = quick().fit(texts, y)
with tempfile.TemporaryDirectory() as d:
    joblib.dump(c, d + "/c"); e = joblib.load(d + "/c")
assert np.array_equal(e.predict_proba(texts), c.predict_proba(texts))'
ok "a box in Python, labels only, cross-validated" py '
from sklearn.model_selection import cross_val_score
good = [w for t, v in zip(texts, y) if v == max(y) for w in t.split()]
asked = []
def box(texts, prompts):
    asked.append(len(texts) * (1 if prompts is None else len(prompts)))
    said = np.array([len(t) % 2 for t in texts])
    truth = np.array([int(known.get(t, 0)) for t in texts])
    if prompts is None: return said
    return [truth if p.mean() > 0 else 1 - truth for p in prompts]
known = {t: v == max(y) for t, v in zip(texts, y)}
c = KeyholeClassifier(model=Box(box, "labels", hidden=8, raw=True), method="smc", budget=4000, progress=False,
                      options={"dim": 5, "slots": 2, "samples": 16, "features_model": None})
s = cross_val_score(c, texts, y, cv=2, error_score="raise")
print(s, sum(asked)); assert s.min() >= 0.9'

echo "1..$n"
exit $failed
