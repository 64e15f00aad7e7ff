#!/bin/sh
# run.sh KEYHOLE - speed as ratios; see the scripts beside this one.
echo "no benchmarks yet" >&2
