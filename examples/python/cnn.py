"""A network of one's own on Fashion-MNIST. kolo run -n 2 -- python3 cnn.py [DATA]"""
import sys

import kolo
from kolo import nn, ops


def cnn(g):
    x, y = g.input("x", (1, 28, 28)), g.input("y", dtype="i32")
    x = ops.max_pool2d(ops.relu(nn.conv2d(x, 16, 3)), 2)
    x = ops.max_pool2d(ops.relu(nn.conv2d(x, 32, 3)), 2)
    logits = nn.linear(ops.dropout(ops.flatten(x), 0.25), 10)
    g.output(logits=logits, loss=ops.softmax_xent(logits, y), correct=ops.accuracy(logits, y))


train, test = (kolo.Dataset.open((sys.argv[1:] or ["fashion-mnist"])[0], s) for s in ("train", "test"))
session = kolo.Session(cnn, kolo.init(), global_batch=64, optimizer="adam", lr=1e-3)
print(session.fit(train, test, epochs=2, eval_every=1, callback=print))
