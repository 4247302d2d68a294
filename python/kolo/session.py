"""Sessions: training of a network with data and loop of a program."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from contextlib import contextmanager
from typing import (Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, Union)

from . import _arrays, _errors, _options, _signals, custom_op
from ._arrays import Array
from ._bindings import NotCopied, c, finalize, names_of
from ._bindings import lib as _comm
from ._bindings import training as _lib
from .comm import Comm
from .data import Dataset, Normalize, as_dataset
from .graph import DTYPES, Graph, read_shape

_ERR_ARG = 1
_OPTIMIZER_OPTIONS = _options.settable("kolo_optimizer_opts", ["kind"])
_SESSION_OPTIONS = _options.settable("kolo_session_opts", ["optimizer"])
_FIT_OPTIONS = _options.settable("kolo_fit_opts", ["observer", "stop", "interrupted",
                                                   "preempted", "arg", "notice", "notice_arg"])

_CALLBACK = "callback"  # among the calls of a session

Builder = Callable[[Graph], Any]
Metrics = Dict[str, float]


def _metric_names() -> List[str]:
    table = _lib.kolo_metric_table()
    names: List[str] = []
    while table[len(names)].name:
        names.append(table[len(names)].name.decode())
    return names


def _read_metrics(metrics: Any) -> Metrics:
    """Those that the model and data have, and the loss."""
    found = dict(zip(_metric_names(), metrics.value))
    return {n: v for n, v in found.items() if n == "loss" or v == v}  # pylint: disable=comparison-with-itself


def _text(metrics: Metrics, prefix: str = "") -> str:
    return "  ".join(f"{prefix}{name} {value:.4f}" for name, value in metrics.items())


class Progress(NamedTuple):
    """Progress of a run. As text a line for people: ``fit(..., callback=print)``."""

    epoch: int  # from 1
    step: int  # from 1, over the run
    total_steps: int
    train: Metrics  # since the last report; with epoch_end, over the epoch
    test: Metrics  # empty if not evaluated
    samples: int  # that `train` covers
    samples_per_second: float
    lr: float
    seconds: float
    seconds_left: float
    epoch_end: bool
    evaluated: bool

    def __str__(self) -> str:
        test = "  " + _text(self.test, "test ") if self.evaluated else ""
        return (f"epoch {self.epoch}  step {self.step}/{self.total_steps}  {_text(self.train)}  "
                f"lr {self.lr:.3g}  {self.seconds:.1f} s{test}")


class Result(NamedTuple):
    """The result of a run."""

    steps: int
    epochs: int
    samples: int
    parameters: int
    first_loss: float
    final: Metrics  # over the last 20 steps
    test: Metrics  # empty if not evaluated
    train_seconds: float
    samples_per_second: float
    step_ms_median: float
    step_ms_quantiles: List[float]  # the fastest step, the quantiles at 5 %, ..., 95 %, and the slowest step
    peak_rss_bytes: int
    parameter_hash: int  # of the final parameters and optimizer state
    ms_per_step: Dict[str, float]  # where a step spent its time; the mean over workers
    slowest_rank: int  # the worker that the others waited for
    preempted: bool = False  # it has a checkpoint in out_dir, to resume from

    def __str__(self) -> str:
        test = "  " + _text(self.test, "test ") if self.test else ""
        return (f"{self.steps} steps, {self.epochs} epochs, {self.train_seconds:.1f} s  "
                f"{_text(self.final)}{test}")


def _read_times(times: Any) -> Dict[str, float]:
    return dict(zip(names_of("kolo_time"), times.ms))


def _progress(p: Any) -> Progress:
    return Progress(epoch=p.epoch, step=p.step, total_steps=p.total_steps,
                    train=_read_metrics(p.train),
                    test=_read_metrics(p.test) if p.evaluated else {}, samples=p.samples,
                    samples_per_second=p.samples_per_second, lr=p.lr, seconds=p.seconds,
                    seconds_left=p.seconds_left, epoch_end=p.epoch_end, evaluated=p.evaluated)


def _refuse_child(what: str, process: int) -> None:
    """Raises an error in a process forked from the one that made an object: the threads that it waits for exist
    there alone."""
    if os.getpid() != process:
        raise _errors.ArgumentError("KOLO_ERR_ARG", f"the {what} belongs to the parent process, from which this one "
                                    "was forked: make another one here")


class _Parallel:
    """The process that has made a session of several threads. OpenMP does not start them again in a child that is
    forked from it: kernels there would wait for ever."""

    process: Optional[int] = None

    @staticmethod
    def enter(threads: int) -> None:
        """Before a session is made."""
        if threads < 2:
            return
        if _Parallel.process not in (None, os.getpid()):
            raise _errors.UnsupportedError(
                "KOLO_ERR_UNSUPPORTED", f"a session of {threads} threads in a process that was forked from one with "
                'such sessions: start the process by another method of multiprocessing, such as "spawn", or make '
                "sessions with threads=1 in it")
        _Parallel.process = os.getpid()


class Batch(NotCopied):
    """A batch of a loader: an argument of ``Session.step``, and a mapping of arrays. The arrays are
    the loader's memory, valid until its next batch, or until it is closed."""

    def __init__(self, value: Any, loader: Loader) -> None:
        self._value, self._loader, self._number = value, loader, loader.taken
        self.count, self.global_count = int(value.count), int(value.global_count)
        self.first, self.epoch, self.step = int(value.first), int(value.epoch), int(value.step)

    @property
    def value(self) -> Any:
        """The kolo_batch, while its memory is valid."""
        if not self._loader.is_open():
            raise ValueError("the loader of the batch is closed")
        if self._number != self._loader.taken:
            raise ValueError(f"the batch of step {self.step} is not valid any more: its loader has gone on to the "
                             "next one in its memory; copy what is needed longer")
        return self._value

    def keys(self) -> List[str]:
        """The names of the fields."""
        return [self.value.fields[i].name.decode() for i in range(self.value.n_fields)]

    def __getitem__(self, name: str) -> Array:
        i = self.keys().index(name)
        field = self.value.fields[i]
        return _arrays.view(self.value.data[i], DTYPES[field.dtype],
                            (self.count, *read_shape(field.shape)), self._loader)


class Loader(NotCopied):
    """Iterates over this rank's batches of full steps, which a thread gathers ahead."""

    def __init__(self, session: Session, dataset: Dataset, handle: ctypes.c_void_p) -> None:
        self._handle, self._dataset = handle, dataset
        self.taken = 0  # batches
        self._process = os.getpid()
        self._finalizer = finalize(self, _lib.kolo_loader_destroy, handle, session, dataset)

    def is_open(self) -> bool:
        """Whether neither it nor its session has been closed."""
        return bool(self._finalizer.alive)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if not self.is_open():
            raise ValueError("the loader is closed")
        _refuse_child("loader", self._process)
        batch = c.kolo_batch()
        self.taken += 1
        with _failures_of(self._dataset):
            _lib.kolo_loader_next(self._handle, ctypes.byref(batch))
        if batch.global_count == 0:
            raise StopIteration
        return Batch(batch, self)

    def close(self) -> None:
        """Ends its thread. Arrays of its batches become invalid."""
        self._finalizer()


@contextmanager
def _failures_of(*datasets: Optional[Dataset]) -> Iterator[None]:
    """Replaces the library's error by the exception of a data set's function, if there is one."""
    try:
        yield
    except _errors.Error:
        for dataset in datasets:
            if dataset is not None:
                dataset.raise_failure()
        raise


def _tensors_of(handle: Any) -> Dict[str, Tuple[str, Tuple[int, ...]]]:
    found: Dict[str, Tuple[str, Tuple[int, ...]]] = {}
    field = c.kolo_field()
    while True:
        try:
            _lib.kolo_session_tensor(handle, len(found), ctypes.byref(field))
        except _errors.ArgumentError:
            return found
        found[field.name.decode()] = (DTYPES[field.dtype], read_shape(field.shape))


def _read_result(result: Any) -> Result:
    return Result(steps=result.steps, epochs=result.epochs, samples=result.samples,
                  parameters=result.parameters, first_loss=result.first_loss,
                  final=_read_metrics(result.final),
                  test=_read_metrics(result.test) if result.evaluated else {},
                  train_seconds=result.train_seconds, samples_per_second=result.samples_per_second,
                  step_ms_median=result.step_ms_median,
                  step_ms_quantiles=list(result.step_ms_quantiles),
                  peak_rss_bytes=result.peak_rss_bytes, parameter_hash=result.parameter_hash,
                  preempted=result.preempted, ms_per_step=_read_times(result.times.mean),
                  slowest_rank=result.times.slowest)


def _set_callbacks(opts: Any, callback: Optional[Callable[[Progress], Any]],
                   progress: Optional[Callable[[Progress], Any]],
                   notice: Optional[Callable[[str], Any]],
                   preempted: Optional[Callable[[], Any]], calls: List[str]) -> List[BaseException]:
    """Sets the callbacks of a kolo_fit_opts, which are entered in the ``calls`` of the session. Returns the list
    in which their exceptions are put."""
    failures: List[BaseException] = []

    def guarded(function: Callable[[Any], Any], argument: Any) -> bool:
        calls.append(_CALLBACK)
        try:
            return not failures and bool(function(argument))
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)
            return True
        finally:
            calls.pop()

    opts.interrupted = c.interrupted(_errors.interrupted(failures))
    if callback:
        opts.stop = c.kolo_fit_stop(
            lambda _, p: guarded(callback, _progress(p.contents)) or bool(failures))
    if progress:
        opts.observer = c.kolo_train_observer(
            lambda _, p: None if guarded(progress, _progress(p.contents)) else None)
    if preempted:
        opts.preempted = c.interrupted(
            lambda _: guarded(lambda _: preempted(), None) and not failures)
    if notice:
        opts.notice = c.kolo_train_notice(
            lambda _, line, kind: None if guarded(notice, line.decode()) else None)
    return failures


class _Build:
    """The builder of a program as a function of C."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.failures: List[BaseException] = []
        self.function = c.kolo_build(self._build)

    def _build(self, handle: int, samples: int, _arg: Any) -> int:
        graph = Graph(samples, _handle=handle)
        try:
            self.builder(graph)
            return 0
        except _errors.Error as failure:
            self.failures.append(failure)
            code = _errors.code(failure.status)
            return int(_comm.kolo_error_set(code, b"%s", str(failure).encode(errors="backslashreplace")))
        except BaseException as failure:  # pylint: disable=broad-except
            self.failures.append(failure)
            return int(_comm.kolo_error_set(_ERR_ARG, b"%s", _errors.text_of(failure)))
        finally:
            graph.complete()


class Session(NotCopied):
    """Trains a network, alone or as a rank of ``comm``.

        def build(g):
            x, y = g.input("x", (8,)), g.input("y", dtype="i32")
            logits = nn.linear(x, 3)
            g.output(logits=logits, loss=ops.softmax_xent(logits, y))

        session = Session(build, kolo.init(), batch=32, lr=0.1)

    ``build`` adds the network to a graph, for several numbers of samples; parameters must not depend on
    it. It is a function or a kolo.Model.

    ``mesh`` ("dp=2,tp=2") divides the model over the ranks on axes other than dp: tp by the rules of
    ``placement`` (a name, a file, or the rules, a line each), sp, ep, and pp, whose stages follow the schedule
    ``pipeline`` ("interleaved:2"). The ranks of a place on dp then pass the same samples (``share``), and
    ``step``, ``evaluate``, ``predict``, ``get`` and ``gradient`` are collective; tensors and outputs are whole
    on every rank. ``fit`` trains on the mesh of its session.

    ``sync="ps"`` or ``"mesh"`` has owners of the parameters, which make the updates: the workers, or the last
    ``servers`` ranks, which only serve (``is_server``, ``serve``). ``consistency`` is then "bsp", "bsp:drop=1",
    "ssp:3", "asp" or "auto"; with others than "bsp" a ``step`` is of this worker alone, and not collective.

    Options are those of kolo_session_opts and kolo_optimizer_opts: ``batch`` (samples of a rank in a
    step), ``global_batch``, ``accumulate``, ``reproducible``, ``tp_blocks``, ``zero``, ``consistency`` ("lag:1", "local:50",
    "bmuf:50", "diloco:50"), ``compress`` ("int8"), ``compress_min_bytes``, ``stage_bytes``,
    ``rebalance_stages``, ``worker_weights``, ``seed``, ``threads``, ``device``; ``optimizer``, ``lr``, ``momentum``, ``beta1``,
    ``beta2``, ``eps``, ``weight_decay``, ``no_decay``, ``decay_matrices_only``, ``clip``, ``freeze``;
    ``schedule`` with ``steps``, ``warmup_steps``, ``lr_min``, ``lr_power``, ``lr_step_factor``,
    ``lr_step_every``; ``precision``, ``recompute``, ``algorithm``, ``bucket_bytes``, ``sparse_embedding``,
    ``sync_bn``, ``keep_gradients``, ``evaluate_only``, ``reference_kernels``, ``no_winograd``,
    ``no_chains``; ``f64`` computes in f64, to check a network: without ``fit``, ``loader`` and
    ``export_onnx``. Names, such as those of optimizers and schedules, are those that `kolo help train`
    lists.

    Functions marked *collective* are called by all ranks in one order. A session is used by one thread
    at a time; others wait.
    """

    def __init__(self, build: Builder, comm: Optional[Comm] = None, optimizer: str = "sgd", *,
                 mesh: Optional[str] = None, placement: Union[str, os.PathLike[str], None] = None,
                 pipeline: Optional[str] = None, sync: str = "allreduce", servers: int = 0,
                 consistency: Optional[str] = None, **options: Any) -> None:
        opts = c.kolo_session_opts()
        opts.optimizer.kind = _options.code_of("kolo_optimizer", "optimizer", optimizer)
        strategy = {"mesh": mesh, "placement": placement, "pipeline": pipeline, "sync": sync, "servers": servers,
                    "consistency": consistency}
        rest = _options.fill(opts, {**options, **strategy}, _SESSION_OPTIONS)
        rest = _options.fill(opts.optimizer, rest, _OPTIMIZER_OPTIONS)
        _options.refuse("Session", rest, [*_SESSION_OPTIONS, *_OPTIMIZER_OPTIONS])
        self._comm, self._build, self._lock = comm, _Build(build), threading.RLock()
        self._real = "f64" if opts.f64 else "f32"
        self._calls: List[str] = []  # in progress in the thread that has the lock, and callbacks of fit in them
        self._loaders: weakref.WeakSet[Loader] = weakref.WeakSet()
        self._handle: Any = ctypes.c_void_p()
        self._process = os.getpid()
        _Parallel.enter(opts.threads)
        _signals.use_alternate_stack()
        with self._building():
            _lib.kolo_session_create(comm.handle() if comm else None, ctypes.byref(opts),
                                     self._build.function, None, ctypes.byref(self._handle))
        self._finalizer = finalize(self, _lib.kolo_session_destroy, self._handle, comm, opts,
                                   self._build)
        if comm:
            comm.add_user(self)

    @contextmanager
    def _building(self) -> Iterator[None]:
        """A call that may run the builder, or ops of the program: their exception replaces the library's
        error."""
        self._build.failures.clear()
        custom_op.take_failure()
        with _signals.holding():
            try:
                yield
            except _errors.Error:
                failure = custom_op.take_failure()
                if self._build.failures:
                    raise self._build.failures[0] from None
                if failure:
                    raise failure from None
                raise

    def _refuse_nested(self, call: str, in_callback: bool) -> None:
        """Raises an error for a call from within another one: from a builder, an op, or a callback of ``fit``
        unless ``in_callback``. It would change or free what the other one uses."""
        if self._calls and not (in_callback and self._calls[-1] == _CALLBACK):
            outer = [name for name in self._calls if name != _CALLBACK][-1]
            place = "a callback of fit" if self._calls[-1] == _CALLBACK else f"a function that {outer} calls"
            raise _errors.ArgumentError(
                "KOLO_ERR_ARG", f"{call} in {place}: the session is in use until {outer} returns")

    @contextmanager
    def _use(self, call: str, in_callback: bool = True) -> Iterator[Any]:
        _refuse_child("session", self._process)  # before the lock, which a thread of the parent may have
        with self._lock:
            self._refuse_nested(call, in_callback)
            if not self._handle:
                raise ValueError("the session is closed")
            self._calls.append(call)
            try:
                with self._building():
                    yield self._handle
            finally:
                self._calls.pop()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def is_server(self) -> bool:
        """Whether this rank is a server, which only serves."""
        with self._use("is_server") as handle:
            return bool(_lib.kolo_session_is_server(handle))

    def serve(self) -> None:
        """On a server: returns when all workers have closed their sessions. Raises a PeerError if one was
        lost, or has ended after an error."""
        with self._use("serve", in_callback=False) as handle:
            _lib.kolo_session_serve(handle)

    def close(self) -> None:
        """Frees the session and its loaders. On ranks that own parameters it waits for the other workers. Does
        nothing in a forked child."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._refuse_nested("close", False)
            for loader in list(self._loaders):
                loader.close()
            self._handle = None
            self._finalizer()

    # ---- training ----

    @contextmanager
    def _batch(self, batch: Union[Batch, Mapping[str, Any], None],
               fields: Mapping[str, Any], normalize: Optional[Normalize]) -> Iterator[Any]:
        if isinstance(batch, Batch):
            yield ctypes.byref(batch.value)
            return
        named = {} if batch is None else _arrays.check_named(batch)
        held = _arrays.Fields(c.kolo_batch, {**named, **fields}, normalize,
                              _arrays.FORMATS[self._real])
        yield ctypes.byref(held.value)

    def share(self, samples: int) -> slice:
        """The samples of a step of ``samples`` over all ranks that are this rank's, as a slice."""
        first, count = ctypes.c_int64(), ctypes.c_int64()
        with self._use("share") as handle:
            _lib.kolo_session_share(handle, samples, ctypes.byref(first), ctypes.byref(count))
        return slice(first.value, first.value + count.value)

    def step(self, batch: Union[Batch, Mapping[str, Any], None] = None, *,
             normalize: Optional[Normalize] = None, **fields: Any) -> Metrics:
        """One optimizer step on this rank's share of the samples (``share``): ``step(x=images,
        y=labels)``, ``step({"x": images, "y": labels})``, or a batch of a loader. Returns the metrics
        over all ranks before the update. Collective."""
        metrics = c.kolo_metrics()
        with self._use("step", in_callback=False) as handle, self._batch(batch, fields, normalize) as held:
            _lib.kolo_session_step(handle, held, ctypes.byref(metrics))
        return _read_metrics(metrics)

    def loader(self, dataset: Union[Dataset, Mapping[str, Any]], epochs: int = 1,
               augment: Optional[str] = None) -> Loader:
        """Batches of full steps, shuffled by the seed in each epoch, from the step of the session to
        the end of epoch ``epochs``."""
        data, found = as_dataset(dataset), ctypes.c_void_p()
        with self._use("loader") as handle:
            _lib.kolo_session_loader(handle, data.handle, os.fsencode(augment) if augment else None,
                                     epochs, ctypes.byref(found))
        loader = Loader(self, data, found)
        self._loaders.add(loader)
        return loader

    @property
    def steps(self) -> int:
        """Steps completed."""
        with self._use("steps") as handle:
            return int(_lib.kolo_session_steps(handle))

    @property
    def lr(self) -> float:
        """The learning rate of the next step; setting it replaces the schedule."""
        with self._use("lr") as handle:
            return float(_lib.kolo_session_lr(handle))

    @lr.setter
    def lr(self, rate: float) -> None:
        with self._use("lr") as handle:
            _lib.kolo_session_set_lr(handle, rate)

    def fit(self, train: Union[Dataset, Mapping[str, Any]],
            test: Union[Dataset, Mapping[str, Any], None] = None, *, epochs: int = 0,
            callback: Optional[Callable[[Progress], Any]] = None,
            progress: Optional[Callable[[Progress], Any]] = None,
            notice: Optional[Callable[[str], Any]] = None,
            preempted: Optional[Callable[[], Any]] = None, **options: Any) -> Result:
        """Trains on a data set or on arrays, as `kolo train` does: ``fit({"x": images, "y": labels},
        epochs=5, callback=print)``. Collective. ``epochs``, and the option ``steps``, are counted from the first
        step of the session: a second run with ``epochs=5`` has none left and is refused; with 8 it has three more.

        ``callback`` is called on rank 0 after each epoch and evaluation; if it returns True the run
        ends on all ranks. ``progress`` is called on rank 0 about ten times a second, ``notice`` with
        lines for the user. They may read the session (``predict``, ``get``), set tensors and save files, but
        not call ``step``, ``fit``, ``load`` and ``close``, and what is collective is refused in them where
        there are several ranks; their exceptions end the run. ``preempted`` is
        called about once a second on each rank that gives it: if one returns True, as after SIGTERM,
        the run ends on all ranks with a checkpoint in ``out_dir`` to resume
        from. Options are those of kolo_fit_opts: ``steps``, ``augment``, ``out_dir``,
        ``checkpoint_steps``, ``checkpoint_epochs``, ``checkpoint_seconds``, ``keep``,
        ``wait_for_saves``, ``keep_best``, ``patience``, ``save_error``, ``resume``, ``resume_if_any``,
        ``eval_every``, ``eval_steps``, ``log_every``, ``audit``, ``check_replicas``,
        ``worker_weights``, ``trace``.
        """
        opts, result = c.kolo_fit_opts(epochs=epochs), c.kolo_train_result()
        _options.refuse("fit", _options.fill(opts, options, _FIT_OPTIONS), _FIT_OPTIONS)
        failures = _set_callbacks(opts, callback, progress, notice, preempted, self._calls)
        data, tested = as_dataset(train), None if test is None else as_dataset(test)
        try:
            with self._use("fit", in_callback=False) as handle, _failures_of(data, tested):
                _lib.kolo_fit(handle, data.handle, tested.handle if tested else None,
                              ctypes.byref(opts), ctypes.byref(result))
        except _errors.Error:
            if failures:
                raise failures[0] from None
            raise
        if failures:
            raise failures[0]
        return _read_result(result)

    # ---- evaluation ----

    def evaluate(self, batch: Union[Dataset, Batch, Mapping[str, Any], None] = None, *,
                 normalize: Optional[Normalize] = None, **fields: Any) -> Metrics:
        """The metrics over a data set, divided among the ranks (collective), or over a batch of this
        rank (collective with ``zero=3`` or a mesh of other axes than dp alone)."""
        metrics = c.kolo_metrics()
        if isinstance(batch, Dataset):
            with self._use("evaluate") as handle, _failures_of(batch):
                _lib.kolo_session_evaluate_dataset(handle, batch.handle, ctypes.byref(metrics))
        else:
            with self._use("evaluate") as handle, self._batch(batch, fields, normalize) as held:
                _lib.kolo_session_evaluate(handle, held, ctypes.byref(metrics))
        return _read_metrics(metrics)

    def predict(self, output: str, batch: Union[Batch, Mapping[str, Any], None] = None, *,
                out: Any = None, normalize: Optional[Normalize] = None, **fields: Any) -> Array:
        """An output of the graph for a batch, as in evaluation: ``predict("logits", x=images)``. Inputs
        that it does not depend on may be missing. ``out``: an array or tensor to write to. Collective with
        ``zero=3`` or a mesh of other axes than dp alone."""
        shape, name = c.kolo_shape(), output.encode()
        with self._use("predict") as handle, self._batch(batch, fields, normalize) as held:
            _lib.kolo_session_predict(handle, held, name, None, 0, ctypes.byref(shape))
            array = _arrays.output(out, self._real, read_shape(shape))
            _lib.kolo_session_predict(handle, held, name, _arrays.address(array), array.nbytes,
                                      ctypes.byref(shape))
        return array

    # ---- parameters ----

    def tensors(self) -> Dict[str, Tuple[str, Tuple[int, ...]]]:
        """Type and shape of parameters, statistics and, as "optimizer.*", the optimizer's state."""
        with self._use("tensors") as handle:
            return _tensors_of(handle)

    def _read(self, call: str, function: Any, name: str, out: Any) -> Array:
        with self._use(call) as handle:
            dtype, shape = _tensors_of(handle).get(name, ("f32", ()))
            array = _arrays.output(out, dtype, shape)
            function(handle, name.encode(), _arrays.address(array), array.nbytes)
        return array

    def get(self, name: str, out: Any = None) -> Array:
        """A copy of a tensor, or ``out``, which it is written to. Collective for what ``zero``
        divides, and on a mesh of other axes than dp."""
        return self._read("get", _lib.kolo_session_get, name, out)

    def gradient(self, name: str, out: Any = None) -> Array:
        """The gradient of a parameter in the latest step, of the mean loss over all ranks; the option
        ``keep_gradients`` keeps it. Collective on a mesh of other axes than dp."""
        return self._read("gradient", _lib.kolo_session_get_gradient, name, out)

    def set(self, name: str, value: Any) -> None:
        """Sets a tensor on all ranks to the ``value`` of rank 0. Collective."""
        with self._use("set") as handle:
            dtype, shape = _tensors_of(handle).get(name, ("f32", ()))
            what = f"the value of {name!r}"
            array = _arrays.as_type(what, _arrays.as_array(what, value), _arrays.FORMATS[dtype])
            if array.shape != shape and name in _tensors_of(handle):
                raise ValueError(f"{name!r} is {list(shape)}, and the value {list(array.shape)}")
            _lib.kolo_session_set(handle, name.encode(), _arrays.address(array), array.nbytes)

    # ---- files ----

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes parameters, statistics, optimizer state and the number of steps to a safetensors
        file, on rank 0. Collective."""
        with self._use("save") as handle:
            _lib.kolo_session_save(handle, os.fsencode(path))

    def export_onnx(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the output "logits" with the parameters, for evaluation and any number of samples,
        to an ONNX file, on rank 0. Collective."""
        with self._use("export_onnx") as handle:
            _lib.kolo_session_export_onnx(handle, os.fsencode(path))

    def load(self, path: Union[str, os.PathLike[str]]) -> None:
        """Loads such a file, to go on as if not interrupted; of a file without optimizer state, the
        weights. Collective."""
        with self._use("load", in_callback=False) as handle:
            _lib.kolo_session_load(handle, os.fsencode(path))

    def load_partial(self, path: Union[str, os.PathLike[str]]) -> List[str]:
        """Loads the weights that fit by name and shape; returns a line for each tensor that was not
        loaded. Collective."""
        rest = ctypes.c_void_p()
        with self._use("load_partial") as handle:
            _lib.kolo_session_load_partial(handle, os.fsencode(path), ctypes.byref(rest))
        return take_text(rest).splitlines()


def take_text(text: ctypes.c_void_p) -> str:
    """A text of the library, which is freed."""
    found = ctypes.string_at(text.value).decode(errors="replace") if text.value else ""
    _lib.kolo_checkpoint_text_free(text)
    return found
