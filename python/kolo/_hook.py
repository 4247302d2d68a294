"""Hooks of communicators, for programs that trace or profile them."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ._bindings import names_of


class Event(NamedTuple):
    """A collective or message that begins or ends on this rank."""

    id: int  # the same at the begin and at the end, counted from 1
    ns: int  # of time.monotonic_ns()
    ends: bool  # else it begins
    failed: bool  # it ends without its result: its communicator has broken
    kind: str  # "allreduce", "send", ...
    peer: int  # of a message, ANY_RANK while any may send it; else -1
    bytes: int  # of the vector: of all slices
    name: str  # ``site`` of its options
    title: str  # what errors call it
    algorithm: str  # at the end of a collective


def calling(hook: Callable[[Event], None]) -> Callable[[Any, Any], None]:
    """A callback for C that calls ``hook`` with an Event."""
    kinds = names_of("kolo_collective")

    def call(_arg: Any, event: Any) -> None:
        e = event[0]
        texts = [text.decode(errors="replace") for text in (e.name, e.title, e.algorithm)]
        hook(Event(e.id, e.ns, e.ends, e.failed, kinds[e.kind], e.peer, e.bytes, *texts))

    return call
