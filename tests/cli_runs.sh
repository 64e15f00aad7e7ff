#!/bin/bash
# cli_runs.sh - runs that survive, as a user sees them: kills, signals, --resume and its refusals, forecasts, lists and logs.
. tests/tap.sh
. tests/kill.sh
RANDOM=7

# ---- kills
for method in bbt ensemble elbo abc-smc smc snpe; do
    ok "$method undisturbed" whole "$method"
    ok "$method killed three times" killed "$method" 3
done

# ---- signals
long=(tune --method bbt "${common[@]}" --sigma 3 --pop 10 --dev-every 7 --budget-generations 5000)
# signalled SIGNAL STATUS DIR: a run in DIR gets the signal after a while, ends with the status, and says how to go on
signalled() {
    "$KEYHOLE" "${long[@]}" --out "$3" >"$here/out" 2>"$here/err" &
    local pid=$! status
    soon $pid [ -s "$3/log.txt" ]
    kill "-$1" $pid
    wait $pid
    status=$?
    [ $status -eq "$2" ] && err_has "every answer is kept in $3: the same command with --resume goes on, with --finish it makes" &&
        grep -q "interrupted at [0-9]* of 5000, after [0-9]* queries" "$here/err" && [ ! -e "$3/posterior.json" ]
}
ok ctrl_c_exits_with_130 signalled INT 130 "$here/int"
ok sigterm_exits_with_143 signalled TERM 143 "$here/term"
ok an_interrupted_run_is_listed_as_such both 0 "interrupted" runs "$here/int"
# What --finish makes of an interrupted run is what a run of as many generations gives; going on later gives what going on at once would.
finishes() {
    cp -r "$here/int" "$here/finish" && run 0 "${long[@]}" --out "$here/finish" --finish && out_has "finished early, as asked" &&
        both 0 "finished" runs "$here/finish" && gens=$(grep -c gen= "$here/finish/log.txt") &&
        run 0 "${long[@]}" --out "$here/as-many" --budget-generations "$gens" && cmp "$here/finish/posterior.safetensors" "$here/as-many/posterior.safetensors"
}
ok finish_makes_a_classifier_of_what_is_there finishes
later() { run 0 "${long[@]}" --out "$here/finish" --resume --budget-generations $((gens + 10)) && run 0 "${long[@]}" --out "$here/at-once" --budget-generations $((gens + 10)) &&
    same "$here/finish" "$here/at-once"; }
ok a_finished_run_goes_on_later later
ok nothing_to_finish says 2 "there is no run in $here/none to make a classifier of" "${long[@]}" --out "$here/none" --finish
ok finish_and_force says 2 "--finish goes on with a run and --force writes over it" "${long[@]}" --out "$here/int" --finish --force
goes_on() { run 0 "${long[@]}" --out "$here/int" --resume --budget-generations 20 &&
    run 0 "${long[@]}" --out "$here/fresh" --budget-generations 20 && same "$here/int" "$here/fresh"; }
ok it_goes_on_with_another_budget goes_on
two_at_once() {
    "$KEYHOLE" "${long[@]}" --out "$here/two" >/dev/null 2>&1 &
    local pid=$! rc
    soon $pid [ -s "$here/two/log.txt" ]
    says 1 "another process $pid is at work on this run; wait for it, or end it first" "${long[@]}" --out "$here/two" --resume &&
        both 0 "running" runs "$here/two" && run 0 log "$here/two" && out_has "gen=1 queries="
    rc=$?
    kill -KILL $pid
    wait $pid 2>/dev/null
    return $rc
}
ok the_second_of_two_is_refused two_at_once
listed_as_running() { [ -e "$here/followed/run.sqlite" ] && "$KEYHOLE" runs "$here/followed" 2>/dev/null | grep -q running; }
followed() {
    "$KEYHOLE" tune --method bbt "${common[@]}" $(options_of bbt) --out "$here/followed" >/dev/null 2>&1 &
    local pid=$!
    soon $pid listed_as_running
    run 0 log "$here/followed" --follow && wait $pid && cmp "$here/out" "$here/followed/log.txt"
}
ok log_follows_a_run followed

# ---- refusals, each with the sentence to type
bbt=(tune --method bbt "${common[@]}" $(options_of bbt))
ok unfinished says 1 "holds an unfinished run of bbt" "${long[@]}" --out "$here/two"
ok unfinished_says_what_to_type err_has "--resume goes on with it, --finish makes a classifier of what is there, --force starts again"
ok finished says 1 "--force writes over it, --resume with a larger budget goes on" "${bbt[@]}" --out "$here/bbt"
ok resuming_what_is_finished_asks_nothing both 0 "of them were answered before" "${bbt[@]}" --out "$here/bbt" --resume
ok resume_and_force says 2 "give one of them" "${bbt[@]}" --out "$here/bbt" --resume --force
ok a_changed_option says 1 "holds another run: --pop was 10 and is 11 now" "${bbt[@]}" --out "$here/bbt" --resume --pop 11
ok a_changed_seed says 1 "--seed was 13 and is 14 now" "${bbt[@]}" --out "$here/bbt" --resume --seed 14
tiny_model "$here/other" 4
ok a_changed_model says 1 "the model's fingerprint was" "${bbt[@]}" --out "$here/bbt" --resume --model "$here/other"
mkdir "$here/data2" && sed 's/boats/ships/' "$data/train.tsv" >"$here/data2/train.tsv"
ok changed_rows says 1 "the hash of the train rows was" "${bbt[@]}" --out "$here/bbt" --resume --data "$here/data2"
ok another_method says 1 "--method was bbt and is elbo now" tune --method elbo "${common[@]}" --out "$here/bbt" --resume
mv "$model" "$here/moved" && cp -r "$here/bbt" "$here/bbt-moved"
ok a_model_that_moved_is_the_same run 0 "${bbt[@]}" --out "$here/bbt-moved" --resume --model "$here/moved"
mv "$here/moved" "$model"

# ---- damage
cp -r "$here/bbt" "$here/broken" && dd if=/dev/zero of="$here/broken/run.sqlite" bs=100 count=1 conv=notrunc 2>/dev/null
ok a_damaged_journal says 1 "run.sqlite: damaged, or not a database" "${bbt[@]}" --out "$here/broken" --resume
ok which_force_replaces run 0 "${bbt[@]}" --out "$here/broken" --force
cp -r "$here/bbt" "$here/newer" && printf '\0\0\0\143' | dd of="$here/newer/run.sqlite" bs=1 seek=60 conv=notrunc 2>/dev/null
ok a_newer_journal says 1 "written by a newer keyhole (schema 99, this one knows 2)" "${bbt[@]}" --out "$here/newer" --resume
ok nor_is_it_listed says 0 "written by a newer keyhole" runs "$here/newer"
if [ "$(id -u)" -eq 0 ]; then
    n=$((n + 1))
    echo "# skipped: a_read_only_folder: root may write anywhere"
    echo "ok $n - a_read_only_folder # SKIP root may write anywhere"
else
    cp -r "$here/bbt" "$here/readonly" && chmod 555 "$here/readonly"
    ok a_read_only_folder says 1 "run.lock: cannot write" "${bbt[@]}" --out "$here/readonly" --resume
    ok which_can_be_read both 0 "finished" runs "$here/readonly"
    chmod 755 "$here/readonly"
fi
# A limit on the size of files is as good as a full disk; the shell ignores its signal so that the program sees the error.
too_large() { (trap '' XFSZ && ulimit -f 300 && run 1 "${bbt[@]}" --out "$here/limited"); }
ok no_room too_large
ok no_room_is_one_sentence grep -qE "run.sqlite: (cannot read or write|the disk is full)" "$here/err"
ok what_was_recorded_is_readable both 0 "bbt" runs "$here/limited"
ok and_the_run_goes_on run 0 "${bbt[@]}" --out "$here/limited" --resume
ok to_the_same_bytes same "$here/limited" "$here/bbt"

# ---- forecasts
ok dry_run both 0 "forecast: at most 600 candidates, 9744 queries on 16 train and 16 dev rows, " "${bbt[@]}" --out "$here/dry" \
    --dry-run
ok a_dry_run_leaves_nothing [ ! -e "$here/dry" ]
ok price both 0 ", cost " "${bbt[@]}" --out "$here/dry" --dry-run --price-per-1k-tokens 0.5
ok forecast_as_json both 0 '{"candidates":600,"queries":9744,"tokens":' "${bbt[@]}" --out "$here/dry" --dry-run --json
ok a_budget_bounds_the_forecast both 0 " 1000 queries on" "${bbt[@]}" --out "$here/dry" --dry-run --budget-queries 1000
ok json_progress run 0 "${bbt[@]}" --out "$here/json" --json-progress --price-per-1k-tokens 0.5 --budget-generations 5
ok one_json_line_a_generation [ "$(grep -c '^{"phase":"bbt","done":[0-9]*,"total":5,"queries":[0-9]*,"replayed":0,.*"cost":.*,"line":"gen=' "$here/err")" -eq 5 ]
ok the_summary_says_the_cost out_has "cost      "

# ---- lists
ok runs_finds_them both 0 "finished" runs "$here"
ok runs_lists_each [ "$(grep -c . "$here/out")" -ge 8 ]
ok runs_as_json both 0 '"method":"bbt","task":"toy"' runs "$here" --json
ok no_such_folder says 1 "there is no such folder" runs "$here/nowhere"
ok no_runs says 0 "no runs in" runs "$data"
ok log_is_log_txt run 0 log "$here/bbt"
ok log_is_the_same cmp "$here/out" "$here/bbt/log.txt"
ok log_as_json both 0 '{"gen":1,"queries":' log "$here/bbt" --json
ok log_of_nothing says 1 "holds no run: there is no run.sqlite in it" log "$data"
ok inspect_a_run both 0 "generations  60 of 60" inspect "$here/bbt"
ok inspect_tells_the_terms out_has "--budget-generations 60   (may change)"
ok inspect_as_json both 0 '"terms":{"method":"bbt","seed":"13",' inspect "$here/bbt" --json
echo "1..$n"
exit $failed
