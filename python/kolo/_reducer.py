"""Averages of gradients during the backward pass, and lossy compression."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from ._bindings import NotCopied, c
from ._bindings import lib as _lib
from ._checks import integer
from ._memory import DTYPES, Buffer, buffer_of, op_code
from .comm import Comm


class Reducer(NotCopied):
    """Averages gradients during the backward pass.

    ``buffers`` are the gradients, all of one type. In each step call ``ready(i)`` when buffer i is
    filled, in any order, then ``wait()``. ``codec`` is "none", "f16", "bf16", "int8",
    "onebit" or "topk:0.01", with error feedback. With ``join``, ranks may run out of data at
    different times.
    """

    def __init__(self, comm: Comm, buffers: Sequence[Any], bucket_bytes: int = 0,
                 op: str = "mean", codec: str = "none", join: bool = False) -> None:
        if op not in ("mean", "sum"):
            raise ValueError(f"operation {op!r}: a reducer supports mean and sum")
        self._comm = comm
        self._memory = [buffer_of(b) for b in buffers]
        op_code(op, *self._memory)
        dtypes = sorted({b.dtype for b in self._memory})
        if len(dtypes) != 1:
            raise TypeError(f"a reducer needs buffers of one type, not {', '.join(dtypes) or 'none'}")
        parts = (c.kolo_part * len(self._memory))(
            *(c.kolo_part(data=b.address, count=b.count) for b in self._memory))
        opts = c.kolo_reducer_opts(bucket_bytes=bucket_bytes, sum=op == "sum", codec=Codec(codec).value, join=join)
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        _lib.kolo_reducer_create(comm._open(), parts, len(parts),
                                 DTYPES.index(dtypes[0]), ctypes.byref(opts),
                                 ctypes.byref(self._handle))
        comm._owned.append(self)

    def ready(self, i: int, n: int = 1) -> None:
        """Marks buffer i, or buffers i to i + n - 1, as filled; they must not be used until ``wait``."""
        self._open()
        _lib.kolo_reducer_ready_range(self._handle, integer("buffer", i, 0), integer("buffers", n, 0))

    def broadcast(self, data: Sequence[Any], root: int = 0) -> None:
        """Copies buffers of one type of the root, such as parameters, to all ranks, between steps."""
        self._open()
        memory = [buffer_of(b) for b in data]
        dtypes = sorted({b.dtype for b in memory})
        if len(dtypes) > 1:
            raise TypeError(f"a broadcast needs buffers of one type, not {', '.join(dtypes)}")
        parts = (c.kolo_part * len(memory))(*(c.kolo_part(data=b.address, count=b.count) for b in memory))
        if memory:
            _lib.kolo_reducer_broadcast(self._handle, parts, len(parts), DTYPES.index(dtypes[0]),
                                        integer("root", root, 0))

    def wait(self) -> None:
        """Blocks until every buffer holds the result; ends the step."""
        self._open()
        _lib.kolo_reducer_wait(self._handle)

    def join(self) -> int:
        """For a rank without further data: takes part in the steps of the others with zeros, which overwrite the
        buffers, until all ranks have called it. Returns the rank that came last, whose parameters are the newest
        (``broadcast``)."""
        self._open()
        last = ctypes.c_int()
        _lib.kolo_reducer_join(self._handle, ctypes.byref(last))
        return last.value

    def close(self) -> None:
        """Frees it; allowed between steps only."""
        if self._handle and self._comm._exists():
            _lib.kolo_reducer_destroy(self._handle)
        self._handle = None

    def _open(self) -> None:
        if not self._handle:
            raise ValueError("the reducer is closed")


class Codec:
    """Lossy compression of f32 vectors with error feedback, without a group:
    ``Codec("int8")``, ``Codec("topk:0.01")``."""

    def __init__(self, name: str) -> None:
        self.name, self.value = name, c.kolo_codec()
        _lib.kolo_codec_parse(name.encode(), ctypes.byref(self.value))

    def _floats(self, data: Any, writable: bool = True) -> Buffer:
        memory = buffer_of(data, writable)
        if memory.dtype != "f32":
            raise TypeError(f"codecs are for f32, not {memory.dtype}")
        return memory

    def bytes(self, count: int) -> int:
        """The encoded size of ``count`` elements."""
        return int(_lib.kolo_codec_bytes(ctypes.byref(self.value), count))

    def encode(self, data: Any, residual: Any = None) -> bytearray:
        """Encodes data + residual; stores the compression error in ``residual``."""
        memory = self._floats(data, writable=False)
        rest = self._floats(residual) if residual is not None else None
        if rest and rest.count != memory.count:
            raise ValueError(f"a residual of {rest.count} elements for {memory.count}")
        code = bytearray(self.bytes(memory.count))
        _lib.kolo_codec_encode(ctypes.byref(self.value), memory.address, memory.count,
                               rest.address if rest else None, buffer_of(code).address,
                               len(code))
        return code

    def decode(self, code: Any, output: Any) -> Any:
        """Decodes into ``output``."""
        memory, source = self._floats(output), buffer_of(code, writable=False)
        _lib.kolo_codec_decode(ctypes.byref(self.value), source.address, source.count,
                               memory.address, memory.count)
        return output

    def add(self, code: Any, output: Any, scale: float = 1.0) -> Any:
        """Adds scale times the decoded values to ``output``."""
        memory, source = self._floats(output), buffer_of(code, writable=False)
        _lib.kolo_codec_add(ctypes.byref(self.value), source.address, source.count,
                            memory.address, memory.count, scale)
        return output
