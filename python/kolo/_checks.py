"""Checks of the arguments that the library gets: ctypes stores integers modulo their size, and cuts texts at
NUL characters."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

Check = Callable[[str, Any], None]  # raises an error that has the name of the argument

_BITS = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
         "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t}


def integer(what: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """An integer of a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} {value!r}: give an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{what} {number}: give an integer from {least} to {most}")
    return number


def _range_of(base: str) -> Tuple[int, int]:
    bits = 8 * ctypes.sizeof(_BITS[base])
    return (0, 2**bits - 1) if base.startswith(("u", "size")) else (-2**(bits - 1), 2**(bits - 1) - 1)


def integers(what: str, base: str, values: Iterable[Any]) -> Any:
    """An array of integers of a C type, such as "int64_t"."""
    numbers = [integer(what, value, *_range_of(base)) for value in values]
    return (_BITS[base] * len(numbers))(*numbers)


def _of_integer(least: int, most: int) -> Check:
    def check(name: str, value: Any) -> None:
        if type(value) is not int or not least <= value <= most:
            integer(name, value, least, most)
    return check


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, str) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{name} {value!r}: give a number")


def _check_text(name: str, value: Any) -> None:
    if isinstance(value, bytes) and b"\0" in value:
        raise ValueError(f"{name} {value.decode(errors='backslashreplace')!r} has a NUL character")


_CHECKS: Dict[str, Check] = {base: _of_integer(*_range_of(base)) for base in _BITS}
_CHECKS["double"] = _check_number
_CHECKS["char *"] = _check_text


def check_of(ctype: str) -> Optional[Check]:
    """The check of a C type, such as "int64_t", if it has one."""
    return _CHECKS.get(ctype.replace("const ", "").strip())


class Structure(ctypes.Structure):
    """A structure whose members are checked when they are set."""

    checks: Dict[str, Check] = {}  # by member
    zeros: Dict[str, Optional[float]] = {}  # by member, what 0 becomes: see ZEROS

    def __setattr__(self, name: str, value: Any) -> None:
        check = self.checks.get(name)
        if check:
            check(name, value)
        if name in self.zeros and value == 0:
            value = self.zeros[name]
            if value is None:
                raise ValueError(f"{name} 0: give a number above 0, or leave it out for the default")
        super().__setattr__(name, value)


def checking(function: Any, parameters: List[Tuple[str, str]]) -> Any:
    """A function of C that checks its arguments; ``parameters``: their C types and names."""
    checks = [(i, name, check_of(ctype)) for i, (ctype, name) in enumerate(parameters)]
    wanted = [(i, name, check) for i, name, check in checks if check]
    if not wanted:
        return function

    def call(*arguments: Any) -> Any:
        for i, name, check in wanted:
            check(name, arguments[i])
        return function(*arguments)

    return call
