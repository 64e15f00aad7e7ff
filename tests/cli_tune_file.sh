#!/bin/bash
# tune FILE: from one file to a judged classifier; what goes wrong on the way, said in one sentence; texts as arguments.
. tests/tap.sh
case $KEYHOLE in /*) program=$KEYHOLE ;; *) program=$PWD/$KEYHOLE ;; esac
model=$here/model csv=$here/sub.dir/boats.csv
err_has() { grep -qF -- "$1" "$here/err"; }
run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model"
mkdir "$here/sub.dir"
{
    echo "text,label"
    for i in $(seq 30); do
        echo "the boats number $i were green,up"
        echo "an old lower house number $i,down"
    done
} >"$csv"
small=(--model "$model" --method feature-mlp --epochs 5 --fallback none) # the template has no need to be cross-fitted

# ---- one file in, a classifier out
whole() {
    run 0 tune "$csv" "${small[@]}" --out "$here/a/b/run" && err_has "2 classes (down, up); 36 rows to learn from, 12 to choose on, 12 held out" &&
        out_has "on 12 held-out rows" && out_has "keyhole predict $here/a/b/run" && out_has "promise" && out_has "examples"
}
ok "one file is enough, and parents of --out are made" whole
parts() { for f in task.json posterior.json decisions.json crossfit.jsonl results.json report.html; do [ -s "$here/a/b/run/$f" ] || return 1; done; }
ok "the folder holds task, posterior, decisions, report" parts
moved() {
    echo '{ "name": "toy", "template": "{text} It was {mask} .",
        "labels": [ { "name": "down", "words": ["lower"] }, { "name": "up", "words": ["better"] } ] }' >"$here/toy.json"
    run 0 tune "$csv" --model "$model" --task "$here/toy.json" --method model-tuning --epochs 1 --shots 4 --out "$here/own" && mv "$here/own" "$here/elsewhere" &&
        (cd / && "$program" predict "$here/elsewhere" "the boats" >"$here/out" 2>"$here/err") && out_has '"label":'
}
ok "a run that made its own model may be moved" moved
ok "every row of train and dev is cross-fitted" test "$(wc -l <"$here/a/b/run/crossfit.jsonl")" -eq 48
named() { (cd "$here" && "$program" tune sub.dir/boats.csv "${small[@]}" --no-eval >out 2>err && [ -s boats-run/task.json ] && [ ! -e boats-run/results.json ]); }
ok "without --out the run is named after the file" named
same() { run 0 tune "$csv" "${small[@]}" --out "$here/again" --threads 1 && cmp "$here/again/posterior.safetensors" "$here/a/b/run/posterior.safetensors" &&
    cmp "$here/again/task.json" "$here/a/b/run/task.json" && cmp "$here/again/crossfit.jsonl" "$here/a/b/run/crossfit.jsonl"; }
ok "the same bits with one thread" same
travels() { (cd / && "$program" eval "$here/again" --no-report >"$here/out" 2>"$here/err"); }
ok "a run opened from another folder finds its model and data" travels

searched() { run 0 tune "$csv" --model "$model" --method bbt --budget-generations 3 --dim 12 --slots 5 --p0 random --calibrate none --out "$here/searched" &&
    out_has "Estimate, not a promise, as the method has chosen on these 12 rows" && grep -q '"estimate": true' "$here/searched/decisions.json"; }
ok "thresholds of a search are called estimates" searched

tried() { run 0 tune "$csv" --model "$model" --method feature-logistic --out "$here/tried" && out_has "tried     manual " && ! err_has "1 candidates" &&
    grep -q ">What was tried<" "$here/tried/report.html" && grep -q "had not learned from it; less is better" "$here/tried/report.html" && ! grep -q "0 of each class" "$here/tried/report.html" &&
    grep -q 'class="says"><span>share of rows whose most probable class is the true one; more is better' "$here/tried/report.html"; }
ok "the report lists what was tried, numbers with what they are" tried

# ---- judged on other files
ok "eval takes another file, whole" run 0 eval "$here/again" --data "$csv" --no-report
cp "$csv" "$here/copy.csv"
flatter() { run 0 eval "$here/again" --data "$here/copy.csv" --no-report && out_has "60 test rows" && out_has "36 of these rows are among the rows it learned from"; }
ok "rows that were learned from are noticed" flatter
printf 'one text\n\nanother text\n' >"$here/other.txt"
foreign() { run 0 eval "$here/again" --ood "$here/other.txt" "$csv" --no-report && out_has "against 2 rows of other.txt" && out_has "against 60 rows of boats.csv"; }
ok "--ood takes files, labels ignored" foreign
first() { run 0 eval "$here/again" --no-report && ! out_has ece_classwise && out_has "ece: calibration error" && out_has "--all prints the other metrics"; }
ok "five metrics first, explained" first
ok "what is caught comes first" eval 'run 0 eval "$here/again" --ood "$here/other.txt" --no-report && out_has "of them caught as out-of-distribution"'
ok "distances of train rows join those of dev" out_has "(from 48 rows)"
# With the real encoder: the distance alone had keyboard noise at 0.25 and a limit of 0.263 (seed 13).
noise() { run 0 tune examples/tickets.csv --model "$model" --method feature-mlp --epochs 1 --fallback none --seed 13 --out "$here/noise" &&
    run 0 predict "$here/noise" "asdf qwer zxcv" "hgfd rewq bvcx" "dfgkjh sdfkjg" "mnbv" "gfhj tyru eiwo" && [ "$(grep -c '"ood":true' "$here/out")" -eq 5 ] &&
    run 0 predict "$here/noise" "Why was I charged twice this month?" "The app crashes when I open it." && ! out_has '"ood":true'; }
if [ -s models/builtin/model.safetensors ]; then ok "keyboard noise is out-of-distribution" noise; fi
gone() { cp "$csv" "$here/gone.csv" && run 0 tune "$here/gone.csv" "${small[@]}" --no-eval --out "$here/gone" && rm "$here/gone.csv" &&
    says 1 "are gone; --data says where they are now" eval "$here/gone" --no-report; }
ok "rows that are gone: --data names them" gone
ok "--all prints the rest" eval 'run 0 eval "$here/again" --no-report --all && out_has ece_classwise'

# ---- parents of --out
parents() { run 0 eval "$here/again" --no-report --out "$here/pa/b/eval" --rows-out "$here/pc/d/rows" && [ -s "$here/pa/b/eval/results.json" ] && [ -s "$here/pc/d/rows" ] &&
    run 0 data split "$csv" --shots 4 --out "$here/pe/f/split" &&
    run 0 model random --arch tiny --seed 1 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$here/pg/h/model"; }
ok "parents of --out are made everywhere" parents
stopped() { # killed by the bar's first line; the model of the examples takes long enough
    mkfifo "$here/line" && { "$program" tune examples/tickets.csv --out "$here/stopped" --force >"$here/out" 2>"$here/line" & local pid=$!
    while read -r line; do case $line in "label words done=1 "*) kill -INT $pid ;; esac; echo "$line"; done <"$here/line" >"$here/err"; wait $pid; [ $? -eq 130 ]; } &&
        err_has "interrupted while it chose words for the labels; the same command begins again"; }
if [ -s models/builtin/model.safetensors ]; then ok "Ctrl-C before the search says so" stopped; fi

# ---- predict and tokenize take texts
ok "predict takes texts" eval 'run 0 predict "$here/again" "the boats" "an old house" && [ "$(wc -l <"$here/out")" -eq 2 ]'
ok "in sentences, if asked or on a terminal" eval 'run 0 predict "$here/again" --output text "the boats" && out_has "\"the boats\"" && ! out_has "{" && out_has "%"'
ok "JSON where a program reads" eval 'run 0 predict "$here/again" "the boats" && out_has "{\"line\":1,\"label\":"'
typed() { script -qec "'$program' predict '$here/again' 'the boats'" /dev/null >"$here/out" 2>"$here/err" </dev/null && out_has '"the boats"' && ! out_has '{'; }
ok "sentences on a terminal" typed
ok "and by --text" eval 'run 0 predict "$here/again" --text "the boats" --with-text && out_has "\"text\":\"the boats\""'
ok "a file that is not there is not a text" eval 'run 1 predict "$here/again" nowhere.csv && err_has "nowhere.csv"'
ok "tokenize takes texts" eval 'run 0 tokenize --model "$model" "the boats" "green" && [ "$(wc -l <"$here/out")" -eq 2 ]'

# ---- sentences
says() { run "$1" "${@:3}" && err_has "$2"; }
ok "no data" says 2 "data is needed: a file of labelled texts" tune
ok "no such file" says 1 "nothing.csv: there is no such file or folder" tune "$here/nothing.csv" --model "$model"
ok "an unknown command" says 2 'did you mean "keyhole predict"?' predit
ok "a file instead of a command" says 2 "keyhole tune $csv" "$csv"
ok "an unknown option" says 2 "did you mean --model?" tune "$csv" --modle x
ok "an unknown method" says 2 "did you mean feature-mlp?" tune "$csv" --method feature-mpl
ok "-h" eval 'run 0 -h && out_has "usage: keyhole COMMAND" && run 0 tune -h && out_has "usage: keyhole tune"'
ok "all that is missing at once" eval 'says 2 "--corpus" pretrain && err_has "--tokenizer" && err_has "--out"'
ok "a model of a mistyped name" says 1 "did you mean builtin?" tune "$csv" --model bultin --out "$here/x"
ok "a model that is not there" says 1 "keyhole pull roberta-base" tune "$csv" --model roberta-base --out "$here/x"
ok "a part of a model" says 1 "name the folder that it is in" tune "$csv" --model "$model/model.safetensors" --out "$here/x"
: >"$here/pytorch_model.bin"
ok "pickled weights" says 1 "are not read, because they can run code" tune "$csv" --model "$here/pytorch_model.bin" --out "$here/x"
mkdir "$here/lfs" && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >"$here/lfs/model.safetensors"
ok "a pointer of git-LFS" says 1 '"git lfs pull" in its folder' tune "$csv" --model "$here/lfs" --out "$here/x"
ok "a GGUF file that is not there" eval 'says 1 "nothere.gguf: there is no such file" tune "$csv" --model nothere.gguf --out "$here/x" && ! err_has "keyhole pull"'
ok "a file where a run is expected" says 1 "is a file, not the folder of a run; \"keyhole tune $csv\" makes one" eval "$csv"
ok "a run that is not there" says 1 "nothere: there is no such folder" eval "$here/nothere"
ok "a folder that is no run" eval 'says 1 "sub.dir: not the folder of a run" compare "$here/sub.dir" && ! err_has "keyhole eval"'
fresh() { run 0 tune "$csv" "${small[@]}" --no-eval --out "$here/fresh" && ! out_has "resumed" && run 0 tune "$csv" "${small[@]}" --no-eval --out "$here/fresh" --resume; }
ok "a fresh run resumes nothing" fresh
ok "a method that needs more than labels" says 1 "smc, abc-smc, snpe and manual do with labels" tune "$csv" --model "$model" --method bbt \
    --access labels --out "$here/labels"
passed_over() { run 0 compare "$here/again" "$here/sub.dir" && err_has "sub.dir: not a judged run, passed over"; }
ok "compare passes over what is not a run" passed_over
values() { run 0 help --bash-completion && bash -c 'source "$1"; COMP_WORDS=(keyhole tune --access l); COMP_CWORD=3; _keyhole; [[ " ${COMPREPLY[*]} " == *" labels "* ]]' - "$here/out"; }
ok "completion knows the values of choices" values
printf 'PK\003\004rest' >"$here/x.xlsx"
ok "an Excel workbook" says 1 'export the sheet as "CSV UTF-8"' tune "$here/x.xlsx" --model "$model"
printf '\377\376l\0a\0' >"$here/u.csv"
ok "UTF-16" says 1 "iconv -f UTF-16 -t UTF-8" tune "$here/u.csv" --model "$model"
tr , ';' <"$csv" >"$here/semicolon.csv"
ok "semicolons" says 0 "2 classes (down, up)" tune "$here/semicolon.csv" "${small[@]}" --no-eval --out "$here/semicolon"
tail -n +2 "$csv" >"$here/headless.csv"
ok "no header, text first" says 0 "2 classes (down, up)" tune "$here/headless.csv" "${small[@]}" --no-eval --out "$here/headless"
sed 's/^text,label/complaint,office/' "$csv" >"$here/named.csv"
ok "columns of other names" says 0 "2 classes (down, up)" tune "$here/named.csv" "${small[@]}" --no-eval --out "$here/named"
sed 's/^text,label/message,squad/' "$csv" >"$here/other.csv"
ok "one column of a known name, one of another" says 0 "2 classes (down, up)" tune "$here/other.csv" "${small[@]}" --no-eval --out "$here/other"
sed -E '1d; s/(.*),(.*)/{"message": "\1", "squad": "\2"}/' "$csv" >"$here/other.jsonl"
ok "and the same in JSONL" says 0 "2 classes (down, up)" tune "$here/other.jsonl" "${small[@]}" --no-eval --out "$here/otherl"
sed 's/up$/1/; s/down$/2/' "$csv" >"$here/digits.csv"
ok "labels of digits" says 0 "2 classes (1, 2)" tune "$here/digits.csv" "${small[@]}" --no-eval --out "$here/digits"
ok "too few rows name --shots" says 1 "--shots 15 would do" tune "$csv" --model "$model" --shots 16
head -3 "$csv" >"$here/three.csv"
ok "a class with too few rows" says 1 "train, dev and test need one each" tune "$here/three.csv" --model "$model"
echo "1..$n"
exit $failed
