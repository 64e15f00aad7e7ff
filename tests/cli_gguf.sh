#!/bin/bash
# GGUF files on the command line: convert, inspect, and every command that takes a model; pull without a hub.
. "$(dirname "$0")/tap.sh"
unset HF_TOKEN HF_HUB_CACHE
export HF_HOME=$here/hf HF_ENDPOINT=http://127.0.0.1:1

folder=$here/m
run 0 model random --out "$folder" --family bert --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-wordpiece/vocab.txt
ok 'convert to GGUF' both 0 'tensors' model convert --model "$folder" --type f32 --out "$here/m.gguf"
ok 'convert as JSON' both 0 '"bytes"' model convert --model "$folder" --type q8_0 --out "$here/q.gguf" --json
ok 'inspect a GGUF file' both 0 'head         masked LM' inspect "$here/m.gguf"
ok 'inspect lists formats' both 0 'Q8_0 ' inspect "$here/q.gguf"
ok 'inspect as JSON' both 0 '"formats":{"F32":{"tensors":' inspect "$here/q.gguf" --json

# the file is the folder: the same answers, to the last digit that is printed
same() {
    "$KEYHOLE" "$@" --model "$folder" >"$here/a" 2>"$here/err" </dev/null && "$KEYHOLE" "$@" --model "$here/m.gguf" >"$here/out" 2>"$here/err" </dev/null &&
        cmp -s "$here/a" "$here/out"
}
ok 'fill-mask gives the same' same fill-mask --top 5 'low [MASK] the'
tokens_same() {
    for m in "$folder" "$here/m.gguf"; do echo 'the lowest [MASK]' | "$KEYHOLE" tokenize --model "$m" --json; done >"$here/out" 2>"$here/err"
    [ "$(sort -u "$here/out" | wc -l)" -eq 1 ]
}
ok 'tokenize gives the same' tokens_same
features_same() {
    for m in "$folder" "$here/m.gguf"; do echo 'the lowest' | "$KEYHOLE" features --model "$m"; done >"$here/out" 2>"$here/err"
    [ "$(sort -u "$here/out" | wc -l)" -eq 1 ]
}
ok 'features gives the same' features_same
ok 'back to a folder' both 0 'tensors' model convert --model "$here/m.gguf" --format safetensors --type f32 --out "$here/back"
ok 'the folder is the same model' test "$("$KEYHOLE" inspect "$here/back" | grep fingerprint)" = "$("$KEYHOLE" inspect "$folder" | grep fingerprint)"

ok 'blocks need GGUF' says 1 'use --format gguf' model convert --model "$folder" --format safetensors --type q8_0 --out "$here/x"
head -c 300 "$here/m.gguf" >"$here/cut.gguf"
ok 'a cut file' says 1 'cut short' inspect "$here/cut.gguf"
echo 'not one' >"$here/no.gguf"
ok 'not a GGUF file' says 1 'does not begin with "GGUF"' inspect "$here/no.gguf"
ok 'no such file' says 1 'cannot open' inspect "$here/none.gguf"

# XLM-RoBERTa: RoBERTa with a Unigram tokenizer
xlm=$here/xlm
run 0 model random --out "$xlm" --family roberta --seed 5 --std 0.3 --tokenizer tests/vectors/tokenizers/model-unigram.json
sed -i 's/"model_type": "roberta"/"model_type": "xlm-roberta"/; s/RobertaForMaskedLM/XLMRobertaForMaskedLM/' "$xlm/config.json"
ok 'XLM-RoBERTa opens' both 0 'type         xlm-roberta' inspect "$xlm"
ok 'its mask is filled' run 0 fill-mask --model "$xlm" --top 3 'the <mask> of'
sed -i 's/"model_type": "xlm-roberta"/"model_type": "camembert"/' "$xlm/config.json"
ok 'CamemBERT opens' both 0 'type         camembert' inspect "$xlm"
ok 'and goes into one file' run 0 model convert --model "$xlm" --type q8_0 --out "$here/xlm.gguf"
ok 'which fills masks, too' run 0 fill-mask --model "$here/xlm.gguf" --top 3 'the <mask> of'

ok 'pull needs a name' says 2 'NAME[@REVISION] is needed' pull
ok 'a name that is none' says 1 'a model on a hub is called' pull 'a b'
ok 'a model that is not here' says 1 'hf:' tokenize --model hf:x/../y </dev/null
ok 'help of pull' both 0 'HF_TOKEN' pull --help
ok 'help of convert' both 0 'q4_0' model convert --help
echo "1..$n"
exit $failed
