#!/bin/bash
# What people see on a terminal fits its width, whatever that is: no line is longer, no word is cut in two, and nothing is cut off.
. tests/tap.sh
case $KEYHOLE in /*) program=$KEYHOLE ;; *) program=$PWD/$KEYHOLE ;; esac
model=$here/model csv=$here/boats.csv
run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model"
{
    echo "message;squad"
    for i in $(seq 30); do
        echo "the boats number $i were green;up"
        echo "an old lower house number $i;down"
    done
} >"$csv"
# on WIDTH ARGUMENT...: keyhole on a terminal of that width; what was drawn, each redrawing of a line a line of its own, is in $here/seen.
on() {
    local width=$1
    shift
    (cd "$here" && script -qec "stty cols $width rows 50; $(printf '%q ' "$program" "$@")" /dev/null >raw </dev/null)
    sed 's/\x1b\[K//g' "$here/raw" | tr '\r' '\n' | grep -v '^$' >"$here/seen"
}
fits() { [ -s "$here/seen" ] && [ "$(wc -L <"$here/seen")" -lt "$1" ] || { awk -v w="$1" 'length($0) >= w { print "# " $0 }' "$here/seen"; return 1; }; }
sees() { tr -s ' \n' ' ' <"$here/seen" | grep -qF -- "$1" || { sed 's/^/# /' "$here/seen"; return 1; }; }
small=(--model "$model" --epochs 5 --fallback none --force)
whole() { on "$1" tune boats.csv "${small[@]}" --method feature-mlp && fits "$1" && sees "12 held out to judge (--seed 13)" && sees "promise" &&
    sees "template and label words, to edit (--task)"; }
searched() { on "$1" tune boats.csv --model "$model" --method bbt --budget-generations 3 --dim 12 --slots 5 --p0 random --calibrate none --force --out searched && fits "$1" &&
    sees "forecast: at most " && sees "Estimate, not a promise, as the method has chosen on these 12 rows"; }
judged() { on "$1" eval boats-run --no-report --all && fits "$1" && sees "ece_classwise" && ! grep -qE '^ *%' "$here/seen"; }
outside() { on "$1" eval boats-run --no-report --ood boats.csv && fits "$1" && sees "chance that an out-of-distribution row is less certain than another" &&
    ! sees aupr_in >/dev/null; }
asked() { on "$1" predict boats-run "the boats number nine were green and the old lower house was not, so that this text needs more than one line of a narrow terminal" &&
    fits "$1" && sees "one line of a narrow terminal"; }
refused() { on "$1" tune boats.csv --model roberta-base && fits "$1" && sees "keyhole pull roberta-base"; }
for width in 60 80 120; do
    ok "tune FILE in $width columns" whole $width
    ok "a search in $width columns" searched $width
    ok "eval in $width columns" judged $width
    ok "eval --ood in $width columns" outside $width
    ok "predict in $width columns" asked $width
    ok "an error in $width columns" refused $width
done
kept() { ! run 0 tune "$csv" --model roberta-base --out "$here/x" 2>/dev/null; [ "$(wc -l <"$here/err")" -eq 1 ]; }
ok "one line where programs read" kept
numbers() { ! grep -qE 'dev=|best=' "$here/raw"; }
on 80 tune boats.csv --model "$model" --method bbt --budget-generations 3 --dim 12 --slots 5 --p0 random --calibrate none --force --out searched
ok "the bar's numbers have names" numbers
echo "1..$n"
exit $failed
