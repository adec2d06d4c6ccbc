"""The memory of small tensors on the emulated GPU, and the origin of their values.

Nothing here makes a Python object of a tensor's storage: PyTorch would then add gradients out of
place, since that object might still be read.
"""

import contextlib
import ctypes
import enum
import math

import torch

LARGE = 1 << 20  # bytes; COPIED in emulator.h


class State(enum.Enum):
    """The origin of the values of a tensor on the GPU, as far as it is known."""

    UNKNOWN = "unknown"  # none: stale bytes, or the tensor is too large to have values
    COMPUTED = "computed"  # as a GPU would have computed them
    ASSUMED = "assumed"  # placeholders for values that were not computed
    NEVER_TRUE = "never true"  # placeholders in a mask of NaN or infinity, which should have none
    DECIDED = "decided"  # placeholders in a mask of which any() has been asked, and which fit


_states = {}  # address -> State; absent where it is UNKNOWN
_random_state = torch.random.get_rng_state()


def on_gpu(t):
    """Return whether a tensor has strided memory on the GPU.

    A sparse or a nested tensor has not, but its parts are tensors that have.
    """
    return t.is_cuda and t.layout == torch.strided and not t.is_nested


def extent(t):
    """Return the bytes from a tensor's first value to its last value."""
    if not t.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(t.size(), t.stride()))
    return (last + 1) * t.element_size()


def is_large(t):
    """Return whether a tensor has more than LARGE bytes, and so no values."""
    return extent(t) > LARGE


def start(t):
    """Return the address at which the memory that a tensor is a view of begins.

    The allocator's history names blocks by it.
    """
    return t.data_ptr() - t.storage_offset() * t.element_size()


def state_of(t):
    """Return the State of a tensor: of the memory that it is a view of, else of the view."""
    return _states.get(start(t)) or _states.get(t.data_ptr(), State.UNKNOWN)


def has_values(t):
    """Return whether a tensor has values, computed or assumed; on the host it always has."""
    if not on_gpu(t) or not t.numel():
        return True
    return not is_large(t) and state_of(t) is not State.UNKNOWN


def mark(t, state):
    """Set the State of a tensor's values."""
    # A view of memory without a state, such as a part of a large buffer, has one of its own.
    address = start(t) if t.storage_offset() == 0 or start(t) in _states else t.data_ptr()
    if state is State.UNKNOWN:
        _states.pop(address, None)
    else:
        _states[address] = state


def alias(t):
    """Return a CPU tensor that shares the memory of a small tensor on the emulated GPU.

    The addresses of the emulated GPU are addresses of this process, with memory where it writes.
    """
    n = extent(t)
    if not n:
        return torch.empty(t.size(), dtype=t.dtype)
    memory = (ctypes.c_ubyte * n).from_address(t.data_ptr())
    same = torch.frombuffer(memory, dtype=t.dtype).as_strided(t.size(), t.stride())
    # The bytes are those from before: PyTorch only notes that a tensor is conjugated.
    # https://docs.pytorch.org/docs/stable/generated/torch.conj.html
    return same.conj() if t.is_conj() else same


def to_cpu(x):
    """Return an operation's argument for a run on the CPU: tensors aliased, devices replaced."""
    if isinstance(x, torch.Tensor):
        return alias(x) if on_gpu(x) else x
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == "cuda" else x


def finite(t):
    """Replace NaN, and infinity in a tensor of one element, by 1: no kernel computed them.

    In larger tensors infinity may be what the script wants: in masks of attention.
    """
    if t.dtype.itemsize == 1:  # PyTorch has no such operation for fp8
        return
    largest = math.inf
    smallest = -math.inf
    if t.numel() == 1:
        largest = smallest = 1.0
    torch.nan_to_num_(alias(t), 1.0, largest, smallest)


@contextlib.contextmanager
def own_random_numbers():
    """Use the emulated GPU's random state in this context; the CPU's stays as beside a real GPU."""
    global _random_state
    kept = torch.random.get_rng_state()
    torch.random.set_rng_state(_random_state)
    try:
        yield
    finally:
        _random_state = torch.random.get_rng_state()
        torch.random.set_rng_state(kept)
