#!/usr/bin/env python3
"""Makes tests/golden/python.safetensors with the format's own library, or checks a file with it.

    pip install safetensors==0.8.0 numpy
    tools/make_safetensors.py                 writes the golden file
    tools/make_safetensors.py --check FILE    checks the file that tests/unit/data/test_safetensors.c leaves
                                              in its working folder (test_safetensors.tmp)

Neither the build nor the tests need Python: the file is committed.
"""
import ctypes
import pathlib
import struct
import sys

import safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/python.safetensors"
METADATA = {"model": "lenet", "note": "naïve ✓"}

# name: (dtype of the library, dtype in the file, shape, bytes)
TENSORS = {
    "conv1.weight": ("float32", "F32", [2, 1, 3, 3],
                     struct.pack("<18f", *[0.25 * i - 3 for i in range(18)])),
    "scalar": ("float64", "F64", [], struct.pack("<d", 1 / 3)),
    "empty": ("float32", "F32", [0, 3], b""),
    "half": ("float16", "F16", [3], struct.pack("<3e", 1, -2, 0.5)),
    "brain": ("bfloat16", "BF16", [2], struct.pack("<2H", 0x3F80, 0xC000)),
    "signed bytes": ("int8", "I8", [3], bytes([1, 255, 128])),
    "bytes": ("uint8", "U8", [5], bytes([1, 2, 3, 4, 255])),
    "ints": ("int32", "I32", [2, 1], struct.pack("<2i", -5, 7)),
    "step": ("int64", "I64", [1], struct.pack("<q", 1 << 53 | 1)),
}


def make():
    buffers, specs = [], {}
    for name, (dtype, _, shape, data) in TENSORS.items():
        buffers.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        specs[name] = safetensors.TensorSpec(dtype=dtype, shape=shape, data_len=len(data),
                                             data_ptr=ctypes.addressof(buffers[-1]))
    GOLDEN.write_bytes(safetensors.serialize(specs, metadata=METADATA))
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


def check(path):
    found = dict(safetensors.deserialize(pathlib.Path(path).read_bytes()))
    assert found.keys() == TENSORS.keys(), sorted(found)
    for name, (_, dtype, shape, data) in TENSORS.items():
        entry = found[name]
        assert entry["dtype"] == dtype, (name, entry["dtype"])
        assert list(entry["shape"]) == shape, (name, entry["shape"])
        assert bytes(entry["data"]) == data, name
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == METADATA, file.metadata()
    print(f"{path}: {len(found)} tensors, as they should be")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["--check"] else make()
