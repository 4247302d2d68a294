"""The peak resident memory of a few training steps of resnet50 in PyTorch.

    torch_memory.py BATCH THREADS STEPS nchw|nhwc

SGD with momentum, images of 3x224x224 in 1000 classes, ReLU in place as torchvision has it. Prints one
JSON line: the peak, and what is resident before the first step (the libraries and the parameters).
"""
import json
import os
import sys
import time

batch, threads, steps, layout = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o, k, stride=1):
    return nn.Conv2d(i, o, k, stride, k // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, i, width, stride):
        super().__init__()
        o = 4 * width
        self.conv1, self.bn1 = conv(i, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, o, 1), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.short = None
        if stride != 1 or i != o:
            self.short = nn.Sequential(conv(i, o, 1, stride), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.short is None else self.short(x)
        return self.relu(y)


def resnet50():
    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            layers.append(Bottleneck(i, 64 << stage, 2 if stage and not block else 1))
            i = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resident(field):
    """VmRSS or VmHWM, the peak; ru_maxrss would begin with the peak of the process that started us."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field + ":"))


torch.manual_seed(0)
torch.set_num_threads(threads)
net = resnet50()
parameters = sum(p.numel() for p in net.parameters())
x, y = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
if layout == "nhwc":
    net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
before = resident("VmRSS")
begin = time.perf_counter()
for _ in range(steps):
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
seconds = (time.perf_counter() - begin) / steps
print(json.dumps({
    "peer": "pytorch", "version": torch.__version__, "model": "resnet50", "batch": batch,
    "threads": threads, "layout": layout, "parameters": parameters, "step_seconds": round(seconds, 3),
    "resident_before_bytes": before,
    "peak_rss_bytes": resident("VmHWM"),
    "final_loss": round(loss.item(), 4),
}), flush=True)
