"""Weight files: inspection, verification, comparison, export."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Tuple, Union

from ._bindings import training as _lib
from ._options import code_of
from .session import take_text

Path = Union[str, "os.PathLike[str]"]


def _text(function: Any, path: Path) -> str:
    text = ctypes.c_void_p()
    function(os.fsencode(path), ctypes.byref(text))
    return take_text(text)


def describe(path: Path) -> str:
    """Metadata, and name, type and shape of each tensor, of a safetensors file."""
    return _text(_lib.kolo_checkpoint_describe, path)


def verify(path: Path) -> str:
    """Verifies hashes, tensors and values; returns what was verified."""
    return _text(_lib.kolo_checkpoint_verify, path)


def compare(a: Path, b: Path) -> Tuple[bool, str]:
    """Whether two files have the same tensors, bitwise, and a line for each that differs."""
    equal, text = ctypes.c_bool(), ctypes.c_void_p()
    _lib.kolo_checkpoint_compare(os.fsencode(a), os.fsencode(b), ctypes.byref(equal),
                                 ctypes.byref(text))
    return equal.value, take_text(text)


def export(source: Path, to: Path, names: str = "native") -> None:
    """Writes the parameters of a checkpoint with the tensor names of a convention, such as
    "torchvision", or as an "onnx" file: `kolo help checkpoint export` lists the names. `to` must be
    another file than `source`."""
    _lib.kolo_checkpoint_export(os.fsencode(source), os.fsencode(to),
                                code_of("kolo_checkpoint_format", "names", names))
