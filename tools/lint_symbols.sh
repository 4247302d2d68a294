#!/bin/sh
# Checks on object files:
#   exports   the two libraries export exactly what is declared KOLO_API or KOLO_SHARED, all named kolo_*
#   statics   a global that only its own file uses is static, unless it is public or there for a test
#   kernels   a kernel of a fast family (src/kernel/simd, src/kernel/dnn) uses nothing of the reference kernels
#     lint_symbols.sh BUILD_FOLDER
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
breaches=0

# Names declared with default visibility: the preprocessed headers, cut at ; { and }.
# (src/onnx exports nothing and includes a generated header.)
for header in include/kolo/*.h $(find src -name "*.h" -not -path "src/onnx/*"); do
    printf '#include "%s"\n' "$header"
done | cc -E -P -x c -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -I. - | tr '\n;{}' ' \n\n\n' |
    awk '{
        if (!match($0, /visibility\("default"\)\)\)/)) next
        declaration = substr($0, RSTART + RLENGTH)
        gsub(/__attribute__ *\(\(.*/, "", declaration)
        if (match(declaration, /[A-Za-z_0-9]+ *\(/)) name = substr(declaration, RSTART, RLENGTH - 1)
        else { name = declaration; sub(/\[.*/, "", name); sub(/ *$/, "", name); sub(/.*[ *]/, "", name) }
        gsub(/ /, "", name)
        print name
    }' | sort -u >"$work/declared"

nm -D --defined-only -P "$build"/libkolo.so "$build"/libkolo-comm.so | awk 'NF > 2 { print $1 }' |
    sort -u >"$work/exported"

# complain TEXT: prefixes each line of the input with TEXT and notes that there was one.
complain() {
    while read -r line; do echo "$1 $line"; done >"$work/lines"
    [ ! -s "$work/lines" ] || { cat "$work/lines"; breaches=1; }
}
comm -13 "$work/declared" "$work/exported" >"$work/extra"
complain "exported, but marked neither KOLO_API nor KOLO_SHARED:" <"$work/extra"
comm -23 "$work/declared" "$work/exported" >"$work/lost"
complain "declared for export, but defined in no library:" <"$work/lost"
grep -v '^kolo_' "$work/exported" >"$work/foreign" || true
complain "exported without the prefix kolo_:" <"$work/foreign"

# Public names are free to have no user here; all others need one in another object, tests included.
ninja -C "$build" -t targets all | sed -n 's|^\([^:]*\.o\): .*|\1|p' >"$work/objects" # not those of old sources
(cd "$build" && xargs ls 2>/dev/null | xargs nm -A -P -g) <"$work/objects" |
    awk -v declared="$work/declared" '
        BEGIN { while ((getline name <declared) > 0) public[name] = 1 }
        { sub(/:$/, "", $1) }
        $3 == "U" || $3 == "u" { used[$2] = used[$2] " " $1; next }
        $1 ~ /\.pb-c\.c\.o$/ { next } # generated
        $1 ~ /(^|\/)kolo(_comm_objects|_objects|-cli)\.dir\// { home[$2] = $1 }
        END {
            for (name in home)
                if (!(name in used) && name != "main" && !(name in public)) {
                    file = home[name]
                    sub(/.*\.dir\//, "", file)
                    sub(/\.o$/, "", file)
                    print name " (" file ")"
                }
        }' | sort >"$work/single"
complain "global, but used in its own file only:" <"$work/single"

# uses_of_references OBJECT...: symbols of the reference kernels that object files use.
grep -E '/kolo_objects\.dir/src/(op|kernel/ref)/' "$work/objects" >"$work/references"
(cd "$build" && xargs nm -P -g --defined-only) <"$work/references" | awk '$1 ~ /^kolo_(ref_|ops_|reference_)/ { print $1 }' | sort -u >"$work/of_references"
uses_of_references() {
    nm -A -P -g --undefined-only "$@" | awk -v of_references="$work/of_references" '
        BEGIN { while ((getline name <of_references) > 0) is_reference[name] = 1 }
        $2 in is_reference { sub(/.*\.dir\//, "", $1); sub(/\.o:$/, "", $1); print $2 " (" $1 ")" }'
}
grep -E '/kolo_objects\.dir/(isa/)?src/kernel/(simd|dnn)/' "$work/objects" >"$work/fast"
# shellcheck disable=SC2046 # names of objects hold no blanks
(cd "$build" && uses_of_references $(cat "$work/fast")) >"$work/uses"
complain "used by a fast kernel, but of the reference kernels:" <"$work/uses"
# A kernel that only calls a reference is found.
echo 'extern char kolo_ref_run; char *toy(void); char *toy(void) { return &kolo_ref_run; }' |
    cc -c -x c -o "$work/toy.o" -
[ -n "$(uses_of_references "$work/toy.o")" ] || echo "a use of kolo_ref_run in an object file" >"$work/missed"
[ ! -f "$work/missed" ] || complain "not found by this check:" <"$work/missed"

exit $breaches
