#!/usr/bin/env python3
"""Runs the node test cases of the onnx package through Kolo's importer.

    onnx_cases.py build/release/tests/kolo-onnx-cases [--all]

Needs the packages onnx and numpy. In scope are cases with f32 values (and integers or booleans beside them),
without control flow, sequences and quantisation; --all runs the others too. Prints a table by operator.
"""
import os
import subprocess
import sys
import tempfile
import warnings

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9
FLOW = {"If", "Loop", "Scan"}


def in_scope(model):
    values = list(model.graph.input) + list(model.graph.output)
    if any(not value.type.HasField("tensor_type") for value in values):
        return False
    types = {value.type.tensor_type.elem_type for value in values}
    return FLOAT in types and types <= {FLOAT, INT32, INT64, BOOL} and not FLOW & {n.op_type for n in model.graph.node}


def write(case, folder):
    import numpy as np
    import onnx
    from onnx import numpy_helper

    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    onnx.save(case.model, os.path.join(folder, "model.onnx"))
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    for what, arrays, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for k, array in enumerate(arrays):
            tensor = array if isinstance(array, onnx.TensorProto) else numpy_helper.from_array(np.asarray(array))
            tensor.name = infos[k].name
            with open(os.path.join(data, f"{what}_{k}.pb"), "wb") as file:
                file.write(tensor.SerializeToString())


def main():
    warnings.filterwarnings("ignore")
    try:
        from onnx.backend.test.case.node import collect_testcases
    except ImportError:
        print("skip: no Python package onnx")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as top:
        folders = []
        for case in collect_testcases(None):
            if "--all" not in sys.argv and not in_scope(case.model):
                continue
            folder = os.path.join(top, case.name)
            try:
                write(case, folder)
                folders.append(folder)
            except Exception as error:  # values that are no tensors
                print(f"left out {case.name}: {error}")
        sys.exit(subprocess.run([sys.argv[1], *sorted(folders)], check=False).returncode)


if __name__ == "__main__":
    main()
