"""One training configuration in PyTorch: the same net, batch and optimiser as `kolo bench train`.

    torch_train.py MODEL BATCH THREADS nchw|nhwc SECONDS

The batch stays in memory. Prints one JSON line: versions, settings, the median time of a step and the
first and last loss (which must fall: the step is real). The environment is the caller's: bench/train.sh
tries the settings that are known to matter (OPENBLAS_CORETYPE, malloc) and keeps the best.
"""
import json
import os
import statistics
import sys
import time

model, batch, threads, layout, seconds = (
    sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc2(F.relu(self.fc1(x.flatten(1)))))
        return self.fc3(x)


class Mlp(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, hidden), nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


torch.manual_seed(0)
torch.set_num_threads(threads)
net = {"lenet": LeNet, "mlp": Mlp}[model]()
x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
if layout == "nhwc":
    net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def step():
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin, loss


first = [step() for _ in range(10)][0][1].item()
end = time.perf_counter() + seconds
times = []
while time.perf_counter() < end or len(times) < 20:
    elapsed, loss = step()
    times.append(elapsed)
ms = statistics.median(times) * 1e3
print(json.dumps({
    "peer": "pytorch", "version": torch.__version__, "model": model, "batch": batch,
    "threads": threads, "layout": layout, "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
    "malloc": "keeps pages" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else "default",
    "steps": len(times), "step_ms_median": round(ms, 4),
    "samples_per_second": round(batch / ms * 1e3, 1),
    "first_loss": round(first, 4), "final_loss": round(loss.item(), 4),
}), flush=True)
