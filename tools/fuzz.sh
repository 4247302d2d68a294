#!/bin/sh
# Builds the fuzzers with clang's libFuzzer and the sanitizers and runs each for some seconds, one
# on each processor, from the seeds in tests/fuzz/corpus/NAME. Findings are kept in build/fuzz/found.
#     fuzz.sh [SECONDS]      default 60
#     fuzz.sh --build        only builds
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-60}
mkdir -p build/fuzz/found
if ! { cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers; } >build/fuzz/log 2>&1; then
    cat build/fuzz/log
    echo "FAILED fuzz/build"
    exit 1
fi
[ "$seconds" != --build ] || exit 0
find build/fuzz/tests/fuzz -maxdepth 1 -type f -perm -u+x -name 'fuzz_*' | sort |
    xargs -r -n 1 -P "$(nproc)" sh -c '
        name=${1##*/fuzz_}
        corpus=build/fuzz/corpus/$name seeds=tests/fuzz/corpus/$name log=build/fuzz/$name.log
        mkdir -p "$corpus"
        [ -d "$seeds" ] || seeds=$corpus
        if "$1" -max_total_time="$0" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
            -artifact_prefix="build/fuzz/found/$name-" "$corpus" "$seeds" >"$log" 2>&1; then
            n=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log")
            echo "ok     fuzz/$name ($n inputs)"
        else
            tail -n 60 "$log"
            echo "FAILED fuzz/$name"
            exit 1
        fi
    ' "$seconds" || exit 1
