#!/bin/sh
# Times a training step of Kolo and of PyTorch, alternating in one run. Prints the medians and their ratio.
#
#     bench/train.sh [MODEL [BATCH [THREADS [ROUNDS [BUILD]]]]]     default: lenet 64 1 5 build/release
#
# Images have the model's usual size unless SIZE is set. PYTHON selects the PyTorch (default /usr/bin/python3).
# PyTorch's defaults are tried first, then a malloc that keeps its pages, the other layout, and each
# OPENBLAS_CORETYPE of CORES that this processor supports; the fastest combination is used in the rounds, and every
# trial is printed. Kolo autotunes its kernels beforehand, as with --autotune on, unless TUNE=0. `gpt` is a gpt2 and
# `llama` a llama of 6 layers, width 384, 256 tokens, vocabulary 8192.
set -eu
model=${1:-lenet} batch=${2:-64} threads=${3:-1} rounds=${4:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${5:-$root/build/release}
python=${PYTHON:-/usr/bin/python3}
size=${SIZE:-0}
seconds=${SECONDS_EACH:-1.5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

keep="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
cores=${CORES-Haswell Zen}
[ -n "${CORES+set}" ] || ! grep -q avx512f /proc/cpuinfo || cores="$cores SkylakeX"

# torch LAYOUT CORE MALLOC: one run of the peer. CORE and MALLOC may be "default".
torch() {
    openblas="OPENBLAS_CORETYPE=$2" allocator=$keep
    [ "$2" != default ] || openblas="KOLO_BENCH=1"
    [ "$3" != default ] || allocator="KOLO_BENCH=1"
    # shellcheck disable=SC2086 # words
    env $openblas $allocator "$python" "$root/bench/peers/torch_train.py" "$model" "$batch" "$threads" "$1" \
        "$seconds" --size "$size"
}

ours=$model
case $model in
gpt) ours=gpt2:layers=6,width=384,heads=6,context=256,vocab=8192,dropout=0 ;;
llama) ours=llama:layers=6,width=384,heads=6,kv_heads=6,mlp=1024,context=256,vocab=8192 ;;
esac

kolo() {
    set -- --model "$ours" --batch "$batch" --threads "$threads" --steps "$1" --momentum 0.9 --json -
    data="synthetic:N=$batch,test=1,shape=3x${size}x$size,classes=1000"
    case $model in deeplab*) data="synthetic-seg:N=$batch,test=1,shape=3x${size}x$size,classes=21" ;; esac
    [ "$size" = 0 ] || set -- "$@" --data "$data"
    "$build/kolo" bench train "$@" 2>/dev/null
}

# Debian's PyTorch takes what the system has: the reference BLAS is no peer.
blas=$("$python" "$root/bench/peers/torch_train.py" mlp 1 1 nchw 0 | field blas)
echo "# pytorch multiplies matrices by $blas"
case $blas in
MKL | *openblas*) ;;
*)
    echo "train.sh: that is not a fast one: install libopenblas0-pthread" >&2
    exit 1
    ;;
esac

# try LAYOUT CORE MALLOC: keeps the settings when they are faster than all before.
best=1e9 layout='' core='' malloc=''
try() {
    ms=$(torch "$@" | field step_ms_median)
    [ -n "$ms" ] || exit 1 # the error is printed already
    printf '# pytorch %s, core type %s, malloc %s: %s ms\n' "$@" "$ms"
    if awk "BEGIN { exit !($ms < $best) }"; then
        best=$ms layout=$1 core=$2 malloc=$3
    fi
}
try nchw default default
plain=$best
try nchw default keeps-pages
try nhwc default keeps-pages
for each in $cores; do try "$layout" "$each" keeps-pages; done

[ "${TUNE:-1}" = 0 ] || "$build/kolo" bench train --model "$ours" --batch "$batch" --threads "$threads" \
    --steps 1 --autotune on >/dev/null 2>&1
steps=$(awk "BEGIN { print int(1000 * $seconds / $best) + 8 }")
: >"$work/kolo"
: >"$work/torch"
for _ in $(seq "$rounds"); do
    kolo "$steps" | tr -d '\n' | field step_ms_median >>"$work/kolo"
    torch "$layout" "$core" "$malloc" >"$work/line"
    field step_ms_median <"$work/line" >>"$work/torch"
done
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
echo "# pytorch $(field version <"$work/line"), $layout, core type $core, malloc $malloc"
awk -v k="$(median "$work/kolo")" -v t="$(median "$work/torch")" -v m="$model" -v b="$batch" \
    -v n="$threads" -v p="$plain" 'BEGIN {
        printf "%-20s %5s %7s %10s %11s %6s %15s\n", "model", "batch", "threads", "kolo ms", "pytorch ms",
            "ratio", "to its defaults"
        printf "%-20s %5d %7d %10.3f %11.3f %6.2f %15.2f\n", m, b, n, k, t, t / k, p / k
    }'
