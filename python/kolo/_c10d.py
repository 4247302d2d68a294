"""The backend "kolo" of torch.distributed, for CPU tensors.

A process group has a communicator that several threads may use (kolo.init with ``threads``), since autograd
and the program start collectives in threads of their own. A collective is started by the calling thread, and
makes progress in waits and in a thread of the library; no caller needs to wait for it. Tensors are read and
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
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from . import comm as _comm
from ._c10d_backend import Backend
from ._c10d_memory import Pool, install
from ._c10d_sparse import sum_sparse
from ._c10d_tensors import (check, check_lengths, copied, moved, overlap, reduction, scale_input, seconds_of, stage)
from ._c10d_work import TAGS, Engine, Several, Task, Work
from ._errors import Error, TimeoutError  # pylint: disable=redefined-builtin
from .comm import ANY_RANK, Comm

_dist: Any = dist  # its hints have no PrefixStore

LIST_RANKS = 16  # up to which a list of tensors is moved by a request for each rank
NESTED = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 15)  # hooks expect results of all_gather so
POLL_S = 0.0005  # between looks for the ranks of monitored_barrier

_Group: Any = dist.ProcessGroup


# ---- the process group ----


class ProcessGroup(_Group):  # type: ignore[misc]
    """The process group of the backend "kolo". PyTorch's Python functions call its methods, which return
    a Work; those in C++ call its backend."""

    def __init__(self, comm: Comm, timeout: Any, timeout_s: float, store: Any) -> None:
        super().__init__(comm.rank, comm.size)
        self._engine = Engine(comm, timeout_s)
        self.pool = Pool(comm)
        self._store = store
        self._coalesced: Optional[List[Work]] = None
        self._backend = Backend(self, timeout)
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
        if self._engine.comm._exists() and self.pool.used():
            self._engine.comm.keep_memory()
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
        store = _dist.PrefixStore(f"{name}/", self._store)
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
        return Several(self._engine, works)

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
            check(tensor)
            tensor = tensor.detach()
            if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
                used.append(tensor)
                continue
            copy = stage(tensor, read)
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
        dtype, counts = moved(used)
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
            op, factor = reduction(opts.reduceOp, dtype)
            scale = [scale_input(tensor, factor, True)[1] for tensor in same][0]
            name, counts = moved(same)
            several.append(self._engine.parts("allreduce", name, same, counts, op, prescale=scale))
        return self._start(several, tensors, finish, opts)

    def _allreduce_sparse(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        """The sum of sparse tensors, whose ranks have different indices."""
        name = str(getattr(opts.reduceOp, "op", opts.reduceOp)).rsplit(".", maxsplit=1)[-1]
        if name not in ("SUM", "AVG"):
            raise TypeError(f"backend kolo: operation {name} on sparse tensors: they have SUM and AVG")
        for tensor in tensors:
            check(tensor, sparse=True)
        seconds = seconds_of(getattr(opts, "timeout", None))
        tags = [self._engine.tag() for _ in tensors]

        def run() -> None:
            with torch.no_grad():
                for tensor, tag in zip(tensors, tags):
                    total = sum_sparse(self._engine, tensor, tag, seconds)
                    tensor.copy_(total / self.size() if name == "AVG" else total)

        work = Task(self._engine, run, tensors, seconds)
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
            op, factor = reduction(opts.reduceOp, tensor.dtype)
            tensor, scale = scale_input(tensor, factor, own)
            name, (count,) = moved([tensor])
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
        check_lengths("all_gather_into_tensor", len(inputs), outputs)
        finish: List[Any] = []
        several = []
        for output, given in zip(outputs, inputs):
            self._slices(output, given, "all_gather_into_tensor")
            (to,) = self._use([output], finish, read=False)
            (source,) = self._use([given], finish, write=False)
            name, (count,) = moved([source])
            own = to.data_ptr() + self.rank() * source.numel() * source.element_size()
            if source.data_ptr() != own and overlap(to, source):
                source = stage(source, True)
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
        check_lengths("reduce_scatter_tensor", len(inputs), outputs)
        opts = dist.ReduceScatterOptions() if opts is None else opts
        finish: List[Any] = []
        several = []
        for output, given in zip(outputs, inputs):
            self._slices(given, output, "reduce_scatter_tensor")
            (to,) = self._use([output], finish, read=False)
            (source,) = self._use([given], finish, write=False)
            if overlap(to, source):
                source = stage(source, True)
            op, factor = reduction(opts.reduceOp, source.dtype)
            source, scale = scale_input(source, factor, False)
            name, (count,) = moved([to])
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
        if overlap(to, source):
            source = stage(source, True)
        name, (all_in, all_out) = moved([source, to])
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
        check_lengths("all_gather", len(inputs), outputs)
        check_lengths("all_gather", self.size(), *outputs)
        work = self.allgather_coalesced(list(map(list, zip(*outputs))), inputs, opts)
        if NESTED:
            work._result = outputs
        return work

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                            opts: Any = None) -> Work:
        """all_gather_coalesced: outputs[r] are the inputs of rank r."""
        check_lengths("all_gather", self.size(), outputs)
        check_lengths("all_gather", len(inputs), *outputs)
        finish: List[Any] = []
        for mine, given in zip(outputs[self.rank()], inputs):
            check(given)
            if mine.numel() != given.numel() or mine.dtype != given.dtype:
                raise ValueError(f"all_gather: the input has {given.numel()} elements of {given.dtype}, "
                                 f"its place in the output {mine.numel()} of {mine.dtype}")
        flat = [t for tensors in outputs for t in tensors]
        equal = len({t.numel() * t.element_size() for t in flat}) == 1 and len(inputs) == 1
        if self.size() > LIST_RANKS and equal:
            whole = stage(inputs[0].expand(self.size(), *inputs[0].shape), False)
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
            name, counts = moved(used)
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
        check_lengths("reduce_scatter", len(outputs), inputs)
        check_lengths("reduce_scatter", self.size(), *inputs)
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
                if own and given.data_ptr() != to.data_ptr() and overlap(to, given):
                    given = stage(given, True)
                elif not own and overlap(to, given):
                    given = stage(given, True)
                op, factor = reduction(opts.reduceOp, given.dtype)
                given, scale = scale_input(given, factor, False)
                name, (count,) = moved([given])
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
            name, (count,) = moved([to])
            several.append(self._engine.opts("recv", name, count, output=to, root=rank, tag=tag))
        for rank, tensor in outgoing.items():
            (source,) = self._use([tensor], finish, write=False)
            name, (count,) = moved([source])
            several.append(self._engine.opts("send", name, count, source, root=rank, tag=tag))
        return self._start(several, result, finish, opts)

    def _others(self, tensors: List[torch.Tensor]) -> Dict[int, torch.Tensor]:
        if len(tensors) != self.size():
            raise ValueError(f"{len(tensors)} tensors for {self.size()} ranks")
        return {r: t for r, t in enumerate(tensors) if r != self.rank()}

    def _own(self, output: torch.Tensor, given: torch.Tensor) -> None:
        check(given)
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
            if overlap(to, source):
                source = stage(source, True)
        name, (count,) = moved([source])
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
            name, (count,) = moved([tensor])
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
    seconds = seconds_of(timeout)
    default = seconds == dist.constants.default_pg_timeout.total_seconds()
    if default and "KOLO_TIMEOUT" in os.environ:
        seconds = 0
    comm = _comm.init(rank=rank, world=size, local_rank=rank if _one_host(size) else 0,
                      local_world=size if _one_host(size) else 1, timeout_s=seconds, threads=True,
                      exchange=_exchange_by(store, rank, size))
    install()
    return ProcessGroup(comm, timeout, seconds or float(os.environ.get("KOLO_TIMEOUT") or 0), store)
