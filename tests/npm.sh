# npm.sh - what tests beside implementations from npm share; sourced, not run, by a script that has put its tests into `names`.
# A folder of their own is $dir, removed at the end.
dir=$(mktemp -d) failed=
trap 'rm -rf "$dir"' EXIT

# skip NUMBER REASON, skip_all REASON
skip() {
    echo "# skipped: ${names[$1 - 1]}: $2"
    echo "ok $1 - ${names[$1 - 1]} # SKIP $2"
}
skip_all() {
    for k in "${!names[@]}"; do skip $((k + 1)) "$1"; done
    echo "1..${#names[@]}"
    exit 0
}

# result STATUS NUMBER
result() { if [ "$1" -eq 0 ]; then echo "ok $2 - ${names[$2 - 1]}"; else echo "not ok $2 - ${names[$2 - 1]}"; failed=1; fi; }
# The last line of a script.
finish() { echo "1..${#names[@]}"; [ -z "$failed" ]; }

# need PROGRAM...
need() { for tool; do command -v "$tool" >/dev/null || skip_all "$tool is not there"; done; }

# packages NAME@VERSION...: from the folder $KH_NPM, or installed into a scratch folder, which is $KH_NPM then
packages() {
    if [ -z "$KH_NPM" ]; then
        command -v npm >/dev/null || skip_all "npm is not there and KH_NPM is not set"
        KH_NPM=$dir/npm
        npm install --silent --ignore-scripts --prefix "$KH_NPM" "$@" >/dev/null 2>&1
    fi
    for package; do
        [ -d "$KH_NPM/node_modules/${package%@*}" ] || skip_all "the npm package ${package%@*} cannot be had"
    done
    export KH_NPM
}
