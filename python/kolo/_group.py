"""The group of kolo.torch and kolo.horovod, which a program may use side by side."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .comm import Comm
from .comm import init as _init

_group: Optional[Comm] = None
_unnamed: Dict[str, int] = {}  # asynchronous collectives without a name, by operation


def init(**options: Any) -> Comm:
    """Joins the group of all workers, with the options of kolo.init; returns its communicator. Calls after
    the first one have no options."""
    return join(options)


def join(options: Dict[str, Any], **defaults: Any) -> Comm:
    """init with these options, and with others by default."""
    global _group  # pylint: disable=global-statement
    if _group is None:
        _group = _init(**{**defaults, **options})
    elif options:
        raise ValueError("init() with options, but the group exists: give them to the first init(), of "
                         "kolo.torch or kolo.horovod")
    return _group


def shutdown() -> None:
    """Leaves the group."""
    global _group  # pylint: disable=global-statement
    if _group is not None:
        _group.close()
    _group = None
    _unnamed.clear()


def comm() -> Comm:
    """Its communicator."""
    if _group is None:
        raise ValueError("init() has not been called")
    return _group


def rank() -> int:
    """The number of this worker."""
    return comm().rank


def size() -> int:
    """The number of workers."""
    return comm().size


def local_rank() -> int:
    """The number of this worker on its host."""
    return comm().local_rank


def local_size() -> int:
    """The number of workers on this host."""
    return comm().local_size


def name_of(op: str) -> str:
    """A name for an asynchronous allreduce without one, the same on all ranks if their order is."""
    _unnamed[op] = _unnamed.get(op, 0) + 1
    return f"allreduce.{op}.{_unnamed[op]}"
