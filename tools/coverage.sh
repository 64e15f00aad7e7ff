#!/bin/bash
# coverage.sh BUILD - what the tests that just ran in BUILD/coverage took of src/: a line a room, the whole, and BUILD/coverage.html.
# Branches that only an allocation of the C library's own (assert, stack protector) could take are not counted by gcovr.
set -e
build=$1
gcovr --root . --filter 'src/' --exclude-unreachable-branches --object-directory "$build/coverage" "$build/coverage" \
    --json-summary "$build/coverage.json" --html-details "$build/coverage.html" >/dev/null
python3 - "$build/coverage.json" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
rooms = {}
for f in report["files"]:
    room = rooms.setdefault(f["filename"].split("/")[1], [0, 0, 0, 0])
    for k, key in enumerate(("line_covered", "line_total", "branch_covered", "branch_total")):
        room[k] += f[key]
rooms["all"] = [sum(r[k] for r in rooms.values()) for k in range(4)]
print(f"{'room':<10}{'lines':>16}{'':>8}{'branches':>16}")
for name, (lc, lt, bc, bt) in rooms.items():
    print(f"{name:<10}{lc:>8} / {lt:<6}{100 * lc / max(lt, 1):6.1f} %{bc:>8} / {bt:<6}{100 * bc / max(bt, 1):6.1f} %")
END
echo "$build/coverage.html has every line"
