#!/bin/bash
# ranks.sh KEYHOLE [OUT.csv] - what several ranks give, and what they cost, on this machine; two minutes on a quiet one.
#   speed-up   one single-threaded rank and two, RoBERTa-base's shape in bf16: wall seconds of the same candidates; goal 1.85
#   overhead   microseconds that a candidate takes more on two ranks than half of what it takes on one, where the model takes next to
#              nothing (two tiny layers) and where it takes little (6 x 256); goal below 100
# Rows go to OUT.csv (default bench/ranks.csv: date, commit, CPU, case, ranks, candidates, seconds), and a table for doc/scale.md to
# standard output. CASES chooses among base, small and tiny. Runs of two lengths are timed and subtracted, so that start, loading and end do not count. Each is done ROUNDS times
# (2) in turn, and the least is taken: neighbours on the machine only ever add.
set -u
keyhole=$(realpath "$1") csv=${2:-bench/ranks.csv} rounds=${ROUNDS:-2}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_WAIT_POLICY=passive
command -v mpirun >/dev/null || { echo "ranks.sh: there is no mpirun; install openmpi-bin" >&2; exit 1; }
[ -e "$(dirname "$keyhole")/keyhole-mpi.so" ] ||
    { echo "ranks.sh: keyhole was built without MPI; install libopenmpi-dev" >&2; exit 1; }
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
commit=$(git rev-parse --short HEAD 2>/dev/null || echo -) cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr -d ,)
mkdir "$here/data"
cat >"$here/task.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 64); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$here/data/train.tsv"
model() { # NAME ARGUMENTS...
    local dir=$here/$1
    shift
    "$keyhole" model random --seed 3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$dir" "$@" >/dev/null
}
wanted() { [[ " ${CASES:-base small tiny} " = *" $1 "* ]]; }

# timed CASE PRECISION RANKS GENERATIONS: wall seconds of a run with 8 candidates a generation, 16 rows
timed() {
    local start end
    rm -rf "$here/run"
    start=$(date +%s%N)
    mpirun -q --bind-to none --oversubscribe -n "$3" "$keyhole" tune --effort paper --method bbt --model "$here/$1" --precision "$2" \
        --task "$here/task.json" \
        --data "$here/data" --shots 8 --pop 8 --slots "$([ "$1" = tiny ] && echo 20 || echo 50)" --dim 100 --p0 random \
        --variant separable --dev-every 1000000 \
        --budget-generations "$4" --out "$here/run" --threads 1 >"$here/out" 2>"$here/err" || { cat "$here/err" >&2; exit 1; }
    end=$(date +%s%N)
    awk -v ns=$((end - start)) 'BEGIN { printf "%.6f", ns / 1e9 }'
}
# best CASE PRECISION RANKS SHORT LONG: seconds of LONG - SHORT generations, each the least of all rounds
best() {
    local r a b short=1e9 long=1e9
    for r in $(seq "$rounds"); do
        a=$(timed "$1" "$2" "$3" "$4") && b=$(timed "$1" "$2" "$3" "$5") || exit 1
        short=$(awk -v x="$short" -v y="$a" 'BEGIN { print y < x ? y : x }')
        long=$(awk -v x="$long" -v y="$b" 'BEGIN { print y < x ? y : x }')
    done
    awk -v x="$short" -v y="$long" 'BEGIN { printf "%.6f", y - x }'
}
[ -s "$csv" ] || echo "date,commit,cpu,case,ranks,candidates,seconds" >"$csv"
echo "| case | candidates | seconds, 1 rank | seconds, 2 ranks | speed-up | overhead of a candidate |"
echo "|---|---:|---:|---:|---:|---:|"
# case NAME MODEL PRECISION SHORT LONG
measure() {
    local n=$((8 * ($5 - $4))) one two ranks
    one=$(best "$2" "$3" 1 "$4" "$5") && two=$(best "$2" "$3" 2 "$4" "$5") || exit 1
    for ranks in 1 2; do
        echo "$(date -u +%F),$commit,$cpu,$1,$ranks,$n,$([ $ranks = 1 ] && echo "$one" || echo "$two")" >>"$csv"
    done
    awk -v c="$1" -v n="$n" -v a="$one" -v b="$two" \
        'BEGIN { printf "| %s | %d | %.2f | %.2f | %.2f | %.0f us |\n", c, n, a, b, a / b, 1e6 * (b - a / 2) / n }'
}
wanted base && { model base --arch roberta-base || exit 1; } && measure "RoBERTa-base bf16" base bf16 1 "${BASE_GENERATIONS:-2}"
wanted small && { model small --arch roberta-base --layers 6 --hidden 256 --heads 4 --inner 1024 || exit 1; } &&
    measure "6 x 256 f32" small f32 1 "${SMALL_GENERATIONS:-21}"
wanted tiny && { model tiny --arch tiny || exit 1; } && measure "two tiny layers f32" tiny f32 20 "${TINY_GENERATIONS:-420}"
echo
echo "$cpu, commit $commit, one thread a rank, 16 rows a candidate, the least of $rounds rounds."
