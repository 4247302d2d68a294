"""Data-parallel training of PyTorch modules on CPUs, by the calls of Horovod.

    import kolo.torch as hvd                     # started by: kolo run -n 4 -- python3 train.py

    hvd.init()
    hvd.broadcast_parameters(model.state_dict())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for samples, labels in batches_of(hvd.rank(), hvd.size()):
        optimizer.zero_grad()
        loss(model(samples), labels).backward()  # gradients are averaged while others are computed
        optimizer.step()

The import also registers the backend "kolo": ``torch.distributed.init_process_group("kolo")`` serves all of
PyTorch's own data, sharded, tensor and pipeline parallelism.

With DistributedDataParallel over another backend: ``model.register_comm_hook(hvd.init(), hvd.ddp_hook)``.
Tensors are in main memory and are read and written where they lie. All ranks make the same calls in the same
order, except for named tensors.
"""

from __future__ import annotations

import io
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from ._futures import Settler
from ._group import comm as _comm
from ._group import join as _join
from ._group import local_rank, local_size, name_of, rank, shutdown, size
from ._memory import Buffer
from ._reducer import Reducer
from ._torch_types import TYPES
from .comm import Comm, Handle

__all__ = ["Average", "Compression", "DistributedOptimizer", "Max", "Min", "Product", "Sum",
           "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "broadcast",
           "broadcast_", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
           "copies", "ddp_hook", "init", "join", "local_rank", "local_size", "poll", "rank",
           "shutdown", "size", "synchronize"]

_LEAST = (2, 14)  # PyTorch that lets a backend be written in Python


# ---- the backend of torch.distributed ----


def _refuse(*_: Any) -> Any:
    raise RuntimeError("the backend \"kolo\" needs PyTorch {}.{} or later, and this is {}: use gloo with ddp_hook, "
                       "or DistributedOptimizer".format(*_LEAST, torch.__version__))


def _register() -> None:
    version = tuple(int(n) for n in torch.__version__.split(".")[:2])
    if torch.distributed.is_available() and version >= _LEAST:
        from ._c10d import create  # pylint: disable=import-outside-toplevel
        torch.distributed.Backend.register_backend("kolo", create, devices=["cpu"])
    elif torch.distributed.is_available():
        torch.distributed.Backend.register_backend("kolo", _refuse)


_register()


def copies() -> Tuple[int, int]:
    """How many tensors the backend "kolo" has copied because they were not contiguous, and their bytes."""
    from ._c10d_tensors import copied  # pylint: disable=import-outside-toplevel
    return copied[0], copied[1]


# ---- options ----

Average, Sum, Min, Max, Product = "mean", "sum", "min", "max", "prod"


class Compression:
    """Codecs of f32 gradients. Those of DistributedOptimizer keep what they lose for the next step; an allreduce of
    fp16 or bf16 does not."""

    none, fp16, bf16, int8, onebit = "none", "f16", "bf16", "int8", "onebit"

    @staticmethod
    def topk(ratio: float) -> str:
        """Sends this part of the values: the largest ones."""
        return f"topk:{ratio}"


# ---- the group ----


def init(**options: Any) -> Comm:
    """Joins the group of all workers, with the options of kolo.init, of which ``threads`` is True by default;
    returns its communicator. Calls after the first one have no options."""
    return _join(options, threads=True)


# ---- collectives ----


def _buffer(tensor: torch.Tensor) -> Buffer:
    """The memory of a tensor."""
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device}: Kolo communicates tensors in main memory")
    if tensor.dtype not in TYPES:
        raise TypeError(f"tensors of {tensor.dtype} cannot be reduced or sent")
    if not tensor.is_contiguous():
        raise ValueError("the tensor is not contiguous: make a copy of it first")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("the tensor is a view of conjugate or negative numbers, which are not in its memory: use its "
                         "resolve_conj() or resolve_neg()")
    memory = Buffer(tensor.data_ptr() or None, tensor.numel(), TYPES[tensor.dtype], tensor)
    memory.logical = tensor.dtype == torch.bool
    return memory


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


_HALVES = {Compression.none: None, Compression.fp16: torch.float16,
           Compression.bf16: torch.bfloat16}


def allreduce_(tensor: torch.Tensor, op: str = "mean", name: Optional[str] = None,
               compression: str = Compression.none) -> torch.Tensor:
    """Combines a tensor of all ranks in place: "mean", "sum", "min", "max" or "prod". Errors show ``name``.
    ``compression``: none, fp16 or bf16."""
    if compression not in _HALVES:
        raise ValueError(f"allreduce with compression {compression!r}: fp16 and bf16 are possible; the codecs "
                         "with error feedback are options of DistributedOptimizer")
    half = _HALVES[compression]
    if half is None or tensor.dtype not in (torch.float32, torch.float64):
        _comm().allreduce(_buffer(tensor), op=op, site=name)
        return tensor
    sent = tensor.detach().to(half, memory_format=torch.contiguous_format)
    _comm().allreduce(_buffer(sent), op=op, site=name)
    return tensor.copy_(sent)


def allreduce(tensor: torch.Tensor, op: str = "mean", name: Optional[str] = None,
              compression: str = Compression.none) -> torch.Tensor:
    """Like allreduce_, on a copy: ``allreduce(torch.tensor(accuracy))`` averages a metric."""
    return allreduce_(_copy(tensor), op, name, compression)


def allreduce_async_(tensor: torch.Tensor, name: Optional[str] = None, op: str = "mean") -> Handle:
    """Posts a tensor for an allreduce in place; ranks may post names in different orders. A name
    keeps its type, size and operation. Until ``synchronize`` no other collective is allowed."""
    return _comm().allreduce_async(name or name_of(op), _buffer(tensor), op=op)


def allreduce_async(tensor: torch.Tensor, name: Optional[str] = None, op: str = "mean") -> Handle:
    """Like allreduce_async_, on a copy, which ``synchronize`` returns."""
    return allreduce_async_(_copy(tensor), name, op)


def poll(handle: Handle) -> bool:
    """Whether an asynchronous allreduce is complete."""
    return handle.test()


def synchronize(handle: Handle) -> torch.Tensor:
    """Waits for an asynchronous allreduce; returns its tensor."""
    tensor: torch.Tensor = handle.wait().owner
    return tensor


def broadcast_(tensor: torch.Tensor, root_rank: int = 0) -> torch.Tensor:
    """Copies the tensor of the root to all ranks, in place."""
    _comm().broadcast(_buffer(tensor), root=root_rank)
    return tensor


def broadcast(tensor: torch.Tensor, root_rank: int = 0) -> torch.Tensor:
    """Like broadcast_, on a copy."""
    return broadcast_(_copy(tensor), root_rank)


def _broadcast_bytes(data: bytes, root_rank: int) -> bytes:
    length = broadcast_(torch.tensor([len(data)]), root_rank)
    memory = torch.zeros(int(length), dtype=torch.uint8)
    if rank() == root_rank and data:
        memory = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return bytes(broadcast_(memory, root_rank).tolist())


def broadcast_object(value: Any, root_rank: int = 0) -> Any:
    """The root's value on all ranks: tensors, numbers, texts, and containers of them."""
    file = io.BytesIO()
    if rank() == root_rank:
        torch.save(value, file)
    data = _broadcast_bytes(file.getvalue(), root_rank)
    return value if rank() == root_rank else torch.load(io.BytesIO(data), weights_only=True)


def broadcast_parameters(parameters: Union[Mapping[str, Any], Iterable[Tuple[str, Any]]],
                         root_rank: int = 0) -> None:
    """Copies the root's tensors to all ranks: of ``model.state_dict()`` or
    ``model.named_parameters()``."""
    pairs = parameters.items() if isinstance(parameters, Mapping) else parameters
    for _, tensor in pairs:
        if not isinstance(tensor, torch.Tensor):
            continue
        memory = tensor.detach()
        if memory.is_contiguous():
            broadcast_(memory, root_rank)
        else:
            memory.copy_(broadcast(memory, root_rank))


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Copies the root's optimizer state (momentum, rates, ...) to all ranks."""
    state = broadcast_object(optimizer.state_dict(), root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)


# ---- gradients ----


class _Averager:
    """Averages the gradients of an optimizer's parameters as they are computed."""

    def __init__(self, optimizer: torch.optim.Optimizer,
                 named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]], op: str,
                 passes: int) -> None:
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]
                            if p.requires_grad]
        names = {p: n for n, p in named_parameters or ()}
        self._names = {p: names.get(p, f"parameter.{i}") for i, p in enumerate(self._parameters)}
        if len(set(self._names.values())) != len(self._parameters):
            raise ValueError("two parameters have the same name")
        self._op, self._passes = op, passes
        self._left: Dict[torch.Tensor, int] = {}  # backward passes until the gradient is posted
        self._posted: Dict[torch.Tensor, Tuple[Handle, torch.Tensor]] = {}
        self._waited = False  # for the gradients of this step
        self._ended: List[int] = []  # the ranks that have called join
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: torch.Tensor) -> None:
        if parameter in self._posted:
            raise RuntimeError(f"the gradient of {self._names[parameter]} is computed again before "
                               "step(): give the number of passes as backward_passes_per_step")
        self._waited = False
        left = self._left.get(parameter, self._passes) - 1
        self._left[parameter] = left
        if left == 0:
            self._post(parameter)

    def _post(self, parameter: torch.Tensor) -> None:
        if parameter.grad is None:  # not used in this step, but perhaps on other ranks
            parameter.grad = torch.zeros_like(parameter)
        gradient = parameter.grad.detach()
        if not gradient.is_contiguous():
            gradient = _copy(gradient)
        self._post_tensor(parameter, gradient)

    def _post_tensor(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        name = f"gradient.{self._names[parameter]}"
        self._posted[parameter] = allreduce_async_(gradient, name, self._op), gradient

    def _post_ended(self, ended: bool) -> Handle:
        """Sends with the gradients of each step whether this rank has called join."""
        flags = torch.zeros(size())
        flags[rank()] = float(ended)
        return allreduce_async_(flags, f"ended.{next(iter(self._names.values()), '')}", "sum")

    def _learn_ended(self, handle: Handle) -> List[int]:
        """The ranks that have called join since the step before."""
        ended = synchronize(handle).nonzero().flatten().tolist()
        new = [r for r in ended if r not in self._ended]
        self._ended = ended if len(ended) < size() else []
        return new

    def synchronize(self) -> None:
        """Waits for all gradients; then, for example, they may be clipped before step()."""
        for parameter in self._parameters:
            if parameter not in self._posted:
                self._post(parameter)
        ended = self._post_ended(False)
        for parameter, (handle, gradient) in self._posted.items():
            synchronize(handle)
            assert parameter.grad is not None
            if gradient.data_ptr() != parameter.grad.data_ptr():
                parameter.grad.copy_(gradient)
        self._learn_ended(ended)
        self._end_step()

    def _end_step(self) -> None:
        self._posted.clear()
        self._left.clear()
        self._waited = True

    def join(self) -> int:
        """Takes part in the steps of the other ranks with gradients of zeros; see join."""
        if self._posted:
            raise RuntimeError("join() after backward() without step(): the gradients have not been used")
        while True:
            for parameter in self._parameters:
                self._post_tensor(parameter, torch.zeros_like(parameter,
                                                              memory_format=torch.contiguous_format))
            ended = self._post_ended(True)
            for handle, _ in self._posted.values():
                synchronize(handle)
            new = self._learn_ended(ended)
            self._end_step()
            if not self._ended:  # all have joined
                return max(new)

    def before_step(self, *_: Any) -> None:
        """Waits, unless the program has."""
        if not self._waited:
            self.synchronize()
        self._waited = False


class _Compressing(_Averager):
    """Averages gradients in buckets that a codec compresses."""

    def __init__(self, optimizer: torch.optim.Optimizer,
                 named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]], op: str,
                 passes: int, codec: str) -> None:
        super().__init__(optimizer, named_parameters, op, passes)
        for parameter in self._parameters:
            if parameter.dtype != torch.float32:
                raise TypeError(f"compression {codec!r}: parameter {self._names[parameter]} is "
                                f"{parameter.dtype}; codecs are for float32")
        self._buffers = [torch.zeros(p.shape) for p in self._parameters]
        self._numbers = {p: i for i, p in enumerate(self._parameters)}
        self._reducer = Reducer(_comm(), [_buffer(b) for b in self._buffers], op=op, codec=codec)

    def _post_tensor(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        number = self._numbers[parameter]
        self._buffers[number].copy_(gradient)
        self._reducer.ready(number)
        self._posted[parameter] = None, gradient  # type: ignore[assignment]

    def synchronize(self) -> None:
        for parameter in self._parameters:
            if parameter not in self._posted:
                self._post(parameter)
        self._reducer.wait()
        for parameter, buffer in zip(self._parameters, self._buffers):
            assert parameter.grad is not None
            parameter.grad.copy_(buffer)
        self._end_step()

    def join(self) -> int:
        raise ValueError("join() with compression is not supported: give all ranks the same number of steps")


_latest: Optional[weakref.ReferenceType[_Averager]] = None


def DistributedOptimizer(  # pylint: disable=invalid-name
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None, op: str = "mean",
        backward_passes_per_step: int = 1, compression: str = Compression.none) -> Any:
    """Lets an optimizer average gradients over all ranks, each as soon as it is computed; ``step``
    waits for them. Returns the optimizer, with the additional method ``synchronize``: it waits
    before, for example, gradients are clipped. Gradients are summed over
    ``backward_passes_per_step`` passes before they are averaged. A parameter that a rank has not
    used counts as a gradient of zeros. ``compression`` sends float32 gradients in another form, such as
    Compression.int8; with it, all ranks make this call at the same time."""
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step {backward_passes_per_step}: give 1 or more")
    global _latest  # pylint: disable=global-statement
    result: Any = optimizer
    averager = (_Averager(optimizer, named_parameters, op, backward_passes_per_step)
                if compression == Compression.none else
                _Compressing(optimizer, named_parameters, op, backward_passes_per_step, compression))
    _latest = weakref.ref(averager)
    result.synchronize = averager.synchronize
    result.register_step_pre_hook(averager.before_step)
    return result


def join() -> int:
    """For a rank that has no more batches: takes part in the steps of the others with gradients of zeros
    until all ranks have called it; returns the rank that came last, whose parameters are the newest
    (``broadcast_parameters``). A mean is over all ranks. The steps are those of the DistributedOptimizer made
    last, and meanwhile the others communicate only by it."""
    averager = _latest() if _latest else None
    if averager is None:
        raise ValueError("join() without a DistributedOptimizer")
    return averager.join()


_settlers: weakref.WeakKeyDictionary[Comm, Settler] = weakref.WeakKeyDictionary()


def ddp_hook(comm: Comm, bucket: Any) -> Any:
    """A communication hook of DistributedDataParallel: starts the average of a full bucket, and returns a
    future, which completes while the backward pass goes on. ``comm`` is that of init(), or of
    kolo.init(threads=True)."""
    if not comm.threads:
        raise ValueError("ddp_hook uses the communicator in several threads: create it by kolo.torch.init() or "
                         "kolo.init(threads=True)")
    settler = _settlers.get(comm)
    if settler is None:
        settler = _settlers[comm] = Settler()
        weakref.finalize(comm, settler.close)
    tensor = bucket.buffer()
    future: Any = torch.futures.Future()
    settler.put(comm.request("allreduce", _buffer(tensor), op="mean").start().wait, tensor, future)
    return future


ddp_hook.__annotations__.clear()  # PyTorch would compare them with classes of its own
