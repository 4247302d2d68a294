"""Layers: operations that add their parameters, NAME.weight and NAME.bias, with PyTorch's shapes and
initial values. A layer without a name gets "linear1", "conv2d1" and so on, in the order of calls."""

from __future__ import annotations

from typing import Optional

from . import ops
from ._checks import integer
from .graph import Init, Value
from .ops import Pair


def _bias(x: Value, name: str, size: int, fan_in: int) -> Value:
    return x.graph.param(f"{name}.bias", (size,), ("fan_in", fan_in))


def linear(x: Value, units: int, name: Optional[str] = None, bias: bool = True,
           init: Init = "fan_in") -> Value:
    """x [N,I] -> [N,units], or x [N,T,I] -> [N,T,units]."""
    name = name or x.graph.unique("linear")
    width = x.shape[-1]
    w = x.graph.param(f"{name}.weight", (units, width), init)
    return ops.linear(x, w, _bias(x, name, units, width) if bias else None)


def conv2d(x: Value, channels: int, kernel: Pair, name: Optional[str] = None, stride: Pair = 1,
           pad: Pair = 0, dilation: Pair = 1, groups: int = 1, bias: bool = True,
           init: Init = "fan_in") -> Value:
    """x [N,C,H,W] -> [N,channels,H',W']."""
    name = name or x.graph.unique("conv2d")
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    each = x.shape[1] // integer("groups", groups, 1)
    w = x.graph.param(f"{name}.weight", (channels, each, height, width), init)
    y = ops.conv2d(x, w, stride, pad, dilation, groups)
    return ops.bias(y, _bias(x, name, channels, each * height * width)) if bias else y


def conv1d(x: Value, channels: int, kernel: int, name: Optional[str] = None, stride: int = 1,
           pad: int = 0, dilation: int = 1, groups: int = 1, bias: bool = True,
           init: Init = "fan_in") -> Value:
    """x [N,C,W] -> [N,channels,W']."""
    name = name or x.graph.unique("conv1d")
    each = x.shape[1] // integer("groups", groups, 1)
    w = x.graph.param(f"{name}.weight", (channels, each, kernel), init)
    y = ops.conv1d(x, w, stride, pad, dilation, groups)
    return ops.bias(y, _bias(x, name, channels, each * kernel)) if bias else y


def embedding(ids: Value, rows: int, width: int, name: Optional[str] = None,
              positions: Optional[Value] = None, init: Init = ("normal", 1.0)) -> Value:
    """Rows of a table [rows,width] by ids i32 [N,T] -> [N,T,width]; see ops.embedding."""
    name = name or ids.graph.unique("embedding")
    return ops.embedding(ids.graph.param(f"{name}.weight", (rows, width), init), ids, positions)


def self_attention(x: Value, heads: int, name: Optional[str] = None, causal: bool = False,
                   dropout: float = 0) -> Value:
    """Multi-head self-attention of x [N,T,C]: the layers NAME.qkv and NAME.out around
    ops.attention."""
    name = name or x.graph.unique("attention")
    width = x.shape[-1]
    qkv = linear(x, 3 * width, f"{name}.qkv")
    return linear(ops.attention(qkv, heads, causal, dropout=dropout), width, f"{name}.out")
