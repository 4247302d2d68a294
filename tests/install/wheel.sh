#!/bin/sh
# Builds the wheel offline, installs it into a new virtual environment and uses module and command from there,
# away from the tree. Skipped without a Python that has venv, pip and numpy.
#     wheel.sh BUILD_FOLDER
set -eu
KOLO_BUILD=$(realpath "$1")
export KOLO_BUILD PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
unset KOLO_LIBRARY PYTHONPATH LD_LIBRARY_PATH
source=$(cd "$(dirname "$0")/../.." && pwd)
for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$candidate" -c "import venv, ensurepip, numpy" 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "${python:-}" ] || { echo "skip: no Python 3 with venv, pip and numpy"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"

"$python" -m venv --system-site-packages environment
pip() { environment/bin/python -m pip "$@" >log 2>&1 || { cat log; exit 1; }; }
pip wheel "$source/python" --no-deps --wheel-dir wheels
pip install --no-deps wheels/kolo-*.whl
ls -s --block-size=K wheels

cat >program.py <<'END'
import os
import kolo, numpy as np
from kolo import nn, ops

def net(g):
    x, y = g.input("x", (2,)), g.input("y", dtype="i32")
    logits = nn.linear(x, 2)
    g.output(logits=logits, loss=ops.softmax_xent(logits, y))

comm = kolo.init()
x = np.arange(64, dtype=np.float32).reshape(32, 2) / 64 - 0.5
session = kolo.Session(net, comm, global_batch=8, lr=1)
result = session.fit({"x": x, "y": 1 * (x[:, 0] > 0)}, epochs=20)
assert result.final["loss"] < 0.3 < result.first_loss, result

# All libraries of the wheel come from the wheel.
folder = os.path.join(os.path.dirname(kolo.__file__), "lib")
assert os.path.realpath(folder).startswith(os.path.realpath("environment"))
with open("/proc/self/maps", encoding="utf-8") as file:
    loaded = {os.path.realpath(line.split()[-1]) for line in file if ".so" in line}
for name in os.listdir(folder):
    for path in loaded:
        if os.path.basename(path).split(".so")[0] == name.split(".so")[0]:
            assert os.path.dirname(path) == os.path.realpath(folder), path
assert sum(os.path.dirname(p) == os.path.realpath(folder) for p in loaded) >= 3, loaded
print("rank", comm.rank, "of", comm.size)
END
environment/bin/python program.py
environment/bin/kolo info
environment/bin/kolo run -n 2 -- environment/bin/python program.py >log 2>&1 || { cat log; exit 1; }
grep -q "rank 1 of 2" log
environment/bin/python -m kolo train --model mlp --data synthetic:N=64 --steps 2 --progress none >log 2>&1 ||
    { cat log; exit 1; }
