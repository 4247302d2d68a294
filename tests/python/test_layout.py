"""The declarations of python/kolo/_library.py against the C headers, by a C compiler: functions,
structures, enumerations, whose names the library lists; every function of the headers in BOUND is declared, or listed in UNBOUND."""
# needs ctypes; ranks 0

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile

from kolo import _bindings, _library
from kolo._bindings import c

# Public functions without a binding: short forms of others, texts, and what has a function for bindings.
UNBOUND = """
kolo_custom kolo_custom_op_register
kolo_model_open_onnx kolo_model_open_library kolo_model_entry kolo_model_options_parse kolo_model_register
kolo_algorithm_name kolo_algorithm_description
kolo_transport_name kolo_comm_launched kolo_comm_launchers kolo_comm_has_ucx
kolo_comm_create_threads kolo_comm_local_processors kolo_comm_host_count kolo_tree_range_nodes
kolo_allreduce_create kolo_broadcast_create kolo_barrier_create kolo_request_algorithm
kolo_allreduce kolo_broadcast kolo_reduce kolo_reduce_scatter
kolo_allgather kolo_gather kolo_scatter kolo_alltoall kolo_send kolo_recv kolo_sendrecv
kolo_lstm kolo_accuracy kolo_codec_name kolo_status_text kolo_closest kolo_init_fan_in kolo_scalar kolo_named_wait_all
kolo_named_count kolo_named_progress kolo_concat kolo_softmax_xent kolo_dataset_path
kolo_bench_loader kolo_dataset_order kolo_dataset_pack kolo_dataset_verify kolo_ledger_check kolo_ledger_text_free kolo_loader_stage_name kolo_metrics_get kolo_metrics_derive kolo_checkpoint_check
""".split()
BOUND = ("checkpoint.h", "codec.h", "comm.h", "custom_binding.h", "custom_op.h", "data.h", "embed.h", "graph.h",
         "metric.h", "models.h", "named.h", "reducer.h", "session.h", "status.h")

compiler = shutil.which("cc")
if not compiler:
    print("skip: no C compiler")
    sys.exit(77)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
include = os.path.join(root, "include")
functions = _library.COMM_FUNCTIONS + _library.KOLO_FUNCTIONS
lines = ["#include <kolo/kolo.h>", "#include <stddef.h>", "#include <stdio.h>", functions]

# Functions: their declarations are repeated. Structures: member by member, and by size.
count = 0
for name, members in _bindings.MEMBERS.items():
    structure = getattr(c, name)
    lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
    for member, (ctype, length) in members.items():
        place = f"{name}.{member}"
        if not any(word in _library.POINTERS or word == "void" for word in re.findall(r"\w+", ctype)):
            array = f"[{length}]" if length else ""
            lines.append(f"_Static_assert(__builtin_types_compatible_p(__typeof__((({name} *)0)->"
                         f'{member}), __typeof__({ctype}{array})), "type of {place}");')
        lines.append(f"_Static_assert(offsetof({name}, {member}) == "
                     f'{getattr(structure, member).offset}, "offset of {place}");')
        count += 1
for match in re.finditer(r"typedef (\w+) (\w+)\(.*?\);", _library.TYPES, re.S):
    if match.group(2) not in _library.POINTERS:
        lines.append(match.group(0))
for enumeration, (prefix, names) in _library.CONSTANTS.items():
    for i, name in enumerate(names):
        lines.append(f'_Static_assert({prefix}{name.upper()} == {i}, "{enumeration}");')
for i, status in enumerate(_library.STATUSES):
    lines.append(f'_Static_assert({status} == {i}, "{status}");')
lines.append(f'_Static_assert(KOLO_COLLECTIVE_COUNT == {len(_bindings.names_of("kolo_collective"))}, "collectives");')

# The names of an enumeration, from the library: those of its list in the headers, all, by their codes.
public = "".join(open(os.path.join(include, "kolo", header), encoding="utf-8").read()
                 for header in sorted(os.listdir(os.path.join(include, "kolo"))))
lists = dict(re.findall(r"#define (KOLO_\w+_LIST)\(X\)((?:.*\\\n)*.*)", public))
for enumeration in _bindings.NAMES:
    body = re.search(rf"typedef enum {enumeration} {{(.*?)}} {enumeration};", public, re.S).group(1)
    rows = lists[re.search(r"KOLO_\w+_LIST", body).group()]
    rows = re.sub(r"(KOLO_\w+_LIST)\(X\)", lambda match: lists[match.group(1)], rows)  # a list in a list
    listed = re.findall(r'X\((\w+),[\s\\]*"([^"]*)"', rows)
    names = _bindings.names_of(enumeration)
    assert [name for _, name in listed] == list(names), (enumeration, listed, names)
    for i, (code, _) in enumerate(listed):
        lines.append(f'_Static_assert({code} == {i}, "{enumeration}");')
assert "adamw" in _bindings.names_of("kolo_optimizer") and len(_bindings.NAMES) >= 10, _bindings.NAMES

assert count > 200, count
with tempfile.TemporaryDirectory() as folder:
    source = os.path.join(folder, "layout.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    done = subprocess.run([compiler, "-std=c11", "-fsyntax-only", "-I", include, source],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        "TYPES or the functions in python/kolo/_library.py differ from the headers:\n" + done.stderr)

# ZEROS has the members that the headers give another default than 0, of options that have the same names too.
found = 0
for name, body in re.findall(r"typedef struct (kolo_\w+) {(.*?)\n} ", public, re.S):
    same = ["kolo_session_opts", "kolo_fit_opts"] if name == "kolo_train_opts" else [name]
    for member in re.findall(r"^ +(?:double|int|int64_t) (\w+); +/\*[^*]*\bdefault:? (?:see|0?\.|[1-9])", body, re.M):
        for structure in same:
            if structure in _library.ZEROS and member in _bindings.MEMBERS[structure]:
                assert member in _library.ZEROS[structure], f"ZEROS in python/kolo/_library.py lacks {structure}.{member}"
                found += 1
assert found >= 9, found

# Every function has a binding, which the package uses, or a reason to have none.
package = ""
for file in os.listdir(os.path.join(root, "python", "kolo")):
    if file.endswith(".py") and file != "_library.py":
        package += open(os.path.join(root, "python", "kolo", file), encoding="utf-8").read()
declared = set(re.findall(r"\b(kolo_\w+)\(", functions))
for header in BOUND:
    text = open(os.path.join(include, "kolo", header), encoding="utf-8").read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name in re.findall(r"KOLO_API[^;{]*?\b(kolo_\w+)\(", text):
        assert (name in declared) != (name in UNBOUND), (
            f"{name} of {header}: declare it in python/kolo/_library.py, or add it to UNBOUND")
for name in declared:
    used = (name in package or f'"{name[5:]}"' in package or name in _library.PARSED.values()
            or name in _bindings.NAMES.values())
    assert used, f"{name} is declared and not used"
