#!/bin/bash
# cli_python.sh - the Python package, with Python's own library alone: what tests/python_tests.py checks, once more without NumPy,
# and the example. Skipped where there is no Python 3.9, and under sanitizers, whose runtime a foreign program has not loaded.
. tests/tap.sh
: >"$here/out"; : >"$here/err"
library=$(dirname "$KEYHOLE")/libkeyhole.so
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=$(command -v python3)
skip_all() { echo "# skipped: cli_python: $1"; echo "ok 1 - the Python package # SKIP $1"; echo "1..1"; exit 0; }
[ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || skip_all "no Python 3.9 or newer"
[ -f "$library" ] || skip_all "no $library"
nm -D "$library" | grep -q '__asan\|__tsan' && skip_all "the library is built with a sanitizer"
"$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$(realpath "$library")" 2>/dev/null || skip_all "$python cannot load the library"

KEYHOLE_LIBRARY=$(realpath "$library")
export KEYHOLE_LIBRARY PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1
ok "a random model to ask" run 0 model random --arch tiny --layers 1 --std 0.3 --seed 5 --tokenizer models/builtin/tokenizer.json \
    --out "$here/tiny"
cp models/builtin/tokenizer.json "$here/tiny/tokenizer.json"

# suite NAME ENV...: python_tests.py, its lines numbered on
suite() {
    local line status
    mkdir "$here/$1"
    env "${@:2}" "$python" tests/python_tests.py "$here/tiny" "$here/$1" >"$here/tap" 2>&1
    status=$?
    while IFS= read -r line; do
        case $line in
        "ok "* | "not ok "*) n=$((n + 1)); echo "$line" | sed -E "s/^((not )?ok) [0-9]+/\1 $n/" ;;
        1..*) ;;
        *) echo "# ${line#\# }" ;;
        esac
    done <"$here/tap"
    grep -q '^1\.\.' "$here/tap" || { n=$((n + 1)); echo "not ok $n - python_tests.py ended early"; failed=1; }
    [ $status -eq 0 ] || failed=1
}
suite full
suite plain KEYHOLE_NO_NUMPY=1

example() { (cd "$here" && PYTHONPATH=$OLDPWD/python "$python" "$OLDPWD/python/example.py" "$OLDPWD/examples/reviews" "$here/tiny" 600 \
    >"$here/out" 2>"$here/err") && out_has "accuracy" && [ -s "$here/example-report.html" ]; }
ok "python/example.py runs to its end" example
readme() { # the ten lines, with a model that takes seconds
    sed -n '/^```python$/,/^```$/{/^```$/q;/^```/d;p}' python/README.md >"$here/ten.py"
    [ "$(grep -c . "$here/ten.py")" -le 10 ] && sed -i "s|KeyholeClassifier(budget=1000)|KeyholeClassifier('$here/tiny', 'manual')|" "$here/ten.py" &&
        "$python" "$here/ten.py" >"$here/out" 2>"$here/err" && out_has "out_of_distribution"
}
ok "the ten lines of python/README.md run" readme

echo "1..$n"
exit $failed
