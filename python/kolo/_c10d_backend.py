"""The C++ side of a process group of torch.distributed."""

from __future__ import annotations

import datetime
import weakref
from typing import Any

import torch
from torch._C import _distributed_c10d

_BackendBase: Any = _distributed_c10d.Backend


class Backend(_BackendBase):  # type: ignore[misc]
    """The C++ side of a process group: its collectives are those of the group."""

    supports_coalescing = True
    supports_splitting = True

    def __init__(self, group: Any, timeout: Any) -> None:
        super().__init__(group.rank(), group.size())
        self._group = weakref.ref(group)
        self._timeout = timeout

    def getBackendName(self) -> str:  # pylint: disable=invalid-name
        """Its name."""
        return "kolo"

    name = getBackendName

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether allocate_tensor helps. C++ asks by number, and would pass it options that Python cannot take."""
        group = self._group()
        return isinstance(device, torch.device) and device.type == "cpu" and group is not None and group.pool.useful()

    def allocate_tensor(self, size: int, *, dtype: Any, device: Any) -> Any:
        """A tensor in registered memory."""
        group = self._group()
        if group is None:
            raise RuntimeError("backend kolo: the process group does not exist any more")
        if device.type != "cpu":
            raise TypeError(f"backend kolo: allocate_tensor on {device}: it has main memory")
        return group.pool.tensor(size, dtype)

    @property
    def options(self) -> Any:
        """The options of the group."""
        options = type(self).Options("kolo")
        if isinstance(self._timeout, datetime.timedelta):
            options._timeout = self._timeout
        return options


def _delegate(name: str) -> None:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        group = self._group()
        if group is None:
            raise RuntimeError("backend kolo: the process group does not exist any more")
        return getattr(group, name)(*arguments, **options)
    method.__name__ = name
    setattr(Backend, name, method)


for _name in ("broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather",
              "all_gather_single", "_allgather_base", "allgather_coalesced",
              "all_gather_single_coalesced", "gather", "gather_single", "scatter", "reduce_scatter",
              "reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter_single_coalesced",
              "all_to_all_single", "alltoall_base", "alltoall", "send", "recv", "recv_anysource",
              "barrier", "start_coalescing", "end_coalescing", "abort", "shutdown",
              "_set_sequence_number_for_group", "_get_sequence_number_for_group",
              "_wait_for_pending_works"):
    _delegate(_name)
