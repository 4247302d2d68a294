"""The backend "kolo" of torch.distributed, for CPU tensors.

A process group has a communicator that several threads may use (kolo.init with ``threads``), since autograd
and the program start collectives in threads of their own. A collective is started by the calling thread, and
makes progress in waits and in a thread of the library; nobody needs to wait for it. Tensors are read and
written where they lie. Those that are not contiguous go through a contiguous copy, and so do some lists of
tensors in groups of more than LIST_RANKS ranks; ``copied`` counts them.

Sparse tensors are summed by messages between all ranks, in a thread.

Collectives on lists of tensors, which c10d does not require to be adjacent in memory, are several requests:
a broadcast or reduce for each rank, or messages between each two ranks.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from . import comm as _comm
from ._errors import Error, TimeoutError  # pylint: disable=redefined-builtin
from ._futures import Settler, settle
from ._library import ENUMS, c
from ._torch_types import TYPES
from .comm import ANY_RANK, Comm, Request

LIST_RANKS = 16  # up to which a list of tensors is moved by a request for each rank
TAGS = 1 << 30  # tags from here on are those of collectives
NESTED = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 15)  # hooks expect results of all_gather so
POLL_S = 0.0005  # between looks for the ranks of monitored_barrier
FLYING = 64  # requests after which complete ones that nobody has waited for are released

_DTYPES = ENUMS["kolo_dtype"][1]
_OPS = ENUMS["kolo_reduce_op"][1]
_KINDS = {name: code for code, name in enumerate(ENUMS["kolo_collective"][1])}

_REDUCTIONS = {"SUM": "sum", "AVG": "mean", "PRODUCT": "prod", "MIN": "min", "MAX": "max",
               "BAND": "and", "BOR": "or", "BXOR": "xor", "PREMUL_SUM": "sum"}
# Of booleans, which are bytes that hold 0 or 1; as numbers they would not stay booleans.
_LOGICAL = {"SUM": "max", "PRODUCT": "min", "MIN": "min", "MAX": "max", "BAND": "min", "BOR": "max",
            "BXOR": "xor"}

_Work: Any = dist.Work
_Group: Any = dist.ProcessGroup
_BackendBase: Any = _distributed_c10d.Backend

copied = [0, 0]  # tensors that went through a copy, and their bytes


def _stage(tensor: torch.Tensor, fill: bool) -> torch.Tensor:
    """A contiguous tensor of the same shape."""
    copied[0] += 1
    copied[1] += tensor.numel() * tensor.element_size()
    if fill:
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _check(tensor: torch.Tensor, sparse: bool = False) -> None:
    if tensor.device.type != "cpu":
        raise TypeError(f"backend kolo: a tensor on {tensor.device}: it communicates tensors in main memory; "
                        "use init_process_group(\"nccl\") for GPUs")
    if tensor.layout != (torch.sparse_coo if sparse else torch.strided):
        raise TypeError(f"backend kolo: a tensor of layout {tensor.layout}: dense tensors are communicated, and "
                        "all_reduce takes sparse tensors of layout torch.sparse_coo, not both in one call")


def _moved(tensors: Sequence[torch.Tensor]) -> Tuple[str, List[int]]:
    """The type by which tensors are moved, and their numbers of elements in it."""
    known = {t.dtype for t in tensors}
    if len(known) == 1:
        name = TYPES.get(tensors[0].dtype)
        if name:
            return name, [t.numel() for t in tensors]
    return "u8", [t.numel() * t.element_size() for t in tensors]


def _reduction(op: Any, dtype: torch.dtype) -> Tuple[str, Optional[float]]:
    """Kolo's operation, and the factor of this rank's input."""
    kind = getattr(op, "op", op)
    name = str(kind).rsplit(".", maxsplit=1)[-1]
    found = (_LOGICAL if dtype == torch.bool else _REDUCTIONS).get(name)
    if dtype not in TYPES or found is None:
        raise TypeError(f"backend kolo: operation {name} on {dtype} is not supported")
    if dtype.is_complex and found not in ("sum", "mean", "prod"):
        raise TypeError(f"backend kolo: operation {name} on {dtype}: complex numbers have SUM, AVG and PRODUCT")
    factor = None
    if name == "PREMUL_SUM":
        factor = op.__getstate__()[1]
        if isinstance(factor, torch.Tensor):
            factor = float(factor)
        if not dtype.is_floating_point and not dtype.is_complex:
            raise TypeError(f"backend kolo: operation {name} on {dtype}: only on floating point")
    return found, factor


def _scale(tensor: torch.Tensor, factor: Optional[float], write: bool) -> Tuple[torch.Tensor, float]:
    """An input and its factor for the library, to which 0 means none: then the input is multiplied here. ``write``:
    in place."""
    if factor != 0:
        return tensor, factor or 0.0
    return tensor.mul_(0) if write else tensor * 0, 0.5  # a factor, as on other ranks


def _lengths(what: str, length: int, *lists: Sequence[Any]) -> None:
    for one in lists:
        if len(one) != length:
            raise ValueError(f"{what}: a list of length {len(one)}: give {length}")


def _seconds(timeout: Any) -> float:
    """A timeout of c10d; 0: the group's."""
    if isinstance(timeout, datetime.timedelta):
        return max(timeout.total_seconds(), 0.0)
    return max(timeout / 1000, 0.0) if timeout else 0.0


def _waited(error: Error, seconds: float) -> Error:
    """An error of a wait. Programs recognize a timeout by c10d's words."""
    if not isinstance(error, TimeoutError):
        return error
    return TimeoutError(error.status, f"backend kolo: Timed out waiting {round(1000 * seconds)}ms: {error}")


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    first, second = a.data_ptr(), b.data_ptr()
    return bool(first < second + b.numel() * b.element_size()
                and second < first + a.numel() * a.element_size())


# ---- work ----


class Work(_Work):  # type: ignore[misc]
    """Requests in flight. ``finish`` copies results to their place once all are complete."""

    def __init__(self, group: _Engine, requests: Sequence[_Kept], result: List[torch.Tensor],
                 finish: Sequence[Callable[[], Any]] = (), timeout_s: float = 0) -> None:
        super().__init__()
        self._group, self._requests, self._result = group, requests, result
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
            seconds = _seconds(timeout) or self._timeout_s
            try:
                for request in self._requests:
                    request.wait(seconds)
            except Error as error:
                self._failure = _waited(error, seconds or self._group.timeout_s)
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
        return self._result

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


class _Several(Work):
    """The works between start_coalescing and end_coalescing."""

    def __init__(self, group: _Engine, works: List[Work]) -> None:
        super().__init__(group, [r for w in works for r in w._requests],
                         [t for w in works for t in w._result],
                         [w._complete for w in works], max((w._timeout_s for w in works), default=0))


class _Task(Work):
    """A collective whose later requests depend on what the earlier ones have brought: it runs in a thread."""

    def __init__(self, group: _Engine, run: Callable[[], None], result: List[torch.Tensor], timeout_s: float) -> None:
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
        if not self._ended.wait(_seconds(timeout) or None):
            self._group.comm.abort(f"waited {_seconds(timeout):.1f} s in an all_reduce of sparse tensors")
            self._ended.wait()
        if self._failure:
            raise self._failure
        return True

    def is_completed(self) -> bool:
        """Whether it is complete, or has failed."""
        return self._ended.is_set()


# ---- requests ----


class _Engine:
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
        if isinstance(work, _Task) or any(r.kind in ("send", "recv") for r in work._requests):  # may last long
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
        return _Opts(kind, (given, output), c.kolo_request_opts(
            kind=_KINDS[kind], dtype=_DTYPES.index(dtype), op=_OPS.index(op), count=count,
            input=given.data_ptr() or None if given is not None else None,
            output=output.data_ptr() or None if output is not None else None, **others))

    def parts(self, kind: str, dtype: str, tensors: List[torch.Tensor], counts: List[int],
              op: str = "sum", **others: Any) -> Any:
        """The options of an allreduce or broadcast of several tensors."""
        if len(tensors) == 1:
            return self.opts(kind, dtype, counts[0], output=tensors[0], op=op, **others)
        parts = (c.kolo_part * len(tensors))(
            *(c.kolo_part(data=t.data_ptr() or None, count=n) for t, n in zip(tensors, counts)))
        return _Opts(kind, tuple(tensors), c.kolo_request_opts(
            kind=_KINDS[kind], dtype=_DTYPES.index(dtype), op=_OPS.index(op), parts=parts,
            n_parts=len(tensors), **others))

    def start(self, several: Sequence[Any], result: List[torch.Tensor],
              finish: Sequence[Callable[[], Any]] = (), timeout: Any = None) -> Work:
        """Starts requests, in one piece."""
        requests = []
        with self._starting:
            self._release()
            for opts in several:
                request = _Kept(self.comm, opts)
                requests.append(request)
                request.start()
        work = Work(self, requests, result, finish, _seconds(timeout))
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


class _Opts:
    def __init__(self, kind: str, kept: Any, value: Any) -> None:
        self.kind, self.kept, self.value = kind, kept, value


class _Kept(Request):
    """A request that keeps its tensors and arrays."""

    def __init__(self, comm: Comm, opts: _Opts) -> None:
        self.kind = opts.kind
        super().__init__(comm, opts.value, opts.kept)


# ---- sparse tensors ----

SHAPE = 64  # numbers that describe a sparse tensor


def _describe(tensor: torch.Tensor) -> torch.Tensor:
    """Dimensions, those of them that are sparse, entries, bytes of a value, shape."""
    shape = [tensor.dim(), tensor.sparse_dim(), tensor._nnz(), tensor.element_size(), *tensor.shape]
    if len(shape) > SHAPE:
        raise ValueError(f"all_reduce of a sparse tensor with {tensor.dim()} dimensions: at most {SHAPE - 4}")
    return torch.tensor(shape + [0] * (SHAPE - len(shape)))


def _exchange_each(engine: _Engine, tag: int, seconds: float, given: Sequence[torch.Tensor],
                   taken: Dict[int, List[torch.Tensor]]) -> None:
    """Sends tensors to each of the ranks of ``taken``, and receives those of that rank."""
    several = []
    for rank, tensors in taken.items():
        for kind, side, own in (("recv", "output", tensors), ("send", "given", given)):
            for tensor in own:
                if tensor.numel():
                    name, (count,) = _moved([tensor])
                    memory: Dict[str, Any] = {side: tensor}
                    several.append(engine.opts(kind, name, count, root=rank, tag=tag, **memory))
    engine.start(several, []).wait(datetime.timedelta(seconds=seconds))


def _sum_sparse(engine: _Engine, tensor: torch.Tensor, tag: int, seconds: float) -> torch.Tensor:
    """The sum over the ranks, which add the entries in the same order, so that all have the same bits. Messages in
    the place of collectives: the thread that runs this is in no order with others."""
    own = tensor.coalesce()
    mine = _describe(own)
    others = [r for r in range(engine.comm.size) if r != engine.comm.rank]
    shapes = {r: torch.zeros_like(mine) for r in others}
    _exchange_each(engine, tag, seconds, [mine], {r: [shape] for r, shape in shapes.items()})
    for rank, shape in shapes.items():
        fixed = torch.arange(SHAPE) != 2  # all but the number of entries
        if not torch.equal(shape[fixed], mine[fixed]):
            sizes = [s[4:4 + int(s[0])].tolist() for s in (mine, shape)]
            raise ValueError(f"all_reduce of sparse tensors: {sizes[0]}, {int(mine[1])} of the dimensions sparse, on "
                             f"rank {engine.comm.rank}, {sizes[1]}, {int(shape[1])} sparse, on rank {rank}; or "
                             "different types")
    entries = {r: int(shape[2]) for r, shape in shapes.items()}
    parts = {r: [own.indices().new_empty(own.sparse_dim(), n), own.values().new_empty(n, *own.values().shape[1:])]
             for r, n in entries.items()}
    given = [own.indices().contiguous(), own.values().resolve_conj().resolve_neg().contiguous()]
    _exchange_each(engine, tag, seconds, given, parts)
    parts[engine.comm.rank] = given
    indices, values = (torch.cat([parts[r][i] for r in sorted(parts)], 1 - i) for i in range(2))
    return torch.sparse_coo_tensor(indices, values, tensor.shape).coalesce()


# ---- the process group ----


class ProcessGroup(_Group):  # type: ignore[misc]
    """The process group of the backend "kolo". PyTorch's Python functions call its methods, which return
    a Work; those in C++ call its backend."""

    def __init__(self, comm: Comm, timeout: Any, timeout_s: float, store: Any) -> None:
        super().__init__(comm.rank, comm.size)
        self._engine = _Engine(comm, timeout_s)
        self._store = store
        self._coalesced: Optional[List[Work]] = None
        self._backend = _Backend(self, timeout)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, self._backend)

    # -- what PyTorch asks of a group --

    def getBackendName(self) -> str:  # pylint: disable=invalid-name
        """Its name."""
        return "kolo"

    _get_backend_name = name = getBackendName

    def _set_sequence_number_for_group(self) -> None:
        """Kolo checks the order of collectives itself."""

    def _get_sequence_number_for_group(self) -> int:
        return self._engine._collectives

    def _wait_for_pending_works(self) -> None:
        for request in list(self._engine.comm._flying):
            request.wait()

    def comm(self) -> Comm:
        """The communicator."""
        return self._engine.comm

    def abort(self) -> None:
        """Breaks the group on all ranks."""
        self._engine.comm.abort("the process group was aborted")

    def shutdown(self) -> None:
        """Leaves the group."""
        self._engine.close(abort=bool(self._engine.comm._flying) and not self._idle())

    def get_group_store(self) -> Any:
        """The store by which its ranks found each other."""
        return self._store

    def split_group(self, ranks: List[int], timeout: Any = None, opts: Any = None, group_name: Optional[str] = None,
                    group_desc: Optional[str] = None, device_types: Any = None) -> Optional[ProcessGroup]:
        """The group of these ranks of the group, in this order; None for others. Only its ranks communicate."""
        del opts
        if any(device.type != "cpu" for device in device_types or ()):
            raise ValueError("backend kolo: split_group of devices other than cpu")
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self.group_name}/split/{'-'.join(map(str, ranks))}"
        store = dist.PrefixStore(f"{name}/", self._store)
        group = create(store, list(ranks).index(self.rank()), len(ranks), timeout or self._backend.options._timeout)
        group._set_group_name(name)
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    def _idle(self) -> bool:
        try:
            return all([r.test() for r in list(self._engine.comm._flying)])
        except Error:
            return True  # broken already

    # -- coalescing --

    def start_coalescing(self, _device: Any = None) -> None:
        """Begins to collect works."""
        self._coalesced = []

    def end_coalescing(self, _device: Any = None) -> Work:
        """One work for those since start_coalescing."""
        works, self._coalesced = self._coalesced or [], None
        return _Several(self._engine, works)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    def _start(self, several: Sequence[Any], result: List[torch.Tensor],
               finish: Sequence[Callable[[], Any]] = (), opts: Any = None) -> Work:
        work = self._engine.start(several, result, finish, getattr(opts, "timeout", None))
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    # -- memory --

    def _use(self, tensors: Sequence[torch.Tensor], finish: List[Callable[[], Any]],
             read: bool = True, write: bool = True) -> List[torch.Tensor]:
        """Contiguous memory with the numbers of tensors, which views of conjugate and negative numbers do not hold;
        what is written to copies is copied back by ``finish``."""
        used = []
        for tensor in tensors:
            _check(tensor)
            tensor = tensor.detach()
            if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
                used.append(tensor)
                continue
            copy = _stage(tensor, read)
            if write:
                finish.append(functools.partial(tensor.copy_, copy))
            used.append(copy)
        return used

    # -- one vector on all ranks --

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        """broadcast."""
        finish: List[Any] = []
        own = self.rank() == opts.rootRank
        used = self._use(tensors, finish, read=own, write=not own)
        dtype, counts = _moved(used)
        return self._start([self._engine.parts("broadcast", dtype, used, counts, root=opts.rootRank)],
                           tensors, finish, opts)

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce; of several tensors, as one vector for each type."""
        opts = dist.AllreduceOptions() if opts is None else opts
        if tensors and tensors[0].layout == torch.sparse_coo:
            return self._allreduce_sparse(tensors, opts)
        finish: List[Any] = []
        used = self._use(tensors, finish)
        by_type: Dict[torch.dtype, List[torch.Tensor]] = {}
        for tensor in used:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        several = []
        for dtype, same in by_type.items():
            op, factor = _reduction(opts.reduceOp, dtype)
            scale = [_scale(tensor, factor, True)[1] for tensor in same][0]
            name, counts = _moved(same)
            several.append(self._engine.parts("allreduce", name, same, counts, op, prescale=scale))
        return self._start(several, tensors, finish, opts)

    def _allreduce_sparse(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        """The sum of sparse tensors, whose ranks have different indices."""
        name = str(getattr(opts.reduceOp, "op", opts.reduceOp)).rsplit(".", maxsplit=1)[-1]
        if name not in ("SUM", "AVG"):
            raise TypeError(f"backend kolo: operation {name} on sparse tensors: they have SUM and AVG")
        for tensor in tensors:
            _check(tensor, sparse=True)
        seconds = _seconds(getattr(opts, "timeout", None))
        tags = [self._engine.tag() for _ in tensors]

        def run() -> None:
            with torch.no_grad():
                for tensor, tag in zip(tensors, tags):
                    total = _sum_sparse(self._engine, tensor, tag, seconds)
                    tensor.copy_(total / self.size() if name == "AVG" else total)

        work = _Task(self._engine, run, tensors, seconds)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce_coalesced."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        """reduce; tensors of ranks other than the root keep their values."""
        finish: List[Any] = []
        own = self.rank() == opts.rootRank
        several = []
        for tensor in self._use(tensors, finish, write=own):
            op, factor = _reduction(opts.reduceOp, tensor.dtype)
            tensor, scale = _scale(tensor, factor, own)
            name, (count,) = _moved([tensor])
            memory: Dict[str, Any] = {"output": tensor} if own else {"given": tensor}
            several.append(self._engine.opts("reduce", name, count, op=op, root=opts.rootRank,
                                             prescale=scale, **memory))
        return self._start(several, tensors, finish, opts)

    def barrier(self, opts: Any = None) -> Work:
        """barrier."""
        return self._start([self._engine.opts("barrier", "u8", 0)], [], (), opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier in which rank 0 names the first rank that has not come, or all of them; then the group is
        broken."""
        seconds = self._engine.timeout_s if timeout is None else max(timeout.total_seconds(), 0.0)
        if self.rank() == 0:
            self._gather_arrivals(seconds, wait_all_ranks)
            return
        try:
            for work in self._arrivals([0]):
                work.wait(datetime.timedelta(seconds=seconds))
        except Error as error:
            raise type(error)(error.status, f"Rank {self.rank()} successfully reached monitoredBarrier, but received "
                              f"errors while waiting for send/recv from rank 0: {error}") from None

    def _arrivals(self, ranks: Sequence[int], kinds: Sequence[str] = ("send", "recv")) -> List[Work]:
        """Messages without content with these ranks."""
        byte = torch.zeros(1, dtype=torch.uint8)
        memory: Dict[str, Any] = {"send": {"given": byte}, "recv": {"output": byte}}
        return [self._engine.start([self._engine.opts(kind, "u8", 1, root=rank, tag=2 * TAGS - 1, **memory[kind])], [])
                for rank in ranks for kind in kinds]

    def _gather_arrivals(self, seconds: float, every: bool) -> None:
        """Waits for the other ranks, and answers once all have come."""
        others = range(1, self.size())
        missing = dict(zip(others, self._arrivals(others, ["recv"])))
        end, why = time.monotonic() + seconds, ""
        while missing and not why:
            try:
                missing = {r: work for r, work in missing.items() if not all(q.test() for q in work._requests)}
            except Error as error:
                why = f": {error}"
            if missing and not why and time.monotonic() >= end:
                why = " in time"
            time.sleep(POLL_S)
        if why:
            names = ", ".join(map(str, missing if every else [min(missing)]))
            text = f"Rank{'s' if every and len(missing) > 1 else ''} {names} failed to pass monitoredBarrier"
            if not seconds:
                text = f"Rank 0 timed out in monitoredBarrier, whose timeout is 0: {text}"
            self._engine.comm.abort(f"{text} in {round(1000 * seconds)} ms")
            raise TimeoutError("KOLO_ERR_TIMEOUT", f"{text} in {round(1000 * seconds)} ms{why}")
        for work in self._arrivals(others, ["send"]):
            work.wait()

    # -- slices in one tensor --

    def _slices(self, whole: torch.Tensor, share: torch.Tensor, what: str) -> None:
        if whole.dtype != share.dtype:
            raise TypeError(f"{what}: tensors of {whole.dtype} and {share.dtype}")
        if whole.numel() != share.numel() * self.size():
            raise ValueError(f"{what}: {whole.numel()} elements are not {self.size()} times "
                             f"{share.numel()}")

    def _gathers(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any) -> Work:
        _lengths("all_gather_into_tensor", len(inputs), outputs)
        finish: List[Any] = []
        several = []
        for output, given in zip(outputs, inputs):
            self._slices(output, given, "all_gather_into_tensor")
            (to,) = self._use([output], finish, read=False)
            (source,) = self._use([given], finish, write=False)
            name, (count,) = _moved([source])
            own = to.data_ptr() + self.rank() * source.numel() * source.element_size()
            if source.data_ptr() != own and _overlap(to, source):
                source = _stage(source, True)
            several.append(self._engine.opts("allgather", name, count, output=to,
                                             given=None if source.data_ptr() == own else source))
        return self._start(several, outputs, finish, opts)

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Work:
        """all_gather_into_tensor; the input may be its slice of the output."""
        return self._gathers([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                    opts: Any = None) -> Work:
        """all_gather_into_tensor of several tensors."""
        return self._gathers(outputs, inputs, opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _scatters(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any) -> Work:
        _lengths("reduce_scatter_tensor", len(inputs), outputs)
        opts = dist.ReduceScatterOptions() if opts is None else opts
        finish: List[Any] = []
        several = []
        for output, given in zip(outputs, inputs):
            self._slices(given, output, "reduce_scatter_tensor")
            (to,) = self._use([output], finish, read=False)
            (source,) = self._use([given], finish, write=False)
            if _overlap(to, source):
                source = _stage(source, True)
            op, factor = _reduction(opts.reduceOp, source.dtype)
            source, scale = _scale(source, factor, False)
            name, (count,) = _moved([to])
            several.append(self._engine.opts("reduce_scatter", name, count, source, to, op,
                                             prescale=scale))
        return self._start(several, outputs, finish, opts)

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor,
                              opts: Any = None) -> Work:
        """reduce_scatter_tensor."""
        return self._scatters([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                        opts: Any = None) -> Work:
        """reduce_scatter_tensor of several tensors."""
        return self._scatters(outputs, inputs, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(self, output: torch.Tensor, given: torch.Tensor, output_sizes: List[int],
                          input_sizes: List[int], opts: Any = None) -> Work:
        """all_to_all_single; the sizes are numbers of rows."""
        finish: List[Any] = []
        (to,) = self._use([output], finish, read=False)
        (source,) = self._use([given], finish, write=False)
        if to.dtype != source.dtype:
            raise TypeError(f"all_to_all_single: tensors of {source.dtype} and {to.dtype}")
        if _overlap(to, source):
            source = _stage(source, True)
        name, (all_in, all_out) = _moved([source, to])
        n = self.size()
        counts = []
        for sizes, tensor, elements in ((input_sizes, source, all_in), (output_sizes, to, all_out)):
            rows = tensor.size(0) if tensor.dim() else 1
            sizes = list(sizes) or [rows // n] * n
            if len(sizes) != n or sum(sizes) != rows:
                raise ValueError(f"all_to_all_single: {rows} rows are not split into {sizes} for "
                                 f"{n} ranks")
            row = elements // rows if rows else 0
            counts.append((ctypes.c_size_t * n)(*(row * size for size in sizes)))
        return self._start([self._engine.opts("alltoall", name, 0, source, to, counts=counts[0],
                                              output_counts=counts[1])], [output], finish, opts)

    alltoall_base = all_to_all_single

    # -- lists of tensors --

    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                  opts: Any = None) -> Work:
        """all_gather; tensors of the ranks may differ in size."""
        _lengths("all_gather", len(inputs), outputs)
        _lengths("all_gather", self.size(), *outputs)
        work = self.allgather_coalesced(list(map(list, zip(*outputs))), inputs, opts)
        if NESTED:
            work._result = outputs
        return work

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                            opts: Any = None) -> Work:
        """all_gather_coalesced: outputs[r] are the inputs of rank r."""
        _lengths("all_gather", self.size(), outputs)
        _lengths("all_gather", len(inputs), *outputs)
        finish: List[Any] = []
        for mine, given in zip(outputs[self.rank()], inputs):
            _check(given)
            if mine.numel() != given.numel() or mine.dtype != given.dtype:
                raise ValueError(f"all_gather: the input has {given.numel()} elements of {given.dtype}, "
                                 f"its place in the output {mine.numel()} of {mine.dtype}")
        flat = [t for tensors in outputs for t in tensors]
        equal = len({t.numel() * t.element_size() for t in flat}) == 1 and len(inputs) == 1
        if self.size() > LIST_RANKS and equal:
            whole = _stage(inputs[0].expand(self.size(), *inputs[0].shape), False)
            for to, given in zip(flat, whole):
                finish.append(functools.partial(to.copy_, given.view(to.shape)))
            return self._after(self._gathers, [whole], inputs, flat, finish, opts)
        several = []
        for rank, tensors in enumerate(outputs):
            own = rank == self.rank()
            if own:
                for to, given in zip(tensors, inputs):
                    if to.data_ptr() != given.data_ptr():
                        to.detach().copy_(given.detach().view(to.shape))
            used = self._use(tensors, finish, read=own, write=not own)
            name, counts = _moved(used)
            several.append(self._engine.parts("broadcast", name, used, counts, root=rank))
        return self._start(several, flat, finish, opts)

    def _after(self, collective: Any, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
               result: List[torch.Tensor], finish: List[Any], opts: Any) -> Work:
        """A collective with steps after its own."""
        coalesced, self._coalesced = self._coalesced, None
        first = collective(outputs, inputs, opts)
        self._coalesced = coalesced
        work = Work(self._engine, first._requests, result, [first._complete, *finish],
                    first._timeout_s)
        self._engine.notify(work)
        if coalesced is not None:
            coalesced.append(work)
        return work

    def reduce_scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]],
                       opts: Any = None) -> Work:
        """reduce_scatter; tensors of the ranks may differ in size."""
        _lengths("reduce_scatter", len(outputs), inputs)
        _lengths("reduce_scatter", self.size(), *inputs)
        opts = dist.ReduceScatterOptions() if opts is None else opts
        finish: List[Any] = []
        equal = len({t.numel() for tensors in inputs for t in tensors}) == 1
        if self.size() > LIST_RANKS and equal:
            wholes = [torch.stack([t.detach() for t in tensors]) for tensors in inputs]
            for whole in wholes:
                copied[0] += 1
                copied[1] += whole.numel() * whole.element_size()
            return self._scatters(outputs, wholes, opts)
        several = []
        for output, tensors in zip(outputs, inputs):
            (to,) = self._use([output], finish, read=False)
            used = self._use(tensors, finish, write=False)
            for rank, given in enumerate(used):
                own = rank == self.rank()
                if own and given.numel() != to.numel():
                    raise ValueError(f"reduce_scatter: the output has {to.numel()} elements, its "
                                     f"input {given.numel()}")
                if own and given.data_ptr() != to.data_ptr() and _overlap(to, given):
                    given = _stage(given, True)
                elif not own and _overlap(to, given):
                    given = _stage(given, True)
                op, factor = _reduction(opts.reduceOp, given.dtype)
                given, scale = _scale(given, factor, False)
                name, (count,) = _moved([given])
                same = own and given.data_ptr() == to.data_ptr()
                several.append(self._engine.opts("reduce", name, count, None if same else given,
                                                 to if own else None, op, root=rank, prescale=scale))
        return self._start(several, outputs, finish, opts)

    def _exchange(self, outgoing: Dict[int, torch.Tensor], incoming: Dict[int, torch.Tensor],
                  result: List[torch.Tensor], opts: Any) -> Work:
        """Messages between this rank and others."""
        finish: List[Any] = []
        tag, several = self._engine.tag(), []
        for rank, tensor in incoming.items():
            (to,) = self._use([tensor], finish, read=False)
            name, (count,) = _moved([to])
            several.append(self._engine.opts("recv", name, count, output=to, root=rank, tag=tag))
        for rank, tensor in outgoing.items():
            (source,) = self._use([tensor], finish, write=False)
            name, (count,) = _moved([source])
            several.append(self._engine.opts("send", name, count, source, root=rank, tag=tag))
        return self._start(several, result, finish, opts)

    def _others(self, tensors: List[torch.Tensor]) -> Dict[int, torch.Tensor]:
        if len(tensors) != self.size():
            raise ValueError(f"{len(tensors)} tensors for {self.size()} ranks")
        return {r: t for r, t in enumerate(tensors) if r != self.rank()}

    def _own(self, output: torch.Tensor, given: torch.Tensor) -> None:
        _check(given)
        if output.data_ptr() != given.data_ptr():
            output.detach().copy_(given.detach())

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                 opts: Any = None) -> Work:
        """all_to_all."""
        outgoing, incoming = self._others(inputs), self._others(outputs)
        self._own(outputs[self.rank()], inputs[self.rank()])
        return self._exchange(outgoing, incoming, outputs, opts)

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any) -> Work:
        """gather."""
        if self.rank() != opts.rootRank:
            return self._exchange({opts.rootRank: inputs[0]}, {}, [], opts)
        incoming = self._others(outputs[0])
        self._own(outputs[0][self.rank()], inputs[0])
        return self._exchange({}, incoming, outputs[0], opts)

    def gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> Work:
        """gather to one tensor."""
        finish: List[Any] = []
        own = self.rank() == opts.rootRank
        (source,) = self._use([given], finish, write=False)
        to = None
        if own:
            self._slices(output, given, "gather_single")
            (to,) = self._use([output], finish, read=False)
            if _overlap(to, source):
                source = _stage(source, True)
        name, (count,) = _moved([source])
        return self._start([self._engine.opts("gather", name, count, source, to, root=opts.rootRank)],
                           [output] if own else [], finish, opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Work:
        """scatter."""
        if self.rank() != opts.rootRank:
            return self._exchange({}, {opts.rootRank: outputs[0]}, outputs, opts)
        outgoing = self._others(inputs[0])
        self._own(outputs[0], inputs[0][self.rank()])
        return self._exchange(outgoing, {}, outputs, opts)

    # -- messages --

    def _message(self, kind: str, tensors: List[torch.Tensor], peer: int, tag: int) -> Work:
        if not 0 <= tag < TAGS:
            raise ValueError(f"tag {tag}: use 0 to {TAGS - 1}")
        finish: List[Any] = []
        send, several = kind == "send", []
        for tensor in self._use(tensors, finish, read=send, write=not send):
            name, (count,) = _moved([tensor])
            memory: Dict[str, Any] = {"given": tensor} if send else {"output": tensor}
            several.append(self._engine.opts(kind, name, count, root=peer, tag=tag, **memory))
        return self._start(several, [] if send else tensors, finish)

    def send(self, tensors: List[torch.Tensor], to: int, tag: int = 0) -> Work:
        """isend."""
        return self._message("send", tensors, to, tag)

    def recv(self, tensors: List[torch.Tensor], source: int, tag: int = 0) -> Work:
        """irecv."""
        return self._message("recv", tensors, source, tag)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        """irecv from any rank."""
        return self._message("recv", tensors, ANY_RANK, tag)

    recvAnysource = recv_anysource


class _Backend(_BackendBase):  # type: ignore[misc]
    """The C++ side of a process group: its collectives are those of the group."""

    supports_coalescing = True
    supports_splitting = True

    def __init__(self, group: ProcessGroup, timeout: Any) -> None:
        super().__init__(group.rank(), group.size())
        self._group = weakref.ref(group)
        self._timeout = timeout

    def getBackendName(self) -> str:  # pylint: disable=invalid-name
        """Its name."""
        return "kolo"

    name = getBackendName

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
    setattr(_Backend, name, method)


for _name in ("broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather",
              "all_gather_single", "_allgather_base", "allgather_coalesced",
              "all_gather_single_coalesced", "gather", "gather_single", "scatter", "reduce_scatter",
              "reduce_scatter_single", "_reduce_scatter_base", "reduce_scatter_single_coalesced",
              "all_to_all_single", "alltoall_base", "alltoall", "send", "recv", "recv_anysource",
              "barrier", "start_coalescing", "end_coalescing", "abort", "shutdown",
              "_set_sequence_number_for_group", "_get_sequence_number_for_group",
              "_wait_for_pending_works"):
    _delegate(_name)


# ---- registration ----


def _exchange_by(store: Any, rank: int, size: int) -> Callable[[Optional[str], float], str]:
    """Publishes rank 0's text in c10d's store. The last reader overwrites it: it holds a secret."""
    def exchange(text: Optional[str], timeout_s: float) -> str:
        group = store.add(f"kolo/joined/{rank}", 1)
        key = f"kolo/{group}"
        if text is not None:
            store.set(key, text)
            return text
        store.wait([key], datetime.timedelta(seconds=timeout_s))
        found = store.get(key).decode()
        if store.add(f"{key}/read", 1) == size - 1:
            store.set(key, "read")
        return str(found)
    return exchange


def _one_host(world: int) -> bool:
    """Whether all ranks are on this host, by the environment of the launcher."""
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE", str(world))


def create(store: Any, rank: int, size: int, timeout: Any) -> ProcessGroup:
    """The process group of init_process_group("kolo") and new_group."""
    seconds = _seconds(timeout)
    default = seconds == dist.constants.default_pg_timeout.total_seconds()
    if default and "KOLO_TIMEOUT" in os.environ:
        seconds = 0
    comm = _comm.init(rank=rank, world=size, local_rank=rank if _one_host(size) else 0,
                      local_world=size if _one_host(size) else 1, timeout_s=seconds, threads=True,
                      exchange=_exchange_by(store, rank, size))
    return ProcessGroup(comm, timeout, seconds or float(os.environ.get("KOLO_TIMEOUT") or 0), store)
