"""Arrays of programs as memory for the library, without copies where type and layout allow."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from ._bindings import c
from .graph import MAX_RANK, dtype_code, make_shape

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
else:
    Array = Any

_CPU = 1  # DLPack's device type of main memory
# The types that networks compute in: other floating-point numbers and integers are converted.
_NAMES = {"float32": "f32", "float64": "f64", "uint8": "u8", "int32": "i32"}


def numpy() -> Any:
    """The module numpy."""
    try:
        import numpy as np  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise ImportError("sessions and data sets need numpy: pip install numpy, or Debian's "
                          "python3-numpy") from None
    return np


def check_unmasked(what: str, data: Any) -> None:
    """The library has no masks: it would take the values that a mask hides."""
    if numpy().ma.is_masked(data):
        raise TypeError(f"{what} has masked elements: give them values first, as in numpy.ma.filled(data, 0)")


def as_array(what: str, data: Any) -> Array:
    """A numpy array, an object with DLPack in main memory (a PyTorch tensor), or what numpy.asarray
    takes; shares the memory where it can. ``what`` it is, for errors. Masked elements are refused."""
    np = numpy()
    if isinstance(data, np.ma.MaskedArray):
        check_unmasked(what, data)
    try:
        if isinstance(data, np.ndarray) or not hasattr(data, "__dlpack__"):
            return np.asarray(data)  # type: ignore[no-any-return]
        on_cpu = data.__dlpack_device__()[0] == _CPU
        array = np.from_dlpack(data) if on_cpu else None
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = f" of {data.dtype}" if hasattr(data, "dtype") else ""
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{what}, a {type(data).__name__}{dtype}, cannot be read as an array: {error}") from None
    if array is None:
        raise TypeError(f"{what} is not in main memory: copy it there first")
    return array  # type: ignore[no-any-return]


def as_type(what: str, array: Array, dtype: Any) -> Array:
    """The values of an array as contiguous elements of a type of numpy, in native byte order. Integers that do
    not fit are refused, and so are fractions for integers."""
    np = numpy()
    wanted = np.dtype(dtype)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what} has elements of type {array.dtype}: use numbers")
    if wanted.kind != "f" and array.dtype.kind == "f":
        raise TypeError(f"{what} has elements of type {array.dtype}: use integers")
    converted = np.require(array, wanted, "CA")
    if wanted.kind != "f" and not (converted == array).all():
        sign = " without a sign" if wanted.kind == "u" else ""
        raise ValueError(f"{what} has integers that do not fit into {8 * wanted.itemsize} bits{sign}")
    return converted  # type: ignore[no-any-return]


def as_field(name: str, data: Any, real: str = "float32") -> Array:
    """Contiguous f32 (or ``real``), i32 or u8 values: integers that do not fit into i32 are refused."""
    array = as_array(f"field {name!r}", data)
    wanted = "uint8" if array.dtype.name == "uint8" else real if array.dtype.kind == "f" else "int32"
    return as_type(f"field {name!r}", array, wanted)


def describe(name: str, array: Array, normalize: Tuple[Any, Any] = ((), ())) -> Any:
    """The kolo_field of an array [samples, ...]; ``normalize``: mean and deviation of u8."""
    if array.ndim == 0 or array.ndim > MAX_RANK:
        raise ValueError(f"field {name!r} has {array.ndim} dimensions: the first is the samples, "
                         f"and there are at most {MAX_RANK}")
    return make_field(name, _NAMES[array.dtype.name], array.shape[1:], normalize)


def make_field(name: str, dtype: str, shape: Sequence[int],
               normalize: Tuple[Any, Any] = ((), ())) -> Any:
    """A kolo_field."""
    field = c.kolo_field(name=name.encode(), dtype=dtype_code(dtype), shape=make_shape(shape))
    for member, numbers in zip((field.mean, field.std), normalize):
        try:
            values = numpy().atleast_1d(numpy().asarray(numbers, "float64")).tolist()
        except (TypeError, ValueError):
            raise TypeError(f"field {name!r} is normalized by {numbers!r}: {_NORMALIZE}") from None
        if len(values) > len(member):
            raise ValueError(f"field {name!r}: at most {len(member)} channels are normalized")
        for i, number in enumerate(values):
            member[i] = number
    return field


_NORMALIZE = 'give mean and deviation, as in {"x": (0.5, 0.25)}, each a number or one for each channel'


def check_normalize(normalize: Any, names: Iterable[str]) -> Mapping[str, Tuple[Any, Any]]:
    """What a caller normalizes of fields: mean and deviation by name."""
    if normalize is None:
        return {}
    if not isinstance(normalize, Mapping):
        raise TypeError(f"normalize is {normalize!r}: {_NORMALIZE}")
    for name, pair in normalize.items():
        if name not in names:
            raise ValueError(f"no field {name!r} to normalize")
        if not hasattr(pair, "__len__") or len(pair) != 2:
            raise TypeError(f"field {name!r} is normalized by {pair!r}: {_NORMALIZE}")
    return normalize


def address(array: Array) -> int:
    """The address of an array's memory."""
    return int(array.ctypes.data)


def check_named(arrays: Any) -> Mapping[str, Any]:
    """Samples of a caller: arrays by name."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"samples of type {type(arrays).__name__}: give a dictionary with an array for "
                        'each input, {"x": images, "y": labels}')
    return arrays


class Fields:
    """A kolo_batch or kolo_source of named arrays [samples, ...], which it keeps alive."""

    def __init__(self, structure: Any, arrays: Mapping[str, Any],
                 normalize: Optional[Mapping[str, Tuple[Any, Any]]] = None, real: str = "float32") -> None:
        if not check_named(arrays):
            raise ValueError("no arrays: give one for each input")
        self.arrays: Dict[str, Array] = {n: as_field(n, a, real) for n, a in arrays.items()}
        counts = {n: a.shape[0] if a.ndim else 0 for n, a in self.arrays.items()}
        pairs = check_normalize(normalize, counts)
        if len(set(counts.values())) != 1:
            raise ValueError("arrays of different numbers of samples: "
                             + ", ".join(f"{n} {k}" for n, k in counts.items()))
        self.fields = (c.kolo_field * len(counts))(
            *(describe(n, a, pairs.get(n, ((), ()))) for n, a in self.arrays.items()))
        self.value = structure(count=next(iter(counts.values())), n_fields=len(counts),
                               fields=ctypes.cast(self.fields, ctypes.POINTER(c.kolo_field)))
        if len(counts) > len(self.value.data):
            raise ValueError(f"{len(counts)} arrays: at most {len(self.value.data)}")
        for i, array in enumerate(self.arrays.values()):
            self.value.data[i] = address(array)


FORMATS = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "uint16", "i8": "int8",
            "u8": "uint8", "i32": "int32", "i64": "int64", "i16": "int16", "u16": "uint16", "u32": "uint32",
            "u64": "uint64", "c64": "complex64", "c128": "complex128"}


def empty(dtype: str, shape: Sequence[int]) -> Array:
    """An array for values of a type of Kolo; bf16 as uint16."""
    return numpy().empty(tuple(shape), FORMATS[dtype])  # type: ignore[no-any-return]


def view(pointer: int, dtype: str, shape: Sequence[int], owner: Any) -> Array:
    """An array at an address, which keeps ``owner`` alive."""
    np = numpy()
    size = np.dtype(FORMATS[dtype]).itemsize
    for dim in shape:
        size *= dim
    memory: Any = (ctypes.c_char * size).from_address(pointer)
    memory.owner = owner
    return np.frombuffer(memory, FORMATS[dtype]).reshape(shape)  # type: ignore[no-any-return]


def output(given: Any, dtype: str, shape: Sequence[int]) -> Array:
    """The array to write to: ``given``, whose type and shape must match, or a new one."""
    if given is None:
        return empty(dtype, shape)
    np = numpy()
    if not isinstance(given, np.ndarray) and not hasattr(given, "__dlpack__"):
        raise TypeError("an output array must be a numpy array or a tensor with DLPack")
    array = as_array("the output array", given)
    if isinstance(given, np.ndarray) and not given.flags.writeable:
        raise ValueError("the output array is read-only")
    if not array.dtype.isnative:
        raise ValueError(f"the output array is {array.dtype.str!r}, of foreign byte order: give one of "
                         f"{FORMATS[dtype]}, or copy the result to it")
    fits = array.dtype.name == FORMATS[dtype] and array.shape == tuple(shape)
    if not fits or not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"the output array must be contiguous, {FORMATS[dtype]} {list(shape)}; "
                         f"it is {array.dtype} {list(array.shape)}")
    return array
