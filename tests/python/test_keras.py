"""Keras 3 on two workers: the weights of one worker with both halves of each batch; metrics are averaged."""
# needs torch keras numpy; ranks 2

import sys

import keras
import numpy as np
import torch

import kolo.keras as hvd

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
rng = np.random.default_rng(1)
x, y = rng.standard_normal((64, 10), np.float32), rng.integers(0, 3, 64)


def make(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((10,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])


def train(model, optimizer, inputs, labels, batch, callbacks):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model.fit(inputs, labels, batch, 3, shuffle=False, verbose=0, callbacks=callbacks,
                     validation_data=(inputs, labels)).history


own = np.concatenate([np.arange(8 * k + 4 * rank, 8 * k + 4 * rank + 4) for k in range(8)])  # halves of batches of 8
for kind, rate in ((keras.optimizers.SGD, 0.1), (keras.optimizers.Adam, 0.01)):
    model = make(7 + rank)  # different weights, until rank 0's are broadcast
    optimizer = hvd.DistributedOptimizer(kind(rate))
    found = train(model, optimizer, x[own], y[own], 4,
                  [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()])
    alone = make(7)
    wanted = train(alone, kind(rate), x, y, 8, [])
    assert optimizer.iterations.numpy() == 24 and type(optimizer).__name__ == kind.__name__
    for a, b in zip(model.get_weights(), alone.get_weights()):
        assert np.abs(a - b).max() < 1e-5, (kind, np.abs(a - b).max())
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert np.allclose(found[name], wanted[name], atol=1e-5), (name, found[name], wanted[name])
    same = hvd.broadcast_object([w.tolist() for w in model.get_weights()], 0)
    assert all((np.asarray(a, np.float32) == b).all() for a, b in zip(same, model.get_weights()))  # bitwise

for wrong, kind in ((lambda: hvd.DistributedOptimizer(optimizer), ValueError),
                    (lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), "max"), ValueError),
                    (lambda: hvd.DistributedOptimizer(model), TypeError)):
    try:
        wrong()
        sys.exit("accepted")
    except kind:
        pass
hvd.shutdown()
