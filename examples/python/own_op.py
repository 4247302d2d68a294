"""An op of one's own, the activation snake x + sin^2(alpha x) / alpha with a trained alpha for each unit
(Ziyin et al., 2020), in a network. kolo run -n 2 -- python3 own_op.py [DATA]"""
import sys

import kolo
import numpy as np
from kolo import nn, ops


class Snake(kolo.Op):
    index = "nc,c->nc"  # each sample and unit on its own: workers can share them

    def forward(self, inputs, outputs):
        x, alpha = inputs
        outputs[0][:] = x + np.sin(alpha * x) ** 2 / alpha

    def backward(self, inputs, d_outputs, d_inputs):
        x, alpha = inputs
        dy, sin2 = d_outputs[0], np.sin(2 * alpha * x)
        d_inputs[0][:] = dy * (1 + sin2)
        d_inputs[1][:] = (dy * (x * sin2 / alpha - np.sin(alpha * x) ** 2 / alpha**2)).sum(0)


def net(g):
    x, y = g.input("x", (1, 28, 28)), g.input("y", dtype="i32")
    hidden = Snake()(nn.linear(ops.flatten(x), 64), g.param("alpha", (64,), "ones"))
    logits = nn.linear(hidden, 10)
    g.output(logits=logits, loss=ops.softmax_xent(logits, y), correct=ops.accuracy(logits, y))


train, test = (kolo.Dataset.open((sys.argv[1:] or ["fashion-mnist"])[0], s) for s in ("train", "test"))
session = kolo.Session(net, kolo.init(), global_batch=64, optimizer="adam", lr=2e-3)
print(session.fit(train, test, epochs=2, eval_every=1, callback=print))
