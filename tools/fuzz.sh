#!/bin/sh
# Builds the fuzzers with clang's libFuzzer and the sanitizers and runs each, one on each processor, from the
# seeds in tests/fuzz/corpus/NAME. Findings are kept in build/fuzz/found.
#     fuzz.sh [SECONDS] [NAME...]    each for this long, with other inputs at every run; default 60
#     fuzz.sh --inputs N [NAME...]   each with N inputs, the same at every run, from the seeds alone
# With names only those, such as `fuzz.sh 300 tar csv`.
# Traced comparisons (use_cmp) depend on addresses, and seeds of a folder are in the order of the file system:
# inputs that are to be the same go without the former and list the latter. Those of a reader that draws random
# numbers itself, such as handshake, still differ a little.
set -u
cd "$(dirname "$0")/.." || exit 1
corpora=build/fuzz/corpus sorted=
case ${1:-60} in
--inputs)
    limit="-seed=1 -use_cmp=0 -runs=$2 -timeout=120" # make check runs them at a low priority
    sorted=1
    shift
    corpora=$(mktemp -d)
    trap 'rm -rf "$corpora"' EXIT
    trap 'exit 1' INT TERM
    ;;
*) limit="-max_total_time=${1:-60} -timeout=20" ;;
esac
[ $# -gt 0 ] && shift
for name; do
    [ -f "tests/fuzz/fuzz_$name.c" ] && continue
    echo "fuzz.sh: there is no tests/fuzz/fuzz_$name.c"
    exit 1
done
mkdir -p build/fuzz/found
if ! { cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers; } >build/fuzz/log 2>&1; then
    cat build/fuzz/log
    echo "FAILED fuzz/build"
    exit 1
fi
export corpora limit sorted
if [ $# -gt 0 ]; then
    printf 'build/fuzz/tests/fuzz/fuzz_%s\n' "$@"
else
    find build/fuzz/tests/fuzz -maxdepth 1 -type f -perm -u+x -name 'fuzz_*' | sort
fi |
    xargs -r -n 1 -P "$(nproc)" sh -c '
        name=${1##*/fuzz_}
        corpus=$corpora/$name seeds=tests/fuzz/corpus/$name log=build/fuzz/$name.log
        mkdir -p "$corpus"
        [ -d "$seeds" ] || seeds=$corpus
        if [ -n "$sorted" ] && [ -n "$(ls "$seeds")" ]; then
            find "$seeds" -type f | LC_ALL=C sort | paste -sd , - | tr -d "\n" >"$corpora/$name.seeds"
            seeds=-seed_inputs=@$corpora/$name.seeds
        fi
        # shellcheck disable=SC2086 # words
        if "$1" $limit -rss_limit_mb=2048 -print_final_stats=1 \
            -artifact_prefix="build/fuzz/found/$name-" "$corpus" "$seeds" >"$log" 2>&1; then
            n=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log")
            echo "ok     fuzz/$name ($n inputs)"
        else
            tail -n 60 "$log"
            echo "FAILED fuzz/$name"
            exit 1
        fi
    ' fuzz || exit 1
