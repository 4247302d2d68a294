"""Arguments of collectives: memory, element types, operations."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional, Union

from . import _arrays, _errors
from ._bindings import c, names_of
from ._bindings import lib as _lib
from ._options import code_of

DTYPES = names_of("kolo_dtype")

# Element types by format character of the struct module; those of platform-dependent size by size.
_BY_FORMAT = {"f": "f32", "d": "f64", "e": "f16", "b": "i8", "B": "u8", "c": "u8", "?": "u8", "h": "i16",
              "H": "u16", "Zf": "c64", "Zd": "c128"}
_BY_SIZE = {4: "32", 8: "64"}


class Buffer:
    """``count`` elements of type ``dtype`` ("f32", "bf16", ...) at ``address``.

    Keeps a reference to ``owner``.
    """

    def __init__(self, address: Optional[int], count: int, dtype: str, owner: Any = None) -> None:
        code_of("kolo_dtype", "type", dtype)  # raises an exception if there is none
        self.address, self.count, self.dtype, self.owner = address, count, dtype, owner
        self.logical = False  # booleans, as u8
        self.element: Any = None  # numpy's type of elements that are structures; dtype has no meaning for them

    def kind(self) -> Any:
        """The type of the elements: a structure, or the name of a type."""
        return self.dtype if self.element is None else self.element


def _dtype_of(view: memoryview) -> str:
    half = getattr(view.obj, "half", None)  # of Comm.alloc: the format is that of u16
    if half and view.itemsize == 2:
        return str(half)
    letter = view.format.lstrip("@=<")
    if letter in _BY_FORMAT:
        return _BY_FORMAT[letter]
    if letter and letter in "ilqILQ":
        return ("i" if letter.islower() else "u") + _BY_SIZE[view.itemsize]
    raise TypeError(f"elements of format {view.format!r} cannot be reduced or sent")


def buffer_of(data: Any, writable: bool = True, structures: bool = False) -> Buffer:
    """The memory of an object with the buffer protocol; its elements may be structures if
    ``structures``."""
    if isinstance(data, Buffer):
        return data
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"a {type(data).__name__} is not an array: give a numpy array or another object "
                        "with the buffer protocol") from None
    if not view.c_contiguous:
        raise ValueError("the array is not contiguous: make a copy of it first")
    if view.readonly and writable:
        raise ValueError("the array is read-only")
    if view.format[0] in ">!" and view.itemsize > 1:
        raise TypeError(f"elements of format {view.format!r} have a foreign byte order")
    dtype, element = "f32", None
    if structures and view.format.startswith("T{"):
        element = _numpy_type(data, view)
    else:
        dtype = _dtype_of(view)
    memory = Buffer(_address_of(view) if view.nbytes else None, view.nbytes // view.itemsize, dtype, view)
    memory.logical, memory.element = view.format.endswith("?"), element
    return memory


def _numpy_type(data: Any, view: memoryview) -> Any:
    """numpy's type of the elements. That of an array is not in its format, which depends on the address and
    leaves out padding."""
    np = _arrays.numpy()
    dtype = data.dtype if isinstance(data, np.ndarray) else np.asarray(view).dtype
    if dtype.hasobject or dtype.itemsize != view.itemsize or not dtype.itemsize:
        raise TypeError(f"elements of format {view.format!r} cannot be reduced or sent")
    return dtype


class _PyBuffer(ctypes.Structure):  # Py_buffer of the C interface
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int),
                ("ndim", ctypes.c_int), ("format", ctypes.c_char_p),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def _address_of(view: memoryview) -> Optional[int]:
    """The address of a view's memory, valid as long as the view."""
    held = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(held), 0)
    address: Optional[int] = held.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(held))
    return address


class Operation:
    """An operation of the program, for ``op`` of allreduce, reduce and reduce_scatter.

    ``function(to, other)`` combines two numpy arrays of equal length in place:
    ``to[:] = np.hypot(to, other)``. It must be associative. Elements are those of the data, which may
    have fields (numpy's structured types). Unless ``commutative``, the ranks are combined in their
    order. ``name``, by default that of the function, is for errors, and the same on all ranks. The
    function may be called in a thread of the library and must not use communicators. An exception
    breaks the communicator: on all ranks the call raises kolo.Error with its text.
    """

    def __init__(self, function: Callable[[Any, Any], None], name: str = "",
                 commutative: bool = False) -> None:
        self._function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)[:24]
        self.commutative = commutative

    def bind(self, data: Any) -> Any:
        """The kolo_user_op for arrays like ``data``."""
        np = _arrays.numpy()
        if not isinstance(data, Buffer):
            dtype = _numpy_type(data, memoryview(data))
        elif data.dtype == "bf16":
            raise TypeError(f"operation {self.name!r} of the program on bf16, which numpy does not have: "
                            "convert to f32")
        else:
            dtype = np.dtype(_arrays.FORMATS[data.dtype])
        return c.kolo_user_op(name=self.name.encode(), combine=c.user_combine(self._calling(dtype)),
                              element_bytes=dtype.itemsize if dtype.fields else 0,
                              commutative=self.commutative)

    def _calling(self, dtype: Any) -> Callable[[Any, int, int, int], int]:
        np = _arrays.numpy()

        def view(address: int, count: int) -> Any:
            memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
            return np.frombuffer(memory, dtype)

        def call(_arg: Any, to: int, other: int, count: int) -> int:
            try:
                source = view(other, count)
                source.flags.writeable = False
                if self._function(view(to, count), source) is not None:
                    raise TypeError("the function returns a value: write it to the first array, by [:]")
                return 0
            except BaseException as failure:  # pylint: disable=broad-except
                return int(_lib.kolo_error_set(_errors.code("KOLO_ERR_ARG"), b"%s",
                                               _errors.text_of(failure)))
        return call


Op = Union[str, Operation]


def op_code(name: Op, *memory: Optional[Buffer]) -> int:
    """The code of an operation that supports these elements."""
    if isinstance(name, Operation):
        raise TypeError(f"operation {name.name!r} of the program: use allreduce, reduce, reduce_scatter "
                        "or request")
    number = code_of("kolo_reduce_op", "operation", name)
    if name not in ("min", "max") and any(m.logical for m in memory if m):
        raise TypeError(f"operation {name!r} on booleans: use 'max' (or) or 'min' (and), or an "
                        "array of integers")
    return number


def milliseconds(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"timeout of {seconds} s: give 0 (the default) or more")
    return int(seconds * 1000)


def encoded(text: Optional[str]) -> Optional[bytes]:
    return text.encode() if text is not None else None
