"""Ops of a program: subclasses of Op, whose kernels are functions on numpy arrays."""

from __future__ import annotations

import ctypes
import re
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

from . import _arrays, _errors, _signals
from ._arrays import Array
from ._bindings import c
from ._bindings import lib as _comm
from ._bindings import training as _lib
from .graph import DTYPES, Graph, Value, dtype_code, make_shape, read_shape

_ERR_ARG = 1
_VERSION = 1  # KOLO_CUSTOM_OP_VERSION
_MAX_IO, _MAX_ATTRS = 8, 12
_REAL = ("f32", "f64")


class Tensor(NamedTuple):
    """Type and shape of an input or output, such as ("f32", (64, 10))."""

    dtype: str
    shape: Tuple[int, ...]


class Op:
    """An operation with kernels in Python. A subclass defines it, an instance adds it to a graph:

        class Snake(kolo.Op):
            index = "nc,c->nc"

            def forward(self, inputs, outputs):
                x, alpha = inputs
                outputs[0][:] = x + np.sin(alpha * x) ** 2 / alpha

            def backward(self, inputs, d_outputs, d_inputs):
                x, alpha = inputs
                dy, = d_outputs
                d_inputs[0][:] = dy * (1 + np.sin(2 * alpha * x))
                d_inputs[1][:] = ...

        y = Snake()(x, g.param("alpha", (64,), "ones"))

    Each call of a kernel must depend on its arguments and the attributes alone. Its arrays are the
    memory of the session, contiguous, of type float32, float64 (sessions with f64) or of integers; they
    are valid during the call, and inputs are read-only. An exception ends the step on all ranks.

    ``index`` states what the op does along each dimension, as in <kolo/custom_op.h>: a letter each,
    inputs first; a capital letter is a dimension that the op needs whole, ``*`` any further ones, and an
    output without a letter is a sum over it. With several ranks the kernels get a part of what has a
    small letter, so an op on activations needs it; a wrong one gives wrong results there. No term
    begins with the letter s, which is reserved.

    Kernels run on an instance that is made anew with the attributes: other members are refused.
    """

    name = ""  # in messages and dumps; "": the class's name in lower case
    index: Optional[str] = None
    inputs = 1  # with an index those that it has
    outputs = 1
    linear: Sequence[int] = ()  # numbers of the inputs in which the op is linear
    attributes: Sequence[str] = ()  # numbers that are given to the class, and members of the instance

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ != __name__:
            _signals.ENTRIES.update(_callbacks)

    def __init__(self, **attributes: float) -> None:
        if set(attributes) != set(self.attributes):
            raise TypeError(f"{type(self).__name__} takes the attributes "
                            f"{', '.join(self.attributes) or 'none'}: not {', '.join(attributes) or 'none'}")
        for name, value in attributes.items():
            setattr(self, name, float(value))

    def shape(self, *inputs: Tensor) -> Union[Tensor, Sequence[Tensor]]:
        """Type and shape of the outputs; here those of the first input. With several ranks the inputs
        are those of a rank's part. An exception refuses the inputs."""
        return [inputs[0]] * self.counts()[1]

    def forward(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Writes the outputs, which are not cleared before; returns None."""
        raise NotImplementedError

    def backward(self, inputs: Sequence[Array], d_outputs: Sequence[Array],
                 d_inputs: Sequence[Any]) -> None:
        """Writes the gradients of the inputs: an array for each, or None for integers. ``d_outputs`` has
        zeros for outputs that the loss does not depend on."""
        raise NotImplementedError

    def gradient(self, inputs: Sequence[Value], outputs: Sequence[Value],
                 d_outputs: Sequence[Optional[Value]]) -> Sequence[Optional[Value]]:
        """The gradient as nodes of the graph, None where it is zero; here one that runs ``backward``.
        Redefine it to use kolo.ops or another Op, for example to read outputs."""
        given = tuple(i for i, d in enumerate(d_outputs) if d is not None)
        wanted = tuple(i for i, x in enumerate(inputs) if x.dtype in _REAL)
        attributes = {name: getattr(self, name) for name in self.attributes}
        node = _backward_of(type(self), given, wanted)(**attributes)
        found = iter(node.add([*inputs, *(d for d in d_outputs if d is not None)]))
        return [next(found) if i in wanted else None for i in range(len(inputs))]

    @classmethod
    def counts(cls) -> Tuple[int, int]:
        """The numbers of inputs and outputs."""
        if cls.index is None:
            return cls.inputs, cls.outputs
        if not re.fullmatch(r"[a-zA-Z*#]*(,[a-zA-Z*#]*)*->[a-zA-Z*#]*(,[a-zA-Z*#]*)*", cls.index):
            raise ValueError(f"{cls.__name__}.index is {cls.index!r}: a letter for each dimension, such as "
                             '"ni,oi->no"')
        before, after = cls.index.split("->")
        return len(before.split(",")), len(after.split(","))

    @classmethod
    def is_differentiable(cls) -> bool:
        """Whether the class has ``backward`` or ``gradient``."""
        return cls.backward is not Op.backward or cls.gradient is not Op.gradient

    def add(self, inputs: Sequence[Value]) -> List[Value]:
        """Adds the op to the graph of the inputs; returns its outputs."""
        n_in, n_out = self.counts()
        name = type(self).__name__
        if len(inputs) != n_in:
            raise TypeError(f"{name} takes {n_in} inputs, not {len(inputs)}")
        if not all(isinstance(x, Value) for x in inputs):
            raise TypeError(f"{name} takes values of a graph")
        others = sorted(set(vars(self)) - set(self.attributes))
        if others:
            raise TypeError(f"{name} has the members {', '.join(others)}: kernels get the attributes alone; make "
                            "arrays inputs, and other constants members of the class")
        graph, entry = inputs[0].graph, _entry_of(type(self))
        out = entry.add(self, graph, (c.kolo_value * n_in)(*(x.of(graph) for x in inputs)))
        return [Value(graph, c.kolo_value(v.id, v.graph)) for v in out[:n_out]]

    def __call__(self, *inputs: Value) -> Any:
        """Adds the op to the graph of the inputs; returns its output, or a list of several."""
        found = self.add(inputs)
        return found[0] if len(found) == 1 else found


# ---- failures ----


class _Failures(threading.local):
    """The first exception of an op since the latest call of ``take_failure`` in a thread."""

    first: Optional[BaseException] = None


_failures = _Failures()


def take_failure() -> Optional[BaseException]:
    """The exception of an op in this thread, once."""
    failure, _failures.first = _failures.first, None
    return failure


def _guarded(function: Callable[[], None]) -> int:
    """Calls a function of a program; its exception becomes an error of the library. One before ``try``
    does, too: the library fails without kolo_custom_done."""
    try:
        _signals.run_held()
        function()
        _lib.kolo_custom_done()
        return 0
    except BaseException as failure:  # pylint: disable=broad-except
        _failures.first = _failures.first or failure
        return int(_comm.kolo_error_set(_ERR_ARG, b"%s", _errors.text_of(failure)))


def _check_result(op: Op, function: str, found: Any, argument: str) -> None:
    if found is not None:
        raise TypeError(f"{type(op).__name__}.{function} returns a value: write it to {argument}[i][:]")


# ---- registration ----


class _Entry:
    """An op of the library: all classes of one name, numbers of inputs and outputs, and so on, such as
    a class that is defined again. The last attribute of a node is the number of its class."""

    def __init__(self, op: Type[Op], name: str) -> None:
        self.name, self._classes = name, [op]
        self._counts = op.counts()
        self._attributes = tuple(op.attributes)
        self._shape = c.kolo_custom_shape(self._run_shape)
        self._run = c.kolo_custom_run(self._run_forward)
        self._grad = c.kolo_custom_grad(self._add_gradient)
        names = [*(n.encode() for n in self._attributes), None]
        self._attrs = (ctypes.c_char_p * len(names))(*names)
        self._op = c.kolo_custom_op(
            version=_VERSION, name=name.encode(), n_in=self._counts[0], n_out=self._counts[1],
            shape=self._shape, run=self._run, attrs=ctypes.cast(self._attrs, ctypes.c_void_p),
            index=op.index.encode() if op.index is not None else None,
            linear=sum(1 << i for i in set(op.linear)))
        if op.is_differentiable():
            self._op.grad = self._grad
        try:
            _lib.kolo_custom_bind(ctypes.byref(self._op))
        except _errors.ArgumentError as error:
            of_name = str(error).startswith(("there is an op", "op name"))
            advice = f': give the class another one, such as name = "own_{name}"' if of_name else ""
            raise _errors.ArgumentError(error.status, f"{op.__name__}: {error}{advice}") from None

    def add(self, op: Op, graph: Graph, given: Any) -> Any:
        """Adds a node."""
        numbers = [getattr(op, name) for name in self._attributes]
        attr = (ctypes.c_double * _MAX_ATTRS)(*numbers, self._number(type(op)))
        out = (c.kolo_value * _MAX_IO)()
        take_failure()
        with _signals.holding():
            _lib.kolo_custom_bound(graph.handle(), ctypes.byref(self._op), given, len(given), attr, out)
        failure = take_failure()
        if failure:
            raise failure
        graph.check()
        return out

    def _number(self, op: Type[Op]) -> int:
        with _lock:
            if op not in self._classes:
                self._classes.append(op)
            return self._classes.index(op)

    def _node(self, attr: Any) -> Op:
        """The op of a node."""
        n = len(self._attributes)
        return self._classes[int(attr[n])](**dict(zip(self._attributes, attr[:n])))

    def _tensors(self, found: Any, n: int) -> List[Tensor]:
        return [Tensor(DTYPES[found[i].dtype], read_shape(found[i].shape)) for i in range(n)]

    def _run_shape(self, shapes: Any) -> int:
        return _guarded(lambda: self._set_shapes(shapes.contents))

    def _set_shapes(self, s: Any) -> None:
        n_in, n_out = self._counts
        found = _outputs(self._node(s.attr), self._tensors(getattr(s, "in"), n_in))
        for i in range(n_out):
            s.out[i] = c.kolo_custom_tensor(dtype_code(found[i].dtype), make_shape(found[i].shape))

    def _run_forward(self, call: Any) -> None:
        _guarded(lambda: self._compute(call.contents))

    def _compute(self, k: Any) -> None:
        n_in, n_out = self._counts
        given = [_arrays.view(k.in_data[i], t.dtype, t.shape, None)
                 for i, t in enumerate(self._tensors(getattr(k, "in"), n_in))]
        for array in given:
            array.flags.writeable = False
        results = [_arrays.view(k.out_data[i], t.dtype, t.shape, None)
                   for i, t in enumerate(self._tensors(k.out, n_out))]
        op = self._node(k.attr)
        forward: Any = op.forward  # that of a program may return something
        _check_result(op, "forward", forward(tuple(given), tuple(results)), "outputs")

    def _add_gradient(self, handle: int, node: Any, d_out: Any, wants: Any, d_in: Any) -> None:
        _guarded(lambda: self._set_gradients(handle, node.contents, d_out, wants, d_in))

    def _set_gradients(self, handle: int, n: Any, d_out: Any, wants: Any, d_in: Any) -> None:
        n_in, n_out = self._counts
        graph = Graph(0, _handle=handle)

        def values(found: Any, count: int) -> List[Optional[Value]]:
            return [Value(graph, c.kolo_value(found[i].id, found[i].graph)) if found[i].id >= 0 else None
                    for i in range(count)]

        try:
            op = self._node(n.attr)
            inputs: Any = values(getattr(n, "in"), n_in)
            outputs: Any = values(n.out, n_out)
            gradients = op.gradient(inputs, outputs, values(d_out, n_out))
            if len(gradients) != n_in:
                raise TypeError(f"{type(op).__name__}.gradient returns {len(gradients)} values for "
                                f"{n_in} inputs")
            for i, value in enumerate(gradients):
                if wants[i] and value is not None:
                    d_in[i] = value.of(graph)
        finally:
            graph.complete()


def _outputs(op: Op, inputs: Sequence[Tensor]) -> List[Tensor]:
    """What the shape rule returns, checked."""
    found = op.shape(*inputs)
    tensors = [found] if isinstance(found, Tensor) else list(found)
    wanted = op.counts()[1]
    if len(tensors) != wanted or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"{type(op).__name__}.shape returns {found!r}: a kolo.Tensor for each of "
                        f"{wanted} outputs")
    return tensors


_lock = threading.RLock()
_entries: Dict[Any, _Entry] = {}  # by what an entry's classes have in common; never removed


def _entry_of(op: Type[Op]) -> _Entry:
    """The library's op of a class, which is registered when it is first used."""
    name = op.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op.__name__).lower()
    if len(op.attributes) >= _MAX_ATTRS:  # one is the number of the class
        raise ValueError(f"{op.__name__} has {len(op.attributes)} attributes: at most {_MAX_ATTRS - 1}")
    if not all(0 <= i < op.counts()[0] for i in op.linear):
        raise ValueError(f"{op.__name__}.linear is {list(op.linear)}: numbers of its {op.counts()[0]} inputs")
    key = (name, op.counts(), op.index, tuple(op.linear), tuple(op.attributes), op.is_differentiable())
    with _lock:
        if key not in _entries:
            _entries[key] = _Entry(op, name)
        return _entries[key]


_callbacks = [f.__code__ for f in (_guarded, _Entry._run_shape, _Entry._run_forward, _Entry._add_gradient)]


# ---- gradients ----


class _Backward(Op):
    """Runs ``backward`` of another op: its inputs, then the gradients of its outputs."""

    of: Type[Op]
    given: Tuple[int, ...]  # outputs that have a gradient
    wanted: Tuple[int, ...]  # inputs that get one

    def shape(self, *inputs: Tensor) -> List[Tensor]:
        return [inputs[i] for i in self.wanted]

    def forward(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        op = self.of(**{name: getattr(self, name) for name in self.attributes})
        n_in, n_out = op.counts()
        d_outputs: List[Any] = [None] * n_out
        for i, d in zip(self.given, inputs[n_in:]):
            d_outputs[i] = d
        if None in [None if d is None else 0 for d in d_outputs]:
            names = {v: k for k, v in _arrays.FORMATS.items() if k != "bf16"}
            tensors = _outputs(op, [Tensor(names[x.dtype.name], x.shape) for x in inputs[:n_in]])
            np = _arrays.numpy()
            d_outputs = [np.broadcast_to(np.zeros((), _arrays.FORMATS[t.dtype]), t.shape) if d is None else d
                         for d, t in zip(d_outputs, tensors)]
        d_inputs: List[Any] = [None] * n_in
        for i, d in zip(self.wanted, outputs):
            d_inputs[i] = d
        backward: Any = op.backward
        found = backward(inputs[:n_in], tuple(d_outputs), tuple(d_inputs))
        _check_result(op, "backward", found, "d_inputs")


_backwards: Dict[Any, Type[_Backward]] = {}


def _backward_of(op: Type[Op], given: Tuple[int, ...], wanted: Tuple[int, ...]) -> Type[_Backward]:
    """The class that runs ``op.backward``. Its notation follows from that of ``op``: a gradient has the
    dimensions of its input, and is a sum over those that only other tensors have."""
    with _lock:
        if (op, given, wanted) not in _backwards:
            index = None
            if op.index is not None:
                before, after = (part.split(",") for part in op.index.split("->"))
                index = (",".join([*before, *(after[i] for i in given)]) + "->" +
                         ",".join(before[i] for i in wanted))
            _backwards[op, given, wanted] = type(
                f"{op.__name__}Backward", (_Backward,),
                {"name": f"{_entry_of(op).name}_backward", "index": index, "attributes": op.attributes,
                 "inputs": op.counts()[0] + len(given), "outputs": len(wanted), "of": op, "given": given,
                 "wanted": wanted})
        return _backwards[op, given, wanted]
