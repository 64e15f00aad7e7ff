# tap.sh - what command-line tests share; sourced, not run. Tests speak TAP: "ok 1 - name".
# A folder of their own is $here, removed at the end; the last run's output is in $here/out and $here/err.
n=0 failed=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# ok NAME COMMAND... - passes if the command succeeds.
ok() {
    local name=$1
    shift
    n=$((n + 1))
    if "$@"; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        sed 's/^/# out: /' "$here/out" | head -n 40
        sed 's/^/# err: /' "$here/err" | head -n 40
        failed=1
    fi
}

# run STATUS ARGS... - runs keyhole; true if it ends with that status.
run() {
    local want=$1 got
    shift
    "$KEYHOLE" "$@" >"$here/out" 2>"$here/err"
    got=$?
    [ "$got" -eq "$want" ] || { echo "# status $got, expected $want"; return 1; }
}
# soon PID COMMAND... - waits until the command succeeds: KEYHOLE_PATIENCE seconds (20) at most, and no longer than the process lives.
soon() {
    local pid=$1 end=$((SECONDS + ${KEYHOLE_PATIENCE:-20}))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] && kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
}
out_has() { grep -qF -- "$1" "$here/out"; }
err_has() { grep -qF -- "$1" "$here/err"; }
# both STATUS TEXT ARGS... - the text must be on standard output; says: on standard error.
both() { run "$1" "${@:3}" && out_has "$2"; }
says() { run "$1" "${@:3}" && err_has "$2"; }
