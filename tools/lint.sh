#!/bin/sh
# Static checks. Prints "ok" or "FAILED" for each check, with its findings; exits 1 if one failed. Needs the
# release build (compile commands and object files).
#     lint.sh [BUILD_FOLDER]     default build/release
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/release}
[ -f "$build/compile_commands.json" ] || { echo "lint: no build in $build: run make first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
jobs=$(nproc)
status=0

# check NAME COMMAND...: runs one check and shows its output if it failed.
check() {
    what=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "ok     lint/$what"
    else
        cat "$work/out"
        echo "FAILED lint/$what"
        status=1
    fi
}

product() { find src models include -name '*.[ch]' | sort; }

format() {
    find src models include tests bench -name '*.[ch]' -print0 |
        xargs -0 -r -n 20 -P "$jobs" clang-format --dry-run -Werror
}

# One process per file. An instruction-set source is read once, with the options of its baseline copy.
tidy() {
    sed "s|$(cd "$build" && pwd)/isa/\([^ \"]*\)\.baseline\.c|$(pwd)/\1.isa.c|g" \
        "$build/compile_commands.json" >"$work/compile_commands.json"
    awk -F'"' '$2 == "file" { print $4 }' "$work/compile_commands.json" |
        grep -E '/(src|models)/[^"]*\.c$' | grep -vE '\.(avx2|avx512)\.c$' | sort -u |
        xargs ls -S | # the longest first: none is left over at the end
        xargs -r -n 1 -P "$jobs" sh -c '
            clang-tidy -p "$0" --quiet "$1" >"$0/tidy.$$" 2>/dev/null || { cat "$0/tidy.$$"; exit 1; }
        ' "$work"
}

sources() {
    # shellcheck disable=SC2046 # names of our sources hold no blanks
    awk -v list="$(product)" -f tools/lint_source.awk $(product)
}

headers() {
    for header in include/kolo/*.h; do
        echo "#include <${header#include/}>" >"$work/alone.c"
        gcc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -Iinclude "$work/alone.c" || return 1
        cp "$work/alone.c" "$work/alone.cc"
        g++ -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -Iinclude "$work/alone.cc" ||
            return 1
    done
}

# A tree may be built anywhere: no file of ours names a folder of one machine.
paths() {
    ! grep -rnIE --exclude-dir=build --exclude-dir=.git -e "(^|[^a-zA-Z0-9_./])($(pwd)|/home/[a-z]+)/" .
}

check format format
check tidy tidy
check source sources
check headers headers
check symbols sh tools/lint_symbols.sh "$build"
check circles sh tools/lint_circles.sh "$build"
check paths paths
exit $status
