"""Data-parallel training of numpy programs, by the calls of Horovod.

    import kolo.horovod as hvd                    # started by: kolo run -n 4 -- python3 train.py

    hvd.init()
    hvd.broadcast_parameters(parameters)          # a dictionary of arrays
    optimizer = hvd.DistributedOptimizer(update, gradients)
    for samples, labels in batches_of(hvd.rank(), hvd.size()):
        for name in backward(samples, labels, gradients):     # fills an array after the other
            optimizer.ready(name)                 # it is averaged while others are computed
        optimizer.step()                          # waits, and calls update()

Arrays are those of kolo.Comm: contiguous, read and written where they lie. For PyTorch: kolo.torch.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import _arrays
from ._arrays import Array
from ._group import comm as _comm
from ._group import init, local_rank, local_size, name_of, rank, shutdown, size
from .comm import Handle

__all__ = ["Average", "DistributedOptimizer", "Max", "Min", "Product", "Sum", "allreduce",
           "allreduce_", "allreduce_async", "allreduce_async_", "broadcast", "broadcast_",
           "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "init", "join",
           "local_rank", "local_size", "poll", "rank", "shutdown", "size", "synchronize"]

Average, Sum, Min, Max, Product = "mean", "sum", "min", "max", "prod"

_latest: Optional[DistributedOptimizer] = None


# ---- collectives ----


def allreduce_(array: Array, op: str = Average, name: Optional[str] = None) -> Array:
    """Combines an array of all ranks in place: "mean", "sum", "min", "max" or "prod". Errors show ``name``."""
    _comm().allreduce(array, op=op, site=name)
    return array


def allreduce(array: Any, op: str = Average, name: Optional[str] = None) -> Array:
    """Like allreduce_, on a copy: ``allreduce(np.float64(accuracy))`` averages a metric."""
    return allreduce_(_copy(array), op, name)


def allreduce_async_(array: Array, name: Optional[str] = None, op: str = Average) -> Handle:
    """Posts an array for an allreduce in place; ranks may post names in different orders. A name keeps its
    type, size and operation. Until ``synchronize`` no other collective is allowed."""
    return _comm().allreduce_async(name or name_of(op), array, op=op)


def allreduce_async(array: Any, name: Optional[str] = None, op: str = Average) -> Handle:
    """Like allreduce_async_, on a copy, which ``synchronize`` returns."""
    return allreduce_async_(_copy(array), name, op)


def poll(handle: Handle) -> bool:
    """Whether an asynchronous allreduce is complete."""
    return handle.test()


def synchronize(handle: Handle) -> Array:
    """Waits for an asynchronous allreduce; returns its array."""
    array: Array = handle.wait()
    return array


def broadcast_(array: Array, root_rank: int = 0) -> Array:
    """Copies the array of the root to all ranks, in place."""
    _comm().broadcast(array, root=root_rank)
    return array


def broadcast(array: Any, root_rank: int = 0) -> Array:
    """Like broadcast_, on a copy."""
    return broadcast_(_copy(array), root_rank)


def _copy(array: Any) -> Array:
    return _arrays.numpy().array(array, order="C")  # type: ignore[no-any-return]


# ---- values ----


def _describe(value: Any, arrays: List[Array]) -> Any:
    """A value as JSON; its arrays are listed."""
    np = _arrays.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        if value.dtype.hasobject or np.dtype(value.dtype.str) != value.dtype:  # objects, structures
            raise TypeError(f"an array of type {value.dtype} cannot be broadcast: give arrays of numbers")
        _arrays.check_unmasked("an array", value)
        arrays.append(np.ascontiguousarray(value))
        return {"array" if isinstance(value, np.ndarray) else "scalar": [value.dtype.str, list(value.shape)]}
    if isinstance(value, dict):
        return {"dict": [[_describe_key(k), _describe(v, arrays)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return {"tuple" if isinstance(value, tuple) else "list": [_describe(v, arrays) for v in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a value of type {type(value).__name__} cannot be broadcast: give arrays, numbers, texts, and "
                    "lists, tuples and dictionaries of them")


def _describe_key(key: Any) -> Any:
    """A key of a dictionary as JSON."""
    if isinstance(key, tuple) and not hasattr(key, "_fields"):
        return {"tuple": [_describe_key(k) for k in key]}
    if key is None or isinstance(key, (bool, int, float, str)) and not isinstance(key, _arrays.numpy().generic):
        return key
    raise TypeError(f"a key of type {type(key).__name__} cannot be broadcast: give numbers of Python, texts, and "
                    "tuples of them")


def _restore(found: Any, root_rank: int) -> Any:
    """The value of a description; its arrays come from the root."""
    if not isinstance(found, dict):
        return found
    kind, content = next(iter(found.items()))
    if kind in ("array", "scalar"):
        array = _send(_arrays.numpy().zeros(content[1], content[0]), root_rank)
        return array if kind == "array" else array[()]
    if kind == "dict":
        return {_restore(k, root_rank): _restore(v, root_rank) for k, v in content}
    items = [_restore(v, root_rank) for v in content]
    return tuple(items) if kind == "tuple" else items


def _send(array: Array, root_rank: int) -> Array:
    """Broadcasts the bytes of an array of any type."""
    broadcast_(array.reshape(-1).view("uint8"), root_rank)
    return array


def broadcast_object(value: Any, root_rank: int = 0) -> Any:
    """The root's value on all ranks: arrays, numbers, texts, and lists, tuples and dictionaries of them, whose
    keys are numbers of Python, texts, and tuples of them."""
    np = _arrays.numpy()
    arrays: List[Array] = []
    text, failure = b"", None
    if rank() == root_rank:
        try:
            text = json.dumps(_describe(value, arrays)).encode()
        except Exception as error:  # pylint: disable=broad-except
            failure, text = error, f"{type(error).__name__}: {error}".encode(errors="replace")
    length, failed = (int(n) for n in broadcast_(np.array([len(text), failure is not None]), root_rank))
    data = np.zeros(length, np.uint8)
    data[:len(text)] = np.frombuffer(text, np.uint8)
    broadcast_(data, root_rank)
    if failed:  # on all ranks alike
        raise failure or TypeError(f"the value of rank {root_rank} cannot be broadcast: {data.tobytes().decode()}")
    if rank() != root_rank:
        return _restore(json.loads(data.tobytes()), root_rank)
    for array in arrays:
        _send(array, root_rank)
    return value


def broadcast_parameters(parameters: Mapping[str, Array], root_rank: int = 0) -> None:
    """Copies the root's arrays to all ranks, in place."""
    for name, array in parameters.items():
        if not isinstance(array, _arrays.numpy().ndarray):
            raise TypeError(f"parameter {name!r} is no array")
    for array in parameters.values():
        broadcast_(array, root_rank)


def broadcast_optimizer_state(state: Any, root_rank: int = 0) -> Any:
    """The root's optimizer state (momentum, rates, steps, ...) on all ranks; returns it. See broadcast_object."""
    return broadcast_object(state, root_rank)


# ---- gradients ----


class DistributedOptimizer:
    """Averages the arrays ``gradients`` over all ranks, each as soon as it is ready, before ``update``, the
    program's own step. A name that is not ready at ``step`` is averaged as it is."""

    def __init__(self, update: Callable[..., Any], gradients: Mapping[str, Array], op: str = Average) -> None:
        global _latest  # pylint: disable=global-statement
        if op not in (Average, Sum):
            raise ValueError(f"operation {op!r}: gradients are averaged or summed")
        if not gradients:
            raise ValueError("no gradients")
        self._update, self._gradients, self._op = update, dict(gradients), op
        self._posted: Dict[str, Handle] = {}
        self._ended: List[int] = []  # the ranks that have called join
        self._waited = False  # for the gradients of this step
        _latest = self

    def ready(self, name: str) -> None:
        """The gradient is computed; it must not be used until ``step`` or ``synchronize``."""
        if name not in self._gradients:
            raise ValueError(f"no gradient {name!r}: there are {', '.join(self._gradients)}")
        if name in self._posted:
            raise ValueError(f"gradient {name!r} is ready twice in a step")
        self._waited = False
        self._post(name, self._gradients[name])

    def _post(self, name: str, array: Array) -> None:
        self._posted[name] = allreduce_async_(array, f"gradient.{name}", self._op)

    def _finish(self, ended: bool) -> List[int]:
        """Waits for all gradients; with them goes whether this rank has called join. Returns the ranks that
        have done so since the step before."""
        flags = _arrays.numpy().zeros(size())
        flags[rank()] = ended
        handle = allreduce_async_(flags, f"ended.{next(iter(self._gradients))}", Sum)
        for posted in self._posted.values():
            synchronize(posted)
        self._posted.clear()
        found = [int(r) for r in synchronize(handle).nonzero()[0]]
        new = [r for r in found if r not in self._ended]
        self._ended = found if len(found) < size() else []
        return new

    def synchronize(self) -> None:
        """Waits for all gradients; then, for example, they may be clipped before ``step``."""
        for name, array in self._gradients.items():
            if name not in self._posted:
                self._post(name, array)
        self._finish(False)
        self._waited = True

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Waits, unless ``synchronize`` has, and returns ``update(*arguments, **options)``."""
        if not self._waited:
            self.synchronize()
        self._waited = False
        return self._update(*arguments, **options)

    def join(self) -> int:
        """Takes part in the steps of the other ranks with gradients of zeros; see join."""
        if self._posted:
            raise ValueError("join() after ready() without step(): the gradients have not been used")
        np = _arrays.numpy()
        zeros = {name: np.zeros_like(array, order="C") for name, array in self._gradients.items()}
        while True:
            for name, array in zeros.items():
                array.fill(0)
                self._post(name, array)
            new = self._finish(True)
            if not self._ended:  # all have joined
                return max(new)


def join() -> int:
    """For a rank that has no more batches: takes part in the steps of the others with gradients of zeros until
    all ranks have called it; returns the rank that came last, whose parameters are the newest
    (``broadcast_parameters``). A mean is over all ranks. The steps are those of the DistributedOptimizer made
    last, and meanwhile the others communicate only by it."""
    if _latest is None:
        raise ValueError("join() without a DistributedOptimizer")
    return _latest.join()
