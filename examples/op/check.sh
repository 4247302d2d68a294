#!/bin/sh
# The command trains a model with an op of its own: two workers to the losses of one, and its plan names the op's kernel.
#     check.sh KOLO SNAKE.SO
set -eu
kolo=$1 object=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
cp "$object" snake.so
for workers in 1 2; do
    "$kolo" train --model ./snake.so --data synthetic:N=64,test=16,shape=1x8x8,classes=4 --threads 1 --quiet \
        --workers $workers --batch $((8 / workers)) --steps 16 --out run$workers
done
"$kolo" checkpoint diff run1/checkpoint-final.safetensors run2/checkpoint-final.safetensors >diff || true
awk '/relative distance/ { n++; far += $NF > 1e-5 } END { exit n == 0 || far > 0 }' diff || {
    cat diff
    exit 1
}
"$kolo" dump --model ./snake.so --what plan >plan
grep -q 'snake_bwd' plan
echo "snake.so: one worker and two agree"
