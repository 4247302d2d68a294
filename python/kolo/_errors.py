"""Exceptions, and signal handlers during calls that block."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Generator, List, Tuple, Type

from . import _bindings as _l
from ._library import STATUSES


class Error(RuntimeError):
    """A call failed; ``status`` is the status code, such as "KOLO_ERR_ARG"."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.status, str(self)), vars(self)


class ArgumentError(Error, ValueError):
    """An argument, or the graph that a builder makes, is invalid."""


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory."""


class FileError(Error):
    """A file, folder or connection cannot be opened, read or written."""


class FormatError(Error):
    """A file is damaged or of another format."""


class UnsupportedError(Error):
    """This build, machine or combination of options does not support the request."""


class TimeoutError(Error):  # pylint: disable=redefined-builtin
    """A deadline passed; the message names the rank that was waited for."""


class PeerError(Error):
    """A peer was lost."""


class DivergedError(Error):
    """A loss or parameter is not finite, or the loss is far too high."""


_CLASSES: Dict[str, Type[Error]] = {
    "KOLO_ERR_ARG": ArgumentError,
    "KOLO_ERR_NOMEM": OutOfMemoryError,
    "KOLO_ERR_IO": FileError,
    "KOLO_ERR_FORMAT": FormatError,
    "KOLO_ERR_UNSUPPORTED": UnsupportedError,
    "KOLO_ERR_TIMEOUT": TimeoutError,
    "KOLO_ERR_PEER": PeerError,
    "KOLO_ERR_DIVERGED": DivergedError,
}

_interruptions: List[BaseException] = []  # exceptions of signal handlers that ran in a wait of the main thread


def _run_signal_handlers(failures: List[BaseException]) -> Generator[bool, Any, None]:
    """Yields whether a signal handler has raised an exception, or there are other failures. The
    interpreter runs the handlers where the generator is resumed, inside of ``try``."""
    while True:
        try:
            while True:
                yield bool(failures)
        except GeneratorExit:
            return
        except BaseException as exception:  # pylint: disable=broad-except
            _interruptions.append(exception)
            yield True


def interrupted(failures: List[BaseException]) -> Callable[[Any], bool]:
    """A callback for C that runs signal handlers, and returns whether one has raised an exception,
    which the call that fails then raises; or whether there are other ``failures``."""
    handlers = _run_signal_handlers(failures)
    next(handlers)
    return handlers.send


def text_of(failure: BaseException) -> bytes:
    """Type and text of an exception, for the library."""
    try:
        text = f"{type(failure).__name__}: {failure}"
    except Exception:  # pylint: disable=broad-except
        text = type(failure).__name__
    return text.encode(errors="backslashreplace")


def code(status: str) -> int:
    """The code of a status."""
    return STATUSES.index(status)


def fail(number: int) -> None:
    """Raises the exception of a status."""
    if _interruptions and threading.current_thread() is threading.main_thread():
        raise _interruptions.pop()
    status = STATUSES[number]
    raise _CLASSES[status](status, _l.lib.kolo_last_error().decode(errors="replace"))


_l.Library.on_status = staticmethod(fail)
