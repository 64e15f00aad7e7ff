#!/bin/bash
# tinyllama.sh KEYHOLE MODEL.gguf [ROWS] - tuning a decoder on sst2 with 16 shots: the template, bbt and smc, with and without the batch label
# prior; accuracy, NLL and ECE on ROWS test rows (default 200; the standard error of an accuracy of 0.8 is then 0.03). The prompt stands in front and
# begins as reviews with their answers, near which the searches stay; doc/results.md says why. The searches' own results are judged, without the net
# that would return the template. MODEL is meant to be TinyLlama 1.1B, a 2-bit model. A few minutes a method on two free cores.
# METHODS chooses some of them (manual manual-prior manual-labels bbt-start bbt-prior smc-start smc ensemble elbo abc-smc). The -start ones are the
# texts that bbt and smc begin with, alone: what a search adds is the difference. The last three have two generations or 300 questions, five vectors
# after the text, 8 train rows: they show that each runs from end to end, not what it could do. OUT, if given, keeps the runs: what is finished is not run
# again, what was stopped goes on. THREADS: 0, one a core.
keyhole=$(realpath "${1:-build/release/keyhole}") model=$2 rows=${3:-200}
here=${OUT:-$(mktemp -d)}
mkdir -p "$here" || exit 1
[ -n "${OUT:-}" ] || trap 'rm -rf "$here"' EXIT
data=${DATA:-../shared/data/sst2}
rest=(--model "$model" --precision int8 --threads "${THREADS:-0}" --data "$data" --shots 16 --seed "${SEED:-13}" --features-model none)
common=("${rest[@]}" --task sst2)
text='a warm and funny film . It was great. a dull, lifeless mess . It was bad. the jokes fall flat . It was bad.'
soft=(--inject embed-prefix --slots 30 --p0 text --p0-text "$text" --effort quick --fallback none)
# With labels only nothing can take out what the model prefers: smc begins with a text after which it says neither word of nearly all rows.
even='a dull, lifeless mess . It was bad. the jokes fall flat . It was bad. a warm and funny film . It was great.'
task() { # FILE TEMPLATE SOFT-TEMPLATE
    cat >"$here/$1" <<END
{ "name": "sst2", "template": "{text} . It was {mask} .", "decoder_template": "$2", "decoder_soft_template": "$3",
  "labels": [ { "name": "negative", "words": ["bad"] }, { "name": "positive", "words": ["great"] } ] }
END
}
task start.json "$even {text} . It was {mask}" "{prompt} {text} . It was {mask}"
task soft.json "{text} . It was {mask}" "{prompt} {text} . It was {mask}"
labels=("${rest[@]}" --task "$here/soft.json" --access labels --inject embed-inplace --slots 33 --p0 text --p0-text "$even" --effort quick --fallback none)
judge() { # NAME OPTIONS...
    local name=$1
    shift
    if [ ! -s "$here/$name.json" ]; then
        "$keyhole" tune "$@" --out "$here/$name" --resume >"$here/$name.log" 2>&1 || { tail -n 3 "$here/$name.log"; return; }
        "$keyhole" eval "$here/$name" --threads "${THREADS:-0}" --data "$data" --rows "$rows" --json >"$here/part" 2>>"$here/$name.log" &&
            mv "$here/part" "$here/$name.json"
    fi
    printf '%-14s' "$name"
    for key in accuracy nll ece; do
        printf '  %s %s' "$key" "$(tr -d ' \n' <"$here/$name.json" | grep -o "\"$key\":{\"value\":[0-9.]*" | head -n 1 | sed 's/.*://')"
    done
    echo
}
few=("${common[@]}" --shots 8 --placement after-text --slots 5 --p0 random --effort quick --fallback none --search-rows 8)
all="manual manual-prior manual-labels bbt-start bbt-prior smc-start smc ensemble elbo abc-smc"
for method in ${METHODS:-$all}; do
    case $method in
    manual) judge $method "${common[@]}" --method manual ;;
    manual-prior) judge $method "${common[@]}" --method manual --label-prior batch ;;
    manual-labels) judge $method "${common[@]}" --method manual --access labels ;;
    bbt-start) judge $method "${common[@]}" "${soft[@]}" --method bbt --label-prior batch --sigma 1e-6 --pop 2 --budget-generations 1 --search-rows 2 ;;
    bbt-prior) judge $method "${common[@]}" "${soft[@]}" --method bbt --label-prior batch --sigma 0.4 ;;
    smc-start) judge $method "${rest[@]}" --task "$here/start.json" --method manual --access labels ;;
    smc) judge $method "${labels[@]}" --method smc --samples 5 --first-draws 10 --prior-variance 0.16 --budget-queries 1150 --budget-levels 1 ;;
    ensemble) judge $method "${few[@]}" --method ensemble --members 2 --pop 4 --sigma 1 --budget-generations 2 ;;
    elbo) judge $method "${few[@]}" --method elbo --pop 4 --draws 2 --samples 3 --budget-generations 2 ;;
    abc-smc) judge $method "${few[@]}" --method abc-smc --access labels --samples 3 --first-draws 4 --budget-queries 300 ;;
    esac
done
