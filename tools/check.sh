#!/bin/sh
# Builds and tests everything, suite by suite, and ends with a table and one line: "N passed, N failed",
# and ", N skipped" if there were any. Exits 1 if anything failed. Each of these counts as one: a case of a
# cmocka test, any other test of ctest, a build, a check of lint, a fuzzer, a command block of the README.
#     check.sh               release lint asan tsan readme fuzz
#     check.sh SUITE...      some of: release quick dev lint asan tsan readme fuzz soak
# While the tests of a suite run, the later suites go ahead at a low priority, in the time that waiting tests leave
# the processors idle: asan and tsan are built, lint, readme and fuzz are run. When the turn of a suite comes, what is
# left of that is waited for, and nothing competes with it. Each suite prints its results in one piece.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/check
jobs=$(nproc)

# compile PRESET: configures and builds, unless this run has done so.
compile() {
    [ ! -e "$out/$1.built" ] || return 0
    cmake --preset "$1" && cmake --build --preset "$1" -- -k 0 -j "$jobs" && : >"$out/$1.built"
}

# script SUITE: runs a suite that prints a line "ok NAME" or "FAILED NAME" for each of its parts.
script() {
    case $1 in
    lint) tools/lint.sh ;;
    readme) tests/readme/run.sh ;;
    fuzz) tools/fuzz.sh --inputs 50000 ;;
    esac
}

# ahead SUITE...: what the suites will find done, one after the other, in a process of its own. SUITE.done marks
# the end of a suite.
ahead() {
    for name; do
        case $name in
        lint | readme) compile release >"$out/ahead-$name.log" 2>&1 && script "$name" >"$out/$name.log" 2>&1 ;;
        fuzz) script fuzz >"$out/fuzz.log" 2>&1 ;;
        quick) compile release >"$out/ahead-$name.log" 2>&1 ;;
        *) compile "$name" >"$out/ahead-$name.log" 2>&1 ;;
        esac
        : >"$out/$name.done"
    done
}
if [ "${1:-}" = --ahead ]; then
    shift
    ahead "$@"
    exit 0
fi

export KOLO_TIDY_NODES="${KOLO_TIDY_NODES:-75000}" # lint_tidy.sh; soak explores all
[ $# -gt 0 ] || set -- release lint asan tsan readme fuzz # asan's warnings are errors, as dev's are
rm -rf "$out"
mkdir -p "$out"
: >"$out/table"
: >"$out/skips"
passed=0 failed=0 skipped=0
ahead_pid=
ahead_suites=

# start_ahead SUITE...: once. timeout makes a process group of it, and ends the group when it is killed.
start_ahead() {
    [ $# -gt 0 ] && [ -z "$ahead_pid" ] || return 0
    nice -n 19 timeout 4h "$0" --ahead "$@" </dev/null >/dev/null 2>&1 &
    ahead_pid=$!
    ahead_suites=" $* "
}

# await_ahead SUITE: waits until a suite that goes ahead has come to its end.
await_ahead() {
    case $ahead_suites in *" $1 "*) ;; *) return 0 ;; esac
    while [ ! -e "$out/$1.done" ] && kill -0 "$ahead_pid" 2>/dev/null; do sleep 0.2; done
}

stop_ahead() {
    [ "$ahead_pid" ] || return 0
    kill "$ahead_pid" 2>/dev/null
    wait "$ahead_pid" 2>/dev/null
    while kill -0 "-$ahead_pid" 2>/dev/null; do sleep 0.1; done # ninja, which removes unfinished files
    ahead_pid=
}
trap stop_ahead EXIT
trap 'exit 1' INT TERM

# count SUITE PASSED FAILED SKIPPED: adds to the sums; `began` is when the suite began.
count() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    printf '%-12s %7d %7d %7d %7d s\n' "$1" "$2" "$3" "$4" "$(($(date +%s) - began))" >>"$out/table"
}

# build PRESET: configures and builds; shows the output of a build that failed.
build() {
    echo "== build $1"
    if compile "$1" >"$out/build-$1.log" 2>&1; then
        echo "ok     build/$1"
        return 0
    fi
    grep -v '^\[[0-9]*/' "$out/build-$1.log"
    echo "FAILED build/$1"
    return 1
}

# run_tests PRESET [CTEST OPTIONS]: runs ctest, counts from its JUnit file.
run_tests() {
    preset=$1
    shift
    echo "== test $preset"
    # The thread sanitizer needs the address space of a plain process, where the system allows it.
    wrapper=
    ! setarch -R true 2>/dev/null || wrapper="setarch -R"
    rm -f "$out/$preset.xml"
    # Tests count halves of processors (tests/CMakeLists.txt).
    $wrapper ctest --test-dir "build/$preset" -j "$((2 * jobs))" --output-on-failure --no-tests=error \
        --test-output-size-passed 1000000 --test-output-size-failed 1000000 \
        --output-junit "$(pwd)/$out/$preset.xml" "$@"
    [ -f "$out/$preset.xml" ] ||
        { echo "FAILED test/$preset: ctest did not finish"; count "$preset" 1 1 0; return; }
    # shellcheck disable=SC2046 # three numbers
    count "$preset" $(awk -v reasons="$out/skips" -f tools/junit.awk "$out/$preset.xml")
}

# lines SUITE COMMAND...: counts the "ok NAME" and "FAILED NAME" lines that a script prints, or has printed ahead.
lines() {
    suite=$1
    shift
    echo "== $suite"
    if [ -e "$out/$suite.done" ] && [ -e "$out/$suite.log" ]; then
        cat "$out/$suite.log"
    else
        "$@" 2>&1 | tee "$out/$suite.log"
    fi
    good=$(grep -c '^ok ' "$out/$suite.log")
    bad=$(grep -c '^FAILED ' "$out/$suite.log")
    sed -n "s|^skip: |$suite: |p" "$out/$suite.log" >>"$out/skips"
    skip=$(grep -c '^skip: ' "$out/$suite.log")
    [ $((good + bad + skip)) -gt 0 ] || bad=1 # no result: it did not run
    count "$suite" "$good" "$bad" "$skip"
}

# suite NAME [LATER SUITES]
suite() {
    began=$(date +%s)
    name=$1
    shift
    await_ahead "$name"
    case $name in
    quick | lint | readme) preset=release ;;
    *) preset=$name ;;
    esac
    case $name in
    fuzz) ;;
    release | quick | dev | lint | asan | tsan | readme | soak)
        build "$preset" || { count "$name" 0 1 0; return; }
        start_ahead "$@"
        ;;
    *)
        echo "check: no suite $name; there are release quick dev lint asan tsan readme fuzz soak" >&2
        exit 2
        ;;
    esac
    case $name in
    dev) count dev 1 0 0 ;;
    release | asan | tsan) run_tests "$name" ;;
    quick)
        lines rules tools/lint.sh build/release format words mentions width source
        run_tests release -L unit
        ;;
    lint | readme | fuzz) lines "$name" script "$name" ;;
    soak)
        KOLO_SOAK=1 run_tests soak
        KOLO_TIDY_NODES=225000 lines lint tools/lint.sh build/soak
        lines fuzz tools/fuzz.sh 600
        ;;
    esac
}

while [ $# -gt 0 ]; do
    suite "$@"
    shift
done

echo
printf '%-12s %7s %7s %7s %7s\n' suite passed failed skipped time
cat "$out/table"
if [ -s "$out/skips" ]; then
    echo
    echo "skipped:"
    sed 's/^/    /' "$out/skips"
fi
echo
[ $skipped = 0 ] || rest=", $skipped skipped"
echo "$passed passed, $failed failed${rest:-}"
[ $failed = 0 ]
