#!/bin/sh
# Static checks. Prints "ok" or "FAILED" for each check, with its findings; exits 1 if one failed. Needs the
# release build (compile commands and object files).
#     lint.sh [BUILD_FOLDER [CHECK...]]     default build/release and all checks
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/release}
[ $# = 0 ] || shift
only=$*
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
    case " $only " in "  " | *" $what "*) ;; *) return ;; esac
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

# Words of tools/words.txt, with their replacements. Those of several words may be on two lines of a comment.
words() {
    git ls-files -z --cached --others --exclude-standard |
        grep -zE '^(src|include|models|python|examples|docs|tests|bench|tools|cmake|README|Makefile|CMakeLists)' |
        grep -zvE '^tools/words.txt$|^tests/(golden|fuzz/corpus)/' >"$work/prose"
    grep -v '^#' tools/words.txt | while IFS='	' read -r pattern instead; do
        xargs -0 grep -nHiIE "(^|[^a-z-])($pattern)([^a-z]|\$)" /dev/null <"$work/prose" |
            sed "s~\$~    [write: $instead]~"
        case $pattern in *' '*) ;; *) continue ;; esac
        wrapped=$(echo "$pattern" | sed 's/ /[ *#\\n]+/g')
        xargs -0 grep -lziIP "(?<![a-z-])($wrapped)(?![a-z])" /dev/null <"$work/prose" |
            sed "s~\$~: in it, perhaps on two lines: $pattern    [write: $instead]~"
    done >"$work/words"
    cat "$work/words"
    [ ! -s "$work/words" ]
}

# Files that documents and comments name by their path exist.
mentions() {
    grep -rnoE '(^|[^/A-Za-z0-9_])(src|include|tests|tools|bench|models|docs|examples|python|cmake)/[A-Za-z0-9_./*-]*\.(isa\.c|[ch]|md|sh|py|awk|txt|cmake|json)\b' \
        README.md docs src include models tests/*/*/*.c tests/support tools Makefile |
        grep -vE '[*]|NAME|alg_X|/X\.' | while IFS=: read -r file line path; do
        path=${path#[!a-z]} # what stands before it
        [ -e "$path" ] || echo "$file:$line: there is no $path"
    done >"$work/mentions"
    cat "$work/mentions"
    [ ! -s "$work/mentions" ]
}

# Prose in documents is wrapped.
width() { python3 tools/wrap_docs.py --check; }

check format format
check words words
check mentions mentions
check width width
check tidy sh tools/lint_tidy.sh "$build"
check source sources
check headers headers
check symbols sh tools/lint_symbols.sh "$build"
check circles sh tools/lint_circles.sh "$build"
check paths paths
exit $status
