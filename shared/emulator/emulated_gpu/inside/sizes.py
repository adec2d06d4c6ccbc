"""Operations that read numbers from the GPU: scalars, and how large a result is."""

import contextlib
import ctypes
import os
import sys
import threading

import torch

from emulated_gpu.inside.memory import (
    ASSUMED,
    COMPUTED,
    alias,
    is_large,
    mark,
    on_gpu,
    state_of,
    to_cpu,
)
from emulated_gpu.inside.reads import read
from emulated_gpu.inside.trees import tree_leaves, tree_map

aten = torch.ops.aten
# Operations that read from the device how large their result is, {operation: how to count it}.
SIZED = {
    aten.nonzero.default: lambda out: [len(out)],
    aten.masked_select.default: lambda out: [len(out)],
    aten._unique2.default: lambda out: [len(out[0])],
    aten.unique_consecutive.default: lambda out: [len(out[0])],
    aten.unique_dim.default: lambda out: [out[0].numel()],
    aten.repeat_interleave.Tensor: lambda out: [len(out)],
    aten.bincount.default: lambda out: [0, len(out) - 1],  # the smallest and the largest value
    aten._coalesce.default: lambda out: [out._nnz()],
}
# Operations that take as many values as a mask has that are true.
MASKED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
MASKED |= {aten._index_put_impl_.default}

# While there were values: (operation, shapes) -> how large its result was; lines -> a number.
_latest, _numbers = {}, {}
HERE = os.path.dirname(__file__)
_answers = ctypes.CDLL(None).emulator_answers
_answering = threading.local()


def is_masked(func, args):
    return func in MASKED and any(
        t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]
    )


@contextlib.contextmanager
def answers(numbers=None, count=-1):
    """Give an operation these numbers when it reads some from the GPU, by default 0 each time."""
    _answers(numbers, count)
    _answering.now = True
    try:
        yield
    finally:
        _answering.now = False
        _answers(None, 0)


def scalar(run, t):
    """Return the number of a tensor with one element, 1 where it has no value."""
    number = run(t)
    if not on_gpu(t) or getattr(_answering, "now", False):  # an operation counts
        return number
    read(t, "a number")
    known = not is_large(t) and state_of(t)
    number = alias(t).item() if known else torch.ones((), dtype=t.dtype).item()
    lines = _lines()
    _numbers[lines] = _numbers[lines[:2]] = number
    return number


def _lines():
    """Return where a number is read: the two innermost lines outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    before = frame.f_back or frame
    return frame.f_code, frame.f_lineno, before.f_code, before.f_lineno


def equal(func, run, args, kwargs, given):
    """Return whether two tensors are equal; those without values are."""
    out = run(*args, **kwargs)
    if not all(map(on_gpu, given)):
        return out
    for t in given:
        read(t, "whether tensors are equal")
    if any(map(is_large, given)):
        return given[0].shape == given[1].shape
    return func(*map(alias, given))


def sized(func, run, args, kwargs, given):
    """Run an operation whose result has a size that it reads from the GPU."""
    if not any(t.device.type == "cuda" for t in given):
        return run(*args, **kwargs)
    strided = all(map(on_gpu, [t for t in given if t.device.type == "cuda"]))
    on_card = [t for t in given if on_gpu(t)]
    for t in given if strided else []:
        read(t, "how many values")
    known = strided and not any(map(is_large, on_card))
    inputs, options = (tree_map(to_cpu, x) if known else x for x in (args, kwargs))
    counts, got = [], None
    with contextlib.suppress(RuntimeError, IndexError):
        if is_masked(func, args):
            counts = [_chosen(mask) for mask in args[1] if mask is not None]
            got = func(*inputs, **options) if known else None
        elif known:
            got = func(*inputs, **options)
            # Of truth values, it counts those that are true.
            truths = func is aten._unique2.default and inputs[0].dtype == torch.bool
            counts = [int(inputs[0].sum())] if truths else SIZED[func](got)
        else:
            counts = largest(func, args)
    _latest[_shapes(func, given)] = counts
    out = _with(counts, run, args, kwargs)
    state = ASSUMED if any(state_of(t) != COMPUTED for t in on_card) else COMPUTED
    for a, b in zip(tree_leaves(out), tree_leaves(got) if got is not None else ()):
        if isinstance(a, torch.Tensor) and on_gpu(a) and a.shape == b.shape and not is_large(a):
            alias(a).copy_(b)
            mark(a, state)
    return out


def find_ones(func, library):
    """Let an operation that reads how large its result is find 1 everywhere, and run on the CPU."""

    def kernel(*args, **kwargs):
        inputs, options = (tree_map(_ones, x) for x in (args, kwargs))
        out = func(*inputs, **options)
        return tree_map(lambda t: t.cuda() if isinstance(t, torch.Tensor) else t, out)

    library.impl(func.name().partition("::")[2], kernel, "CUDA")


def _ones(x):
    """Return a tensor of ones, without memory of its own, in place of one on the GPU."""
    is_there = isinstance(x, torch.Tensor) and on_gpu(x)
    return torch.ones((), dtype=x.dtype).expand(x.shape) if is_there else x


def _with(counts, run, args, kwargs):
    with answers((ctypes.c_int64 * len(counts))(*counts), len(counts)):
        return run(*args, **kwargs)


def _shapes(func, given):
    return (func, *(t.shape for t in given))


def as_before(func, run, args, kwargs):
    """Run an operation that reads numbers while no tensor has values.

    While they had some, there was such a number at the same line, and such a result of the same
    operation on tensors as large.
    """
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not any(t.device.type == "cuda" for t in given):
        return run(*args, **kwargs)
    if func is aten.equal.default:
        return given[0].shape == given[1].shape
    if func is aten._local_scalar_dense.default:
        number = run(*args)
        is_answer = not on_gpu(args[0]) or getattr(_answering, "now", False)
        if is_answer:
            return number
        lines = _lines()
        return _numbers.get(lines, _numbers.get(lines[:2], type(number)(1)))
    if func in MASKED and not is_masked(func, args):
        return run(*args, **kwargs)
    counts = _latest.get(_shapes(func, given))
    if counts is None:
        masks = [t for t in args[1] if t is not None] if func in MASKED else []
        counts = [t.numel() for t in masks] or largest(func, args)
    return _with(counts, run, args, kwargs)


def _chosen(mask):
    """Return how many values a mask chooses: all of them where it has no values."""
    if mask.dtype not in (torch.bool, torch.uint8):
        return 0
    if on_gpu(mask):
        read(mask, "how many values a mask chooses")
    if on_gpu(mask) and is_large(mask):
        return mask.numel()
    return int((alias(mask) if on_gpu(mask) else mask).count_nonzero())


def largest(func, args):
    """Return the count that makes the result of an operation without values as large as it gets."""
    t = args[0]
    if func is aten._coalesce.default:
        indices = t._indices()
        known = state_of(indices) == COMPUTED and not is_large(indices)
        return [alias(indices).unique(dim=1).shape[1] if known else t._nnz()]
    if func is aten.unique_dim.default:
        return [t.numel()]
    return [t.numel()]
