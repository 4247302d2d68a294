"""The operations of graphs, by the names of <kolo/graph.h>, which has their formulas. Images are
[N,C,H,W], tokens [N,T,C]. Sizes of images are one number or (height, width)."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Union

from ._bindings import c
from ._bindings import training as _lib
from ._checks import integers
from ._library import TINY as _TINY
from ._ops_images import *  # pylint: disable=wildcard-import,unused-wildcard-import
from ._ops_losses import *  # pylint: disable=wildcard-import,unused-wildcard-import
from ._ops_sequences import *  # pylint: disable=wildcard-import,unused-wildcard-import
from .graph import Value, call, make_shape

# ---- shapes ----


def concat(values: Sequence[Value], axis: int = 1) -> Value:
    """Concatenates values along a dimension."""
    if not values:
        raise ValueError("concat of no values")
    graph = values[0].graph
    array = (c.kolo_value * len(values))(*(v.of(graph) for v in values))
    return graph.value(_lib.kolo_concat_along(graph.handle(), array, len(values), axis))


def slice(x: Value, axis: int, first: int, count: int) -> Value:  # pylint: disable=redefined-builtin
    """Elements [first, first + count) along a dimension."""
    return call("slice", x, axis, first, count)


def pad(x: Value, axis: int, before: int, after: int) -> Value:
    """Adds zeros before and after x along a dimension."""
    return call("pad", x, axis, before, after)


def split(x: Value, axis: int, sizes: Sequence[int]) -> List[Value]:
    """Cuts x along a dimension into parts of these sizes."""
    graph, n = x.graph, len(sizes)
    parts = (c.kolo_value * (n or 1))()
    _lib.kolo_split_along(graph.handle(), x.of(graph), axis, integers("a size", "int64_t", sizes), n, parts)
    graph.check()
    return [Value(graph, c.kolo_value(p.id, p.graph)) for p in parts[:n]]


def permute(x: Value, order: Sequence[int]) -> Value:
    """Dimension d of the result is dimension order[d] of x."""
    if len(order) != len(x.shape):
        raise ValueError(f"permute: {len(order)} dimensions for {x!r}")
    return call("permute", x, integers("a dimension", "int", order))


def transpose(x: Value, a: int, b: int) -> Value:
    """Exchanges two dimensions."""
    return call("transpose", x, a, b)


def flip(x: Value, axis: int) -> Value:
    """The elements along a dimension in reverse order."""
    return call("flip", x, axis)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """Another shape of as many elements; one dimension may be -1."""
    dims = list(shape)
    if dims.count(-1) == 1:
        rest = -math.prod(dims)
        dims[dims.index(-1)] = math.prod(x.shape) // rest if rest else 0
    return call("reshape", x, make_shape(dims))


def flatten(x: Value) -> Value:
    """[N, ...] -> [N, product of the rest]."""
    return call("flatten", x)


def channel_window(x: Value, first: int, count: int) -> Value:
    """Channels [first, first + count) of x [N,C,...]; those outside x, but not all, are zero."""
    return call("channel_window", x, first, count)


# ---- products ----


def linear(x: Value, w: Value, b: Optional[Value] = None) -> Value:
    """x w^T + b: x [N,I] or [N,T,I], w [O,I], b [O]."""
    return call("linear", x, w) if b is None else call("linear_bias", x, w, b)


def matmul(a: Value, b: Value, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """Batched matrix product: [B,M,K], [B,K,N] -> [B,M,N]."""
    return call("matmul", a, b, transpose_a, transpose_b)


def bias(x: Value, b: Value) -> Value:
    """Adds b [C] along dimension 1 of x."""
    return call("bias", x, b)


# ---- elementwise functions ----


def add(a: Value, b: Value) -> Value:
    """a + b, broadcast."""
    return call("add", a, b)


def sub(a: Value, b: Value) -> Value:
    """a - b, broadcast."""
    return call("sub", a, b)


def mul(a: Value, b: Value) -> Value:
    """a b, broadcast."""
    return call("mul", a, b)


def div(a: Value, b: Value) -> Value:
    """a / b, broadcast."""
    return call("div", a, b)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of a and b, broadcast."""
    return call("minimum", a, b)


def maximum(a: Value, b: Value) -> Value:
    """The larger of a and b, broadcast."""
    return call("maximum", a, b)


def add_number(x: Value, number: float) -> Value:
    """x + number."""
    return call("add_number", x, number)


def scale(x: Value, factor: float) -> Value:
    """x factor."""
    return call("scale", x, factor)


def exp(x: Value) -> Value:
    """e^x."""
    return call("exp", x)


def log(x: Value) -> Value:
    """The natural logarithm."""
    return call("log", x)


def sqrt(x: Value) -> Value:
    """The square root."""
    return call("sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return call("rsqrt", x)


def reciprocal(x: Value) -> Value:
    """1 / x."""
    return call("reciprocal", x)


def neg(x: Value) -> Value:
    """-x."""
    return call("neg", x)


def abs(x: Value) -> Value:  # pylint: disable=redefined-builtin
    """The absolute value."""
    return call("abs", x)


def square(x: Value) -> Value:
    """x^2."""
    return call("square", x)


def pow(x: Value, exponent: float) -> Value:  # pylint: disable=redefined-builtin
    """x^exponent."""
    return call("pow", x, exponent)


def clamp(x: Value, min: float = -math.inf,  # pylint: disable=redefined-builtin
          max: float = math.inf) -> Value:  # pylint: disable=redefined-builtin
    """x limited to [min, max]."""
    return call("clamp", x, min, max)


def relu(x: Value) -> Value:
    """max(x, 0)."""
    return call("relu", x)


def relu6(x: Value) -> Value:
    """x limited to [0, 6]."""
    return call("relu6", x)


def leaky_relu(x: Value, slope: float = 0.01) -> Value:
    """x above 0, else slope x."""
    return call("leaky_relu", x, slope)


def elu(x: Value, alpha: float = 1) -> Value:
    """x above 0, else alpha (e^x - 1)."""
    return call("elu", x, alpha)


def softplus(x: Value, beta: float = 1) -> Value:
    """log(1 + e^(beta x)) / beta."""
    return call("softplus", x, beta)


def hardswish(x: Value) -> Value:
    """x max(0, min(6, x + 3)) / 6."""
    return call("hardswish", x)


def hardsigmoid(x: Value) -> Value:
    """max(0, min(6, x + 3)) / 6."""
    return call("hardsigmoid", x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent."""
    return call("tanh", x)


def erf(x: Value) -> Value:
    """The error function of each element."""
    return call("erf", x)


def sin(x: Value) -> Value:
    """The sine."""
    return call("sin", x)


def cos(x: Value) -> Value:
    """The cosine."""
    return call("cos", x)


def atan(x: Value) -> Value:
    """The arc tangent."""
    return call("atan", x)


def floor(x: Value) -> Value:
    """The next integer below, without a gradient."""
    return call("floor", x)


def ceil(x: Value) -> Value:
    """The next integer above, without a gradient."""
    return call("ceil", x)


def round(x: Value) -> Value:  # pylint: disable=redefined-builtin
    """The nearest integer, of halves the even one, without a gradient."""
    return call("round", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x)."""
    return call("sigmoid", x)


def gelu(x: Value, tanh: bool = False) -> Value:  # pylint: disable=redefined-outer-name
    """GELU; ``tanh``: its approximation."""
    return call("gelu", x, tanh)


def silu(x: Value) -> Value:
    """x sigmoid(x)."""
    return call("silu", x)


# ---- reductions ----

Axes = Union[None, int, Sequence[int]]


def _reduce(name: str, x: Value, axes: Axes, keep: bool) -> Value:
    over = () if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    return call(name, x, integers("a dimension", "int", over), len(over), keep)


def sum(x: Value, axes: Axes = None, keep: bool = False) -> Value:  # pylint: disable=redefined-builtin
    """The sum over dimensions; None: over all, a scalar."""
    if axes is None and not keep:
        return call("sum", x)
    return _reduce("reduce_sum", x, axes, keep)


def mean(x: Value, axes: Axes = None, keep: bool = False) -> Value:
    """The mean over dimensions; None: over all."""
    return _reduce("reduce_mean", x, axes, keep)


def max(x: Value, axes: Axes = None, keep: bool = False) -> Value:  # pylint: disable=redefined-builtin
    """The maximum over dimensions; None: over all."""
    return _reduce("reduce_max", x, axes, keep)


def min(x: Value, axes: Axes = None, keep: bool = False) -> Value:  # pylint: disable=redefined-builtin
    """The minimum over dimensions; None: over all."""
    return _reduce("reduce_min", x, axes, keep)


def softmax(x: Value, axis: int = -1) -> Value:
    """Softmax over a dimension."""
    return call("softmax", x, axis)


def log_softmax(x: Value, axis: int = -1) -> Value:
    """The logarithm of the softmax over a dimension."""
    return call("log_softmax", x, axis)


# ---- regularization and normalization ----


def dropout(x: Value, p: float) -> Value:
    """Zeroes elements with probability p in training."""
    return call("dropout", x, p)


def stop_gradient(x: Value) -> Value:
    """x, through which no gradient flows."""
    return call("stop_gradient", x)


def freeze(param: Value) -> Value:
    """Excludes a parameter from training; returns it."""
    _lib.kolo_freeze(param.graph.handle(), param.of(param.graph))
    param.graph.check()
    return param


def batch_norm(x: Value, name: Optional[str] = None, eps: float = 1e-5,
               momentum: float = 0.1) -> Value:
    """Batch normalization of channels; adds NAME.weight, .bias, .running_mean, .running_var."""
    return call("batch_norm", x, (name or x.graph.unique("batch_norm")).encode(),
                c.kolo_batch_norm_opts(eps, momentum))


def layer_norm(x: Value, name: Optional[str] = None, eps: float = 1e-5) -> Value:
    """Layer normalization over the last dimension; adds NAME.weight and NAME.bias."""
    return call("layer_norm", x, (name or x.graph.unique("layer_norm")).encode(), eps or _TINY)


def rms_norm(x: Value, name: Optional[str] = None, eps: float = 1e-6) -> Value:
    """Root mean square normalization over the last dimension; adds NAME.weight."""
    return call("rms_norm", x, (name or x.graph.unique("rms_norm")).encode(), eps or _TINY)


def group_norm(x: Value, groups: int, name: Optional[str] = None, eps: float = 1e-5) -> Value:
    """Group normalization of x [N,C,...]; adds NAME.weight and NAME.bias."""
    return call("group_norm", x, (name or x.graph.unique("group_norm")).encode(), groups, eps or _TINY)


def instance_norm(x: Value, name: Optional[str] = None, eps: float = 1e-5) -> Value:
    """Group normalization with a group for each channel."""
    return call("instance_norm", x, (name or x.graph.unique("instance_norm")).encode(), eps or _TINY)
