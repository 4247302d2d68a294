"""Registered memory for tensors of the backend "kolo" of torch.distributed.

The ranks of a host read and write each other's registered memory, so collectives on it copy nothing. A process group
has a pool of it, for what PyTorch allocates to communicate: the buckets of DistributedDataParallel, whose Reducer
``install`` replaces by one that does so, and the buffers of FSDP2 if the program asks for that
(``set_allocate_memory_from_process_group_for_comm``).
"""

from __future__ import annotations

import collections
import ctypes
import threading
import weakref
from typing import Any, Deque, List, Set, Tuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from . import _errors
from .comm import Comm

PAGE = 4096

_dist: Any = dist  # its hints have no Reducer
_Base: Any = _dist.Reducer
_Mode: Any = TorchDispatchMode


class Pool:
    """Registered memory of a communicator, in pages. Those that no tensor has any more serve others."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._free: List[Tuple[int, int]] = []  # addresses and bytes, by address
        self._returned: Deque[Tuple[int, int]] = collections.deque()  # by finalizers, which may run anywhere
        self._taking = threading.Lock()
        self._used: Set[int] = set()  # addresses

    def useful(self) -> bool:
        """Whether another rank of this host can access it."""
        return self._comm.local_size > 1

    def used(self) -> bool:
        """Whether a tensor has some of it."""
        with self._taking:
            self._collect()
            return bool(self._used)

    def tensor(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of one dimension, not cleared. It keeps the communicator. kolo.OutOfMemoryError."""
        if count == 0:
            return torch.empty(0, dtype=dtype)
        need = count * dtype.itemsize
        size = (need + PAGE - 1) // PAGE * PAGE
        address = self._take(size)
        memory = (ctypes.c_char * need).from_address(address)
        memory.comm = self._comm  # type: ignore[attr-defined]
        weakref.finalize(memory, self._returned.append, (address, size)).atexit = False
        return torch.frombuffer(memory, dtype=dtype)

    def _take(self, size: int) -> int:
        with self._taking:
            self._comm.handle()  # raises an exception if it is closed, where free blocks may not be mapped any more
            self._collect()
            fitting = [block for block in self._free if block[1] >= size]
            address, length = min(fitting, key=lambda block: block[1], default=(0, size))
            if address:
                self._free.remove((address, length))
            else:
                address = self._comm.alloc_bytes(size)
            if length > size:
                self._free.append((address + size, length - size))
            self._used.add(address)
            return address

    def _collect(self) -> None:
        """Joins the blocks that tensors have left with each other."""
        while self._returned:
            block = self._returned.popleft()
            self._used.discard(block[0])
            self._free.append(block)
        joined: List[Tuple[int, int]] = []
        for address, length in sorted(self._free):
            if joined and sum(joined[-1]) == address:
                joined[-1] = joined[-1][0], joined[-1][1] + length
            else:
                joined.append((address, length))
        self._free = joined


class Placing(_Mode):  # type: ignore[misc]
    """Places the buckets that a Reducer allocates in a pool. Its other tensors are small or hold integers."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.ops.aten.empty.memory_format:
            dtype, device = kwargs.get("dtype"), kwargs.get("device") or torch.device("cpu")
            if (len(args[0]) == 1 and dtype is not None and dtype.is_floating_point and device.type == "cpu"
                    and args[0][0] * dtype.itemsize >= PAGE):
                try:
                    return self._pool.tensor(args[0][0], dtype)
                except _errors.OutOfMemoryError:
                    pass  # other memory does, too
        return function(*args, **kwargs)


class Reducer(_Base):  # type: ignore[misc]
    """The Reducer of DistributedDataParallel, whose buckets are in the pool of its group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pools = [p for p in (getattr(a, "pool", None) for a in (*args, *kwargs.values())) if isinstance(p, Pool)]
        self._pool = pools[0] if pools and pools[0].useful() else None
        if self._pool is None:
            super().__init__(*args, **kwargs)
            return
        with Placing(self._pool):
            super().__init__(*args, **kwargs)

    def _rebuild_buckets(self) -> bool:
        if self._pool is None:
            return bool(super()._rebuild_buckets())
        with Placing(self._pool):
            return bool(super()._rebuild_buckets())


def install() -> None:
    """Makes DistributedDataParallel use it for the groups of the backend; other groups are not affected."""
    _dist.Reducer = Reducer
