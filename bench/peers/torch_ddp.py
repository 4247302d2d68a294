"""Steps of PyTorch's DistributedDataParallel over the backends kolo and gloo, in turns.

    PYTHONPATH=python torchrun --nproc-per-node 2 bench/peers/torch_ddp.py [--rounds 8] [--json FILE] [MODEL...]

Each round trains every model a few steps alone, over gloo and over kolo, in this order and then in the reverse one.
"alone" is DistributedDataParallel over a group of this rank only: it has the buckets and their copies, but no
communication. What the others take longer is their exposed communication. Printed are medians over all rounds, as means
over the ranks: of the step, and of its processor time, of all threads. At the end the parameters of gloo and kolo, and
those of the ranks, are compared bit by bit: the ranks have different samples, and sums of two are the same in any order.
One thread and one processor per rank, and a malloc that keeps its pages. Models: mlp (10.5 million parameters, batch 32),
resnet18 (224 x 224, batch 8), gpt (6 layers of width 384, 8 sequences of 128 tokens). Takes about 2 minutes on two cores.
"""

import argparse
import json
import os
import statistics
import sys
import time

# With the default ones malloc returns the gradients to the system in each step, or not: by what else it holds, so that
# the models of one process influence each other.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}
if any(name not in os.environ for name in KEEP):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP})
processors = sorted(os.sched_getaffinity(0))  # before the libraries start threads
if len(processors) >= int(os.environ["LOCAL_WORLD_SIZE"]):
    os.sched_setaffinity(0, {processors[int(os.environ["LOCAL_RANK"])]})

# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import kolo.torch

STEPS = {"mlp": 8}  # of a turn; of the other models 2
KINDS = ("alone", "gloo", "kolo")


class Block(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
                                  nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                                  nn.BatchNorm2d(outputs))
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.main(x) + self.skip(x))


class GPT(nn.Module):
    """A decoder-only transformer."""

    def __init__(self, vocabulary=8192, width=384, layers=6, context=128):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, "gelu", batch_first=True,
                                                               norm_first=True) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, x):
        x = self.token(x) + self.place.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.head(x).flatten(0, 1)


def make(name):
    """A model, a batch and labels."""
    torch.manual_seed(1)
    if name == "mlp":
        model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                              nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
        return model, torch.randn(32, 1024), torch.randint(10, (32,))
    if name == "resnet18":
        widths = [64, 64, 128, 256, 512]
        blocks = [b for i in range(4) for b in (Block(widths[i], widths[i + 1], 1 + (i > 0)),
                                                Block(widths[i + 1], widths[i + 1], 1))]
        model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                              nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                              nn.Linear(512, 1000))
        return model, torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))
    return GPT(), torch.randint(8192, (8, 128)), torch.randint(8192, (8 * 128,))


class Run:
    """A model that is trained over one group."""

    def __init__(self, name, group):
        self.name = name
        model, x, y = make(name)
        x = (x + dist.get_rank()) % 8192 if name == "gpt" else x + 0.1 * dist.get_rank()
        self.model, self.batch = DistributedDataParallel(model, process_group=group), (x, y)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.times = []  # pairs: of the step, of the processor

    def turn(self, measured):
        x, y = self.batch
        dist.barrier()
        for _ in range(STEPS.get(self.name, 2)):
            start, processor = time.perf_counter(), time.process_time()
            self.optimizer.zero_grad()
            cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            if measured:
                self.times.append((time.perf_counter() - start, time.process_time() - processor))

    def medians(self):
        """Of the step and of its processor time in ms, as means over the ranks."""
        own = torch.tensor([1e3 * statistics.median(t) for t in zip(*self.times)], dtype=torch.float64)
        dist.all_reduce(own, dist.ReduceOp.AVG)
        return own.tolist()

    def bits(self):
        """Of its parameters."""
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()]).view(torch.int32)


def equal(mine, other):
    """Whether tensors are equal on all ranks."""
    same = torch.tensor(torch.equal(mine, other))
    dist.all_reduce(same, dist.ReduceOp.MIN)
    return same.item()


def compare(name, groups, rounds):
    """The result of a model, as a dictionary."""
    runs = {kind: Run(name, groups[kind]) for kind in KINDS}
    for turn in range(rounds + 1):  # the first warms up
        for kind in KINDS if turn % 2 else reversed(KINDS):
            runs[kind].turn(turn > 0)
    result = {"model": name, "parameters": sum(p.numel() for p in runs["kolo"].model.parameters())}
    for kind in KINDS:
        result[kind + "_ms"], result[kind + "_processor_ms"] = runs[kind].medians()
    for kind in ("gloo", "kolo"):
        result[kind + "_exposed_ms"] = result[kind + "_ms"] - result["alone_ms"]
    result["exposed_ratio"] = result["kolo_exposed_ms"] / result["gloo_exposed_ms"]
    result["speedup"] = result["gloo_ms"] / result["kolo_ms"]
    mine = runs["kolo"].bits()
    dist.broadcast(first := mine.clone(), 0)
    result.update(backends_equal=equal(mine, runs["gloo"].bits()), ranks_equal=equal(mine, first))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="*", default=["mlp", "resnet18", "gpt"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", help="file for the results, one line for each model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("kolo")
    own = [dist.new_group([r], backend="gloo") for r in range(dist.get_world_size())]
    groups = {"alone": own[dist.get_rank()], "gloo": dist.new_group(backend="gloo"), "kolo": dist.group.WORLD}
    first = dist.get_rank() == 0
    if first:
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, medians of {options.rounds} rounds, ms "
              "(processor time)")
    for name in options.models:
        result = compare(name, groups, options.rounds)
        result["load"] = os.getloadavg()[0]
        if not first:
            continue
        steps = ", ".join("{0} {1:.1f} ({2:.1f})".format(kind, result[kind + "_ms"], result[kind + "_processor_ms"])
                          for kind in KINDS)
        print("{model:9} {millions:5.1f} M parameters: {steps}; exposed: gloo {gloo_exposed_ms:.1f}, kolo "
              "{kolo_exposed_ms:.1f}, kolo / gloo {exposed_ratio:.2f}; step: gloo / kolo {speedup:.2f}; equal bits: of "
              "gloo and kolo {backends_equal}, of the ranks {ranks_equal}; load {load:.1f}"
              .format(steps=steps, millions=result["parameters"] / 1e6, **result), flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps({"torch": torch.__version__, **result}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
