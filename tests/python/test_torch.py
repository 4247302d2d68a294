"""Horovod's calls on PyTorch modules against one process with all samples; tensors as arrays of sessions."""
# needs torch numpy; ranks 2

import copy

import numpy as np
import torch

import kolo
import kolo.torch as hvd
from kolo import nn, ops


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x)))


def make_model(seed):
    torch.manual_seed(seed)
    return Model()


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def backward(model, x, y):
    torch.nn.functional.cross_entropy(model(x), y).backward()


hvd.init()
rank, size = hvd.rank(), hvd.size()
assert size == 2 and (hvd.local_rank(), hvd.local_size()) == (rank, 2)
draws = torch.Generator().manual_seed(1)
data = [(torch.randn(8, 8, generator=draws), torch.randint(3, (8,), generator=draws)) for _ in range(12)]
mine = slice(4 * rank, 4 * rank + 4)

# Collectives.
assert hvd.allreduce(torch.tensor(float(rank))) == 0.5
assert hvd.allreduce(torch.full((3,), rank + 1, dtype=torch.bfloat16), op="sum").tolist() == [3, 3, 3]
handles = [hvd.allreduce_async(torch.ones(i + 1) * rank, f"t{i}", op="sum") for i in range(3)]
assert [hvd.synchronize(h).sum().item() for h in handles] == [1, 2, 3] and hvd.poll(handles[0])
assert hvd.allreduce(torch.tensor([1j, rank + 1j]).conj(), op="prod").tolist() == [-1, -1 - 1j]
assert hvd.broadcast(torch.tensor([rank, 7]), root_rank=1).tolist() == [1, 7]
assert hvd.broadcast_object({"a": [rank, "text"]}, 1) == {"a": [1, "text"]}
for wrong, kind in ((torch.ones(2, 3).t(), ValueError), (torch.ones(2, dtype=torch.complex64).conj(), ValueError),
                    (torch.ones(2, dtype=torch.float8_e5m2), TypeError)):
    try:
        hvd.allreduce_(wrong)
        raise AssertionError(f"{wrong} was accepted")
    except kind:
        pass



# Buckets of the hook: several in flight, completed while nobody waits for them.
class Bucket:
    def __init__(self, tensor):
        self.buffer = lambda: tensor


buckets = [torch.full((1000 * i,), rank * i) * 1.0 for i in range(1, 9)]
futures = [hvd.ddp_hook(hvd.init(), Bucket(b)) for b in buckets]
assert hvd.allreduce(torch.tensor(1.0)) == 1  # another collective meanwhile
while not all(f.done() for f in futures):
    pass
assert all((f.value() == i / 2).all() for i, f in enumerate(futures, 1))

# Two ranks with half of the samples each are one process with all of them.
model, reference = make_model(rank), make_model(0)
hvd.broadcast_parameters(model.state_dict())
assert torch.equal(flat(model), flat(reference))
plain = make_optimizer(reference)
optimizer = hvd.DistributedOptimizer(make_optimizer(model), named_parameters=model.named_parameters())
for x, y in data[:6]:
    optimizer.zero_grad()
    backward(model, x[mine], y[mine])
    optimizer.synchronize()  # as before clipping; step() then does not average again
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    plain.zero_grad()
    backward(reference, x, y)
    assert torch.isclose(norm, torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5), rtol=1e-4)
    plain.step()
    assert torch.allclose(flat(model), flat(reference), atol=1e-6)
assert torch.equal(flat(model), hvd.broadcast(flat(model)))  # bitwise on all ranks

# A second backward pass without step() is refused.
backward(model, *data[0])
try:
    backward(model, *data[0])
    raise AssertionError("gradients were averaged twice")
except RuntimeError as error:
    assert "backward_passes_per_step" in str(error), error
optimizer.synchronize()

# Optimizer state, passes summed before the average, and a gradient that one rank alone has.
third = make_model(0)
hvd.broadcast_parameters(third.named_parameters())
third.load_state_dict(reference.state_dict())
late = make_optimizer(third)
if rank == 0:
    late.load_state_dict(copy.deepcopy(plain.state_dict()))
hvd.broadcast_optimizer_state(late)
late = hvd.DistributedOptimizer(late, op="sum", backward_passes_per_step=2)
late.zero_grad()
plain.zero_grad()
for x, y in data[6:8]:
    backward(third, x[mine], y[mine])
    if rank == 1:
        third.unused(torch.ones(1, 2)).sum().backward()
    backward(reference, x, y)
late.step()
for p in reference.parameters():
    if p.grad is not None:
        p.grad *= 2  # of the sum of two means of halves
plain.step()
assert torch.allclose(flat(third)[:-6], flat(reference)[:-6], atol=1e-5)
assert not torch.equal(third.unused.weight, reference.unused.weight)
assert torch.equal(flat(third), hvd.broadcast(flat(third)))


# Rank 0 has two batches, rank 1 five: join stands in with zeros. The newest parameters are those of rank 1.
model, reference = make_model(0), make_model(0)
named = [(f"uneven.{n}", p) for n, p in model.named_parameters()]
optimizer, plain = hvd.DistributedOptimizer(make_optimizer(model), named), make_optimizer(reference)
for i, (x, y) in enumerate(data[:5]):
    plain.zero_grad()
    (torch.nn.functional.cross_entropy(reference(x[:4]), y[:4]) * (i < 2) / 2
     + torch.nn.functional.cross_entropy(reference(x[4:]), y[4:]) / 2).backward()
    plain.step()
    if rank == 1 or i < 2:
        optimizer.zero_grad()
        backward(model, x[mine], y[mine])
        optimizer.step()
assert hvd.join() == 1
hvd.broadcast_parameters(model.state_dict(), root_rank=1)
hvd.broadcast_optimizer_state(optimizer, root_rank=1)
assert torch.allclose(flat(model), flat(reference), atol=1e-6)
for x, y in data[:2]:  # training goes on
    optimizer.zero_grad()
    backward(model, x[mine], y[mine])
    optimizer.step()
assert torch.equal(flat(model), hvd.broadcast(flat(model)))

# Flags of join do not depend on the operation; an optimizer without trainable parameters takes part as well.
for op, train in ((hvd.Min, True), (hvd.Product, True), (hvd.Average, False)):
    weight = torch.ones(3).requires_grad_(train)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [(f"joined.{op}", weight)], op=op)
    for _ in range(1 + 2 * rank):
        (weight.sum() if train else torch.ones(1, requires_grad=True)).backward()
        optimizer.step()
    assert hvd.join() == 1

# Compression: by halves close to the mean, by codecs equal on all ranks.
assert hvd.allreduce(torch.tensor([1.0, 3 * rank]), compression=hvd.Compression.fp16, name="x").tolist() == [1, 1.5]
try:
    hvd.allreduce(torch.ones(1), compression=hvd.Compression.int8)
    raise AssertionError("int8 without error feedback")
except ValueError as error:
    assert "DistributedOptimizer" in str(error)
for codec in (hvd.Compression.bf16, hvd.Compression.int8, hvd.Compression.topk(0.5)):
    model, reference = make_model(0), make_model(0)
    optimizer, plain = hvd.DistributedOptimizer(make_optimizer(model), compression=codec), make_optimizer(reference)
    for x, y in data:
        optimizer.zero_grad()
        backward(model, x[mine], y[mine])
        optimizer.step()
        plain.zero_grad()
        backward(reference, x, y)
        plain.step()
    error = (flat(model) - flat(reference)).norm() / flat(reference).norm()
    assert torch.equal(flat(model), hvd.broadcast(flat(model))) and 0 < error < 0.1, (codec, error)
try:
    hvd.join()
    raise AssertionError("join() with a codec")
except ValueError as error:
    assert "join() with compression" in str(error)


# PyTorch's tensors as arrays of a session, without copies.
def net(g):
    x, y = g.input("x", (8,)), g.input("y", dtype="i32")
    logits = nn.linear(x, 3, "linear")
    g.output(logits=logits, loss=ops.softmax_xent(logits, y))


x, y = data[0]
assert kolo._arrays.as_field("x", x).ctypes.data == x.data_ptr()
session = kolo.Session(net, batch=8, lr=0.1)
w = torch.from_dlpack(session.get("linear.weight"))
b = torch.empty(3)
session.get("linear.bias", out=b)
want = torch.nn.functional.linear(x, w, b)
assert torch.allclose(torch.from_dlpack(session.predict("logits", x=x)), want, atol=1e-5)
loss = torch.nn.functional.cross_entropy(want, y).item()
assert np.isclose(session.step(x=x, y=y)["loss"], loss, rtol=1e-5)  # int64 labels
session.set("linear.bias", torch.ones(3))
assert session.get("linear.bias").tolist() == [1, 1, 1]
hvd.shutdown()
