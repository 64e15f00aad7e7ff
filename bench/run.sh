#!/bin/bash
# run.sh KEYHOLE - the benchmarks that need nothing but the clone. Absolute numbers mean nothing across machines; look at
# the ratios. bench/peers.sh (make bench-peers) sets the engine beside PyTorch and ONNX Runtime.
keyhole=$1
"$keyhole" bench engine --arch roberta-base --reps 3 || exit 1
echo "CMA-ES: its own time for 10 generations of 20 in 1000 dimensions"
"$keyhole" bench cmaes --dim 1000 --pop 20 --max-evals 200
