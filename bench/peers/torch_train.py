"""One training configuration in PyTorch: the same net, batch and optimizer as `kolo bench train`.

    torch_train.py MODEL BATCH THREADS nchw|nhwc SECONDS [--size N] [--steps N] [--profile]

The batch stays in memory. Prints one JSON line: versions, settings, the median time of a step and the
first and last loss (which must fall: the step is real). The environment is the caller's: bench/train.sh
tries the settings that are known to matter (OPENBLAS_CORETYPE, malloc) and keeps the best. --size
replaces the height and width of images; --steps makes so many steps in all; --profile prints the time of each op instead, to be held
against that of `kolo profile`. With WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT in the environment, as
torchrun sets them, the ranks train by DistributedDataParallel over Gloo, each with a batch of its own, and
rank 0 prints the line.
"""
import argparse
import json
import os
import resource
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("batch", type=int)
parser.add_argument("threads", type=int)
parser.add_argument("layout", choices=("nchw", "nhwc"))
parser.add_argument("seconds", type=float)
parser.add_argument("--size", type=int, default=0)
parser.add_argument("--steps", type=int)
parser.add_argument("--profile", action="store_true")
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)

import torch
import torch.distributed

import torch_models

torch.manual_seed(0)
torch.set_num_threads(args.threads)
net, make_batch, loss_of = torch_models.make(args.model, args.size)
ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
torch.manual_seed(rank)
x, y = make_batch(args.batch)
if args.layout == "nhwc":
    net = net.to(memory_format=torch.channels_last)
    if x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01 if x.dim() == 4 and x.shape[1] == 1 else 1e-3,
                            momentum=0.9)


def blas():
    """The library of matrix products; Debian's PyTorch takes the one that the system is set to."""
    if torch.backends.mkl.is_available():
        return "MKL"
    with open("/proc/self/maps") as maps:
        found = {line.split()[-1] for line in maps if "blas" in line.rsplit("/", 1)[-1]}
    return next(iter(sorted(found)), "unknown")


def step():
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(net(x), y)
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin, loss


def profile():
    from torch.profiler import ProfilerActivity, profile as watch

    for _ in range(2):
        step()
    steps = 3
    with watch(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(steps):
            step()
    rows = sorted(seen.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(e.self_cpu_time_total for e in rows)
    print(f"pytorch {torch.__version__}, {args.model}, batch {args.batch}, threads {args.threads}, "
          f"{args.layout}: {total / steps / 1e3:.2f} ms a step")
    for e in rows[:25]:
        ms, share = e.self_cpu_time_total / steps / 1e3, 100 * e.self_cpu_time_total / total
        print(f"{ms:10.3f} ms {share:5.1f}% {e.count // steps:5d}  {e.key}")


if args.profile:
    profile()
    raise SystemExit
if args.steps:
    for _ in range(args.steps):
        step()
    raise SystemExit
warm_up = [step() for _ in range(2)]
first = warm_up[0][1].item()
# As many steps as fit into the time, the same on all ranks.
steps = torch.tensor([max(3, int(args.seconds / warm_up[-1][0]))])
if ranks > 1:
    torch.distributed.broadcast(steps, 0)
times = []
for _ in range(int(steps)):
    elapsed, loss = step()
    times.append(elapsed)
if ranks > 1:
    torch.distributed.barrier()
if rank > 0:
    raise SystemExit
ms = statistics.median(times) * 1e3
print(json.dumps({
    "peer": "pytorch", "version": torch.__version__, "model": args.model, "batch": args.batch,
    "size": args.size, "threads": args.threads, "layout": args.layout, "ranks": ranks,
    "blas": blas(), "openblas_coretype": os.environ.get("OPENBLAS_CORETYPE", ""),
    "malloc": "keeps pages" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else "default",
    "steps": len(times), "step_ms_median": round(ms, 4), "step_ms_min": round(min(times) * 1e3, 4),
    "samples_per_second": round(args.batch / ms * 1e3, 1),
    "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    "first_loss": round(first, 4), "final_loss": round(loss.item(), 4),
}), flush=True)
