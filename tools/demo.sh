#!/bin/sh
# demo.sh KEYHOLE - shows the best that exists, on nothing but the clone.
keyhole=$1
set -e
echo "The paper's tasks, as keyhole knows them:"
"$keyhole" task list
echo
echo "A task, and what its label words become for a small tokenizer:"
"$keyhole" task show sst2
