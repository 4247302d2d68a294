"""The backend "kolo" of torch.distributed: every collective against its definition, without copies, from several
threads and without waits; data, sharded and tensor parallel modules as with gloo, and errors that name the cause."""
# needs torch numpy; ranks 2

import datetime
import threading

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks import quantization_pertensor_hook
from torch.nn.parallel import DistributedDataParallel

import kolo
import kolo.torch

torch.set_num_threads(1)
dist.init_process_group("kolo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
other = 1 - rank
assert size == 2 and dist.get_backend() == "kolo"


def full(count, value, dtype=torch.float32):
    return torch.full((count,), value).to(dtype)


def values(tensors):
    return [t[0].item() for t in tensors if (t == t[0]).all()]


# ---- collectives, by definition ----

for count in (1, 1003, 70001):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        own, zeros = full(count, rank + 1, dtype), [full(count, 0, dtype) for _ in range(size)]
        dist.all_reduce(own)
        dist.reduce(zero := full(count, rank + 1, dtype), 1)
        dist.broadcast(sent := full(count, rank + 5, dtype), 1)
        assert values([own, zero, sent]) == [3, [1, 3][rank], 6]
        dist.all_gather(zeros, full(count, rank + 1, dtype))
        assert values(zeros) == [1, 2]
        dist.gather(full(count, rank + 3, dtype), zeros if rank == 1 else None, 1)
        assert values(zeros) == ([3, 4] if rank == 1 else [1, 2])
        dist.scatter(own, [full(count, 7 + r, dtype) for r in range(size)] if rank == 0 else None, 0)
        assert values([own]) == [7 + rank]
        dist.reduce_scatter(own, [full(count, 10 * r + rank, dtype) for r in range(size)])
        assert values([own]) == [20 * rank + 1]
        dist.all_to_all(zeros, [full(count, 10 * rank + r, dtype) for r in range(size)])
        assert values(zeros) == [rank, 10 + rank]
        whole = full(2 * count, 0, dtype)
        whole[rank * count:(rank + 1) * count] = rank + 1
        dist.all_gather_into_tensor(whole, whole[rank * count:(rank + 1) * count])  # in place
        assert values(whole.chunk(2)) == [1, 2]
        dist.reduce_scatter_tensor(own, whole)
        assert values([own]) == [2 * (rank + 1)]
        dist.all_to_all_single(twice := whole.clone(), whole)
        assert values(twice.chunk(2)) == [rank + 1, rank + 1]
dist.barrier()

rows = torch.arange(6).reshape(3, 2) + 10 * rank  # rank r keeps 1 row and sends 2
dist.all_to_all_single(got := torch.zeros(3, 2, dtype=torch.int64), rows, [1, 2] if rank == 0 else [2, 1],
                       [1, 2] if rank == 0 else [2, 1])
assert got.tolist() == ([[0, 1], [10, 11], [12, 13]] if rank == 0 else [[2, 3], [4, 5], [14, 15]])
dist.all_gather(uneven := [torch.zeros(2), torch.zeros(5)], full([2, 5][rank], rank + 1))
assert values(uneven) == [1, 2]

for op, want in ((ReduceOp.AVG, 1.5), (ReduceOp.PRODUCT, 2), (ReduceOp.MIN, 1), (ReduceOp.MAX, 2),
                 (dist._make_nccl_premul_sum(0.5), 1.5), (dist._make_nccl_premul_sum(0.0), 0)):
    dist.all_reduce(own := full(9, rank + 1), op)
    assert values([own]) == [want], op
zero = dist._make_nccl_premul_sum(0.0)
dist.reduce(own := full(9, rank + 1), 0, zero)
assert values([own]) == [[0, 2][rank]]
dist.reduce_scatter_tensor(own, whole := full(18, 3), zero)
assert values([own, whole]) == [0, 3]
dist.reduce_scatter(own := full(9, 1), [full(9, 2), full(9, 3)], zero)
assert values([own]) == [0]
for op, want in ((ReduceOp.BAND, 1), (ReduceOp.BOR, 7), (ReduceOp.BXOR, 6)):
    dist.all_reduce(own := full(9, [3, 5][rank], torch.int32), op)
    assert values([own]) == [want], op
for op, want in ((ReduceOp.SUM, [True, True]), (ReduceOp.MIN, [True, False]), (ReduceOp.BXOR, [False, True])):
    dist.all_reduce(own := torch.tensor([True, rank == 0]), op)
    assert own.tolist() == want
dist.all_reduce(own := torch.tensor([1 + 2j * rank]))
assert own.item() == 2 + 2j
dist.all_reduce(own := torch.tensor([rank + 1j * (rank + 1)]).conj().imag, ReduceOp.MIN)  # in memory: 1, 2
assert own.item() == -2
for dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64):
    dist.all_reduce(own := full(9, rank + 1, dtype))
    assert own.tolist() == [3] * 9
dist.broadcast(own := full(5, rank, torch.float8_e5m2), 1)  # only moved
assert values([own.float()]) == [1]

# ---- messages, coalescing, sub-groups, objects ----

works = [dist.isend(full(1000, 10 * rank + tag), other, tag=tag) for tag in (1, 2)]
dist.recv(second := torch.zeros(1000), other, tag=2)
assert dist.recv(first := torch.zeros(1000), tag=1) == other  # from any rank
assert values([first, second]) == [10 * other + 1, 10 * other + 2] and all(w.wait() for w in works)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, full(3, rank), other),
                                    dist.P2POp(dist.irecv, first[:3], other)]):
    work.wait()
assert values([first[:3]]) == [other]
with dist._coalescing_manager(async_ops=True) as several:
    for tensor in (own := [full(n, rank + 1) for n in (3, 100, 7)]):
        dist.all_reduce(tensor)
several.wait()
assert values(own) == [3, 3, 3]
alone, both = dist.new_group([1]), dist.new_group([1, 0])
if rank == 1:
    dist.all_reduce(own := torch.ones(3), group=alone)
    assert values([own]) == [1]
dist.all_reduce(own := torch.ones(3), group=both)
assert values([own]) == [2]
dist.all_gather_object(objects := [None] * 2, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}]

if hasattr(dist.ProcessGroup, "split_group") and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
    parts = dist.split_group(split_ranks=[[1, 0]]), dist.split_group(split_ranks=[[1]], group_desc="alone")
    assert parts[0].rank() == other and parts[0].size() == 2 and parts[0].name() == "kolo"
    dist.broadcast(own := full(3, rank), group=parts[0], group_src=0)
    assert values([own]) == [1]
    assert (parts[1] is dist.GroupMember.NON_GROUP_MEMBER) == (rank == 0)
    if rank == 1:
        dist.all_reduce(own := torch.ones(3), group=parts[1])
        assert values([own]) == [1] and parts[1].group_desc == "alone"
    inner = dist.split_group(parts[0], [[0]])  # of a part
    if rank == 1:
        dist.barrier(inner)

# ---- sparse tensors ----


def sparse(indices, values, shape=(5, 2)):
    values = torch.tensor(values).reshape(len(indices), *shape[1:])
    return torch.sparse_coo_tensor(torch.tensor([indices], dtype=torch.int64), values, shape)


for async_op in (False, True):
    own = sparse([0, 3, 3], [[1., 2], [3, 4], [5, 6]]) if rank else sparse([3], [[10., 20]])
    work = dist.all_reduce(own, async_op=async_op)
    dist.all_reduce(torch.ones(1))  # others meanwhile
    if async_op:
        assert work.get_future().wait()[0].to_dense()[3].tolist() == [18, 30]
        assert work.wait() and work.is_completed() and work.is_success()
    assert own.to_dense().tolist() == [[1, 2], [0, 0], [0, 0], [18, 30], [0, 0]]
own = sparse([4], [[rank + 1.0, 1]]) if rank else sparse([], [])  # rank 0 has no entries
dist.all_reduce(own, ReduceOp.AVG)
assert own.to_dense()[4].tolist() == [1, 0.5] and own._nnz() == 1

# ---- no waits, several threads, no copies ----

work = dist.all_reduce(own := torch.ones(50000), async_op=True)
done = work.get_future().then(lambda future: future.value()[0].sum().item())  # nobody waits for the work
assert done.wait() == 100000 and work.is_completed() and work.is_success() and work.exception() is None
def nested(future):  # a callback that waits for a later collective, whose callback does the same
    inner = dist.all_reduce(future.value()[0], async_op=True).get_future()
    return inner.then(lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0]).wait()


work = dist.all_reduce(own := torch.ones(5), async_op=True)
assert values([work.get_future().then(nested).wait()]) == [8]
work = dist.all_reduce(own := torch.ones(4, 6).t()[:, :3], async_op=True)  # through a copy
assert (work.get_future().wait()[0] == 2).all()
before = kolo.torch.copies()
lists = [full(100 * (i + 1), rank + i) for i in range(200)]
works = [dist.all_reduce(t, async_op=True) for t in lists]
while not works[-1].is_completed():
    pass
assert all(w.is_completed() for w in works) and values(lists) == [2 * i + 1 for i in range(200)]
results = {}


def in_thread(group, number):
    for step in range(20):
        dist.all_reduce(tensor := full(1000 * (number + 1), rank + step), group=group)
        results[number, step] = values([tensor])
    dist.send(tensor, other, group, tag=9) if rank else dist.recv(tensor, other, group, tag=9)


threads = [threading.Thread(target=in_thread, args=(g, i)) for i, g in enumerate((None, both))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(results[n, s] == [2 * s + 1] for n in range(2) for s in range(20))
assert kolo.torch.copies() == before  # all tensors were contiguous
kolo._c10d.LIST_RANKS = 1  # as in large groups
dist.all_gather(lists := [torch.zeros(2, 3) for _ in range(size)], torch.full((2, 3), rank + 1.0))
dist.reduce_scatter(own := torch.zeros(7), [full(7, 10 * r + rank) for r in range(size)])
assert [t.unique().item() for t in lists] == [1, 2] and values([own]) == [20 * rank + 1]
assert kolo.torch.copies() == (before[0] + 2, before[1] + 48 + 56)
dist.all_reduce(own := torch.ones(4, 5).t())
assert (own == 2).all() and kolo.torch.copies() == (before[0] + 3, before[1] + 48 + 56 + 80)


# ---- modules ----

class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two = torch.nn.Linear(20, 256), torch.nn.Linear(256, 8)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


draws = torch.Generator().manual_seed(3 + rank)
data = [torch.randn(4, 20, generator=draws) for _ in range(4)]


def train(model, parameters, samples=None):
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for x in samples or data:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


gloo = dist.new_group(backend="gloo")
found = []
for group in (None, gloo):
    parallel = DistributedDataParallel(module := MLP(), process_group=group, bucket_cap_mb=0.01)
    train(parallel, parallel.parameters())
    found.append(flat(module))
assert torch.equal(*found)  # bitwise


class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.words, self.out = torch.nn.EmbeddingBag(50, 8, sparse=True, mode="sum"), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.words(x))


words = [torch.randint(50, (4, 6), generator=draws) for _ in range(3)]
found_sparse = []
for group in (None, gloo):
    parallel = DistributedDataParallel(module := Bag(), process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for x in words:
        optimizer.zero_grad()
        parallel(x).square().mean().backward()
        assert module.words.weight.grad.is_sparse
        optimizer.step()
    found_sparse.append(flat(module))
assert torch.allclose(*found_sparse, rtol=0, atol=1e-7)

parallel = DistributedDataParallel(module := MLP())
parallel.register_comm_hook(None, quantization_pertensor_hook)  # its callbacks gather and wait
train(parallel, parallel.parameters())
assert (flat(module) - found[0]).abs().max() < 0.02

if hasattr(dist.fsdp, "fully_shard"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (size,))
    module = MLP()
    for layer in (module.one, module.two, module):
        dist.fsdp.fully_shard(layer, mesh=mesh)
    train(module, module.parameters())
    sharded = torch.cat([p.full_tensor().reshape(-1) for p in module.parameters()])
    assert torch.allclose(sharded, found[0], atol=1e-6), (sharded - found[0]).abs().max()

    plain, module = MLP(), MLP()
    parallelize_module(module, mesh, {"one": ColwiseParallel(), "two": RowwiseParallel()})
    same = [torch.randn(4, 20, generator=torch.Generator().manual_seed(7))] * 3
    train(plain, plain.parameters(), same)
    train(module, module.parameters(), same)
    sharded = torch.cat([p.detach().full_tensor().reshape(-1) for p in module.parameters()])
    assert torch.allclose(sharded, flat(plain), atol=1e-6)

# ---- errors ----

for wrong, text in ((lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)), "SUM on torch.float8_e5m2"),
                    (lambda: dist.all_reduce(torch.ones(2, device="meta")), "a tensor on meta"),
                    (lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)), "3 elements are not 2 times 2"),
                    (lambda: dist.all_reduce(torch.eye(2).to_sparse(), ReduceOp.MAX), "MAX on sparse tensors"),
                    (lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()), "layout torch.sparse_csr"),
                    (lambda: dist.broadcast(torch.eye(2).to_sparse(), 0), "layout torch.sparse_coo"),
                    (lambda: dist.all_gather([torch.ones(1)], torch.ones(1)), "all_gather: a list of length 1: give 2"),
                    (lambda: dist.reduce_scatter(torch.ones(1), [torch.ones(1)] * 3), "list of length 3: give 2"),
                    (lambda: dist.send(torch.ones(1), other, tag=-1), "tag -1")):
    try:
        wrong()
        raise AssertionError(f"accepted: {text}")
    except (TypeError, ValueError) as error:
        assert text in str(error), error
dist.barrier()  # the group is as before
late = dist.new_group([0, 1])
if rank == 0:
    try:
        dist.all_reduce(torch.ones(1), group=late, async_op=True).wait(datetime.timedelta(seconds=0.2))
        raise AssertionError("a rank that does not come")
    except kolo.TimeoutError as error:
        assert "rank 1" in str(error) and "allreduce" in str(error), error
        assert "Timed out waiting 200ms: waited 0.2 s" in str(error), error
dist.barrier()  # of another group
dist.all_reduce(own := full(3, 1), group=(watched := dist.new_group([0, 1])))
for every in (False, True):
    dist.monitored_barrier(watched, datetime.timedelta(seconds=20), wait_all_ranks=every)
if rank == 0:
    try:
        dist.monitored_barrier(watched, datetime.timedelta(seconds=0.2))
        raise AssertionError("a rank that does not come")
    except RuntimeError as error:
        assert "Rank 1 failed to pass monitoredBarrier in 200 ms" in str(error), error
dist.barrier()
if rank == 1:
    try:
        dist.monitored_barrier(watched, datetime.timedelta(seconds=20))
        raise AssertionError("a barrier that has failed")
    except RuntimeError as error:
        assert "Rank 1 successfully reached monitoredBarrier, but" in str(error), error
        assert "Rank 1 failed to pass monitoredBarrier" in str(error), error
lengths = dist.new_group([0, 1])
try:
    dist.all_reduce(torch.eye(2 + rank).to_sparse(), group=lengths)
    raise AssertionError("sparse tensors of different shapes")
except ValueError as error:
    assert "[2, 2]" in str(error) and "[3, 3]" in str(error), error
dist.barrier()
dist.destroy_process_group()
