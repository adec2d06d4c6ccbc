"""The memory of small tensors on the emulated GPU, and what is known of their values.

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

    UNKNOWN = "unknown"  # nothing: what was in that memory before, or too large to have values
    COMPUTED = "computed"  # what a GPU would have computed
    ASSUMED = "assumed"  # there are values, which stand for some that nothing has computed
    NEVER_TRUE = "never true"  # the same, of a mask of NaN or infinity, which should have none


_states = {}  # address -> State; absent where it is UNKNOWN
_random_state = torch.random.get_rng_state()


def on_gpu(t):
    """Return whether a tensor has memory on the GPU, as one of a single size.

    Sparse tensors consist of such ones, and the parts of a nested one are such.
    """
    return t.is_cuda and t.layout == torch.strided and not t.is_nested


def extent(t):
    """Return the bytes from a tensor's first value to its last one."""
    if not t.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(t.size(), t.stride()))
    return (last + 1) * t.element_size()


def is_large(t):
    return extent(t) > LARGE


def start(t):
    """Return the address at which the memory begins that a tensor is a view of."""
    return t.data_ptr() - t.storage_offset() * t.element_size()


def state_of(t):
    """Return the State of a tensor: of the memory that it is a view of, else of the view."""
    return _states.get(start(t)) or _states.get(t.data_ptr(), State.UNKNOWN)


def has_values(t):
    """Return whether there are values to read, computed or assumed; on the host there are."""
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
    """Return a tensor on the CPU that has the memory of a small one on the emulated GPU.

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
    """Return an argument of an operation as the same operation on the CPU takes it."""
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
    """Draw from the emulated GPU's own sequence, so that the CPU's is what it is beside a GPU."""
    global _random_state
    kept = torch.random.get_rng_state()
    torch.random.set_rng_state(_random_state)
    try:
        yield
    finally:
        _random_state = torch.random.get_rng_state()
        torch.random.set_rng_state(kept)
