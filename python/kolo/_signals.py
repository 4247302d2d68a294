"""Signal handlers: an alternate stack, and exceptions of Ctrl-C in callbacks."""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
from contextlib import contextmanager
from types import CodeType
from typing import Any, Iterator, List, Set

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


# ---- Ctrl-C in callbacks ----

# Of functions that C calls, whose exceptions C does not see. Empty unless the program has ops.
ENTRIES: Set[CodeType] = set()


class _Holder:
    """The handler of SIGINT during a call of the library. The interpreter runs handlers as a callback
    begins, if the signal arrived while C computed: an exception there is outside of any ``try``, and
    lost. One that would be is raised later, by ``run_held``."""

    held: List[int] = []  # signals

    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        if frame is not None and frame.f_code in ENTRIES:
            _Holder.held.append(number)
        else:
            self.handler(number, frame)


def run_held() -> None:
    """Calls the handler of a signal that was held, in the main thread."""
    if not _Holder.held or threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(_Holder.held.pop())
    _Holder.held.clear()
    if isinstance(handler, _Holder):
        handler = handler.handler
    if callable(handler):
        handler(signal.SIGINT, sys._getframe())  # pylint: disable=protected-access


@contextmanager
def holding() -> Iterator[None]:
    """A call of the library that calls functions of a program: Ctrl-C ends it by the exception of its
    handler, at the latest when it returns."""
    handler = None
    if ENTRIES and threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or isinstance(handler, _Holder):
        yield
        return
    holder = _Holder(handler)
    signal.signal(signal.SIGINT, holder)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is holder:
            signal.signal(signal.SIGINT, handler)
        run_held()
