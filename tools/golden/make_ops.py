#!/usr/bin/env python3
"""Makes tests/golden/ops.safetensors: the builders of <kolo/graph.h> as PyTorch computes them.

    tools/golden/make_ops.py [FILE]

Needs PyTorch (2.1 or later) and NumPy. For each case, in f64: CASE.y, and CASE.dI, the gradient of
sum(y r) by parameter I. Inputs are not stored: both sides fill number k of tensor I with number(I, k),
and r with number(9, k). test_ops.c has the same cases.
"""
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from make_lenet import write_safetensors


def tensor(seed, shape, shift=0.0):
    count = math.prod(shape)
    k = np.arange(count)
    return torch.tensor(((k * 37 + seed * 53 + 11) % 101) / 50.5 - 1 + shift, dtype=torch.float64).reshape(shape)


IDS = torch.tensor([3, 0, 3, 1, 2, 0])


def attention(q, k, v, heads, groups, causal=False, bias=None, scale=None, window=None):
    def split(x, n):
        return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2)

    q, k, v = split(q, heads), split(k, groups), split(v, groups)
    k, v = (x.repeat_interleave(heads // groups, 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if bias is not None:
        s = s + bias
    if causal:
        t, n = s.shape[2:]
        s = s.masked_fill(torch.ones(t, n, dtype=torch.bool).triu(n - t + 1), -math.inf)
    if window:
        s = s.masked_fill(torch.ones(*s.shape[2:], dtype=torch.bool).tril(s.shape[3] - s.shape[2] - window), -math.inf)
    return (s.softmax(-1) @ v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def rotary(x, heads, base, first):
    n, t, c = x.shape
    d = c // heads
    inverse = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(torch.arange(first, first + t, dtype=torch.float64), inverse)
    cos, sin = (torch.cat([f(angle)] * 2, -1)[None, :, None] for f in (torch.cos, torch.sin))
    x = x.reshape(n, t, heads, d)
    turned = torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1)
    return (x * cos + turned * sin).reshape(n, t, c)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def recurrent(kind, x, *parameters, bidirectional=False, state=None):
    """PyTorch's layer with these parameters, in its order: w_ih, w_hh, b_ih, b_hh."""
    hidden = parameters[1].shape[1]
    layer = getattr(torch.nn, kind)(x.shape[2], hidden, batch_first=True, bidirectional=bidirectional).double()
    names = [name for name, _ in layer.named_parameters()]
    return torch.func.functional_call(layer, dict(zip(names, parameters)), (x,) + (() if state is None else (state,)))[0]


def half(x, n):
    """The state of two directions, [N,2H] as [2,N,H]."""
    return x.reshape(x.shape[0], n, -1).transpose(0, 1).contiguous()


def weighted(x, smoothing):
    labels = IDS.reshape(3, 2) % 3  # what is no class is ignored
    return F.cross_entropy(x, labels, tensor(7, (3,), 1), ignore_index=0, reduction="sum", label_smoothing=smoothing)


def ctc(x, labels, blank, steps, sizes):
    return F.ctc_loss(x.log_softmax(2).transpose(0, 1), labels, steps, sizes, blank, "sum", True)


X = (2, 3, 4)
GRU = [(6, 4), (6, 2), (6,), (6,)]
LSTM = [(8, 4), (8, 2), (8,), (8,)]
# name: the shapes of the parameters, the function of them, and what is added to the numbers of all
CASES = {
    "exp": ([X], torch.exp),
    "log": ([X], torch.log, 1.5),
    "sqrt": ([X], torch.sqrt, 1.5),
    "rsqrt": ([X], torch.rsqrt, 1.5),
    "reciprocal": ([X], torch.reciprocal, 1.5),
    "neg": ([X], torch.neg),
    "abs": ([X], torch.abs),
    "square": ([X], torch.square),
    "pow": ([X], lambda x: x.pow(-1.7), 1.5),
    "add_number": ([X], lambda x: x + 3),
    "clamp": ([X], lambda x: x.clamp(-0.3, 0.5)),
    "relu6": ([X], lambda x: F.relu6(8 * x)),
    "leaky_relu": ([X], lambda x: F.leaky_relu(x, 0.2)),
    "elu": ([X], lambda x: F.elu(x, 1.5)),
    "softplus": ([X], lambda x: F.softplus(x, 2, 1e9)),
    "hardswish": ([X], lambda x: F.hardswish(5 * x)),
    "hardsigmoid": ([X], lambda x: (5 * x / 6 + 0.5).clamp(0, 1)),
    "sin": ([X], torch.sin, 1.5),
    "cos": ([X], torch.cos, 1.5),
    "atan": ([X], torch.atan),
    "floor": ([X], lambda x: (5 * x).floor()),
    "ceil": ([X], lambda x: (5 * x).ceil()),
    "round": ([X], lambda x: (5 * x).round()),
    "add": ([X, (3, 1)], torch.add),
    "sub": ([(4,), X], torch.sub),
    "mul": ([X, (2, 1, 1)], torch.mul),
    "div": ([X, (1, 3, 4)], torch.div, 1.5),
    "minimum": ([X, (4,)], torch.minimum),
    "maximum": ([(3, 1), (2, 1, 4)], torch.maximum),
    "reduce_sum": ([X], lambda x: x.sum((0, 2))),
    "reduce_mean": ([X], lambda x: x.mean((1, 2), keepdim=True)),
    "reduce_max": ([X], lambda x: x.amax(1)),
    "reduce_min": ([X], lambda x: x.amin((0, 1))),
    "softmax": ([X], lambda x: x.softmax(1)),
    "log_softmax": ([X], lambda x: x.log_softmax(-1)),
    "slice": ([X], lambda x: x[:, :, 1:3]),
    "pad": ([X], lambda x: F.pad(x, (0, 0, 0, 0, 1, 2))),
    "split": ([X], lambda x: torch.split(x, [1, 3], 2)[1]),
    "concat": ([X, (2, 3, 2)], lambda x, y: torch.cat([x, y, x], 2)),
    "permute": ([X], lambda x: x.permute(2, 0, 1)),
    "transpose": ([X], lambda x: x.transpose(0, 2)),
    "stop_gradient": ([X], lambda x: x * x.detach()),
    "rms_norm": ([X, (4,)], rms_norm),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b)),
    "instance_norm": ([(2, 3, 2, 2)], F.instance_norm),
    "conv1d": ([(2, 4, 7), (6, 2, 3)], lambda x, w: F.conv1d(x, w, None, 2, 1, 1, 2)),
    "conv_transpose": ([(2, 4, 3, 2), (4, 3, 3, 2)],
                       lambda x, w: F.conv_transpose2d(x, w, None, (2, 3), (1, 0), (1, 2))),
    "conv_transpose_groups": ([(1, 4, 3, 3), (4, 3, 2, 2)],
                              lambda x, w: F.conv_transpose2d(x, w, None, 1, 0, 0, 2, 2)),
    "pixel_shuffle": ([(1, 8, 2, 3)], lambda x: F.pixel_shuffle(x, 2)),
    "repeat_pixels": ([(1, 2, 2, 3)], lambda x: F.interpolate(x, scale_factor=3)),
    "max_pool3d": ([(1, 2, 5, 4, 5)], lambda x: F.max_pool3d(x, (2, 3, 2), (2, 1, 2), (1, 1, 0), ceil_mode=True)),
    "avg_pool3d": ([(1, 2, 5, 4, 5)], lambda x: F.avg_pool3d(x, (3, 2, 3), (2, 2, 1), (1, 0, 1), True, False)),
    "resize_nearest": ([(1, 2, 5, 3)], lambda x: F.interpolate(x, (3, 7))),
    "gather": ([(4, 3)], lambda x: x[IDS]),
    "scatter_add": ([(6, 3)], lambda x: torch.zeros(5, 3, dtype=x.dtype).index_add(0, IDS, x)),
    "embedding_bag": ([(4, 3)], lambda w: F.embedding_bag(IDS.reshape(2, 3), w, mode="mean")),
    "soft_xent": ([(2, 4)], lambda x: -(tensor(7, (2, 4), 1).softmax(1) * x.log_softmax(1)).sum()),
    "kl_div": ([(2, 4)], lambda x: F.kl_div(x, tensor(7, (2, 4), 1), reduction="sum")),
    "weighted": ([(3, 3, 2)], lambda x: weighted(x, 0)),
    "weighted_smoothed": ([(3, 3, 2)], lambda x: weighted(x, 0.2)),
    "ctc": ([(2, 7, 5)], lambda x: ctc(x, IDS.reshape(2, 3), 4, [7, 7], [3, 3])),
    "ctc_lengths": ([(6, 3, 4)], lambda x: ctc(x, torch.arange(6).reshape(6, 1) % 3 + 1, 0, IDS, torch.ones(6).long())),
    "cross_attention": ([(2, 3, 8), (2, 5, 8), (2, 5, 4)], lambda q, k, v: attention(q, k, v, 2, 2)),
    "grouped_queries": ([(1, 3, 8), (1, 5, 4), (1, 5, 6)],
                        lambda q, k, v: attention(q, k, v, 4, 2, causal=True)),
    "attention_bias": ([(1, 3, 4), (1, 3, 4), (1, 3, 4), (2, 3, 3)],
                       lambda q, k, v, b: attention(q, k, v, 2, 2, bias=b, scale=0.3)),
    "attention_window": ([(1, 4, 4), (1, 6, 4), (1, 6, 4)],
                         lambda q, k, v: attention(q, k, v, 2, 2, causal=True, window=2)),
    "grid_sample": ([(2, 2, 3, 4), (2, 2, 3, 2)], lambda x, g: F.grid_sample(x, g, align_corners=False)),
    "grid_border": ([(2, 2, 3, 4), (2, 2, 3, 2)],
                    lambda x, g: F.grid_sample(x, 2 * g, "bilinear", "border", align_corners=True)),
    "grid_reflection": ([(2, 2, 3, 4), (2, 2, 3, 2)],
                        lambda x, g: F.grid_sample(x, 3 * g, "bilinear", "reflection", align_corners=False)),
    "grid_nearest": ([(2, 2, 3, 4), (2, 2, 3, 2)],
                     lambda x, g: F.grid_sample(x, 3 * g, "nearest", "reflection", align_corners=True)),
    "grid_bicubic": ([(2, 2, 3, 4), (2, 2, 3, 2)], lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False)),
    "grid_bicubic_border": ([(2, 2, 3, 4), (2, 2, 3, 2)],
                            lambda x, g: F.grid_sample(x, 2 * g, "bicubic", "border", align_corners=True)),
    "grid_bicubic_reflection": ([(2, 2, 3, 4), (2, 2, 3, 2)],
                                lambda x, g: F.grid_sample(x, 3 * g, "bicubic", "reflection", align_corners=False)),
    "flip": ([X], lambda x: x.flip(1)),
    "conv3d": ([(2, 4, 5, 4, 3), (6, 2, 3, 2, 3)],
               lambda x, w: F.conv3d(x, w, None, (2, 1, 1), (1, 0, 1), (1, 2, 1), 2)),
    "conv3d_dilated": ([(1, 2, 6, 3, 3), (2, 2, 2, 3, 3)],
                       lambda x, w: F.conv3d(x, w, None, (3, 2, 1), (0, 1, 1), (3, 1, 1))),
    "gru": ([X, *GRU], lambda x, *p: recurrent("GRU", x, *p)),
    "gru_bidirectional": ([X, (2, 4), *GRU, *GRU],
                          lambda x, h, *p: recurrent("GRU", x, *p, bidirectional=True, state=half(h, 2))),
    "lstm_state": ([X, (2, 2), (2, 2), *LSTM],
                   lambda x, h, c, *p: recurrent("LSTM", x, *p, state=(half(h, 1), half(c, 1)))),
    "lstm_bidirectional": ([X, (2, 4), (2, 4), *LSTM, *LSTM],
                           lambda x, h, c, *p: recurrent("LSTM", x, *p, bidirectional=True,
                                                         state=(half(h, 2), half(c, 2)))),
    "rotary": ([(2, 3, 8)], lambda x: rotary(x, 2, 100.0, 1)),
}


def main():
    tensors = {}
    for name, (shapes, function, *shift) in CASES.items():
        leaves = [tensor(i, s, *shift).requires_grad_() for i, s in enumerate(shapes)]
        y = function(*leaves)
        gradients = torch.autograd.grad((y * tensor(9, tuple(y.shape))).sum(), leaves)
        tensors[f"{name}.y"] = y.detach().contiguous().numpy()
        for i, d in enumerate(gradients):
            tensors[f"{name}.d{i}"] = d.contiguous().numpy()
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/ops.safetensors"
    write_safetensors(path, tensors, {"cases": str(len(CASES))})


if __name__ == "__main__":
    main()
