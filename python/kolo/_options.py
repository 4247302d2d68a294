"""Options of the library as keyword arguments."""

from __future__ import annotations

import ctypes
import difflib
import operator
import os
from typing import Any, Callable, Dict, Iterable, Mapping, Tuple

from ._bindings import MEMBERS, NAMES, names_of
from ._bindings import lib as _comm
from ._library import PARSED


def code_of(ctype: str, what: str, name: str) -> int:
    """The code of a name of an enumeration."""
    if not isinstance(name, str):
        raise TypeError(f"{what} {name!r}: give a name")
    if ctype in PARSED:
        number = ctypes.c_int()
        getattr(_comm, PARSED[ctype])(name.encode(), ctypes.byref(number))
        return number.value
    names = names_of(ctype)
    if name not in names:
        raise ValueError(f"{what} {name!r}: choose one of {', '.join(names)}")
    return names.index(name)


def _text(value: Any) -> Any:
    return None if value is None else os.fsencode(value)


# What a value is converted by, and what it must be, by the C type of an option; others are integers.
_CONVERSIONS: Dict[str, Tuple[Callable[[Any], Any], str]] = {
    "bool": (bool, "True or False"), "double": (float, "a number"), "const char *": (_text, "a text")}


def _value(ctype: str, name: str, value: Any) -> Any:
    if ctype in NAMES or ctype in PARSED:
        return code_of(ctype, name, value)
    if ctype == "bool" and isinstance(value, str):
        raise TypeError(f"option {name!r} is {value!r}: give True or False")
    convert, wanted = _CONVERSIONS.get(ctype, (operator.index, "an integer"))
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise TypeError(f"option {name!r} is {value!r}: give {wanted}") from None


def fill(structure: Any, options: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Any]:
    """Sets the members ``names`` of a structure that are in ``options``; returns the other options."""
    rest = dict(options)
    members = MEMBERS[type(structure).__name__]
    for name in names:
        if name in rest:
            setattr(structure, name, _value(members[name][0], name, rest.pop(name)))
    return rest


def refuse(what: str, rest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises a TypeError for options that do not exist."""
    for name in rest:
        close = difflib.get_close_matches(name, list(names), 1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{what} has no option {name!r}{hint}")


def settable(structure: str, without: Iterable[str]) -> Iterable[str]:
    """The members of a structure that are options."""
    return [n for n in MEMBERS[structure] if n not in without]
