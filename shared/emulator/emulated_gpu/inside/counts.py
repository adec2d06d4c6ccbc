"""Counts that determine the size of a result: exact ones, of values, and the largest possible.

Masks need nothing here, since PyTorch calls nonzero() for them, and bincount() and histc() read
scalars.
"""

import math
from typing import NamedTuple

import torch

from emulated_gpu.inside.memory import State, alias, has_values, state_of

aten = torch.ops.aten


class Count(NamedTuple):
    """Two functions of an operation's arguments, which return the count that it reads."""

    exact: object  # of arguments on the CPU
    largest: object  # of arguments on the GPU, without their values
    by: slice = slice(None)  # the arguments whose values determine the count


def _distinct(t, dim=None):
    """Return the largest number of distinct values, or of distinct slices along a dimension."""
    n = t.numel() if dim is None else t.size(dim)
    if t.is_floating_point() or t.is_complex() or not n:
        return n  # each NaN differs from all others
    bits = 1 if t.dtype == torch.bool else 8 * t.element_size()
    if dim is not None:
        bits *= t.numel() // n
    return min(n, 2**bits) if bits < 63 else n


def _in_turn(t, *args):
    """Return the largest number of values or slices that differ from the one before."""
    dim = args[2] if len(args) > 2 else None
    return t.numel() if dim is None else t.size(dim)


def _unique(t, *_):
    # Of truth values, PyTorch counts those that are true.
    return int(t.sum()) if t.dtype == torch.bool else len(t.unique())


def _most_unique(t, *_):
    return min(1, t.numel()) if t.dtype == torch.bool else _distinct(t)


def _unique_in_turn(t, *args):
    dim = args[2] if len(args) > 2 else None
    return torch.unique_consecutive(t, dim=dim).shape[dim or 0]


def on_cpu(t):
    """Return a sparse tensor as one on the CPU, in which each value is 1."""
    ones = torch.ones(t._nnz())
    return torch.sparse_coo_tensor(alias(t._indices()), ones, t.shape[: t.sparse_dim()])


def _most_alike(index):
    """Return how often the same index occurs in a tensor of indices, at most."""
    if has_values(index) and state_of(index) is State.COMPUTED and index.numel():
        return int(alias(index).unique(return_counts=True)[1].max())
    return index.numel()


def _most_selected(t, dim, index):
    """Return the largest number of values that indices select from a sparse tensor."""
    count = t._nnz() * _most_alike(index)
    if not t.is_coalesced():  # all of its values may be at one place
        return count
    places = list(t.shape[: t.sparse_dim()])
    places[dim] = index.numel()
    return min(count, math.prod(places))


TRUE = Count(lambda t: int(t.count_nonzero()), torch.Tensor.numel)
UNIQUE = Count(_unique, _most_unique)
# {operation whose result has a size that it reads from the GPU: its Count}
SIZED = {
    aten.nonzero.default: TRUE,
    aten.nonzero.out: TRUE,
    aten.repeat_interleave.Tensor: Count(lambda t: int(t.sum()), torch.Tensor.numel),
    aten._unique.default: UNIQUE,
    aten._unique2.default: UNIQUE,
    aten.unique_consecutive.default: Count(_unique_in_turn, _in_turn),
    aten.unique_dim.default: Count(
        lambda t, dim, *_: t.unique(dim=dim).shape[dim],
        lambda t, dim, *_: _distinct(t, dim),
    ),
    aten.unique_dim_consecutive.default: Count(
        lambda t, dim, *_: t.unique_consecutive(dim=dim).shape[dim],
        lambda t, dim, *_: t.size(dim),
    ),
    aten._coalesce.default: Count(
        lambda t: t.coalesce()._indices(),
        lambda t: min(t._nnz(), math.prod(t.shape[: t.sparse_dim()])),
    ),
    # libraries.c computes the largest count, as for matrices of other layouts.
    aten._sparse_sparse_matmul.default: Count(lambda a, b: (a @ b)._indices(), lambda *_: None),
    aten.index_select.default: Count(
        lambda t, dim, index: t.index_select(dim, index)._indices(),
        lambda t, dim, index: _most_selected(t, dim, index),
    ),
}
if hasattr(aten, "_padded_dense_to_jagged_forward"):  # from PyTorch 2.4 on
    SIZED[aten._padded_dense_to_jagged_forward.default] = Count(
        lambda padded, offsets, *_: int(offsets[0][-1]),
        lambda padded, offsets, *_: padded.shape[0] * padded.shape[1],
        by=slice(1, 2),
    )
# Of these, those that count in sparse tensors only.
SPARSE = (aten._coalesce.default, aten._sparse_sparse_matmul.default, aten.index_select.default)
NMS_COUNT = Count(
    lambda *args: len(torch.ops.torchvision.nms(*args)),
    lambda boxes, *_: len(boxes),
)
# Assumed values are all alike: they tell how many are true, but not how many are different.
NONZERO = (aten.nonzero.default, aten.nonzero.out)
COUNT_TRUE = (*NONZERO, aten.repeat_interleave.Tensor)
