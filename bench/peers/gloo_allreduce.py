"""torch.distributed's gloo allreduce, in-place float sum, measured as kolo_bench_allreduce does.

    gloo_allreduce.py RANKS BUDGET_SECONDS BYTES...

Rank 0 prints a line per size: bytes, median and minimum in us; first the library and its version.
"""
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def measure(size, budget):
    data, times, stop, i, end = torch.zeros(size // 4), [], torch.zeros(1), -4, 0.0
    while not stop[0]:
        if i == 0:
            end = time.perf_counter() + budget
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        seconds = time.perf_counter() - start
        if i >= 0:
            times.append(seconds * 1e6)
            if len(times) % 8 == 0:
                stop[0] = float(len(times) >= 16 and time.perf_counter() > end)
                dist.broadcast(stop, 0)
        i += 1
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return sorted(slowest.tolist())


def work(rank, ranks, budget, sizes, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    if rank == 0:
        print("# gloo of PyTorch", torch.__version__, flush=True)
    for size in sizes:
        times = measure(size, budget)
        if rank == 0:
            print(size, f"{times[len(times) // 2]:.3f} {times[0]:.3f}", flush=True)


if __name__ == "__main__":
    n, seconds, want = int(sys.argv[1]), float(sys.argv[2]), [int(s) for s in sys.argv[3:]]
    mp.start_processes(work, (n, seconds, want, 20000 + os.getpid() % 20000), n,
                       start_method="spawn")
