#!/bin/bash
# cli_pretrain.sh - pre-training from the command line: the model that comes out, stop, kill and resume, what is refused.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0
ok() { n=$((n + 1)); if eval "$2"; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; fi; }
gives() { local status=$1; shift; "$KEYHOLE" "$@" >"$dir/out" 2>"$dir/err" </dev/null; [ $? -eq "$status" ]; }
out() { grep -qF -- "$1" "$dir/out"; }
err() { grep -qF -- "$1" "$dir/err"; }
same() { cmp -s "$dir/$1/model.safetensors" "$dir/$2/model.safetensors"; }

tok=tests/vectors/tokenizers/tiny-bpe.json
for i in $(seq 400); do echo "the boat number $((i * 37 % 101)) is lower than the newest of $i boats"; done >"$dir/a.txt"
for i in $(seq 100); do echo "it was better, $i people said, than the $((i * 7 % 13)) others"; done >"$dir/b.txt"
args=(pretrain --corpus "$dir/a.txt" "$dir/b.txt:3" --tokenizer $tok --layers 2 --hidden 32 --heads 2 --positions 40
    --steps 40 --batch-tokens 256 --seq-schedule 16:0.5,24:0.5 --eval-every 10 --valid-share 0.05 --whole-word --seed 5)

ok "a model comes out" 'gives 0 "${args[@]}" --out $dir/whole && out "step 40" && out "(stopped: steps)"'
ok "with config, weights, tokenizer, log and state" '
    (for f in config.json model.safetensors tokenizer.json log.tsv training.json training-40.safetensors; do [ -s $dir/whole/$f ] || exit 1; done)'
ok "the log has a row for each look" \
    '[ "$(wc -l <$dir/whole/log.tsv)" -eq 5 ] && head -1 $dir/whole/log.tsv | grep -q "^step	tokens	seconds	loss	held_out	lr$"'
ok "the loss falls" 'awk "NR == 2 { a = \$5 } END { exit !(\$5 < a) }" $dir/whole/log.tsv'
ok "progress names loss, rate and speed" 'grep -q "pretrain done=40 total=40 loss=.* lr=.* tokens/s=" $dir/err'
ok "other commands open it" 'gives 0 fill-mask --model $dir/whole "the boat is<mask>" && gives 0 inspect $dir/whole && out "roberta"'
ok "the same weights with one thread" 'gives 0 "${args[@]}" --out $dir/one --threads 1 && same whole one'
ok "another seed, other weights" 'gives 0 "${args[@]}" --out $dir/other --seed 6 && ! same whole other'
ok "one step after another, then the same weights" '
    gives 0 "${args[@]}" --out $dir/steps --budget-time 0.0001 && out "(stopped: budget)" && [ -s $dir/steps/model.safetensors ] &&
    (for i in 1 2 3; do gives 0 "${args[@]}" --out $dir/steps --budget-time 0.0001 --resume || exit 1; done) &&
    gives 0 "${args[@]}" --out $dir/steps --resume && out "step 40" && same whole steps'
ok "the log of a resumed run has no row twice" \
    '[ "$(cut -f1 $dir/steps/log.tsv | sort | uniq -d | wc -l)" -eq 0 ] && [ "$(wc -l <$dir/steps/log.tsv)" -eq 5 ]'

# kill -9 in the middle, several times, at whatever moment it comes
"$KEYHOLE" "${args[@]}" --out "$dir/killed" --checkpoint-every 0 >/dev/null 2>&1 </dev/null &
pid=$!
while [ ! -s "$dir/killed/training.json" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
ok "a killed run is resumed to the same weights" 'gives 0 "${args[@]}" --out $dir/killed --resume && same whole killed'
ok "and leaves one state" '[ "$(ls $dir/killed/training-* | wc -l)" -eq 1 ]'
"$KEYHOLE" "${args[@]}" --out "$dir/asked" --steps 100000 >"$dir/out" 2>/dev/null </dev/null &
pid=$!
while [ ! -s "$dir/asked/log.tsv" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -TERM $pid
wait $pid
ok "SIGTERM ends it with a checkpoint and exit 0" '[ $? -eq 0 ] && out "(stopped: request)" && [ -s $dir/asked/training.json ]'

ok "a folder that holds a run is not begun again" \
    'gives 1 "${args[@]}" --out $dir/whole && err "training has begun in this folder; go on with --resume"'
ok "nor gone on with another recipe" \
    'gives 1 "${args[@]}" --out $dir/whole --resume --batch-tokens 512 && err "and cannot go on with"'
ok "but with more steps" 'gives 0 "${args[@]}" --out $dir/one --resume --steps 50 && out "step 50" && err "and goes on with"'
ok "warm start, in bf16" 'gives 0 "${args[@]}" --out $dir/warm --init $dir/whole --steps 2 --dtype bf16 && gives 0 inspect $dir/warm && out BF16'
ok "dropout goes on after a stop to the same weights, with layers computed twice too" '
    gives 0 "${args[@]}" --out $dir/drop --steps 6 --dropout 0.1 && ! same whole drop &&
    gives 0 "${args[@]}" --out $dir/drop2 --steps 6 --dropout 0.1 --recompute --budget-time 0.0001 &&
    gives 0 "${args[@]}" --out $dir/drop2 --steps 6 --dropout 0.1 --recompute --resume --threads 1 && same drop drop2 &&
    gives 1 "${args[@]}" --out $dir/drop2 --steps 6 --resume && err "and cannot go on with"'
ok "held-out text from a file" 'gives 0 "${args[@]}" --out $dir/valid --steps 2 --valid $dir/b.txt --windows joined && ! grep -q nan $dir/valid/log.tsv'
ok "a family of its own" 'gives 0 "${args[@]}" --out $dir/bert --steps 2 --family bert --json && out "\"step\":2" && grep -q BertForMaskedLM $dir/bert/config.json'

mkdir "$dir/data"
printf 'label\ttext\n0\tthe boat is lower\n1\tit was better\n' >"$dir/data/test.tsv"
printf '{"name":"toy","template":"{text} It was {mask} .","labels":[{"name":"bad","words":["lower"]},{"name":"good","words":["better"]}]}' >"$dir/toy.json"
ok "probes are measured on the way" '
    gives 0 "${args[@]}" --out $dir/probe --steps 2 --eval-every 1 --probe-task $dir/toy.json --probe-data $dir/data &&
    [ "$(awk -F"\t" "{ print NF }" $dir/probe/log.tsv | sort -u)" = 7 ]'

# labelled rows in templates
mkdir -p "$dir/labelled/kshot1"
(echo "label	text"; for i in $(seq 60); do echo "$((i % 2))	the boat number $i is $([ $((i % 2)) = 1 ] && echo new || echo old)"; done) >"$dir/labelled/train.tsv"
(echo "label	text"; sed -n 2,5p "$dir/labelled/train.tsv" | cut -f 1,2) >"$dir/labelled/test.tsv"
(echo "label	text"; sed -n 6,7p "$dir/labelled/train.tsv") >"$dir/labelled/kshot1/seed13.train.tsv"
(echo "label	text"; sed -n 8,9p "$dir/labelled/train.tsv") >"$dir/labelled/kshot1/seed13.dev.tsv"
sed 's/]}]}$/]}], "variants": [ { "template": "It was {mask} : {text}", "words": [["better"], ["lower"]] } ] }/' "$dir/toy.json" >"$dir/ways.json"
rows=("${args[@]}" --rows "$dir/ways.json=$dir/labelled:2" --rows-share 0.5 --steps 12)
ok "labelled rows are learned from, but not those to judge with" '
    gives 0 "${rows[@]}" --out $dir/rows && err "52 rows for task toy in 2 templates; 8 are left to judge with" && ! same whole rows'
ok "the model says so" 'grep -qF "\"seen_tasks\": [\"toy\"]" $dir/rows/config.json && gives 0 inspect $dir/rows'
ok "the same weights with one thread, stopped and resumed" '
    gives 0 "${rows[@]}" --out $dir/rows1 --threads 1 --budget-time 0.0001 && gives 0 "${rows[@]}" --out $dir/rows1 --threads 1 --resume && same rows rows1'
ok "another share is another recipe" 'gives 1 "${rows[@]}" --out $dir/rows --resume --rows-share 0.6 && err "and cannot go on with"'
ok "rows alone: the loss is theirs" 'gives 0 "${rows[@]}" --out $dir/rows2 --rows-share 1 --steps 60 --lr 1e-2 --json &&
    sed "s/.*\"loss\":\([0-9.]*\).*/\1/" $dir/out | awk "{ exit !(\$1 < 2) }"'
ok "bf16 products, twice the same" '
    gives 0 "${rows[@]}" --out $dir/narrow --precision bf16 --steps 4 && gives 0 "${rows[@]}" --out $dir/narrow1 --precision bf16 --steps 4 --threads 1 &&
    same narrow narrow1'
ok "tune says that the rows are known to the model" '
    gives 0 tune --method manual --model $dir/rows --task $dir/ways.json --data $dir/labelled --shots 1 --seed 13 --out $dir/run &&
    err "the model has learned from train rows of task \"toy\"" && gives 0 eval $dir/run --bootstrap 0 --no-report &&
    err "these rows are not few-shot to it" && grep -qF "\"seen\": true" $dir/run/results.json'
ok "and what is trained on still says so" '
    gives 0 "${args[@]}" --init $dir/rows --out $dir/after --steps 1 && grep -qF "\"seen_tasks\": [\"toy\"]" $dir/after/config.json'
ok "8-bit blocks: half of bf16, opened by every command" '
    gives 0 "${args[@]}" --init $dir/whole --inner 64 --steps 1 --dtype q8_0 --out $dir/blocks && gives 0 inspect $dir/blocks && out "stored as    Q8_0" &&
    gives 0 fill-mask --model $dir/blocks "the boat is<mask>" && gives 0 "${args[@]}" --init $dir/blocks --steps 1 --out $dir/blocks2'
ok "a size that is not whole blocks" 'gives 1 "${args[@]}" --hidden 40 --steps 1 --dtype q8_0 --out $dir/odd && err "needs sizes that are multiples of 32"'
ok "rows without a folder" 'gives 2 "${args[@]}" --rows sst2 --out $dir/x && err "must be TASK=DIR or TASK=DIR:WEIGHT"'
ok "a folder that is not there" 'gives 1 "${args[@]}" --rows $dir/toy.json=$dir/none --out $dir/x && err "$dir/none: there is no such file or folder"'
ok "a folder without train rows" 'gives 1 "${args[@]}" --rows $dir/toy.json=$dir/data --out $dir/x && err "holds no train.tsv"'
ok "an unknown task" 'gives 1 "${args[@]}" --rows nonsense=$dir/labelled --out $dir/x && err "nonsense: neither a task file nor a built-in task"'
ok "a weight that is not a number" 'gives 2 "${args[@]}" --rows toy=$dir/labelled:much --out $dir/x && err "the weight \"much\" is not a number"'
ok "a weight below 0" 'gives 2 "${args[@]}" --rows toy=$dir/labelled:-1 --out $dir/x && err "a weight must be above 0"'
sed 's/"lower"/"unfathomable"/' "$dir/toy.json" >"$dir/long.json"
ok "words of several tokens" 'gives 1 "${args[@]}" --rows $dir/long.json=$dir/labelled --out $dir/x && err "rows to train on need words of one token"'
mkdir "$dir/used" && cp "$dir/labelled/train.tsv" "$dir/used/test.tsv" && cp "$dir/labelled/train.tsv" "$dir/used/"
ok "rows that are all test rows" 'gives 1 "${args[@]}" --rows $dir/toy.json=$dir/used --out $dir/x && err "no row is left to train on"'

base=(pretrain --corpus "$dir/a.txt" --tokenizer $tok --out "$dir/x")
ok "steps or tokens" 'gives 2 "${base[@]}" && err "give either --steps N or --tokens N" && gives 2 "${base[@]}" --steps 1 --tokens 1'
ok "too many steps" 'gives 2 "${base[@]}" --tokens 1e15 && err "makes more than 4e9 steps"'
ok "a wrong schedule" 'gives 2 "${base[@]}" --steps 1 --seq-schedule 4:1 && err "pairs LENGTH:SHARE" && gives 2 "${base[@]}" --steps 1 --seq-schedule ""'
ok "a wrong weight" 'gives 2 pretrain --corpus $dir/a.txt:-1 --tokenizer $tok --out $dir/x --steps 1 && err "a weight must be above 0"'
ok "probes without data" 'gives 2 "${base[@]}" --steps 1 --probe-task sst2 && err "each task needs one folder"'
ok "two ways to say what model" \
    'gives 2 "${base[@]}" --steps 1 --arch bert-base --init $dir/whole && err "give one of --config, --arch and --init"'
ok "an unknown architecture" 'gives 2 "${base[@]}" --steps 1 --arch nonsense && err "is not known"'
ok "sequences longer than the model" \
    'gives 1 "${base[@]}" --steps 1 --positions 20 --hidden 32 --layers 1 --seq-len 64 && err "longer than the 18 that the model can take"'
ok "heads that do not divide" 'gives 1 "${base[@]}" --steps 1 --hidden 32 --heads 5 && err "cannot be divided among 5"'
ok "a missing corpus" 'gives 1 pretrain --corpus /nonexistent --tokenizer $tok --out $dir/y --steps 1 --hidden 32 --layers 1 && err "/nonexistent: cannot open"'
ok "bench train measures itself" \
    'gives 0 bench train --layers 1 --hidden 32 --vocab 100 --seq 8 --batch 8 --reps 1 --json && out "\"share_of_sgemm\":"'
echo "1..$n"
exit ${failed:-0}
