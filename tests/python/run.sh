#!/bin/sh
# Runs one Python test: run.sh KOLO LIBRARY TEST.py. A line of the test declares its requirements:
#     # needs numpy; ranks 2
# "needs" names modules, of PyTorch 2.1 or later; "ranks 0" runs it alone. Searches for a Python 3 that has them;
# without one, the test is skipped with a message.
set -eu
kolo=$1 library=$2 test=$3
needs=$(sed -n 's/^# needs \([a-z ]*\);.*/\1/p' "$test")
ranks=$(sed -n 's/^# needs .*; ranks \([0-9]*\).*/\1/p' "$test")
imports=ctypes
export KERAS_BACKEND=torch # Keras without it needs TensorFlow
for module in $needs; do imports="$imports, $module"; done
check=
case " $needs " in *" torch "*) check="; torch.float8_e5m2" ;; esac # PyTorch 2.1; Debian's is 1.13
for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$candidate" -c "import $imports$check" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "${python:-}" ]; then
    echo "skip: no Python 3 with: $needs${check:+ (2.1 or later)}"
    exit 77
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH="$here/python:$here/examples" KOLO_LIBRARY="$library" PYTHONDONTWRITEBYTECODE=1
[ "$ranks" != 0 ] || exec "$python" "$test"
exec "$kolo" run -n "$ranks" -- "$python" "$test"
