#!/usr/bin/env python3
"""Makes tests/golden/resnet20.safetensors: three steps of a narrow ResNet-20 as PyTorch trains it.

    tools/golden/make_resnet20.py [FILE]

Needs PyTorch and NumPy (Debian: python3-torch). The file holds what a test needs to repeat the run:

    start.NAME    initial parameters, under the names that kolo gives them
    images        u8 [3,16,3,16,16], a batch a step: synthetic patterns and noise
    labels        i32 [3,16]
    losses        f64 [3], the mean loss of each step before its update
    evaluated     f64 [1], the mean loss of the first batch after the last step, in evaluation
    end.NAME      parameters and running statistics after the last step

and as metadata the settings. A network sees (image / 255 - mean) / std. The network is that of He et
al., 2016, section 4.2, with 4 channels in its first stage and shortcuts without parameters. It runs in
f64, so that the file holds the numbers themselves and not one processor's rounding of them.
"""
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_lenet import write_safetensors

STEPS, BATCH, CLASSES, WIDTH, SHAPE = 3, 16, 10, 4, (3, 16, 16)
LR, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
MEAN, STD = 0.5, 0.25


def conv(inputs, outputs, stride):
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 1), nn.BatchNorm2d(outputs)
        self.stride, self.zeros = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, self.zeros, self.zeros)))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = conv(SHAPE[0], WIDTH, 1), nn.BatchNorm2d(WIDTH)
        for stage in range(3):
            outputs = WIDTH << stage
            inputs = outputs if stage == 0 else outputs // 2
            blocks = [Block(inputs, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1),
                      Block(outputs, outputs, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(4 * WIDTH, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def make_data(rng):
    patterns = rng.integers(0, 256, (CLASSES, *SHAPE))
    labels = rng.integers(0, CLASSES, (STEPS, BATCH))
    noise = rng.integers(0, 256, (STEPS, BATCH, *SHAPE))
    return ((3 * patterns[labels] + noise) // 4).astype(np.uint8), labels.astype(np.int32)


def numbers(model, prefix):
    state = {name: t for name, t in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    return {f"{prefix}.{name}": t.detach().numpy().astype(np.float32) for name, t in state.items()}


def main():
    root = Path(__file__).resolve().parents[2]
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/golden/resnet20.safetensors"
    torch.manual_seed(1)
    torch.set_num_threads(1)
    images, labels = make_data(np.random.default_rng(1))
    model = ResNet20()
    tensors = dict(numbers(model, "start"), images=images, labels=labels)
    model.double()

    def loss_of(batch):
        x = (torch.from_numpy(images[batch]).double() / 255 - MEAN) / STD
        return F.cross_entropy(model(x), torch.from_numpy(labels[batch]).long())

    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    tensors["losses"] = np.array(losses, np.float64)
    tensors["evaluated"] = np.array([loss_of(0).item()], np.float64)
    tensors.update(numbers(model, "end"))

    settings = dict(lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, mean=MEAN, std=STD)
    metadata = {name: str(value) for name, value in settings.items()}
    metadata["options"] = f"width={WIDTH}"
    metadata["made_by"] = f"tools/golden/make_resnet20.py, torch {torch.__version__}"
    write_safetensors(path, tensors, metadata)
    shown = " ".join(f"{x:.4f}" for x in losses + [tensors["evaluated"][0]])
    print(f"{path}: {path.stat().st_size} bytes, losses {shown}")


if __name__ == "__main__":
    main()
