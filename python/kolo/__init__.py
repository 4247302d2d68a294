"""Kolo for Python: collective communication, and training of networks on any number of workers.

    import kolo
    import numpy as np

    comm = kolo.init()                          # all workers of `kolo run -n 4 -- python3 train.py`
    gradient = np.ones(1000, np.float32)
    comm.allreduce(gradient, op="mean")         # in place

``kolo.Session`` trains a network: see docs/python.md. Errors raise the exceptions of this module with
the library's message.
"""

from . import _bindings, checkpoint, nn, ops
from ._errors import (ArgumentError, DivergedError, Error, FileError, FormatError,
                      OutOfMemoryError, PeerError, TimeoutError, UnsupportedError)
from ._hook import Event
from ._memory import Buffer, Operation
from ._reducer import Codec, Reducer
from .comm import ANY_RANK, Comm, Handle, Request, combine, init
from .custom_op import Op, Tensor
from .data import Dataset
from .graph import Graph, Value
from .session import Batch, Loader, Progress, Result, Session
from .zoo import Model, models

__version__: str = _bindings.lib.kolo_version().decode()
__all__ = ["ANY_RANK", "ArgumentError", "Batch", "Buffer", "Codec", "Comm", "Dataset",
           "DivergedError", "Error", "Event", "FileError", "FormatError", "Graph", "Handle", "Loader",
           "Model", "Op", "Operation", "OutOfMemoryError", "PeerError", "Progress", "Reducer",
           "Request", "Result", "Session", "Tensor", "TimeoutError", "UnsupportedError", "Value", "__version__",
           "checkpoint", "combine", "init", "models", "nn", "ops"]

for _class in (Error, ArgumentError, DivergedError, FileError, FormatError, OutOfMemoryError,
               PeerError, TimeoutError, UnsupportedError):
    _class.__module__ = __name__  # the name in messages
