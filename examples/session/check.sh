#!/bin/sh
# The program learns its task alone and on three ranks, and is as short as docs/library.md states.
#     check.sh KOLO PROGRAM
set -eu
kolo=$1 program=$2
here=$(cd "$(dirname "$0")" && pwd)
for got in "$("$program")" "$("$kolo" run -n 3 -- "$program" | sed -n 's/^\[0\] //p')"; do
    echo "own_net: $got"
    echo "$got" | awk '{ exit !($1 == "accuracy" && $2 > 0.97) }'
done
lines=$(grep -cvE '^$|^/\*' "$here/own_net.c")
echo "$lines lines of code"
[ "$lines" -lt 40 ]
