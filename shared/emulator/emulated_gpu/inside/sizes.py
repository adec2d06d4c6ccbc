"""Operations that read numbers from the GPU: scalars, and sizes of results.

nonzero(), for example, counts on the GPU, copies the count to the host and allocates a result of
that size. The CPU counts in its place, and the library answers the copy with that count. Without
values, the count is the largest that the arguments allow. Masks need no more than nonzero(), which
PyTorch calls for them.
"""

import contextlib
import ctypes
import functools
import math
import threading

import torch

from emulated_gpu.inside import library
from emulated_gpu.inside.counts import COUNT_TRUE, NONZERO, SIZED, SPARSE, on_cpu
from emulated_gpu.inside.memory import State, alias, has_values, mark, on_gpu, state_of, to_cpu
from emulated_gpu.inside.reads import read
from emulated_gpu.inside.trees import tensors_of, tree_map

aten = torch.ops.aten
# Operations that count assumed values as they are, not the most that is possible: masks, and
# unique(), with which torchmetrics checks that predictions are no more than the classes.
CHECKED = {*COUNT_TRUE, aten._unique2.default}
# Of this thread: `now` has the answers of an operation, `most` the bound of one inside of it.
# The library, too, keeps answers by thread: a backward pass has one of its own.
_answering = threading.local()


@contextlib.contextmanager
def answers(numbers=None, count=-1):
    """Answer an operation's reads from the GPU, in this context, with numbers, by default 0."""
    # An operation may call another one that has answers of its own.
    before = getattr(_answering, "now", (None, 0))
    _set_answers(numbers, count)
    try:
        yield
    finally:
        _set_answers(*before)


def _set_answers(*now):
    _answering.now = now
    library.set_answers(*now)


def _is_answering():
    """Return whether an operation of this thread has got answers."""
    return getattr(_answering, "now", (None, 0)) != (None, 0)


@contextlib.contextmanager
def at_most(count, func):
    """Set a bound on the count of an operation that another operation calls without values."""
    _answering.most = {func: count}
    try:
        yield
    finally:
        del _answering.most


def bound(func):
    """Return the bound that at_most() has set on the count of an operation, or None."""
    return getattr(_answering, "most", {}).get(func)


def bound_combinations():
    """Bound the length of torch.combinations(), which older versions of PyTorch count in a mask."""
    original = torch.combinations

    @functools.wraps(original)
    def combinations(input, r=2, with_replacement=False):
        n = len(input) + (r - 1 if with_replacement else 0)
        with at_most(math.comb(n, r), aten.nonzero.default):
            return original(input, r, with_replacement)

    torch.combinations = combinations


def scalar(run, t):
    """Return the number of a tensor with one element, 1 where it has no value."""
    number = run(t)
    if not on_gpu(t) or _is_answering():  # an operation counts
        return number
    read(t, "a number")
    # Not simply 1: Python gets a bool, an integer or a float, as the type of the tensor is.
    return alias(t).item() if has_values(t) else torch.ones((), dtype=t.dtype).item()


def equal(func, run, args, kwargs, operands):
    """Return whether two tensors are equal; without values, those of the same shape are."""
    # The GPU's own run comes first, since it allocates what a GPU does.
    out = run(*args, **kwargs)
    if not all(map(on_gpu, operands)):
        return out
    for t in operands:
        read(t, "whether tensors are equal")
    if not all(map(has_values, operands)):
        return operands[0].shape == operands[1].shape
    return func(*map(alias, operands))


def is_sized(func, args):
    """Return whether an operation reads the size of its result from the GPU."""
    return func in SIZED and (func not in SPARSE or args[0].is_sparse)


def sized(func, run, args, kwargs, operands):
    """Run an operation whose result has a size that it reads from the GPU."""
    if func in NONZERO and _is_answering():  # it counts for another operation
        return run(*args, **kwargs)
    deciding = [_places(t) for t in tensors_of(args[SIZED[func].by])]
    for t in deciding:
        read(t, "how many values")
    result = None
    if all(_tells(func, t) for t in deciding):
        # Wrong arguments: the GPU's own run raises the same error.
        with contextlib.suppress(RuntimeError, IndexError):
            result = SIZED[func].exact(*tree_map(_values, args))
    count = _count(func, args) if result is None else result
    is_sparse = isinstance(count, torch.Tensor)
    count = count.shape[1] if is_sparse else count
    out = _with_count(count, run, args, kwargs)
    if is_sparse:
        alias(out._indices()).copy_(result)
        mark(out._indices(), State.COMPUTED)
    return out


def _count(func, args):
    """Return the largest count that the arguments allow."""
    if func in COUNT_TRUE and state_of(args[0]) is State.NEVER_TRUE:
        return 0
    count = SIZED[func].largest(*args)
    most = bound(func)
    return count if most is None else min(count, most)


def _places(t):
    """Return the indices of a sparse tensor, the places of its values; else the tensor itself."""
    return t._indices() if t.is_sparse else t


def _tells(func, t):
    """Return whether a tensor has the values that determine the size of a result."""
    tells = func in CHECKED or state_of(t) is State.COMPUTED or not on_gpu(t)
    return has_values(t) and (tells or not t.numel())


def _values(x):
    return on_cpu(x) if isinstance(x, torch.Tensor) and x.is_sparse else to_cpu(x)


def find_most(func, registry):
    """Replace an operation by a run on the CPU, on values that give the largest result.

    For PyTorch before 2.9, where tensors have no values. Operations by which scripts check values
    get equal ones, so that no check fails.
    """
    is_alike = func in CHECKED or func not in SIZED
    values_for = _ones if is_alike else _different

    def kernel(*args, **kwargs):
        out = func(*tree_map(values_for, args), **tree_map(values_for, kwargs))
        return tree_map(lambda t: t.cuda() if isinstance(t, torch.Tensor) else t, out)

    registry.impl(func.name().partition("::")[2], kernel, "CUDA")


def _ones(x):
    """Return a tensor of ones that takes no memory, in place of a tensor on the GPU."""
    if not isinstance(x, torch.Tensor) or not on_gpu(x):
        return x
    return torch.ones((), dtype=x.dtype).expand(x.shape)


def _different(x):
    """Return a tensor of values as distinct as its type allows, in place of a tensor on the GPU."""
    if not isinstance(x, torch.Tensor) or not on_gpu(x):
        return x
    return torch.arange(x.numel()).to(x.dtype).view(x.shape)


def _with_count(count, run, args, kwargs):
    if count is None:  # the library knows the largest one
        return run(*args, **kwargs)
    with answers((ctypes.c_int64 * 1)(count), 1):
        return run(*args, **kwargs)
