"""A network of two layers, and 24 samples of three classes."""

import numpy as np
from kolo import nn, ops

random = np.random.default_rng(3)
X = random.normal(size=(24, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32) + (X[:, 1] > 0)


def net(g):
    x, y = g.input("x", (4,)), g.input("y", dtype="i32")
    logits = nn.linear(ops.tanh(nn.linear(x, 8, "up")), 3, "down")
    g.output(logits=logits, loss=ops.softmax_xent(logits, y), correct=ops.accuracy(logits, y))
