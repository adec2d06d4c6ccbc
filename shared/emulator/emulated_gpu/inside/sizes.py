"""Operations that read numbers from the GPU: scalars, and how large a result is.

nonzero(), for example, counts on the GPU, copies the count to the host and allocates a result of
that size. The CPU counts in its place, and the library answers that copy with its count.
"""

import contextlib
import ctypes
import os
import sys
import threading

import torch

from emulated_gpu.inside import library
from emulated_gpu.inside.memory import (
    State,
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

# What was read while there were values, for the time without.
_latest_counts = {}  # (operation, shapes) -> how large its result was
_latest_numbers = {}  # lines -> a number
HERE = os.path.dirname(__file__)
_answering = threading.local()  # its `now` is true while an operation of this thread gets answers


def is_masked(func, args):
    """Return whether an operation takes as many values as a mask has that are true."""
    return func in MASKED and any(
        t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]
    )


@contextlib.contextmanager
def answers(numbers=None, count=-1):
    """Give an operation these numbers when it reads some from the GPU, by default 0 each time."""
    library.set_answers(numbers, count)
    _answering.now = True
    try:
        yield
    finally:
        _answering.now = False
        library.set_answers(None, 0)


def scalar(run, t):
    """Return the number of a tensor with one element, 1 where it has no value."""
    number = run(t)
    if not on_gpu(t) or getattr(_answering, "now", False):  # an operation counts
        return number
    read(t, "a number")
    has_value = not is_large(t) and state_of(t) is not State.UNKNOWN
    number = alias(t).item() if has_value else torch.ones((), dtype=t.dtype).item()
    lines = _lines()
    # Also for this line with any caller: without values, another one may come through it.
    _latest_numbers[lines] = _latest_numbers[lines[:2]] = number
    return number


def _lines():
    """Return where a number is read: the two innermost lines outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    before = frame.f_back or frame
    return frame.f_code, frame.f_lineno, before.f_code, before.f_lineno


def equal(func, run, args, kwargs, operands):
    """Return whether two tensors are equal; those without values are."""
    out = run(*args, **kwargs)
    if not all(map(on_gpu, operands)):
        return out
    for t in operands:
        read(t, "whether tensors are equal")
    if any(map(is_large, operands)):
        return operands[0].shape == operands[1].shape
    return func(*map(alias, operands))


def sized(func, run, args, kwargs, operands):
    """Run an operation whose result has a size that it reads from the GPU."""
    on_card = [t for t in operands if t.device.type == "cuda"]
    if not on_card:
        return run(*args, **kwargs)
    are_strided = all(map(on_gpu, on_card))
    if are_strided:
        for t in operands:
            read(t, "how many values")
    have_values = are_strided and not any(map(is_large, on_card))
    counts = []
    result = None  # of the CPU
    with contextlib.suppress(RuntimeError, IndexError):  # the GPU's own run raises the same
        if is_masked(func, args):
            counts = [_count_of_true(mask) for mask in args[1] if mask is not None]
        if have_values:
            inputs = tree_map(to_cpu, args)
            result = func(*inputs, **tree_map(to_cpu, kwargs))
        if not is_masked(func, args):
            counts = _counts(func, inputs, result) if have_values else largest(func, args)
    _latest_counts[_shapes(func, operands)] = counts
    out = _with_counts(counts, run, args, kwargs)
    _fill(out, result, [t for t in on_card if on_gpu(t)])
    return out


def _counts(func, inputs, result):
    """Return the numbers that an operation on the GPU would read, given its result on the CPU."""
    if func is aten._unique2.default and inputs[0].dtype == torch.bool:
        return [int(inputs[0].sum())]  # of truth values, it counts those that are true
    return SIZED[func](result)


def _fill(out, result, on_card):
    """Put the CPU's result into small results on the GPU, which depend on these tensors there."""
    if result is None:
        return
    state = State.COMPUTED
    if any(state_of(t) is not State.COMPUTED for t in on_card):
        state = State.ASSUMED
    for target, source in zip(tree_leaves(out), tree_leaves(result)):
        if not isinstance(target, torch.Tensor) or not on_gpu(target) or is_large(target):
            continue
        if target.shape == source.shape:
            alias(target).copy_(source)
            mark(target, state)


def find_ones(func, registry):
    """Run an operation that reads how large its result is on the CPU, on tensors of ones.

    For PyTorch before 2.9, where operations have no values.
    """

    def kernel(*args, **kwargs):
        out = func(*tree_map(_ones, args), **tree_map(_ones, kwargs))
        return tree_map(lambda t: t.cuda() if isinstance(t, torch.Tensor) else t, out)

    registry.impl(func.name().partition("::")[2], kernel, "CUDA")


def _ones(x):
    """Return a tensor of ones, without memory of its own, in place of one on the GPU."""
    if not isinstance(x, torch.Tensor) or not on_gpu(x):
        return x
    return torch.ones((), dtype=x.dtype).expand(x.shape)


def _with_counts(counts, run, args, kwargs):
    with answers((ctypes.c_int64 * len(counts))(*counts), len(counts)):
        return run(*args, **kwargs)


def _shapes(func, operands):
    return (func, *(t.shape for t in operands))


def as_before(func, run, args, kwargs):
    """Run an operation that reads numbers while no tensor has values.

    A number is the one that was last read at this line while tensors had values, and a result is as
    large as the last one of this operation on tensors of these shapes.
    """
    operands = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not any(t.device.type == "cuda" for t in operands):
        return run(*args, **kwargs)
    if func is aten.equal.default:
        return operands[0].shape == operands[1].shape
    if func is aten._local_scalar_dense.default:
        number = run(*args)
        is_answer = not on_gpu(args[0]) or getattr(_answering, "now", False)
        if is_answer:
            return number
        lines = _lines()
        one = type(number)(1)
        return _latest_numbers.get(lines, _latest_numbers.get(lines[:2], one))
    if func in MASKED and not is_masked(func, args):
        return run(*args, **kwargs)
    counts = _latest_counts.get(_shapes(func, operands))
    if counts is None:
        masks = [t for t in args[1] if t is not None] if func in MASKED else []
        counts = [t.numel() for t in masks] or largest(func, args)
    return _with_counts(counts, run, args, kwargs)


def _count_of_true(mask):
    """Return how many values a mask chooses: all of them where it has no values."""
    if mask.dtype not in (torch.bool, torch.uint8):
        return 0
    if on_gpu(mask):
        read(mask, "how many values a mask chooses")
        if is_large(mask):
            return mask.numel()
        mask = alias(mask)
    return int(mask.count_nonzero())


def largest(func, args):
    """Return the count that makes the result of an operation without values as large as it gets."""
    t = args[0]
    if func is aten._coalesce.default:
        indices = t._indices()
        if state_of(indices) is State.COMPUTED and not is_large(indices):
            return [alias(indices).unique(dim=1).shape[1]]
        return [t._nnz()]
    return [t.numel()]
