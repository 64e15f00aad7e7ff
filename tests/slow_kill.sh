#!/bin/bash
# slow_kill.sh - every method that tunes, killed with SIGKILL at 20 random moments: posterior, log and journal are those of the
# run that nobody disturbed. The moments differ from run to run; RANDOM_SEED=n repeats them.
. tests/tap.sh
. tests/kill.sh
RANDOM=${RANDOM_SEED:=$$}
echo "# RANDOM_SEED=$RANDOM_SEED"

"$KEYHOLE" tune --method '?' --model x --task x --data x --out x 2>"$here/names"
methods=$(sed -n 's/.*takes one of \(.*\); got.*/\1/p' "$here/names" | tr -d ,)
for method in $methods; do
    case $method in manual | icl) continue ;; esac # one question and done
    ok "$method undisturbed" whole "$method"
    ok "$method killed 20 times" killed "$method" 20
done
echo "1..$n"
exit $failed
