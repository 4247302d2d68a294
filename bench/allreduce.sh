#!/bin/sh
# Times the allreduce of Kolo and of its peers, alternating in one run, at the same sizes. Prints a table of
# times and of ratios to Kolo's.
#
#     bench/allreduce.sh [RANKS [ROUNDS [BUILD]]]      default: 2 ranks, 3 rounds, build/release
#
# Peers that are not installed are skipped with a message. Each peer gets its best settings: Open MPI with
# ranks bound evenly to processors, MPICH with a processor per rank, Gloo with one thread per rank over the
# loopback interface. `bound` is the time of the additions and memory accesses alone (bench/allreduce_bound.c),
# `bound-dirty` the same on rewritten buffers. SIZES overrides the sizes.
set -eu
ranks=${1:-2} rounds=${2:-3}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${3:-$root/build/release}
python=${PYTHON:-/usr/bin/python3}
sizes=${SIZES:-8 1024 16384 65536 262144 1048576 16777216 67108864}
budget_ms=300
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

cc=${CC:-cc}
$cc -O2 -I"$root/include" "$root/bench/allreduce.c" -o "$work/kolo" -L"$build" -lkolo-comm \
    -Wl,-rpath,"$build"
$cc -O3 -march=native "$root/bench/allreduce_bound.c" -o "$work/bound"

# run NAME: one run of a peer, lines "bytes median min" on standard output.
run() {
    seconds=$(awk "BEGIN { print $budget_ms / 1000 }")
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    case $1 in
    kolo) "$build/kolo" run -n "$ranks" -- "$work/kolo" direct registered clean $budget_ms $sizes ;;
    kolo-dirty) "$build/kolo" run -n "$ranks" -- "$work/kolo" direct registered dirty $budget_ms $sizes ;;
    kolo-private) "$build/kolo" run -n "$ranks" -- "$work/kolo" direct private clean $budget_ms $sizes ;;
    kolo-ring) "$build/kolo" run -n "$ranks" -- "$work/kolo" ring registered clean $budget_ms $sizes ;;
    bound) "$work/bound" "$ranks" clean "$seconds" $sizes ;;
    bound-dirty) "$work/bound" "$ranks" dirty "$seconds" $sizes ;;
    openmpi) mpirun.openmpi --oversubscribe --map-by core --bind-to core:overload-allowed -n "$ranks" \
        "$work/openmpi" "$seconds" $sizes ;;
    mpich) mpirun.mpich -n "$ranks" "$work/mpich" "$seconds" $sizes ;;
    gloo) "$python" "$root/bench/peers/gloo_allreduce.py" "$ranks" "$seconds" $sizes ;;
    esac
}

peers="kolo kolo-dirty kolo-private kolo-ring bound bound-dirty"
for mpi in openmpi mpich; do
    if command -v mpicc.$mpi >/dev/null && command -v mpirun.$mpi >/dev/null; then
        mpicc.$mpi -O2 "$root/bench/peers/mpi_allreduce.c" -o "$work/$mpi"
        peers="$peers $mpi"
    else
        echo "# $mpi is not installed"
    fi
done
if "$python" -c "import torch.distributed" 2>/dev/null; then
    peers="$peers gloo"
else
    echo "# gloo (PyTorch) is not installed"
fi

round=0
while [ $round -lt "$rounds" ]; do
    for peer in $peers; do
        run "$peer" | sed 's/^\[0\] //' >"$work/out"
        [ $round -gt 0 ] || grep '^#' "$work/out" || true
        awk -v peer="$peer" '!/^#/ && NF == 3 { print peer, $1, $2 }' "$work/out" >>"$work/all"
    done
    round=$((round + 1))
done

echo "# $ranks ranks, $rounds rounds, median us; in brackets the ratio to kolo (direct, registered)"
sort -k1,1 -k2,2n -k3,3n "$work/all" | awk -v peers="$peers" -v sizes="$sizes" '
    function median(p, s,   key) { key = p " " s; return time[key, int((n[key] + 1) / 2)] }
    { key = $1 " " $2; time[key, ++n[key]] = $3 }
    END {
        np = split(peers, peer, " "); ns = split(sizes, size, " ")
        printf "%10s", "bytes"
        for (i = 1; i <= np; i++) printf " %20s", peer[i]
        print ""
        for (s = 1; s <= ns; s++) {
            printf "%10d", size[s]
            base = median("kolo", size[s])
            for (i = 1; i <= np; i++) {
                t = median(peer[i], size[s])
                printf " %12.2f (%5.2f)", t, (base > 0 ? t / base : 0)
            }
            print ""
        }
    }'
