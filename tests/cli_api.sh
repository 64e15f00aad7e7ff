#!/bin/bash
# cli_api.sh - the public API from outside: examples compiled with nothing but the header and the shared library, run; and the
# library exports what the header declares, no more.
. tests/tap.sh
build=$(dirname "$KEYHOLE")
: >"$here/out"; : >"$here/err"
mkdir -p "$here/include" "$here/lib"
cp include/keyhole.h "$here/include/"
ln -s "$(realpath "$build/libkeyhole.so")" "$here/lib/libkeyhole.so"
ln -s libkeyhole.so "$here/lib/libkeyhole.so.0"
export LD_LIBRARY_PATH=$here/lib
flags="-std=c17 -Wall -Wextra -Werror -I$here/include"
nm -D "$build/libkeyhole.so" | grep -q __asan && flags="$flags -fsanitize=address,undefined"
cc=${CC:-gcc}

compile() { # compile NAME: examples/NAME.c against the header alone
    # shellcheck disable=SC2086
    $cc $flags -o "$here/$1" "examples/$1.c" -L"$here/lib" -lkeyhole -lm >"$here/out" 2>"$here/err"
}
# RUNNER: an emulator for programs of another machine
try() { (cd "$here" && ${RUNNER:-} "./$1" "${@:2}" >"$here/out" 2>"$here/err"); }

ok "a random model to ask" run 0 model random --arch tiny --layers 1 --std 0.3 --seed 5 --tokenizer models/builtin/tokenizer.json \
    --out "$here/tiny"
cp models/builtin/tokenizer.json "$here/tiny/tokenizer.json"
mkdir "$here/data"
cp examples/reviews/*.txt examples/reviews/task.json "$here/data/"
for part in train dev test; do head -n 33 "examples/reviews/$part.tsv" >"$here/data/$part.tsv"; done

ok "examples/method.c compiles with nothing but the header" compile method
method() { try method "$here/tiny" "$here/data" && out_has "accuracy" && out_has "a gorgeous film" && [ -s "$here/method-run/results.json" ] &&
    [ -s "$here/method-run/report.html" ] && [ -s "$here/method-run/decisions.json" ]; }
ok "and tunes, judges, predicts" method
in_header() { sed -n '/#include <keyhole.h>/,$p' examples/method.c | sed 's/^/ *     /; s/ *$//' >"$here/want"
    sed -n '/^ \*     #include <keyhole.h>/,/^ \*     }$/p' include/keyhole.h | diff "$here/want" - >"$here/out"; }
ok "it is the program that the header shows" in_header
refuses() { ! try method "$here/nowhere" "$here/data" && err_has "nowhere"; }
ok "and says what is wrong" refuses

ok "examples/own_box.c compiles" compile own_box
own_box() { try own_box "$here/tiny" "$here/data" && out_has "samples of 10 numbers"; }
ok "a box of one's own is tuned against" own_box

ok "examples/simulator.c compiles" compile simulator
simulator() { try simulator "$1" && out_has "upper crescent"; }
for s in abc-rejection abc-smc smc; do ok "sampler $s on a simulator of one's own" simulator "$s"; done

exported() {
    nm -D --defined-only "$build/libkeyhole.so" | awk '$2 ~ /[TBDRW]/ { print $3 }' | grep -v '^[_.]\|asan\|ubsan\|gcov\|^mangle_path$' | sort >"$here/is"
    tr '\n' ' ' <include/keyhole.h | sed 's/KH_API /\nKH_API /g' | sed -n 's/^KH_API [^(]*[ *]\(kh_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$here/declared"
    diff "$here/declared" "$here/is" >"$here/out" 2>&1
}
ok "the library exports what the header declares, no more" exported
ok "which is a few hundred functions at most" [ "$(wc -l <"$here/is")" -gt 100 ]
plus() { echo '#include <keyhole.h>
int main() { return kh_version()[0] == 0; }' >"$here/plus.cc"
    command -v g++ >/dev/null || { echo "# skipped: no g++"; return 0; }
    # shellcheck disable=SC2086
    g++ ${flags#-std=c17} -fsyntax-only "$here/plus.cc" >"$here/out" 2>"$here/err"; }
ok "the header is C++ as well" plus

echo "1..$n"
exit $failed
