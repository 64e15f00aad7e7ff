#!/bin/bash
# cli_tree.sh - the tree is what it says it is (tools/check_tree.sh).
. tests/tap.sh
: >"$here/err"
check() { tools/check_tree.sh "$1" >"$here/out" 2>"$here/err"; }
ok "includes follow the list of rooms in the Makefile" check includes
ok "what cli takes from inside is listed" check internals
ok "file names are unique" check names
ok "files begin with their own name" check heads
ok "no type is defined in two headers" check types
ok "no file writes JSON by hand" check json
ok "no conditional expressions within others are added" check nested
ok "lines have at most 100 columns" check columns
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    ok "the code is formatted" check format
else
    n=$((n + 1))
    echo "# skipped: the code is formatted: clang-format 14 is not installed"
    echo "ok $n - the code is formatted # SKIP clang-format 14 is not installed"
fi
echo "1..$n"
exit $failed
