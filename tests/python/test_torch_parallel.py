"""Sharded modules (FSDP2), tensor and sequence parallelism, pipelines and checkpoints of torch.distributed over the
backend "kolo": the numbers are those over gloo, and for tensor parallelism and pipelines those of one process."""
# needs torch numpy; ranks 2

import tempfile

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

import kolo.torch

torch.set_num_threads(1)
dist.init_process_group("kolo")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 2 and dist.get_backend() == "kolo"
gloo = dist.new_group(backend="gloo")
meshes = {"gloo": DeviceMesh.from_group(gloo, "cpu"), "kolo": init_device_mesh("cpu", (size,))}
groups = {"gloo": gloo, "kolo": dist.group.WORLD}
WORDS, WIDTH, STEPS = 40, 16, 3


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.one, self.two = torch.nn.Linear(WIDTH, 32), torch.nn.Linear(32, WIDTH)

    def forward(self, x):
        return x + self.two(torch.relu(self.one(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(4))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def tokens(step, of=0):
    """A batch of texts and of what follows each token; ranks may have different ones."""
    draws = torch.Generator().manual_seed(10 * step + of)
    text = torch.randint(WORDS, (4, 9), generator=draws)
    return text[:, :-1], text[:, 1:]


def cross_entropy(logits, target):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def train(net, of=0, loss=cross_entropy, clip=False):
    """The losses of some steps."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = tokens(step, of)
        value = loss(net(x), y)
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        losses.append(value.item())
    return losses


def flat(net):
    """All parameters."""
    each = (p.detach().cpu() for p in net.parameters())
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).float().reshape(-1) for p in each])


def compare(what, found, within=2e-6):
    """The results of both backends, and of one process."""
    for a, b in (("kolo", "gloo"), *((("kolo", "alone"),) if "alone" in found else ())):
        for one, other in zip(found[a], found[b]):
            error = (torch.as_tensor(one) - torch.as_tensor(other)).abs().max().item()
            assert error <= within, (what, a, b, error)
    assert (found["kolo"][1] - flat(Net())).abs().max() > 1e-3, what  # it has been trained


# ---- FSDP2 ----

folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
for half in (False, True):
    results = {}
    for name, mesh in meshes.items():
        net = Net()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else \
            MixedPrecisionPolicy()
        for layer in net.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(net, mesh=mesh, mp_policy=policy)
        for first, second in zip(net.layers, list(net.layers)[1:]):
            first.set_modules_to_forward_prefetch([second])
        results[name] = train(net, of=rank + 1, clip=True), flat(net)
        state = {"net": net.state_dict()}
        checkpoint.save(state, checkpoint_id=f"{folder[0]}/{name}{half}", process_group=groups[name])
        for p in net.parameters():
            p.data.zero_()
        checkpoint.load(state, checkpoint_id=f"{folder[0]}/{name}{half}", process_group=groups[name])
        assert torch.equal(flat(net), results[name][1])
    compare(("sharded", half), results)

# ---- tensor and sequence parallelism ----

LAYER = {"norm": SequenceParallel(), "one": ColwiseParallel(input_layouts=Shard(1)),
         "two": RowwiseParallel(output_layouts=Shard(1))}
PLAN = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
        **{f"layers.{i}.{part}": style for i in range(4) for part, style in LAYER.items()}}


def sharded_loss(logits, target):
    with loss_parallel():
        return cross_entropy(logits, target)


class Backward:
    """A loss whose backward pass runs in loss_parallel too."""

    def __init__(self, value):
        self.value = value

    def backward(self):
        with loss_parallel():
            self.value.backward()

    def item(self):
        return self.value.full_tensor().item()


results = {"alone": (train(net := Net()), flat(net))}
for name, mesh in meshes.items():
    plan = {**PLAN, "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
    net = parallelize_module(Net(), mesh, plan)
    results[name] = train(net), flat(net)
compare("sequence parallel", results)
for name, mesh in meshes.items():
    plan = {**PLAN, "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)}
    net = parallelize_module(Net(), mesh, plan)
    results[name] = train(net, loss=lambda a, b: Backward(sharded_loss(a, b))), flat(net)
compare("sharded loss", results)

# ---- pipelines ----


class Part(torch.nn.Module):
    """Layers of a net."""

    def __init__(self, net, index, parts):
        super().__init__()
        self.embed = net.embed if index == 0 else torch.nn.Identity()
        each = len(net.layers) // parts
        self.layers = net.layers[index * each:(index + 1) * each]
        self.norm = net.norm if index == parts - 1 else torch.nn.Identity()
        self.head = net.head if index == parts - 1 else torch.nn.Identity()

    forward = Net.forward


plain = Net()
x, y = tokens(0)
loss = cross_entropy(plain(x), y)
loss.backward()
for schedule, parts in ((ScheduleGPipe, 2), (Schedule1F1B, 2), (ScheduleInterleaved1F1B, 4)):
    results = {}
    for name, group in groups.items():
        whole = Net()
        own = range(rank, parts, size)
        modules = [Part(whole, index, parts) for index in own]
        stages = [PipelineStage(m, i, parts, torch.device("cpu"), group=group) for m, i in zip(modules, own)]
        several = stages if schedule is ScheduleInterleaved1F1B else stages[0]
        runs = schedule(several, 4, loss_fn=cross_entropy)
        losses = []
        for _ in range(2):  # shapes are exchanged in the first
            for p in whole.parameters():
                p.grad = None
            losses.clear()
            runs.step(*([x] if rank == 0 else []), target=y if rank == 1 else None,
                      losses=losses if rank == 1 else None)
        grads = [p.grad for m in modules for p in m.parameters()]
        assert grads and all(g is not None for g in grads)
        results[name] = grads
        for found, wanted in zip(grads, [p.grad for i in own for p in Part(plain, i, parts).parameters()]):
            assert (found - wanted).abs().max() < 1e-6, (schedule, name)
        if rank == 1:
            assert abs(torch.stack(losses).mean() - loss) < 1e-6
    for one, other in zip(results["kolo"], results["gloo"]):
        assert torch.equal(one, other), schedule

assert kolo.torch.copies()[0] == 0, kolo.torch.copies()
dist.barrier()
dist.destroy_process_group()
