"""An alternate stack for signal handlers."""

from __future__ import annotations

import ctypes
import mmap

_BYTES = 1 << 16
_SS_DISABLE = 2


class _Stack(ctypes.Structure):  # stack_t of <signal.h>
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t)]


def use_alternate_stack() -> None:
    """Gives signal handlers that interrupt this thread a stack of their own, unless they have one.

    While a matrix multiplication of oneDNN runs, the stack pointer may point to a buffer on the heap:
    a handler there would overwrite what lies below. Python's handlers use an alternate stack."""
    sigaltstack = ctypes.CDLL(None, use_errno=True).sigaltstack
    sigaltstack.argtypes = [ctypes.POINTER(_Stack), ctypes.POINTER(_Stack)]
    now = _Stack()
    if sigaltstack(None, ctypes.byref(now)) != 0 or not now.flags & _SS_DISABLE:
        return
    memory = mmap.mmap(-1, _BYTES)  # the kernel uses it until the thread ends: never unmapped
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _kept.append(memory)
    sigaltstack(ctypes.byref(_Stack(address, 0, _BYTES)), None)


_kept: list[mmap.mmap] = []
