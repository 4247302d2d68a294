"""The structures and lists of python/kolo/_library.py against the C headers, by a C compiler."""
# needs ctypes; ranks 0

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

from kolo import _library

compiler = shutil.which("cc")
if not compiler:
    print("skip: no C compiler")
    sys.exit(77)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
lines = ["#include <kolo/kolo.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
want = []


def ask(label, expression, value):
    lines.append(f'    printf("{label} %zu\\n", (size_t)({expression}));')
    want.append(f"{label} {value}")


for structure in _library.STRUCTURES:
    name = structure.c_name
    ask(name, f"sizeof({name})", ctypes.sizeof(structure))
    for field, *_ in structure._fields_:
        ask(f"{name}.{field}", f"offsetof({name}, {field})", getattr(structure, field).offset)
for i, status in enumerate(_library.STATUSES):
    ask(status, status, i)
for prefix, names in (("KOLO_DTYPE_", _library.DTYPES), ("KOLO_", _library.OPS),
                      ("KOLO_COLLECTIVE_", _library.COLLECTIVES)):
    for i, name in enumerate(names):
        constant = prefix + name.upper().replace("+", "_")
        ask(constant, constant, i)
for prefix, names in (("KOLO_DTYPE_", _library.DTYPES), ("KOLO_COLLECTIVE_", _library.COLLECTIVES)):
    ask(prefix + "COUNT", prefix + "COUNT", len(names))
lines.append("}")
with tempfile.TemporaryDirectory() as folder:
    source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    subprocess.run([compiler, "-I", os.path.join(root, "include"), source, "-o", program],
                   check=True)
    got = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")
for a, b in zip(want, got):
    assert a == b, f"the module has {a}, the headers {b}"
