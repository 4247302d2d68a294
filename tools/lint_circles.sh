#!/bin/sh
# Finds circles of source files: files whose object files use each other's symbols, directly or through others.
# The copies of an *.isa.c count as that file. Prints each circle with the symbols that close it; exits 1 when
# there is one.
#     lint_circles.sh BUILD_FOLDER
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# user definer symbol: one line for each symbol that one file takes from another.
ninja -C "$build" -t targets all | sed -n 's|^\(CMakeFiles/kolo[^:]*\.o\): .*|\1|p' >"$work/objects" # not those of old sources
(cd "$build" && xargs nm -A -P -g) <"$work/objects" |
    awk '
        {
            sub(/:$/, "", $1)
            file = $1
            sub(/.*\.dir\/(isa\/)?/, "", file)
            sub(/\.o$/, "", file)
            sub(/\.(baseline|avx2|avx512)\.c$/, ".isa.c", file)
        }
        $3 == "U" { uses[file " " $2]; next }
        { home[$2] = file }
        END {
            for (use in uses) {
                split(use, part, " ")
                if (part[2] in home && home[part[2]] != part[1]) print part[1], home[part[2]], part[2]
            }
        }' | sort >"$work/uses"

# Strongly connected components (Tarjan, 1972).
awk '
    function visit(v,    targets, n, i, w) {
        order[v] = low[v] = ++visited
        stack[++depth] = v
        on_stack[v] = 1
        n = split(uses[v], targets, " ")
        for (i = 1; i <= n; i++) {
            w = targets[i]
            if (!(w in order)) {
                visit(w)
                if (low[w] < low[v]) low[v] = low[w]
            } else if (on_stack[w] && order[w] < low[v]) low[v] = order[w]
        }
        if (low[v] != order[v]) return
        components++
        do {
            w = stack[depth--]
            on_stack[w] = 0
            component[w] = components
        } while (w != v)
    }
    { line[NR] = $0; uses[$1] = uses[$1] " " $2 }
    END {
        for (i = 1; i <= NR; i++) {
            split(line[i], part, " ")
            if (!(part[1] in order)) visit(part[1])
        }
        for (i = 1; i <= NR; i++) {
            split(line[i], part, " ")
            if (component[part[1]] == component[part[2]])
                print "circle " component[part[1]] ": " part[1] " uses " part[3] " of " part[2]
        }
    }' "$work/uses" | sort >"$work/circles"

[ -s "$work/uses" ] || { echo "no object files in $build"; exit 1; }
[ ! -s "$work/circles" ] || { echo "source files that use each other in a circle:"; cat "$work/circles"; exit 1; }
