"""The zoo: well-known networks by name, and networks in files."""

from __future__ import annotations

import ctypes
import warnings
from typing import List, Optional, Sequence, Tuple

from ._bindings import NotCopied, c
from ._bindings import training as _lib
from .data import Dataset
from .graph import Graph, make_shape, read_shape


def models() -> List[str]:
    """The names of the zoo; `kolo help models` describes them."""
    table = _lib.kolo_models()
    names: List[str] = []
    while table[len(names)]:
        names.append(table[len(names)].contents.name.decode())
    return names


class Model(NotCopied):
    """A network of the zoo, of an ONNX file or of a shared object (docs/library.md) for samples of a shape,
    as builder of a session:

        Session(Model("resnet18", classes=10), ...)

    Inputs are "x" and "y", outputs "logits", "loss" and "correct". ``sample`` and ``classes`` default
    to those of ``data`` if given, else to those of the model. ``options`` are those that
    the command takes behind the name, "width=0.5,hidden=256". A warning lists initializers of an ONNX file
    that are trained and may be constants.
    """

    def __init__(self, name: str, sample: Optional[Sequence[int]] = None, classes: int = 0,
                 options: str = "", data: Optional[Dataset] = None) -> None:
        self.name, self.options = name, options
        self._model = ctypes.POINTER(c.kolo_model)()
        _lib.kolo_model_find(name.encode(), ctypes.byref(self._model))
        shape, number = c.kolo_shape(), ctypes.c_int64()
        _lib.kolo_model_sample(self._model, options.encode(), ctypes.byref(shape),
                               ctypes.byref(number))
        self.sample: Tuple[int, ...] = read_shape(shape)
        self.classes = int(number.value)
        if data is not None:
            self.sample = data.fields["x"][1]
            self.classes = data.classes or self.classes
        if sample is not None:
            self.sample = tuple(sample)
        self.classes = classes or self.classes
        file = self._model.contents.file
        notice = _lib.kolo_onnx_notice(file) if file and name.endswith(".onnx") else None
        if notice:
            warnings.warn(notice.decode(), stacklevel=2)

    def __call__(self, g: Graph) -> None:
        opts = c.kolo_model_opts(g.samples, make_shape(self.sample), self.classes,
                                 self.options.encode())
        _lib.kolo_model_add(self._model, g.handle(), ctypes.byref(opts))
        g.check()

    def open(self, spec: str, split: str = "train") -> Dataset:
        """A data set of the command for this model: of text and tokens, windows of its length."""
        opts = c.kolo_dataset_opts()
        _lib.kolo_model_window(self._model, self.options.encode(), ctypes.byref(opts))
        return Dataset._open(spec, split, opts)  # pylint: disable=protected-access
