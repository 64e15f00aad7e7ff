"""paint.py KEYHOLE RUN MODEL DATA SCRATCH - what a stranger can do to a terminal by the texts of a run
folder; tests/cli_hostile.sh runs it.

Every text of posterior.json, results.json, decisions.json and run.sqlite in turn gets characters that
command terminals and turn lines around, and each command that shows such texts is run. Prints one
line for each output that lets them through.
"""
import json
import os
import shutil
import sqlite3
import subprocess
import sys

KEYHOLE, RUN, MODEL, DATA, SCRATCH = sys.argv[1:6]
EVIL = "\x1b]0;owned\x07\u202e\u009b31m"
MARKS = {"ESC": b"\x1b", "BEL": b"\x07", "U+202E": "\u202e".encode(), "U+009B": "\u009b".encode()}
failed = 0


def fresh():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    shutil.copytree(RUN, SCRATCH)
    return SCRATCH


def look(what, *args):
    global failed
    said = subprocess.run([KEYHOLE, *args], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    found = [name for name, mark in MARKS.items() if mark in said.stdout + said.stderr]
    if found or said.returncode < 0:
        print(f"{what}: keyhole {' '.join(args[:1])} (status {said.returncode}) prints {', '.join(found)}")
        failed = 1


def texts(value, path=()):
    """The places of all strings in JSON."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(inner, path + (key,))


def painted(name, add, *commands):
    """Each text of a JSON file in turn, and some that may be there and are not."""
    with open(os.path.join(RUN, name), encoding="utf-8") as file:
        before = file.read()
    whole = json.loads(before)
    whole.update(add)
    for evil in (EVIL, EVIL[-4:]):  # names may not have the first half, so the second must be tried alone
        for path in texts(whole):
            run, changed = fresh(), json.loads(json.dumps(whole))
            at = changed
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] += evil
            with open(os.path.join(run, name), "w", encoding="utf-8") as file:
                json.dump(changed, file)
            if name == "posterior.json":
                os.remove(os.path.join(run, "decisions.json"))  # of the posterior that it was
            for command in commands:
                look(f"{name}, {'.'.join(map(str, path))}", *command)


run, model = SCRATCH, ("--model", MODEL)
painted(
    "posterior.json", {},
    ("predict", run, "a text", *model), ("predict", run, "a text", "--output", "text", *model),
    ("eval", run, "--data", DATA, *model), ("inspect", run),
)  # fmt: skip
painted(
    "results.json", {},
    ("compare", run), ("compare", run, "--format", "csv", "--metrics", "all"), ("compare", run, "--format", "latex"),
)  # fmt: skip
painted("decisions.json", {"warning": "it is no better than chance"}, ("predict", run, "a text"))

with sqlite3.connect(os.path.join(RUN, "run.sqlite")) as journal:
    tables = [row[0] for row in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = [(t, row[1]) for t in tables for row in journal.execute(f"PRAGMA table_info({t})") if row[2] == "TEXT"]
for table, column in columns:
    fresh()
    journal = sqlite3.connect(os.path.join(run, "run.sqlite"))
    journal.execute(f"UPDATE {table} SET {column} = coalesce({column}, '') || ?", (EVIL,))
    journal.commit()
    journal.close()
    for command in (("inspect", run), ("runs", run), ("log", run)):
        look(f"run.sqlite, {table}.{column}", *command)
        look(f"run.sqlite, {table}.{column}", *command, "--json")
sys.exit(failed)
