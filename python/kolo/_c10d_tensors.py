"""Tensors and operations of the backend "kolo" of torch.distributed, as Kolo's requests take them."""

from __future__ import annotations

import datetime
from typing import Any, List, Optional, Sequence, Tuple

import torch

from ._errors import Error, TimeoutError  # pylint: disable=redefined-builtin
from ._torch_types import TYPES

_REDUCTIONS = {"SUM": "sum", "AVG": "mean", "PRODUCT": "prod", "MIN": "min", "MAX": "max",
               "BAND": "and", "BOR": "or", "BXOR": "xor", "PREMUL_SUM": "sum"}
# Of booleans, which are bytes that hold 0 or 1; as numbers they would not stay booleans.
_LOGICAL = {"SUM": "max", "PRODUCT": "min", "MIN": "min", "MAX": "max", "BAND": "min", "BOR": "max",
            "BXOR": "xor"}

copied = [0, 0]  # tensors that went through a copy, and their bytes


def stage(tensor: torch.Tensor, fill: bool) -> torch.Tensor:
    """A contiguous tensor of the same shape."""
    copied[0] += 1
    copied[1] += tensor.numel() * tensor.element_size()
    if fill:
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def check(tensor: torch.Tensor, sparse: bool = False) -> None:
    if tensor.device.type != "cpu":
        raise TypeError(f"backend kolo: a tensor on {tensor.device}: it communicates tensors in main memory; "
                        "use init_process_group(\"nccl\") for GPUs")
    if tensor.layout != (torch.sparse_coo if sparse else torch.strided):
        raise TypeError(f"backend kolo: a tensor of layout {tensor.layout}: dense tensors are communicated, and "
                        "all_reduce takes sparse tensors of layout torch.sparse_coo, not both in one call")


def moved(tensors: Sequence[torch.Tensor]) -> Tuple[str, List[int]]:
    """The type by which tensors are moved, and their numbers of elements in it."""
    known = {t.dtype for t in tensors}
    if len(known) == 1:
        name = TYPES.get(tensors[0].dtype)
        if name:
            return name, [t.numel() for t in tensors]
    return "u8", [t.numel() * t.element_size() for t in tensors]


def reduction(op: Any, dtype: torch.dtype) -> Tuple[str, Optional[float]]:
    """Kolo's operation, and the factor of this rank's input."""
    kind = getattr(op, "op", op)
    name = str(kind).rsplit(".", maxsplit=1)[-1]
    found = (_LOGICAL if dtype == torch.bool else _REDUCTIONS).get(name)
    if dtype not in TYPES or found is None:
        raise TypeError(f"backend kolo: operation {name} on {dtype} is not supported")
    if dtype.is_complex and found not in ("sum", "mean", "prod"):
        raise TypeError(f"backend kolo: operation {name} on {dtype}: complex numbers have SUM, AVG and PRODUCT")
    factor = None
    if name == "PREMUL_SUM":
        factor = op.__getstate__()[1]
        if isinstance(factor, torch.Tensor):
            factor = float(factor)
        if not dtype.is_floating_point and not dtype.is_complex:
            raise TypeError(f"backend kolo: operation {name} on {dtype}: only on floating point")
    return found, factor


def scale_input(tensor: torch.Tensor, factor: Optional[float], write: bool) -> Tuple[torch.Tensor, float]:
    """An input and its factor for the library, to which 0 means none: then the input is multiplied here. ``write``:
    in place."""
    if factor != 0:
        return tensor, factor or 0.0
    return tensor.mul_(0) if write else tensor * 0, 0.5  # a factor, as on other ranks


def check_lengths(what: str, length: int, *lists: Sequence[Any]) -> None:
    for one in lists:
        if len(one) != length:
            raise ValueError(f"{what}: a list of length {len(one)}: give {length}")


def seconds_of(timeout: Any) -> float:
    """A timeout of c10d; 0: the group's."""
    if isinstance(timeout, datetime.timedelta):
        return max(timeout.total_seconds(), 0.0)
    return max(timeout / 1000, 0.0) if timeout else 0.0


def waited(error: Error, seconds: float) -> Error:
    """An error of a wait. Programs recognize a timeout by c10d's words."""
    if not isinstance(error, TimeoutError):
        return error
    return TimeoutError(error.status, f"backend kolo: Timed out waiting {round(1000 * seconds)}ms: {error}")


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    first, second = a.data_ptr(), b.data_ptr()
    return bool(first < second + b.numel() * b.element_size()
                and second < first + a.numel() * a.element_size())
