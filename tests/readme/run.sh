#!/bin/sh
# Runs the commands of the README as a newcomer would: each block fenced as ```sh test is run by a shell of
# its own, in order, in a fresh copy of the tree, within a time limit. Blocks fenced ```sh are not run. When
# build/release is up to date, the copy's build takes its object files from there (reuse.sh).
# Also compares the packages that the README lists with tools/packages.txt. Prints "ok" or "FAILED" for each.
set -u
cd "$(dirname "$0")/../.." || exit 1
limit=1800 # seconds; make check runs this at a low priority beside other tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
status=0

# report NAME STATUS: the result of one check.
report() {
    if [ "$2" = 0 ]; then echo "ok     readme/$1"; else echo "FAILED readme/$1"; status=1; fi
}

if ninja -C build/release -n 2>/dev/null | grep -q 'no work to do'; then
    KOLO_REUSE=$(pwd)/build/release
    CMAKE_C_COMPILER_LAUNCHER=$(pwd)/tests/readme/reuse.sh
    export KOLO_REUSE CMAKE_C_COMPILER_LAUNCHER
fi

mkdir "$work/copy"
if [ -e .git ]; then
    git ls-files -z --cached --others --exclude-standard | tar -c --null --verbatim-files-from \
        --ignore-failed-read -T - | tar -x -C "$work/copy"
else
    tar -c --exclude ./build . | tar -x -C "$work/copy"
fi

awk -v work="$work" '
    /^```sh test *$/ { n++; file = sprintf("%s/block%02d", work, n); inside = 1; next }
    /^```/ { if (inside) close(file); inside = 0; next }
    inside { print >>file }
' README.md

for block in "$work"/block*; do
    [ -f "$block" ] || { echo "README.md has no block fenced as \`\`\`sh test"; report blocks 1; break; }
    name=$(awk 'NF && !/^#/ { sub(/ *#.*/, ""); print; exit }' "$block")
    (cd "$work/copy" && timeout "$limit" sh -e "$block") </dev/null >"$work/out" 2>&1
    ended=$?
    if [ $ended != 0 ]; then
        tail -n 100 "$work/out"
        echo "exit status $ended of:"
        cat "$block"
    fi
    report "$name" $ended
done

missing=$(awk '!/^#/ { print $1 }' tools/packages.txt | while read -r package; do
    grep -qF "\`$package\`" README.md || echo "$package"
done)
[ -z "$missing" ] || echo "packages that README.md does not name in backquotes:" $missing
[ -z "$missing" ]
report packages $?
exit $status
