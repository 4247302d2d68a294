"""Types and functions of ctypes, derived from the declarations of _library.py; loads the libraries when
they are used."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import weakref
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple

from ._checks import Structure, check_of, checking
from ._library import COMM_FUNCTIONS, CONSTANTS, KOLO_FUNCTIONS, NUMBERS, PARSED, TYPES, ZEROS

# ---- from C to ctypes ----

_SCALARS = {"bool": ctypes.c_bool, "int": ctypes.c_int, "unsigned": ctypes.c_uint, "int32_t": ctypes.c_int32,
            "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
            "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double,
            "char": ctypes.c_char}

# The function that names the codes of each enumeration, by its type.
NAMES: Dict[str, str] = {enumeration: function for function, enumeration in re.findall(
    r"const char \*(kolo_\w+_name)\((kolo_\w+) \w+\);", COMM_FUNCTIONS + KOLO_FUNCTIONS)}

# The types of TYPES by their C names: c.kolo_shape(2, (3, 4)).
c: Any = SimpleNamespace()


def ctype_of(text: str) -> Any:
    """The ctypes type of a C type, such as "const kolo_field *". Strings that a function returns for
    the caller to free, and pointers to unknown types, are void pointers."""
    stars = text.count("*")
    base = re.sub(r"\bconst\b|\*", " ", text).strip()
    if base == "float" and stars == 1:  # an array, given by its address
        return ctypes.c_void_p
    if base in NAMES or base in CONSTANTS or base in PARSED or base in NUMBERS:
        found: Any = ctypes.c_int
    elif base in _SCALARS:
        found = _SCALARS[base]
        if base == "char" and stars == 1:
            return ctypes.c_char_p if "const" in text else ctypes.c_void_p
        if base == "char" and stars == 2:
            return ctypes.POINTER(ctypes.c_void_p)
    elif hasattr(c, base):
        found = getattr(c, base)
        if issubclass(found, ctypes._CFuncPtr):  # type: ignore[attr-defined]
            return found
    elif stars == 0:
        if base != "void":
            raise TypeError(f"unknown type {text!r}")
        return None
    else:
        found, stars = ctypes.c_void_p, stars - 1
    for _ in range(stars):
        found = ctypes.POINTER(found)
    return found


def _parameters(text: str) -> List[Tuple[str, str]]:
    """C types and names of the parameters of a function."""
    if text.strip() == "void":
        return []
    return [re.match(r"(.*?)(\w+)$", p.strip(), re.S).groups()  # type: ignore[union-attr,misc]
            for p in text.split(",") if p.strip() != "..."]


def _types_of_parameters(text: str) -> List[Any]:
    return [ctype_of(ctype) for ctype, _ in _parameters(text)]


def members_of(body: str) -> Iterator[Tuple[str, str, int]]:
    """The members of a structure: C type, name, length of an array or 0."""
    for declaration in body.split(";"):
        if not declaration.strip():
            continue
        base, names = re.match(r"\s*((?:const )?\w+)\s+(.*)", declaration,
                               re.S).groups()  # type: ignore[union-attr]
        for name in names.split(","):
            stars, word, length = re.match(r"\s*(\**)(\w+)(?:\[(\d+)\])?\s*$",
                                           name).groups()  # type: ignore[union-attr]
            yield f"{base} {stars}".strip(), word, int(length or 0)


# The C type of each member of each structure.
MEMBERS: Dict[str, Dict[str, Tuple[str, int]]] = {}


def _declare_types() -> None:
    pattern = r"struct (\w+) \{(.*?)\};|typedef (\w+) (\w+)\((.*?)\);"
    for match in re.finditer(pattern, TYPES, re.S):
        name, body, result, function, parameters = match.groups()
        if function:
            setattr(c, function,
                    ctypes.CFUNCTYPE(ctype_of(result), *_types_of_parameters(parameters)))
            continue
        MEMBERS[name] = {member: (ctype, length) for ctype, member, length in members_of(body)}
        fields = [(member, ctype_of(ctype) * length if length else ctype_of(ctype))
                  for member, (ctype, length) in MEMBERS[name].items()]
        checks = {member: check_of(ctype) for member, (ctype, length) in MEMBERS[name].items() if not length}
        setattr(c, name, type(name, (Structure,), {
            "_fields_": fields, "checks": {member: check for member, check in checks.items() if check},
            "zeros": ZEROS.get(name, {})}))


_declare_types()


# ---- loading ----


def _paths(name: str) -> Iterator[str]:
    """Candidate paths: beside KOLO_LIBRARY, in the folder of an installed module, on the system's
    search path."""
    given = os.environ.get("KOLO_LIBRARY")
    if given:
        yield given if name == COMM_NAME else os.path.join(os.path.dirname(given), name)
        return
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(here, "library_folder.txt"), encoding="utf-8") as file:
            yield os.path.join(here, file.read().strip(), name)
    except FileNotFoundError:
        yield os.path.join(here, "..", "..", "build", "release", name)  # a source tree
    yield name


def _load(name: str) -> ctypes.CDLL:
    tried = []
    for path in _paths(name):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise ImportError(f"cannot load {name}: {'; '.join(tried)}; set KOLO_LIBRARY to the path of "
                      f"{COMM_NAME}, beside which it is")


class Library:
    """The functions of a library, as attributes, which check their arguments. It is loaded when the first one is
    used. Functions that return a status raise an exception where it is an error: see ``on_status``."""

    on_status: Any = None  # called as on_status(code)

    def __init__(self, name: str, functions: str) -> None:
        self._name, self._text, self._library = name, functions, None

    def __getattr__(self, name: str) -> Any:
        pattern = r"^([\w *]+)\b" + name + r"\((.*?)\);"
        match = re.search(pattern, self._text, re.S | re.M)
        if not match:
            raise AttributeError(name)
        if self._library is None:
            self.__dict__["_library"] = _load(self._name)
        function = getattr(self._library, name)
        result = match.group(1).strip()
        function.argtypes = _types_of_parameters(match.group(2))
        function.restype = ctype_of(result)
        if result == "kolo_status" and name != "kolo_error_set":
            function.errcheck = Library._check
        function = checking(function, _parameters(match.group(2)))
        setattr(self, name, function)
        return function

    @staticmethod
    def _check(code: int, _function: Any, _arguments: Any) -> int:
        if code != 0:
            Library.on_status(code)
        return code


COMM_NAME = "libkolo-comm.so.0"
lib: Any = Library(COMM_NAME, COMM_FUNCTIONS)
training: Any = Library("libkolo.so.0", KOLO_FUNCTIONS)


# ---- enumerations ----


@functools.lru_cache(maxsize=None)
def names_of(enumeration: str) -> Tuple[str, ...]:
    """The names of an enumeration, such as "kolo_optimizer", by their codes: what its function returns for 0,
    1, ... until "unknown"."""
    if enumeration in CONSTANTS:
        return CONSTANTS[enumeration][1]
    function = NAMES[enumeration]
    library = lib if f"{function}(" in COMM_FUNCTIONS else training
    names: List[str] = []
    while True:
        name = getattr(library, function)(len(names)).decode()
        if name == "unknown":
            return tuple(names)
        names.append(name)


# ---- lifetimes ----


class NotCopied:
    """Base of classes with a handle of the library. A copy would use it when the original has freed it, and
    another process does not have it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a kolo.{type(self).__name__} cannot be copied or pickled: its memory is that of the "
                        "library in this process; make another one there")


def _free(function: Any, handle: Any, process: int, _kept: Any) -> None:
    if os.getpid() == process:
        function(handle)


def finalize(owner: Any, function: Any, handle: Any, *kept: Any) -> Any:
    """Calls function(handle) when ``owner`` is collected, at the latest at exit; what it uses is kept
    until then. Not in a forked child, which has no threads of the library."""
    return weakref.finalize(owner, _free, function, handle, os.getpid(), kept)
