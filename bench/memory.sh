#!/bin/sh
# Peak resident memory of training resnet50 (SGD with momentum, images of 224x224), Kolo against PyTorch:
#
#     bench/memory.sh [BATCH [THREADS [STEPS [BUILD]]]]     default: 16 2 2 build/release
#
# PyTorch runs in both layouts; the smaller peak counts. If PyTorch is not installed, it is skipped with a message.
set -eu
batch=${1:-16} threads=${2:-2} steps=${3:-2}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${4:-$root/build/release}
python=${PYTHON:-/usr/bin/python3}

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

best=0
for layout in nchw nhwc; do
    line=$("$python" "$root/bench/peers/torch_memory.py" "$batch" "$threads" "$steps" $layout 2>/dev/null) || {
        echo "# no PyTorch for $python: no ratios"
        break
    }
    bytes=$(echo "$line" | field peak_rss_bytes)
    echo "# pytorch $(echo "$line" | field version) $layout: $((bytes >> 20)) MiB," \
        "$(echo "$line" | field step_seconds) s a step"
    if [ "$best" = 0 ] || [ "$bytes" -lt "$best" ]; then best=$bytes; fi
done

printf '%-10s %5s %8s %10s %9s %7s\n' recompute batch threads peak-MiB ms/step ratio
for recompute in none cheap full; do
    result=$("$build/kolo" bench train --model resnet50 --batch "$batch" --threads "$threads" \
        --steps "$steps" --momentum 0.9 --recompute $recompute --json - | tr -d '\n')
    bytes=$(echo "$result" | field peak_rss_bytes)
    awk -v r=$recompute -v b="$batch" -v t="$threads" -v k="$bytes" -v p="$best" \
        -v ms="$(echo "$result" | field step_ms_median)" 'BEGIN {
            printf "%-10s %5d %8d %10.0f %9.0f %7s\n", r, b, t, k / 1048576, ms,
                (p > 0 ? sprintf("%.2f", k / p) : "-")
        }'
done
