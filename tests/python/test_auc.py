"""The metric auc: against sorting, over batches and ranks, in f64, with labels of either type."""
# needs numpy; ranks 3

import kolo
import numpy as np
from kolo import nn, ops

comm = kolo.init()
random = np.random.default_rng(8)
x = random.normal(size=(500, 6)).astype(np.float32)
y = (x @ random.normal(size=6) + 2 * random.normal(size=500) > 1).astype(np.float32)


def auc_by_sorting(scores, labels):
    """The rank sum of the positive samples; equal scores share the mean of their ranks."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(labels.sum())
    negative = len(labels) - positive
    return (ranks[labels > 0.5].sum() - positive * (positive + 1) / 2) / (positive * negative)


def net(dtype):
    def build(g):
        samples, labels = g.input("x", (6,)), g.input("y", dtype=dtype)
        logits = ops.reshape(nn.linear(samples, 1, "out"), (g.samples,))
        if dtype == "f32":
            g.output(loss=ops.bce_with_logits(logits, labels))
        g.output(logits=logits, score_counts=ops.score_counts(logits, labels))
    return build


alone = kolo.Session(net("f32"), batch=64, lr=0.5)
together = kolo.Session(net("f32"), comm, global_batch=96, lr=0.5)
data = kolo.Dataset({"x": x, "y": y})
assert "auc" not in alone.step(x=x[:64], y=y[:64])  # of evaluations alone
for session in (alone, together):
    result = session.fit(data, data, epochs=3)
    logits = session.predict("logits", x=x)
    cut = (logits.view(np.uint32) & np.uint32(0xffff0000)).view(np.float32)
    found = session.evaluate(data)["auc"]
    assert result.test["auc"] == found and 0.6 < found < 0.95, (result, found)
    assert abs(found - auc_by_sorting(cut, y)) < 1e-12, (found, auc_by_sorting(cut, y))
    assert abs(found - auc_by_sorting(logits, y)) < 1e-3
for name in ("out.weight", "out.bias"):
    alone.set(name, together.get(name))
assert alone.evaluate(data)["auc"] == together.evaluate(data)["auc"]  # for any number of ranks
found = alone.evaluate(x=x, y=y)["auc"]  # of one batch
assert found == together.evaluate(data)["auc"], found
for options, labels in (({"f64": True}, "f32"), ({}, "i32"), ({"precision": "bf16"}, "i32")):
    other = kolo.Session(net(labels), evaluate_only=True, **options)
    for name in ("out.weight", "out.bias"):
        other.set(name, alone.get(name))
    value = other.evaluate(x=x, y=y if labels == "f32" else y.astype(np.int32))["auc"]
    assert abs(value - found) < (5e-3 if options else 1e-12), (value, found)
assert "auc" not in alone.evaluate(x=x[:5], y=0 * y[:5])  # one kind of labels
