#!/bin/bash
# mpi_ranks.sh - keyhole under mpirun: the same bytes for 1, 2 and 4 ranks, a lost rank and a resume with another number, refusals.
. tests/tap.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive OMPI_MCA_btl_vader_single_copy_mechanism=none
# The sanitizers would count what MPI itself never frees.
export LSAN_OPTIONS=${LSAN_OPTIONS:+$LSAN_OPTIONS:}detect_leaks=0 ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
skip_all() {
    echo "# skipped: mpi_ranks: $1"
    echo "ok 1 - mpi_ranks # SKIP $1"
    echo "1..1"
    exit 0
}
command -v mpirun >/dev/null || skip_all "there is no mpirun; install openmpi-bin"
[ -e "$(dirname "$KEYHOLE")/keyhole-mpi.so" ] || skip_all "keyhole was built without MPI; install libopenmpi-dev"
. tests/kill.sh
# Ranks find a model by its word; what else they would read is the same for all.
common+=(--features-model none)

# ranks N ARGUMENTS...: mpirun, quietly; like run, fails unless the job ends with status $want
want=0
ranks() {
    local n=$1 got
    shift
    timeout $((6 * ${KEYHOLE_PATIENCE:-20})) mpirun -q --oversubscribe --bind-to none -n "$n" "$KEYHOLE" "$@" --threads 1 >"$here/out" 2>"$here/err"
    got=$?
    [ "$got" -eq "$want" ] || { echo "# status $got, expected $want"; return 1; }
}
# once TEXT: the sentence is there, and only once
once() { [ "$(grep -cF -- "$1" "$here/err")" -eq 1 ]; }

# ---- the same bytes, whatever the number of ranks
spread() { # METHOD N
    # shellcheck disable=SC2046
    ranks "$2" tune --method "$1" "${common[@]}" $(options_of "$1") --out "$here/$1-$2" && once "keyhole: $2 ranks answer" &&
        same "$here/$1" "$here/$1-$2"
}
for method in bbt ensemble abc-smc smc; do
    ok "$method alone" whole "$method"
    ok "$method on 2 ranks" spread "$method" 2
    ok "$method on 4 ranks" spread "$method" 4
done
in_step() { # N GROUPS
    # shellcheck disable=SC2046
    ranks "$1" tune --method ensemble "${common[@]}" $(options_of ensemble) --groups "$2" --out "$here/ensemble-$1-$2" &&
        same "$here/ensemble" "$here/ensemble-$1-$2"
}
ok "members of an ensemble side by side, two on 2 ranks" in_step 2 2
ok "and all on 3" in_step 3 4
ok "one summary" [ "$(grep -c '^saved ' "$here/out")" -eq 1 ]
one_rank() { ranks 1 tune --method smc "${common[@]}" $(options_of smc) --out "$here/smc-1" && same "$here/smc" "$here/smc-1"; }
ok "one rank is alone" one_rank
by_word() {
    mkdir "$here/models" && cp -R "$model" "$here/models/builtin" &&
        KEYHOLE_MODELS=$here/models ranks 2 tune --method smc "${common[@]}" $(options_of smc) --model builtin \
        --out "$here/smc-word" &&
        cmp "$here/smc/posterior.safetensors" "$here/smc-word/posterior.safetensors"
}
ok "every rank finds the built-in model" by_word
predicts() {
    echo "the boats were small" | "$KEYHOLE" predict "$here/ensemble" >"$here/alone" && echo "the boats were small" |
        ranks 3 predict "$here/ensemble" && cmp "$here/alone" "$here/out"
}
ok "predict reads and writes on rank 0" predicts
ok "a command without a model" ranks 2 task list
ok "says that ranks had nothing to do" \
    once "keyhole: the other 1 ranks had nothing to do: they answer for tune, predict, eval, reproduce and serve"
ok "says its result once" [ "$(grep -c '^sst2' "$here/out")" -eq 1 ]

mkdir "$here/sets" && cp -r "$data" "$here/sets/sst2" && cp "$data/train.tsv" "$here/sets/sst2/test.tsv"
paper=(reproduce --data "$here/sets" --model "$model" --shots 4 --dim 12 --slots 5 --p0 random --preset fast --tasks sst2 \
    --methods ensemble,smc --seeds 13 --tables 1)
reproduced() {
    run 0 "${paper[@]}" --out "$here/paper" && ranks 2 "${paper[@]}" --groups 2 --out "$here/paper-2" &&
        once "keyhole: 2 ranks answer" || return 1
    for i in ensemble smc; do
        cmp "$here/paper/runs/sst2-$i-13/posterior.safetensors" "$here/paper-2/runs/sst2-$i-13/posterior.safetensors" &&
            cmp "$here/paper/runs/sst2-$i-13/answers.jsonl" "$here/paper-2/runs/sst2-$i-13/answers.jsonl" || return 1
    done
}
ok "reproduce on 2 ranks, members side by side" reproduced

# ---- a lost rank
long=(tune --method bbt "${common[@]}" --sigma 3 --pop 10 --dev-every 7 --budget-generations 100000)
# lose RANK SIGNAL DIR: kills that rank of four in the middle of a run
lose() {
    local i pid job
    # shellcheck disable=SC2016
    timeout $((3 * ${KEYHOLE_PATIENCE:-20})) mpirun --oversubscribe \
        --bind-to none -n 4 sh -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$here/pid" "$KEYHOLE" "${long[@]}" \
        --out "$3" --threads 1 >"$here/out" 2>"$here/err" &
    job=$!
    for i in $(seq 200); do [ -s "$3/log.txt" ] && break; sleep 0.05; done
    sleep 0.2
    pid=$(cat "$here/pid.$1")
    kill "-$2" "$pid"
    wait $job && return 1
    [ -s "$3/log.txt" ] && [ ! -e "$3/posterior.json" ]
}
resumed() { # DIR N: with N ranks, or alone
    if [ "$2" -gt 1 ]; then ranks "$2" "${long[@]}" --budget-generations 40 --out "$1" --resume; else
        run 0 "${long[@]}" --budget-generations 40 --out "$1" --resume; fi && same "$here/fresh" "$1"
}
side_resumed() { ranks 2 "${members[@]}" --budget-generations 20 --groups 2 --out "$here/side" --resume &&
    same "$here/members" "$here/side"; }
ok "a run to compare with" run 0 "${long[@]}" --budget-generations 40 --out "$here/fresh"
ok "rank 2 is killed" lose 2 KILL "$here/lost"
ok "one sentence" once "keyhole: rank 2 does not answer any more; every answer so far is kept: the same command with --resume goes on"
ok "and no other" [ "$(grep -c "resume goes on" "$here/err")" -eq 1 ]
ok "two ranks go on to the same bytes" resumed "$here/lost" 2
ok "rank 0 is killed" lose 0 KILL "$here/headless"
ok "one process goes on to the same bytes" resumed "$here/headless" 1
ok "rank 0 is interrupted" lose 0 TERM "$here/term"
ok "one sentence again" once "every answer is kept in $here/term: the same command with --resume goes on"
ok "three ranks go on to the same bytes" resumed "$here/term" 3

members=(tune --method ensemble "${common[@]}" --sigma 3 --pop 10 --dev-every 7 --members 3)
long=("${members[@]}" --groups 3 --budget-generations 100000)
ok "members to compare with" run 0 "${members[@]}" --budget-generations 20 --out "$here/members"
ok "rank 1 is killed while members go side by side" lose 1 KILL "$here/side"
ok "two ranks go on with other groups to the same bytes" side_resumed
long=(tune --method bbt "${common[@]}" --sigma 3 --pop 10 --dev-every 7 --budget-generations 100000)

# ---- refusals, each once
want=2
ok "wrong usage" ranks 3 tune --method bbt --modle x
ok "is said once" once "keyhole: unknown option --modle"
want=1
bbt=(tune --method bbt "${common[@]}" --budget-generations 3)
ok "a model that is not there" ranks 3 "${bbt[@]}" --model "$here/nowhere" --out "$here/x"
ok "is missed once" [ "$(grep -c '^keyhole: ' "$here/err")" -eq 1 ]
# mixed ENVIRONMENT_OF_RANK_1 ARGUMENTS...
mixed() {
    local env=$1
    shift
    timeout $((3 * ${KEYHOLE_PATIENCE:-20})) mpirun -q --oversubscribe \
        --bind-to none -n 1 "$KEYHOLE" "$@" : -n 1 env "$env" "$KEYHOLE" "$@" >"$here/out" 2>"$here/err"
    [ $? -eq 1 ]
}
if "$KEYHOLE" inspect "$model" >/dev/null && [ "$(uname -m)" = x86_64 ] && grep -q avx2 /proc/cpuinfo; then
    ok "other kernels" mixed KEYHOLE_KERNELS=generic "${bbt[@]}" --out "$here/x"
    ok "are refused" once "computes with the kernels generic in f32 and rank 0 with"
fi
# Two folders of one name: the second rank's lies below another working folder.
mkdir "$here/a" "$here/b" && cp -r "$model" "$here/a/m" && tiny_model "$here/b/m" 4
other_model() {
    local program
    program=$(realpath "$KEYHOLE")
    timeout $((3 * ${KEYHOLE_PATIENCE:-20})) mpirun -q --oversubscribe --bind-to none -n 1 --wdir "$here/a" "$program" "${bbt[@]}" --model m --out "$here/x" : \
        -n 1 --wdir "$1" "$program" x >"$here/out" 2>"$here/err"
    [ $? -eq 1 ]
}
ok "another model" other_model "$here/b"
ok "is refused" once "m: rank 1 on $(hostname) has another model there than rank 0"
ok "no model on a rank" other_model "$here"
ok "is said with the rank" once "keyhole: rank 1 on $(hostname): m"
cp "$KEYHOLE" "$here/keyhole"
no_plugin() { PMI_SIZE=2 PMI_RANK=$1 "$here/keyhole" task list >"$here/out" 2>"$here/err"; [ $? -eq 1 ]; }
ok "without the plugin" no_plugin 0
ok "says what to install" once "this keyhole was built without MPI (keyhole-mpi.so is not beside it): install libopenmpi-dev and make again"
ok "the others keep silent" no_plugin 1
ok "quite" [ ! -s "$here/err" ]
off() { PMI_SIZE=2 PMI_RANK=1 KEYHOLE_MPI=off run 0 task list; }
ok "switched off" off
broken() { PMI_SIZE=2 PMI_RANK=0 KEYHOLE_MPI=$1 run 1 task list; }
ok "a plugin that is none" broken "$model/config.json"
ok "is said" once "config.json: MPI's part of keyhole cannot be loaded: "
lonely() { env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$KEYHOLE" task list >"$here/out" 2>"$here/err"; [ $? -eq 1 ]; }
ok "srun without its MPI" lonely
ok "says what to type" once "srun started 2 tasks, but they cannot find each other: use srun --mpi=pmix"
other_mpi() { env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 PMI_FD=9 OMPI_MCA_ess=singleton "$KEYHOLE" task list >"$here/out" \
    2>"$here/err"; [ $? -eq 1 ]; }
ok "ranks of another MPI" other_mpi
ok "are counted" once "the launcher started 2 ranks, but MPI knows of 1"
echo "1..$n"
exit $failed
