#!/bin/bash
# run.sh TEST... - runs test programs (cmocka) and scripts, all of which speak TAP, and counts.
# JOBS of them at a time (one a core); scripts first, since the longest are among them. Prints one
# line a program in the order given, each failure in full, each skipped test with its reason, and
# at the end "N passed, N failed, N skipped" (the last part only if there are any).
export CMOCKA_MESSAGE_OUTPUT=TAP
# Idle threads of several programs at once must not spin on cores that others need.
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run_one NUMBER TEST: its output to logs/NUMBER, "STATUS SECONDS" to logs/NUMBER.end.
run_one() {
    local started=$SECONDS
    case $2 in
    *.sh) "$2" >"$logs/$1" 2>&1 ;;
    *) ${RUNNER:-} "$2" >"$logs/$1" 2>&1 ;; # RUNNER: an emulator for programs of another machine
    esac
    echo "$? $((SECONDS - started))" >"$logs/$1.end"
}

# Tests of several ranks take all cores and look at what happens within a second: they run alone.
alone=() scripts=() programs=() i=0
for test; do
    case $test in
    */mpi_*.sh | */test_plm_ranks) alone+=("$i") ;;
    *.sh) scripts+=("$i") ;;
    *) programs+=("$i") ;;
    esac
    i=$((i + 1))
done
tests=("$@") running=0
for i in "${scripts[@]}" "${programs[@]}"; do
    if [ "$running" -ge "${JOBS:-$(nproc)}" ]; then wait -n; else running=$((running + 1)); fi
    run_one "$i" "${tests[$i]}" &
done
wait
for i in "${alone[@]}"; do run_one "$i" "${tests[$i]}"; done

passed=0 failed=0 skipped=0
for ((i = 0; i < ${#tests[@]}; i++)); do
    log=$logs/$i
    read -r status seconds <"$log.end"
    # cmocka writes a skipped test as "not ok N # SKIP name"; TAP itself would have it "ok".
    s=$(grep -cE '^(not )?ok .*# SKIP' "$log")
    p=$(grep -E '^ok ' "$log" | grep -vc '# SKIP')
    f=$(grep -E '^not ok ' "$log" | grep -vc '# SKIP')
    # A program that dies, or fails without saying which test, is one failure.
    [ "${status:-1}" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    printf '%-28s %4d passed %3d failed %3d skipped  %ds\n' "$(basename "${tests[$i]}")" "$p" "$f" "$s" "$seconds"
    [ "$f" -gt 0 ] && sed 's/^/    /' "$log"
    [ "$s" -gt 0 ] && grep -E '^# skipped: ' "$log" | sed 's/^# /    /'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
[ "$skipped" -gt 0 ] && more=", $skipped skipped"
echo "$passed passed, $failed failed$more"
[ "$failed" -eq 0 ]
