"""The backend "kolo" of torch.distributed with four ranks on two hosts, between which connections are encrypted:
collectives on the whole and on sub-groups, data and sharded parallelism, tensor parallelism beside both."""
# needs torch numpy; ranks 4

import os

rank = int(os.environ["RANK"])
os.environ["KOLO_HOST_ID"] = f"host {rank // 2}"  # as if there were two
os.environ["KOLO_ENCRYPT"] = "1"

# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import kolo.torch

torch.set_num_threads(1)
dist.init_process_group("kolo")
size = dist.get_world_size()
assert size == 4 and dist.get_backend() == "kolo"
comm = dist.group.WORLD._get_backend(torch.device("cpu"))._group()._engine.comm
assert comm.hosts == [0, 0, 1, 1] and comm.transport == "shm+tcp", (comm.hosts, comm.transport)

# ---- collectives ----

mine = torch.full((5000,), float(rank + 1))
total = mine.clone()
dist.all_reduce(total)
assert (total == 10).all()
parts = [torch.zeros(5000) for _ in range(size)]
dist.all_gather(parts, mine)
assert [p[0].item() for p in parts] == [1, 2, 3, 4]
received = torch.zeros(4 * 7)
dist.all_to_all_single(received, torch.arange(4.0).repeat_interleave(7) + 10 * rank)
assert received.reshape(4, 7)[:, 0].tolist() == [10 * r + rank for r in range(4)]
other = rank ^ 2  # on the other host
works = [dist.isend(mine, other), dist.irecv(total, other)]
for work in works:
    work.wait()
assert (total == other + 1).all()
across = dist.new_group([0, 2]), dist.new_group([1, 3])
within = dist.new_group([0, 1]), dist.new_group([2, 3])
for groups, number, want in ((across, rank % 2, 4 + 2 * (rank % 2)), (within, rank // 2, 3 + 4 * (rank // 2))):
    total = mine.clone()
    dist.all_reduce(total, group=groups[number])
    assert (total == want).all()

# ---- modules ----


class MLP(torch.nn.Module):
    """The example of PyTorch's documentation of tensor parallelism."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.one = torch.nn.Linear(20, 32)
        self.two = torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def flat(module):
    whole = (p.detach() for p in module.parameters())
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).reshape(-1) for p in whole])


def batches(shares):
    """Three batches of 8 samples; of each a share."""
    for step in range(3):
        x = torch.randn(8, 20, generator=torch.Generator().manual_seed(step))
        share, of = shares
        yield x[share * 8 // of:(share + 1) * 8 // of]


def train(module, shares):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for x in batches(shares):
        optimizer.zero_grad()
        (module(x) ** 2).mean().backward()
        optimizer.step()
    return flat(module)


def check(found, what):
    error = (found - alone).abs().max().item()
    assert error < 1e-6, (what, error)


alone = train(MLP(), (0, 1))
check(train(DistributedDataParallel(MLP()), (rank, size)), "data")

if hasattr(dist.fsdp, "fully_shard"):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plan = {"one": ColwiseParallel(), "two": RowwiseParallel()}

    def sharded(module, mesh):
        for layer in (module.one, module.two, module):
            fully_shard(layer, mesh=mesh)
        return module

    check(train(sharded(MLP(), init_device_mesh("cpu", (4,))), (rank, size)), "sharded")
    check(train(parallelize_module(MLP(), init_device_mesh("cpu", (4,)), plan), (0, 1)), "tensor")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("hosts", "tensor"))
    both = sharded(parallelize_module(MLP(), mesh["tensor"], plan), mesh["hosts"])
    check(train(both, (rank // 2, 2)), "sharded between hosts, tensor inside")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    check(train(sharded(MLP(), mesh), (rank, size)), "replicas of shards")
assert kolo.torch.copies()[0] == 0, kolo.torch.copies()
dist.destroy_process_group()
