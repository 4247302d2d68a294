"""Averages the gradients of PyTorch's DistributedDataParallel with Kolo.

    kolo run -n 2 -- python3 pytorch_ddp_hook.py            # compares training with gloo and Kolo
    kolo run -n 2 -- python3 pytorch_ddp_hook.py --bench    # also measures step times

DistributedDataParallel uses its own process group (gloo, at MASTER_PORT, which kolo run leaves free) for
its initial exchange; register_comm_hook passes the gradient buckets to Kolo, which averages them while the
backward pass computes others.
"""

import argparse
import os
import time

import kolo.torch
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel


def make_model(width):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, 10))


def train(rank, width, steps, comm=None):
    """The parameters after `steps` steps, and the median step time in milliseconds."""
    model = DistributedDataParallel(make_model(width), bucket_cap_mb=1)
    if comm:
        model.register_comm_hook(comm, kolo.torch.ddp_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    draws = torch.Generator().manual_seed(10 + rank)  # each rank has its own samples
    times = []
    for _ in range(steps):
        samples = torch.randn(16, 64, generator=draws)
        labels = torch.randint(10, (16,), generator=draws)
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(samples), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return flat, 1e3 * sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bench", action="store_true", help="train a larger model and print step times")
    bench = parser.parse_args().bench
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    comm = kolo.init(threads=True)
    width, steps = (1024, 30) if bench else (128, 10)
    with_gloo, gloo_ms = train(comm.rank, width, steps)
    with_kolo, kolo_ms = train(comm.rank, width, steps, comm)
    error = float((with_kolo - with_gloo).norm() / with_gloo.norm())
    if comm.rank == 0:
        print(f"{with_gloo.numel()} parameters after {steps} steps on {comm.size} ranks: "
              f"kolo and gloo differ by {error:.1e}")
        if bench:
            print(f"median step: gloo {gloo_ms:.2f} ms, kolo {kolo_ms:.2f} ms, "
                  f"torch {torch.__version__}")
    torch.distributed.destroy_process_group()
    comm.close()
    if not error < 1e-5:
        raise SystemExit(f"rank {comm.rank}: kolo and gloo differ by {error:.1e}")


if __name__ == "__main__":
    main()
