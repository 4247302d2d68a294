#!/usr/bin/env python3
"""Makes the seeds of the fuzzers, small files in tests/fuzz/corpus/NAME, most of them well-formed.

They are committed; run this again only to add one.
"""
import gzip
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests/fuzz/corpus"


def idx(*dims):
    count = 1
    for dim in dims:
        count *= dim
    header = struct.pack(">I", 0x800 | len(dims)) + struct.pack(f">{len(dims)}I", *dims)
    return header + bytes(i % 10 for i in range(count))


def packed(data):
    return gzip.compress(data, mtime=0)


def safetensors(header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(range(data))


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SEEDS = {
    "idx/images": idx(2, 3, 4),
    "idx/images.gz": packed(idx(2, 3, 4)),
    "idx/labels": idx(5),
    "idx/labels.gz": packed(idx(5)),
    "idx/members.gz": packed(idx(300)[:6]) + packed(idx(300)[6:]),
    "safetensors/nothing": safetensors({}, 0),
    "safetensors/one": safetensors({"a": tensor("F32", [2], 0, 8)}, 8),
    "safetensors/many": safetensors({
        "__metadata__": {"model": "mlp", "step": "3"},
        "linear.weight": tensor("F32", [2, 1, 3], 0, 24),
        "scalar": tensor("F64", [], 24, 32),
        "empty": tensor("BF16", [0, 7], 32, 32),
        "labels": tensor("U8", [3], 32, 35),
    }, 35),
    "safetensors/overlap": safetensors({"a": tensor("F32", [2], 0, 8),
                                        "b": tensor("F32", [2], 4, 12)}, 12),
    "safetensors/gap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 3, 5)}, 5),
}

for name, data in SEEDS.items():
    path = CORPUS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
