#!/bin/sh
# Builds and tests everything, suite by suite, and ends with one line: "N passed, N failed", and ", N
# skipped" when there were any. Exits 1 when something failed. What counts as one: a case of a cmocka
# test, any other test of ctest, a build, a check of lint, a fuzzer, a command block of the README.
#     check.sh               all suites but dev and soak
#     check.sh SUITE...      some of: dev release lint asan tsan fuzz readme soak
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/check
rm -rf "$out"
mkdir -p "$out"
: >"$out/table"
: >"$out/skips"
: >"$out/twice"
jobs=$(nproc)
passed=0 failed=0 skipped=0

# count SUITE PASSED FAILED SKIPPED: adds to the sums; `began` is when the suite began.
count() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    printf '%-12s %7d %7d %7d %7d s\n' "$1" "$2" "$3" "$4" "$(($(date +%s) - began))" >>"$out/table"
}

# build PRESET: configures and builds; shows the output of a build that failed.
build() {
    echo "== build $1"
    if cmake --preset "$1" >"$out/build-$1.log" 2>&1 &&
        cmake --build --preset "$1" -- -k 0 -j "$jobs" >>"$out/build-$1.log" 2>&1; then
        echo "ok     build/$1"
        return 0
    fi
    grep -v '^\[[0-9]*/' "$out/build-$1.log"
    echo "FAILED build/$1"
    return 1
}

# tests PRESET [CTEST OPTIONS]: builds, runs ctest, counts from its JUnit file.
tests() {
    preset=$1
    shift
    build "$preset" || { count "$preset" 0 1 0; return; }
    echo "== test $preset"
    # The thread sanitizer wants the address space of a plain process, where the system allows it.
    wrapper=
    ! setarch -R true 2>/dev/null || wrapper="setarch -R"
    rm -f "$out/$preset.xml"
    # One failure on a crowded machine need not be a bug: there is a second try, and the end names it.
    $wrapper ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error \
        --test-output-size-passed 1000000 --test-output-size-failed 1000000 --repeat until-pass:2 \
        --output-junit "$(pwd)/$out/$preset.xml" "$@" | tee "$out/$preset.log"
    [ -f "$out/$preset.xml" ] ||
        { echo "FAILED test/$preset: ctest did not finish"; count "$preset" 1 1 0; return; }
    awk -v preset="$preset" '/^ *([0-9]+\/[0-9]+ +)?Test +#/ && /\*\*\*| Passed / {
            sub(/^.*Test +#[0-9]+: /, "")
            if (/ Passed / && $1 in failed) print preset ": " $1
            if (/\*\*\*/) failed[$1]
        }' "$out/$preset.log" >>"$out/twice"
    # shellcheck disable=SC2046 # three numbers
    count "$preset" $(awk -v reasons="$out/skips" -f tools/junit.awk "$out/$preset.xml")
}

# lines SUITE COMMAND...: counts the "ok NAME" and "FAILED NAME" lines that a script prints.
lines() {
    suite=$1
    shift
    echo "== $suite"
    "$@" 2>&1 | tee "$out/$suite.log"
    good=$(grep -c '^ok ' "$out/$suite.log")
    bad=$(grep -c '^FAILED ' "$out/$suite.log")
    sed -n "s|^skip: |$suite: |p" "$out/$suite.log" >>"$out/skips"
    skip=$(grep -c '^skip: ' "$out/$suite.log")
    [ $((good + bad + skip)) -gt 0 ] || bad=1 # it said nothing: it did not run
    count "$suite" "$good" "$bad" "$skip"
}

suite() {
    began=$(date +%s)
    case $1 in
    dev) if build dev; then count dev 1 0 0; else count dev 0 1 0; fi ;;
    release) tests release ;;
    lint) if build release; then lines lint tools/lint.sh; else count lint 0 1 0; fi ;;
    asan) tests asan ;;
    tsan) tests tsan ;;
    fuzz) lines fuzz tools/fuzz.sh 10 ;;
    readme) lines readme tests/readme/run.sh ;;
    soak)
        KOLO_SOAK=1 tests soak
        lines fuzz tools/fuzz.sh 600
        ;;
    *)
        echo "check: no suite $1; there are dev release lint asan tsan fuzz readme soak" >&2
        exit 2
        ;;
    esac
}

[ $# -gt 0 ] || set -- release lint asan tsan fuzz readme # asan's warnings are errors, as dev's are
for name; do suite "$name"; done

echo
printf '%-12s %7s %7s %7s %7s\n' suite passed failed skipped time
cat "$out/table"
if [ -s "$out/skips" ]; then
    echo
    echo "skipped:"
    sed 's/^/    /' "$out/skips"
fi
if [ -s "$out/twice" ]; then
    echo
    echo "passed at the second try only (look into it: the first one's output is above):"
    sed 's/^/    /' "$out/twice"
fi
echo
[ $skipped = 0 ] || rest=", $skipped skipped"
echo "$passed passed, $failed failed${rest:-}"
[ $failed = 0 ]
