#!/bin/sh
# Installs a build into a temporary prefix, moves the tree (an installed Kolo is relocatable), then builds and runs
# an independent project against it, with CMake and with pkg-config.
#     run.sh BUILD_FOLDER
set -eu

build=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libkolo.so)")

# Installed files contain no path of the build tree, debug information aside.
for file in "$lib"/libkolo*.so "$prefix"/bin/*; do
    strip -o "$work/stripped" "$file"
    if grep -aqF -e "$source" -e "$build" "$work/stripped"; then
        echo "$file: holds the path of the build machine"
        exit 1
    fi
done
if grep -rqIF -e "$source" -e "$build" "$prefix"; then
    grep -rIF -e "$source" -e "$build" "$prefix"
    exit 1
fi

cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/cmake" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/cmake/outside_comm"
"$work/cmake/outside_kolo"
"$work/cmake/own_net"

export PKG_CONFIG_PATH="$lib/pkgconfig"
for program in comm kolo; do
    module=kolo
    [ $program = comm ] && module=kolo-comm
    # Word splitting is intended: pkg-config prints several options.
    cc -std=c11 -pedantic -Wall -Wextra -Werror "$here/outside_$program.c" -o "$work/$program" \
        $(pkg-config --cflags --libs $module) -Wl,-rpath,"$(pkg-config --variable=libdir $module)"
    "$work/$program"
done

if python3 -c "import ctypes" 2>/dev/null; then
    PYTHONPATH=$(dirname "$(find "$prefix" -name kolo -path '*packages*')") PYTHONDONTWRITEBYTECODE=1 \
        python3 -c "import kolo; print('python', kolo.__version__, kolo.init().size, len(kolo.models()), 'models')"
else
    echo "skip: no python3 for the module"
fi

if [ -x "$prefix/bin/kolo" ]; then
    "$prefix/bin/kolo" info
    "$prefix/bin/kolo" run -n 2 -- "$work/comm"
    "$prefix/bin/kolo" run -n 3 -- "$work/cmake/own_net"
    "$prefix/bin/kolo" train --model "$work/cmake/mine.so" --data synthetic:N=32,test=8 --steps 2 --threads 1
fi
