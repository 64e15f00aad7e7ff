#!/usr/bin/python3
"""What a grid of "keyhole reproduce" found, small enough to keep.

    bench/grid.py rows OUT...                       a CSV row a run, on standard output
    bench/grid.py pack FILE.tar.xz OUT...           receipts, results, answers and records of all runs
    bench/grid.py unpack FILE.tar.xz OUT MODEL DATA the same again: "keyhole reproduce --model MODEL --data DATA --out OUT" then
                                                    makes the tables without a question to the model, and goes on with what is missing

A packed run has neither its posterior (it cannot predict) nor the answers of its search nor a text of the data; paths are
replaced by MODEL, DATA and OUT, since a receipt holds for the paths that it names.
"""
import io
import json
import os
import sqlite3
import sys
import tarfile
import tempfile

METRICS = ["accuracy", "f1", "ece", "nll", "brier", "aurrrc"]
KEPT = ["receipt.json", "results.json", "answers.jsonl", "decisions.json"]
JOURNAL = "run.sqlite"


def runs_of(out):
    """Folders of finished runs, by name."""
    runs = os.path.join(out, "runs")
    for name in sorted(os.listdir(runs)):
        if all(os.path.exists(os.path.join(runs, name, kept)) for kept in KEPT[:2]):
            yield name, os.path.join(runs, name)


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


def swaps(out, model, data):
    """Where receipts and results name the grid, the model and the data, here and in the pack."""
    anchors = [('"%s/', out, "OUT"), ('"%s/', data, "DATA"), ("=%s/", data, "DATA"), ("model=%s ", model, "MODEL"), ('"path": "%s"', model, "MODEL")]
    return [(anchor % here, anchor % neutral) for anchor, here, neutral in anchors]


def rows(outs):
    print("task,method,seed,rows," + ",".join(METRICS) + ",ood,auroc_maxp,auroc_energy,queries,tokens,precision,kernels,version")
    for out in outs:
        for name, folder in runs_of(out):
            task, rest = name.split("-", 1)
            method, seed = rest.rsplit("-", 1)
            receipt, results = read(folder, "receipt.json"), read(folder, "results.json")
            m, e, outside = results["metrics"], results["eval"], (results.get("ood") or [{}])[0]
            short = lambda x: "" if x is None else "%.4f" % x["value"] if x.get("value") is not None else ""
            auroc = [short(outside.get(s, {}).get("auroc")) for s in ("maxp", "energy")]
            print(",".join([task, method, seed, str(e["rows"])] + [short(m.get(k)) for k in METRICS] + [outside.get("name", "")] + auroc +
                           [str(receipt["queries"]), str(receipt["tokens"]), e["precision"], e["kernels"], results["keyhole"]]))


def journal_of(folder):
    """The record of generations alone, as bytes: answers and what a search kept are nine tenths of a journal."""
    with tempfile.TemporaryDirectory() as where:
        copy = os.path.join(where, JOURNAL)
        old, new = sqlite3.connect(os.path.join(folder, JOURNAL)), sqlite3.connect(copy)
        old.backup(new)
        old.close()
        new.execute("PRAGMA journal_mode = DELETE")
        new.executescript("DELETE FROM answers; DELETE FROM kept; DELETE FROM events; DELETE FROM sessions;"
                          "UPDATE run SET model = 'MODEL', data = 'DATA/' || task; VACUUM;")
        new.close()
        with open(copy, "rb") as f:
            return f.read()


def packed(folder, name):
    """The files of one run as (name, bytes)."""
    results = read(folder, "results.json")
    run = results["run"]
    paths = swaps(run["path"][: -len("/runs/" + name)], results["model"]["path"], os.path.dirname(run["data"]))
    for kept in KEPT:
        path = os.path.join(folder, kept)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if kept == "results.json":
            start = text.index('"examples": ') + len('"examples": ')
            found, length = json.JSONDecoder().raw_decode(text[start:])
            assert found == results["examples"]
            text = text[:start] + "[]" + text[start + length:]
        for here, neutral in paths:
            text = text.replace(here, neutral)
        yield kept, text.encode()
    if os.path.exists(os.path.join(folder, JOURNAL)):
        yield JOURNAL, journal_of(folder)


def pack(file, outs):
    with tarfile.open(file, "w:xz", preset=9) as tar:
        for out in outs:
            for name, folder in runs_of(out):
                for kept, data in packed(folder, name):
                    info = tarfile.TarInfo("runs/%s/%s" % (name, kept))
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def unpack(file, out, model, data):
    with tarfile.open(file) as tar:
        for info in tar:
            parts = info.name.split("/")
            if not info.isreg() or len(parts) != 3 or parts[0] != "runs" or ".." in parts or parts[2] not in KEPT + [JOURNAL]:
                sys.exit("%s: %s is no file of a run" % (file, info.name))
            bytes_ = tar.extractfile(info).read()
            if parts[2] in ("receipt.json", "results.json"):
                text = bytes_.decode()
                for here, neutral in swaps(out, model, data):
                    text = text.replace(neutral, here)
                bytes_ = text.encode()
            folder = os.path.join(out, "runs", parts[1])
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, parts[2]), "wb") as f:
                f.write(bytes_)


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) >= 2 and words[0] == "rows":
        rows(words[1:])
    elif len(words) >= 3 and words[0] == "pack":
        pack(words[1], words[2:])
    elif len(words) == 5 and words[0] == "unpack":
        unpack(*words[1:])
    else:
        sys.exit(__doc__.strip())
