#!/usr/bin/env python3
"""Makes tests/golden/lenet.safetensors: ten steps of LeNet-5 as PyTorch trains it.

    tools/golden/make_lenet.py [FILE]

Needs PyTorch and NumPy (Debian: python3-torch). The file holds what a test needs to repeat the run:

    start.NAME    initial parameters, under the names that kolo gives them
    images        u8 [2,64,1,28,28], two batches that are used in turn: synthetic patterns and noise
    labels        i32 [2,64]
    losses        f64 [10], the mean loss of each step before its update
    end.NAME      parameters after the last step

and as metadata the settings. A network sees (image / 255 - mean) / std. One run gives the same file as
the next on one machine; another processor may round otherwise, far inside the test's tolerance.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCHES, BATCH, CLASSES = 10, 2, 64, 10
LR, MOMENTUM, WEIGHT_DECAY = 0.2, 0.9, 5e-4
MEAN, STD = 0.5, 0.25


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def write_safetensors(path, tensors, metadata):
    """The format by hand: length, JSON padded to a multiple of 64, data."""
    names = {np.dtype("u1"): "U8", np.dtype("i4"): "I32", np.dtype("f4"): "F32", np.dtype("f8"): "F64"}
    header, begin = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        end = begin + array.nbytes
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def make_data(rng):
    patterns = rng.integers(0, 256, (CLASSES, 1, 28, 28))
    labels = rng.integers(0, CLASSES, (BATCHES, BATCH))
    noise = rng.integers(0, 256, (BATCHES, BATCH, 1, 28, 28))
    return ((3 * patterns[labels] + noise) // 4).astype(np.uint8), labels.astype(np.int32)


def main():
    root = Path(__file__).resolve().parents[2]
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/golden/lenet.safetensors"
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, labels = make_data(np.random.default_rng(1))
    model = LeNet()
    tensors = {f"start.{name}": p.detach().numpy().copy() for name, p in model.named_parameters()}
    tensors.update(images=images, labels=labels)

    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        x = (torch.from_numpy(images[step % BATCHES]).float() / 255 - MEAN) / STD
        loss = F.cross_entropy(model(x), torch.from_numpy(labels[step % BATCHES]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors["losses"] = np.array(losses, np.float64)
    tensors.update({f"end.{name}": p.detach().numpy() for name, p in model.named_parameters()})

    settings = dict(lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, mean=MEAN, std=STD)
    metadata = {name: str(value) for name, value in settings.items()}
    metadata["made_by"] = f"tools/golden/make_lenet.py, torch {torch.__version__}"
    write_safetensors(path, tensors, metadata)
    print(f"{path}: {path.stat().st_size} bytes, losses {' '.join(f'{x:.4f}' for x in losses)}")


if __name__ == "__main__":
    main()
