"""Graphs: what a model is built of. kolo.ops and kolo.nn have the operations and layers."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from ._bindings import NotCopied, c, finalize, names_of
from ._bindings import training as _lib
from ._checks import integers
from ._options import code_of

DTYPES = names_of("kolo_dtype")
MAX_RANK = 6

# "zeros", "ones", ("uniform", limit), ("normal", standard deviation) or ("fan_in", n): uniform in
# [-1/sqrt(n), 1/sqrt(n)), PyTorch's default of layers; "fan_in": n from the shape.
Init = Union[str, Tuple[str, float]]
Operand = Union["Value", float]


def make_shape(dims: Sequence[int]) -> Any:
    """A kolo_shape."""
    if len(dims) > MAX_RANK:
        raise ValueError(f"a shape of {len(dims)} dimensions: at most {MAX_RANK}")
    numbers = integers("a dimension", "int64_t", dims)
    return c.kolo_shape(len(numbers), (ctypes.c_int64 * MAX_RANK)(*numbers))


def read_shape(shape: Any) -> Tuple[int, ...]:
    """The tuple of a kolo_shape."""
    return tuple(shape.dim[:shape.rank])


def dtype_code(dtype: str) -> int:
    """The code of "f32" and so on."""
    return code_of("kolo_dtype", "type", dtype)


def make_init(init: Init, shape: Sequence[int]) -> Any:
    """A kolo_init for a parameter of this shape."""
    name, number = (init, 0.0) if isinstance(init, str) else init
    kinds = {"zeros": "zero", "ones": "one", "uniform": "uniform", "normal": "normal"}
    if name == "fan_in":
        product = 1
        for dim in shape[1:]:
            product *= dim
        return c.kolo_init(names_of("kolo_init_kind").index("uniform"),
                           max(number or product, 1) ** -0.5)
    if name not in kinds or (name in ("uniform", "normal")) != (not isinstance(init, str)):
        raise ValueError(f"initial values {init!r}: choose \"zeros\", \"ones\", \"fan_in\", "
                         '("fan_in", n), ("uniform", limit) or ("normal", deviation)')
    return c.kolo_init(names_of("kolo_init_kind").index(kinds[name]), number)


class Graph(NotCopied):
    """The graph of a model for batches of ``samples``; argument of a builder, which adds to it.

    A failure raises an exception at once, with the operation and the shapes. A graph made by a
    program serves to try a builder: ``build(kolo.Graph(2))``.
    """

    def __init__(self, samples: int, _handle: Optional[int] = None) -> None:
        self.samples = samples
        self._counts: Dict[str, int] = {}
        self._handle: Optional[int] = _handle
        if _handle is None:
            handle = ctypes.c_void_p()
            _lib.kolo_graph_create(None, ctypes.byref(handle))
            self._handle = handle.value
            finalize(self, _lib.kolo_graph_destroy, handle)

    def handle(self) -> int:
        """The C graph."""
        if not self._handle:
            raise ValueError("the graph is complete: a builder adds to it only while it runs")
        return self._handle

    def complete(self) -> None:
        """Ends the use of a graph that the library owns."""
        self._handle = None

    def value(self, handle: Any) -> Value:
        """Wraps what a function of the library returned, or raises its failure."""
        if handle.id < 0:
            self.check()
        return Value(self, handle)

    def check(self) -> None:
        """Raises the first failure of the graph."""
        _lib.kolo_graph_check(self.handle())

    @property
    def parameters(self) -> int:
        """The number of trainable elements so far."""
        return int(_lib.kolo_graph_parameters(self.handle()))

    def input(self, name: str, shape: Sequence[int] = (), dtype: str = "f32") -> Value:
        """An input, filled by the field of its name: ``shape`` for each sample, so that the value is
        [samples, *shape]."""
        return self.value(_lib.kolo_input(self.handle(), name.encode(), dtype_code(dtype),
                                          make_shape((self.samples, *shape))))

    def param(self, name: str, shape: Sequence[int], init: Init = "fan_in",
              frozen: bool = False) -> Value:
        """A trainable tensor with initial values ``init``; ``frozen``: one that training leaves as it
        is. Files use its name."""
        add = _lib.kolo_frozen_param if frozen else _lib.kolo_param
        return self.value(add(self.handle(), name.encode(), make_shape(shape),
                              make_init(init, shape)))

    def output(self, **values: Value) -> None:
        """Declares outputs: "loss", a sum over the samples, is trained; "correct" (ops.accuracy) adds
        the metric "accuracy"; others can be predicted."""
        for name, value in values.items():
            _lib.kolo_output(self.handle(), name.encode(), value.of(self))
        self.check()

    def unique(self, kind: str) -> str:
        """The name of the next layer of a kind without a name of its own: "linear1", "linear2"."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}{self._counts[kind]}"


_NO_OPERAND = ("an array is no value of a graph: make it an input, or a constant: "
               'g.param("name", shape, frozen=True), and session.set("name", array)')


def _is_array(operand: Any) -> bool:
    return getattr(operand, "ndim", 0) > 0 or isinstance(operand, (list, tuple))


def _number(operand: Any) -> float:
    """An operand that is no value."""
    if _is_array(operand):
        raise TypeError(_NO_OPERAND)
    return float(operand)


class Value(NotCopied):
    """A tensor of a graph. ``+ - * /`` broadcast as in NumPy, also with numbers; ``**`` takes a number,
    and ``@`` multiplies batches of matrices [B,M,K] and [B,K,N]."""

    __array_ufunc__ = None  # arrays leave operators to this class

    def __init__(self, graph: Graph, handle: Any) -> None:
        self.graph, self._handle = graph, handle

    def of(self, graph: Graph) -> Any:
        """The C value, which is one of ``graph``."""
        if self.graph is not graph:
            raise ValueError("a value of another graph, such as an earlier call of the builder")
        return self._handle

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape, of a batch."""
        return read_shape(_lib.kolo_value_shape(self.graph.handle(), self._handle))

    @property
    def dtype(self) -> str:
        """The element type, such as "f32"."""
        code: int = _lib.kolo_value_dtype(self.graph.handle(), self._handle)
        return DTYPES[code]

    def __repr__(self) -> str:
        return f"<kolo.Value {self.dtype} {list(self.shape)}>"

    def _call(self, name: str, *arguments: Any) -> Value:
        return call(name, self, *arguments)

    def __add__(self, other: Operand) -> Value:
        if isinstance(other, Value):
            return self._call("add", other)
        return self._call("add_number", _number(other))

    def __radd__(self, other: float) -> Value:
        return self + other

    def __sub__(self, other: Operand) -> Value:
        if isinstance(other, Value):
            return self._call("sub", other)
        return self._call("add_number", -_number(other))

    def __rsub__(self, other: float) -> Value:
        return -self + other

    def __mul__(self, other: Operand) -> Value:
        if isinstance(other, Value):
            return self._call("mul", other)
        return self._call("scale", _number(other))

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __truediv__(self, other: Operand) -> Value:
        if isinstance(other, Value):
            return self._call("div", other)
        return self._call("scale", 1 / _number(other))

    def __rtruediv__(self, other: float) -> Value:
        return self._call("reciprocal") * other

    def __neg__(self) -> Value:
        return self._call("neg")

    def __pow__(self, exponent: float) -> Value:
        return self._call("pow", _number(exponent))

    def __matmul__(self, other: Value) -> Value:
        return self._call("matmul", other, False, False)


def call(name: str, x: Value, *arguments: Any) -> Value:
    """kolo_NAME(graph, x, arguments...)."""
    for operand in (x, *arguments):
        if _is_array(operand):
            raise TypeError(f"{name}: {_NO_OPERAND}")
    graph = x.graph
    given = [a.of(graph) if isinstance(a, Value) else a for a in arguments]
    return graph.value(getattr(_lib, "kolo_" + name)(graph.handle(), x.of(graph), *given))
