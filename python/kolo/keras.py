"""Data-parallel training of Keras 3 models on the CPUs of many workers, by the calls of Horovod.

    import kolo.keras as hvd                      # started by: kolo run -n 4 -- python3 train.py

    hvd.init()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss)
    model.fit(x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()],
              callbacks=[hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()])

All workers make the same number of steps. Keras runs on PyTorch (``KERAS_BACKEND=torch``).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import keras

if keras.backend.backend() != "torch":
    raise ImportError(f"kolo.keras: Keras runs on {keras.backend.backend()}: set KERAS_BACKEND=torch, or use kolo.horovod "
                      "in a loop of your own")

import torch  # pylint: disable=wrong-import-position

# pylint: disable=wrong-import-position
from ._arrays import numpy
from .torch import (Average, Max, Min, Product, Sum, allreduce, allreduce_async_, broadcast, broadcast_,
                    broadcast_object, init, local_rank, local_size, rank, shutdown, size, synchronize)

__all__ = ["Average", "BroadcastGlobalVariablesCallback", "DistributedOptimizer", "Max", "MetricAverageCallback",
           "Min", "Product", "Sum", "allreduce", "broadcast", "broadcast_object", "init", "local_rank", "local_size",
           "rank", "shutdown", "size"]

_classes: Dict[Any, Any] = {}  # averaging classes by optimizer class


class _Averaging:
    """What DistributedOptimizer adds to the class of an optimizer."""

    _kolo_op: str

    def apply(self, grads: List[Any], trainable_variables: Optional[List[Any]] = None) -> Any:
        """Averages the gradients over all ranks, then applies them. One that a rank has not computed counts as
        zeros."""
        variables = trainable_variables or self._trainable_variables  # type: ignore[attr-defined]
        whole = [torch.zeros_like(v.value) if g is None else g.detach().contiguous() for g, v in zip(grads, variables)]
        handles = [allreduce_async_(g, f"gradient.{i}.{v.path}", self._kolo_op)
                   for i, (g, v) in enumerate(zip(whole, variables))]
        for handle in handles:
            synchronize(handle)
        return super().apply(whole, trainable_variables)  # type: ignore[misc]


def DistributedOptimizer(optimizer: Any, op: str = Average) -> Any:  # pylint: disable=invalid-name
    """Lets an optimizer average (or sum) the gradients of all ranks before it applies them. Returns the optimizer."""
    if op not in (Average, Sum):
        raise ValueError(f"operation {op!r}: gradients are averaged or summed")
    if isinstance(optimizer, _Averaging):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"{optimizer!r} is no optimizer of Keras, such as keras.optimizers.SGD()")
    base = type(optimizer)
    if base not in _classes:  # its name is that of the base, so that saved models load without Kolo
        _classes[base] = type(base.__name__, (_Averaging, base), {"__module__": base.__module__})
    optimizer.__class__ = _classes[base]
    optimizer._kolo_op = op  # pylint: disable=protected-access
    return optimizer


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Copies the root's weights and optimizer state to all ranks before training."""

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root = root_rank

    def on_train_begin(self, logs: Any = None) -> None:  # pylint: disable=unused-argument
        """Keras has built the model and the optimizer."""
        for variable in [*self.model.variables, *self.model.optimizer.variables]:
            value = variable.value.detach()
            if value.is_contiguous():
                broadcast_(value, self._root)
            else:
                value.copy_(broadcast(value, self._root))


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch, those of its evaluation included, over all ranks. Callbacks that use them,
    such as EarlyStopping, come after it."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # pylint: disable=unused-argument
        """All ranks have the same metrics."""
        names = sorted(name for name, value in (logs or {}).items() if numpy().ndim(value) == 0)
        if names:
            means = allreduce(torch.tensor([float(logs[name]) for name in names], dtype=torch.float64),
                              name="metrics of an epoch")
            logs.update(zip(names, means.tolist()))
