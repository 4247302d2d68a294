#!/usr/bin/env python3
"""Writes weights of torchvision's networks as their users export them, and the networks' outputs.

    tools/golden/make_torchvision.py small FILE
    tools/golden/make_torchvision.py write DIR MODEL...
    tools/golden/make_torchvision.py check MODEL FILE

The first makes tests/golden/torchvision.safetensors: the state_dict of resnet18 with 2 channels in its
first stage, and beside it torchvision.logits: what that makes of one batch in evaluation (raw f32). The
second writes the same for networks with a quarter of their channels, DIR/MODEL.safetensors and
DIR/MODEL.logits. The third loads a file into such a network, strictly, and compares the tensors
with those that it was made from. Weights and images are drawn as make_zoo.py draws them; needs what that
needs.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torchvision.models as zoo

import make_zoo

SIZE, BATCH = 64, 2
DTYPES = {np.dtype("f4"): "F32", np.dtype("i8"): "I64"}


def save(path, tensors):
    header, begin = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def read(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    kinds = {name: kind for kind, name in DTYPES.items()}
    return {name: torch.from_numpy(np.frombuffer(data, kinds[e["dtype"]], int(np.prod(e["shape"])),
                                                 8 + length + e["data_offsets"][0]).reshape(e["shape"]).copy())
            for name, e in header.items()}


def evaluate(model):
    """The state_dict as f32 and the logits of a batch; the sums are f64."""
    make_zoo.load(model)
    shape = (BATCH, 3, SIZE, SIZE)
    images = (make_zoo.bits("images", int(np.prod(shape))) >> np.uint64(56)).astype(np.float64).reshape(shape)
    model.double().eval()
    with torch.no_grad():
        out = model(torch.from_numpy((images / 255 - make_zoo.MEAN) / make_zoo.STD))
    logits = (out["out"] if isinstance(out, dict) else out).numpy().astype(np.float32)
    state = {name: t.numpy().astype(np.int64 if name.endswith("tracked") else np.float32)
             for name, t in model.state_dict().items()}
    return state, logits


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "small":
        net = make_zoo.narrow(zoo.resnet18(num_classes=make_zoo.CLASSES), {}, 32)
        state, logits = evaluate(net)
        save(Path(sys.argv[2]), state)
        Path(sys.argv[2]).with_suffix(".logits").write_bytes(logits.tobytes())
        return
    names = sys.argv[3:] if sys.argv[1] == "write" else [sys.argv[2]]
    for case, model in make_zoo.cases(names):
        state, logits = evaluate(model)
        if sys.argv[1] == "write":
            save(Path(sys.argv[2]) / f"{case['model']}.safetensors", state)
            (Path(sys.argv[2]) / f"{case['model']}.logits").write_bytes(logits.tobytes())
            continue
        model.float().load_state_dict(read(Path(sys.argv[3])))
        for name, t in model.state_dict().items():
            if not name.endswith("tracked") and not np.array_equal(t.numpy(), state[name]):
                sys.exit(f"{name} differs")


if __name__ == "__main__":
    main()
