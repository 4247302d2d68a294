"""Registered memory of the backend "kolo" of torch.distributed: buckets of DistributedDataParallel and buffers of FSDP2
are in it, it is used again, and it outlives the process group."""
# needs torch numpy; ranks 2

import gc

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo.torch

torch.set_num_threads(1)
dist.init_process_group("kolo")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 2
gloo, alone = dist.new_group(backend="gloo"), [dist.new_group([r]) for r in range(size)][rank]
pool = dist.group.WORLD.pool
taken = []
alloc = pool._comm.alloc_bytes
pool._comm.alloc_bytes = lambda count: taken.append(count) or alloc(count)
made = []  # elements of the tensors


def registered(tensor):
    return tensor.untyped_storage().data_ptr() in pool._used


def mlp(width=300):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, width), torch.nn.ReLU(), torch.nn.Linear(width, 500))


def train(module, steps=3):
    """Trains it; the buckets are made again before the second step."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(steps):
        draws = torch.Generator().manual_seed(10 * step + rank)
        optimizer.zero_grad()
        module(torch.randn(4, 20, generator=draws)).square().mean().backward()
        optimizer.step()


def flat(module):
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().reshape(-1)
                      for p in module.parameters()])


# ---- the pool ----

tensors = [pool.tensor(n, dtype) for n, dtype in ((1, torch.float32), (5000, torch.float64), (3000, torch.bfloat16))]
for i, tensor in enumerate(tensors):
    tensor.fill_(i + 1)
assert [t.sum().item() for t in tensors] == [1, 10000, 9024] and tensors[2].dtype == torch.bfloat16  # 9000 in bf16
assert all(map(registered, tensors)) and pool.used() and taken == [4096, 40960, 8192]
assert pool.tensor(0, torch.float32).numel() == 0
del tensor, tensors
assert not pool.used() and len(pool._free) == 1  # joined
whole = pool.tensor(53248 // 4, torch.float32)
assert len(taken) == 3
del whole

# ---- buckets ----

models = {}
for name, group in (("kolo", None), ("gloo", gloo), ("alone", alone)):
    models[name] = DistributedDataParallel(mlp(), process_group=group, gradient_as_bucket_view=True)
    train(models[name])
    assert all(registered(p.grad) == (name == "kolo") for p in models[name].parameters()), name
assert torch.equal(flat(models["kolo"]), flat(models["gloo"]))
assert not torch.equal(flat(models["kolo"]), flat(models["alone"]))
before = len(taken)
for _ in range(3):  # with the memory of the one before
    again = DistributedDataParallel(mlp())
    train(again)
    assert torch.equal(flat(again), flat(models["gloo"]))
    del again
    gc.collect()
assert len(taken) <= before + 2, taken
double = DistributedDataParallel(mlp().double())
double(torch.ones(4, 20, dtype=torch.float64)).sum().backward()
assert all(p.grad.dtype == torch.float64 for p in double.parameters())

# ---- FSDP2 ----

if hasattr(dist.fsdp, "fully_shard") and hasattr(dist.fsdp.FSDPModule,
                                                 "set_allocate_memory_from_process_group_for_comm"):
    found, tensor_of = [], pool.tensor
    pool.tensor = lambda count, dtype: made.append(count) or tensor_of(count, dtype)
    for own_memory in (False, True):
        module, before = mlp(), len(made)
        dist.fsdp.fully_shard(module, mesh=dist.device_mesh.init_device_mesh("cpu", (size,)))
        if own_memory:
            module.set_allocate_memory_from_process_group_for_comm(True)
        train(module)
        found.append(flat(module))
        assert (len(made) > before) == own_memory
    assert torch.equal(*found)

# ---- after the group ----

sums = [p.grad.sum().item() for p in models["kolo"].parameters()]
group = dist.group.WORLD
dist.barrier()
dist.destroy_process_group()
group.shutdown()  # again
assert [p.grad.sum().item() for p in models["kolo"].parameters()] == sums
assert pool._free  # which must not be used any more
try:
    pool.tensor(1, torch.float32)
    raise AssertionError("memory of a group that has ended")
except ValueError as error:
    assert "closed" in str(error)
