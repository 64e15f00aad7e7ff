#!/bin/bash
# cli_tokenize.sh - keyhole tokenize and keyhole bench tokenize, as a user types them.
. tests/tap.sh

# with INPUT STATUS ARGUMENT...: runs keyhole with this standard input (printf's escapes), expects the exit status.
with() {
    local input=$1 want=$2 got
    shift 2
    printf -- "$input" | "$KEYHOLE" "$@" >"$here/out" 2>"$here/err"
    got=$?
    [ "$got" -eq "$want" ] || { echo "# status $got, expected $want"; return 1; }
}
# gives INPUT OUTPUT ARGUMENT...: the whole output, printf's escapes in both
gives() { with "$1" 0 "${@:3}" && [ "$(cat "$here/out"; echo .)" = "$(printf -- "$2"; echo .)" ]; }
fails() { with "$1" "$2" "${@:4}" && grep -qxF -- "keyhole: $3" "$here/err"; }

bpe=tests/vectors/tokenizers/tiny-bpe.json
folder=tests/vectors/tokenizers/tiny-bpe
words=tests/vectors/tokenizers/tiny-wordpiece
t=(tokenize --model "$bpe")
echo '{"model":{"type":"BPE","unk_token":"<unk>","vocab":{"a":0},"merges":[]}}' >"$here/strict.json"

ok "ids" gives 'Hello world\n' '0 346 291 82 262 322 314 2\n' "${t[@]}"
ok "the same from vocab.json and merges.txt" gives 'Hello world\n' '0 346 291 82 262 322 314 2\n' tokenize --model "$folder"
ok "from vocab.txt" gives 'Hello world\n' '2 278 279 3\n' tokenize --model "$words"
ok "one line of output for each line of input" gives 'a\n\nb' '0 68 2\n0 2\n0 69 2\n' "${t[@]}"
ok "no special tokens" gives 'a\n' '68\n' "${t[@]}" --no-special
ok "special tokens inside the text" gives 'a<mask>b\n' '68 660 69\n' "${t[@]}" --no-special
ok "not with --plain" gives '<mask>\n' '31 80 68 86 78 33\n' "${t[@]}" --no-special --plain
ok "JSON" gives 'a b\n' '{"ids":[0,68,267,2],"tokens":["<s>","a","Ġb","</s>"]}\n' "${t[@]}" --json
ok "JSON input, with a newline inside" gives '"a\\nb"\n' '68 202 69\n' "${t[@]}" --no-special --json-input
ok "JSON input with NUL" gives '"a\\u0000b"\n' '68 192 69\n' "${t[@]}" --no-special --json-input
ok "broken UTF-8" gives 'a\377\n' '68 175 127 125\n' "${t[@]}" --no-special
ok "decoding" gives '0 68 267 2\n' '<s>a b</s>\n' "${t[@]}" --decode
ok "decoding without special tokens" gives '0 68 267 2\n' 'a b\n' "${t[@]}" --decode --no-special
ok "decoding nothing" gives '\n' '\n' "${t[@]}" --decode
ok "decoding to JSON" gives '68 202 69\n' '"a\\nb"\n' "${t[@]}" --decode --json
ok "decoding a JSON list" gives '[68,267]\n' 'a b\n' "${t[@]}" --decode --json-input
ok "decoding what --json printed" gives '{"ids":[68,267],"tokens":[]}\n' 'a b\n' "${t[@]}" --decode --json-input
ok "no input, no output" gives '' '' "${t[@]}"

ok "no model" fails '' 2 '--model DIR|FILE|builtin is needed: a model folder, tokenizer.json, vocab.json (with merges.txt), vocab.txt or GGUF file' tokenize
ok "no such model" fails '' 1 '/nowhere: cannot open: No such file or directory' tokenize --model /nowhere
ok "a bad JSON line" fails '"a"\nb\n' 1 'standard input:2: expected a JSON string' "${t[@]}" --json-input
ok "what came before is printed" grep -q '^0 68 2$' "$here/out"
ok "JSON that is no string" fails '7\n' 1 'standard input:1: expected a JSON string' "${t[@]}" --json-input
ok "ids that are none" fails '1 2\n1 x\n' 1 'standard input:2: expected ids separated by spaces' "${t[@]}" --decode
ok "ids run together" fails '1,2\n' 1 'standard input:1: expected ids separated by spaces' "${t[@]}" --decode
ok "an id outside" fails '661\n' 1 'standard input:1: id 661 is outside the vocabulary, which goes from 0 to 660' "${t[@]}" --decode
ok "a negative id" fails '-1\n' 1 'standard input:1: id -1 is outside the vocabulary, which goes from 0 to 660' "${t[@]}" --decode
ok "JSON that holds no ids" fails '{"x":1}\n' \
    1 'standard input:1: expected a JSON list of ids, or an object with one as its "ids"' "${t[@]}" --decode --json-input
ok "JSON ids that are none" fails '[1,"2"]\n' 1 'standard input:1: expected whole numbers as ids' "${t[@]}" --decode --json-input
ok "a text that the tokenizer cannot take" fails 'low\n' \
    1 "standard input:1: a character is not in the tokenizer's vocabulary, and neither is its unk_token \"<unk>\"" \
    tokenize --model "$here/strict.json"

ok "help" with '' 0 tokenize --help
ok "help has an example" grep -q 'echo .Hello world. | keyhole tokenize' "$here/out"

printf 'Hello world\nthe quick brown fox\n' >"$here/text"
ok "bench" with '' 0 bench tokenize --model "$bpe" --file "$here/text" --seconds 0.01
ok "bench prints a speed" grep -qE '^best pass .* MB/s, [0-9]+ tokens/s$' "$here/out"
ok "bench as JSON" with '' 0 bench tokenize --model "$bpe" --file "$here/text" --seconds 0.01 --json
ok "bench prints its fields" grep -qE '^\{"megabytes":0.000,"tokens":[0-9]+,.*"megabytes_per_second":[0-9.]+,"tokens_per_second":[0-9]+\}$' "$here/out"
ok "bench without a file" fails '' 1 "/nowhere: cannot open: No such file or directory" bench tokenize --model "$bpe" \
    --file /nowhere
echo "1..$n"
exit $failed
