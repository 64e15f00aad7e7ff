#!/bin/bash
# run.sh KEYHOLE - the benchmarks that need nothing but the clone. Absolute numbers mean nothing across machines; look at
# the ratios. bench/peers.sh (make bench-peers) sets the engine beside PyTorch and ONNX Runtime.
keyhole=$1
echo "engine: RoBERTa-base shape, 32 sequences of 80 tokens"
"$keyhole" bench engine --arch roberta-base --reps 3 || exit 1
echo "engine: 20 prompts of 50 rows with 32 sequences in one call, and in 20 calls"
"$keyhole" bench engine --arch roberta-base --slots 50 --prompts 20 --precision f32 --reps 1 || exit 1
"$keyhole" bench engine --arch roberta-base --slots 50 --prompts 20 --separate --precision f32 --reps 1 || exit 1
echo "engine: a small shape, 6 layers x 256"
"$keyhole" bench engine --arch bert-base --layers 6 --hidden 256 --heads 4 --inner 1024 --rows 128 --reps 5 || exit 1
echo "CMA-ES: its own time for 10 generations of 20 in 1000 dimensions"
"$keyhole" bench cmaes --dim 1000 --pop 20 --max-evals 200
