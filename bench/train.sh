#!/bin/sh
# One training step of Kolo and of PyTorch, alternately in one run: prints the medians and the ratio.
#
#     bench/train.sh [MODEL [BATCH [THREADS [ROUNDS [BUILD]]]]]     default: lenet 64 1 5 build/release
#
# PyTorch gets its best: each layout, each OPENBLAS_CORETYPE that this processor can run and malloc that
# keeps its pages are tried once; the fastest goes on to the rounds. Its settings are printed.
set -eu
model=${1:-lenet} batch=${2:-64} threads=${3:-1} rounds=${4:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${5:-$root/build/release}
python=${PYTHON:-/usr/bin/python3}
seconds=1.5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

keep="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
cores="default Haswell Zen"
! grep -q avx512f /proc/cpuinfo || cores="$cores SkylakeX"

# torch SETTINGS: one run of the peer.
torch() {
    # shellcheck disable=SC2086 # words
    set -- $1
    layout=$1
    shift
    env "$@" "$python" "$root/bench/peers/torch_train.py" "$model" "$batch" "$threads" "$layout" $seconds
}

kolo() {
    "$build/kolo" bench train --model "$model" --batch "$batch" --threads "$threads" --steps "$1" \
        --momentum 0.9 --json -
}

best=1e9 settings=
for layout in nchw nhwc; do
    for core in $cores; do
        for malloc in "KOLO_BENCH=1" "$keep"; do
            coretype="OPENBLAS_CORETYPE=$core"
            [ "$core" != default ] || coretype="KOLO_BENCH=1"
            ms=$(torch "$layout $coretype $malloc" | field step_ms_median)
            printf '# pytorch %s %s %s: %s ms\n' "$layout" "$core" \
                "$([ "$malloc" = "$keep" ] && echo keeps-pages || echo default-malloc)" "$ms"
            if awk "BEGIN { exit !($ms < $best) }"; then
                best=$ms settings="$layout $coretype $malloc"
            fi
        done
    done
done

steps=$(awk "BEGIN { print int(1000 * $seconds / $best) + 20 }")
: >"$work/kolo"
: >"$work/torch"
for _ in $(seq "$rounds"); do
    kolo "$steps" | tr -d '\n' | field step_ms_median >>"$work/kolo"
    torch "$settings" >"$work/line"
    field step_ms_median <"$work/line" >>"$work/torch"
done
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
echo "# pytorch $(field version <"$work/line"), $settings"
awk -v k="$(median "$work/kolo")" -v t="$(median "$work/torch")" -v m="$model" -v b="$batch" \
    -v n="$threads" 'BEGIN {
        printf "%-8s %5s %7s %12s %14s %7s\n", "model", "batch", "threads", "kolo ms", "pytorch ms", "ratio"
        printf "%-8s %5d %7d %12.3f %14.3f %7.2f\n", m, b, n, k, t, t / k
    }'
