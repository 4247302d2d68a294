"""Sums of sparse tensors for the backend "kolo" of torch.distributed."""

from __future__ import annotations

import datetime
from typing import Any, Dict, List, Sequence

import torch

from ._c10d_tensors import moved
from ._c10d_work import Engine

SHAPE = 64  # numbers that describe a sparse tensor


def _describe(tensor: torch.Tensor) -> torch.Tensor:
    """Dimensions, those of them that are sparse, entries, bytes of a value, shape."""
    shape = [tensor.dim(), tensor.sparse_dim(), tensor._nnz(), tensor.element_size(), *tensor.shape]
    if len(shape) > SHAPE:
        raise ValueError(f"all_reduce of a sparse tensor with {tensor.dim()} dimensions: at most {SHAPE - 4}")
    return torch.tensor(shape + [0] * (SHAPE - len(shape)))


def _exchange_each(engine: Engine, tag: int, seconds: float, given: Sequence[torch.Tensor],
                   taken: Dict[int, List[torch.Tensor]]) -> None:
    """Sends tensors to each of the ranks of ``taken``, and receives those of that rank."""
    several = []
    for rank, tensors in taken.items():
        for kind, side, own in (("recv", "output", tensors), ("send", "given", given)):
            for tensor in own:
                if tensor.numel():
                    name, (count,) = moved([tensor])
                    memory: Dict[str, Any] = {side: tensor}
                    several.append(engine.opts(kind, name, count, root=rank, tag=tag, **memory))
    engine.start(several, []).wait(datetime.timedelta(seconds=seconds))


def sum_sparse(engine: Engine, tensor: torch.Tensor, tag: int, seconds: float) -> torch.Tensor:
    """The sum over the ranks, which add the entries in the same order, so that all have the same bits. Messages
    instead of collectives: the thread that runs this is in no order with others."""
    own = tensor.coalesce()
    mine = _describe(own)
    others = [r for r in range(engine.comm.size) if r != engine.comm.rank]
    shapes = {r: torch.zeros_like(mine) for r in others}
    _exchange_each(engine, tag, seconds, [mine], {r: [shape] for r, shape in shapes.items()})
    for rank, shape in shapes.items():
        fixed = torch.arange(SHAPE) != 2  # all but the number of entries
        if not torch.equal(shape[fixed], mine[fixed]):
            sizes = [s[4:4 + int(s[0])].tolist() for s in (mine, shape)]
            raise ValueError(f"all_reduce of sparse tensors: {sizes[0]}, {int(mine[1])} of the dimensions sparse, on "
                             f"rank {engine.comm.rank}, {sizes[1]}, {int(shape[1])} sparse, on rank {rank}; or "
                             "different types")
    entries = {r: int(shape[2]) for r, shape in shapes.items()}
    parts = {r: [own.indices().new_empty(own.sparse_dim(), n), own.values().new_empty(n, *own.values().shape[1:])]
             for r, n in entries.items()}
    given = [own.indices().contiguous(), own.values().resolve_conj().resolve_neg().contiguous()]
    _exchange_each(engine, tag, seconds, given, parts)
    parts[engine.comm.rank] = given
    indices, values = (torch.cat([parts[r][i] for r in sorted(parts)], 1 - i) for i in range(2))
    return torch.sparse_coo_tensor(indices, values, tensor.shape).coalesce()
