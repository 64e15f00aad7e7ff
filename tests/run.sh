#!/bin/bash
# run.sh TEST... - runs test programs (cmocka) and scripts, all of which speak TAP, and counts.
# Prints each failure in full, each skipped test with its reason, one line a program, and at the end
# "N passed, N failed, N skipped" (the last part only if there are any).
export CMOCKA_MESSAGE_OUTPUT=TAP
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test; do
    started=$SECONDS
    "$test" >"$log" 2>&1
    status=$?
    # cmocka writes a skipped test as "not ok N # SKIP name"; TAP itself would have it "ok".
    s=$(grep -cE '^(not )?ok .*# SKIP' "$log") p=$(grep -E '^ok ' "$log" | grep -vc '# SKIP') f=$(grep -E '^not ok ' "$log" | grep -vc '# SKIP')
    # A program that dies, or fails without saying which test, is one failure.
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    printf '%-28s %4d passed %3d failed %3d skipped  %ds\n' "$(basename "$test")" "$p" "$f" "$s" $((SECONDS - started))
    [ "$f" -gt 0 ] && sed 's/^/    /' "$log"
    [ "$s" -gt 0 ] && grep -E '^# skipped: ' "$log" | sed 's/^# /    /'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ "$skipped" -gt 0 ] && more=", $skipped skipped"
echo "$passed passed, $failed failed$more"
[ "$failed" -eq 0 ]
