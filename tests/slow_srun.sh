#!/bin/bash
# slow_srun.sh - keyhole under Slurm's srun: a cluster of this one machine is started on loopback, and a run on two ranks must leave the
# bytes of a run alone. Needs slurmctld, slurmd and munge (Debian: slurmctld slurmd slurm-client munge), and root.
. tests/tap.sh
skip_all() {
    echo "# skipped: slow_srun: $1"
    echo "ok 1 - slow_srun # SKIP $1"
    echo "1..1"
    exit 0
}
PATH=$PATH:/usr/sbin
for program in slurmctld slurmd srun munged; do
    command -v "$program" >/dev/null || skip_all "there is no $program; install slurmctld, slurmd, slurm-client and munge"
done
[ "$(id -u)" -eq 0 ] || skip_all "slurmd starts for root only"
[ -e "$(dirname "$KEYHOLE")/keyhole-mpi.so" ] || skip_all "keyhole was built without MPI; install libopenmpi-dev"
compgen -G '/usr/lib/*/slurm-wlm/mpi_pmix.so' >/dev/null || skip_all "this Slurm has no pmix"
. tests/kill.sh

# ---- the cluster
s=$here/slurm name=$(hostname -s)
mkdir -p "$s/state" "$s/spool"
end() {
    for i in d ctld munged; do [ -s "$s/$i.pid" ] && kill "$(cat "$s/$i.pid")" 2>/dev/null; done
    sleep 1
    rm -rf "$here"
}
trap end EXIT
head -c 128 /dev/urandom >"$s/key" && chmod 600 "$s/key" && chmod 755 "$here" "$s"
cat >"$s/slurm.conf" <<END
ClusterName=keyhole
SlurmctldHost=$name(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$s/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$s/state
SlurmdSpoolDir=$s/spool
SlurmctldPidFile=$s/ctld.pid
SlurmdPidFile=$s/d.pid
SlurmctldLogFile=$s/ctld.log
SlurmdLogFile=$s/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
ReturnToService=2
SlurmctldPort=$((20000 + $$ % 10000))
SlurmdPort=$((30000 + $$ % 10000))
NodeName=$name NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
END
export SLURM_CONF=$s/slurm.conf
cluster() {
    local i
    munged --force --socket="$s/munge.sock" --key-file="$s/key" --pid-file="$s/munged.pid" --log-file="$s/munged.log" \
        --seed-file="$s/seed" &&
        slurmctld -f "$SLURM_CONF" && slurmd -f "$SLURM_CONF" || return 1
    for i in $(seq 60); do timeout 10 sinfo -h 2>/dev/null | grep -q idle && return 0; sleep 1; done
    return 1
}
cluster >"$here/out" 2>"$here/err" ||
    skip_all "Slurm does not start on this machine: $(tail -qn 1 "$here/err" "$s/ctld.log" "$s/d.log" 2>/dev/null | head -n 1)"

# ---- the runs
spread() { # METHOD N OPTIONS...
    local method=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2046
    timeout 300 srun --mpi=pmix --kill-on-bad-exit=1 --overcommit -n "$ranks" "$(realpath "$KEYHOLE")" tune \
        --method "$method" "${common[@]}" $(options_of "$method") "$@" \
        --threads 1 --out "$here/$method-srun" >"$here/out" 2>"$here/err" && err_has "keyhole: $ranks ranks answer" &&
        same "$here/$method" "$here/$method-srun"
}
ok "bbt alone" whole bbt
ok "srun -n 2 leaves the same bytes" spread bbt 2
ok "an ensemble alone" whole ensemble
ok "srun -n 2, members side by side" spread ensemble 2 --groups 2
lonely() { timeout 60 srun --mpi=none -n 2 "$(realpath "$KEYHOLE")" task list >"$here/out" 2>"$here/err"; [ $? -eq 1 ] &&
    err_has "srun started 2 tasks, but they cannot find each other: use srun --mpi=pmix"; }
ok "without pmix it says what to type" lonely
echo "1..$n"
exit $failed
