"""The operations of graphs, by the names of <kolo/graph.h>, which has their formulas. Images are
[N,C,H,W], tokens [N,T,C]. Sizes of images are one number or (height, width)."""

from __future__ import annotations

import ctypes
import math
from typing import Any, List, Optional, Sequence, Tuple, Union

from ._bindings import c
from ._bindings import training as _lib
from .graph import Value, call, make_shape

Pair = Union[int, Tuple[int, int]]
Triple = Union[int, Tuple[int, int, int]]


def _pair(size: Pair) -> Tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _pairs(**sizes: Pair) -> Any:
    """stride=(1, 2) as stride_h=1, stride_w=2."""
    found = {}
    for name, size in sizes.items():
        found[name + "_h"], found[name + "_w"] = _pair(size)
    return found


# ---- convolution, pooling, images ----


def conv2d(x: Value, w: Value, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,H,W] with w [O,C/groups,KH,KW] -> [N,O,H',W']."""
    opts = c.kolo_conv2d_opts(groups=groups, **_pairs(stride=stride, pad=pad, dilation=dilation))
    return call("conv2d", x, w, opts)


def conv_transpose2d(x: Value, w: Value, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1,
                     groups: int = 1, output_pad: Pair = 0) -> Value:
    """Transposed convolution of x [N,C,H,W] with w [C,O/groups,KH,KW], as PyTorch's."""
    opts = c.kolo_conv_transpose2d_opts(groups=groups,
                                        **_pairs(stride=stride, pad=pad, dilation=dilation,
                                                 output_pad=output_pad))
    return call("conv_transpose2d", x, w, opts)


def conv1d(x: Value, w: Value, stride: int = 1, pad: int = 0, dilation: int = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,W] with w [O,C/groups,K] -> [N,O,W']."""
    return call("conv1d", x, w, c.kolo_conv1d_opts(stride, pad, dilation, groups))


def conv3d(x: Value, w: Value, stride: Triple = 1, pad: Triple = 0, dilation: Triple = 1,
           groups: int = 1) -> Value:
    """Convolution of x [N,C,D,H,W] with w [O,C/groups,KD,KH,KW] -> [N,O,D',H',W']."""
    sizes = [(n, n, n) if isinstance(n, int) else n for n in (stride, pad, dilation)]
    return call("conv3d", x, w, c.kolo_conv3d_opts(*[n for size in sizes for n in size], groups))


def _pool(name: str, x: Value, kernel: Pair, stride: Optional[Pair], pad: Pair, ceil: bool,
          exclude_padding: bool = False) -> Value:
    opts = c.kolo_pool2d_opts(ceil=ceil, exclude_padding=exclude_padding,
                              **_pairs(kernel=kernel, pad=pad,
                                       stride=kernel if stride is None else stride))
    return call(name, x, opts)


def max_pool2d(x: Value, kernel: Pair, stride: Optional[Pair] = None, pad: Pair = 0,
               ceil: bool = False) -> Value:
    """The maximum of each window; stride: the kernel."""
    return _pool("max_pool2d", x, kernel, stride, pad, ceil)


def avg_pool2d(x: Value, kernel: Pair, stride: Optional[Pair] = None, pad: Pair = 0,
               ceil: bool = False, exclude_padding: bool = False) -> Value:
    """The mean of each window; stride: the kernel."""
    return _pool("avg_pool2d", x, kernel, stride, pad, ceil, exclude_padding)


def global_avg_pool2d(x: Value) -> Value:
    """The mean of each channel -> [N,C,1,1]."""
    return call("global_avg_pool2d", x)


def adaptive_avg_pool2d(x: Value, size: Pair) -> Value:
    """Adaptive average pooling -> [N,C,h,w], as in PyTorch."""
    return call("adaptive_avg_pool2d", x, *_pair(size))


def resize(x: Value, size: Pair, align_corners: bool = False) -> Value:
    """Bilinear interpolation -> [N,C,h,w], as in PyTorch."""
    return call("resize", x, *_pair(size), align_corners)


def pixel_shuffle(x: Value, factor: int) -> Value:
    """[N,C factor^2,H,W] -> [N,C,H factor,W factor]."""
    return call("pixel_shuffle", x, factor)


def repeat_pixels(x: Value, factor: int) -> Value:
    """Nearest-neighbour enlargement -> [N,C,H factor,W factor]."""
    return call("repeat_pixels", x, factor)


def lrn(x: Value, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> Value:
    """Local response normalization across channels."""
    return call("lrn", x, c.kolo_lrn_opts(size, alpha, beta, k))


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
    _lib.kolo_split_along(graph.handle(), x.of(graph), axis, (ctypes.c_int64 * n)(*sizes), n, parts)
    graph.check()
    return [Value(graph, c.kolo_value(p.id, p.graph)) for p in parts[:n]]


def permute(x: Value, order: Sequence[int]) -> Value:
    """Dimension d of the result is dimension order[d] of x."""
    if len(order) != len(x.shape):
        raise ValueError(f"permute: {len(order)} dimensions for {x!r}")
    return call("permute", x, (ctypes.c_int * len(order))(*order))


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
    """Channels [first, first + count) of x [N,C,...]; those outside x are zero."""
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
    return call(name, x, (ctypes.c_int * len(over))(*over), len(over), keep)


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
    return call("layer_norm", x, (name or x.graph.unique("layer_norm")).encode(), eps)


def rms_norm(x: Value, name: Optional[str] = None, eps: float = 1e-6) -> Value:
    """Root mean square normalization over the last dimension; adds NAME.weight."""
    return call("rms_norm", x, (name or x.graph.unique("rms_norm")).encode(), eps)


def group_norm(x: Value, groups: int, name: Optional[str] = None, eps: float = 1e-5) -> Value:
    """Group normalization of x [N,C,...]; adds NAME.weight and NAME.bias."""
    return call("group_norm", x, (name or x.graph.unique("group_norm")).encode(), groups, eps)


def instance_norm(x: Value, name: Optional[str] = None, eps: float = 1e-5) -> Value:
    """Group normalization with a group for each channel."""
    return call("instance_norm", x, (name or x.graph.unique("instance_norm")).encode(), eps)


# ---- tables and sequences ----


def gather_rows(x: Value, ids: Value) -> Value:
    """Rows of x [V,C] by ids i32 [M] -> [M,C]."""
    return call("gather_rows", x, ids)


def scatter_add(rows: Value, ids: Value, n: int) -> Value:
    """A table [n,C], to whose row ids[m] each of the rows [M,C] is added."""
    return call("scatter_add", rows, ids, n)


def embedding_bag(w: Value, ids: Value, mean: bool = False) -> Value:  # pylint: disable=redefined-outer-name
    """The sum or mean of the rows of w [V,C] that ids i32 [N,T] select -> [N,C]."""
    return call("embedding_bag", w, ids, mean)


def embedding(w: Value, ids: Value, positions: Optional[Value] = None) -> Value:
    """Rows of w [V,C] by ids i32 [N,T], plus row t of ``positions`` [P,C] -> [N,T,C]."""
    return call("embedding", w, ids, c.kolo_value(-1, 0) if positions is None else positions)


def mask_tokens(ids: Value, y: Value, count: int, mask: int, vocabulary: int,
                pairs: bool = False) -> List[Value]:
    """Masks tokens for a masked language model: masked ids, labels, segment ids; with ``pairs`` also
    whether the second sentence does not follow the first."""
    graph, out = ids.graph, (c.kolo_value * 4)()
    opts = c.kolo_mask_opts(count, mask, vocabulary, pairs)
    _lib.kolo_mask_tokens(graph.handle(), ids.of(graph), y.of(graph), ctypes.byref(opts), out)
    graph.check()
    return [Value(graph, c.kolo_value(v.id, v.graph)) for v in out[:4 if pairs else 3]]


def attention(qkv: Value, heads: int, causal: bool = False, mask: Optional[Value] = None,
              dropout: float = 0) -> Value:  # pylint: disable=redefined-outer-name
    """Multi-head self-attention of qkv [N,T,3C] -> [N,T,C]; no token attends to keys whose ``mask``
    i32 [N,T] is 0."""
    opts = c.kolo_attention_opts(heads=heads, causal=causal, use_mask=mask is not None,
                                 dropout=dropout)
    if mask is not None:
        opts.mask = mask.of(qkv.graph)
    return call("attention", qkv, opts)


def cross_attention(q: Value, k: Value, v: Value, heads: int, kv_heads: int = 0,
                    causal: bool = False, scale: float = 0,  # pylint: disable=redefined-outer-name
                    bias: Optional[Value] = None,  # pylint: disable=redefined-outer-name
                    window: int = 0) -> Value:
    """Attention: q [N,T,heads D], k [N,S,kv_heads D], v [N,S,kv_heads E] -> [N,T,heads E]; ``bias`` is
    added to the scores [N,heads,T,S]; ``scale`` 0: 1 / sqrt(D); ``window``: with ``causal``, only that
    many keys up to the query."""
    opts = c.kolo_cross_attention_opts(heads=heads, kv_heads=kv_heads, causal=causal, scale=scale,
                                       window=window, use_bias=bias is not None)
    if bias is not None:
        opts.bias = bias.of(q.graph)
    return call("cross_attention", q, k, v, opts)


def rotary(x: Value, heads: int, base: float = 10000, first: int = 0) -> Value:
    """Rotary position embedding of x [N,T,heads D]."""
    return call("rotary", x, heads, base, first)


def expert_route(probabilities: Value, top: int, capacity: int) -> List[Value]:
    """The ``top`` experts of each token by probabilities [N,T,E]: the places of the tokens, i32 of that
    shape, -1 where there is none, and 1 where an expert is chosen, else 0."""
    graph, out = probabilities.graph, (c.kolo_value * 2)()
    _lib.kolo_expert_route(graph.handle(), probabilities.of(graph), top, capacity, out)
    graph.check()
    return [Value(graph, c.kolo_value(v.id, v.graph)) for v in out]


def expert_dispatch(x: Value, places: Value, capacity: int) -> Value:
    """The tokens of x [N,T,C] at their places -> [E,N,capacity,C]."""
    return call("expert_dispatch", x, places, capacity)


def expert_linear(x: Value, w: Value) -> Value:
    """A linear layer for each expert: x [E,N,P,I], w [E,O,I] -> [E,N,P,O]."""
    return call("expert_linear", x, w)


def expert_combine(y: Value, places: Value, gates: Value) -> Value:
    """The sum over the experts of gates [N,T,E] times the outputs y [E,N,P,C] -> [N,T,C]."""
    return call("expert_combine", y, places, gates)


def _recurrent(kind: str, x: Value, hidden: int, name: Optional[str], layer: int, reverse: bool,
               bidirectional: bool, state: Sequence[Value]) -> Value:
    opts = c.kolo_recurrent_opts(reverse=reverse, bidirectional=bidirectional, use_state=bool(state))
    for field, value in zip("hc", state):
        setattr(opts, field, value.of(x.graph))
    return call(kind, x, (name or x.graph.unique(kind.split("_", maxsplit=1)[0])).encode(), layer,
                hidden, opts)


def lstm(x: Value, hidden: int, name: Optional[str] = None, layer: int = 0, reverse: bool = False,
         bidirectional: bool = False, state: Optional[Tuple[Value, Value]] = None) -> Value:
    """One LSTM layer over x [N,T,I] -> [N,T,hidden], with the parameters of PyTorch's nn.LSTM.
    ``state``: h and c [N,hidden] before the first step. ``bidirectional``: -> [N,T,2 hidden], with a
    state of [N,2 hidden]. ``reverse``: from the last step to the first."""
    return _recurrent("lstm_opts", x, hidden, name, layer, reverse, bidirectional, state or ())


def gru(x: Value, hidden: int, name: Optional[str] = None, layer: int = 0, reverse: bool = False,
        bidirectional: bool = False, state: Optional[Value] = None) -> Value:
    """One layer of gated recurrent units, as ``lstm``, with the parameters of PyTorch's nn.GRU and the
    state h."""
    return _recurrent("gru", x, hidden, name, layer, reverse, bidirectional,
                      () if state is None else (state,))


# ---- losses and metrics: sums over the batch ----


def softmax_xent(logits: Value, labels: Value, ignore_index: Optional[int] = None,
                 smoothing: float = 0, weights: Optional[Value] = None) -> Value:
    """Cross-entropy of logits [N,C,...] and labels i32 [N,...], summed over the labels. ``weights``:
    of the classes, [C], such as a frozen parameter."""
    opts = c.kolo_loss_opts(ignore_index is not None, ignore_index or 0, smoothing)
    if weights is not None:
        opts.weights, opts.use_weights = weights.of(logits.graph), True
    return call("softmax_xent_opts", logits, labels, opts)


def ctc_loss(logits: Value, labels: Value, blank: int = 0, lengths: Optional[Value] = None) -> Value:
    """Connectionist temporal classification of logits [N,T,C] and labels i32 [N,S], which end before the
    first negative one; ``lengths``: i32 [N], time steps of each sample."""
    opts = c.kolo_ctc_opts(blank=blank)
    if lengths is not None:
        opts.lengths, opts.use_lengths = lengths.of(logits.graph), True
    return call("ctc_loss", logits, labels, opts)


def soft_xent(logits: Value, target: Value) -> Value:
    """Cross-entropy of logits and target probabilities [N,C,...]."""
    return call("soft_xent", logits, target)


def mse_loss(x: Value, target: Value) -> Value:
    """The sum of (x - target)^2."""
    return call("mse_loss", x, target)


def l1_loss(x: Value, target: Value) -> Value:
    """The sum of |x - target|."""
    return call("l1_loss", x, target)


def huber_loss(x: Value, target: Value, delta: float = 1) -> Value:
    """The sum of Huber's loss."""
    return call("huber_loss", x, target, delta)


def bce_with_logits(x: Value, target: Value) -> Value:
    """The sum of the binary cross-entropies of logits x and probabilities."""
    return call("bce_with_logits", x, target)


def kl_div(log_q: Value, p: Value) -> Value:
    """The Kullback-Leibler divergence of log-probabilities from probabilities."""
    return call("kl_div", log_q, p)


def accuracy(logits: Value, labels: Value, ignore_index: Optional[int] = None) -> Value:
    """The number of labels that have the largest logit; ``ignore_index``: that of the loss."""
    return call("accuracy_opts", logits, labels,
                c.kolo_loss_opts(ignore_index is not None, ignore_index or 0, 0))


def confusion(logits: Value, labels: Value) -> Value:
    """Counts [C,C] of labels i whose largest logit is j."""
    return call("confusion", logits, labels)


def score_counts(scores: Value, labels: Value) -> Value:
    """Counts [2,65536] of scores, such as logits, by label 0 or 1 and by value in bf16; as the output
    "score_counts" it adds the metric "auc" to evaluations."""
    return call("score_counts", scores, labels)
