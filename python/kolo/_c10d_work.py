"""Requests in flight of the backend "kolo" of torch.distributed: c10d's Work, and what starts requests."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from ._bindings import c, names_of
from ._c10d_tensors import seconds_of, waited
from ._errors import Error
from ._futures import Settler, settle
from .comm import Comm, Request

TAGS = 1 << 30  # tags from here on are those of collectives
FLYING = 64  # requests after which complete ones without a waiter are released

DTYPES = names_of("kolo_dtype")
OPS = names_of("kolo_reduce_op")
KINDS = {name: code for code, name in enumerate(names_of("kolo_collective"))}

_Work: Any = dist.Work


class Work(_Work):  # type: ignore[misc]
    """Requests in flight. ``finish`` copies results to their place once all are complete."""

    def __init__(self, group: Engine, requests: Sequence[Kept], result: List[torch.Tensor],
                 finish: Sequence[Callable[[], Any]] = (), timeout_s: float = 0) -> None:
        super().__init__()
        self._group, self._requests = group, requests
        self._result: Any = result  # tensors, or lists of them
        self._finish, self._timeout_s = finish, timeout_s
        self._lock = threading.Lock()
        self._done = not requests and not finish
        self._failure: Optional[Exception] = None
        self._future: Any = None

    def _complete(self) -> None:
        with self._lock:
            if not self._done:
                for step in self._finish:
                    step()
                self._done = True

    def wait(self, timeout: Any = None) -> bool:
        """Blocks until it is complete."""
        if not self._done:
            seconds = seconds_of(timeout) or self._timeout_s
            try:
                for request in self._requests:
                    request.wait(seconds)
            except Error as error:
                self._failure = waited(error, seconds or self._group.timeout_s)
                raise self._failure from None
            self._complete()
        return True

    def is_completed(self) -> bool:
        """Whether it is complete, or has failed."""
        if self._done or self._failure:
            return True
        try:
            if not all(request.test() for request in self._requests):
                return False
            self._complete()
        except Error as error:
            self._failure = error
        return True

    def is_success(self) -> bool:
        """Whether it is complete and has not failed."""
        return self.is_completed() and self._failure is None

    def exception(self) -> Optional[Exception]:
        """Its failure, or None."""
        return self._failure

    def synchronize(self) -> None:
        """Like wait."""
        self.wait()

    def result(self) -> List[torch.Tensor]:
        """The tensors with the result."""
        result: List[torch.Tensor] = self._result
        return result

    def source_rank(self) -> int:
        """The rank from which a message came."""
        return self._requests[0].source()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future of the result, which completes without a wait."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                self._group.notify(self, self._future)
        return self._future


class Several(Work):
    """The works between start_coalescing and end_coalescing."""

    def __init__(self, group: Engine, works: List[Work]) -> None:
        super().__init__(group, [r for w in works for r in w._requests],
                         [t for w in works for t in w._result],
                         [w._complete for w in works], max((w._timeout_s for w in works), default=0))


class Task(Work):
    """A collective whose later requests depend on what the earlier ones have brought: it runs in a thread."""

    def __init__(self, group: Engine, run: Callable[[], None], result: List[torch.Tensor], timeout_s: float) -> None:
        super().__init__(group, (), result, (), timeout_s)
        self._done = False
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(run,), daemon=True).start()

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
            self._done = True
        except Exception as error:  # pylint: disable=broad-except
            self._failure = error
        self._ended.set()

    def _complete(self) -> None:
        self.wait()

    def wait(self, timeout: Any = None) -> bool:
        """Blocks until it is complete."""
        if not self._ended.wait(seconds_of(timeout) or None):
            self._group.comm.abort(f"waited {seconds_of(timeout):.1f} s in an all_reduce of sparse tensors")
            self._ended.wait()
        if self._failure:
            raise self._failure
        return True

    def is_completed(self) -> bool:
        """Whether it is complete, or has failed."""
        return self._ended.is_set()


# ---- requests ----


class Engine:
    """Starts requests on a communicator that several threads use."""

    def __init__(self, comm: Comm, timeout_s: float = 0) -> None:
        self.comm = comm
        self.timeout_s = timeout_s  # of waits without one of their own
        self._starting = threading.Lock()  # requests are created and started in one order
        self._collectives = 0  # on lists, for their tags
        self._settler = Settler()
        weakref.finalize(self, self._settler.close)

    def notify(self, work: Work, future: Any = None) -> None:
        """Finishes the work when its requests are complete, then completes the future, if there is one."""
        if isinstance(work, Task) or any(r.kind in ("send", "recv") for r in work._requests):  # may last long
            threading.Thread(target=settle, args=(work.wait, work._result, future), daemon=True).start()
        else:
            self._settler.put(work.wait, work._result, future)

    def close(self, abort: bool) -> None:
        """Leaves the group. Requests in flight fail."""
        if abort:
            self.comm.abort("the process group was aborted")
        with self._settler.waiting:
            self.comm.close()

    def opts(self, kind: str, dtype: str, count: int, given: Optional[torch.Tensor] = None,
             output: Optional[torch.Tensor] = None, op: str = "sum", **others: Any) -> Any:
        """The options of a request. It keeps its tensors."""
        return Opts(kind, (given, output), c.kolo_request_opts(
            kind=KINDS[kind], dtype=DTYPES.index(dtype), op=OPS.index(op), count=count,
            input=given.data_ptr() or None if given is not None else None,
            output=output.data_ptr() or None if output is not None else None, **others))

    def parts(self, kind: str, dtype: str, tensors: List[torch.Tensor], counts: List[int],
              op: str = "sum", **others: Any) -> Any:
        """The options of an allreduce or broadcast of several tensors."""
        if len(tensors) == 1:
            return self.opts(kind, dtype, counts[0], output=tensors[0], op=op, **others)
        parts = (c.kolo_part * len(tensors))(
            *(c.kolo_part(data=t.data_ptr() or None, count=n) for t, n in zip(tensors, counts)))
        return Opts(kind, tuple(tensors), c.kolo_request_opts(
            kind=KINDS[kind], dtype=DTYPES.index(dtype), op=OPS.index(op), parts=parts,
            n_parts=len(tensors), **others))

    def start(self, several: Sequence[Any], result: List[torch.Tensor],
              finish: Sequence[Callable[[], Any]] = (), timeout: Any = None) -> Work:
        """Starts requests, in one piece."""
        requests = []
        with self._starting:
            self._release()
            for opts in several:
                request = Kept(self.comm, opts)
                requests.append(request)
                request.start()
        work = Work(self, requests, result, finish, seconds_of(timeout))
        if finish:
            self.notify(work)
        return work

    def _release(self) -> None:
        flying = self.comm._flying
        if len(flying) > FLYING:
            for request in list(flying):
                try:
                    request.test()
                except Error:
                    return

    def tag(self) -> int:
        """The tag of the next collective that consists of messages."""
        with self._starting:
            self._collectives += 1
            return TAGS + self._collectives % TAGS


class Opts:
    def __init__(self, kind: str, kept: Any, value: Any) -> None:
        self.kind, self.kept, self.value = kind, kept, value


class Kept(Request):
    """A request that keeps its tensors and arrays."""

    def __init__(self, comm: Comm, opts: Opts) -> None:
        self.kind = opts.kind
        super().__init__(comm, opts.value, opts.kept)
