#!/bin/bash
# cli_tokenizer_train.sh - "keyhole tokenizer train" from the outside.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0
ok() { n=$((n + 1)); if eval "$2"; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; fi; }
corpus=tests/vectors/bpe-train/corpus.txt
train() { "$KEYHOLE" tokenizer train "$@" 2>"$dir/err"; }
# says STATUS SENTENCE ARGS...: the exit status and a part of the sentence on standard error
says() {
    local status=$1 text=$2
    shift 2
    train "$@" >"$dir/out"
    [ $? -eq "$status" ] && grep -qF -- "$text" "$dir/err" && [ ! -s "$dir/out" ]
}
# the merges of a tokenizer.json, one a line, without the escapes
merges() { sed '1,/"merges"/d' "$1" | sed -n 's/^      "\(.*\)",*$/\1/p' | sed 's/\\\(.\)/\1/g'; }

ok "writes a tokenizer and says so" '
    train --corpus $corpus --vocab 300 --out $dir/a.json |
    grep -q "a.json: 300 tokens, 39 merges, from 28 lines"'
ok "no temporary file is left" '[ "$(ls $dir | grep -c a.json)" -eq 1 ]'
ok "one and two threads write the same bytes" '
    train --corpus $corpus --vocab 500 --out $dir/1.json --threads 1 >/dev/null &&
    train --corpus $corpus --vocab 500 --out $dir/2.json --threads 2 >/dev/null &&
    cmp $dir/1.json $dir/2.json'
ok "standard input is a corpus" '
    train --corpus - --vocab 500 --out $dir/3.json <$corpus >/dev/null &&
    cmp $dir/1.json $dir/3.json'
ok "a pipe is a corpus" '
    train --corpus <(cat $corpus) --vocab 500 --out $dir/4.json >/dev/null &&
    cmp $dir/1.json $dir/4.json'
ok "merges are those of the vector" '
    train --corpus $corpus --min-frequency 1 --out $dir/5.json >/dev/null;
    merges $dir/5.json | cmp - tests/vectors/bpe-train/plain.merges'
ok "--json prints one object with the options" '
    train --corpus $corpus --vocab 300 --out $dir/a.json --json |
    grep -q "^{\"out\":.*\"tokens\":300,\"merges\":39,\"bytes\":1709,\"lines\":28,.*\"options\":{\"corpus\":\[\"$corpus\"\].*}}\$"'
ok "--special and --style are obeyed" '
    train --corpus $corpus --vocab 300 --style gpt2 --special "<|a|>" "<|b|>" --out $dir/g.json >/dev/null &&
    grep -q "\"<|b|>\": 1" $dir/g.json &&
    ! grep -q Roberta $dir/g.json'
ok "--limit-bytes reads less" 'train --corpus $corpus --limit-bytes 70 --out $dir/l.json | grep -q "from 2 lines"'
ok "progress goes to standard error" '
    train --corpus $corpus --vocab 300 --out $dir/a.json >/dev/null;
    grep -q "merge pairs done=39 total=39" $dir/err'
ok "a small corpus is a warning" '
    train --corpus $corpus --out $dir/a.json >/dev/null;
    grep -q "keyhole: warning: the corpus gives only .* of 30000 tokens" $dir/err'

ok "no corpus" 'says 2 "--corpus FILE is needed" --out $dir/x.json'
ok "no output" 'says 2 "--out FILE is needed" --corpus $corpus'
ok "missing file" 'says 1 "/nonexistent: cannot open: No such file" --corpus /nonexistent --out $dir/x.json'
ok "empty corpus" 'says 1 "/dev/null: the corpus is empty" --corpus /dev/null --out $dir/x.json'
ok "vocabulary too small" '
    says 1 "a vocabulary of 10 tokens is too small" --corpus $corpus --vocab 10 --out $dir/x.json'
ok "vocabulary of nonsense" '
    says 2 "--vocab takes a whole number from 1 to 10000000; got \"many\"" --corpus $corpus --vocab many --out $dir/x.json'
ok "unknown style" '
    says 2 "--style takes one of roberta|gpt2; got \"bert\"" --corpus $corpus --style bert --out $dir/x.json'
ok "compressed corpus" 'gzip -c $corpus >$dir/c.gz; says 1 "is compressed" --corpus $dir/c.gz --out $dir/x.json'
ok "unwritable output" '
    says 1 "/dev/null: cannot make the folder" --corpus $corpus --out /dev/null/x.json'
ok "a failure leaves no output" '[ ! -e $dir/x.json ]'
echo "1..$n"
[ -z "$failed" ]
