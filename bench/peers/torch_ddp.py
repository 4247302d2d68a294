"""Step times of PyTorch's DistributedDataParallel over the backends kolo and gloo, in turns.

    PYTHONPATH=python torchrun --nproc-per-node 2 bench/peers/torch_ddp.py [--rounds 5] [--steps 4] [MODEL...]

Each round trains every model a few steps without communication, over gloo and over kolo; the medians over all
rounds are printed, and the communication that is exposed, which is the difference to the first. At the end the
parameters of gloo, kolo and of the ranks are compared: the ranks have different samples, and two ranks give equal bits.
One thread per rank. Models: mlp (10.5 million parameters, batch 32), resnet18 (224 x 224, batch 8), gpt (6 layers of width
384, 8 sequences of 128 tokens).
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import kolo.torch


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


def difference(runs):
    """The largest difference of a parameter between gloo and kolo, and between the ranks."""
    flat = {kind: torch.cat([p.detach().reshape(-1) for p in runs[kind][0].parameters()]) for kind in ("gloo", "kolo")}
    between = (flat["gloo"] - flat["kolo"]).abs().max()
    mine = flat["kolo"].clone()
    dist.broadcast(mine, 0)
    both = torch.stack([between, (flat["kolo"] - mine).abs().max()])
    dist.all_reduce(both, dist.ReduceOp.MAX)
    return both.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("models", nargs="*", default=["mlp", "resnet18", "gpt"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("kolo")
    groups = {"none": None, "gloo": dist.new_group(backend="gloo"), "kolo": dist.group.WORLD}
    if dist.get_rank() == 0:
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, medians of {options.rounds} rounds of "
              f"{options.steps} steps, ms")
    for name in options.models:
        times = {kind: [] for kind in groups}
        runs = {}
        for kind, group in groups.items():
            model, x, y = make(name)
            if name == "gpt":
                x = (x + dist.get_rank()) % 8192
            else:
                x = x + 0.1 * dist.get_rank()
            parallel = DistributedDataParallel(model, process_group=group) if group else model
            runs[kind] = parallel, torch.optim.SGD(model.parameters(), lr=1e-3), x, y
        for turn in range(options.rounds + 1):  # the first warms up
            for kind, (model, optimizer, x, y) in runs.items():
                dist.barrier()
                for _ in range(options.steps):
                    start = time.perf_counter()
                    optimizer.zero_grad()
                    cross_entropy(model(x), y).backward()
                    optimizer.step()
                    if turn > 0:
                        times[kind].append(1e3 * (time.perf_counter() - start))
        backends, ranks = difference(runs)
        if dist.get_rank() == 0:
            median = {kind: statistics.median(t) for kind, t in times.items()}
            parameters = sum(p.numel() for p in runs["none"][0].parameters())
            print(f"{name:9} {parameters / 1e6:5.1f} M parameters: alone {median['none']:7.1f}"
                  + "".join(f", {k} {median[k]:7.1f} (exposed {median[k] - median['none']:6.1f})"
                            for k in ("gloo", "kolo"))
                  + f", gloo / kolo {median['gloo'] / median['kolo']:.2f}, parameters differ by {backends:.1g} between "
                  f"gloo and kolo, {ranks:.1g} between ranks"
                  + f", load {os.getloadavg()[0]:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
