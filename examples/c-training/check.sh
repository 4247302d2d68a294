#!/bin/sh
# The data-parallel program reaches the loss of the plain one on any number of ranks, with few changed lines.
#     check.sh KOLO FOLDER_OF_PROGRAMS
set -eu
kolo=$1 programs=$2
here=$(cd "$(dirname "$0")" && pwd)
want=$("$programs/train")
echo "train: $want"
for ranks in 1 2 3; do
    got=$("$kolo" run -n $ranks -- "$programs/train_kolo" | sed 's/^\[0\] //')
    echo "train_kolo on $ranks: $got"
    # Equal to rounding: sums of floats in another order, over a thousand steps.
    echo "$want $got" | awk '{ d = $2 - $4; exit !($1 == "loss" && $3 == "loss" && $2 < 0.1 && d < 0.002 && d > -0.002) }'
done
added=$(diff "$here/train.c" "$here/train_kolo.c" | grep -c '^>' || true)
echo "$added lines are new or changed"
[ "$added" -le 30 ]
