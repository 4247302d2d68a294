#!/bin/sh
# clang-tidy on every C source of the product: one process per file, one on each processor, the longest
# files first. Prints what it finds and exits 1 if it finds anything.
#
# A file that passed is not analysed again until the result could differ: build/release/tidy/NODES/ holds one empty
# file per result, named by a hash of clang-tidy's version, .clang-tidy, the nodes, the compile command and the
# contents of the source and of every header that it includes. Without that folder all files are analysed.
#
# KOLO_TIDY_NODES is how many states of a function the static analyzer may explore before it gives up: 225000 by
# default, as the analyzer's own; with 75000 it takes a third of the time.
#     lint_tidy.sh BUILD_FOLDER     needs an up-to-date build, which has recorded the headers
set -u
build=$1
nodes=${KOLO_TIDY_NODES:-225000}
top=$(pwd) full=$(cd "$build" && pwd) cache=$build/tidy/$nodes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$cache" "$work/keys"

# An instruction-set source is analysed once, with the options of its baseline copy.
sed "s|$full/isa/\([^ \"]*\)\.baseline\.c|$top/\1.isa.c|g" "$build/compile_commands.json" \
    >"$work/compile_commands.json"
awk -F'"' '$2 == "command" { command = $0 } $2 == "file" { print $4 "\t" command }' \
    "$work/compile_commands.json" | grep -E "^$top/(src|models)/[^	]*\.c	" |
    grep -vE '^[^	]*\.(avx2|avx512)\.c	' | sort -u >"$work/commands"

# Source and included file, a pair per line: the headers that the build recorded for the source's object.
ninja -C "$build" -t deps | awk -F'\t' -v top="$top" '
    NR == FNR { sources[$1]; next }
    sub(/\.o: .*/, "") {
        sub(/.*\.dir\/(isa\/)?/, "")
        sub(/\.baseline\.c$/, ".isa.c")
        source = top "/" $0
    }
    sub(/^ +/, "") && source in sources { print source "\t" $0 }
' "$work/commands" - | sort -u >"$work/includes"

# keys/N: what the result of the source on line N of commands depends on.
(cd "$build" && cut -f 2 "$work/includes" | sort -u | xargs -r sha1sum) >"$work/sums"
common=$({ clang-tidy --version; cat .clang-tidy; echo "$nodes"; } | sha1sum)
awk -F'\t' -v keys="$work/keys/" -v sums="$work/sums" -v common="$common" '
    BEGIN { while ((getline line <sums) > 0) sum[substr(line, 43)] = substr(line, 1, 40) }
    NR == FNR { key[$1] = key[$1] "\n" $2 " " sum[$2]; next }
    { # a source without a record: a key of this run only
        printf "%s\n%s%s\n", common, $2, $1 in key ? key[$1] : keys >(keys FNR)
        close(keys FNR)
    }
' "$work/includes" "$work/commands"
: >"$work/all"
(cd "$work/keys" && find . -type f | sort -t / -k 2n | cut -c 3- | xargs -r sha1sum) |
    awk -F'\t' '
        NR == FNR { source[FNR] = $1; next }
        { split($0, field, " +"); print source[field[2]] "\t" field[1] }
    ' "$work/commands" - >"$work/all"

# Results that no source has any more.
cut -f 2 "$work/all" | sort >"$work/used"
(cd "$cache" && find . -type f | cut -c 3- | sort | comm -23 - "$work/used" | xargs -r rm -f)

export nodes
while IFS='	' read -r source key; do
    [ -e "$cache/$key" ] || printf '%s %s %s\n' "$(wc -c <"$source")" "$source" "$cache/$key"
done <"$work/all" | sort -rn | cut -d ' ' -f 2- | xargs -r -n 2 -P "$(nproc)" sh -c '
    if clang-tidy -p "$0" --quiet --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang \
        --extra-arg="max-nodes=$nodes" "$1" >"$0/$$" 2>&1; then touch "$2"; else cat "$0/$$"; exit 1; fi
' "$work"
