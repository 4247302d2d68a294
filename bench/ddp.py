#!/usr/bin/env python3
"""Steps of two workers of one thread each: Kolo against PyTorch's DistributedDataParallel over Gloo, in turns.

    bench/ddp.py --python venv/bin/python [--nets lenet:64,alexnet:32,resnet50:8,gpt:8] [--turns 5] [--seconds 3]
                 [--layouts nchw,nhwc] [--out FILE.md] [--kolo build/release/kolo]

Both train the same net (bench/peers/torch_models.py) on batches in memory, SGD with momentum, two processes on this host.
PyTorch gets the faster of the layouts, as a first run of each shows, and a malloc that keeps its pages if that is faster.
Medians over the turns of the median step of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GPT = "gpt2:layers=6,width=384,heads=6,context=256,vocab=8192,dropout=0"
KEEPS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def check(process):
    if process.returncode != 0:
        raise SystemExit("ddp.py: " + (process.stderr.strip() or "failed").splitlines()[-1])
    return process.stdout


def kolo(o, net, batch, steps, more=()):
    command = [o.kolo, "bench", "train", "--model", GPT if net == "gpt" else net, "--batch", str(batch), "--workers", "2", "--threads",
               "1", "--momentum", "0.9", "--steps", str(steps), "--json", "-", *more]
    return json.loads(check(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)))


def torch(o, net, batch, layout, allocator):
    """The line of rank 0 of two processes."""
    script = os.path.join(HERE, "bench", "peers", "torch_train.py")
    env = {**os.environ, **allocator, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(o.port)}
    ranks = [subprocess.Popen([o.python, script, net, str(batch), "1", layout, str(o.seconds)], env={**env, "RANK": str(r)},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(2)]
    outs = [r.communicate() for r in ranks]
    for r, (_, errors) in zip(ranks, outs):
        if r.returncode != 0:
            raise SystemExit("ddp.py: PyTorch: " + (errors.strip() or "failed").splitlines()[-1])
    return json.loads(outs[0][0])


def compare(o, net, batch, lines):
    best, how = None, None
    for layout in o.layouts.split(","):
        for name, allocator in (("default", {}), ("keeps pages", KEEPS)):
            ms = torch(o, net, batch, layout, allocator)["step_ms_median"]
            print(f"{net}: PyTorch, {layout}, malloc {name}: {ms:.2f} ms", file=sys.stderr, flush=True)
            if best is None or ms < best:
                best, how = ms, (layout, name, allocator)
    layout, name, allocator = how
    kolo(o, net, batch, 1, ["--autotune", "on"])
    steps = int(1e3 * o.seconds / kolo(o, net, batch, 8)["step_ms_median"]) + 3
    ours, theirs, version = [], [], ""
    for _ in range(o.turns):
        ours.append(kolo(o, net, batch, steps)["step_ms_median"])
        found = torch(o, net, batch, layout, allocator)
        theirs.append(found["step_ms_median"])
        version = found["version"]
    a, b = statistics.median(ours), statistics.median(theirs)
    lines.append(f"| {net}, {batch} | {a:.2f} | {b:.2f} | {b / a:.2f} | {layout}, malloc {name} | {version} |")
    print(lines[-1], file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="with PyTorch")
    parser.add_argument("--nets", default="lenet:64,alexnet:32,resnet50:8,gpt:8")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of a run")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--port", type=int, default=29520)
    parser.add_argument("--out", default="")
    parser.add_argument("--kolo", default=os.path.join(HERE, "build/release/kolo"))
    o = parser.parse_args()
    load = os.getloadavg()[0]
    lines = ["| net, batch of a worker | Kolo, ms | PyTorch DDP, Gloo, ms | ratio | PyTorch's settings | version |",
             "| --- | --- | --- | --- | --- | --- |"]
    for net_batch in o.nets.split(","):
        net, batch = net_batch.rsplit(":", 1)
        compare(o, net, int(batch), lines)
    lines += ["", f"`bench/ddp.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, 2 workers of one thread, load {load:.1f} before "
              f"and {os.getloadavg()[0]:.1f} after."]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
