#!/bin/sh
# Builds the fuzzers with clang's libFuzzer and the sanitizers and runs each for some seconds, from the
# seeds in tests/fuzz/corpus/NAME. What they find stays in build/fuzz/found.
#     fuzz.sh [SECONDS]      default 60
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-60}
mkdir -p build/fuzz/found
if ! { cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers; } >build/fuzz/log 2>&1; then
    cat build/fuzz/log
    echo "FAILED fuzz/build"
    exit 1
fi
status=0
for fuzzer in build/fuzz/tests/fuzz/fuzz_*; do
    [ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
    name=$(basename "$fuzzer" | sed 's/^fuzz_//')
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=
    [ ! -d "tests/fuzz/corpus/$name" ] || seeds=tests/fuzz/corpus/$name
    # shellcheck disable=SC2086 # no seeds, no argument
    if "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/found/"$name"- "$corpus" $seeds >"build/fuzz/$name.log" 2>&1; then
        echo "ok     fuzz/$name ($(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log") inputs)"
    else
        tail -n 60 "build/fuzz/$name.log"
        echo "FAILED fuzz/$name"
        status=1
    fi
done
exit $status
