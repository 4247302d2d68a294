"""Operations on tables and on sequences of tokens [N,T,C]."""

from __future__ import annotations

import ctypes
from typing import List, Optional, Sequence, Tuple

from ._bindings import c
from ._bindings import training as _lib
from .graph import Value, call


def gather_rows(x: Value, ids: Value) -> Value:
    """Rows of x [V,C] by ids i32 [M] -> [M,C]."""
    return call("gather_rows", x, ids)


def scatter_add(rows: Value, ids: Value, n: int) -> Value:
    """A table [n,C], to whose row ids[m] each of the rows [M,C] is added."""
    return call("scatter_add", rows, ids, n)


def embedding_bag(w: Value, ids: Value, mean: bool = False) -> Value:
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
              dropout: float = 0) -> Value:
    """Multi-head self-attention of qkv [N,T,3C] -> [N,T,C]; no token attends to keys whose ``mask``
    i32 [N,T] is 0."""
    opts = c.kolo_attention_opts(heads=heads, causal=causal, use_mask=mask is not None,
                                 dropout=dropout)
    if mask is not None:
        opts.mask = mask.of(qkv.graph)
    return call("attention", qkv, opts)


def cross_attention(q: Value, k: Value, v: Value, heads: int, kv_heads: int = 0,
                    causal: bool = False, scale: float = 0,
                    bias: Optional[Value] = None,
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
    if base == 0:
        raise ValueError("rotary: base 0: give a number above 0")
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
