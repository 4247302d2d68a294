"""Collective communication between the ranks of a job.

Arguments are contiguous, writable objects with the buffer protocol: numpy arrays, array.array,
memoryview, mmap; PyTorch tensors through ``.numpy()``; and kolo.Buffer for memory at an address or of
type bfloat16. Data is not copied. Booleans are sent as bytes and support only "max" (or) and "min"
(and). Integers wrap around, and their mean is rounded towards zero. A communicator may be used by one
thread at a time, unless it was made with ``threads=True``: a call while another thread is in one fails.
After this, after Ctrl-C in a wait, and after any error that involves other ranks, the communicator is
broken on all ranks, and calls fail. Errors raise kolo.Error with the library's message.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from . import _errors
from ._bindings import NotCopied, c
from ._bindings import lib as _lib
from ._checks import integer, integers
from ._errors import Error
from ._hook import Event, calling
from ._memory import DTYPES, Buffer, Op, Operation, buffer_of, encoded, milliseconds, op_code
from ._options import code_of

ANY_RANK = -1  # the source of a receive or probe: any rank


def combine(data: Any, other: Any, op: str = "sum") -> Any:
    """data = data op other, bitwise as in a collective."""
    to, source = buffer_of(data), buffer_of(other, writable=False)
    if (to.dtype, to.count) != (source.dtype, source.count):
        raise ValueError(f"combine: {to.count} x {to.dtype} with {source.count} x {source.dtype}")
    _lib.kolo_combine(to.address, source.address, to.count, DTYPES.index(to.dtype),
                      op_code(op, to, source))
    return data


# ---- communicators ----


# pylint: disable=too-many-arguments, too-many-locals
def init(rank: int = 0, world: int = 0, local_rank: int = 0, local_world: int = 0,
         master_addr: Optional[str] = None, master_port: int = 0,
         secret_file: Optional[str] = None, timeout_s: float = 0, algorithm: str = "auto",
         transport: str = "auto", interface: Optional[str] = None, heartbeat_s: float = 0,
         insecure: bool = False, encrypt: bool = False, authenticate: bool = False, generation: int = 0, segment_bytes: int = 0,
         max_in_flight: int = 0, progress_thread: bool = False, threads: bool = False,
         exchange: Optional[Callable[[Optional[str], float], Optional[str]]] = None) -> Comm:
    """Joins a group; blocks until all ranks have joined.

    Without ``world`` the group comes from the environment: RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, KOLO_SECRET_FILE, or that of mpirun, mpiexec, srun or
    torchrun; without any of them the group has one rank. The arguments are those of kolo_comm_opts;
    ``transport`` is a name of --transport, such as "auto", "tcp" or "shm+ucx".

    ``threads``: several threads may use requests (``Comm.request``) at the same time; the library
    makes progress in a thread of its own.

    ``exchange`` is for programs with a key-value store, which then need neither a port nor a secret
    file: ``rank`` and ``world`` are given, and rank 0 calls ``exchange(text, timeout_s)`` to publish a
    line of text, the others ``exchange(None, timeout_s)``, which returns it.
    """
    opts = c.kolo_comm_opts(rank=rank, world=world, local_rank=local_rank, local_world=local_world,
                       master_addr=encoded(master_addr), master_port=master_port,
                       secret_file=encoded(secret_file), timeout_ms=milliseconds(timeout_s),
                       algorithm=code_of("kolo_algorithm", "algorithm", algorithm),
                       transport=code_of("kolo_transport_choice", "transport", transport),
                       interface=encoded(interface),
                       heartbeat_ms=int(heartbeat_s * 1000), insecure=insecure, encrypt=encrypt,
                       authenticate=authenticate,
                       generation=generation, segment_bytes=segment_bytes,
                       max_in_flight=max_in_flight, progress_thread=progress_thread or threads)
    opts.interrupted = c.interrupted(_errors.interrupted([]))
    comm = Comm(_join(opts, exchange))
    comm._opts = opts  # keeps the function alive
    if threads:
        _lib.kolo_comm_allow_threads(comm.handle())
        comm.threads = True
    return comm


def _join(opts: Any, exchange: Any) -> ctypes.c_void_p:
    """kolo_comm_create in a thread, so that signals interrupt the caller."""
    handle = ctypes.c_void_p()
    failure: List[Error] = []

    def create() -> None:
        try:
            if exchange is None:
                _lib.kolo_comm_create(ctypes.byref(opts), ctypes.byref(handle))
            else:
                share = c.kolo_share(_sharing(exchange, opts.rank))
                _lib.kolo_comm_create_by(ctypes.byref(opts), share, None, ctypes.byref(handle))
        except Error as error:
            failure.append(error)

    thread = threading.Thread(target=create, daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return handle


def _sharing(exchange: Any, rank: int) -> Callable[[Any, int, int, int], int]:
    """``exchange`` as a kolo_share."""
    def share(_arg: Any, text: int, size: int, timeout_ms: int) -> int:
        try:
            if rank == 0:
                exchange(ctypes.string_at(text).decode(), timeout_ms / 1000)
                return 0
            found = exchange(None, timeout_ms / 1000).encode() + b"\0"
            ctypes.memmove(text, found, min(len(found), size))
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            return int(_lib.kolo_error_set(_errors.code("KOLO_ERR_IO"), b"%s",
                                           f"the exchange of addresses: {error}".encode()))
    return share


class Comm(NotCopied):
    """A group of ranks. All ranks make the same calls in the same order, except for named tensors,
    sends and receives."""

    def __init__(self, handle: ctypes.c_void_p, parent: Optional[Comm] = None) -> None:
        self._handle: Optional[ctypes.c_void_p] = handle
        self._named: Optional[ctypes.c_void_p] = None
        self._opts: Any = None
        self._hook: Any = None
        self.threads = False  # whether several threads may use requests
        self._parent = parent  # which must outlive it
        self.rank: int = _lib.kolo_comm_rank(handle)
        self.size: int = _lib.kolo_comm_size(handle)
        self.local_rank: int = _lib.kolo_comm_local_rank(handle)
        self.local_size: int = _lib.kolo_comm_local_size(handle)
        self.transport: str = _lib.kolo_comm_transport(handle).decode()
        self.hosts: List[int] = [_lib.kolo_comm_host(handle, r) for r in range(self.size)]
        self._owned: List[Any] = []  # to be closed first
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()  # sub-groups and sessions, the same
        self._flying: Set[Request] = set()  # requests that are started
        self._destroying = threading.RLock()  # it, and its requests, which other threads may drop meanwhile

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the group; closes its sub-groups and sessions. Memory from ``alloc`` becomes invalid."""
        if self._exists():
            for user in list(self._users):
                user.close()
            for reducer in self._owned:
                reducer.close()
            if self._named:
                _lib.kolo_named_destroy(self._named)
            with self._destroying:
                _lib.kolo_comm_destroy(self._handle)
                self._handle = None
        self._handle = self._named = None
        self._flying.clear()

    def _exists(self) -> bool:
        """Whether it is not closed, nor destroyed with its parent: when the garbage collector finds
        both, the parent may be closed first, and its weak references to users are cleared."""
        return bool(self._handle) and (self._parent is None or self._parent._exists())

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and _lib:
            self.close()

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError("the communicator is closed")
        return self._handle

    def handle(self) -> ctypes.c_void_p:
        """The C communicator."""
        return self._open()

    def add_user(self, user: Any) -> None:
        """An object to be closed before the communicator."""
        self._users.add(user)

    def split(self, colour: int, key: int = 0) -> Optional[Comm]:
        """The sub-group of the ranks with the same ``colour``, ordered by ``key``; None for a negative
        colour. Collective."""
        colour, key = integer("colour", colour, -2**31), integer("key", key, -2**31)
        handle = ctypes.c_void_p()
        _lib.kolo_comm_split(self._open(), colour, key, ctypes.byref(handle))
        if not handle:
            return None
        group = Comm(handle, self)
        self.add_user(group)
        return group

    def create_group(self, ranks: Sequence[int], tag: int = 0) -> Comm:
        """The sub-group of these ranks, in this order. Only they call it, with the same list; they use ``tag`` for no
        other messages meanwhile."""
        members = (ctypes.c_int * len(ranks))(*(integer("rank", r, 0) for r in ranks))
        handle = ctypes.c_void_p()
        _lib.kolo_comm_create_group(self._open(), members, len(members), integer("tag", tag, 0),
                                    ctypes.byref(handle))
        group = Comm(handle, self)
        self.add_user(group)
        return group

    def revoke(self, reason: str = "revoked by the program") -> None:
        """Breaks this communicator and those of its sub-groups that this rank is in, on all their ranks. Others, such
        as the one of which it is a sub-group, go on."""
        _lib.kolo_comm_revoke(self._open(), reason.encode())

    def allow_shrink(self) -> None:
        """Prepares the group for ``shrink`` and ``agree``, while all ranks live. Collective."""
        _lib.kolo_comm_allow_shrink(self._open())

    def shrink(self) -> Comm:
        """The sub-group of the ranks that live, in their order, after a PeerError; it may shrink too. All of them call
        it. Collectives in flight may be complete on some of them only."""
        handle = ctypes.c_void_p()
        _lib.kolo_comm_shrink(self._open(), ctypes.byref(handle))
        group = Comm(handle, self)
        group.threads = self.threads
        self.add_user(group)
        return group

    def agree(self, flags: int = 2**64 - 1) -> Tuple[int, int]:
        """The bits that all ranks that live have set, of 64, and how many ranks are lost. Works when the group is
        broken, too. All ranks that live call it."""
        found, lost = ctypes.c_uint64(integer("flags", flags, 0, 2**64 - 1)), ctypes.c_int()
        _lib.kolo_comm_agree(self._open(), ctypes.byref(found), ctypes.byref(lost))
        return found.value, lost.value

    def load_costs(self, path: str) -> None:
        """Loads the cost constants of "auto" from a file of ``--calibrate`` that rank 0 reads.
        Collective."""
        _lib.kolo_comm_load_costs(self._open(), path.encode())

    def _counts(self, counts: Optional[Sequence[int]]) -> Any:
        if counts is None:
            return None
        if len(counts) != self.size:
            raise ValueError(f"{len(counts)} counts for {self.size} ranks")
        return integers("a count", "size_t", counts)

    def _needs(self, kind: str, count: int, counts: Optional[Sequence[int]],
               output_counts: Optional[Sequence[int]]) -> Tuple[int, int]:
        """The number of elements that this rank's data and output must have."""
        share = counts[self.rank] if counts is not None else count
        whole = sum(counts) if counts is not None else count * self.size
        if kind in ("allgather", "gather"):
            return share, whole
        if kind in ("reduce_scatter", "scatter"):
            return whole, share
        if kind == "alltoall":
            return whole, sum(output_counts) if output_counts is not None else whole
        return count, count

    def _options(self, kind: str, output: Any, given: Any = None, count: Optional[int] = None,
                 op: Op = "sum", root: int = 0, tag: int = 0,
                 counts: Optional[Sequence[int]] = None,
                 output_counts: Optional[Sequence[int]] = None, prescale: float = 0,
                 postscale: float = 0, algorithm: str = "auto", priority: int = 0,
                 site: Optional[str] = None) -> Tuple[Any, Tuple[Any, ...]]:
        """The options of a request, and the memory and operation they refer to."""
        own = isinstance(op, Operation)
        result = buffer_of(output, structures=own) if output is not None else None
        source = buffer_of(given, writable=False, structures=own) if given is not None else None
        if result is None and source is None and kind != "barrier":
            raise TypeError(f"{kind}: there is no array: it is None")
        if result and source and result.kind() != source.kind():
            raise TypeError(f"{kind}: input is {source.kind()}, output {result.kind()}")
        one = result or source or Buffer(None, 0, "u8")
        if count is None:
            count = one.count
        reads, writes = self._needs(kind, count, counts, output_counts)
        if source is None and kind == "reduce_scatter":
            writes = reads
        for name, memory, need in (("data", source, reads), ("output", result, writes)):
            if memory is not None and not 0 <= need <= memory.count:
                raise ValueError(f"{kind}: {name} has {memory.count} elements, not {need}")
        combines = kind in ("allreduce", "reduce", "reduce_scatter")
        opts = c.kolo_request_opts(kind=code_of("kolo_collective", "collective", kind),
                              dtype=DTYPES.index(one.dtype),
                              op=0 if isinstance(op, Operation) else
                              op_code(op, *((result, source) if combines else ())),
                              input=source.address if source else None,
                              output=result.address if result else None,
                              count=count,
                              counts=self._counts(counts),
                              output_counts=self._counts(output_counts), root=root, tag=tag,
                              prescale=prescale, postscale=postscale,
                              algorithm=code_of("kolo_algorithm", "algorithm", algorithm),
                              priority=priority, site=encoded(site))
        user_op = None
        if isinstance(op, Operation):
            user_op = op.bind(given if given is not None else output)
            opts.user_op = ctypes.pointer(user_op)
        return opts, (result, source, user_op)

    def _run(self, kind: str, output: Any, given: Any = None, timeout_s: float = 0,
             **options: Any) -> Any:
        opts, _memory = self._options(kind, output, given, **options)
        _lib.kolo_request_run(self._open(), ctypes.byref(opts), milliseconds(timeout_s))
        return output

    def request(self, kind: str, output: Any, data: Any = None, **options: Any) -> Request:
        """A persistent collective, send or receive; several may be in flight.

        ``kind`` is the name of a method ("allreduce", "reduce_scatter", "send", ...), ``output``
        the memory that is written (or read and written) and ``data`` the memory that is read.
        ``options``: ``count`` (elements, or elements per slice), ``counts``, ``output_counts``,
        ``op``, ``root`` (of messages: the peer), ``tag``, ``prescale``, ``postscale``,
        ``algorithm``, ``priority`` and ``site``, its name in errors.
        """
        opts, memory = self._options(kind, output, data, **options)
        return Request(self, opts, memory)

    def allreduce(self, data: Any, op: Op = "sum", timeout_s: float = 0, **options: Any) -> Any:
        """Combines ``data`` of all ranks in place: sum, min, max, prod or mean (of integers rounded
        towards zero); and, or, xor of integers; or an Operation of the program. ``options`` as for
        ``request``."""
        return self._run("allreduce", data, op=op, timeout_s=timeout_s, **options)

    def tree_nodes(self, shards: int) -> List[int]:
        """The nodes of the fixed tree over ``shards`` whose values this rank passes to
        ``allreduce_shards``: shard s is leaf P + s, where P is ``shards`` rounded up to a power of
        two; the value of node v combines those of its children, 2v and 2v + 1."""
        shards = integer("shards", shards, 1)
        nodes = (ctypes.c_uint32 * 62)()
        return nodes[:_lib.kolo_tree_nodes(shards, self.size, self.rank, nodes)]

    def allreduce_shards(self, values: Sequence[Any], output: Any, shards: int, op: str = "sum",
                         timeout_s: float = 0) -> Any:
        """Combines ``shards`` values; each rank passes those of its ``tree_nodes``. The result is
        bitwise independent of the number of ranks."""
        result, memory = buffer_of(output), [buffer_of(v) for v in values]
        names = self.tree_nodes(shards)
        if len(memory) != len(names) or any(m.dtype != result.dtype for m in memory):
            raise ValueError(f"allreduce_shards: {len(names)} values of {result.dtype} are needed")
        parts = (c.kolo_part * max(len(memory), 1))(
            *(c.kolo_part(tree_node=n, data=m.address, count=m.count) for n, m in zip(names, memory)))
        opts = c.kolo_request_opts(kind=code_of("kolo_collective", "collective", "allreduce"),
                              dtype=DTYPES.index(result.dtype),
                              op=op_code(op, result, *memory), output=result.address,
                              count=result.count, parts=parts, n_parts=len(memory), shards=shards)
        _lib.kolo_request_run(self._open(), ctypes.byref(opts), milliseconds(timeout_s))
        return output

    def broadcast(self, data: Any, root: int = 0, timeout_s: float = 0) -> Any:
        """Copies the root's ``data`` to all ranks."""
        return self._run("broadcast", data, root=root, timeout_s=timeout_s)

    def reduce(self, data: Any, op: Op = "sum", root: int = 0, timeout_s: float = 0) -> Any:
        """Like allreduce, with the result on the root only; ``data`` of others may be overwritten."""
        return self._run("reduce", data, op=op, root=root, timeout_s=timeout_s)

    def allgather(self, data: Any, output: Any, counts: Optional[Sequence[int]] = None,
                  timeout_s: float = 0) -> Any:
        """Concatenates the ``data`` of all ranks in ``output``: equal numbers of elements, or
        ``counts[rank]``."""
        count = self._share("allgather", output, data, counts)
        return self._run("allgather", output, data, count=count, counts=counts,
                         timeout_s=timeout_s)

    def gather(self, data: Any, output: Any = None, root: int = 0,
               counts: Optional[Sequence[int]] = None, timeout_s: float = 0) -> Any:
        """Like allgather, on the root only; the others need no ``output``."""
        mine = output if self.rank == root else None
        count = self._share("gather", mine, data, counts)
        self._run("gather", mine, data, count=count, counts=counts, root=root,
                  timeout_s=timeout_s)
        return output

    def scatter(self, data: Any, output: Any, root: int = 0,
                counts: Optional[Sequence[int]] = None, timeout_s: float = 0) -> Any:
        """Copies slice r of the root's ``data`` to ``output`` of rank r. The others need no
        ``data``."""
        given = data if self.rank == root else None
        count = self._share("scatter", given, output, counts)
        return self._run("scatter", output, given, count=count, counts=counts, root=root,
                         timeout_s=timeout_s)

    def reduce_scatter(self, data: Any, output: Any, op: Op = "sum",
                       counts: Optional[Sequence[int]] = None, timeout_s: float = 0) -> Any:
        """``data`` has a slice for each rank; ``output`` is this rank's slice, reduced."""
        count = self._share("reduce_scatter", data, output, counts, isinstance(op, Operation))
        return self._run("reduce_scatter", output, data, count=count, counts=counts, op=op,
                         timeout_s=timeout_s)

    def alltoall(self, data: Any, output: Any, counts: Optional[Sequence[int]] = None,
                 output_counts: Optional[Sequence[int]] = None, timeout_s: float = 0) -> Any:
        """Slice r of ``data`` goes to rank r; slice r of ``output`` comes from it. The slices are
        equal, or counts[r] elements go to rank r and output_counts[r] come from it."""
        sent, come = buffer_of(data, writable=False).count, buffer_of(output).count
        if counts is None:
            good = sent == come and sent % self.size == 0
        else:
            good = (sent, come) == (sum(counts), sum(output_counts or counts))
        if not good:
            raise ValueError(f"alltoall: {sent} elements for {self.size} ranks, "
                             f"{come} in the output")
        return self._run("alltoall", output, data, count=sent // self.size, counts=counts,
                         output_counts=output_counts, timeout_s=timeout_s)

    def _share(self, kind: str, whole: Any, share: Any, counts: Optional[Sequence[int]],
               structures: bool = False) -> int:
        """The number of elements of a slice; ``whole`` is None on ranks without it."""
        def count_of(data: Any) -> int:
            return buffer_of(data, writable=False, structures=structures).count

        share = count_of(share)
        want: int = share * self.size
        if counts is not None:
            self._counts(counts)
            want = sum(counts)
            if share != counts[self.rank]:
                raise ValueError(f"{kind}: {share} elements are not counts[{self.rank}]")
        if whole is not None and count_of(whole) != want:
            raise ValueError(f"{kind}: {count_of(whole)} elements are not "
                             + (f"{self.size} times {share}" if counts is None else
                                f"the sum of the counts, {want}"))
        return int(share)

    def send(self, data: Any, to: int, tag: int = 0, timeout_s: float = 0) -> None:
        """Sends ``data`` to rank ``to``; returns when it has been received. Messages between two ranks
        with the same tag, 0 or more, arrive in order."""
        self._run("send", None, data, root=to, tag=tag, timeout_s=timeout_s)

    def recv(self, data: Any, source: int, tag: int = 0, timeout_s: float = 0) -> Any:
        """Receives ``data`` from rank ``source``, or from any with kolo.ANY_RANK; the number of
        elements must match."""
        return self._run("recv", data, root=source, tag=tag, timeout_s=timeout_s)

    def probe(self, source: int = ANY_RANK, tag: int = 0) -> Optional[Dict[str, Any]]:
        """The oldest message that no receive has taken, as a dictionary of source, tag, dtype and
        count; None if there is none."""
        found, message = ctypes.c_bool(), c.kolo_message()
        _lib.kolo_probe(self._open(), source, tag, ctypes.byref(found),
                        ctypes.byref(message))
        if not found.value:
            return None
        return {"source": getattr(message, "from"), "tag": message.tag,
                "dtype": DTYPES[message.dtype], "count": message.count}

    def barrier(self) -> None:
        """Blocks until all ranks have called it."""
        _lib.kolo_barrier(self._open())

    def alloc(self, count: int, dtype: str = "f32") -> Any:
        """A memoryview of zeroed, registered memory, on which collectives are zero-copy. It is valid
        as long as the communicator. f16 and bf16 have format "H": collectives take the view and its
        slices as what they are, but arrays of numpy made of it as u16, so give these as a Buffer.
        Complex numbers are pairs of "f" or "d"."""
        sizes = {"f32": (4, "f"), "f64": (8, "d"), "f16": (2, "H"), "bf16": (2, "H"),
                 "i8": (1, "b"), "u8": (1, "B"), "i32": (4, "i"), "i64": (8, "q"), "i16": (2, "h"),
                 "u16": (2, "H"), "u32": (4, "I"), "u64": (8, "Q"), "c64": (8, "f"), "c128": (16, "d")}
        dtype = DTYPES[code_of("kolo_dtype", "type", dtype)]
        size, letter = sizes[dtype]
        count = integer("count", count, 0, (2**63 - 1) // size)
        memory: Any = (ctypes.c_char * (count * size)).from_address(self.alloc_bytes(count * size))
        memory.comm = self  # keeps the communicator alive
        memory.half = dtype if dtype in ("f16", "bf16") else None
        view: Any = memoryview(memory).cast("B")
        return view.cast(letter)

    def alloc_bytes(self, count: int) -> int:
        """The address of ``count`` bytes of registered memory, valid as long as the communicator."""
        address = ctypes.c_void_p()
        _lib.kolo_comm_alloc(self._open(), count, ctypes.byref(address))
        return address.value or 0

    def keep_memory(self) -> None:
        """Keeps the registered memory valid when the communicator is closed, until the process ends."""
        _lib.kolo_comm_keep_memory(self._open())

    def allreduce_async(self, name: str, data: Any, op: str = "sum") -> Handle:
        """Posts a named tensor for an in-place allreduce; the order may differ between ranks. ``wait``
        for the handle before using ``data``. Type, size and operation of a name are fixed."""
        if not self._named:
            self._named = ctypes.c_void_p()
            _lib.kolo_named_create(self._open(), None, ctypes.byref(self._named))
        memory, number = buffer_of(data), ctypes.c_int()
        _lib.kolo_named_post(self._named, name.encode(), memory.address, memory.count,
                             DTYPES.index(memory.dtype),
                             op_code(op, memory), ctypes.byref(number))
        return Handle(self, number.value, memory, data)

    def abort(self, reason: str = "aborted by the program") -> None:
        """Breaks the communicator on all ranks, also while other threads wait in it."""
        _lib.kolo_comm_abort(self._open(), reason.encode())

    def progress(self) -> None:
        """Advances communication; does not block."""
        _lib.kolo_comm_progress(self._open())

    def report(self) -> str:
        """The ranks that this one waits for, in which call, and what they completed last."""
        text = ctypes.create_string_buffer(1024)
        _lib.kolo_comm_report(self._open(), text, len(text))
        return text.value.decode(errors="replace")

    def peer_traffic(self, peer: int) -> Dict[str, int]:
        """What this rank has exchanged with another one: a dictionary of sent_bytes,
        received_bytes, sends and receives."""
        traffic = c.kolo_peer_traffic()
        _lib.kolo_comm_peer_traffic(self._open(), peer, ctypes.byref(traffic))
        return {name: getattr(traffic, name) for name, _ in traffic._fields_}

    def set_hook(self, hook: Optional[Callable[[Event], None]]) -> None:
        """Calls ``hook`` with an Event whenever a collective or message of this communicator or of its sub-groups
        begins and ends; None: not any more. It may be called in any thread, must not use the communicator, and its
        exceptions are only printed. Not of a sub-group."""
        function = c.kolo_comm_hook(calling(hook) if hook else 0)
        _lib.kolo_comm_set_hook(self._open(), function, None)
        self._hook = function  # keeps it alive


class Handle(NotCopied):
    """A named tensor in flight; keeps its memory alive."""

    def __init__(self, comm: Comm, number: int, memory: Buffer, data: Any) -> None:
        self._comm, self._number, self._memory, self._data = comm, number, memory, data

    def test(self) -> bool:
        """Whether it is complete; never blocks."""
        complete = ctypes.c_bool()
        self._comm._open()
        _lib.kolo_named_test(self._comm._named, self._number, ctypes.byref(complete))
        return complete.value

    def wait(self, timeout_s: float = 0) -> Any:
        """Blocks until it is complete; returns the data."""
        self._comm._open()
        _lib.kolo_named_wait(self._comm._named, self._number, milliseconds(timeout_s))
        return self._data


class Request(NotCopied):
    """A collective or message of ``Comm.request``. Its memory must not be used between ``start`` and
    completion."""

    def __init__(self, comm: Comm, opts: Any, memory: Tuple[Any, ...]) -> None:
        self._comm, self._memory = comm, memory
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        _lib.kolo_request_create(comm._open(), ctypes.byref(opts),
                                 ctypes.byref(self._handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and _lib:
            self.close()

    def _open(self) -> ctypes.c_void_p:
        self._comm._open()
        if not self._handle:
            raise ValueError("the request is closed")
        return self._handle

    def start(self) -> Request:
        """Starts it; does not block. Returns self."""
        _lib.kolo_request_start(self._open())
        self._comm._flying.add(self)  # keeps it alive while in flight
        return self

    def test(self) -> bool:
        """Whether it is complete; never blocks."""
        complete = ctypes.c_bool()
        _lib.kolo_request_test(self._open(), ctypes.byref(complete))
        if complete.value:
            self._comm._flying.discard(self)
        return complete.value

    def wait(self, timeout_s: float = 0) -> None:
        """Blocks until it is complete."""
        _lib.kolo_request_wait(self._open(), milliseconds(timeout_s))
        self._comm._flying.discard(self)

    def source(self) -> int:
        """The rank from which a receive has taken its message."""
        return int(_lib.kolo_request_source(self._open()))

    def close(self) -> None:
        """Frees it; not while it is in flight."""
        with self._comm._destroying:
            if self._handle and self._comm._exists():
                _lib.kolo_request_destroy(self._handle)
            self._handle = None
