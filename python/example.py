#!/usr/bin/env python3
"""A first hour with keyhole, cell by cell: python3 example.py [DATA [MODEL [QUESTIONS]]]

DATA is a folder with train.tsv and test.tsv (columns text and label), such as examples/reviews. In an editor that knows "# %%" the
cells run one by one; as a script they run in order.
"""
# %% Labelled texts: any two lists will do
import csv
import sys
from pathlib import Path

from keyhole import Box, KeyholeClassifier

data = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/reviews")
model = sys.argv[2] if len(sys.argv) > 2 else "builtin"
questions = int(sys.argv[3]) if len(sys.argv) > 3 else 4000
names = (data / "labels.txt").read_text().split("\n")


def read(part: str, most: int) -> "tuple[list[str], list[str]]":
    with open(data / f"{part}.tsv", encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))[:most]
    return [r["text"] for r in rows], [names[int(r["label"])] if r["label"].isdigit() else r["label"] for r in rows]


texts, y = read("train", 64)
test_texts, test_y = read("test", 40)

# %% Tune. The model is frozen: it is only asked, at most `questions` times
clf = KeyholeClassifier(model=model, method="manual" if questions < 1000 else "auto", budget=questions)
clf.fit(texts, y)
print(clf.posterior_, clf.posterior_.task["template"])

# %% Ask. Probabilities are calibrated; a decision may be to abstain
for text, d in zip(test_texts[:3], clf.decide(test_texts[:3])):
    print(f"{d.label} {d.confidence:.2f}{' (abstains)' if d.abstain else ''}: {text[:60]}")

# %% Judge it on texts that it has not learned from, and on some that do not belong
results = clf.evaluate(test_texts, test_y, ood=["Knead the dough for ten minutes.", "asdf qwer zxcv", "x = y + 1;"])
accuracy = results["metrics"]["accuracy"]
print(f"accuracy {accuracy['value']:.2f} (95 % interval {accuracy['low']:.2f} to {accuracy['high']:.2f})")
clf.report_html("example-report.html")

# %% Keep it: the folder is a run of the program, too ("keyhole serve --run example-run")
clf.save("example-run")
again = KeyholeClassifier.load("example-run", model=model)
assert list(again.predict(test_texts)) == list(clf.predict(test_texts))


# %% A model of your own is a function, even one that returns labels and nothing else
def my_model(texts: "list[str]") -> "list[str]":
    return [names[len(t) % 2] for t in texts]


mine = KeyholeClassifier(model=Box(my_model), method="manual").fit(texts, y)
print(f"a model that counts letters: {mine.score(test_texts, test_y):.2f}")
