#!/bin/bash
# peers.sh KEYHOLE - keyhole's engine beside PyTorch and ONNX Runtime, RoBERTa-large shape, 32 sequences, alternating in one
# run. Writes bench/peers.csv (one row a measurement, with machine and commit) and prints the ratios.
#
# Needs the peers' own scripts (PEERS, default ../shared/peers) and room for 3 GB in WORK (default build/peers). Missing
# packages are installed: Debian's python3-torch, python3-onnx, nodejs and npm; npm's onnxruntime-node.
keyhole=$(realpath "$1")
peers=$(realpath "${PEERS:-../shared/peers}" 2>/dev/null)
work=${WORK:-build/peers}
threads=${THREADS:-2} rounds=${ROUNDS:-2}
csv=$PWD/bench/peers.csv
if [ ! -f "$peers/bench_torch.py" ]; then
    echo "bench-peers: the peers' scripts are not at ${PEERS:-../shared/peers}; say PEERS=folder" >&2
    exit 1
fi
tools/setup.sh python3-torch python3-onnx $(command -v node >/dev/null || echo nodejs) $(command -v npm >/dev/null || echo npm) || exit 1
mkdir -p "$work"
cp "$peers"/*.py "$peers"/*.js "$work"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
isa=$(grep -qw avx512_bf16 /proc/cpuinfo && echo avx512_bf16 || { grep -qw avx2 /proc/cpuinfo && echo avx2 || echo generic; })
cd "$work" || exit 1
[ -d node_modules/onnxruntime-node ] || npm install --silent --ignore-scripts onnxruntime-node || exit 1
[ -f roberta_large_int8.onnx ] || /usr/bin/python3 export_onnx.py --size large --out roberta_large >export.log 2>&1 || { tail export.log; exit 1; }
[ -f large/model.safetensors ] || "$keyhole" model random --arch roberta-large --dtype bf16 --out large >/dev/null 2>&1 || exit 1

[ -f "$csv" ] || echo "date,commit,machine,isa,threads,case,tool,sequences_per_second" >"$csv"
# row CASE TOOL RATE; nothing if there is no rate (a peer that took longer than PATIENCE seconds)
row() {
    [ -n "$3" ] || { echo "  $1 $2: no answer within ${PATIENCE:-400} s"; return; }
    echo "$(date +%F),$commit,\"$machine\",$isa,$threads,$1,$2,$3" >>"$csv"
    echo "$1 $2 $3" >>rates
    printf '  %-12s %-16s %8s sequences/s\n' "$1" "$2" "$3"
}
torch() { # CASE MODE LENGTH REAL REPS
    row "$1" "torch-$2" "$(OMP_NUM_THREADS=$threads timeout "${PATIENCE:-400}" /usr/bin/python3 bench_torch.py --size large --batch 32 --seq "$3" --real "$4" --mode "$2" \
        --threads "$threads" --reps "$5" | sed -n 's/.*seq\/s \([0-9.]*\).*/\1/p')"
}
ort() { # CASE KIND LENGTH REAL
    row "$1" "ort-$2" "$(node bench_ort.js "roberta_large_$2.onnx" 32 "$3" "$threads" 3 "$4" | sed -n 's/.*seq\/s \([0-9.]*\).*/\1/p')"
}
ours() { # CASE PRECISION LENGTH LONGEST
    row "$1" "keyhole-$2" "$("$keyhole" bench engine --model large --rows 32 --length "$3" --longest "$4" --precision "$2" --threads "$threads" --reps 3 --json |
        sed -n 's/.*"sequences_per_second":\([0-9.]*\).*/\1/p')"
}
rm -f rates
for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    ours equal f32 80 80
    ort equal f32 80 80
    torch equal fp32 80 80 2
    ours equal bf16 80 80
    torch equal bf16 80 80 1
    ours equal int8 80 80
    ort equal int8 80 80
    ours ragged int8 80 110
    ort ragged int8 110 95 # padded to the longest; 95 is the mean of what is real
done

# The best of each, and the ratios that count.
awk '{ k = $1 " " $2; if ($3 > best[k]) best[k] = $3 }
function ratio(text, a, b, least) {
    if (best[a] && best[b])
        printf "  %-52s %5.2f   at least %.2f   %s\n", text, best[a] / best[b], least, (best[a] / best[b] >= least ? "reached" : "MISSED")
}
END {
    print "ratios"
    ratio("f32, equal lengths / ONNX Runtime f32", "equal keyhole-f32", "equal ort-f32", 1.2)
    ratio("f32, equal lengths / PyTorch fp32", "equal keyhole-f32", "equal torch-fp32", 1.2)
    ratio("bf16, equal lengths / ONNX Runtime f32", "equal keyhole-bf16", "equal ort-f32", 2.2)
    ratio("bf16, equal lengths / PyTorch bf16", "equal keyhole-bf16", "equal torch-bf16", 1.3)
    ratio("int8, equal lengths / ONNX Runtime int8", "equal keyhole-int8", "equal ort-int8", 1.25)
    ratio("int8, ragged 80-110, peer padded / ONNX Runtime int8", "ragged keyhole-int8", "ragged ort-int8", 1.4)
}' rates
